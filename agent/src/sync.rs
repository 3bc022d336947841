//! The loop's heart: what the index says, planned, compared and committed.
//!
//! The first sync, and every one after a failure that leaves the kernel's state in doubt, reads the
//! kernel back and compares everything. All others plan only the Services that changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::{debug, info, warn};
use zw_dataplane::{Committed, Kernel, Reaction, WriteError, Writer};
use zw_model::ServiceKey;
use zw_plan::{
    Changes, Contested, Desired, Frontend, PlanConfig, ServiceRules, bring_to, plan_service,
};

use crate::events::Reason;
use crate::index::{Changed, Index};
use crate::metrics::SyncReport;
use crate::status::Status;

/// How often a full sync that somebody else's change overtook is begun again at once.
const ATTEMPTS: usize = 5;

/// Owns the desired state and the way to the kernel.
pub(crate) struct Engine {
    index: Index,
    config: PlanConfig,
    desired: Desired,
    writer: Writer,
    status: Arc<Status>,
    /// The kernel's state is unknown or not what `desired` was when it was last written.
    in_doubt: bool,
}

/// What one sync did, for the log.
#[derive(Debug, Default)]
struct Report {
    services: usize,
    chains: usize,
    did: SyncReport,
}

impl Engine {
    /// An engine that has not looked at the kernel yet.
    pub(crate) fn new(
        index: Index,
        config: PlanConfig,
        writer: Writer,
        status: Arc<Status>,
    ) -> Self {
        let desired = Desired::new(config.clone());
        Self { index, config, desired, writer, status, in_doubt: true }
    }

    /// The objects; changes take effect at the next sync.
    pub(crate) fn index(&mut self) -> &mut Index {
        &mut self.index
    }

    /// Takes over settings that change the rules; the next sync compares everything.
    pub(crate) fn set_config(&mut self, config: PlanConfig) {
        self.config = config;
        self.in_doubt = true;
    }

    /// Whether there is anything for the next sync to do.
    pub(crate) fn is_behind(&self) -> bool {
        self.in_doubt || self.index.is_changed()
    }

    /// Brings the kernel to what the index says.
    pub(crate) async fn sync(&mut self) -> Result<(), WriteError> {
        let changed = self.index.take_changed();
        let outcome = match changed {
            _ if self.in_doubt => self.sync_all().await,
            Changed::Some(keys) if keys.is_empty() => return Ok(()),
            Changed::Some(keys) => self.sync_changed(keys).await,
            Changed::All => {
                // Also those that went in the same batch.
                let keys = self.index.service_keys().chain(self.desired.service_keys());
                self.sync_changed(keys.cloned().collect()).await
            }
        };
        let report = match outcome {
            Err(error) if error.reaction() == Reaction::Resync && !self.in_doubt => {
                warn!(error = &error as &dyn std::error::Error, "reading the kernel back");
                self.status.sync_failed(&error);
                self.in_doubt = true;
                let mut outcome = self.sync_all().await;
                if let Ok(report) = &mut outcome {
                    report.did.repaired = report.did.elements > 0 || report.chains > 0;
                }
                outcome
            }
            outcome => outcome,
        };
        self.in_doubt = report.is_err();
        let Report { services, chains, did } =
            report.inspect_err(|error| self.status.sync_failed(error))?;
        self.status.synced(&did);
        info!(
            services,
            elements = did.elements,
            chains,
            bytes = did.bytes,
            read_ms = milliseconds(did.read),
            plan_ms = milliseconds(did.plan),
            commit_ms = milliseconds(did.commit),
            "synced"
        );
        Ok(())
    }

    async fn sync_changed(&mut self, keys: BTreeSet<ServiceKey>) -> Result<Report, WriteError> {
        let mut report = Report { services: keys.len(), ..Report::default() };
        let started = Instant::now();
        let updates: Vec<(ServiceKey, Option<ServiceRules>)> = keys
            .into_iter()
            .map(|key| {
                let rules = self.plan(&key, |frontend| self.desired.slots(&key, frontend));
                (key, rules)
            })
            .collect();
        let touched: Vec<ServiceKey> = updates.iter().map(|(key, _)| key.clone()).collect();
        let changes = self.desired.update(updates);
        self.report_contested(touched.iter());
        report.did.plan = started.elapsed();
        self.commit(changes, None, &mut report).await?;
        Ok(report)
    }

    async fn sync_all(&mut self) -> Result<Report, WriteError> {
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
        let started = Instant::now();
        let read = on_kernel(&self.writer, Kernel::read_back).await??;
        report.did.read = started.elapsed();

        let started = Instant::now();
        let slots = read.actual.slots();
        let mut desired = Desired::new(self.config.clone());
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
        Ok(report)
    }

    fn plan(
        &self,
        key: &ServiceKey,
        previous: impl Fn(&Frontend) -> Vec<std::net::SocketAddr>,
    ) -> Option<ServiceRules> {
        let (service, slices) = self.index.service(key)?;
        Some(plan_service(service, slices, self.index.node(), previous))
    }

    /// Two Services may claim one address and port only by somebody's mistake: it is told with every
    /// change of either, and for all of them with a full sync.
    fn report_contested<'a>(&self, keys: impl Iterator<Item = &'a ServiceKey>) {
        let contested: BTreeMap<Frontend, Contested> = keys
            .flat_map(|key| self.desired.contested(key))
            .map(|contested| (contested.frontend, contested))
            .collect();
        let mut lost: BTreeMap<ServiceKey, Vec<String>> = BTreeMap::new();
        for Contested { frontend, owner, losers } in contested.into_values() {
            for svc in losers {
                warn!(%svc, %frontend, %owner, "not programmed: another Service has this address and port");
                lost.entry(svc).or_default().push(format!("{frontend} is {owner}'s"));
            }
        }
        for (svc, lost) in lost {
            let message = format!("not programmed, another Service has it: {}", lost.join("; "));
            self.status.events.service(&svc, Reason::AddressInUse, message);
        }
    }

    async fn commit(
        &self,
        changes: Changes,
        generation: Option<u32>,
        report: &mut Report,
    ) -> Result<(), WriteError> {
        report.did.elements = changes.element_operations();
        report.chains = changes.chain_operations();
        let started = Instant::now();
        let Committed { bytes } =
            on_kernel(&self.writer, move |kernel| kernel.commit(&changes, generation)).await??;
        report.did.bytes = bytes;
        report.did.commit = started.elapsed();
        Ok(())
    }
}

/// Runs a job on the writer's thread without blocking this one.
async fn on_kernel<T: Send + 'static>(
    writer: &Writer,
    job: impl FnOnce(&mut Kernel) -> T + Send + 'static,
) -> Result<T, WriteError> {
    let (tell, told) = oneshot::channel();
    writer.submit(job, move |value| {
        // Nobody waits any more only when the agent is stopping.
        let _ = tell.send(value);
    })?;
    told.await.map_err(|_| WriteError::WriterGone)
}

/// To the microsecond.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
