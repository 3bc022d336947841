//! The thread that removes stale flows from connection tracking. What is stale is
//! [`crate::conntrack_cleanup`]'s business; here it is looked for, without anything waiting for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::{debug, warn};
use zw_dataplane::{FlowFilter, FlowTable, TrackedFlow};
use zw_model::Family;

use crate::conntrack_cleanup::ChangedFlows;
use crate::status::Status;

/// How often a look that the kernel interrupted is begun again.
const ATTEMPTS: usize = 5;

/// A handle to the thread, which ends with it.
pub(crate) struct Flows {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    woken: Condvar,
}

/// What was asked for since the thread last looked: together, so that it never grows past the Services.
#[derive(Default)]
struct Waiting {
    changed: ChangedFlows,
    node_addresses: BTreeSet<IpAddr>,
    ended: bool,
}

impl Flows {
    pub(crate) fn start(status: Arc<Status>) -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let work = move || of_thread.work(&status);
        let started = thread::Builder::new().name("flows".into()).spawn(work);
        if let Err(error) = started {
            warn!(%error, "no thread for stale flows: they stay until they expire");
        }
        Self { shared }
    }

    /// The node's addresses that node ports are served on.
    pub(crate) fn serve_node_ports_on(&self, addresses: BTreeSet<IpAddr>) {
        self.shared.lock().node_addresses = addresses;
    }

    /// Has flows removed that lead to the wrong place after this.
    pub(crate) fn clean(&self, changed: ChangedFlows) {
        self.shared.lock().changed.absorb(changed);
        self.shared.woken.notify_one();
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.woken.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // What it guards is whole after every statement.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, status: &Status) {
        loop {
            let nothing = |waiting: &mut Waiting| waiting.changed.is_empty() && !waiting.ended;
            let waiting = self.woken.wait_while(self.lock(), nothing);
            let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
            if waiting.ended {
                return;
            }
            let changed = std::mem::take(&mut waiting.changed);
            let node_addresses = waiting.node_addresses.clone();
            drop(waiting);
            clean(&changed, &node_addresses, status);
        }
    }
}

fn clean(changed: &ChangedFlows, node_addresses: &BTreeSet<IpAddr>, status: &Status) {
    let mut reconciled: BTreeMap<Family, (Duration, usize)> = BTreeMap::new();
    for question in changed.questions() {
        let started = Instant::now();
        let mut outcome = Ok(0);
        for _ in 0..ATTEMPTS {
            outcome = clean_among(changed, node_addresses, question);
            if outcome.is_ok() {
                break;
            }
        }
        let FlowFilter { family, protocol, .. } = question;
        match outcome {
            Ok(deleted) => {
                let took = started.elapsed();
                debug!(%family, %protocol, deleted, elapsed_ms = took.as_millis() as u64, "stale flows removed");
                let total = reconciled.entry(family).or_default();
                *total = (total.0 + took, total.1 + deleted);
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(%family, %protocol, error, "stale flows may be left");
            }
        }
    }
    for (family, (took, deleted)) in reconciled {
        status.metrics.conntrack_reconciled(family, took, deleted as u64);
    }
}

fn clean_among(
    changed: &ChangedFlows,
    node_addresses: &BTreeSet<IpAddr>,
    question: FlowFilter,
) -> Result<usize, zw_dataplane::FlowError> {
    let on_node = |addr| node_addresses.contains(&addr);
    let stale = |flow: &TrackedFlow| changed.is_stale(question.protocol, flow, on_node);
    FlowTable::open()?.delete(question, stale)
}
