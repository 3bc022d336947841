//! In the ipvs mode: what somebody else did to virtual servers and their addresses is put right, and
//! which of them the kernel does not take is told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tokio::time::Instant;
use tracing::warn;
use zw_dataplane::{LINK, RefusedReal, Unserved, WhyUnserved};
use zw_model::{Service, ServiceKey};
use zw_plan::{ActualIpvs, Changes, IpvsChanges, VirtualKey};

use super::{Engine, UNSURE};
use crate::events::Reason;
use crate::few::first_few;

impl Engine {
    /// These addresses of Services are gone from their interface, or no packet gets to any, because it is
    /// down. If that was not us, everything is compared soon.
    pub(crate) fn lost_addresses(&mut self, lost: &BTreeSet<IpAddr>, down: bool) {
        let strange = down || lost.iter().any(|addr| self.desired.wants_address(*addr));
        if strange && self.desired.by_ipvs() {
            self.unsure = Some(UNSURE);
        }
    }

    /// IPVS was read. What is not as it was left goes with the next sync.
    pub(super) fn compare_servers(&mut self, actual: &ActualIpvs) {
        let mut different = self.desired.ipvs_differences(actual);
        let taken = different.servers.iter().filter(|(server, settings)| {
            let known = self.unserved.contains_key(*server);
            settings.is_some() && actual.foreign.contains(server) && !known
        });
        let unserved =
            |server: &VirtualKey| Unserved { server: *server, why: WhyUnserved::Foreign };
        self.report_unserved(taken.map(|(server, _)| unserved(server)).collect());
        // What the kernel does not take is asked for again when the Service changes.
        different.leave_out(|server| match self.unserved.get(server) {
            Some(WhyUnserved::NoScheduler(_) | WhyUnserved::Refused(_)) => true,
            Some(WhyUnserved::Foreign) | None => actual.foreign.contains(server),
        });
        different.reals.retain(|real, _| !self.refused_reals.contains(real));
        different.addresses.retain(|addr, _| !self.refused_addresses.contains(addr));
        if different.is_empty() {
            return;
        }
        warn!(different = words(&different), "not as it was left, to be put right");
        let now = Instant::now();
        self.unsent_until = self.repairs.due(now);
        self.repairs.spend(now);
        self.unsent = Changes { ipvs: different, ..Changes::default() };
        self.mending = true;
    }

    /// Virtual servers that the kernel does not take: their Services are not served there.
    pub(super) fn report_unserved(&mut self, unserved: Vec<Unserved>) {
        let mut told: BTreeMap<(ServiceKey, Reason), Vec<String>> = BTreeMap::new();
        for Unserved { server, why } in unserved {
            if let Some(svc) = self.desired.server_owner(&server)
                && let Some((service, _)) = self.index.service(svc)
            {
                let field = field(service, &server, &why);
                warn!(%svc, %server, field, %why, "not programmed");
                let reason = match why {
                    WhyUnserved::Foreign => Reason::VirtualServerInUse,
                    WhyUnserved::NoScheduler(_) => Reason::SchedulerMissing,
                    WhyUnserved::Refused(_) => Reason::RulesRefused,
                };
                let text = format!("{server} ({field}): {why}");
                told.entry((svc.clone(), reason)).or_default().push(text);
            }
            self.unserved.insert(server, why);
        }
        for ((svc, reason), texts) in told {
            let message = format!("not programmed on this node: {}", texts.join("; "));
            self.status.recent.complain(format!("{svc}: {message}"));
            self.status.events.service(&svc, reason, message);
        }
    }

    /// Endpoints that the kernel does not take: the others of their Services serve.
    pub(super) fn report_refused(&mut self, refused: Vec<RefusedReal>) {
        let mut told: BTreeMap<ServiceKey, Vec<String>> = BTreeMap::new();
        for RefusedReal { server, real, why } in refused {
            if let Some(svc) = self.desired.server_owner(&server) {
                warn!(%svc, %server, endpoint = %real, why, "not programmed");
                told.entry(svc.clone()).or_default().push(format!("{real} of {server}: {why}"));
            }
            self.refused_reals.insert((server, real));
        }
        for (svc, texts) in told {
            let message = format!("endpoints not programmed on this node: {}", first_few(&texts));
            self.status.recent.complain(format!("{svc}: {message}"));
            self.status.events.service(&svc, Reason::RulesRefused, message);
        }
    }
}

/// The field that asks for what cannot be had.
fn field(service: &Service, server: &VirtualKey, why: &WhyUnserved) -> &'static str {
    let external = service.external.as_deref();
    match why {
        WhyUnserved::NoScheduler(_) if service.scheduler.is_some() => {
            "metadata.annotations[zoneward/ipvs-scheduler]"
        }
        WhyUnserved::NoScheduler(_) => "ipvs.scheduler of the agent's configuration",
        _ if service.cluster_ips.contains(&server.addr) => "spec.clusterIPs",
        _ if external.is_some_and(|external| external.ips.contains(&server.addr)) => {
            "spec.externalIPs"
        }
        _ if external.is_some_and(|e| e.load_balancer_ips.contains(&server.addr)) => {
            "status.loadBalancer.ingress"
        }
        WhyUnserved::Foreign | WhyUnserved::Refused(_) => "spec.ports[].nodePort",
    }
}

/// What is different, or the first of it.
fn words(different: &IpvsChanges) -> String {
    let link = different.link.map(|_| format!("the interface {LINK}"));
    let servers = different.servers.keys().map(|server| format!("the virtual server {server}"));
    let reals = different.reals.keys();
    // A virtual server that is gone is told with all that were its.
    let reals = reals.filter(|(server, _)| !different.servers.contains_key(server));
    let reals = reals.map(|(server, real)| format!("the real server {real} of {server}"));
    let addresses = different.addresses.keys().map(|addr| format!("the address {addr}"));
    let all: Vec<String> = link.into_iter().chain(servers).chain(reals).chain(addresses).collect();
    first_few(&all)
}
