//! The node the proxy runs on.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// What planning needs to know of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeContext {
    /// The node's name, compared with `nodeName` and node hints.
    pub name: Arc<str>,
    /// `topology.kubernetes.io/zone`, unknown while the label is absent.
    pub zone: Option<Arc<str>>,
    /// `topology.kubernetes.io/region`, unknown while the label is absent.
    pub region: Option<Arc<str>>,
    /// Its own addresses, at most one of each family: the first internal one, else the first external
    /// one.
    pub addresses: Vec<IpAddr>,
    /// Where its own pods live, `spec.podCIDRs`.
    pub pod_ranges: Vec<IpNet>,
}
