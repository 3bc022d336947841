//! What a sync did, and who is told of it.

use std::time::{Duration, SystemTime};

use tracing::{debug, info};
use zw_model::Family;

use super::Engine;
use crate::metrics::SyncReport;

/// What one sync did, for the log.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) services: usize,
    pub(super) chains: usize,
    /// Changes to IPVS and its interface.
    pub(super) servers: usize,
    /// It began with what failed before, for want of memory perhaps.
    pub(super) again: bool,
    pub(super) did: SyncReport,
}

impl Report {
    /// Takes in what was done later.
    pub(super) fn absorb(&mut self, later: Report) {
        self.services += later.services;
        self.chains += later.chains;
        self.servers += later.servers;
        self.did.repaired |= later.did.repaired;
        self.did.elements += later.did.elements;
        self.did.bytes += later.did.bytes;
        self.did.read += later.did.read;
        self.did.plan += later.did.plan;
        self.did.commit += later.did.commit;
    }
}

impl Engine {
    /// What is in the kernel now. In a busy cluster something changes many times a second, so only what
    /// is out of the ordinary is for everyone's log.
    pub(super) fn tell(&mut self, report: &Report) {
        let Report { services, chains, servers, did, .. } = report;
        self.status.synced(did);
        self.report_latency();
        macro_rules! log {
            ($level:ident, $what:literal) => {
                $level!(
                    services,
                    elements = did.elements,
                    chains,
                    servers = self.desired.by_ipvs().then_some(*servers),
                    bytes = did.bytes,
                    read_ms = milliseconds(did.read),
                    plan_ms = milliseconds(did.plan),
                    commit_ms = milliseconds(did.commit),
                    $what
                )
            };
        }
        match (did.full, did.repaired) {
            (true, _) => log!(info, "synced"),
            (false, true) => log!(info, "repaired"),
            (false, false) => log!(debug, "synced"),
        }
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
}

/// To the microsecond.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
