//! Who is busy: new connections per Service port, who answers them, and how much of it stays in the zone.
//!
//! From the kernel's counters and its tracked connections, read now and then; what rules there are, and
//! where endpoints run, comes from the agent, or without zones from the kernel.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use serde::Serialize;
use zw_model::Protocol;
use zw_plan::{Actual, At, Frontend, SetName, decode_frontend};

use super::agent::AgentReport;
use super::planned::Planned;
use super::tracked;
use crate::metrics::connections;

/// Which Service port has what, and which endpoints are in this node's zone.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) node: Option<String>,
    pub(crate) zone: Option<String>,
    frontends: HashMap<Frontend, String>,
    endpoints: HashMap<String, HashSet<SocketAddr>>,
    in_zone: HashMap<IpAddr, bool>,
}

impl Directory {
    /// As an agent or manifests have it.
    pub(crate) fn of_planned(planned: &Planned) -> Self {
        let node = planned.index.node();
        let mut directory = Self {
            node: Some(node.name.to_string()),
            zone: node.zone.as_deref().map(str::to_owned),
            ..Self::default()
        };
        for key in planned.index.service_keys() {
            let Some((_, slices)) = planned.index.service(key) else { continue };
            for endpoint in slices.flat_map(|slice| &slice.endpoints) {
                if let (Some(mine), Some(zone)) = (&node.zone, &endpoint.zone) {
                    directory.in_zone.insert(endpoint.addr, mine == zone);
                }
            }
            for port in planned.desired.service(key).into_iter().flat_map(|rules| &rules.ports) {
                let backends = port.backends.iter().chain(port.local());
                directory.add(port.frontend, &port.comment, backends.map(|backend| backend.addr));
            }
        }
        directory
    }

    /// As the kernel has it, which knows no zones.
    pub(crate) fn of_kernel(actual: &Actual) -> Self {
        let mut directory = Self::default();
        let mut slots = actual.slots();
        for (family, table) in &actual.tables {
            for set in [SetName::Services, SetName::NodePorts] {
                for element in table.sets.get(&set).into_iter().flat_map(HashMap::values) {
                    let Some(frontend) = decode_frontend(*family, set, &element.key) else {
                        continue;
                    };
                    let held = slots.remove(&frontend).unwrap_or_default();
                    let name = element.comment.as_deref().unwrap_or_default();
                    directory.add(frontend, name, held.all.into_iter().chain(held.local));
                }
            }
        }
        directory
    }

    fn add(&mut self, frontend: Frontend, name: &str, backends: impl Iterator<Item = SocketAddr>) {
        self.frontends.insert(frontend, name.to_owned());
        self.endpoints.entry(name.to_owned()).or_default().extend(backends);
    }

    fn whose(&self, protocol: Protocol, to: SocketAddr) -> Option<&String> {
        let at = Frontend::new(to.ip(), protocol, to.port());
        let node_port = Frontend { at: At::Node(at.family()), ..at };
        self.frontends.get(&at).or_else(|| self.frontends.get(&node_port))
    }
}

/// The counters at one moment.
#[derive(Debug)]
pub(crate) struct Sample {
    at: Instant,
    counts: BTreeMap<String, u64>,
}

impl Sample {
    /// Reads the kernel's counters; blocking.
    pub(crate) fn take() -> anyhow::Result<Self> {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for (_, names) in connections::read()? {
            for (name, count) in names {
                *counts.entry(name).or_default() += count;
            }
        }
        Ok(Self { at: Instant::now(), counts })
    }
}

/// What happened between two samples.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Load {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<AgentReport>,
    pub(crate) per_second: f64,
    /// Of all tracked connections whose endpoint's zone is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) in_zone: Option<f64>,
    /// All Service ports, the busiest first.
    pub(crate) services: Vec<ServiceLoad>,
}

/// One Service port.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceLoad {
    /// `namespace/name:port`
    pub(crate) name: String,
    pub(crate) per_second: f64,
    pub(crate) connections: u64,
    /// Connections tracked now.
    pub(crate) tracked: u64,
    pub(crate) endpoints: usize,
    /// The share of the busiest endpoint, as a multiple of a fair one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) busiest: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) busiest_endpoint: Option<SocketAddr>,
    /// Of the tracked connections, those to endpoints in this node's zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) in_zone: Option<f64>,
}

