//! The sets and maps of the table, the same in both families. Everything that grows with the cluster is
//! an element of one of these; only the affinity maps of sticky Services exist one by one (see
//! [`crate::shape`]).

use std::fmt;

use crate::ruleset::{Field, SetData, SetDef};

/// Service address, protocol and port: what a packet to a Service is recognised by.
pub(crate) const ADDRESS_KEY: &[Field] = &[Field::Daddr, Field::Protocol, Field::Dport];

/// Protocol and port: what a packet to a node port is recognised by, once its address is the node's.
pub(crate) const NODE_PORT_KEY: &[Field] = &[Field::Protocol, Field::Dport];

/// Where a connection went before it was redirected, as [`ADDRESS_KEY`].
pub(crate) const ORIGINAL_ADDRESS_KEY: &[Field] =
    &[Field::OriginalDaddr, Field::Protocol, Field::OriginalDport];

/// Where a connection went before it was redirected, as [`NODE_PORT_KEY`].
pub(crate) const ORIGINAL_NODE_PORT_KEY: &[Field] = &[Field::Protocol, Field::OriginalDport];

/// What an endpoint is written as.
pub(crate) const ENDPOINT: &[Field] = &[Field::Daddr, Field::Dport];

/// How many frontends of a node are counted; those that are asked for later are not.
const COUNTED: u32 = 1 << 15;

/// A set or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetName {
    /// Service address, protocol, port: which chain picks an endpoint.
    Services,
    /// The same keys with a counter each, made by the first packet: a counter takes the kernel three times
    /// as long as any other element, and memory for each processor, and most Services of a large cluster
    /// are never asked for on any one node.
    Connections,
    /// The same keys, in the ipvs mode: what may be asked for in order not to be found, which a map
    /// cannot be in older kernels.
    Served,
    /// Service address, protocol, port, slot: the endpoint.
    Endpoints,
    /// The same for what outsiders may use of a Service with `externalTrafficPolicy: Local`.
    LocalEndpoints,
    /// Which chain picks an endpoint for those whom that policy does not bind: pods and the node.
    Shortcuts,
    /// Service ports that nobody here may answer. No verdicts: those make the kernel validate the whole
    /// table, and endpoints come and go.
    NoEndpoints,
    /// Those of them that have endpoints, but none that this node may use.
    EndpointsElsewhere,
    /// Service ports that remember their clients.
    Sticky,
    /// The same for node ports, by protocol and port.
    NodePorts,
    /// See [`SetName::Connections`].
    NodePortConnections,
    /// See [`SetName::Endpoints`].
    NodePortEndpoints,
    /// See [`SetName::LocalEndpoints`].
    NodePortLocalEndpoints,
    /// See [`SetName::Shortcuts`].
    NodePortShortcuts,
    /// See [`SetName::NoEndpoints`].
    NoEndpointNodePorts,
    /// See [`SetName::EndpointsElsewhere`].
    NodePortEndpointsElsewhere,
    /// See [`SetName::Sticky`].
    StickyNodePorts,
    /// The node's addresses that node ports are served on.
    NodeAddresses,
    /// Load balancer addresses, protocols and ports that not everybody may use.
    Firewalled,
    /// The same with the source ranges that may.
    Allowed,
    /// Every cluster IP, whatever the port.
    ClusterIps,
    /// The ranges cluster IPs are taken from.
    ServiceRanges,
    /// Addresses of this node's endpoints, twice: a pod that reaches itself through a Service.
    Hairpin,
}

impl SetName {
    /// In the order they are created and printed.
    pub const ALL: [SetName; 23] = [
        SetName::Services,
        SetName::Connections,
        SetName::Served,
        SetName::Endpoints,
        SetName::LocalEndpoints,
        SetName::Shortcuts,
        SetName::NoEndpoints,
        SetName::EndpointsElsewhere,
        SetName::Sticky,
        SetName::NodePorts,
        SetName::NodePortConnections,
        SetName::NodePortEndpoints,
        SetName::NodePortLocalEndpoints,
        SetName::NodePortShortcuts,
        SetName::NoEndpointNodePorts,
        SetName::NodePortEndpointsElsewhere,
        SetName::StickyNodePorts,
        SetName::NodeAddresses,
        SetName::Firewalled,
        SetName::Allowed,
        SetName::ClusterIps,
        SetName::ServiceRanges,
        SetName::Hairpin,
    ];

