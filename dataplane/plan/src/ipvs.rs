//! The ipvs mode: virtual servers and their real servers instead of maps of endpoints.
//!
//! The same Services, selection and claims as in the nftables mode. Owns what virtual servers there
//! should be, what has to change ([`IpvsChanges`]), and how real servers that are wanted no longer leave
//! ([`Drains`]).

mod changes;
mod drain;

pub use changes::{IpvsChanges, WEIGHT};
pub(crate) use changes::{bring_servers_to, difference};
pub use drain::{Draining, Drains, Operation, Operations};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use zw_model::{Protocol, Scheduler};

use crate::service::Backends;

/// What names a virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualKey {
    /// Its address: a Service's, or one of the node's own.
    pub addr: IpAddr,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Its port.
    pub port: u16,
}

/// A virtual server, which always has a real one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualServer {
    /// How it spreads connections.
    pub settings: ServerSettings,
    /// Where it sends them, all alike.
    pub reals: Backends,
}

/// How a virtual server spreads connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// By which rule.
    pub scheduler: Scheduler,
    /// For how many seconds a client stays where it is.
    pub persistence: Option<u32>,
}

/// What of IPVS the kernel holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActualIpvs {
    /// The interface for Services' addresses.
    pub link: Link,
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Our virtual servers.
    pub servers: BTreeMap<VirtualKey, ActualServer>,
    /// Everybody else's, which nobody touches.
    pub foreign: BTreeSet<VirtualKey>,
}

/// The interface for Services' addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Link {
    /// There is none.
    #[default]
    Missing,
    /// It is there, but no packet gets to its addresses.
    Down,
    /// As it should be.
    Up,
}

/// A virtual server of ours as read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActualServer {
    /// `None`: nothing of ours would say so.
    pub settings: Option<ServerSettings>,
    /// Its real servers and their weights; `None` for one that is reached in another way than ours.
    pub reals: BTreeMap<SocketAddr, Option<u32>>,
}

impl ActualServer {
    /// All it has left are connections that end: it goes with the last of them.
    fn is_leaving(&self, key: &VirtualKey) -> bool {
        !self.reals.is_empty() && self.reals.values().all(|weight| is_leaving(key, *weight))
    }
}

/// A real server of this weight, which nobody wants, is on its way out already.
fn is_leaving(server: &VirtualKey, weight: Option<u32>) -> bool {
    drain::drains(server.protocol) && weight == Some(0)
}

impl fmt::Display for VirtualKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", SocketAddr::new(self.addr, self.port), self.protocol)
    }
}
