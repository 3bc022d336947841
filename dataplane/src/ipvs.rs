//! IPVS' side of the kernel: virtual servers, and the interface with the addresses they are reached at.
//!
//! Ours are told from everybody else's by a flag that no scheduler reads (`flag-3` in `ipvsadm`): it
//! lives and dies with the virtual server itself, so nothing has to be remembered. Whoever else runs
//! virtual servers here keeps them, also at an address and port that a Service claims: that is told, and
//! the Service is not served there.
//!
//! There are no transactions. Every operation is good to be done again, and what is there already or gone
//! already is as wanted.

mod carry_out;
mod prepare;
mod read;
mod with_table;

pub use prepare::{IpvsOptions, probe_ipvs};
pub use with_table::WithIpvs;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use zw_model::Protocol;
use zw_netlink::Error;
use zw_netlink::ipvs::{
    IP_VS_SVC_F_PERSISTENT, IP_VS_SVC_F_SCHED1, IP_VS_SVC_F_SCHED2, IP_VS_SVC_F_SCHED3, ServerId,
    ServerSettings as Encoded, Socket,
};
use zw_netlink::route;
use zw_plan::{Draining, Drains, Link, ServerSettings, VirtualKey};

use crate::error::WriteError;

/// The interface with Services' addresses.
pub const LINK: &str = "zoneward-ipvs";

/// What our virtual servers carry.
const OURS: u32 = IP_VS_SVC_F_SCHED3;

const ENOENT: i32 = 2;
const EPERM: i32 = 1;
const ESRCH: i32 = 3;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const ERANGE: i32 = 34;
const EPROTONOSUPPORT: i32 = 93;
const EOPNOTSUPP: i32 = 95;
const EAFNOSUPPORT: i32 = 97;
const EADDRNOTAVAIL: i32 = 99;

/// What the kernel will not take at the next try either.
fn is_for_good(errno: i32) -> bool {
    matches!(errno, EINVAL | ERANGE | EPROTONOSUPPORT | EOPNOTSUPP | EAFNOSUPPORT | EADDRNOTAVAIL)
}

/// IPVS and our interface in the network namespace they were opened in.
pub struct Ipvs {
    /// `None`: this kernel has no IPVS.
    servers: Option<Socket>,
    routes: route::Socket,
    drains: Drains,
    /// Times of `drains` are since then.
    since: Instant,
    /// Places of others' virtual servers.
    foreign: BTreeSet<VirtualKey>,
    /// Virtual servers the kernel does not take; their real servers have no place.
    unserved: BTreeSet<VirtualKey>,
    /// What could not be served since somebody last asked.
    refused: Vec<Unserved>,
    refused_addresses: Vec<IpAddr>,
    refused_reals: Vec<RefusedReal>,
    requests: usize,
}

/// An endpoint that the kernel does not take, such as a broadcast address of this node's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedReal {
    /// Whose endpoint.
    pub server: VirtualKey,
    /// Its address.
    pub real: SocketAddr,
    /// The kernel's reason.
    pub why: String,
}

/// A virtual server that should be there and is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// Where it should be.
    pub server: VirtualKey,
    /// Why it is not.
    pub why: WhyUnserved,
}

/// Why there is no virtual server of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyUnserved {
    /// Somebody else has one there, which stays.
    Foreign,
    /// The kernel does not have this scheduler.
    NoScheduler(String),
    /// The kernel does not take it, for this reason.
    Refused(String),
}

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IpvsRemoved {
    /// How many virtual servers.
    pub servers: usize,
    /// The interface.
    pub link: bool,
}

impl Ipvs {
    /// Connects, in the calling thread's network namespace. A real server that is wanted no longer may
    /// keep its connections for as long as `drain`.
    pub fn open(drain: Duration) -> Result<Self, WriteError> {
        Ok(Self {
            servers: Socket::open().map_err(|error| failed("IPVS", error))?,
            routes: route::Socket::open().map_err(|error| failed("route netlink", error))?,
            drains: Drains::new(drain),
            since: Instant::now(),
            foreign: BTreeSet::new(),
            unserved: BTreeSet::new(),
            refused: Vec::new(),
            refused_addresses: Vec::new(),
            refused_reals: Vec::new(),
            requests: 0,
        })
    }

