//! Kubernetes objects to model types: the only place that knows Kubernetes' field quirks.
//!
//! Bad input costs as little as possible: a port or an endpoint that makes no sense is left out and
//! named, the rest of its object counts. An object that cannot be read at all is an error for the
//! caller to report; what it last said stays in force.

mod address;
mod names;
mod node;
mod protobuf;
mod raw;
mod service;
mod slice;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;
use zw_model::{Protocol, Service, Slice};

use names::shared;
pub(crate) use node::Node;
use protobuf::Message;

/// A DNS name.
const LONGEST_NAME: usize = 253;

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
            Kind::Node => write!(f, "Node {}", self.name),
            Kind::ServiceCidr => write!(f, "ServiceCIDR {}", self.name),
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
    ServiceCidr,
}

/// A converted object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) id: ObjectId,
    pub(crate) body: Body,
    /// When the pods changed that made a slice what it is now, if it says so.
    pub(crate) triggered: Option<SystemTime>,
}

impl Object {
    pub(crate) fn new(id: ObjectId, body: Body) -> Self {
        Self { id, body, triggered: None }
    }
}

/// What an object says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    Service(Service),
    Slice(Slice),
    Node(Box<Node>),
    /// Where Services' addresses come from.
    ServiceRanges(Vec<IpNet>),
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

/// An object and what was left out of it.
pub(crate) type Converted = (Object, Vec<Problem>);

/// Converts one object of a kind it names itself. `Err`: nothing of it can be used.
pub(crate) fn convert(object: &Value) -> Result<Converted, Problem> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (group, kind) = (text("apiVersion"), text("kind"));
    let known = match (group, kind) {
        ("v1", "Service") => Kind::Service,
        ("discovery.k8s.io/v1", "EndpointSlice") => Kind::EndpointSlice,
        ("v1", "Node") => Kind::Node,
        ("networking.k8s.io/v1", "ServiceCIDR") => Kind::ServiceCidr,
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
    convert_known(known, Input::Value(object)).1
}

/// An object as an API server sends it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form<'a> {
    Json(&'a str),
    Protobuf(&'a [u8]),
}

/// An object of a known kind from the API server, without anything of it that is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// The server's version of it, as it writes it.
    pub(crate) version: Option<String>,
    pub(crate) content: Content,
}

/// What became of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Good(Object, Vec<Problem>),
    /// Nothing of it can be used; who it is, if at least that can be read.
    Bad(Option<ObjectId>, Problem),
}

/// Decodes one object. There is nothing that makes it fail: an odd object must not cost the list or the
/// stream that it came in.
pub(crate) fn decode(kind: Kind, form: Form<'_>) -> Decoded {
    let input = Input::Wire(form);
    let (version, converted) = convert_known(kind, input);
    match converted {
        Ok((object, problems)) => Decoded { version, content: Content::Good(object, problems) },
        Err(problem) => {
            let metadata = input.metadata();
            let id = identify(kind, &metadata).ok();
            Decoded { version: metadata.version(), content: Content::Bad(id, problem) }
        }
    }
}

/// Who an object says it is, for complaints about one of which nothing can be used.
pub(crate) fn identity(object: &Value) -> Option<ObjectId> {
    let kind = match object.get("kind").and_then(Value::as_str)? {
        "Service" => Kind::Service,
        "EndpointSlice" => Kind::EndpointSlice,
        "Node" => Kind::Node,
        "ServiceCIDR" => Kind::ServiceCidr,
        _ => return None,
    };
    let mut raw = raw::Anything::default();
    Input::Value(object).fill(&mut raw).ok()?;
    identify(kind, &raw.metadata).ok()
}

/// What an object says, and its version.
fn convert_known(kind: Kind, input: Input<'_>) -> (Option<String>, Result<Converted, Problem>) {
    let mut problems = Problems::default();
    let mut version = None;
    let mut read = || match kind {
        Kind::Service => {
            let mut raw = raw::Service::default();
            input.fill(&mut raw)?;
            version = raw.metadata.version();
            service::convert(&raw, &mut problems)
        }
        Kind::EndpointSlice => {
            let mut raw = raw::EndpointSlice::default();
            input.fill(&mut raw)?;
            version = raw.metadata.version();
            slice::convert(&raw, &mut problems)
        }
        Kind::Node => {
            let mut raw = raw::Node::default();
            input.fill(&mut raw)?;
            version = raw.metadata.version();
            node::convert(raw, &mut problems)
        }
        Kind::ServiceCidr => {
            let mut raw = raw::ServiceCidr::default();
            input.fill(&mut raw)?;
            version = raw.metadata.version();
            node::convert_service_cidr(raw, &mut problems)
        }
    };
    let converted = read();
    (version, converted.map(|object| (object, problems.0)))
}

