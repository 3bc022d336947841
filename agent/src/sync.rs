//! The loop's heart: what the index says, planned, compared and committed.
//!
//! The first sync, and one after a failure that leaves the kernel's state in doubt, reads the kernel
//! back and compares everything. All others plan only the Services that changed, or put right only what
//! somebody else touched. A node without any rules gets them a part at a time, see [`order`], with
//! whatever changes meanwhile before the next part.

mod full;
mod order;
mod pace;
mod partial;
mod repair;
mod report;
mod servers;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use foldhash::HashSet;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{info, warn};
use zw_dataplane::{Encoded, ReadBack, WhyUnserved, WriteError, Writer};
use zw_model::ServiceKey;
use zw_plan::{Changes, Desired, Drift, Surroundings, VirtualKey};

use crate::around::Around;
use crate::attendants::{Attendants, Before};
use crate::compare::Commits;
use crate::config::Config;
use crate::index::{Changed, Index, Touched};
use crate::inspect::questions::Question;
use crate::metrics::SyncReport;
use crate::status::Status;
use order::Waiting;
use pace::Pace;
use report::Report;

/// How many readings in the background may come to nothing where one is needed.
const UNSURE: u32 = 4;

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
    commits: Commits,
    /// The kernel's state is unknown.
    in_doubt: bool,
    /// It is being read, or was read some time ago.
    read_ahead: Option<oneshot::Receiver<Result<ReadBack, WriteError>>>,
    /// Something may have happened to the table that was not told: how often that is still looked into.
    unsure: Option<u32>,
    /// What somebody else did to the table and is not put right yet.
    drift: Drift,
    repairs: Pace,
    /// What `desired` has and the kernel has not, and until when that waits.
    unsent: Changes,
    unsent_until: Instant,
    /// Some of that somebody else took away.
    mending: bool,
    /// Virtual servers that the kernel does not take, and why.
    unserved: BTreeMap<VirtualKey, WhyUnserved>,
    /// Services' addresses that it does not take, on a node without IPv6, say.
    refused_addresses: BTreeSet<IpAddr>,
    /// Endpoints that IPVS does not take.
    refused_reals: BTreeSet<(VirtualKey, SocketAddr)>,
    /// The Services whose attendants do not know yet.
    unattended: (HashSet<ServiceKey>, Before),
    /// The Services that were never written, those of them that are planned already, and what was done
    /// about the others so far.
    waiting: Waiting,
    ahead: Option<Planned>,
    starting: Option<Report>,
    /// What was just written of those, not freed yet.
    spent: Option<Changes>,
    /// When the pods of Services changed that are not in the kernel yet.
    triggered: BTreeMap<ServiceKey, SystemTime>,
    /// The configuration or the node's addresses may have changed.
    look_around: bool,
}

/// What some Services change in the kernel.
#[derive(Debug)]
struct Planned {
    services: usize,
    changes: Changes,
    /// If that was done ahead.
    encoded: Option<Encoded>,
}

impl Engine {
    /// An engine that has not looked at the kernel yet.
    pub(crate) fn new(
        mut index: Index,
        config: Config,
        local: BTreeSet<IpAddr>,
        attendants: Attendants,
        writer: Writer,
        status: Arc<Status>,
    ) -> Self {
        let around = Around::new(&config, index.node(), &local, index.service_ranges());
        let desired = Desired::new(around.plan.clone(), around.surroundings.clone());
        let now = Instant::now();
        // The first sync is of everything, and what it waits for are long lists.
        index.touch_all();
        Self {
            index,
            config,
            local,
            around,
            attendants,
            desired,
            writer,
            status,
            commits: Commits::default(),
            triggered: BTreeMap::new(),
            in_doubt: true,
            read_ahead: None,
            unsure: None,
            drift: Drift::default(),
            repairs: Pace::new(now),
            unsent: Changes::default(),
            unsent_until: now,
            mending: false,
            unserved: BTreeMap::new(),
            refused_addresses: BTreeSet::new(),
            refused_reals: BTreeSet::new(),
            unattended: Default::default(),
            waiting: Waiting::default(),
            ahead: None,
            starting: None,
            spent: None,
            look_around: true,
        }
    }

    /// Reads the kernel back while it is still being listed what should be there. If anybody commits
    /// something before it is needed, it is read again.
    pub(crate) fn read_ahead(&mut self) -> Result<(), WriteError> {
        self.read_ahead = Some(self.submit(|kernel| kernel.read_back())?);
        Ok(())
    }

    /// The objects; changes take effect at the next sync.
    pub(crate) fn index(&mut self) -> &mut Index {
        &mut self.index
    }

    /// Answers somebody who asks what should be in the kernel.
    pub(crate) fn answer(&self, question: Question) {
        question.answer(&self.index, &self.desired, &self.around);
    }

