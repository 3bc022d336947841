//! Listening sockets that wait for their place.
//!
//! A port may be somebody else's when a Service asks for it, an address may not be usable yet, and the
//! process may be out of file descriptors. None of that is an error to give up on: it is told once and
//! tried again, with longer and longer pauses, and nothing here ever spins.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tracing::warn;

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 1024;

/// Tries made in quick succession before anybody is told: a listener that was closed a moment ago may
/// still have the place.
const QUIET_TRIES: u32 = 3;
const QUICK: Duration = Duration::from_millis(50);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// How long accepting pauses while file descriptors or memory are short.
const SHORTAGE: Duration = Duration::from_millis(100);

/// A task that ends with its owner.
#[derive(Debug)]
pub(crate) struct Task(AbortHandle);

impl From<AbortHandle> for Task {
    fn from(handle: AbortHandle) -> Self {
        Self(handle)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A TCP listener on an address, or on all addresses of one family.
pub(crate) fn tcp(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(at, SocketType::STREAM)?;
    // A connection of a predecessor that is still closing does not keep the port.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &at)?;
    listen(&socket, BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// A UDP socket on an address.
pub(crate) fn udp(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket(at, SocketType::DGRAM)?;
    bind(&socket, &at)?;
    UdpSocket::from_std(socket.into())
}

fn socket(at: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = match at.ip() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, kind, flags, None)?;
    if at.is_ipv6() {
        // IPv4 has a listener of its own.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

/// Opens as often as it takes. `failed` hears of a failure that lasts, and again when it becomes
/// another one. A node without IPv6 is no failure.
pub(crate) async fn opened<T>(
    open: impl Fn() -> io::Result<T>,
    mut failed: impl FnMut(io::Error),
) -> T {
    let mut told = None;
    let mut wait = FIRST_RETRY;
    for attempt in 1.. {
        match open() {
            Ok(opened) => return opened,
            Err(_) if attempt < QUIET_TRIES => {
                sleep(QUICK).await;
                continue;
            }
            Err(error) => {
                let errno = Errno::from_io_error(&error);
                if errno != Some(Errno::AFNOSUPPORT) && told != Some(errno) {
                    told = Some(errno);
                    failed(error);
                }
            }
        }
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_RETRY);
    }
    unreachable!("the attempts never end")
}

/// The next connection. A shortage of file descriptors or memory leaves it waiting in the kernel.
pub(crate) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let mut told = false;
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            // accept(2): an error of the connection itself, which is gone already.
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                if !told {
                    warn!(%error, at = ?listener.local_addr().ok(), "cannot accept connections");
                    told = true;
                }
                sleep(SHORTAGE).await;
            }
        }
    }
}

fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

#[cfg(test)]
pub(crate) mod tests;
