//! A Service as the proxy sees it: addresses and ports.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::{Family, Protocol};

/// A Service's namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ServiceKey {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A Service that has at least one address to program: headless and ExternalName Services never
/// become one of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Identity.
    pub key: ServiceKey,
    /// At most one address of each family.
    pub cluster_ips: Vec<IpAddr>,
    /// In the order of the manifest; (name, protocol) is unique.
    pub ports: Vec<ServicePort>,
}

impl Service {
    /// The cluster IP of one family.
    pub fn cluster_ip(&self, family: Family) -> Option<IpAddr> {
        self.cluster_ips.iter().copied().find(|ip| Family::of(*ip) == family)
    }
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Empty where a Service with a single port leaves it out.
    pub name: Arc<str>,
    /// Transport protocol.
    pub protocol: Protocol,
    /// The port clients use.
    pub port: u16,
}