    /// How many transactions were begun, now and later.
    pub(crate) fn commits(&self) -> Commits {
        self.commits.clone()
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

    /// Whether something from outside waits for the next sync.
    pub(crate) fn is_behind(&self) -> bool {
        self.in_doubt || self.look_around || self.index.is_changed()
    }

    /// Lets endpoints go that were left by IPVS and have no connections any more.
    pub(crate) async fn drain(&mut self) {
        match self.on_kernel(|tables| tables.drain()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) | Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "real servers stay for now");
                // Some of them may be forgotten already.
                self.in_doubt = true;
            }
        }
    }

    /// Whether some Services were never written.
    fn is_starting(&self) -> bool {
        !self.waiting.is_empty() || self.ahead.is_some()
    }

    /// When there is something to do, should nothing new come from outside.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        let drift = (!self.drift.is_empty()).then(|| self.repairs.due(now));
        let unsent = (!self.unsent.is_empty()).then_some(self.unsent_until);
        // What was planned ahead goes alone, and leaves behind what came meanwhile.
        let more = (self.is_starting() || self.is_behind()).then_some(now);
        drift.into_iter().chain(unsent).chain(more).min()
    }

    /// Brings the kernel to what the index says, or a part of the way if that is far: see
    /// [`Engine::due`].
    pub(crate) async fn sync(&mut self) -> Result<(), WriteError> {
        let mut outcome = self.try_sync().await;
        if let Err(error) = &outcome
            && self.in_doubt
            && error.reaction() == zw_dataplane::Reaction::Resync
        {
            warn!(error = error as &dyn std::error::Error, "reading the kernel back");
            self.status.sync_failed(error);
            outcome = self.sync_in_doubt().await.map(Some);
        }
        let report = outcome.inspect_err(|error| self.status.sync_failed(error))?;
        match (report, self.starting.take()) {
            (Some(report), None) if !self.is_starting() => self.tell(&report),
            (Some(report), total) => {
                let mut total = total.unwrap_or(Report {
                    did: SyncReport { full: true, ..SyncReport::default() },
                    ..Report::default()
                });
                total.absorb(report);
                if self.is_starting() {
                    self.starting = Some(total);
                } else {
                    self.tell(&total);
                }
            }
            (None, total) => {
                self.starting = total;
                self.status.settled();
            }
        }
        Ok(())
    }

    /// What is done depends on how much is known of the kernel. Nothing, if nothing is to be done.
    async fn try_sync(&mut self) -> Result<Option<Report>, WriteError> {
        // What changed since comes after it.
        if let Some(planned) = self.ahead.take_if(|_| !self.in_doubt) {
            return self.sync_planned(planned).await.map(Some);
        }
        // Only clients left to be forgotten are no hindrance.
        let sent = self.is_sent();
        if !self.in_doubt && sent {
            self.put_right().await?;
        }
        let (services, around) = self.take_in();
        // What the kernel refused is tried again when it changes.
        match &services {
            Touched::Some(keys) => keys.iter().for_each(|key| self.status.taken_up(key)),
            Touched::All => self.status.refused().keys().for_each(|key| self.status.taken_up(key)),
        }
        if self.in_doubt {
            return self.sync_in_doubt().await.map(Some);
        }
        let mut keys = match services {
            Touched::Some(keys) => keys,
            // Also those that went in the same batch.
            Touched::All => {
                let keys = self.index.service_keys().chain(self.desired.service_keys());
                keys.cloned().collect()
            }
        };
        // What the kernel had no memory for must not grow with every try.
        let starting = self.is_starting();
        if sent {
            keys.extend(self.waiting.take(&self.index).into_iter().map(|known| known.key.clone()));
        }
        // A start ends like any sync, also if the last of its Services are gone.
        if keys.is_empty() && around.is_none() && self.unsent.is_empty() && !starting {
            return Ok(None);
        }
        self.sync_changed(keys, around).await.map(Some)
    }

    /// Nothing that failed waits to be tried again, but for clients to be forgotten.
    fn is_sent(&self) -> bool {
        self.unsent.element_operations() + self.unsent.chain_operations() == 0
    }

    async fn sync_in_doubt(&mut self) -> Result<Report, WriteError> {
        let known = self.desired.service_keys().next().is_some();
        let mut report = self.sync_all().await?;
        self.in_doubt = false;
        let written = report.did.elements + report.chains + report.servers;
        report.did.repaired = known && written > 0;
        self.mending = false;
        Ok(report)
    }

    /// Puts right what somebody else did, if that is not too often.
    async fn put_right(&mut self) -> Result<(), WriteError> {
        let now = Instant::now();
        if !self.drift.is_empty()
            && self.repairs.due(now) <= now
            && let Some(report) = self.repair().await?
        {
            match &mut self.starting {
                Some(total) => total.absorb(report),
                None => self.tell(&report),
            }
        }
        Ok(())
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
}

#[cfg(test)]
mod tests;
