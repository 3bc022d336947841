//! Node ports on 127.0.0.1 and ::1, where the configuration names them.
//!
//! The kernel cannot translate what the node sends to its own loopback address: the answer would have
//! to come back to that address from outside. So here a process relays: it listens on the port, and
//! carries what comes to an endpoint and back.
//!
//! Owns the listeners and what they relay. Which ports there are, and to which endpoints (all, or with
//! `externalTrafficPolicy: Local` those on this node), is decided elsewhere. All clients are on the node
//! itself and share its address, so with session affinity all of them are sent to one endpoint.

mod choice;
mod tcp;
mod udp;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Sender;
use zw_model::{Family, Protocol};

use self::choice::Choice;
use self::udp::Sessions;
use crate::addresses::localhost;
use crate::listen::Task;

/// A node port on the loopback address of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LocalFrontend {
    pub(crate) protocol: Protocol,
    pub(crate) family: Family,
    pub(crate) port: NonZeroU16,
}

impl LocalFrontend {
    fn at(self) -> SocketAddr {
        SocketAddr::new(localhost(self.family), self.port.get())
    }
}

/// Where a frontend's traffic goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Backends {
    pub(crate) addrs: Vec<SocketAddr>,
    /// How long after the last new connection the next one goes to the same endpoint.
    pub(crate) affinity: Option<Duration>,
}

/// A frontend cannot be opened. Unless its protocol is one that cannot be relayed, it is still being
/// tried.
#[derive(Debug)]
pub(crate) struct LocalPortFailure {
    pub(crate) frontend: LocalFrontend,
    pub(crate) error: io::Error,
}

impl fmt::Display for LocalPortFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (protocol, at) = (self.frontend.protocol, self.frontend.at());
        write!(f, "cannot serve the node port {protocol} {at}: {}", self.error)
    }
}

/// What bounds the work and memory of all frontends together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// How long an endpoint may take to accept.
    pub(crate) dial: Duration,
    /// TCP connections, each with 16 KiB of buffers and two file descriptors. One more waits in the
    /// kernel until another ends.
    pub(crate) connections: usize,
    /// How long a UDP client may be silent and still be sent to the same endpoint.
    pub(crate) idle: Duration,
    /// UDP clients, each with a file descriptor. One more takes the place of the one silent longest.
    pub(crate) sessions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(5),
            connections: 2048,
            // The kernel's own, net.netfilter.nf_conntrack_udp_timeout.
            idle: Duration::from_secs(30),
            sessions: 4096,
        }
    }
}

/// All localhost node ports.
pub(crate) struct LocalhostPorts {
    runtime: Handle,
    open: BTreeMap<LocalFrontend, Open>,
    shared: Arc<Shared>,
}

struct Open {
    choice: Arc<Choice>,
    /// None for a protocol that cannot be relayed.
    _listener: Option<Task>,
}

/// What all frontends have in common.
struct Shared {
    limits: Limits,
    failures: Sender<LocalPortFailure>,
    connections: Arc<Semaphore>,
    sessions: Sessions,
}

impl LocalhostPorts {
    /// No port yet. Everything runs on `runtime`; `failures` hears of ports that cannot be opened.
    pub(crate) fn new(runtime: Handle, limits: Limits, failures: Sender<LocalPortFailure>) -> Self {
        let connections = Arc::new(Semaphore::new(limits.connections));
        let sessions = Sessions::new(limits.sessions);
        let shared = Arc::new(Shared { limits, failures, connections, sessions });
        Self { runtime, open: BTreeMap::new(), shared }
    }

    /// Where a frontend's traffic goes from now on. Without an endpoint, as without the frontend, the
    /// port is closed and refuses. TCP connections stay with the endpoint they have, as those the
    /// kernel translates do; UDP clients of an endpoint that went are sent to another.
    pub(crate) fn set(&mut self, frontend: LocalFrontend, backends: Option<Backends>) {
        let backends = backends.filter(|backends| !backends.addrs.is_empty());
        let Some(backends) = backends else {
            if let Some(open) = self.open.remove(&frontend) {
                open.replace(frontend, Backends::default(), &self.shared);
            }
            return;
        };
        if let Some(open) = self.open.get(&frontend) {
            open.replace(frontend, backends, &self.shared);
            return;
        }
        let choice = Arc::new(Choice::new(backends));
        let listener = self.listen(frontend, &choice);
        self.open.insert(frontend, Open { choice, _listener: listener });
    }

    fn listen(&self, frontend: LocalFrontend, choice: &Arc<Choice>) -> Option<Task> {
        let (choice, shared) = (choice.clone(), self.shared.clone());
        let task = match frontend.protocol {
            Protocol::Tcp => self.runtime.spawn(tcp::serve(frontend, choice, shared)),
            Protocol::Udp => self.runtime.spawn(udp::serve(frontend, choice, shared)),
            Protocol::Sctp => {
                let reason = "SCTP is not relayed on loopback addresses";
                self.shared.failed(frontend, io::Error::new(io::ErrorKind::Unsupported, reason));
                return None;
            }
        };
        Some(task.abort_handle().into())
    }
}

impl Open {
    /// First the choice, then the sessions: one that begins meanwhile looks at the choice last.
    fn replace(&self, frontend: LocalFrontend, backends: Backends, shared: &Shared) {
        if !self.choice.replace(backends) {
            return;
        }
        if frontend.protocol == Protocol::Udp {
            shared.sessions.retain(frontend, |backend| self.choice.holds(backend));
        }
    }
}

impl Drop for LocalhostPorts {
    /// Sessions know their table and it knows them: they do not go by themselves.
    fn drop(&mut self) {
        for (frontend, open) in std::mem::take(&mut self.open) {
            open.replace(frontend, Backends::default(), &self.shared);
        }
    }
}

impl Shared {
    fn failed(&self, frontend: LocalFrontend, error: io::Error) {
        // Nobody listens when the agent is stopping, and hundreds that wait tell enough.
        let _ = self.failures.try_send(LocalPortFailure { frontend, error });
    }
}

#[cfg(test)]
mod tests;
