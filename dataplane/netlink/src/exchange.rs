//! Requests and the replies to them, over one socket.
//!
//! Owns the sequence numbers and the receive buffer: which reply belongs to which request, where a
//! dump ends and whether it is whole. Knows no message type; what a message means is the caller's.

use std::io::{self, IoSlice};

use crate::Error;
use crate::message::{
    self, Ack, Message, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, parse_ack, parse_messages,
};
use crate::socket::RawSocket;

/// The kernel sizes its dump datagrams by the largest buffer it was offered, up to 32 KiB.
const RECEIVE_SIZE: usize = 64 << 10;
/// Acknowledgements and errors queue up while a batch runs; one error per refused message.
const RECEIVE_BUFFER: libc::c_int = 8 << 20;

/// A netlink socket that asks and is answered.
pub(crate) struct Exchange {
    raw: RawSocket,
    seq: u32,
    buf: Box<[u8]>,
}

impl Exchange {
    /// Opens a socket to netfilter in the network namespace of the calling thread.
    pub(crate) fn open() -> Result<Self, Error> {
        Self::open_to(libc::NETLINK_NETFILTER)
    }

    /// The same to another of netlink's protocols.
    pub(crate) fn open_to(protocol: libc::c_int) -> Result<Self, Error> {
        let raw = RawSocket::open_to(protocol, RECEIVE_BUFFER)?;
        Ok(Self { raw, seq: 1, buf: vec![0; RECEIVE_SIZE].into_boxed_slice() })
    }

    /// The number the kernel knows the socket by.
    pub(crate) fn port(&self) -> u32 {
        self.raw.port()
    }

    /// Takes `count` sequence numbers; returns the first.
    pub(crate) fn take_seq(&mut self, count: u32) -> u32 {
        let seq = self.seq;
        self.seq = self.seq.wrapping_add(count);
        seq
    }

    /// Sends messages the caller numbered, as one datagram.
    pub(crate) fn send(&mut self, parts: &[IoSlice<'_>]) -> Result<(), Error> {
        self.raw.send(parts)
    }

    /// Sends one message; returns its number.
    pub(crate) fn request(
        &mut self,
        kind: u16,
        flags: u16,
        family: u8,
        attributes: impl FnOnce(&mut Vec<u8>),
    ) -> Result<u32, Error> {
        self.request_with(kind, flags, &[family, 0, 0, 0], attributes)
    }

    /// The same with another family's header.
    pub(crate) fn request_with(
        &mut self,
        kind: u16,
        flags: u16,
        header: &[u8],
        attributes: impl FnOnce(&mut Vec<u8>),
    ) -> Result<u32, Error> {
        let seq = self.take_seq(1);
        let mut request = Vec::new();
        let at = message::begin_with(&mut request, kind, flags, seq, header);
        attributes(&mut request);
        message::end(&mut request, at);
        self.raw.send(&[IoSlice::new(&request)])?;
        Ok(seq)
    }

    /// Waits for the one message of `kind` that answers `seq`.
    pub(crate) fn read_reply<T>(
        &mut self,
        seq: u32,
        kind: u16,
        parse: impl Fn(&Message<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            let len = self.raw.receive(&mut self.buf)?;
            for message in parse_messages(&self.buf[..len]) {
                let message = message?;
                match message.kind {
                    _ if message.seq != seq => {}
                    NLMSG_ERROR => return Err(refusal(parse_ack(&message)?)),
                    of if of == kind => return parse(&message),
                    _ => {}
                }
            }
        }
    }

    /// Waits for the acknowledgement of the message `seq`, which asked for one.
    pub(crate) fn read_ack(&mut self, seq: u32) -> Result<(), Error> {
        let mut outcome = Ok(());
        self.read_acks(seq, 1, 0, |_, ack| {
            if ack.errno != 0 {
                outcome = Err(refusal(ack));
            }
        })?;
        outcome
    }

    /// Gives each message of the dump asked for with `seq` to `each`, to its end.
    pub(crate) fn read_dump(
        &mut self,
        seq: u32,
        kind: u16,
        each: impl FnMut(&Message<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let result = self.read_to_done(seq, kind, each);
        if !matches!(result, Ok(()) | Err(Error::Interrupted)) {
            // The kernel makes the rest of a dump as it is read, and refuses the next one with
            // EBUSY until then.
            while let Ok(Some(_)) = self.raw.try_receive(&mut self.buf) {}
        }
        result
    }

    fn read_to_done(
        &mut self,
        seq: u32,
        kind: u16,
        mut each: impl FnMut(&Message<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut interrupted = false;
        loop {
            let len = self.raw.receive(&mut self.buf)?;
            for message in parse_messages(&self.buf[..len]) {
                let message = message?;
                if message.seq != seq {
                    continue;
                }
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.kind {
                    NLMSG_ERROR => return Err(refusal(parse_ack(&message)?)),
                    // DONE carries an error number like ERROR does, without the request.
                    NLMSG_DONE => {
                        let ack = parse_ack(&Message { flags: 0, ..message })?;
                        return match (ack.errno, interrupted) {
                            (0, false) => Ok(()),
                            (0, true) | (libc::EINTR, _) => Err(Error::Interrupted),
                            _ => Err(refusal(ack)),
                        };
                    }
                    of if of == kind => each(&message)?,
                    _ => {}
                }
            }
        }
    }

    /// Gives the answers to the `count` messages numbered from `first` to `each`, by index.
    ///
    /// The kernel runs requests inside sendmsg, so every answer is queued by now: one that is not
    /// there will never come, and waiting for it would hang. The answer to the message at `last`, the
    /// one that asked for it, comes last; fails if it got lost.
    pub(crate) fn read_acks(
        &mut self,
        first: u32,
        count: u32,
        last: u32,
        mut each: impl FnMut(u32, Ack),
    ) -> Result<(), Error> {
        let mut answered = false;
        while !answered && let Some(len) = self.raw.try_receive(&mut self.buf)? {
            for message in parse_messages(&self.buf[..len]) {
                let message = message?;
                // Anything past the last answers an older request.
                let index = message.seq.wrapping_sub(first);
                if message.kind == NLMSG_ERROR && index < count {
                    answered |= index == last;
                    each(index, parse_ack(&message)?);
                }
            }
        }
        if answered { Ok(()) } else { Err(lost()) }
    }
}

/// The error in which a refusal without a batch ends.
pub(crate) fn refusal(ack: Ack) -> Error {
    Error::Refused { op: None, errno: ack.errno, message: ack.message }
}

fn lost() -> Error {
    Error::Socket { action: "find the acknowledgement", source: io::ErrorKind::WouldBlock.into() }
}
