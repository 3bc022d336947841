//! A Service port as people ask for it, whether read from the kernel or planned from manifests.

use std::collections::HashMap;
use std::net::IpAddr;

use serde::Serialize;
use zw_dataplane::{Kernel, WriteError};
use zw_model::Family;
use zw_plan::{Actual, Candidate, Desired, Frontend, SetName, Verdict, decode_frontend, select};

use crate::index::Index;

/// One Service port at one address.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PortView {
    /// `namespace/name`
    pub(crate) service: String,
    /// The port's name; empty if it has none.
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    pub(crate) protocol: String,
    pub(crate) port: u16,
    /// How many connections it has had since it exists; only the kernel knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connections: Option<u64>,
    /// The Service that has this address and port, so that this one gets nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) taken_by: Option<String>,
    /// In slot order; empty: connections are refused.
    pub(crate) endpoints: Vec<EndpointView>,
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
        if !table.sets.contains_key(&SetName::Connections) {
            continue;
        }
        let connections = kernel.connections(*family)?;
        let sets = [SetName::Services, SetName::NoEndpoints];
        let elements = sets.iter().filter_map(|set| table.sets.get(set)).flat_map(HashMap::values);
        for element in elements {
            let Some(frontend) = decode_frontend(*family, &element.key) else { continue };
            let (service, name) = split_comment(element.comment.as_deref().unwrap_or_default());
            let backends = slots.remove(&frontend).unwrap_or_default();
            ports.push(PortView {
                connections: connections.get(&element.key).copied(),
                endpoints: backends
                    .into_iter()
                    .map(|address| EndpointView {
                        address: address.to_string(),
                        node: None,
                        zone: None,
                        reason: None,
                    })
                    .collect(),
                ..empty(frontend, service, name)
            });
        }
    }
    sort(&mut ports);
    Ok(ports)
}

/// Every Service port that manifests ask for, with the reason for each endpoint.
pub(crate) fn from_index(index: &Index, desired: &Desired) -> Vec<PortView> {
    let mut ports = Vec::new();
    for key in index.service_keys() {
        let Some((service, slices)) = index.service(key) else { continue };
        let Some(rules) = desired.service(key) else { continue };
        let contested = desired.contested(key);
        for port in &service.ports {
            for family in Family::BOTH {
                let Some(addr) = service.cluster_ip(family) else { continue };
                let frontend = Frontend { addr, protocol: port.protocol, port: port.port };
                let selection = select(port, family, slices.clone(), index.node());
                let mut view = empty(frontend, &key.to_string(), &port.name);
                let lost = contested.iter().find(|c| c.frontend == frontend && c.owner != *key);
                if let Some(lost) = lost {
                    view.taken_by = Some(lost.owner.to_string());
                    ports.push(view);
                    continue;
                }
                let used: HashMap<_, _> = selection
                    .used()
                    .map(|c| (std::net::SocketAddr::new(c.endpoint.addr, c.port), c))
                    .collect();
                let backends = rules.port(&frontend).into_iter().flat_map(|rules| &rules.backends);
                view.endpoints =
                    backends.filter_map(|b| used.get(&b.addr)).map(|c| endpoint(c)).collect();
                view.left_out = selection
                    .candidates
                    .iter()
                    .filter(|c| matches!(c.verdict, Verdict::Unused(_)))
                    .map(endpoint)
                    .collect();
                ports.push(view);
            }
        }
    }
    sort(&mut ports);
    ports
}

fn endpoint(candidate: &Candidate<'_>) -> EndpointView {
    EndpointView {
        address: std::net::SocketAddr::new(candidate.endpoint.addr, candidate.port).to_string(),
        node: candidate.endpoint.node.as_deref().map(Into::into),
        zone: candidate.endpoint.zone.as_deref().map(Into::into),
        reason: Some(candidate.verdict.to_string()),
    }
}

fn empty(frontend: Frontend, service: &str, name: &str) -> PortView {
    PortView {
        service: service.into(),
        name: name.into(),
        address: frontend.addr,
        protocol: frontend.protocol.to_string(),
        port: frontend.port,
        connections: None,
        taken_by: None,
        endpoints: Vec::new(),
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
