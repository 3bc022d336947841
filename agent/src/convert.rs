//! Kubernetes objects to model types: the only place that knows Kubernetes' field quirks.
//!
//! Bad input costs as little as possible: a port or an endpoint that makes no sense is left out and
//! named, the rest of its object counts. An object that cannot be read at all is an error for the
//! caller to report; what it last said stays in force.

mod raw;

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use zw_model::{
    Conditions, Family, Hints, Protocol, Scope, Service, ServiceKey, ServicePort, Slice,
    SliceEndpoint, SliceKey, SlicePort,
};

/// A DNS name.
const LONGEST_NAME: usize = 253;
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
const HEADLESS: &str = "service.kubernetes.io/headless";
const FOR_ZONE: &str = "endpointslice.kubernetes.io/for-zone";
const FOR_REGION: &str = "endpointslice.kubernetes.io/for-region";
const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";

/// An object's identity across sources.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectId {
    pub(crate) kind: Kind,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            kind @ (Kind::Node | Kind::ServiceCidr) => write!(f, "{kind:?} {}", self.name),
            kind => write!(f, "{kind:?} {}/{}", self.namespace, self.name),
        }
    }
}

/// The kinds that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Service,
    EndpointSlice,
    Node,
    /// Read without effect: what lies in a range but belongs to no Service is left alone.
    ServiceCidr,
}

/// A converted object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) id: ObjectId,
    pub(crate) body: Body,
}

/// What an object says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    Service(Service),
    Slice(Slice),
    Node {
        zone: Option<Arc<str>>,
        region: Option<Arc<str>>,
    },
    /// A valid object that is none of our business, such as a headless Service. Known all the same,
    /// because it may have been ours before.
    Irrelevant,
}

/// A part of an object that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Where in the object, such as `spec.ports[0].port`.
    pub(crate) field: String,
    pub(crate) message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Converts one object. `Err`: nothing of it can be used.
pub(crate) fn convert(object: Value) -> Result<(Object, Vec<Problem>), Problem> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (group, kind) = (text("apiVersion").to_owned(), text("kind").to_owned());
    let mut problems = Problems::default();
    let object = match (group.as_str(), kind.as_str()) {
        ("v1", "Service") => convert_service(typed(object)?, &mut problems)?,
        ("discovery.k8s.io/v1", "EndpointSlice") => convert_slice(typed(object)?, &mut problems)?,
        ("v1", "Node") => convert_node(typed(object)?)?,
        ("networking.k8s.io/v1", "ServiceCIDR") => {
            let raw: raw::Node = typed(object)?;
            Object { id: identify(Kind::ServiceCidr, &raw.metadata)?, body: Body::Irrelevant }
        }
        (_, "Service" | "EndpointSlice" | "Node" | "ServiceCIDR") => {
            let message = format!("{group:?} is not a version of {kind} that Zoneward reads");
            return Err(Problem { field: "apiVersion".into(), message });
        }
        (_, "") => return Err(problem("kind", "missing: not a Kubernetes object")),
        _ => {
            let message = format!(
                "{kind:?} is not one that Zoneward reads (Service, EndpointSlice, Node, ServiceCIDR, List)"
            );
            return Err(Problem { field: "kind".into(), message });
        }
    };
    Ok((object, problems.0))
}

/// Who an object says it is, for complaints about one of which nothing can be used.
pub(crate) fn identity(object: &Value) -> Option<ObjectId> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let kind = match text("/kind")? {
        "Service" => Kind::Service,
        "EndpointSlice" => Kind::EndpointSlice,
        "Node" => Kind::Node,
        "ServiceCIDR" => Kind::ServiceCidr,
        _ => return None,
    };
    let (name, namespace) = (text("/metadata/name")?.into(), text("/metadata/namespace"));
    let namespace = namespace.map(Into::into);
    identify(kind, &raw::Metadata { name, namespace, labels: None }).ok()
}

fn typed<T: DeserializeOwned>(object: Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(object).map_err(|error| Problem {
        field: error.path().to_string(),
        message: error.into_inner().to_string(),
    })
}

fn problem(field: &str, message: &str) -> Problem {
    Problem { field: field.into(), message: message.into() }
}

#[derive(Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, field: String, message: String) {
        self.0.push(Problem { field, message });
    }
}

fn identify(kind: Kind, metadata: &raw::Metadata) -> Result<ObjectId, Problem> {
    if metadata.name.is_empty() {
        return Err(problem("metadata.name", "missing"));
    }
    // What kubectl applies without a namespace lands in `default`.
    let namespace = match (kind, metadata.namespace.as_deref()) {
        (Kind::Node | Kind::ServiceCidr, _) => "",
        (_, None | Some("")) => "default",
        (_, Some(namespace)) => namespace,
    };
    check_name("metadata.name", &metadata.name)?;
    check_name("metadata.namespace", namespace)?;
    Ok(ObjectId { kind, namespace: namespace.into(), name: metadata.name.as_str().into() })
}

