//! The loop's heart: what the index says, planned, compared and committed.
//!
//! The first sync, and every one after a failure that leaves the kernel's state in doubt, reads the
//! kernel back and compares everything. All others plan only the Services that changed, or put right
//! only what somebody else touched.

mod full;
mod pace;
mod partial;
mod repair;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{info, warn};
use zw_dataplane::{Committed, Reaction, Tables, WriteError, Writer};
use zw_model::{Family, ServiceKey};
use zw_plan::{Changes, Desired, Drift, Surroundings};

use crate::around::Around;
use crate::attendants::Attendants;
use crate::config::Config;
use crate::index::{Changed, Index, Touched};
use crate::metrics::SyncReport;
use crate::status::Status;
use pace::Pace;

/// How long after clients could not be forgotten that is tried again.
const LEFTOVERS: Duration = Duration::from_secs(1);

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
    /// What somebody else did to the table and is not put right yet.
    drift: Drift,
    repairs: Pace,
    /// What a commit left to be done, and when that is.
    left: Changes,
    left_until: Instant,
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
        let now = Instant::now();
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
            drift: Drift::default(),
            repairs: Pace::new(now),
            left: Changes::default(),
            left_until: now,
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

    /// Somebody else changed the table; the next sync puts it right.
    pub(crate) fn drifted(&mut self, drift: Drift) {
        self.drift.absorb(drift);
    }

    /// Whether something from outside waits for the next sync.
    pub(crate) fn is_behind(&self) -> bool {
        self.in_doubt || self.look_around || self.index.is_changed()
    }

    /// When there is something to do without anything new from outside.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        let drift = (!self.drift.is_empty()).then(|| self.repairs.due(now));
        let left = (!self.left.is_empty()).then_some(self.left_until);
        drift.into_iter().chain(left).min()
    }

    /// Brings the kernel to what the index says.
    pub(crate) async fn sync(&mut self) -> Result<(), WriteError> {
        let (services, around) = self.take_in();
        let outcome = self.try_sync(services, around).await;
        let report = match outcome {
            Err(error) if error.reaction() == Reaction::Resync && !self.in_doubt => {
                warn!(error = &error as &dyn std::error::Error, "reading the kernel back");
                self.status.sync_failed(&error);
                self.in_doubt = true;
                let mut outcome = self.sync_all().await;
                if let Ok(report) = &mut outcome {
                    report.did.repaired = report.did.elements > 0 || report.chains > 0;
                }
                outcome.map(Some)
            }
            outcome => outcome,
        };
        self.in_doubt = report.is_err();
        match report.inspect_err(|error| self.status.sync_failed(error))? {
            Some(report) => self.tell(&report),
            None => self.status.settled(),
        }
        Ok(())
    }

    /// What is done depends on how much is known of the kernel. Nothing, if nothing is to be done.
    async fn try_sync(
        &mut self,
        services: Touched,
        around: Option<Surroundings>,
    ) -> Result<Option<Report>, WriteError> {
        self.in_doubt |= self.drift.lost;
        if self.in_doubt {
            return self.sync_all().await.map(Some);
        }
        let now = Instant::now();
        if !self.drift.is_empty()
            && self.repairs.due(now) <= now
            && let Some(report) = self.repair().await?
        {
            self.tell(&report);
        }
        let keys = match services {
            Touched::Some(keys) => keys,
            // Also those that went in the same batch.
            Touched::All => {
                let keys = self.index.service_keys().chain(self.desired.service_keys());
                keys.cloned().collect()
            }
        };
        if keys.is_empty() && around.is_none() && self.left.is_empty() {
            return Ok(None);
        }
        self.sync_changed(keys, around).await.map(Some)
    }

    /// What is different since the last sync.
    fn take_in(&mut self) -> (Touched, Option<Surroundings>) {
        let Changed { mut services, surroundings, triggered } = self.index.take_changed();
        for (key, at) in triggered {
            let earliest = self.triggered.entry(key).or_insert(at);
            *earliest = at.min(*earliest);
        }
        if surroundings {
            let node = self.index.node();
            info!(
                addresses = ?node.addresses,
                pod_ranges = ?node.pod_ranges,
                service_ranges = ?self.index.service_ranges(),
                "the node's surroundings changed"
            );
        }
        let mut around = None;
        if surroundings || self.look_around {
            let everything;
            (around, everything) = self.look_around();
            if everything {
                services = Touched::All;
            }
        }
        (services, around)
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

    /// What is in the kernel now.
    fn tell(&mut self, report: &Report) {
        let Report { services, chains, did } = report;
        self.status.synced(did);
        self.report_latency();
        info!(
            services,
            elements = did.elements,
            chains,
            bytes = did.bytes,
            read_ms = milliseconds(did.read),
            plan_ms = milliseconds(did.plan),
            commit_ms = milliseconds(did.commit),
            "{}",
            if did.repaired && !did.full { "repaired" } else { "synced" }
        );
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

    async fn commit(
        &mut self,
        changes: Changes,
        generation: Option<u32>,
        report: &mut Report,
    ) -> Result<(), WriteError> {
        report.did.elements = changes.element_operations();
        report.chains = changes.chain_operations();
        let started = Instant::now();
        let Committed { bytes, overlooked, left } =
            on_kernel(&self.writer, move |kernel| kernel.commit(&changes, generation)).await??;
        report.did.bytes = bytes;
        report.did.commit = started.elapsed();
        self.drift.lost |= overlooked;
        self.left = std::mem::take(&mut self.left).then(left);
        self.left_until = Instant::now() + LEFTOVERS;
        Ok(())
    }
}

/// Runs a job on the writer's thread without blocking this one.
async fn on_kernel<T: Send + 'static>(
    writer: &Writer,
    job: impl FnOnce(&mut dyn Tables) -> T + Send + 'static,
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
