//! A Service port as people ask for it, whether read from the kernel or planned from manifests.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use serde::Serialize;
use zw_dataplane::{Kernel, WriteError};
use zw_model::{Service, ServicePort};
use zw_plan::{
    Actual, At, Backend, Candidate, Data, Desired, Exposure, Frontend, Key, SetName, Verdict,
    decode_frontend, select,
};

use crate::index::Index;

/// One Service port at one address, or at the node's own.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PortView {
    /// `namespace/name`
    pub(crate) service: String,
    /// The port's name; empty if it has none.
    pub(crate) name: String,
    /// None for a node port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<IpAddr>,
    /// Of a node port, which no address tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) family: Option<String>,
    pub(crate) protocol: String,
    /// The Service's port, or its node port.
    pub(crate) port: u16,
    /// How many connections it has had since it exists; only the kernel knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connections: Option<u64>,
    /// The Service that has this address and port, so that this one gets nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) taken_by: Option<String>,
    /// What becomes of clients that nobody may answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) without_endpoints: Option<Refusal>,
    /// In slot order.
    pub(crate) endpoints: Vec<EndpointView>,
    /// Those that answer clients from outside, where the policy is local.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoints_for_outsiders: Option<Vec<EndpointView>>,
    /// Endpoints that exist but get no traffic; only manifests know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<EndpointView>,
}

/// One endpoint.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointView {
    pub(crate) address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zone: Option<String>,
    /// Why it is in or out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// Every Service port the kernel holds, by name.
pub(crate) fn from_kernel(
    kernel: &mut Kernel,
    actual: &Actual,
) -> Result<Vec<PortView>, WriteError> {
    let mut slots = actual.slots();
    let mut ports = Vec::new();
    for (family, table) in &actual.tables {
        let elements = |set: SetName| table.sets.get(&set).into_iter().flat_map(HashMap::values);
        let has = |set: SetName, key: &Key| {
            table.sets.get(&set).is_some_and(|elements| elements.contains_key(key))
        };
        for (set, no_endpoints, shortcuts) in [
            (SetName::Connections, SetName::NoEndpoints, SetName::Shortcuts),
            (
                SetName::NodePortConnections,
                SetName::NoEndpointNodePorts,
                SetName::NodePortShortcuts,
            ),
        ] {
            if !table.sets.contains_key(&set) {
                continue;
            }
            let connections = kernel.connections(*family, set)?;
            for element in elements(set) {
                let Some(frontend) = decode_frontend(*family, set, &element.key) else { continue };
                let (service, name) = split_comment(element.comment.as_deref().unwrap_or_default());
                let backends = slots.remove(&frontend).unwrap_or_default();
                let refusal = table.sets.get(&no_endpoints).and_then(|set| set.get(&element.key));
                let bound_by_policy = has(shortcuts, &element.key);
                let shown = |backends: Vec<SocketAddr>| backends.iter().map(unexplained).collect();
                ports.push(PortView {
                    connections: connections.get(&element.key).copied(),
                    without_endpoints: refusal.map(|element| Refusal::of(&element.data)),
                    endpoints: shown(backends.all),
                    endpoints_for_outsiders: bound_by_policy.then(|| shown(backends.local)),
                    ..empty(frontend, service, name)
                });
            }
        }
    }
    sort(&mut ports);
    Ok(ports)
}

/// What becomes of clients that nobody may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Refusal {
    /// They are told at once.
    Refused,
    /// There are endpoints, but none for them.
    Ignored,
}

impl Refusal {
    fn of(data: &Data) -> Self {
        match data {
            Data::Goto(chain) if chain == "ignore" => Refusal::Ignored,
            _ => Refusal::Refused,
        }
    }
}

/// Every Service port that manifests ask for, with the reason for each endpoint.
pub(crate) fn from_index(index: &Index, desired: &Desired) -> Vec<PortView> {
    let mut ports = Vec::new();
    for key in index.service_keys() {
        let Some((service, slices)) = index.service(key) else { continue };
        let contested = desired.contested(key);
        for rules in desired.service(key).into_iter().flat_map(|rules| &rules.ports) {
            let frontend = rules.frontend;
            let Some(port) = port_of(service, &frontend) else { continue };
            let mut view = empty(frontend, &key.to_string(), &port.name);
            let lost = contested.iter().find(|c| c.frontend == frontend && c.owner != *key);
            if let Some(lost) = lost {
                view.taken_by = Some(lost.owner.to_string());
                ports.push(view);
                continue;
            }
            let selection = select(port, frontend.family(), slices.clone(), index.node());
            let explained = |backends: &[Backend]| -> Vec<EndpointView> {
                let explain = |backend: &Backend| {
                    let is_it = |c: &&Candidate<'_>| {
                        SocketAddr::new(c.endpoint.addr, c.port) == backend.addr
                    };
                    selection.candidates.iter().filter(is_it).max_by_key(used).map(endpoint)
                };
                backends.iter().filter_map(explain).collect()
            };
            view.endpoints = explained(&rules.backends);
            let bound_by_policy = matches!(rules.exposure, Exposure::ExternalLocal { .. });
            view.endpoints_for_outsiders = bound_by_policy.then(|| explained(rules.local()));
            let answering = if bound_by_policy { rules.local() } else { &rules.backends };
            view.without_endpoints = answering.is_empty().then_some(if rules.has_endpoints {
                Refusal::Ignored
            } else {
                Refusal::Refused
            });
            view.left_out =
                selection.candidates.iter().filter(|c| !used(c)).map(endpoint).collect();
            ports.push(view);
        }
    }
    sort(&mut ports);
    ports
}

fn used(candidate: &&Candidate<'_>) -> bool {
    matches!(candidate.verdict, Verdict::Used(_))
}

/// The port of a Service that a frontend of it is about.
pub(crate) fn port_of<'a>(service: &'a Service, frontend: &Frontend) -> Option<&'a ServicePort> {
    let number = |port: &ServicePort| match frontend.at {
        At::Address(_) => Some(port.port),
        At::Node(_) => port.node_port.map(NonZeroU16::get),
    };
    service
        .ports
        .iter()
        .find(|port| port.protocol == frontend.protocol && number(port) == Some(frontend.port))
}

fn unexplained(address: &SocketAddr) -> EndpointView {
    EndpointView { address: address.to_string(), node: None, zone: None, reason: None }
}

fn endpoint(candidate: &Candidate<'_>) -> EndpointView {
    EndpointView {
        address: SocketAddr::new(candidate.endpoint.addr, candidate.port).to_string(),
        node: candidate.endpoint.node.as_deref().map(Into::into),
        zone: candidate.endpoint.zone.as_deref().map(Into::into),
        reason: Some(candidate.verdict.to_string()),
    }
}

fn empty(frontend: Frontend, service: &str, name: &str) -> PortView {
    PortView {
        service: service.into(),
        name: name.into(),
        address: frontend.addr(),
        family: frontend.addr().is_none().then(|| frontend.family().to_string()),
        protocol: frontend.protocol.to_string(),
        port: frontend.port,
        connections: None,
        taken_by: None,
        without_endpoints: None,
        endpoints: Vec::new(),
        endpoints_for_outsiders: None,
        left_out: Vec::new(),
    }
}

fn split_comment(comment: &str) -> (&str, &str) {
    comment.split_once(':').unwrap_or((comment, ""))
}

fn sort(ports: &mut [PortView]) {
    ports.sort_by(|a, b| {
        (&a.service, a.port, &a.protocol, a.address).cmp(&(
            &b.service,
            b.port,
            &b.protocol,
            b.address,
        ))
    });
}
