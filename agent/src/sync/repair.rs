//! What somebody else did to the table is put right, from memory.

use std::sync::atomic::Ordering;
use std::time::Instant;

use tracing::{debug, warn};
use zw_dataplane::WriteError;
use zw_plan::{Digest, Drift};

use super::{Engine, Report, UNSURE};

impl Engine {
    /// Somebody else changed the table; the next sync puts it right.
    pub(crate) fn drifted(&mut self, drift: Drift) {
        if drift.lost {
            self.unsure = Some(UNSURE);
            // What is being read to be compared may have missed it too.
            self.commits.fetch_add(1, Ordering::Relaxed);
        }
        self.drift.absorb(Drift { lost: false, ..drift });
    }

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
        self.write(changes, None, &mut report).await?;
        report.did.repaired = true;
        Ok(Some(report))
    }

    /// Whether the table is to be read and compared soon, because something may have been missed.
    pub(crate) fn is_unsure(&self) -> bool {
        self.unsure.is_some() && !self.is_behind() && !self.is_starting()
    }

    /// The table was read; `None`: it changed meanwhile, or could not be.
    pub(crate) fn compared(&mut self, digest: Option<Digest>) {
        // What is on its way to the kernel would look like a difference.
        let settled = !self.in_doubt
            && !self.is_starting()
            && self.unsent.is_empty()
            && self.drift.is_empty();
        if let Some(digest) = digest.filter(|_| settled) {
            self.unsure = None;
            let differences = self.desired.differences(&digest);
            if !differences.is_empty() {
                warn!(different = differences.join(", "), "not as it was left, to be put right");
                self.in_doubt = true;
            } else if let Some(ipvs) = &digest.ipvs {
                self.compare_servers(ipvs);
            }
            return;
        }
        // A table that never rests long enough is compared while everything waits, if it has to be.
        self.unsure = self.unsure.and_then(|tries| tries.checked_sub(1));
        if self.unsure == Some(0) {
            self.unsure = None;
            self.in_doubt = true;
        }
    }
}
