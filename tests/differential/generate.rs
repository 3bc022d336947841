//! Random Services: every field that the proxies read, in every mix that the API server accepts.

use std::net::IpAddr;

use zw_lab::NODE;
use zw_model::{Family, Protocol};

use crate::cast::{ENDPOINTS, NODE_NAME, SERVED};
use crate::service::{Endpoint, Ingress, Kind, Port, Service, Slice, external_ip, ingress_ip};
use zw_tests::rng::Rng;

/// The zones a node may be in; none at all is one of them.
pub(crate) const ZONES: [&str; 3] = ["zone-a", "zone-b", ""];
const HINTED_ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
const HINTED_NODES: [&str; 3] = [NODE_NAME, "node-2", "node-3"];
const PORTS: [u16; 5] = [80, 443, 53, 8080, 30_000];
const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];

/// Ranges that hold one or another of those who ask, or nobody.
const RANGES: [&str; 16] = [
    "203.0.113.0/24",
    "203.0.113.7/32",
    " 203.0.113.0/25 ",
    "10.244.0.0/16",
    "10.244.1.11/32",
    "192.0.2.1/32",
    "192.0.2.0/24",
    "198.18.0.0/15",
    "0.0.0.0/0",
    "2001:db8:ffff::/48",
    "2001:db8:ffff::7/128",
    "fd00:10:244::/48",
    "2001:db8::1/128",
    "2001:db8::/64",
    "fd99::/16",
    "::/0",
];

/// The Service of this number.
pub(crate) fn service(rng: &mut Rng, number: usize) -> Service {
    let kind = rng.pick(&[Kind::ClusterIp, Kind::NodePort, Kind::LoadBalancer, Kind::LoadBalancer]);
    let families = match rng.below(6) {
        0 => vec![Family::V4],
        1 => vec![Family::V6],
        2 | 3 => vec![Family::V6, Family::V4],
        _ => vec![Family::V4, Family::V6],
    };
    let mut service = Service {
        number,
        kind,
        families,
        ports: Vec::new(),
        external_ips: Vec::new(),
        ingress: Vec::new(),
        source_ranges: Vec::new(),
        affinity: None,
        internal_local: rng.chance(30),
        external_local: rng.chance(45),
        foreign: rng.chance(3),
        slices: Vec::new(),
    };
    service.ports = ports(rng, &service);
    if rng.chance(25) {
        // Long enough to last for a round: who stays is compared, not for how long.
        service.affinity = Some(rng.pick(&[None, Some(300), Some(3600), Some(86_400)]));
    }
    external(rng, &mut service);
    service.slices = slices(rng, &service);
    service.normalised()
}

fn ports(rng: &mut Rng, service: &Service) -> Vec<Port> {
    let count = rng.pick(&[1, 1, 2, 2, 3]);
    let unnamed = count == 1 && rng.chance(50);
    // One number for two protocols, as DNS has it, also as a node port.
    let twins = count > 1 && rng.chance(30);
    let with_node_ports = service.kind == Kind::NodePort || rng.chance(70);
    let mut ports: Vec<Port> = Vec::new();
    for i in 0..count {
        let (protocol, port, node) = if twins && i < 2 {
            (if i == 0 { Protocol::Tcp } else { Protocol::Udp }, 53, 0)
        } else {
            (rng.pick(&PROTOCOLS), rng.pick(&PORTS), i)
        };
        if ports.iter().any(|other| (other.protocol, other.port) == (protocol, port)) {
            continue;
        }
        let node_port = (30_001 + service.number * 4 + node) as u16;
        ports.push(Port {
            name: if unnamed { String::new() } else { format!("port-{i}") },
            protocol,
            port,
            node_port: with_node_ports.then_some(node_port),
        });
    }
    ports
}

fn external(rng: &mut Rng, service: &mut Service) {
    let families = service.families.clone();
    let number = service.number;
    let both = |address: fn(Family, usize, bool) -> IpAddr| {
        let each =
            |family: &Family| [address(*family, number, false), address(*family, number, true)];
        families.iter().flat_map(each).collect::<Vec<_>>()
    };
    if rng.chance(40) {
        service.external_ips = rng.some(&both(external_ip), 60);
    }
    if service.kind == Kind::LoadBalancer {
        for ip in rng.some(&both(ingress_ip), 70) {
            let mode = rng.pick(&["VIP", "VIP", "VIP", "Proxy"]);
            service.ingress.push(Ingress { ip, mode });
        }
        if rng.chance(60) {
            let count = 1 + rng.below(4);
            service.source_ranges = (0..count).map(|_| rng.pick(&RANGES).to_owned()).collect();
            service.source_ranges.sort();
            service.source_ranges.dedup();
        }
    }
}

/// How often each condition and hint occurs in the slices of one Service. Chosen per Service, so that
/// "all of them" and "none" are as common as "some".
struct Mood {
    not_ready: usize,
    terminating: usize,
    no_node_name: usize,
    zone_hints: usize,
    node_hints: usize,
}

