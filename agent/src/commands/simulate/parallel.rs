//! Work on all cores, results in order.
//!
//! Workers claim units by number and the calling thread commits their results by number, so sums
//! and output are the same for any number of cores. Workers never run further ahead than a fixed
//! window: what waits for its turn stays small however slow the reader of the output is.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::thread;

/// Finished units a worker may be ahead of the last committed one, per worker.
const WINDOW: usize = 16;

/// How far results have been committed; workers wait on it.
struct Committed {
    count: Mutex<usize>,
    moved: Condvar,
}

impl Committed {
    fn set(&self, count: usize) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) = count;
        self.moved.notify_all();
    }

    /// Waits until fewer than `ahead` units before `unit` are open.
    fn wait_for(&self, unit: usize, ahead: usize) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while count.saturating_add(ahead) <= unit {
            count = self.moved.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Runs `work` for units `0..count` with one `state` per worker; `commit` gets the results in
/// order, here, on the calling thread. The first error of `commit` ends the run.
pub(super) fn in_order<S, R: Send>(
    count: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> R + Sync,
    mut commit: impl FnMut(R) -> io::Result<()>,
) -> io::Result<()> {
    let workers = thread::available_parallelism().map_or(1, usize::from).min(count.max(1));
    let next = AtomicUsize::new(0);
    let committed = Committed { count: Mutex::new(0), moved: Condvar::new() };
    let (results, finished) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..workers {
            let results = results.clone();
            scope.spawn(|| {
                let results = results;
                let mut state = state();
                loop {
                    let unit = next.fetch_add(1, Ordering::Relaxed);
                    if unit >= count {
                        return;
                    }
                    committed.wait_for(unit, workers * WINDOW);
                    // Nobody listens any more: the run was given up.
                    if results.send((unit, work(&mut state, unit))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        let outcome = commit_in_order(&finished, &committed, &mut commit);
        // On an error: nobody waits for a commit that will not come, and sends fail from here on.
        committed.set(usize::MAX);
        drop(finished);
        outcome
    })
}

fn commit_in_order<R>(
    finished: &mpsc::Receiver<(usize, R)>,
    committed: &Committed,
    commit: &mut impl FnMut(R) -> io::Result<()>,
) -> io::Result<()> {
    let (mut done, mut early) = (0, BTreeMap::new());
    for (unit, result) in finished {
        early.insert(unit, result);
        while let Some(result) = early.remove(&done) {
            commit(result)?;
            done += 1;
        }
        committed.set(done);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_arrive_in_order() {
        let mut seen = Vec::new();
        let mut keep = |unit| {
            seen.push(unit);
            Ok(())
        };
        in_order(1000, || (), |(), unit| unit, &mut keep).unwrap();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_to_do_is_done_at_once() {
        in_order(0, || (), |(), unit| unit, |_| Err(io::Error::other("never"))).unwrap();
    }

    #[test]
    fn a_failing_commit_ends_the_run() {
        let mut left = 3;
        let result = in_order(
            1_000_000,
            || (),
            |(), _| (),
            |()| {
                left -= 1;
                if left == 0 { Err(io::Error::other("closed")) } else { Ok(()) }
            },
        );
        assert_eq!(result.unwrap_err().to_string(), "closed");
    }
}
