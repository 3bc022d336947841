//! IPVS: virtual servers, real servers, timeouts, over generic netlink.
//!
//! [`Batch`] encodes operations, [`Socket`] sends them and dumps what the kernel holds, [`reply`] parses
//! bytes. There are no transactions here: every operation succeeds or fails by itself, in order.

mod batch;
mod client;
mod constants;
pub mod reply;

pub use crate::error::Error;
pub use batch::Batch;
pub use client::{Refusal, Socket};
pub use constants::{
    IP_VS_CONN_F_MASQ, IP_VS_SVC_F_PERSISTENT, IP_VS_SVC_F_SCHED1, IP_VS_SVC_F_SCHED2,
    IP_VS_SVC_F_SCHED3,
};

use std::net::{IpAddr, SocketAddr};

/// What names a virtual server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId {
    /// Its address.
    pub addr: IpAddr,
    /// The IP protocol number.
    pub protocol: u8,
    /// Its port.
    pub port: u16,
}

/// A virtual server's settings. Persistence is always by single client address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The scheduler's name; the kernel loads `ip_vs_NAME` if it can.
    pub scheduler: String,
    /// `IP_VS_SVC_F_*`
    pub flags: u32,
    /// For how many seconds a client stays, if the flags say that it does.
    pub timeout: u32,
}

/// A real server, reached by rewriting the destination (`ipvsadm -m`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealServer {
    /// Where it is.
    pub addr: SocketAddr,
    /// Its share of new connections; 0: none, while those it has go on.
    pub weight: u32,
}

/// A virtual server as dumped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// `None`: it is known by a packet mark, not by an address.
    pub id: Option<ServerId>,
    /// Its settings, without flags of the kernel's own.
    pub settings: ServerSettings,
    /// Persistence is by single client address.
    pub whole_netmask: bool,
}

/// A real server as dumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealServerInfo {
    /// Where it is and its weight.
    pub real: RealServer,
    /// It is reached by rewriting the destination.
    pub rewritten: bool,
    /// How many connections it has that are established.
    pub active: u32,
    /// And how many that are not, or no longer.
    pub inactive: u32,
}

/// How long connections are remembered, in seconds; 0 leaves what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Established TCP connections.
    pub tcp: u32,
    /// TCP connections after a FIN.
    pub tcp_fin: u32,
    /// UDP flows.
    pub udp: u32,
}

/// What IPVS says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Major, minor, patch.
    pub version: [u8; 3],
    /// Buckets of the connection table.
    pub table_size: u32,
}
