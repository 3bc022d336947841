//! Sockets inside a namespace for threads outside of it.
//!
//! A socket belongs for good to the namespace it was made in, whoever uses it later. So one thread
//! stays inside and makes sockets to order, and the probe itself runs on the caller's thread: that
//! costs a channel round trip, and many callers can wait for answers at the same time.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with, sockopt};

use crate::{Namespace, Protocol};

/// The lowest port a UDP or SCTP probe is sent from; above what labs serve, and above the range of NodePorts:
/// the socket of a probe from the node must not be who answers there.
const FIRST_PORT: u16 = 32_768;
/// How many ports in a row may be taken.
const BIND_ATTEMPTS: usize = 100;

/// A source of sockets of one namespace. Its thread ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// None only while being dropped: closing the channel is what ends the thread.
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    ports: Arc<Ports>,
}

/// The ports that UDP and SCTP probes of one namespace leave from, in turn.
#[derive(Debug, Default)]
pub(crate) struct Ports(AtomicU32);

impl Ports {
    fn next(&self) -> u16 {
        let range = u32::from(u16::MAX - FIRST_PORT) + 1;
        // Less than the range, which has 16 bits.
        FIRST_PORT + (self.0.fetch_add(1, Ordering::Relaxed) % range) as u16
    }
}

#[derive(Debug)]
struct Order {
    family: AddressFamily,
    protocol: Protocol,
    reply: mpsc::SyncSender<io::Result<OwnedFd>>,
}

impl Sockets {
    pub(crate) fn of(namespace: &Namespace) -> Self {
        let (orders, taken) = mpsc::channel::<Order>();
        let ports = Arc::new(Ports::default());
        let shared = ports.clone();
        let thread = namespace.spawn(move || {
            for order in taken {
                // An order nobody waits for any more closes its socket right here.
                let _ = order.reply.send(make(order.family, order.protocol, &shared));
            }
        });
        Self { orders: Some(orders), thread: Some(thread), ports }
    }

    /// Where UDP and SCTP probes leave from, for those who make their sockets themselves.
    pub(crate) fn ports(&self) -> &Ports {
        &self.ports
    }

    /// A non-blocking socket that hears of ICMP errors.
    pub(crate) fn make(&self, family: AddressFamily, protocol: Protocol) -> io::Result<OwnedFd> {
        let gone = || io::Error::other("the thread that makes sockets has ended");
        let (reply, made) = mpsc::sync_channel(1);
        let order = Order { family, protocol, reply };
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

/// A non-blocking socket, in the namespace of the calling thread, that hears of ICMP errors.
pub(crate) fn make(
    family: AddressFamily,
    protocol: Protocol,
    ports: &Ports,
) -> io::Result<OwnedFd> {
    let socket = of_kind(family, protocol)?;
    hear_icmp_errors(&socket, family)?;
    if protocol == Protocol::Sctp && family == AddressFamily::INET6 {
        // It would offer the server all its addresses, those of IPv4 too.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    if protocol != Protocol::Tcp {
        bind_next(&socket, family, ports)?;
    }
    Ok(socket)
}

/// A non-blocking socket and nothing more.
pub(crate) fn of_kind(family: AddressFamily, protocol: Protocol) -> io::Result<OwnedFd> {
    let (kind, number) = match protocol {
        Protocol::Tcp => (SocketType::STREAM, ipproto::TCP),
        Protocol::Udp => (SocketType::DGRAM, ipproto::UDP),
        Protocol::Sctp => (SocketType::STREAM, ipproto::SCTP),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, kind, flags, Some(number))?)
}

/// Binds to a port that no probe has used for a long time. The kernel's own choice is random, and to
/// connection tracking a datagram from the port of an earlier one is more of the old flow: it would
/// reach whoever answered then, whatever the rules say now. (TCP's choice avoids ports in use, and tracking
/// knows a new connection from an old one; of SCTP neither is sure.)
fn bind_next(socket: &OwnedFd, family: AddressFamily, ports: &Ports) -> io::Result<()> {
    let any: IpAddr = match family {
        AddressFamily::INET => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    };
    for _ in 0..BIND_ATTEMPTS {
        match bind(socket, &SocketAddr::new(any, ports.next())) {
            Err(Errno::ADDRINUSE) => {}
            outcome => return Ok(outcome?),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// Sets `IP_RECVERR` or `IPV6_RECVERR`. On one machine an ICMP error can be back while `connect`
/// still holds the socket; without the option TCP then keeps it to itself until the first
/// retransmission (Linux 6.18, IPv6: every rejected connection took a second). And UDP hears of no
/// code but the few the kernel deems fatal.
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
