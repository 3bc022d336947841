//! The loop's heart: what the index says, planned, compared and committed.
//!
//! The first sync, and every one after a failure that leaves the kernel's state in doubt, reads the
//! kernel back and compares everything. All others plan only the Services that changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::oneshot;
use tracing::{debug, info, warn};
use zw_dataplane::{Committed, Kernel, Reaction, WriteError, Writer};
use zw_model::{Family, ServiceKey};
use zw_plan::{
    Changes, Contested, Desired, Frontend, ServiceRules, Slots, Surroundings, bring_to,
    plan_service,
};

use crate::around::Around;
use crate::attendants::Attendants;
use crate::config::Config;
use crate::events::Reason;
use crate::index::{Changed, Index, Touched};
use crate::inspect::questions::Question;
use crate::metrics::SyncReport;
use crate::status::Status;

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
    status: Arc<Status>,
    /// The kernel's state is unknown or not what `desired` was when it was last written.
    in_doubt: bool,
    /// When the pods of Services changed that are not in the kernel yet.
    triggered: BTreeMap<ServiceKey, SystemTime>,
    /// The configuration or the node's addresses may have changed.
    look_around: bool,
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
        config: Config,
        local: BTreeSet<IpAddr>,
        attendants: Attendants,
        writer: Writer,
        status: Arc<Status>,
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
            status,
            triggered: BTreeMap::new(),
            in_doubt: true,
            look_around: true,
        }
    }

    /// The objects; changes take effect at the next sync.
    pub(crate) fn index(&mut self) -> &mut Index {
        &mut self.index
    }

    /// Answers somebody who asks what should be in the kernel.
    pub(crate) fn answer(&self, question: Question) {
        question.answer(&self.index, &self.desired, &self.around);
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

    /// Whether there is anything for the next sync to do.
    pub(crate) fn is_behind(&self) -> bool {
        self.in_doubt || self.look_around || self.index.is_changed()
    }

    /// Brings the kernel to what the index says.
    pub(crate) async fn sync(&mut self) -> Result<(), WriteError> {
        let Changed { mut services, surroundings, triggered } = self.index.take_changed();
        for (key, at) in triggered {
            let earliest = self.triggered.entry(key).or_insert(at);
            *earliest = at.min(*earliest);
        }
        let mut around = None;
        if surroundings {
            let node = self.index.node();
            info!(
                addresses = ?node.addresses,
                pod_ranges = ?node.pod_ranges,
                service_ranges = ?self.index.service_ranges(),
                "the node's surroundings changed"
            );
        }
        if surroundings || self.look_around {
            let everything;
            (around, everything) = self.look_around();
            // Whom a load balancer's source ranges let in depends on the node's addresses.
            if surroundings || everything {
                services = Touched::All;
            }
        }
        let outcome = match services {
            _ if self.in_doubt => self.sync_all().await,
            Touched::Some(keys) if keys.is_empty() && around.is_none() => {
                self.status.settled();
                return Ok(());
            }
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
        self.report_latency();
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

    /// How long it took from a pod's change until the kernel knew.
    fn report_latency(&mut self) {
        let now = SystemTime::now();
        for (key, at) in std::mem::take(&mut self.triggered) {
            let Some((service, _)) = self.index.service(&key) else { continue };
            let took = now.duration_since(at).unwrap_or_default();
            for family in Family::BOTH.into_iter().filter(|f| service.cluster_ip(*f).is_some()) {
                self.status.metrics.programmed(family, took);
            }
        }
    }

    /// Sees where the node is now. What is given back costs elements only, unless every Service is to be
    /// looked at; where rules change the kernel is compared as a whole.
    fn look_around(&mut self) -> (Option<Surroundings>, bool) {
        self.look_around = false;
        let (node, ranges) = (self.index.node(), self.index.service_ranges());
        let around = Around::new(&self.config, node, &self.local, ranges);
        let everything = self.attendants.look_around(&around, &self.local, &self.config);
        if around == self.around {
            return (None, everything);
        }
        info!(
            node_addresses = ?around.surroundings.node_addresses,
            any_node_address = ?around.plan.any_node_address,
            "node ports are served elsewhere, or cluster IPs have other ranges"
        );
        self.in_doubt |= around.plan != self.around.plan;
        self.around = around;
        (Some(self.around.surroundings.clone()), everything)
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
        report.did.plan = started.elapsed();
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
        report.did.full = true;
        let started = Instant::now();
        let read = on_kernel(&self.writer, Kernel::read_back).await??;
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