/// Names end up in the kernel as comments, and a quote in one of those makes a listing that nft does
/// not load back. The API server takes none of that; a file may say anything.
fn check_name(field: &str, name: &str) -> Result<(), Problem> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if name.len() <= LONGEST_NAME && name.bytes().all(fine) {
        return Ok(());
    }
    Err(Problem { field: field.into(), message: format!("{name:?} is not a name in Kubernetes") })
}

fn convert_service(raw: raw::Service, problems: &mut Problems) -> Result<Object, Problem> {
    let id = identify(Kind::Service, &raw.metadata)?;
    let key = ServiceKey { namespace: id.namespace.clone(), name: id.name.clone() };
    let spec = raw.spec;
    let listed = spec.cluster_ips.as_ref().is_some_and(|all| !all.is_empty());
    let addresses = match (spec.cluster_ips, spec.cluster_ip) {
        (Some(all), _) if listed => all,
        (_, one) => one.into_iter().collect(),
    };
    let headless = addresses.iter().any(|address| address == "None");
    if headless
        || spec.kind.as_deref() == Some("ExternalName")
        || addresses.iter().all(String::is_empty)
        || raw.metadata.label(SERVICE_PROXY_NAME).is_some()
    {
        return Ok(Object { id, body: Body::Irrelevant });
    }

    let mut cluster_ips: Vec<IpAddr> = Vec::new();
    for (i, text) in addresses.iter().enumerate() {
        let field =
            || if listed { format!("spec.clusterIPs[{i}]") } else { "spec.clusterIP".into() };
        match parse_address(text) {
            Err(message) => problems.add(field(), message),
            // It would catch the node's own traffic.
            Ok(ip) if !is_ordinary(ip) => {
                problems.add(field(), format!("{ip} cannot be a Service's"))
            }
            Ok(ip) if cluster_ips.iter().any(|other| Family::of(*other) == Family::of(ip)) => {
                problems.add(field(), format!("{ip} is a second address of its family"));
            }
            Ok(ip) => cluster_ips.push(ip),
        }
    }
    let mut ports: Vec<ServicePort> = Vec::new();
    for (i, port) in spec.ports.unwrap_or_default().into_iter().enumerate() {
        let field = format!("spec.ports[{i}]");
        if let Some((name, protocol, port)) = convert_port(port, &field, problems) {
            let taken = |other: &ServicePort| {
                other.protocol == protocol && (other.port == port || other.name == name)
            };
            if ports.iter().any(taken) {
                problems.add(field, format!("{name:?} {port}/{protocol} stands there twice"));
            } else {
                ports.push(ServicePort { name, protocol, port, node_port: None });
            }
        }
    }
    Ok(Object {
        id,
        body: Body::Service(Service { key, cluster_ips, ports, ..Service::default() }),
    })
}

fn convert_slice(raw: raw::EndpointSlice, problems: &mut Problems) -> Result<Object, Problem> {
    let id = identify(Kind::EndpointSlice, &raw.metadata)?;
    let irrelevant = |id| Ok(Object { id, body: Body::Irrelevant });
    if raw.metadata.label(HEADLESS).is_some() {
        return irrelevant(id);
    }
    let Some(service) = raw.metadata.label(SERVICE_NAME).filter(|name| !name.is_empty()) else {
        problems.add(
            format!("metadata.labels[{SERVICE_NAME}]"),
            "missing: the slice belongs to no Service".into(),
        );
        return irrelevant(id);
    };
    let family = match raw.address_type.as_deref() {
        Some("IPv4") => Family::V4,
        Some("IPv6") => Family::V6,
        Some("FQDN") => {
            problems.add("addressType".into(), "FQDN: names cannot be programmed".into());
            return irrelevant(id);
        }
        other => {
            let message = format!("{:?} is neither IPv4 nor IPv6", other.unwrap_or_default());
            return Err(Problem { field: "addressType".into(), message });
        }
    };
    let label = |key| raw.metadata.label(key).filter(|value| !value.is_empty()).map(Arc::from);
    let scope = match (label(FOR_ZONE), label(FOR_REGION)) {
        (Some(zone), _) => Scope::Zone(zone),
        (None, Some(region)) => Scope::Region(region),
        (None, None) => Scope::Everyone,
    };

    let mut ports: Vec<SlicePort> = Vec::new();
    for (i, port) in raw.ports.unwrap_or_default().into_iter().enumerate() {
        if let Some((name, protocol, port)) = convert_port(port, &format!("ports[{i}]"), problems) {
            ports.push(SlicePort { name, protocol, port });
        }
    }
    let mut names = Names::default();
    let mut endpoints = Vec::new();
    for (i, endpoint) in raw.endpoints.unwrap_or_default().into_iter().enumerate() {
        match convert_endpoint(endpoint, family, &mut names) {
            Ok(endpoint) => endpoints.push(endpoint),
            Err(message) => problems.add(format!("endpoints[{i}].addresses[0]"), message),
        }
    }
    let slice = Slice {
        key: SliceKey { namespace: id.namespace.clone(), name: id.name.clone() },
        service: ServiceKey { namespace: id.namespace.clone(), name: service.into() },
        family,
        scope,
        ports,
        endpoints,
    };
    Ok(Object { id, body: Body::Slice(slice) })
}

