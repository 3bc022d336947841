//! In the ipvs mode: the virtual servers that a packet may get to, and what keeps it from them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use zw_dataplane::LINK;
use zw_plan::{ActualIpvs, Backend, Desired, Fate, Link, VirtualKey, VirtualServer, WEIGHT, Walk};

use super::ShownServer;
use super::question::Question;
use crate::inspect::text::period;

/// Virtual servers, planned or read back.
#[derive(Debug, Default)]
pub(super) struct Servers {
    /// With those of their real servers that get connections.
    pub(super) servers: BTreeMap<VirtualKey, VirtualServer>,
    weights: HashMap<(VirtualKey, SocketAddr), u32>,
    /// Somebody else's.
    foreign: BTreeSet<VirtualKey>,
    /// Addresses that packets do not arrive at.
    unreachable: BTreeSet<IpAddr>,
}

impl Servers {
    pub(super) fn wanted(desired: &Desired) -> Self {
        let servers = desired.virtual_servers();
        let reals =
            servers.iter().flat_map(|(key, server)| server.reals.iter().map(move |r| (key, r)));
        let weights = reals.map(|(key, real)| ((*key, real.addr), WEIGHT)).collect();
        Self { servers, weights, ..Self::default() }
    }

    /// As the kernel of a node with these addresses has them.
    pub(super) fn held(actual: &ActualIpvs, node: &[IpAddr]) -> Self {
        let mut held = Self { foreign: actual.foreign.clone(), ..Self::default() };
        for (key, server) in &actual.servers {
            let arrives = actual.link == Link::Up && actual.addresses.contains(&key.addr);
            if !arrives && !node.contains(&key.addr) {
                held.unreachable.insert(key.addr);
            }
            let Some(settings) = server.settings.clone() else { continue };
            let reals = server.reals.iter().filter(|(_, weight)| **weight != Some(0));
            let reals = reals.map(|(addr, weight)| {
                held.weights.extend(weight.map(|weight| ((*key, *addr), weight)));
                Backend { addr: *addr, local: false }
            });
            let reals = reals.collect();
            held.servers.insert(*key, VirtualServer { settings, reals });
        }
        held
    }

    /// What keeps a packet from the end that its walk came to.
    pub(super) fn obstacle(&self, question: &Question, walk: &Walk) -> Option<String> {
        let (addr, port) = (question.to.ip(), question.to.port());
        let sent_to = VirtualKey { addr, protocol: question.protocol, port };
        if self.foreign.contains(&sent_to) && matches!(walk.fate, Fate::Untouched) {
            return Some(format!(
                "somebody else has a virtual server of IPVS at {sent_to}, which takes it"
            ));
        }
        let addr = walk.server?.addr;
        self.unreachable.contains(&addr).then(|| {
            format!(
                "{addr} is not on the interface {LINK}, or that is down: the packet does not get \
                 to IPVS (`zoneward diff` tells more)"
            )
        })
    }

    pub(super) fn shown(&self, key: &VirtualKey) -> Option<ShownServer> {
        let settings = &self.servers.get(key)?.settings;
        Some(ShownServer {
            server: key.to_string(),
            scheduler: settings.scheduler.to_string(),
            affinity_seconds: settings.persistence,
        })
    }

    /// The real servers that get connections, and their weights.
    pub(super) fn reals(
        &self,
        key: &VirtualKey,
    ) -> impl Iterator<Item = (SocketAddr, Option<u32>)> {
        let reals = self.servers.get(key).into_iter().flat_map(|server| server.reals.iter());
        reals.map(move |real| (real.addr, self.weight(key, real.addr)))
    }

    pub(super) fn weight(&self, key: &VirtualKey, real: SocketAddr) -> Option<u32> {
        self.weights.get(&(*key, real)).copied()
    }
}

impl ShownServer {
    /// How an endpoint is picked.
    pub(super) fn words(&self) -> String {
        let stays = self
            .affinity_seconds
            .map(|seconds| format!(", and a client stays with its own for {}", period(seconds)));
        format!("; IPVS picks, by {}{}", self.scheduler, stays.unwrap_or_default())
    }
}
