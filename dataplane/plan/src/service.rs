//! One Service's part of the ruleset: its frontends, and who answers at each.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use zw_model::{
    External, Family, NodeContext, Protocol, Scheduler, Service, ServiceKey, ServicePort, Slice,
    TrafficPolicy,
};

use crate::config::LONGEST_COMMENT;
use crate::frontend::Frontend;
use crate::select::{Candidate, select};
use crate::shape::Sticky;
use crate::slots::assign;

/// Where a connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backend {
    /// Address and port.
    pub addr: SocketAddr,
    /// It runs on this node, so it may turn out to be its own client.
    pub local: bool,
}

/// Endpoints in slot order, shared by the frontends of a Service port.
pub type Backends = Arc<[Backend]>;

/// One frontend of one Service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRules {
    /// What clients connect to.
    pub frontend: Frontend,
    /// How they are treated.
    pub exposure: Exposure,
    /// Who answers.
    pub backends: Backends,
    /// Somebody answers, though perhaps none whom this client may use.
    pub has_endpoints: bool,
    /// It remembers its clients.
    pub sticky: Option<Sticky>,
    /// Only these may connect.
    pub sources: Option<Arc<[IpNet]>>,
    /// In the ipvs mode, how its connections are spread, if not as the operator says.
    pub scheduler: Option<Scheduler>,
    /// `namespace/name:port`, as the kernel keeps it.
    pub comment: Arc<str>,
}

/// How clients of a frontend are treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exposure {
    /// A cluster IP.
    Cluster,
    /// Reached from outside; the endpoint sees the node's address.
    External,
    /// Reached from outside, and only endpoints on this node answer outsiders, whose address they see.
    ExternalLocal {
        /// These.
        local: Backends,
        /// In the ipvs mode, where pods and the node go instead: the cluster IP.
        instead: Backends,
    },
}

/// All frontends of one Service in both families, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRules {
    /// At most one per frontend.
    pub ports: Vec<PortRules>,
}

/// Plans one Service. `previous` gives the endpoints that hold a frontend's slots now: those in
/// `endpoints`, and those in `local-endpoints`.
pub fn plan_service<'a>(
    service: &Service,
    slices: impl IntoIterator<Item = &'a Slice> + Clone,
    node: &NodeContext,
    previous: impl Fn(&Frontend) -> Slots,
) -> ServiceRules {
    let mut ports: Vec<PortRules> = Vec::new();
    for family in Family::BOTH {
        for port in &service.ports {
            let frontends = frontends(service, port, family);
            if frontends.is_empty() {
                continue;
            }
            let selection = select(port, family, slices.clone(), node);
            let only_local =
                |by: By| by == By::ClusterIp && service.internal_policy == TrafficPolicy::Local;
            let backends = |wanted: Vec<Backend>, for_local: bool| {
                let mut held = frontends.iter().map(|(frontend, by)| {
                    let Slots { all, local } = previous(frontend);
                    match (only_local(*by), for_local) {
                        (true, true) | (false, false) => all,
                        (true, false) => Vec::new(),
                        (false, true) => local,
                    }
                });
                place(&held.find(|held| !held.is_empty()).unwrap_or_default(), &wanted)
            };
            let cluster: Vec<Backend> = selection.used().map(|c| backend(c, node)).collect();
            let has_endpoints = !cluster.is_empty();
            let cluster = backends(cluster, false);
            let uses_local = service.internal_policy == TrafficPolicy::Local
                || service.external_policy == TrafficPolicy::Local;
            let local = || {
                let local = selection.local(node).into_iter().map(|c| backend(c, node));
                backends(local.collect(), true)
            };
            let local = if uses_local { local() } else { Backends::default() };

            let instead: Backends = match service.cluster_ip(family) {
                Some(ip) if service.external_policy == TrafficPolicy::Local => {
                    [Backend { addr: SocketAddr::new(ip, port.port), local: false }].into()
                }
                _ => Backends::default(),
            };

            let comment = comment(&service.key, &port.name);
            let sources = sources(service.external.as_deref(), family, node);
            if ports.is_empty() {
                // Most Services have no others, and live long.
                ports.reserve_exact(frontends.len());
            }
            for (frontend, by) in frontends {
                let exposure = match (by, service.external_policy) {
                    (By::ClusterIp, _) => Exposure::Cluster,
                    (_, TrafficPolicy::Cluster) => Exposure::External,
                    (_, TrafficPolicy::Local) => {
                        Exposure::ExternalLocal { local: local.clone(), instead: instead.clone() }
                    }
                };
                let only_local = only_local(by);
                ports.push(PortRules {
                    frontend,
                    exposure,
                    backends: if only_local { local.clone() } else { cluster.clone() },
                    has_endpoints,
                    sticky: service.affinity.map(|timeout| Sticky {
                        id: sticky_id(&service.key, port),
                        protocol: port.protocol,
                        timeout,
                        local: only_local,
                    }),
                    sources: sources.clone().filter(|_| by == By::LoadBalancer),
                    scheduler: service.scheduler.clone(),
                    comment: comment.clone(),
                });
            }
        }
    }
    ports.sort_by_key(|port| port.frontend);
    // The same address twice, as a cluster IP and as an external one: the first is the stricter.
    ports.dedup_by_key(|port| port.frontend);
    ports.shrink_to_fit();
    ServiceRules { ports }
}

