//! The node the proxy runs on.

use std::sync::Arc;

/// What endpoint selection needs to know of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeContext {
    /// The node's name, compared with `nodeName` and node hints.
    pub name: Arc<str>,
    /// `topology.kubernetes.io/zone`, unknown while the label is absent.
    pub zone: Option<Arc<str>>,
    /// `topology.kubernetes.io/region`, unknown while the label is absent.
    pub region: Option<Arc<str>>,
}
