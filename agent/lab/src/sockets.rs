//! Sockets inside a namespace for threads outside of it.
//!
//! A socket belongs for good to the namespace it was made in, whoever uses it later. So one thread
//! stays inside and makes sockets to order, and the probe itself runs on the caller's thread: that
//! costs a channel round trip, and many callers can wait for answers at the same time.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::{Namespace, Protocol};

/// A source of sockets of one namespace. Its thread ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// None only while being dropped: closing the channel is what ends the thread.
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Order {
    family: AddressFamily,
    kind: SocketType,
    reply: mpsc::SyncSender<io::Result<OwnedFd>>,
}

impl Sockets {
    pub(crate) fn of(namespace: &Namespace) -> Self {
        let (orders, taken) = mpsc::channel::<Order>();
        let thread = namespace.spawn(move || {
            for order in taken {
                // An order nobody waits for any more closes its socket right here.
                let _ = order.reply.send(make(order.family, order.kind));
            }
        });
        Self { orders: Some(orders), thread: Some(thread) }
    }

    /// A non-blocking socket that hears of ICMP errors.
    pub(crate) fn make(&self, family: AddressFamily, protocol: Protocol) -> io::Result<OwnedFd> {
        let kind = match protocol {
            Protocol::Tcp => SocketType::STREAM,
            Protocol::Udp => SocketType::DGRAM,
        };
        let gone = || io::Error::other("the thread that makes sockets has ended");
        let (reply, made) = mpsc::sync_channel(1);
        let order = Order { family, kind, reply };
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        orders.send(order).map_err(|_| gone())?;
        made.recv().map_err(|_| gone())?
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // It blocks on nothing but the channel, so this wait is short. A panic there has
            // already shown itself as a failed probe.
            let _ = thread.join();
        }
    }
}

fn make(family: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, kind, flags, None)?;
    hear_icmp_errors(&socket, family)?;
    Ok(socket)
}

/// Sets `IP_RECVERR` or `IPV6_RECVERR`. Without it a TCP socket on the node misses the ICMP error
/// its own output hook raises: that arrives while `connect` still holds the socket, where the
/// kernel only remembers it until the first retransmission, a second later. And UDP hears of no
/// code but port and protocol unreachable.
#[allow(unsafe_code)] // rustix has no such option.
fn hear_icmp_errors(socket: &impl AsFd, family: AddressFamily) -> io::Result<()> {
    let (level, option) = if family == AddressFamily::INET {
        (libc::IPPROTO_IP, libc::IP_RECVERR)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
    };
    let on: libc::c_int = 1;
    // SAFETY: the pointer and the length describe `on`, which outlives the call, and the
    // descriptor is borrowed for it.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const on).cast(),
            mem::size_of_val(&on) as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
