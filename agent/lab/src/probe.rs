//! Asking an address who answers there: one new socket, one question, one answer.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::net::{AddressFamily, connect, sockopt};

use crate::Answer;
use crate::sockets::Sockets;

/// How many bytes an answer may have; a host's name is not checked for length.
pub(crate) const LINE: usize = 512;

/// The transport a probe uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Connect, and read the line a server sends to whoever connects.
    Tcp,
    /// Send one datagram, and read the one it is answered with.
    Udp,
    /// Like TCP, on kernels that have it: one association, one line.
    Sctp,
}

/// A TCP connection to a lab server, kept open. It keeps working, or not, as its packets are
/// treated: whatever the node's rules say of new connections by then.
#[derive(Debug)]
pub struct Held {
    stream: TcpStream,
    patience: Duration,
    greeting: Answer,
}

impl Held {
    /// What the server said when the connection was opened.
    pub fn greeting(&self) -> &Answer {
        &self.greeting
    }

    /// Asks once more over the same connection. [`Answer::Failed`] once the other side has closed
    /// or reset it.
    pub fn say(&mut self) -> Answer {
        let deadline = Instant::now() + self.patience;
        match self.stream.write_all(b"\n") {
            Ok(()) => read_line(&self.stream, deadline).unwrap_or_else(Trouble::answer),
            Err(error) => Trouble::Later(error).answer(),
        }
    }
}

/// One question, see [`Lab::probe`](crate::Lab::probe).
pub(crate) fn probe(
    sockets: &Sockets,
    to: SocketAddr,
    protocol: Protocol,
    patience: Duration,
) -> Answer {
    let outcome = match protocol {
        Protocol::Tcp | Protocol::Sctp => {
            open(sockets, to, protocol, patience).map(|held| held.greeting)
        }
        Protocol::Udp => ask_udp(sockets, to, patience),
    };
    outcome.unwrap_or_else(Trouble::answer)
}

/// Connects and reads the first line. An SCTP socket of the one-to-one style takes the same calls as TCP's.
pub(crate) fn open(
    sockets: &Sockets,
    to: SocketAddr,
    protocol: Protocol,
    patience: Duration,
) -> Result<Held, Trouble> {
    let deadline = Instant::now() + patience;
    let socket = sockets.make(family(to), protocol).map_err(Trouble::Local)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(errno) => return Err(Trouble::connecting(errno)),
    }
    await_connection(&socket, deadline)?;
    let stream = TcpStream::from(socket);
    let greeting = read_line(&stream, deadline)?;
    Ok(Held { stream, patience, greeting })
}

fn await_connection(socket: &OwnedFd, deadline: Instant) -> Result<(), Trouble> {
    let events = wait_for(socket, PollFlags::OUT, deadline)?;
    let pending = sockopt::socket_error(socket).map_err(Trouble::later)?;
    pending.map_err(Trouble::later)?;
    // No error on the socket and yet an error to tell of: an ICMP error in the queue, see
    // `Sockets::make`. Nothing else enters it before the connection stands.
    if events.contains(PollFlags::ERR) {
        return Err(Trouble::later(Errno::CONNREFUSED));
    }
    Ok(())
}

fn ask_udp(sockets: &Sockets, to: SocketAddr, patience: Duration) -> Result<Answer, Trouble> {
    let deadline = Instant::now() + patience;
    let socket = sockets.make(family(to), Protocol::Udp).map_err(Trouble::Local)?;
    connect(&socket, &to).map_err(Trouble::connecting)?;
    let socket = UdpSocket::from(socket);
    match socket.send(b"\n") {
        Ok(_) => {}
        // The sender's output hook dropped it. If it also refused it, the refusal is on its way.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {}
        Err(error) => return Err(Trouble::Later(error)),
    }
    let mut buffer = [0; LINE];
    let length = loop {
        wait_for(&socket, PollFlags::IN, deadline)?;
        match socket.recv(&mut buffer) {
            Ok(length) => break length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(Trouble::Later(error)),
        }
    };
    Ok(Answer::parse(&String::from_utf8_lossy(&buffer[..length])))
}

fn read_line(stream: &TcpStream, deadline: Instant) -> Result<Answer, Trouble> {
    let mut line = Vec::with_capacity(LINE);
    let mut buffer = [0; LINE];
    while line.last() != Some(&b'\n') {
        if line.len() > LINE {
            return Err(Trouble::Local(io::Error::other("an endless line")));
        }
        wait_for(stream, PollFlags::IN, deadline)?;
        match read(stream, &mut buffer) {
            Ok(0) => {
                let closed = "closed before a whole line came";
                return Err(Trouble::Local(io::Error::other(closed)));
            }
            Ok(length) => line.extend_from_slice(&buffer[..length]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(Trouble::later(errno)),
        }
    }
    Ok(Answer::parse(&String::from_utf8_lossy(&line)))
}

/// Waits for one of `events`, or for an error, which poll reports unasked.
fn wait_for(
    socket: &impl AsFd,
    events: PollFlags,
    deadline: Instant,
) -> Result<PollFlags, Trouble> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Fails only for times beyond the range of the clock: wait without end then.
        let left = Timespec::try_from(left).ok();
        let mut waiting = [PollFd::new(socket, events)];
        match poll(&mut waiting, left.as_ref()) {
            Ok(0) => return Err(Trouble::TimeOut),
            Ok(_) => return Ok(waiting[0].revents()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Trouble::Local(errno.into())),
        }
    }
}

pub(crate) fn family(address: SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

/// Why a probe got no line.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The patience ran out.
    TimeOut,
    /// Nothing the network did.
    Local(io::Error),
    /// Reported once packets were on their way.
    Later(io::Error),
}

impl Trouble {
    pub(crate) fn later(errno: Errno) -> Self {
        Self::Later(errno.into())
    }

    /// From the call to connect itself. A lab has default routes, so no route means the prober has
    /// no address of that family: a mistake in the test, not a refusal.
    pub(crate) fn connecting(errno: Errno) -> Self {
        match errno {
            Errno::NETUNREACH | Errno::ADDRNOTAVAIL => Self::Local(errno.into()),
            _ => Self::Later(errno.into()),
        }
    }

    pub(crate) fn answer(self) -> Answer {
        match self {
            Self::TimeOut => Answer::Silent,
            Self::Local(error) => Answer::Failed(error.to_string()),
            Self::Later(error) => match Errno::from_io_error(&error) {
                Some(
                    Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::ACCESS,
                ) => Answer::Refused,
                // The kernel gave up before the caller did.
                Some(Errno::TIMEDOUT) => Answer::Silent,
                _ => Answer::Failed(error.to_string()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_network_said_counts_as_a_refusal() {
        for errno in [Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::NETUNREACH, Errno::ACCESS] {
            assert_eq!(Trouble::later(errno).answer(), Answer::Refused, "{errno}");
        }
        assert_eq!(Trouble::later(Errno::TIMEDOUT).answer(), Answer::Silent);
        for trouble in [
            Trouble::connecting(Errno::NETUNREACH),
            Trouble::later(Errno::CONNRESET),
            Trouble::Local(io::Error::other("x")),
        ] {
            let answer = trouble.answer();
            assert!(matches!(answer, Answer::Failed(_)), "{answer:?}");
        }
    }
}
