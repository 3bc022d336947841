//! What happens in a history: the same for the same seed.

use zw_tests::rng::Rng;

/// How many Services there are at most.
pub(crate) const SERVICES: usize = 3;
/// The pods behind them; all of them answer all the time.
pub(crate) const PODS: [u8; 4] = [1, 2, 3, 4];

/// What a Service offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) pods: Vec<u8>,
    pub(crate) sticky: bool,
}

/// One thing that happens.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A Service is made, changed or, with `None`, deleted.
    Change(usize, Option<Offer>),
    /// The agent is killed, and started again.
    Kill,
    /// The same, and in the new one a system call fails, or is the last one: see
    /// [`Agent::start_tampered`](zw_tests::binary::Agent::start_tampered).
    Tamper(String),
    /// A stranger flushes the whole ruleset.
    Flush,
    /// A stranger deletes one of our tables, the first or the second.
    DropTable(usize),
    /// A stranger deletes some element of ours; which, by number.
    DropElement(usize),
    /// A stranger empties some chain of ours; which, by number.
    EmptyChain(usize),
    /// A stranger puts an element and a chain of his into our table.
    Intrude,
    /// A stranger changes a table of his own, some times over.
    ChangeOthers,
    /// Nothing, for so many milliseconds.
    Pause(u64),
}

/// The history of this seed.
pub(crate) fn script(seed: u64) -> Vec<Step> {
    let mut rng = Rng::stream(seed, 0);
    let mut steps = vec![Step::Change(0, Some(offer(&mut rng, 1)))];
    for _ in 0..4 + rng.below(8) {
        steps.push(step(&mut rng));
    }
    // Somebody must be there to connect to in the end.
    let last = steps.iter().rev().find_map(|step| match step {
        Step::Change(0, offer) => Some(offer.clone()),
        _ => None,
    });
    if last.flatten().is_none_or(|offer| offer.pods.is_empty()) {
        steps.push(Step::Change(0, Some(offer(&mut rng, 1))));
    }
    steps
}

fn step(rng: &mut Rng) -> Step {
    match rng.below(100) {
        0..32 => {
            let service = rng.below(SERVICES);
            Step::Change(service, rng.chance(85).then(|| offer(rng, 0)))
        }
        32..40 => Step::Kill,
        40..54 => Step::Tamper(tamper(rng)),
        54..60 => Step::Flush,
        60..64 => Step::DropTable(rng.below(2)),
        64..72 => Step::DropElement(rng.below(1_000)),
        72..76 => Step::EmptyChain(rng.below(1_000)),
        76..79 => Step::Intrude,
        79..82 => Step::ChangeOthers,
        _ => Step::Pause(1 + rng.below(250) as u64),
    }
}

fn offer(rng: &mut Rng, at_least: usize) -> Offer {
    let mut pods = rng.some(&PODS, 60);
    if pods.len() < at_least {
        pods.push(rng.pick(&PODS));
    }
    Offer { pods, sticky: rng.chance(20) }
}

/// A start reads the tables back, some sixty requests with their answers; a commit after that is two.
fn tamper(rng: &mut Rng) -> String {
    let (send, receive) = (1 + rng.below(80), 1 + rng.below(180));
    match rng.below(8) {
        0 => format!("sendmsg:error=ENOMEM:when={send}"),
        1 => format!("sendmsg:error=ENOBUFS:when={send}..{}", send + 2),
        2 => format!("sendmsg:signal=KILL:when={send}"),
        // What was sent has landed, and the answer is lost.
        3 => format!("recvfrom:error=ENOBUFS:when={receive}"),
        4 => format!("recvfrom:error=EAGAIN:when={receive}"),
        5 => format!("recvfrom:error=EINTR:when={receive}..{}", receive + 3),
        // Between the two.
        _ => format!("recvfrom:signal=KILL:when={receive}"),
    }
}
