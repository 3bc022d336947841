//! EndpointSlices: where a Service's traffic may go, and whom each slice is meant for.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use crate::{Family, Protocol, ServiceKey};

/// A slice's namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceKey {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl fmt::Display for SliceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Whom a slice is published for, from the labels `endpointslice.kubernetes.io/for-zone` and
/// `/for-region`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Neither label: every node.
    Everyone,
    /// Nodes of one zone.
    Zone(Arc<str>),
    /// Nodes of one region.
    Region(Arc<str>),
}

/// One EndpointSlice of one address family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Identity.
    pub key: SliceKey,
    /// The Service it belongs to.
    pub service: ServiceKey,
    /// The family of every address in it.
    pub family: Family,
    /// Whom it is for.
    pub scope: Scope,
    /// Who keeps it up to date, `endpointslice.kubernetes.io/managed-by`. Decides nothing; people ask.
    pub managed_by: Option<Arc<str>>,
    /// Named ports; every endpoint of the slice has all of them.
    pub ports: Vec<SlicePort>,
    /// The endpoints.
    pub endpoints: Vec<SliceEndpoint>,
}

/// A named port of a slice. Slices of one Service may give one name different numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// Matches [`crate::ServicePort::name`].
    pub name: Arc<str>,
    /// Transport protocol.
    pub protocol: Protocol,
    /// The port the endpoint listens on.
    pub port: u16,
}

/// One endpoint of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// The only address that is used (consumers take the first one).
    pub addr: IpAddr,
    /// Its conditions, defaults applied.
    pub conditions: Conditions,
    /// Where it is and for whom: one copy for all endpoints that have that in common, for a node has room
    /// for hundreds of thousands of them. Read as if it were the endpoint's own.
    pub topology: Arc<Topology>,
}

impl Deref for SliceEndpoint {
    type Target = Topology;

    fn deref(&self) -> &Topology {
        &self.topology
    }
}

/// Where an endpoint is, and who should use it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Topology {
    /// The node it runs on.
    pub node: Option<Arc<str>>,
    /// The zone it runs in.
    pub zone: Option<Arc<str>>,
    /// Whom it is hinted for.
    pub hints: Option<Hints>,
}

/// Endpoint conditions with Kubernetes' nil defaults applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// Accepts new traffic.
    pub ready: bool,
    /// Answers, whether or not it is going away.
    pub serving: bool,
    /// Going away.
    pub terminating: bool,
}

impl Conditions {
    /// `ready` and `serving` default to true, `terminating` to false.
    pub fn from_optional(
        ready: Option<bool>,
        serving: Option<bool>,
        terminating: Option<bool>,
    ) -> Self {
        Self {
            ready: ready.unwrap_or(true),
            serving: serving.unwrap_or(true),
            terminating: terminating.unwrap_or(false),
        }
    }

    /// Good enough when nothing is ready: still answering while it goes away.
    pub fn usable_as_last_resort(self) -> bool {
        self.serving && self.terminating
    }
}

/// Which nodes and zones should use an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Hints {
    /// `hints.forZones`
    pub zones: Vec<Arc<str>>,
    /// `hints.forNodes`
    pub nodes: Vec<Arc<str>>,
}
