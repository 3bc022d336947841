//! Tracked flows: looked at, and deleted.

use std::net::SocketAddr;

use zw_model::{Family, Protocol};
use zw_netlink::ct::{Filter, Socket};

/// A flow as far as its translation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackedFlow {
    /// Where the client sent its first packet.
    pub to: SocketAddr,
    /// Who is expected to answer.
    pub answered_by: SocketAddr,
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

    /// Gives every flow of one family and protocol to `each`, some perhaps twice, as they come and go.
    pub fn each(
        &mut self,
        family: Family,
        protocol: Protocol,
        each: &mut dyn FnMut(&TrackedFlow),
    ) -> Result<(), FlowError> {
        let family = crate::nft::family(family);
        let filter = Filter { family, protocol: protocol.number(), dst: None, dst_port: None };
        let dumped = self.socket.entries(&filter, &mut |entry| {
            each(&TrackedFlow {
                to: SocketAddr::new(entry.original.dst, entry.original.dst_port),
                answered_by: SocketAddr::new(entry.reply.src, entry.reply.src_port),
            });
        });
        dumped.map(drop).map_err(FlowError)
    }

    /// Deletes the flows of one family and protocol that are stale, of all or of those to one address;
    /// says how many.
    pub fn delete(
        &mut self,
        family: Family,
        protocol: Protocol,
        to: Option<SocketAddr>,
        stale: impl Fn(&TrackedFlow) -> bool,
    ) -> Result<usize, FlowError> {
        let filter = Filter {
            family: crate::nft::family(family),
            protocol: protocol.number(),
            dst: to.map(|to| to.ip()),
            dst_port: to.map(|to| to.port()),
        };
        let deleted = self.socket.delete_matching(&filter, &mut |entry| {
            stale(&TrackedFlow {
                to: SocketAddr::new(entry.original.dst, entry.original.dst_port),
                answered_by: SocketAddr::new(entry.reply.src, entry.reply.src_port),
            })
        });
        Ok(deleted.map_err(FlowError)?.deleted)
    }
}
