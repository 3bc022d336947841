//! The netlink socket: every system call of this crate, and its only unsafe code.
//!
//! Owns the descriptor and its buffer sizes. Sends and receives whole datagrams and looks into
//! none of them.

use std::io::{self, IoSlice};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::Error;

/// Acknowledgements and errors queue up while a batch runs; one error per refused message.
const RECEIVE_BUFFER: libc::c_int = 8 << 20;

/// A bound, blocking netlink socket.
pub(crate) struct RawSocket {
    fd: OwnedFd,
    send_buffer: usize,
}

impl RawSocket {
    /// Opens and binds a socket in the network namespace of the calling thread.
    pub(crate) fn open(protocol: libc::c_int) -> Result<Self, Error> {
        // SAFETY: no pointers; the result is checked.
        #[allow(unsafe_code)]
        let fd = unsafe {
            libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol)
        };
        if fd < 0 {
            return Err(last("open"));
        }
        // SAFETY: the descriptor was just opened and belongs to nobody else.
        #[allow(unsafe_code)]
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let socket = Self { fd, send_buffer: 0 };

        // CAP_ACK keeps a refused message of 60 KiB from being echoed back, EXT_ACK adds the offset
        // of the attribute at fault.
        socket
            .set(libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1)
            .map_err(|e| error("set CAP_ACK", e))?;
        socket
            .set(libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1)
            .map_err(|e| error("set EXT_ACK", e))?;
        socket
            .set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER)
            .or_else(|_| socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER))
            .map_err(|e| error("set the receive buffer", e))?;

        // SAFETY: sockaddr_nl is plain integers, all zero is a valid value (port chosen by the
        // kernel, no groups).
        #[allow(unsafe_code)]
        let mut address: libc::sockaddr_nl = unsafe { zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        // SAFETY: the pointer and the length describe `address`, which outlives the call.
        #[allow(unsafe_code)]
        let result = unsafe {
            libc::bind(
                socket.fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_nl>() as libc::socklen_t,
            )
        };
        if result < 0 { Err(last("bind")) } else { Ok(socket) }
    }

    /// Sends all parts as one datagram to the kernel, raising the send buffer above their size.
    pub(crate) fn send(&mut self, parts: &[IoSlice<'_>]) -> Result<(), Error> {
        let size: usize = parts.iter().map(|p| p.len()).sum();
        self.reserve(size)?;
        // SAFETY: msghdr is integers and pointers, all zero is valid: no name (an unconnected
        // netlink socket sends to the kernel), no control data.
        #[allow(unsafe_code)]
        let mut message: libc::msghdr = unsafe { zeroed() };
        // IoSlice is guaranteed to have the layout of iovec; sendmsg does not write through it.
        message.msg_iov = parts.as_ptr().cast_mut().cast();
        message.msg_iovlen = parts.len() as _;
        loop {
            // SAFETY: `message` points at `parts`, which outlive the call.
            #[allow(unsafe_code)]
            let sent = unsafe { libc::sendmsg(self.fd.as_raw_fd(), &raw const message, 0) };
            if sent >= 0 {
                // The kernel takes a netlink datagram whole or not at all.
                return Ok(());
            }
            let e = io::Error::last_os_error();
            // Sending to the kernel runs the request inside sendmsg and then returns its length,
            // so EINTR can only come from before that: sending again is safe.
            if e.kind() != io::ErrorKind::Interrupted {
                return Err(error("send", e));
            }
        }
    }

    /// Receives one datagram, waiting for it. Returns its length.
    pub(crate) fn receive(&self, buf: &mut [u8]) -> Result<usize, Error> {
        self.recv(buf, 0).map_err(|e| error("receive", e)).and_then(|n| fits(n, buf))
    }

    /// Receives one datagram if one is queued. Returns its length.
    pub(crate) fn try_receive(&self, buf: &mut [u8]) -> Result<Option<usize>, Error> {
        match self.recv(buf, libc::MSG_DONTWAIT) {
            Ok(n) => fits(n, buf).map(Some),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(error("receive", e)),
        }
    }

    fn recv(&self, buf: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
        loop {
            // MSG_TRUNC makes the kernel return the real length of a datagram larger than `buf`.
            // SAFETY: the pointer and the length describe `buf`, which is ours to write.
            #[allow(unsafe_code)]
            let n = unsafe {
                libc::recv(
                    self.fd.as_raw_fd(),
                    buf.as_mut_ptr().cast(),
                    buf.len(),
                    flags | libc::MSG_TRUNC,
                )
            };
            match usize::try_from(n) {
                Ok(n) => return Ok(n),
                Err(_) => {
                    let e = io::Error::last_os_error();
                    if e.kind() != io::ErrorKind::Interrupted {
                        return Err(e);
                    }
                }
            }
        }
    }

    fn reserve(&mut self, size: usize) -> Result<(), Error> {
        // netlink_sendmsg refuses more than the buffer less 32 bytes; the kernel doubles what is
        // asked, but that is not promised.
        let want = size + 4096;
        if want <= self.send_buffer {
            return Ok(());
        }
        let value = libc::c_int::try_from(want).unwrap_or(libc::c_int::MAX);
        self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, value)
            .or_else(|_| self.set(libc::SOL_SOCKET, libc::SO_SNDBUF, value))
            .map_err(|e| error("set the send buffer", e))?;
        self.send_buffer = want;
        Ok(())
    }

    fn set(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: the pointer and the length describe `value`, which outlives the call.
        #[allow(unsafe_code)]
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn fits(n: usize, buf: &[u8]) -> Result<usize, Error> {
    if n <= buf.len() {
        Ok(n)
    } else {
        Err(Error::Malformed { what: "datagram larger than the buffer" })
    }
}

fn last(action: &'static str) -> Error {
    error(action, io::Error::last_os_error())
}

fn error(action: &'static str, source: io::Error) -> Error {
    Error::Socket { action, source }
}