/// Who holds a frontend's slots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slots {
    /// Those for everyone.
    pub all: Vec<SocketAddr>,
    /// Those for outsiders, where the policy is local.
    pub local: Vec<SocketAddr>,
}

/// What makes a frontend one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    ClusterIp,
    LoadBalancer,
    ExternalIp,
    NodePort,
}

/// In the order of who wins where two are the same.
fn frontends(service: &Service, port: &ServicePort, family: Family) -> Vec<(Frontend, By)> {
    let mut frontends: Vec<(Frontend, By)> = Vec::new();
    let mut add = |addresses: &[IpAddr], by| {
        let of_family = addresses.iter().filter(|addr| Family::of(**addr) == family);
        frontends.extend(of_family.map(|a| (Frontend::new(*a, port.protocol, port.port), by)));
        frontends.len()
    };
    if add(&service.cluster_ips, By::ClusterIp) == 0 {
        // Nor any other address, nor a node port there.
        return frontends;
    }
    if let Some(external) = service.external.as_deref() {
        add(&external.load_balancer_ips, By::LoadBalancer);
        add(&external.ips, By::ExternalIp);
    }
    frontends
        .extend(port.node_port.map(|number| {
            (Frontend::node_port(family, port.protocol, number.get()), By::NodePort)
        }));
    frontends
}

fn backend(candidate: &Candidate<'_>, node: &NodeContext) -> Backend {
    Backend {
        addr: SocketAddr::new(candidate.endpoint.addr, candidate.port),
        local: candidate.endpoint.node.as_ref() == Some(&node.name),
    }
}

/// `wanted` is sorted by address and free of duplicates.
fn place(previous: &[SocketAddr], wanted: &[Backend]) -> Backends {
    if previous.is_empty() {
        return wanted.into();
    }
    assign(previous, wanted, |backend| backend.addr).into_iter().map(|at| wanted[at]).collect()
}

/// Who may use the load balancer's addresses; `None`: everybody. A node in one of the ranges may reach
/// the load balancer through itself, and its packets then carry the load balancer's address.
fn sources(
    external: Option<&External>,
    family: Family,
    node: &NodeContext,
) -> Option<Arc<[IpNet]>> {
    let external = external?;
    let of_family = |net: &&IpNet| Family::of(net.addr()) == family;
    let mut ranges: Vec<IpNet> = external.source_ranges.iter().filter(of_family).copied().collect();
    if ranges.is_empty() {
        return None;
    }
    if node.addresses.iter().any(|addr| ranges.iter().any(|net| net.contains(addr))) {
        let own = external.load_balancer_ips.iter().filter(|addr| Family::of(**addr) == family);
        ranges.extend(own.map(|addr| IpNet::from(*addr)));
    }
    // The kernel takes no ranges that overlap.
    let mut ranges = IpNet::aggregate(&ranges);
    ranges.sort();
    Some(ranges.into())
}

/// Kubernetes names are ASCII, and namespace/name alone always fits; state files may differ.
fn comment(key: &ServiceKey, port: &str) -> Arc<str> {
    let colon = if port.is_empty() { "" } else { ":" };
    // Allocated once, when its length is known.
    let mut bytes = [0; LONGEST_COMMENT];
    let mut len = 0;
    for part in [&*key.namespace, "/", &*key.name, colon, port] {
        let fits = &part[..part.floor_char_boundary(LONGEST_COMMENT - len)];
        bytes[len..len + fits.len()].copy_from_slice(fits.as_bytes());
        len += fits.len();
        if fits.len() < part.len() {
            break;
        }
    }
    std::str::from_utf8(&bytes[..len]).expect("whole characters of strings are a string").into()
}

/// Unique by its hash; the rest is for people, and cut where names are longer than any in Kubernetes.
fn sticky_id(key: &ServiceKey, port: &ServicePort) -> Arc<str> {
    const LONGEST: usize = 160;
    let ServicePort { name, protocol, .. } = port;
    let mut id = format!("{key}/{name}");
    let hash = crate::ruleset::fingerprint(&format!("{id}/{protocol}"));
    id.truncate(id.floor_char_boundary(LONGEST));
    format!("{hash:016x}-{id}").into()
}

impl ServiceRules {
    /// The rules of one frontend.
    pub fn port(&self, frontend: &Frontend) -> Option<&PortRules> {
        let at = self.ports.binary_search_by_key(frontend, |port| port.frontend).ok()?;
        Some(&self.ports[at])
    }

    /// The endpoints that hold a frontend's slots.
    pub fn slots(&self, frontend: &Frontend) -> Slots {
        let addresses = |backends: &[Backend]| backends.iter().map(|b| b.addr).collect();
        let port = self.port(frontend);
        port.map(|port| Slots { all: addresses(&port.backends), local: addresses(port.local()) })
            .unwrap_or_default()
    }
}

impl PortRules {
    /// Its protocol.
    pub fn protocol(&self) -> Protocol {
        self.frontend.protocol
    }

    /// Those who answer outsiders, where that differs.
    pub fn local(&self) -> &[Backend] {
        match &self.exposure {
            Exposure::ExternalLocal { local, .. } => local,
            _ => &[],
        }
    }
}
