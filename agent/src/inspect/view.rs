//! A Service port as people ask for it, whether read from the kernel or planned from objects. Its JSON is
//! the schema that agent/README.md documents: fields are added, never renamed.

mod held;
mod ipvs;
mod wanted;

pub(crate) use held::from_kernel;
pub(crate) use ipvs::IpvsView;
pub(crate) use wanted::from_planned;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use serde::Serialize;
use zw_model::{External, Service, ServicePort, TrafficPolicy};
use zw_plan::{At, Candidate, Frontend};

/// One Service port at one address, or at the node's own.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PortView {
    /// `namespace/name`
    pub(crate) service: String,
    /// The port's name; empty if it has none.
    pub(crate) name: String,
    /// None for a node port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<IpAddr>,
    /// `IPv4` or `IPv6`
    pub(crate) family: String,
    pub(crate) protocol: String,
    /// The Service's port, or its node port.
    pub(crate) port: u16,
    pub(crate) kind: FrontendKind,
    /// The traffic policy that holds for this address.
    pub(crate) policy: Policy,
    /// In the ipvs mode, how its virtual server picks endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scheduler: Option<String>,
    /// How long a client stays with its endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) affinity_seconds: Option<u32>,
    /// Only these may connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source_ranges: Option<Vec<String>>,
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
    /// Endpoints that exist but get no traffic; only objects know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<EndpointView>,
}

/// What makes an address a Service's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum FrontendKind {
    #[serde(rename = "clusterIP")]
    ClusterIp,
    LoadBalancer,
    #[serde(rename = "externalIP")]
    ExternalIp,
    /// One of the two before; the kernel does not know which.
    External,
    NodePort,
}

impl FrontendKind {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::ClusterIp => "cluster IP",
            Self::LoadBalancer => "load balancer",
            Self::ExternalIp => "external IP",
            Self::External => "external",
            Self::NodePort => "node port",
        }
    }
}

/// A traffic policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Policy {
    Cluster,
    Local,
    /// The kernel does not know where every endpoint is.
    Unknown,
}

impl From<TrafficPolicy> for Policy {
    fn from(policy: TrafficPolicy) -> Self {
        match policy {
            TrafficPolicy::Cluster => Self::Cluster,
            TrafficPolicy::Local => Self::Local,
        }
    }
}

/// One endpoint.
#[derive(Debug, Clone, Serialize)]
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
    /// Its weight as a real server of IPVS; only the kernel knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<u32>,
    /// How many connections of this Service port are tracked with it now; only the kernel knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connections: Option<u64>,
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

impl PortView {
    pub(crate) fn frontend_text(&self) -> String {
        match self.address {
            Some(address) => SocketAddr::new(address, self.port).to_string(),
            None => format!("node port {}", self.port),
        }
    }

    /// Every endpoint that is in or out.
    pub(crate) fn all_endpoints(&self) -> impl Iterator<Item = &EndpointView> {
        let outsiders = self.endpoints_for_outsiders.iter().flatten();
        self.endpoints.iter().chain(outsiders).chain(&self.left_out)
    }
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

/// What makes a frontend this Service's.
pub(crate) fn kind_of(service: &Service, frontend: &Frontend) -> FrontendKind {
    let Some(addr) = frontend.addr() else { return FrontendKind::NodePort };
    let none = External::default();
    let external = service.external.as_deref().unwrap_or(&none);
    if service.cluster_ips.contains(&addr) {
        FrontendKind::ClusterIp
    } else if external.load_balancer_ips.contains(&addr) {
        FrontendKind::LoadBalancer
    } else {
        FrontendKind::ExternalIp
    }
}

pub(crate) fn endpoint(candidate: &Candidate<'_>) -> EndpointView {
    EndpointView {
        address: SocketAddr::new(candidate.endpoint.addr, candidate.port).to_string(),
        node: candidate.endpoint.node.as_deref().map(Into::into),
        zone: candidate.endpoint.zone.as_deref().map(Into::into),
        reason: Some(candidate.verdict.to_string()),
        weight: None,
        connections: None,
    }
}

fn empty(frontend: Frontend, kind: FrontendKind, service: &str, name: &str) -> PortView {
    PortView {
        service: service.into(),
        name: name.into(),
        address: frontend.addr(),
        family: frontend.family().to_string(),
        protocol: frontend.protocol.to_string(),
        port: frontend.port,
        kind,
        policy: Policy::Unknown,
        scheduler: None,
        affinity_seconds: None,
        source_ranges: None,
        connections: None,
        taken_by: None,
        without_endpoints: None,
        endpoints: Vec::new(),
        endpoints_for_outsiders: None,
        left_out: Vec::new(),
    }
}

/// `namespace/name:port` -> Service, port
pub(crate) fn split_comment(comment: &str) -> (&str, &str) {
    comment.split_once(':').unwrap_or((comment, ""))
}

/// By Service, port, family, and then as people think of addresses.
fn sort(ports: &mut [PortView]) {
    let key = |port: &PortView| {
        let first = if port.address.is_some() { port.port } else { u16::MAX };
        (port.family.clone(), port.kind, first, port.address)
    };
    ports.sort_by(|a, b| {
        (&a.service, &a.name, &a.protocol)
            .cmp(&(&b.service, &b.name, &b.protocol))
            .then_with(|| key(a).cmp(&key(b)))
    });
}