/// Puts two samples and the connections of now together.
pub(crate) fn between(before: &Sample, after: &Sample, directory: &Directory) -> Load {
    combine(before, after, directory, &tracked::read())
}

fn combine(
    before: &Sample,
    after: &Sample,
    directory: &Directory,
    flows: &HashMap<(Protocol, SocketAddr, SocketAddr), u64>,
) -> Load {
    let seconds = after.at.duration_since(before.at).as_secs_f64().max(0.001);
    let mut by_service: HashMap<&String, HashMap<SocketAddr, u64>> = HashMap::new();
    for ((protocol, to, by), number) in flows {
        if let Some(name) = directory.whose(*protocol, *to) {
            *by_service.entry(name).or_default().entry(*by).or_default() += number;
        }
    }
    let (mut near, mut placed) = (0, 0);
    let mut services: Vec<ServiceLoad> = after
        .counts
        .iter()
        .map(|(name, connections)| {
            let was = before.counts.get(name).copied().unwrap_or(*connections);
            let answered = by_service.get(name);
            let zoned = answered.map(|answered| in_zone(answered, directory)).unwrap_or_default();
            near += zoned.0;
            placed += zoned.1;
            let tracked: u64 = answered.into_iter().flat_map(|all| all.values()).sum();
            let endpoints = directory.endpoints.get(name).map_or(0, HashSet::len);
            let busiest = answered.and_then(|all| {
                // The lower address of two that are equal, lest it jumps.
                all.iter().max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.cmp(a.0)))
            });
            ServiceLoad {
                name: name.clone(),
                per_second: connections.saturating_sub(was) as f64 / seconds,
                connections: *connections,
                tracked,
                endpoints,
                busiest: busiest
                    .filter(|_| tracked > 0)
                    .map(|(_, most)| *most as f64 * endpoints.max(1) as f64 / tracked as f64),
                busiest_endpoint: busiest.map(|(by, _)| *by),
                in_zone: share(zoned.0, zoned.1),
            }
        })
        .collect();
    let busy = |load: &ServiceLoad| (load.per_second, load.tracked);
    services.sort_by(|a, b| {
        let order = busy(b).partial_cmp(&busy(a)).unwrap_or(std::cmp::Ordering::Equal);
        order.then_with(|| a.name.cmp(&b.name))
    });
    Load {
        node: directory.node.clone(),
        zone: directory.zone.clone(),
        agent: None,
        per_second: services.iter().map(|service| service.per_second).sum(),
        in_zone: share(near, placed),
        services,
    }
}

/// Connections to endpoints in the zone, and to those whose zone is known.
fn in_zone(answered: &HashMap<SocketAddr, u64>, directory: &Directory) -> (u64, u64) {
    answered.iter().fold((0, 0), |(near, placed), (by, number)| {
        match directory.in_zone.get(&by.ip()) {
            Some(true) => (near + number, placed + number),
            Some(false) => (near, placed + number),
            None => (near, placed),
        }
    })
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rates_shares_and_zones_come_from_two_samples() {
        let socket = |text: &str| text.parse::<SocketAddr>().unwrap();
        let to = socket("10.96.0.1:80");
        let (near, far) = (socket("10.244.1.1:80"), socket("10.244.2.1:80"));
        let mut directory = Directory::default();
        let frontend = Frontend::new(to.ip(), Protocol::Tcp, 80);
        directory.add(frontend, "web/api:http", [near, far].into_iter());
        directory.in_zone = [(near.ip(), true), (far.ip(), false)].into();
        let at = Instant::now();
        let sample = |at, count| Sample {
            at,
            counts: [("web/api:http".to_owned(), count), ("web/idle".to_owned(), 7)].into(),
        };
        let flows = [((Protocol::Tcp, to, near), 3), ((Protocol::Tcp, to, far), 1)].into();
        let load = combine(
            &sample(at, 100),
            &sample(at + Duration::from_secs(2), 120),
            &directory,
            &flows,
        );
        assert_eq!((load.per_second, load.in_zone), (10.0, Some(0.75)));
        let [busy, idle] = &load.services[..] else { panic!("{load:?}") };
        assert_eq!((busy.name.as_str(), busy.tracked, busy.endpoints), ("web/api:http", 4, 2));
        assert_eq!((busy.busiest, busy.busiest_endpoint), (Some(1.5), Some(near)));
        assert_eq!((idle.name.as_str(), idle.per_second, idle.busiest), ("web/idle", 0.0, None));
    }
}