    /// The name in the kernel.
    pub fn as_str(self) -> &'static str {
        match self {
            SetName::Services => "services",
            SetName::Connections => "connections",
            SetName::Served => "served",
            SetName::Endpoints => "endpoints",
            SetName::LocalEndpoints => "local-endpoints",
            SetName::Shortcuts => "shortcuts",
            SetName::NoEndpoints => "no-endpoints",
            SetName::EndpointsElsewhere => "endpoints-elsewhere",
            SetName::Sticky => "sticky",
            SetName::NodePorts => "node-ports",
            SetName::NodePortConnections => "node-port-connections",
            SetName::NodePortEndpoints => "node-port-endpoints",
            SetName::NodePortLocalEndpoints => "node-port-local-endpoints",
            SetName::NodePortShortcuts => "node-port-shortcuts",
            SetName::NoEndpointNodePorts => "no-endpoint-node-ports",
            SetName::NodePortEndpointsElsewhere => "node-port-endpoints-elsewhere",
            SetName::StickyNodePorts => "sticky-node-ports",
            SetName::NodeAddresses => "node-addresses",
            SetName::Firewalled => "firewalled",
            SetName::Allowed => "allowed",
            SetName::ClusterIps => "cluster-ips",
            SetName::ServiceRanges => "service-ranges",
            SetName::Hairpin => "hairpin",
        }
    }

    /// Its definition.
    pub fn def(self) -> SetDef {
        // The modulus in a set's key is only documentation: rules use their own.
        const ADDRESS_SLOT: &[Field] =
            &[Field::Daddr, Field::Protocol, Field::Dport, Field::Pick(2)];
        const NODE_PORT_SLOT: &[Field] = &[Field::Protocol, Field::Dport, Field::Pick(2)];
        const FROM: &[Field] = &[Field::Daddr, Field::Protocol, Field::Dport, Field::Saddr];
        let plain =
            |key, data| SetDef { name: self, key, data, ranges: false, counts: false, size: None };
        let counts =
            |key| SetDef { counts: true, size: Some(COUNTED), ..plain(key, SetData::None) };
        match self {
            SetName::Services | SetName::Shortcuts | SetName::Sticky => {
                plain(ADDRESS_KEY, SetData::Verdict)
            }
            SetName::Connections => counts(ADDRESS_KEY),
            SetName::Served
            | SetName::NoEndpoints
            | SetName::EndpointsElsewhere
            | SetName::Firewalled => plain(ADDRESS_KEY, SetData::None),
            SetName::Endpoints | SetName::LocalEndpoints => {
                plain(ADDRESS_SLOT, SetData::Fields(ENDPOINT))
            }
            SetName::NodePorts | SetName::NodePortShortcuts | SetName::StickyNodePorts => {
                plain(NODE_PORT_KEY, SetData::Verdict)
            }
            SetName::NodePortConnections => counts(NODE_PORT_KEY),
            SetName::NoEndpointNodePorts | SetName::NodePortEndpointsElsewhere => {
                plain(NODE_PORT_KEY, SetData::None)
            }
            SetName::NodePortEndpoints | SetName::NodePortLocalEndpoints => {
                plain(NODE_PORT_SLOT, SetData::Fields(ENDPOINT))
            }
            SetName::NodeAddresses | SetName::ClusterIps => plain(&[Field::Daddr], SetData::None),
            SetName::Allowed => SetDef { ranges: true, ..plain(FROM, SetData::None) },
            SetName::ServiceRanges => {
                SetDef { ranges: true, ..plain(&[Field::Daddr], SetData::None) }
            }
            SetName::Hairpin => plain(&[Field::Saddr, Field::Daddr], SetData::None),
        }
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Every set's definition.
pub fn sets() -> impl Iterator<Item = SetDef> {
    SetName::ALL.into_iter().map(SetName::def)
}
