//! The kernel's table read in the background every few minutes, to be compared with what it should be:
//! what notifications did not tell is found all the same. In the ipvs mode virtual servers and their
//! addresses too, and more often: of the former nobody tells anything.
//!
//! Reads on a thread and a socket of its own, so that no update waits for it. What was committed
//! meanwhile makes a reading worthless; it is then made again, or left until the next time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};
use zw_dataplane::{Ipvs, Kernel, WriteError};
use zw_plan::Digest;

/// How often. Reading 250,000 elements takes 2 s of a processor.
const EVERY: Duration = Duration::from_secs(300);

const LEAST: Duration = Duration::from_secs(1);

/// How long after a reading that came to nothing the next is made, where one is needed.
const AGAIN: Duration = Duration::from_millis(200);

/// How many transactions the agent has begun.
pub(crate) type Commits = Arc<AtomicU64>;

/// The readings.
pub(crate) struct Comparison {
    commits: Commits,
    every: Duration,
    by_ipvs: bool,
    next: Instant,
    reading: Option<Reading>,
}

struct Reading {
    before: u64,
    digest: JoinHandle<Result<Digest, WriteError>>,
}

impl Comparison {
    /// The first is due a few minutes from now, or where IPVS picks endpoints after this time.
    pub(crate) fn new(commits: Commits, by_ipvs: Option<Duration>) -> Self {
        let every = by_ipvs.map_or(EVERY, |every| every.clamp(LEAST, EVERY));
        let next = Instant::now() + every;
        Self { commits, every, by_ipvs: by_ipvs.is_some(), next, reading: None }
    }

    /// The next one is needed now.
    pub(crate) fn hasten(&mut self) {
        self.next = self.next.min(Instant::now() + AGAIN);
    }

    /// Waits for the next reading; `None` if it came to nothing. Dropped while waiting, it goes on.
    pub(crate) async fn read(&mut self) -> Option<Digest> {
        loop {
            if let Some(Reading { before, digest }) = &mut self.reading {
                let (outcome, before) = (digest.await, *before);
                self.reading = None;
                self.next = Instant::now() + self.every;
                return match outcome {
                    Ok(Ok(digest)) if self.commits.load(Ordering::Relaxed) == before => {
                        Some(digest)
                    }
                    Ok(Ok(_)) => {
                        debug!("the table changed while it was read to be compared");
                        None
                    }
                    Ok(Err(error)) => {
                        let error = &error as &dyn std::error::Error;
                        warn!(error, "the table cannot be read to be compared");
                        None
                    }
                    // It panicked, and the process is about to end.
                    Err(_) => None,
                };
            }
            sleep_until(self.next).await;
            let before = self.commits.load(Ordering::Relaxed);
            let by_ipvs = self.by_ipvs;
            let digest = spawn_blocking(move || read(by_ipvs));
            self.reading = Some(Reading { before, digest });
        }
    }
}

fn read(by_ipvs: bool) -> Result<Digest, WriteError> {
    let mut digest = Kernel::open()?.digest()?;
    if by_ipvs {
        digest.ipvs = Some(Ipvs::open(Duration::ZERO)?.read()?);
    }
    Ok(digest)
}
