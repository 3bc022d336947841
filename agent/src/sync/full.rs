//! The kernel read back and compared as a whole: at the start, and where its state is in doubt.

use std::collections::BTreeMap;
use std::time::Instant;

use tracing::{debug, warn};
use zw_dataplane::{Reaction, WriteError};
use zw_model::ServiceKey;
use zw_plan::{Changes, Desired, Drift, Expected, bring_to};

use super::order::Waiting;
use super::write::MOST_REFUSALS;
use super::{Engine, Report};
use crate::index::Known;

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
        self.unsent = Changes::default();
        self.ahead = None;
        self.starting = None;
        self.unserved.clear();
        self.refused_addresses.clear();
        self.refused_reals.clear();
        let started = Instant::now();
        // Meanwhile it is counted what there is.
        let ahead = self.read_ahead.take();
        let reading = self.submit(move |kernel| {
            // Jobs are done in turn: that one is over.
            match ahead.and_then(|mut ahead| ahead.try_recv().ok()) {
                Some(Ok(read)) if kernel.is_still(&read) => Ok(read),
                _ => kernel.read_back(),
            }
        })?;
        let mut expected = Expected::default();
        let counted = self.index.services().inspect(|Known { service, slices, .. }| {
            expected.count(service, slices.clone());
        });
        let waiting = Waiting::all(counted);
        for (key, rules) in self.desired.services() {
            self.unattended.0.insert(key.clone());
            self.unattended.1.note(rules);
        }
        let read = self.told(reading).await??;
        self.waiting = waiting;
        report.did.read = started.elapsed();

        let started = Instant::now();
        let slots = read.actual.slots();
        let mut desired = Desired::new(self.around.plan.clone(), self.around.surroundings.clone());
        desired.expect(expected);
        // Where there is nothing, the most important comes first and the rest after it.
        let nothing = read.actual.tables.is_empty() && read.actual.ipvs.servers.is_empty();
        let take = if nothing { Waiting::take } else { Waiting::take_all };
        let now = take(&mut self.waiting, &self.index);
        let previous = |frontend: &_| slots.get(frontend).cloned().unwrap_or_default();
        let plan = |known: Known<'_>| (known.key.clone(), self.plan(known, previous));
        desired.load(now.iter().cloned().map(plan));
        let now: Vec<ServiceKey> = now.into_iter().map(|known| known.key.clone()).collect();
        report.services = now.len();
        desired.keep_idle(&read.actual);
        self.desired = desired;
        self.report_contested(now.iter());
        let mut changes = bring_to(&self.desired, &read.actual);
        report.did.plan = started.elapsed();
        for _ in 0..MOST_REFUSALS {
            let (_, outcome) = self.commit(changes, None, read.generation, &mut report).await?;
            let Err(error) = outcome else {
                // Off this path: 250,000 elements take a while to free.
                tokio::task::spawn_blocking(move || drop((slots, read.actual)));
                for (svc, why) in self.status.refused() {
                    warn!(%svc, why, "still set aside");
                }
                self.unattended.0.extend(now);
                if nothing {
                    self.unattended.1.note_nothing();
                }
                self.attend();
                return Ok(report);
            };
            // What was planned meanwhile is compared with the rest.
            report.services += self.ahead.take().map_or(0, |planned| planned.services);
            // What was read a moment ago is known: what is refused then is refused for what it is.
            let known = error.reaction() == Reaction::Resync && read.generation.is_some();
            if !known && error.reaction() != Reaction::SetAside {
                return Err(error);
            }
            if self.set_aside(&error, Changes::default()).is_err() {
                return Err(error);
            }
            self.desired.load(BTreeMap::new());
            self.desired.keep_idle(&read.actual);
            changes = bring_to(&self.desired, &read.actual);
        }
        Err(WriteError::Overtaken)
    }
}
