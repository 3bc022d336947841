//! How often the table is put right at once. A stranger that takes it away again and again gets it back
//! every second, not as often as a processor allows. Pure: time is passed in.

use std::time::Duration;

use tokio::time::Instant;

/// How many times in a row, and how long until one more.
const BURST: u32 = 10;
const REFILL: Duration = Duration::from_secs(1);

/// Each time is paid for with a second, up to [`BURST`] of them in advance.
#[derive(Debug)]
pub(super) struct Pace {
    paid_until: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { paid_until: now }
    }

    /// When the next time is.
    pub(super) fn due(&self, now: Instant) -> Instant {
        self.paid_until.checked_sub(REFILL * (BURST - 1)).map_or(now, |due| due.max(now))
    }

    /// It was done once more.
    pub(super) fn spend(&mut self, now: Instant) {
        self.paid_until = self.paid_until.max(now) + REFILL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_in_a_row_go_at_once_and_then_one_a_second() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for _ in 0..BURST {
            assert_eq!(pace.due(start), start);
            pace.spend(start);
        }
        let mut now = start;
        for _ in 0..5 {
            assert_eq!(pace.due(now), now + REFILL);
            now += REFILL;
            assert_eq!(pace.due(now), now);
            pace.spend(now);
        }
        // A quiet while later as at the start.
        now += REFILL * 60;
        for _ in 0..BURST {
            assert_eq!(pace.due(now), now);
            pace.spend(now);
        }
        assert!(pace.due(now) > now);
    }
}
