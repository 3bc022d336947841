//! The domain types every other part speaks: Services, EndpointSlices and the node they are seen
//! from, with all Kubernetes quirks (nil defaults, string enums, optional names) already resolved.
//!
//! Owns plain data and its identity. Never does IO, never decides anything: which endpoints a
//! Service uses is `zw-plan`'s business, how objects arrive is the agent's.

mod endpoints;
mod node;
mod scheduler;
mod service;

pub use endpoints::{
    Conditions, Hints, Scope, Slice, SliceEndpoint, SliceKey, SlicePort, Topology,
};
pub use node::NodeContext;
pub use scheduler::Scheduler;
pub use service::{Division, External, Service, ServiceKey, ServicePort, TrafficPolicy};

use std::fmt;
use std::net::IpAddr;

/// An IP address family. Every Service port is planned once per family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4
    V4,
    /// IPv6
    V6,
}

impl Family {
    /// Both families, in the order they are planned, written and printed.
    pub const BOTH: [Family; 2] = [Family::V4, Family::V6];

    /// The family of an address.
    pub fn of(addr: IpAddr) -> Self {
        if addr.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

/// A transport protocol a Service port can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// SCTP
    Sctp,
}

impl Protocol {
    /// The IP protocol number, as the kernel's `meta l4proto` yields it.
    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }

    /// The protocol with this IP protocol number.
    pub fn from_number(number: u8) -> Option<Self> {
        [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter().find(|p| p.number() == number)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        })
    }
}
