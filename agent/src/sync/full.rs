//! The kernel read back and compared as a whole: at the start, and where its state is in doubt.

use std::collections::BTreeSet;
use std::time::Instant;

use tracing::debug;
use zw_dataplane::WriteError;
use zw_model::ServiceKey;
use zw_plan::{Changes, Desired, Drift, bring_to};

use super::{Engine, Report, on_kernel};
use crate::attendants::Attendants;

/// How often a full sync that somebody else's change overtook is begun again at once.
const ATTEMPTS: usize = 5;

impl Engine {
    pub(super) async fn sync_all(&mut self) -> Result<Report, WriteError> {
        let mut outcome = Err(WriteError::Overtaken);
        for _ in 0..ATTEMPTS {
            outcome = self.try_sync_all().await;
            match &outcome {
                Err(WriteError::Overtaken) => debug!("overtaken by another ruleset change"),
                _ => break,
            }
        }
        outcome
    }

    async fn try_sync_all(&mut self) -> Result<Report, WriteError> {
        let mut report = Report::default();
        report.did.full = true;
        // What is read now has all of it.
        self.drift = Drift::default();
        self.left = Changes::default();
        let started = Instant::now();
        let read = on_kernel(&self.writer, |kernel| kernel.read_back()).await??;
        report.did.read = started.elapsed();

        let started = Instant::now();
        let slots = read.actual.slots();
        let gone: BTreeSet<ServiceKey> = self.desired.service_keys().cloned().collect();
        let before = Attendants::before(&self.desired, &gone);
        let mut desired = Desired::new(self.around.plan.clone(), self.around.surroundings.clone());
        desired.load(self.index.service_keys().map(|key| {
            let previous = |frontend: &_| slots.get(frontend).cloned().unwrap_or_default();
            report.services += 1;
            (key.clone(), self.plan(key, previous))
        }));
        let changes = bring_to(&desired, &read.actual);
        self.desired = desired;
        self.report_contested(self.index.service_keys());
        // Off this path: 250,000 elements take a while to free.
        tokio::task::spawn_blocking(move || drop((slots, read.actual)));
        report.did.plan = started.elapsed();
        self.commit(changes, read.generation, &mut report).await?;
        let keys = gone.iter().chain(self.index.service_keys());
        self.attendants.attend(&self.index, &self.desired, keys, before);
        Ok(report)
    }
}