/// An object before it is read.
#[derive(Clone, Copy)]
enum Input<'a> {
    Value(&'a Value),
    Wire(Form<'a>),
}

impl<'a> Input<'a> {
    /// Reads all of it where it is wanted, for these are large.
    fn fill<T: Deserialize<'a> + Message<'a>>(self, raw: &mut T) -> Result<(), Problem> {
        // Where it went wrong costs, so it is only asked when something did.
        *raw = match self {
            Self::Value(value) => T::deserialize(value)
                .or_else(|_| serde_path_to_error::deserialize(value).map_err(located))?,
            Self::Wire(Form::Json(json)) => serde_json::from_str(json).or_else(|_| {
                let mut json = serde_json::Deserializer::from_str(json);
                serde_path_to_error::deserialize(&mut json).map_err(located)
            })?,
            Self::Wire(Form::Protobuf(bytes)) => {
                return protobuf::merge(raw, bytes).map_err(|problem| {
                    // As serde calls the object itself.
                    if problem.field.is_empty() {
                        Problem { field: ".".into(), ..problem }
                    } else {
                        problem
                    }
                });
            }
        };
        Ok(())
    }

    /// Who it is, as far as can be read.
    fn metadata(self) -> raw::Metadata<'a> {
        let mut raw = raw::Anything::default();
        // What is wrong with it was told; what came before that counts.
        drop(self.fill(&mut raw));
        raw.metadata
    }
}

fn located(error: serde_path_to_error::Error<serde_json::Error>) -> Problem {
    Problem { field: error.path().to_string(), message: error.into_inner().to_string() }
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

fn identify(kind: Kind, metadata: &raw::Metadata<'_>) -> Result<ObjectId, Problem> {
    let name = metadata.name.as_deref().unwrap_or_default();
    if name.is_empty() {
        return Err(problem("metadata.name", "missing"));
    }
    // What kubectl applies without a namespace lands in `default`.
    let namespace = match (kind, metadata.namespace.as_deref()) {
        (Kind::Node | Kind::ServiceCidr, _) => "",
        (_, None | Some("")) => "default",
        (_, Some(namespace)) => namespace,
    };
    check_name("metadata.name", name)?;
    check_name("metadata.namespace", namespace)?;
    // Slices name their Service; nobody names a slice.
    let name = if kind == Kind::Service { shared(name) } else { name.into() };
    Ok(ObjectId { kind, namespace: shared(namespace), name })
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

/// A port without a name has the empty one, and TCP is what a port without a protocol means: the API
/// server fills both in, hand-written files often do not.
fn convert_port(
    raw: &raw::Port<'_>,
    field: impl Fn() -> String,
    problems: &mut Problems,
) -> Option<(Arc<str>, Protocol, u16)> {
    let protocol = match raw.protocol.as_deref() {
        None | Some("TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(other) => {
            let message = format!("{other:?} is not TCP, UDP or SCTP");
            problems.add(format!("{}.protocol", field()), message);
            return None;
        }
    };
    let port = match raw.port.map(u16::try_from) {
        Some(Ok(port)) if port > 0 => port,
        Some(_) => {
            let number = raw.port.unwrap_or_default();
            let message = format!("{number} is not a port (1 to 65535)");
            problems.add(format!("{}.port", field()), message);
            return None;
        }
        None => {
            problems.add(format!("{}.port", field()), "missing".into());
            return None;
        }
    };
    let name = raw.name.as_deref().unwrap_or_default();
    if let Err(Problem { message, .. }) = check_name("", name) {
        problems.add(format!("{}.name", field()), message);
        return None;
    }
    Some((shared(name), protocol, port))
}

#[cfg(test)]
mod tests;
