//! What somebody else did to the table is put right, from memory.

use std::time::Instant;

use tracing::{debug, warn};
use zw_dataplane::WriteError;

use super::{Engine, Report};

impl Engine {
    /// Puts right what was told; says what it took, if it took anything.
    pub(super) async fn repair(&mut self) -> Result<Option<Report>, WriteError> {
        let drift = std::mem::take(&mut self.drift);
        let mut report = Report::default();
        let started = Instant::now();
        let changes = self.desired.repair(&drift);
        report.did.plan = started.elapsed();
        if changes.is_empty() {
            debug!(touched = %drift, by = ?drift.by, "changed by somebody else to what it should be");
            return Ok(None);
        }
        self.repairs.spend(tokio::time::Instant::now());
        warn!(touched = %drift, by = ?drift.by, "changed by somebody else, to be put right");
        self.commit(changes, None, &mut report).await?;
        report.did.repaired = true;
        Ok(Some(report))
    }
}