    /// How many changes the kernel has been asked for.
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// Real servers that have no connections left, or have had them for long enough, go. Says whether
    /// any are still leaving.
    pub fn drain(&mut self) -> Result<bool, WriteError> {
        if self.drains.is_empty() {
            return Ok(false);
        }
        let leaving: Vec<Draining> = self.drains.leaving().copied().collect();
        let mut idle = BTreeSet::new();
        for some in leaving.chunk_by(|one, other| one.server == other.server) {
            let busy: BTreeSet<_> = self
                .reals(&some[0].server)?
                .into_iter()
                .filter(|real| real.active + real.inactive > 0)
                .map(|real| real.real.addr)
                .collect();
            idle.extend(some.iter().filter(|draining| !busy.contains(&draining.real)));
        }
        let todo = self.drains.release(&idle, self.since.elapsed());
        self.carry_out(&todo)?;
        Ok(!self.drains.is_empty())
    }

    /// Removes all that is ours.
    pub fn remove(&mut self) -> Result<IpvsRemoved, WriteError> {
        let actual = self.read()?;
        let ours: Vec<_> =
            actual.servers.keys().map(|key| zw_plan::Operation::RemoveServer(*key)).collect();
        self.carry_out(&ours)?;
        let link = actual.link != Link::Missing;
        if link {
            self.set_link(false)?;
        }
        Ok(IpvsRemoved { servers: ours.len(), link })
    }

    /// The interface comes, or goes.
    fn set_link(&mut self, there: bool) -> Result<(), WriteError> {
        let what = || format!("the interface {LINK}");
        let link = self.routes.link(LINK).map_err(|error| failed(&what(), error))?;
        let outcome = match (there, link) {
            (true, Some(link)) if link.up => return Ok(()),
            (true, Some(link)) => self.routes.set_up(link.index),
            (true, None) => match self.routes.add_dummy(LINK) {
                Err(Error::Refused { errno: EOPNOTSUPP, .. }) => return Err(no_dummy()),
                outcome => outcome.map(|_| ()),
            },
            (false, Some(link)) if link.dummy => self.routes.delete_link(link.index),
            (false, _) => Ok(()),
        };
        self.requests += 1;
        outcome.map_err(|error| failed(&what(), error))
    }
}

impl fmt::Display for WhyUnserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("somebody else has a virtual server there"),
            Self::NoScheduler(name) => write!(
                f,
                "this kernel has no scheduler {name}: run `modprobe ip_vs_{name}` on the node"
            ),
            Self::Refused(why) => write!(f, "the kernel does not take it: {why}"),
        }
    }
}

/// The number of the interface with Services' addresses, in the calling thread's network namespace.
pub fn link_index() -> Option<u32> {
    let link = route::Socket::open().and_then(|mut socket| socket.link(LINK));
    link.ok().flatten().map(|link| link.index)
}

fn no_dummy() -> WriteError {
    WriteError::NoIpvs { what: "dummy interfaces".into(), module: "dummy".into() }
}

fn id(key: &VirtualKey) -> ServerId {
    ServerId { addr: key.addr, protocol: key.protocol.number(), port: key.port }
}

fn key(id: &ServerId) -> Option<VirtualKey> {
    let protocol = Protocol::from_number(id.protocol)?;
    Some(VirtualKey { addr: id.addr, protocol, port: id.port })
}

/// Settings as the kernel takes them.
fn encode(settings: &ServerSettings) -> Encoded {
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    Encoded {
        scheduler: settings.scheduler.name.as_ref().to_owned(),
        flags: OURS
            | flag(settings.persistence.is_some(), IP_VS_SVC_F_PERSISTENT)
            | flag(settings.scheduler.fallback, IP_VS_SVC_F_SCHED1)
            | flag(settings.scheduler.port, IP_VS_SVC_F_SCHED2),
        timeout: settings.persistence.unwrap_or_default(),
    }
}

fn refused(object: String, errno: i32, message: Option<String>) -> WriteError {
    WriteError::Refused { object, message, part: None, source: io::Error::from_raw_os_error(errno) }
}

fn failed(what: &str, error: Error) -> WriteError {
    match error {
        Error::Refused { errno, message, .. } => {
            refused(format!("access to {what}"), errno, message)
        }
        error => WriteError::Socket(error),
    }
}
