//! Follows a file or folder of manifests: looks again and again, tells what could not be used, and
//! takes the rest into the index.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::warn;

use crate::index::Index;
use crate::metrics::Rejected;
use crate::state::StateSource;
use crate::status::Status;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// A source of Services on disk.
pub(crate) struct Files {
    source: StateSource,
    looks: Interval,
    /// How many parts of the input could not be used so far.
    complaints: usize,
    status: Arc<Status>,
}

impl Files {
    pub(crate) fn new(path: PathBuf, status: Arc<Status>) -> Self {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { source: StateSource::new(path), looks, complaints: 0, status }
    }

    /// Where it looks.
    pub(crate) fn path(&self) -> &Path {
        self.source.path()
    }

    /// Looks once more; the first time at once. False until something could be read, so that a broken
    /// folder at start does not empty a working kernel.
    pub(crate) async fn changed(&mut self, index: &mut Index) -> bool {
        self.looks.tick().await;
        let delta = self.source.poll();
        for complaint in &delta.complaints {
            self.complaints += 1;
            warn!(left_out = self.complaints, "{complaint}");
            self.status.metrics.rejected(Rejected::Manifest);
            self.status.recent.complain(complaint.to_string());
        }
        delta.events.into_iter().for_each(|event| index.accept(event));
        self.source.has_been_read()
    }
}
