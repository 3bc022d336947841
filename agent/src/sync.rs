//! The loop's heart: what the index says, planned, compared and committed.
//!
//! The first sync, and every one after a failure that leaves the kernel's state in doubt, reads the
//! kernel back and compares everything. All others plan only the Services that changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::{debug, info, warn};
use zw_dataplane::{Committed, Kernel, Reaction, WriteError, Writer};
use zw_model::ServiceKey;
use zw_plan::{
    Changes, Contested, Desired, Frontend, ServiceRules, Slots, Surroundings, bring_to,
    plan_service,
};

use crate::around::Around;
use crate::attendants::Attendants;
use crate::config::Config;
use crate::index::{Changed, Index, Touched};

/// How often a full sync that somebody else's change overtook is begun again at once.
const ATTEMPTS: usize = 5;

/// Owns the desired state and the way to the kernel.
pub(crate) struct Engine {
    index: Index,
    config: Config,
    /// The node's own addresses, as the kernel has them.
    local: BTreeSet<IpAddr>,
    around: Around,
    attendants: Attendants,
    desired: Desired,
    writer: Writer,
    /// The kernel's state is unknown or not what `desired` was when it was last written.
    in_doubt: bool,
    /// The configuration or the node's addresses may have changed.
    look_around: bool,
}

/// What one sync did, for the log.
#[derive(Debug, Default)]
struct Report {
    services: usize,
    elements: usize,
    chains: usize,
    bytes: usize,
    read: Duration,
    plan: Duration,
    commit: Duration,
}

impl Engine {
    /// An engine that has not looked at the kernel yet.
    pub(crate) fn new(
        index: Index,
        config: Config,
        local: BTreeSet<IpAddr>,
        attendants: Attendants,
        writer: Writer,
    ) -> Self {
        let around = Around::new(&config, index.node(), &local, index.service_ranges());
        let desired = Desired::new(around.plan.clone(), around.surroundings.clone());
        Self {
            index,
            config,
            local,
            around,
            attendants,
            desired,
            writer,
            in_doubt: true,
            look_around: true,
        }
    }

    /// The objects; changes take effect at the next sync.
    pub(crate) fn index(&mut self) -> &mut Index {
        &mut self.index
    }

    /// Takes over settings; the next sync brings them into force.
    pub(crate) fn set_config(&mut self, config: Config) {
        self.config = config;
        self.look_around = true;
    }

    /// The node has these addresses now.
    pub(crate) fn set_addresses(&mut self, local: BTreeSet<IpAddr>) {
        self.local = local;
        self.look_around = true;
    }

    /// Brings the kernel to what the index says.
    pub(crate) async fn sync(&mut self) -> Result<(), WriteError> {
        let Changed { mut services, surroundings, triggered } = self.index.take_changed();
        debug!(triggered = triggered.len(), eligible = ?self.index.node_is_eligible(), "syncing");
        let mut around = None;
        if surroundings || self.look_around {
            around = self.look_around();
            // Whom a load balancer's source ranges let in depends on the node's addresses.
            if surroundings {
                services = Touched::All;
            }
        }
        let outcome = match services {
            _ if self.in_doubt => self.sync_all().await,
            Touched::Some(keys) if keys.is_empty() && around.is_none() => return Ok(()),
            Touched::Some(keys) => self.sync_changed(keys, around).await,
            Touched::All => {
                // Also those that went in the same batch.
                let keys = self.index.service_keys().chain(self.desired.service_keys());
                self.sync_changed(keys.cloned().collect(), around).await
            }
        };
        let report = match outcome {
            Err(error) if error.reaction() == Reaction::Resync && !self.in_doubt => {
                warn!(error = &error as &dyn std::error::Error, "reading the kernel back");
                self.in_doubt = true;
                self.sync_all().await
            }
            outcome => outcome,
        };
        self.in_doubt = report.is_err();
        let report = report?;
        info!(
            services = report.services,
            elements = report.elements,
            chains = report.chains,
            bytes = report.bytes,
            read_ms = milliseconds(report.read),
            plan_ms = milliseconds(report.plan),
            commit_ms = milliseconds(report.commit),
            "synced"
        );
        Ok(())
    }

    /// Sees where the node is now. What is given back costs elements only; where rules change the kernel
    /// is compared as a whole.
    fn look_around(&mut self) -> Option<Surroundings> {
        self.look_around = false;
        let (node, ranges) = (self.index.node(), self.index.service_ranges());
        let around = Around::new(&self.config, node, &self.local, ranges);
        self.attendants.look_around(&around, &self.local);
        if around == self.around {
            return None;
        }
        info!(
            node_addresses = ?around.surroundings.node_addresses,
            service_ranges = ?around.surroundings.service_ranges,
            "the node's surroundings changed"
        );
        self.in_doubt |= around.plan != self.around.plan;
        self.around = around;
        Some(self.around.surroundings.clone())
    }

    async fn sync_changed(
        &mut self,
        keys: BTreeSet<ServiceKey>,
        around: Option<Surroundings>,
    ) -> Result<Report, WriteError> {
        let mut report = Report { services: keys.len(), ..Report::default() };
        let started = Instant::now();
        let before = Attendants::before(&self.desired, &keys);
        let updates: Vec<(ServiceKey, Option<ServiceRules>)> = keys
            .iter()
            .map(|key| (key.clone(), self.plan(key, |frontend| self.desired.slots(key, frontend))))
            .collect();
        let mut changes = self.desired.update(updates);
        if let Some(around) = around {
            changes.absorb(self.desired.surround(around));
        }
        self.report_contested(keys.iter());
        report.plan = started.elapsed();
        self.commit(changes, None, &mut report).await?;
        self.attendants.attend(&self.index, &self.desired, keys.iter(), before);
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
        let started = Instant::now();
        let read = on_kernel(&self.writer, Kernel::read_back).await??;
        report.read = started.elapsed();

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
        report.plan = started.elapsed();
        self.commit(changes, read.generation, &mut report).await?;
        let keys = gone.iter().chain(self.index.service_keys());
        self.attendants.attend(&self.index, &self.desired, keys, before);
        Ok(report)
    }

    fn plan(
        &self,
        key: &ServiceKey,
        previous: impl Fn(&Frontend) -> Slots,
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
        for Contested { frontend, owner, losers } in contested.into_values() {
            for svc in losers {
                warn!(%svc, %frontend, %owner, "not programmed: another Service has this address and port");
            }
        }
    }

    async fn commit(
        &self,
        changes: Changes,
        generation: Option<u32>,
        report: &mut Report,
    ) -> Result<(), WriteError> {
        report.elements = changes.element_operations();
        report.chains = changes.chain_operations();
        let started = Instant::now();
        let Committed { bytes } =
            on_kernel(&self.writer, move |kernel| kernel.commit(&changes, generation)).await??;
        report.bytes = bytes;
        report.commit = started.elapsed();
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
