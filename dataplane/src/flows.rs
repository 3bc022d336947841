//! Tracked flows: looked at, and deleted.

use std::net::SocketAddr;

use zw_model::{Family, Protocol};
use zw_netlink::ct::{Entry, Filter, Socket};

/// A flow as far as its translation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackedFlow {
    /// Where the client sent its first packet.
    pub to: SocketAddr,
    /// Who is expected to answer.
    pub answered_by: SocketAddr,
    /// Whether it ever was.
    pub is_answered: bool,
}

/// Which flows to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowFilter {
    /// Of this family,
    pub family: Family,
    /// and this protocol;
    pub protocol: Protocol,
    /// only those nobody has answered yet, or all;
    pub unanswered: bool,
    /// to one address and port, or to any.
    pub to: Option<SocketAddr>,
}

/// A failed look at the kernel's flows, or a failed deletion; to be tried again.
#[derive(Debug, thiserror::Error)]
#[error("cannot read or change tracked connections")]
pub struct FlowError(#[source] zw_netlink::Error);

/// The kernel's tracked connections, in the network namespace it was opened in.
pub struct FlowTable {
    socket: Socket,
}

impl FlowTable {
    /// Connects, in the calling thread's network namespace.
    pub fn open() -> Result<Self, FlowError> {
        Ok(Self { socket: Socket::open().map_err(FlowError)? })
    }

    /// Gives every such flow to `each`, some perhaps twice, as they come and go.
    pub fn each(
        &mut self,
        filter: FlowFilter,
        each: &mut dyn FnMut(&TrackedFlow),
    ) -> Result<(), FlowError> {
        let dumped = self.socket.entries(&filter.into(), &mut |entry| each(&entry.into()));
        dumped.map(drop).map_err(FlowError)
    }

    /// Deletes those of such flows that are stale; says how many.
    pub fn delete(
        &mut self,
        filter: FlowFilter,
        stale: impl Fn(&TrackedFlow) -> bool,
    ) -> Result<usize, FlowError> {
        let deleted =
            self.socket.delete_matching(&filter.into(), &mut |entry| stale(&entry.into()));
        Ok(deleted.map_err(FlowError)?.deleted)
    }
}

impl From<FlowFilter> for Filter {
    fn from(FlowFilter { family, protocol, unanswered, to }: FlowFilter) -> Self {
        Self {
            family: crate::nft::family(family),
            protocol: protocol.number(),
            dst: to.map(|to| to.ip()),
            dst_port: to.map(|to| to.port()),
            unanswered,
        }
    }
}

impl From<&Entry> for TrackedFlow {
    fn from(entry: &Entry) -> Self {
        Self {
            to: SocketAddr::new(entry.original.dst, entry.original.dst_port),
            answered_by: SocketAddr::new(entry.reply.src, entry.reply.src_port),
            is_answered: entry.is_answered(),
        }
    }
}
