//! What the kernel holds. It knows neither why, nor where endpoints run.

use std::collections::HashMap;
use std::net::SocketAddr;

use zw_dataplane::{Kernel, WriteError};
use zw_model::Family;
use zw_plan::{
    Actual, ActualServer, ActualTable, Data, Element, Frontend, Key, SetName, Shape,
    decode_frontend, show_element,
};

use super::{EndpointView, FrontendKind, Policy, PortView, Refusal, empty, sort, split_comment};

/// The sets that hold one kind of frontends.
struct Sets {
    services: SetName,
    connections: SetName,
    no_endpoints: SetName,
    elsewhere: SetName,
    shortcuts: SetName,
    sticky: SetName,
}

const ADDRESSES: Sets = Sets {
    services: SetName::Services,
    connections: SetName::Connections,
    no_endpoints: SetName::NoEndpoints,
    elsewhere: SetName::EndpointsElsewhere,
    shortcuts: SetName::Shortcuts,
    sticky: SetName::Sticky,
};

const NODE_PORTS: Sets = Sets {
    services: SetName::NodePorts,
    connections: SetName::NodePortConnections,
    no_endpoints: SetName::NoEndpointNodePorts,
    elsewhere: SetName::NodePortEndpointsElsewhere,
    shortcuts: SetName::NodePortShortcuts,
    sticky: SetName::StickyNodePorts,
};

/// Every Service port the kernel holds, by name.
pub(crate) fn from_kernel(
    kernel: &mut Kernel,
    actual: &Actual,
) -> Result<Vec<PortView>, WriteError> {
    let mut slots = actual.slots();
    let mut servers = actual.servers_by_frontend();
    let mut ports = Vec::new();
    for (family, table) in &actual.tables {
        let ranges = source_ranges(*family, table);
        for sets in [ADDRESSES, NODE_PORTS] {
            let Some(elements) = table.sets.get(&sets.services) else { continue };
            let connections = kernel.connections(*family, sets.connections)?;
            for element in elements.values() {
                let Some(frontend) = decode_frontend(*family, sets.services, &element.key) else {
                    continue;
                };
                let (service, name) = split_comment(element.comment.as_deref().unwrap_or_default());
                let backends = slots.remove(&frontend).unwrap_or_default();
                let bound_by_policy = find(table, sets.shortcuts, &element.key).is_some();
                let ignored = find(table, sets.elsewhere, &element.key).is_some();
                let refusal = find(table, sets.no_endpoints, &element.key)
                    .map(|_| if ignored { Refusal::Ignored } else { Refusal::Refused });
                let kind = kind_in(table, &frontend);
                let server = servers.remove(&frontend);
                let settings = server.and_then(|server| server.settings.as_ref());
                let weight = |addr: &SocketAddr| server?.reals.get(addr).copied().flatten();
                let shown = |backends: Vec<SocketAddr>| {
                    backends.iter().map(|addr| unexplained(addr, weight(addr))).collect()
                };
                let sticky = find(table, sets.sticky, &element.key).and_then(timeout);
                ports.push(PortView {
                    scheduler: settings.map(|settings| settings.scheduler.to_string()),
                    left_out: server.map(leaving).unwrap_or_default(),
                    connections: Some(connections.get(&element.key).copied().unwrap_or_default()),
                    without_endpoints: refusal,
                    endpoints: shown(backends.all),
                    endpoints_for_outsiders: bound_by_policy.then(|| shown(backends.local)),
                    affinity_seconds: sticky.or_else(|| settings?.persistence),
                    source_ranges: ranges.get(&element.key).cloned(),
                    policy: policy_in(kind, bound_by_policy, element, refusal),
                    ..empty(frontend, kind, service, name)
                });
            }
        }
    }
    sort(&mut ports);
    Ok(ports)
}

fn find<'a>(table: &'a ActualTable, set: SetName, key: &Key) -> Option<&'a Element> {
    table.sets.get(&set)?.get(key)
}

/// How long the chain that an element leads to remembers a client.
fn timeout(element: &Element) -> Option<u32> {
    match &element.data {
        Data::Goto(chain) => Shape::parse(chain)?.timeout(),
        _ => None,
    }
}

fn kind_in(table: &ActualTable, frontend: &Frontend) -> FrontendKind {
    let Some(addr) = frontend.addr() else { return FrontendKind::NodePort };
    if find(table, SetName::ClusterIps, &Key::new().addr(addr)).is_some() {
        FrontendKind::ClusterIp
    } else if find(table, SetName::Firewalled, &frontend.key()).is_some() {
        FrontendKind::LoadBalancer
    } else {
        FrontendKind::External
    }
}

/// As far as chains tell it: at a cluster IP a local policy only means fewer endpoints.
fn policy_in(
    kind: FrontendKind,
    bound_by_policy: bool,
    leads_to: &Element,
    refusal: Option<Refusal>,
) -> Policy {
    let ignored = refusal == Some(Refusal::Ignored);
    let is_local = |chain: &str| Shape::parse(chain).is_some_and(|shape| shape.is_local());
    let local_chain = matches!(&leads_to.data, Data::Goto(chain) if is_local(chain));
    match kind {
        _ if ignored || bound_by_policy || local_chain => Policy::Local,
        FrontendKind::ClusterIp => Policy::Unknown,
        _ => Policy::Cluster,
    }
}

/// By the frontend's key.
fn source_ranges(family: Family, table: &ActualTable) -> HashMap<Key, Vec<String>> {
    let mut ranges: HashMap<Key, Vec<String>> = HashMap::new();
    for element in table.sets.get(&SetName::Firewalled).into_iter().flat_map(HashMap::values) {
        ranges.insert(element.key, Vec::new());
    }
    for element in table.sets.get(&SetName::Allowed).into_iter().flat_map(HashMap::values) {
        let Some(frontend) = decode_frontend(family, SetName::Allowed, &element.key) else {
            continue;
        };
        let shown = show_element(family, SetName::Allowed, element);
        if let Some(range) = shown.rsplit(" . ").next() {
            ranges.entry(frontend.key()).or_default().push(range.to_owned());
        }
    }
    ranges.values_mut().for_each(|ranges| ranges.sort());
    ranges
}

/// Real servers that keep the connections they have and get no new ones.
fn leaving(server: &ActualServer) -> Vec<EndpointView> {
    let leaving = server.reals.iter().filter(|(_, weight)| **weight == Some(0));
    let reason = || Some("leaving: weight 0, no new connections".to_owned());
    leaving
        .map(|(addr, weight)| EndpointView { reason: reason(), ..unexplained(addr, *weight) })
        .collect()
}

fn unexplained(address: &SocketAddr, weight: Option<u32>) -> EndpointView {
    EndpointView {
        address: address.to_string(),
        node: None,
        zone: None,
        reason: None,
        weight,
        connections: None,
    }
}
