//! What a client connects to.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use zw_model::{Family, Protocol};

use crate::element::Key;
use crate::ruleset::Field;
use crate::sets::{ADDRESS_KEY, NODE_PORT_KEY, SetName};

/// An address, or any of the node's own, with a protocol and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// Where.
    pub at: At,
    /// Transport protocol.
    pub protocol: Protocol,
    /// The Service's port, or its node port.
    pub port: u16,
}

/// Where a Service is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum At {
    /// An address of the Service.
    Address(IpAddr),
    /// The node's addresses of this family.
    Node(Family),
}

impl Frontend {
    /// A Service's address.
    pub fn new(addr: IpAddr, protocol: Protocol, port: u16) -> Self {
        Self { at: At::Address(addr), protocol, port }
    }

    /// A node port.
    pub fn node_port(family: Family, protocol: Protocol, port: u16) -> Self {
        Self { at: At::Node(family), protocol, port }
    }

    /// The family of its address.
    pub fn family(&self) -> Family {
        match self.at {
            At::Address(addr) => Family::of(addr),
            At::Node(family) => family,
        }
    }

    /// Its address, unless it is a node port.
    pub fn addr(&self) -> Option<IpAddr> {
        match self.at {
            At::Address(addr) => Some(addr),
            At::Node(_) => None,
        }
    }

    /// Its key in every set that is keyed by what a client connects to.
    pub fn key(&self) -> Key {
        let key = match self.at {
            At::Address(addr) => Key::new().addr(addr),
            At::Node(_) => Key::new(),
        };
        key.protocol(self.protocol).port(self.port)
    }

    pub(crate) fn space(&self) -> Space {
        match self.at {
            At::Address(_) => Space::Address,
            At::Node(_) => Space::NodePort,
        }
    }
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            At::Address(addr) => write!(f, "{}", SocketAddr::new(addr, self.port))?,
            At::Node(family) => write!(f, "{family} node port {}", self.port)?,
        }
        write!(f, "/{}", self.protocol)
    }
}

/// Which of the two families of sets a frontend lives in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Space {
    Address,
    NodePort,
}

impl Space {
    pub(crate) const BOTH: [Space; 2] = [Space::Address, Space::NodePort];

    /// The key a packet is looked up by.
    pub(crate) fn key(self) -> &'static [Field] {
        match self {
            Space::Address => ADDRESS_KEY,
            Space::NodePort => NODE_PORT_KEY,
        }
    }

    pub(crate) fn services(self) -> SetName {
        self.choose(SetName::Services, SetName::NodePorts)
    }

    pub(crate) fn connections(self) -> SetName {
        self.choose(SetName::Connections, SetName::NodePortConnections)
    }

    pub(crate) fn endpoints(self) -> SetName {
        self.choose(SetName::Endpoints, SetName::NodePortEndpoints)
    }

    pub(crate) fn local_endpoints(self) -> SetName {
        self.choose(SetName::LocalEndpoints, SetName::NodePortLocalEndpoints)
    }

    pub(crate) fn shortcuts(self) -> SetName {
        self.choose(SetName::Shortcuts, SetName::NodePortShortcuts)
    }

    pub(crate) fn no_endpoints(self) -> SetName {
        self.choose(SetName::NoEndpoints, SetName::NoEndpointNodePorts)
    }

    pub(crate) fn elsewhere(self) -> SetName {
        self.choose(SetName::EndpointsElsewhere, SetName::NodePortEndpointsElsewhere)
    }

    pub(crate) fn sticky(self) -> SetName {
        self.choose(SetName::Sticky, SetName::StickyNodePorts)
    }

    fn choose(self, address: SetName, node_port: SetName) -> SetName {
        match self {
            Space::Address => address,
            Space::NodePort => node_port,
        }
    }
}
