//! Which Service is looked at next, and when.
//!
//! Level-triggered: a key is in the queue at most once, however often it is added, and says nothing
//! about what changed. One that is added while it is worked on comes again afterwards. After failures it
//! waits, longer each time. Pure: time is passed in.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use zw_model::ServiceKey;

/// The wait after a failure, doubling up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Keys by when they are due.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    due: BTreeMap<(Instant, u64), ServiceKey>,
    entries: HashMap<ServiceKey, Entry>,
    next: u64,
}

#[derive(Debug, Default)]
struct Entry {
    due: Option<(Instant, u64)>,
    /// Being worked on; and when it is to come again.
    busy: bool,
    again: Option<Instant>,
    failures: u32,
}

impl Queue {
    /// Adds a key for a time; if it is there already the earlier time counts.
    pub(crate) fn add(&mut self, key: &ServiceKey, when: Instant) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.busy {
            entry.again = Some(entry.again.map_or(when, |again| again.min(when)));
            return;
        }
        if let Some(due) = entry.due {
            // After a failure it waits, whatever else happens to it.
            if due.0 <= when || entry.failures > 0 {
                return;
            }
            self.due.remove(&due);
        }
        let due = (when, self.next);
        self.next += 1;
        entry.due = Some(due);
        self.due.insert(due, key.clone());
    }

    /// Takes the next key that is due.
    pub(crate) fn take(&mut self, now: Instant) -> Option<ServiceKey> {
        let first = self.due.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        let key = first.remove();
        let entry = self.entries.entry(key.clone()).or_default();
        entry.due = None;
        entry.busy = true;
        Some(key)
    }

    /// A key is done, and nothing is left to do for it unless it was added meanwhile.
    pub(crate) fn done(&mut self, key: &ServiceKey) {
        if let Some(entry) = self.entries.remove(key)
            && let Some(when) = entry.again
        {
            self.add(key, when);
        }
    }

    /// Work on a key failed; says when it comes again.
    pub(crate) fn failed(&mut self, key: &ServiceKey, now: Instant) -> Duration {
        let entry = self.entries.entry(key.clone()).or_default();
        (entry.busy, entry.again) = (false, None);
        let failures = std::mem::replace(&mut entry.failures, 0);
        let wait = FIRST_RETRY * 2u32.pow(failures.min(16));
        let wait = wait.min(LONGEST_RETRY);
        self.add(key, now + wait);
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures = failures + 1;
        }
        wait
    }

    /// When the next key is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.keys().next().map(|(when, _)| *when)
    }

    /// How many wait or are worked on.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// At most so many writes in a time: a bucket that fills at a rate.
#[derive(Debug)]
pub(crate) struct Limiter {
    every: Duration,
    burst: u32,
    /// When the bucket was or will be full enough for the whole burst.
    full: Option<Instant>,
}

impl Limiter {
    /// So many in a second, and so many at once.
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let every = Duration::from_secs(1) / per_second.max(1);
        Self { every, burst: burst.max(1), full: None }
    }

    /// Takes one and says how long to wait before using it.
    pub(crate) fn take(&mut self, now: Instant) -> Duration {
        let full = self.full.map_or(now, |full| full.max(now)) + self.every;
        self.full = Some(full);
        full.saturating_duration_since(now).saturating_sub(self.every * self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ServiceKey {
        ServiceKey { namespace: "web".into(), name: name.into() }
    }

    #[test]
    fn a_key_is_there_once_at_the_earliest_time() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        queue.add(&key("a"), at(50));
        queue.add(&key("b"), at(20));
        queue.add(&key("a"), at(10));
        queue.add(&key("a"), at(70));
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.next_due(), Some(at(10)));
        assert_eq!(queue.take(at(9)), None);
        assert_eq!(queue.take(at(30)), Some(key("a")));
        assert_eq!(queue.take(at(30)), Some(key("b")));
        assert_eq!(queue.take(at(99)), None);
    }

    #[test]
    fn one_added_while_it_is_worked_on_comes_again() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(&key("a"), now);
        assert_eq!(queue.take(now), Some(key("a")));
        queue.add(&key("a"), now);
        assert_eq!(queue.take(now), None, "never twice at a time");
        queue.done(&key("a"));
        assert_eq!(queue.take(now), Some(key("a")));
        queue.done(&key("a"));
        assert_eq!((queue.take(now), queue.len()), (None, 0));
    }

    #[test]
    fn failures_wait_longer_each_time_and_success_forgets_them() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        queue.add(&key("a"), now);
        let mut waits = Vec::new();
        for _ in 0..10 {
            assert_eq!(queue.take(now), Some(key("a")));
            let wait = queue.failed(&key("a"), now);
            // What happens meanwhile does not make it come earlier.
            queue.add(&key("a"), now);
            assert_eq!(queue.take(now), None);
            now += wait;
            waits.push(wait.as_millis());
        }
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
        assert_eq!(queue.take(now), Some(key("a")));
        queue.done(&key("a"));
        queue.add(&key("a"), now);
        queue.take(now);
        assert_eq!(queue.failed(&key("a"), now), FIRST_RETRY);
    }

    #[test]
    fn writes_come_in_a_burst_and_then_at_a_rate() {
        let (mut limiter, start) = (Limiter::new(10, 3), Instant::now());
        let waits: Vec<u128> = (0..6).map(|_| limiter.take(start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        let later = start + Duration::from_secs(10);
        let waits: Vec<u128> = (0..4).map(|_| limiter.take(later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100]);
    }
}
