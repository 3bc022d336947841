//! Asks both sides the same and keeps what stays different.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use zw_lab::NODE;

use crate::observe::{Observation, enough, sample};
use crate::questions::{Question, questions};
use crate::service::Service;
use crate::twins::Twins;

/// How long nothing must happen before we believe that nothing will, at first.
const SILENCE: Duration = Duration::from_millis(300);
/// The same before a difference is believed: TCP opens again after a second.
const LONG_SILENCE: Duration = Duration::from_millis(1500);
/// How long a difference must last: what the API says of the node may reach one side a moment later.
pub(crate) const LASTING: Duration = Duration::from_secs(3);
/// How many times in a row a difference must show, each time with all the connections that it takes: on a
/// busy machine an answer may come too late once.
const TIMES: usize = 3;
/// How many questions are asked again to see whether a difference lasts.
const ASKED_AGAIN: usize = 300;

/// A question that the two sides answer differently.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    pub(crate) question: Question,
    pub(crate) answers: [Observation; 2],
}

impl Difference {
    /// What kind of difference it is, whichever Service shows it.
    pub(crate) fn class(&self) -> String {
        let Question { frontend, from, .. } = self.question;
        let [one, two] = &self.answers;
        let what = match (one.kinds(), two.kinds()) {
            (one, two) if one != two => format!("{one} against {two}"),
            _ if one.endpoints() != two.endpoints() => "other endpoints".to_owned(),
            _ => "other addresses seen".to_owned(),
        };
        format!("{frontend:?} from {from}: {what}")
    }
}

/// What was asked, and what came of it.
pub(crate) struct Comparison {
    /// How often the first side did what: the kinds of [`Observation::kinds`].
    pub(crate) kinds: BTreeMap<String, usize>,
    pub(crate) differences: Vec<Difference>,
}

/// Compares everything there is to ask about these Services, which both sides have heard of. A difference
/// counts if it is still there after so long.
pub(crate) fn compare(twins: &Twins, services: &[Service], lasting: Duration) -> Comparison {
    let questions = questions(services);
    let once: Vec<(&Question, usize)> = questions.iter().map(|question| (question, 1)).collect();
    let mut answers = ask_both(twins, &once, SILENCE);
    // Where someone answered there may be others: usually this many find them all.
    let choices: Vec<usize> = (0..questions.len())
        .filter(|i| answers[*i].iter().any(|side| !side.answered.is_empty()))
        .filter(|i| questions[*i].candidates.len() > 1)
        .collect();
    let several: Vec<(&Question, usize)> = choices
        .iter()
        .map(|i| {
            (
                &questions[*i],
                if questions[*i].sticky { 4 } else { 3 * questions[*i].candidates.len() },
            )
        })
        .collect();
    for (i, more) in choices.iter().zip(ask_both(twins, &several, SILENCE)) {
        for (side, more) in answers[*i].iter_mut().zip(more) {
            side.merge(more);
        }
    }
    let mut kinds = BTreeMap::new();
    for [one, _] in &answers {
        *kinds.entry(one.kinds()).or_default() += 1;
    }
    let strays = strays(services, &questions, &answers);
    let mut differences: Vec<Difference> = questions
        .into_iter()
        .zip(answers)
        .enumerate()
        .filter(|(i, (question, [one, two]))| strays.contains(i) || !one.agrees(two, question))
        .map(|(_, (question, answers))| Difference { question, answers })
        .collect();
    let end = Instant::now() + lasting;
    for time in 1.. {
        if differences.is_empty() || (time > TIMES && Instant::now() > end) {
            break;
        }
        differences = ask_again(twins, services, differences);
    }
    Comparison { kinds, differences }
}

/// Starts over with those that differ; the ones that still do are left.
fn ask_again(twins: &Twins, services: &[Service], differences: Vec<Difference>) -> Vec<Difference> {
    let questions: Vec<Question> = differences.into_iter().map(|d| d.question).collect();
    let mut left = Vec::new();
    for questions in questions.chunks(ASKED_AGAIN) {
        let many: Vec<(&Question, usize)> = questions.iter().map(|q| (q, enough(q))).collect();
        let answers = ask_both(twins, &many, LONG_SILENCE);
        let strays = strays(services, questions, &answers);
        for (i, (question, answers)) in questions.iter().zip(answers).enumerate() {
            if strays.contains(&i) || !answers[0].agrees(&answers[1], question) {
                left.push(Difference { question: question.clone(), answers });
            }
        }
    }
    left
}

/// Asks both sides at the same time; for each question the answers of the one and of the other.
fn ask_both(
    twins: &Twins,
    questions: &[(&Question, usize)],
    patience: Duration,
) -> Vec<[Observation; 2]> {
    let [one, two] = &twins.sides;
    let (one, two) = (&one.lab, &two.lab);
    let (one, two) = thread::scope(|scope| {
        let other = scope.spawn(|| sample(two, questions, patience));
        (sample(one, questions, patience), other.join().expect("a prober"))
    });
    one.into_iter().zip(two).map(|(one, two)| [one, two]).collect()
}

/// The questions by which a client that ought to stay with its endpoint shows that it does not: a Service
/// port's addresses share the memory of a client, where the same endpoints serve them all.
fn strays(
    services: &[Service],
    questions: &[Question],
    answers: &[[Observation; 2]],
) -> BTreeSet<usize> {
    let mut groups: BTreeMap<(usize, usize, &str, bool), Vec<usize>> = BTreeMap::new();
    for (i, question) in questions.iter().enumerate() {
        let Some(number) = question.service else { continue };
        let service = &services[number];
        let same_endpoints = !service.internal_local && !service.external_local;
        // The node asks each address from another of its own, so it is several clients.
        if question.sticky && same_endpoints && question.from != NODE {
            let key = (number, question.port, question.from, question.to.is_ipv4());
            groups.entry(key).or_default().push(i);
        }
    }
    let mut strays = BTreeSet::new();
    for group in groups.into_values() {
        let [one, two] = [0, 1].map(|side| {
            let endpoints = group.iter().flat_map(|i| answers[*i][side].endpoints());
            endpoints.collect::<BTreeSet<_>>().len()
        });
        if one.min(2) != two.min(2) {
            strays.extend(group);
        }
    }
    strays
}
