//! Which endpoint the next client of a frontend gets.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::Backends;

/// Any endpoint, or with affinity the one the last client got.
#[derive(Debug)]
pub(super) struct Choice(Mutex<State>);

#[derive(Debug)]
struct State {
    backends: Backends,
    /// With affinity, the endpoint in use and when it was last given out.
    pinned: Option<(SocketAddr, Instant)>,
}

impl Choice {
    pub(super) fn new(backends: Backends) -> Self {
        Self(Mutex::new(State { backends, pinned: None }))
    }

    /// Says whether they are others than before.
    pub(super) fn replace(&self, backends: Backends) -> bool {
        let mut state = self.state();
        let news = state.backends != backends;
        state.backends = backends;
        news
    }

    /// Whether an endpoint may be picked.
    pub(super) fn holds(&self, backend: SocketAddr) -> bool {
        self.state().backends.addrs.contains(&backend)
    }

    /// An endpoint for a new client.
    pub(super) fn pick(&self) -> Option<SocketAddr> {
        self.state().pick(None, Instant::now(), random())
    }

    /// An endpoint for a client that could not be brought to `failed`: another one. With affinity
    /// those who come next go there too.
    pub(super) fn instead_of(&self, failed: SocketAddr) -> Option<SocketAddr> {
        self.state().pick(Some(failed), Instant::now(), random())
    }

    /// An endpoint turned out not to answer: nobody is pinned to it any longer.
    pub(super) fn forget(&self, failed: SocketAddr) {
        self.state().pinned.take_if(|(pinned, _)| *pinned == failed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn pick(
        &mut self,
        failed: Option<SocketAddr>,
        now: Instant,
        random: u64,
    ) -> Option<SocketAddr> {
        let Backends { addrs, affinity } = &self.backends;
        let usable = |addr: &SocketAddr| Some(*addr) != failed;
        let pinned = self.pinned.zip(*affinity).filter(|((addr, since), affinity)| {
            usable(addr) && now.duration_since(*since) < *affinity && addrs.contains(addr)
        });
        let picked = match pinned {
            Some(((addr, _), _)) => addr,
            None => {
                let count = addrs.iter().filter(|addr| usable(addr)).count() as u64;
                let index = random.checked_rem(count)?;
                *addrs.iter().filter(|addr| usable(addr)).nth(index as usize)?
            }
        };
        self.pinned = affinity.map(|_| (picked, now));
        Some(picked)
    }
}

/// The standard library's only randomness: every such state has keys of its own.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(last: u8) -> SocketAddr {
        SocketAddr::new([10, 1, 0, last].into(), 80)
    }

    fn backends(count: u8, affinity: Option<Duration>) -> Backends {
        Backends { addrs: (1..=count).map(at).collect(), affinity }
    }

    fn state(backends: Backends) -> State {
        State { backends, pinned: None }
    }

    #[test]
    fn every_endpoint_gets_its_share() {
        let choice = Choice::new(backends(4, None));
        let mut picked = BTreeMap::new();
        for _ in 0..4000 {
            *picked.entry(choice.pick().unwrap()).or_insert(0) += 1;
        }
        assert_eq!(picked.len(), 4);
        // A thousand each on average; chance strays by 27, this is eleven times that.
        assert!(picked.values().all(|count| (700..1300).contains(count)), "{picked:?}");
    }

    #[test]
    fn with_affinity_everybody_goes_where_the_last_one_went_while_they_keep_coming() {
        let mut state = state(backends(4, Some(MINUTE)));
        let mut now = Instant::now();
        assert_eq!(state.pick(None, now, 2), Some(at(3)));
        for random in 0..10 {
            now += MINUTE - Duration::from_secs(1);
            assert_eq!(state.pick(None, now, random), Some(at(3)), "each one starts it anew");
        }
        assert_eq!(state.pick(None, now + MINUTE, 0), Some(at(1)), "nobody came for a minute");
    }

    #[test]
    fn affinity_does_not_outlive_its_endpoint_or_itself() {
        let now = Instant::now();
        let mut gone = state(backends(2, Some(MINUTE)));
        assert_eq!(gone.pick(None, now, 1), Some(at(2)));
        gone.backends = backends(1, Some(MINUTE));
        assert_eq!(gone.pick(None, now, 1), Some(at(1)));

        let mut off = state(backends(2, Some(MINUTE)));
        assert_eq!(off.pick(None, now, 1), Some(at(2)));
        off.backends = backends(2, None);
        assert_eq!(off.pick(None, now, 0), Some(at(1)));
        off.backends = backends(2, Some(MINUTE));
        assert_eq!(off.pick(None, now, 1), Some(at(2)), "what was before is forgotten");
    }

    #[test]
    fn whom_an_endpoint_failed_gets_another_and_affinity_follows() {
        let now = Instant::now();
        let mut state = state(backends(2, Some(MINUTE)));
        assert_eq!(state.pick(None, now, 0), Some(at(1)));
        assert_eq!(state.pick(Some(at(1)), now, 0), Some(at(2)));
        assert_eq!(state.pick(None, now, 0), Some(at(2)));
        state.backends = backends(1, None);
        assert_eq!(state.pick(Some(at(1)), now, 0), None, "there is no other");
    }

    #[test]
    fn nobody_is_pinned_to_an_endpoint_that_does_not_answer() {
        let choice = Choice::new(backends(2, Some(MINUTE)));
        let first = choice.pick().unwrap();
        choice.forget(at(9));
        assert_eq!(choice.pick(), Some(first));
        choice.forget(first);
        let moved = (0..64).any(|_| {
            let next = choice.pick().unwrap();
            choice.forget(next);
            next != first
        });
        assert!(moved, "64 times the same of two");
    }
}