fn slices(rng: &mut Rng, service: &Service) -> Vec<Slice> {
    let mood = Mood {
        not_ready: rng.pick(&[0, 0, 20, 60, 100]),
        terminating: rng.pick(&[0, 0, 30, 100]),
        no_node_name: rng.pick(&[0, 0, 10, 100]),
        zone_hints: rng.pick(&[0, 0, 80, 100, 100]),
        node_hints: rng.pick(&[0, 0, 0, 80, 100]),
    };
    // One Service in twelve has no slice at all.
    let count = rng.pick(&[0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4]);
    let mut slices: Vec<Slice> = Vec::new();
    for family in Family::BOTH {
        // Slices of a family that the Service does not have are there and must not count.
        if !service.families.contains(&family) && !rng.chance(10) {
            continue;
        }
        let mut seen: Vec<Endpoint> = Vec::new();
        for _ in 0..count {
            slices.push(slice(rng, service, family, &mood, &mut seen));
        }
    }
    slices
}

fn slice(
    rng: &mut Rng,
    service: &Service,
    family: Family,
    mood: &Mood,
    seen: &mut Vec<Endpoint>,
) -> Slice {
    let ports = service
        .ports
        .iter()
        .filter(|_| rng.chance(90))
        .map(|port| (port.name.clone(), port.protocol))
        .collect::<Vec<_>>();
    let ports = ports.into_iter().map(|(name, p)| (name, p, rng.pick(&SERVED))).collect();
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for _ in 0..rng.below(5) {
        let host = rng.pick(&ENDPOINTS);
        if endpoints.iter().any(|e| e.host == host) {
            continue;
        }
        // The same endpoint in two slices says the same in both, or is leaving in one: of two that
        // contradict each other otherwise, kube-proxy takes any.
        let known = seen.iter().find(|e| e.host == host).cloned();
        endpoints.push(match known {
            Some(known) if known.terminating != Some(true) && rng.chance(30) => leaving(known),
            Some(known) => known,
            None => {
                seen.push(endpoint(rng, host, mood));
                seen[seen.len() - 1].clone()
            }
        });
    }
    Slice { family, ports, endpoints, headless: rng.chance(2) }
}

fn leaving(endpoint: Endpoint) -> Endpoint {
    Endpoint { ready: Some(false), serving: Some(true), terminating: Some(true), ..endpoint }
}

fn endpoint(rng: &mut Rng, host: &'static str, mood: &Mood) -> Endpoint {
    let (ready, serving, terminating) = if rng.chance(mood.terminating) {
        (rng.pick(&[Some(false), Some(false), Some(true)]), rng.pick(&CONDITION), Some(true))
    } else if rng.chance(mood.not_ready) {
        (Some(false), rng.pick(&CONDITION), rng.pick(&[None, Some(false)]))
    } else {
        (rng.pick(&[None, Some(true)]), rng.pick(&CONDITION), rng.pick(&[None, Some(false)]))
    };
    let hints = |rng: &mut Rng, percent, from: &[&'static str]| {
        if rng.chance(percent) {
            let mut names = vec![rng.pick(from)];
            if rng.chance(30) {
                names.push(rng.pick(from));
                names.dedup();
            }
            names
        } else {
            Vec::new()
        }
    };
    Endpoint {
        host,
        // The node's own addresses may be an endpoint of another node only by mistake.
        node_name: host == NODE || !rng.chance(mood.no_node_name),
        ready,
        serving,
        terminating,
        zone_hints: hints(rng, mood.zone_hints, &HINTED_ZONES),
        node_hints: hints(rng, mood.node_hints, &HINTED_NODES),
    }
}

const CONDITION: [Option<bool>; 3] = [None, Some(true), Some(false)];

impl Service {
    /// Without what the API server would refuse or ignore for this type.
    pub(crate) fn normalised(mut self) -> Self {
        let families = self.families.clone();
        let ours = |ip: &IpAddr| families.contains(&Family::of(*ip));
        self.external_ips.retain(ours);
        self.ingress.retain(|ingress| ours(&ingress.ip));
        if self.kind == Kind::ClusterIp {
            self.ports.iter_mut().for_each(|port| port.node_port = None);
            self.external_local &= !self.external_ips.is_empty();
        }
        if self.kind == Kind::NodePort {
            for (i, port) in self.ports.iter_mut().enumerate() {
                port.node_port.get_or_insert((30_001 + self.number * 4 + i) as u16);
            }
        }
        if self.kind != Kind::LoadBalancer {
            self.ingress.clear();
            self.source_ranges.clear();
        }
        self
    }
}

#[test]
fn copies_of_an_endpoint_contradict_each_other_in_nothing_that_kube_proxy_does_not_settle() {
    for seed in 0..2000 {
        let service = service(&mut Rng::stream(seed, 0), 0);
        for family in Family::BOTH {
            let slices = service.slices.iter().filter(|slice| slice.family == family);
            let all: Vec<&Endpoint> = slices.flat_map(|slice| &slice.endpoints).collect();
            for (one, two) in all.iter().flat_map(|one| all.iter().map(move |two| (one, two))) {
                let leaving = |endpoint: &Endpoint| endpoint.terminating == Some(true);
                if one.host == two.host && leaving(one) == leaving(two) {
                    assert_eq!(one, two, "seed {seed}");
                }
            }
        }
    }
}