fn convert_node(raw: raw::Node) -> Result<Object, Problem> {
    let id = identify(Kind::Node, &raw.metadata)?;
    let label = |key| raw.metadata.label(key).filter(|value| !value.is_empty()).map(Arc::from);
    Ok(Object { id, body: Body::Node { zone: label(ZONE), region: label(REGION) } })
}

/// A port without a name has the empty one, and TCP is what a port without a protocol means: the API
/// server fills both in, hand-written files often do not.
fn convert_port(
    raw: raw::Port,
    field: &str,
    problems: &mut Problems,
) -> Option<(Arc<str>, Protocol, u16)> {
    let protocol = match raw.protocol.as_deref() {
        None | Some("TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(other) => {
            problems.add(format!("{field}.protocol"), format!("{other:?} is not TCP, UDP or SCTP"));
            return None;
        }
    };
    let port = match raw.port.map(u16::try_from) {
        Some(Ok(port)) if port > 0 => port,
        Some(_) => {
            let number = raw.port.unwrap_or_default();
            problems.add(format!("{field}.port"), format!("{number} is not a port (1 to 65535)"));
            return None;
        }
        None => {
            problems.add(format!("{field}.port"), "missing".into());
            return None;
        }
    };
    let name = raw.name.unwrap_or_default();
    if let Err(problem) = check_name(&format!("{field}.name"), &name) {
        problems.0.push(problem);
        return None;
    }
    Some((name.into(), protocol, port))
}

fn convert_endpoint(
    raw: raw::Endpoint,
    family: Family,
    names: &mut Names,
) -> Result<SliceEndpoint, String> {
    // Consumers use the first address only; all of them mean the same endpoint.
    let first = raw.addresses.unwrap_or_default().into_iter().next().ok_or("missing")?;
    let addr = parse_address(&first)?;
    if Family::of(addr) != family {
        return Err(format!("{addr} is not {family}, as the slice's addressType says"));
    }
    if !is_ordinary(addr) {
        return Err(format!("{addr} is not an address of one endpoint that nodes can reach"));
    }
    let conditions = raw.conditions.unwrap_or_default();
    let listed = |list: Option<Vec<raw::Named>>, names: &mut Names| -> Vec<Arc<str>> {
        list.unwrap_or_default().iter().map(|item| names.shared(&item.name)).collect()
    };
    let hints = raw.hints.map(|hints| {
        Box::new(Hints {
            zones: listed(hints.for_zones, names),
            nodes: listed(hints.for_nodes, names),
        })
    });
    Ok(SliceEndpoint {
        addr,
        conditions: Conditions::from_optional(
            conditions.ready,
            conditions.serving,
            conditions.terminating,
        ),
        node: raw.node_name.map(|name| names.shared(&name)),
        zone: raw.zone.map(|name| names.shared(&name)),
        hints,
    })
}

/// A unicast address that packets can be routed to.
fn is_ordinary(addr: IpAddr) -> bool {
    let link_local = match addr {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(addr.is_unspecified() || addr.is_loopback() || addr.is_multicast() || link_local)
}

/// Kubernetes has always read `010.0.0.1` as decimal, and old objects may hold such an address.
fn parse_address(text: &str) -> Result<IpAddr, String> {
    // Rust's own parser would take a sign.
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let decimal = || {
        let parts: Vec<u8> = text
            .split('.')
            .map(|part| (part.len() <= 3 && digits(part)).then(|| part.parse().ok()).flatten())
            .collect::<Option<_>>()?;
        Some(IpAddr::from(<[u8; 4]>::try_from(parts).ok()?))
    };
    let parsed = text.parse().ok().or_else(decimal);
    let addr: IpAddr = parsed.ok_or_else(|| format!("{text:?} is not an IP address"))?;
    // ::ffff:10.0.0.1 is an IPv4 address in disguise, and the kernel sees it as one.
    Ok(addr.to_canonical())
}

/// Node and zone names repeat across a slice's endpoints; one copy serves all.
#[derive(Default)]
struct Names(HashSet<Arc<str>>);

impl Names {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.0.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests;
