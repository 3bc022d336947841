//! A Service as the proxy sees it: addresses and ports.

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use ipnet::IpNet;

use crate::{Family, Protocol, Scheduler};

/// A Service's namespace and name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
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

// Keys are compared more often than anything else, mostly with others of their namespace, which then is the
// same piece of memory: one look instead of two.

impl PartialOrd for ServiceKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ServiceKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let cmp = |ours: &Arc<str>, theirs: &Arc<str>| {
            if Arc::ptr_eq(ours, theirs) { Ordering::Equal } else { ours.cmp(theirs) }
        };
        cmp(&self.namespace, &other.namespace).then_with(|| cmp(&self.name, &other.name))
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A Service that has at least one address to program: headless and ExternalName Services never
/// become one of these.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// Identity.
    pub key: ServiceKey,
    /// At most one address of each family.
    pub cluster_ips: Vec<IpAddr>,
    /// In the order of the manifest; (name, protocol) is unique.
    pub ports: Vec<ServicePort>,
    /// Who may receive traffic to the cluster IPs.
    pub internal_policy: TrafficPolicy,
    /// Who may receive traffic to every other address, and to node ports.
    pub external_policy: TrafficPolicy,
    /// How long a client stays with its endpoint after its last connection, in seconds.
    pub affinity: Option<u32>,
    /// In the ipvs mode, how its connections are spread; otherwise, as the operator says.
    pub scheduler: Option<Scheduler>,
    /// Pods are chosen by labels, so that a controller keeps its slices. Decides nothing; people ask.
    pub has_selector: bool,
    /// What most Services do not have, so it costs one pointer.
    pub external: Option<Box<External>>,
    /// What the zone-slice controller says on it. Decides nothing; people ask.
    pub division: Option<Box<Division>>,
}

/// What the zone-slice controller writes on a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Division {
    /// The approach in force, `zoneward/approach`.
    pub approach: Option<Arc<str>>,
    /// Why it is, `zoneward/reason`.
    pub reason: Option<Arc<str>>,
    /// Zones off whose nodes its labels keep the default slices (`zones.zoneward/ZONE`), in order.
    pub zones: Vec<Arc<str>>,
}

/// How a Service is reached from outside, besides node ports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct External {
    /// `spec.externalIPs`
    pub ips: Vec<IpAddr>,
    /// The addresses of the load balancer whose packets still carry them when they get here
    /// (`ipMode: VIP`).
    pub load_balancer_ips: Vec<IpAddr>,
    /// Who may use `load_balancer_ips`; a family without a range here is open to all.
    pub source_ranges: Vec<IpNet>,
    /// Where this node tells load balancers whether it has endpoints of the Service.
    pub health_check_port: Option<NonZeroU16>,
}

impl Service {
    /// The cluster IP of one family.
    pub fn cluster_ip(&self, family: Family) -> Option<IpAddr> {
        self.cluster_ips.iter().copied().find(|ip| Family::of(*ip) == family)
    }
}

/// `internalTrafficPolicy` and `externalTrafficPolicy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum TrafficPolicy {
    /// Any endpoint.
    #[default]
    Cluster,
    /// Only endpoints on this node.
    Local,
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
    /// The port on nodes' own addresses.
    pub node_port: Option<NonZeroU16>,
}
