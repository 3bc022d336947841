//! The thread that removes stale UDP flows from connection tracking. What is stale is
//! [`crate::conntrack_cleanup`]'s business; here it is looked for, without anything waiting for it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use tracing::{debug, warn};
use zw_dataplane::{FlowTable, TrackedFlow};
use zw_model::{Family, Protocol};

use crate::conntrack_cleanup::{ChangedUdp, Flow};

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
    changed: ChangedUdp,
    node_addresses: BTreeSet<IpAddr>,
    ended: bool,
}

impl Flows {
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let started = thread::Builder::new().name("flows".into()).spawn(move || of_thread.work());
        if let Err(error) = started {
            warn!(%error, "no thread for stale UDP flows: they stay until they expire");
        }
        Self { shared }
    }

    /// The node's addresses that node ports are served on.
    pub(crate) fn serve_node_ports_on(&self, addresses: BTreeSet<IpAddr>) {
        self.shared.lock().node_addresses = addresses;
    }

    /// Has flows removed that lead to the wrong place after this.
    pub(crate) fn clean(&self, changed: ChangedUdp) {
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

    fn work(&self) {
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
            clean(&changed, &node_addresses);
        }
    }
}

fn clean(changed: &ChangedUdp, node_addresses: &BTreeSet<IpAddr>) {
    let started = Instant::now();
    for family in changed.families() {
        let mut outcome = Ok(0);
        for _ in 0..ATTEMPTS {
            outcome = clean_family(changed, node_addresses, family);
            if outcome.as_ref().is_ok_and(|_| true) {
                break;
            }
        }
        match outcome {
            Ok(deleted) => {
                let elapsed_ms = started.elapsed().as_millis() as u64;
                debug!(%family, deleted, elapsed_ms, "stale UDP flows removed");
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(%family, error, "stale UDP flows may be left");
            }
        }
    }
}

fn clean_family(
    changed: &ChangedUdp,
    node_addresses: &BTreeSet<IpAddr>,
    family: Family,
) -> Result<usize, zw_dataplane::FlowError> {
    let stale = |flow: &TrackedFlow| {
        let flow = Flow {
            protocol: Protocol::Udp,
            original_destination: flow.to,
            reply_source: flow.answered_by,
        };
        changed.is_stale(&flow, |addr| node_addresses.contains(&addr))
    };
    let mut table = FlowTable::open()?;
    // One frontend is asked for by itself; the kernel then sends only its flows.
    let only: Option<SocketAddr> = changed.only_address(family);
    table.delete_udp(family, only, stale)
}
