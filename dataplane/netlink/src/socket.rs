//! The netlink socket: every system call of this crate, and its only unsafe code.
//!
//! Owns the descriptor and its buffer sizes. Sends and receives whole datagrams and looks into
//! none of them; the kernel may be asked to drop some by their header.

use std::io::{self, IoSlice};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::Error;

/// Where in a netlink header the port is.
const NLMSG_PID_OFFSET: u32 = 12;

/// A bound, blocking netlink socket.
pub(crate) struct RawSocket {
    fd: OwnedFd,
    port: u32,
    send_buffer: usize,
}

impl RawSocket {
    /// Opens and binds a socket to netfilter in the network namespace of the calling thread. As many
    /// bytes as `receive_buffer` may queue up before they are read; where we may not have that many,
    /// as many as the system lets us.
    pub(crate) fn open(receive_buffer: libc::c_int) -> Result<Self, Error> {
        Self::open_to(libc::NETLINK_NETFILTER, receive_buffer)
    }

    /// The same to another of netlink's protocols.
    pub(crate) fn open_to(
        protocol: libc::c_int,
        receive_buffer: libc::c_int,
    ) -> Result<Self, Error> {
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
        let mut socket = Self { fd, port: 0, send_buffer: 0 };

        // CAP_ACK keeps a refused message of 60 KiB from being echoed back, EXT_ACK adds the offset
        // of the attribute at fault.
        socket
            .set(libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1)
            .map_err(|e| error("set CAP_ACK", e))?;
        socket
            .set(libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1)
            .map_err(|e| error("set EXT_ACK", e))?;
        socket
            .set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, receive_buffer)
            .or_else(|_| socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, receive_buffer))
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
        if result < 0 {
            return Err(last("bind"));
        }
        let mut length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: the pointers describe `address` and `length`, which outlive the call; the kernel
        // writes no more than `length` bytes.
        #[allow(unsafe_code)]
        let result = unsafe {
            libc::getsockname(socket.fd.as_raw_fd(), (&raw mut address).cast(), &raw mut length)
        };
        if result < 0 {
            return Err(last("read the port of"));
        }
        socket.port = address.nl_pid;
        Ok(socket)
    }

    /// Another descriptor of the same socket.
    pub(crate) fn duplicate(&self) -> Result<Self, Error> {
        let fd = self.fd.try_clone().map_err(|e| error("duplicate", e))?;
        Ok(Self { fd, port: self.port, send_buffer: self.send_buffer })
    }

    /// The number the kernel knows this socket by, unique in its network namespace.
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// Asks for the messages the kernel sends to a group.
    pub(crate) fn subscribe(&self, group: libc::c_int) -> Result<(), Error> {
        self.set(libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group)
            .map_err(|e| error("subscribe", e))
    }

    /// Asks for no more of them.
    pub(crate) fn unsubscribe(&self, group: libc::c_int) -> Result<(), Error> {
        self.set(libc::SOL_NETLINK, libc::NETLINK_DROP_MEMBERSHIP, group)
            .map_err(|e| error("unsubscribe", e))
    }

    /// Keeps messages from being queued that tell of what the socket with this port did.
    pub(crate) fn ignore_port(&self, port: u32) -> Result<(), Error> {
        // Classic BPF reads words in network order; a netlink header is in host order.
        let (at, port) = (NLMSG_PID_OFFSET, u32::from_be_bytes(port.to_ne_bytes()));
        let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut program = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, port),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // The kernel copies the program during the call; both outlive it.
        self.set_option(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
            .map_err(|e| error("attach a filter", e))
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
        self.set_option(level, name, &value)
    }

    /// `T` must be what the option's documentation asks for.
    fn set_option<T>(&self, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
        // SAFETY: the pointer and the length describe `value`, which outlives the call.
        #[allow(unsafe_code)]
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                name,
                (value as *const T).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for RawSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
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
