//! When a sync that failed is tried again.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// How long after a failed sync the next try is made, doubling up to the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Waiting longer after each failure.
#[derive(Default)]
pub(super) struct Retry {
    wait: Option<Duration>,
    until: Option<Instant>,
}

impl Retry {
    /// When the next try is due; nothing, if the last one succeeded.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn not_yet(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    /// A try has failed; says how long to wait until the next.
    pub(super) fn postpone(&mut self) -> Duration {
        let wait = self.wait.map_or(FIRST_RETRY, |wait| (wait * 2).min(LONGEST_RETRY));
        self.wait = Some(wait);
        let wait = jittered(wait);
        self.until = Some(Instant::now() + wait);
        wait
    }
}

/// Up to a quarter more or less, so that nodes that failed together do not try again together.
fn jittered(wait: Duration) -> Duration {
    let quarter = wait / 4;
    // Of a random number only the last bits are needed.
    let random = (RandomState::new().hash_one(0) % 1024) as u32;
    wait - quarter + quarter * 2 * random / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_wait_longer_each_time_up_to_a_bound_and_never_the_same() {
        let mut retry = Retry::default();
        let waits: Vec<Duration> = (0..40).map(|_| retry.postpone()).collect();
        for (at, wait) in waits.iter().enumerate() {
            let plain = (FIRST_RETRY * 2u32.pow(at.min(10) as u32)).min(LONGEST_RETRY);
            assert!(*wait >= plain * 3 / 4 && *wait <= plain * 5 / 4, "{at}: {wait:?}");
        }
        let last: std::collections::BTreeSet<&Duration> = waits[10..].iter().collect();
        assert!(last.len() > 1, "{waits:?}");
        assert!(retry.not_yet());
    }
}
