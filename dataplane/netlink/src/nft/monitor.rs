//! A socket that tells what anybody commits to nf_tables.
//!
//! Owns the subscription and notices when some of it was lost. Never waits: the caller waits for
//! the descriptor to become readable, or lets a [`Watch`](super::Watch) do so, and then reads until
//! nothing is left. Changes nothing and remembers nothing.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::constants::*;
use super::notice::{Notice, parse_notice};
use super::reply::parse_messages;
use crate::Error;
use crate::socket::RawSocket;

/// The kernel fills no datagram of notifications beyond a page or two.
const RECEIVE_SIZE: usize = 64 << 10;
/// One commit's notifications queue up until the kernel is done with it. This is a bound, not an
/// allocation, and room for those of 100,000 elements.
const RECEIVE_BUFFER: libc::c_int = 32 << 20;
/// What is thrown away at a time after an overrun, so that no stream of notifications, however
/// fast, holds the caller.
const DRAIN_AT_A_TIME: usize = 10_000;

/// A subscription to the changes of one table, of whatever family, and to every generation.
pub struct Monitor {
    raw: RawSocket,
    table: String,
    buf: Box<[u8]>,
    overrun: bool,
}

impl Monitor {
    /// Subscribes in the network namespace of the calling thread. What is committed after this
    /// returns is told; what there was before is to be dumped.
    ///
    /// What the socket of the port `ignored` commits is not told: the kernel drops it before it is
    /// queued, so that the largest commit of our own causes no overrun. That socket must live as
    /// long as the subscription, since a stranger could get its port afterwards.
    pub fn open(table: &str, ignored: Option<u32>) -> Result<Self, Error> {
        let raw = RawSocket::open(RECEIVE_BUFFER)?;
        if let Some(port) = ignored {
            raw.ignore_port(port)?;
        }
        let buf = vec![0; RECEIVE_SIZE].into_boxed_slice();
        let monitor = Self { raw, table: table.to_owned(), buf, overrun: false };
        monitor.resume()?;
        Ok(monitor)
    }

    /// Reads one datagram and gives what it tells to `each`. False if none is queued: wait for the
    /// descriptor.
    ///
    /// After [`Error::Overrun`] some were lost, as after [`Error::Malformed`]: what the kernel holds
    /// is to be dumped. All that was queued is thrown away then, since it is older than that dump
    /// will be, and so that the kernel reports the next loss: it reports only the first until the
    /// queue has been empty.
    pub fn read(&mut self, each: &mut dyn FnMut(Notice<'_>)) -> Result<bool, Error> {
        if self.overrun {
            return self.drain();
        }
        let len = match self.raw.try_receive(&mut self.buf) {
            Ok(Some(len)) => len,
            Ok(None) => return Ok(false),
            Err(error) if is_overrun(&error) => return self.drain(),
            Err(error) => return Err(error),
        };
        for message in parse_messages(&self.buf[..len]) {
            if let Some(notice) = parse_notice(&message?, &self.table)? {
                each(notice);
            }
        }
        Ok(true)
    }

    /// See [`Subscription::pause`].
    pub fn pause(&self) -> Result<(), Error> {
        self.raw.unsubscribe(NFNLGRP_NFTABLES)
    }

    /// Subscribes again.
    pub fn resume(&self) -> Result<(), Error> {
        self.raw.subscribe(NFNLGRP_NFTABLES)
    }

    /// The same subscription, for whoever commits while another reads.
    pub fn subscription(&self) -> Result<Subscription, Error> {
        Ok(Subscription { raw: self.raw.duplicate()? })
    }

    /// Empties the queue, to be continued at the next call if it is too long.
    fn drain(&mut self) -> Result<bool, Error> {
        self.overrun = true;
        for _ in 0..DRAIN_AT_A_TIME {
            match self.raw.try_receive(&mut self.buf) {
                Ok(Some(_)) | Err(Error::Malformed { .. }) => {}
                Ok(None) => {
                    self.overrun = false;
                    break;
                }
                Err(error) if is_overrun(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Overrun)
    }
}

/// A handle to a [`Monitor`]'s subscription, which reads nothing.
pub struct Subscription {
    raw: RawSocket,
}

impl Subscription {
    /// Ends the subscription for a while, for a large commit of our own.
    ///
    /// As long as anybody is subscribed, the kernel holds a page for every object and element of a
    /// commit until all of it is done, even those no subscriber gets: 100,000 elements take 400 MB
    /// for a moment and almost twice the time. What is committed until [`Subscription::resume`] is
    /// not told, so the generations before and after are to be compared.
    pub fn pause(&self) -> Result<(), Error> {
        self.raw.unsubscribe(NFNLGRP_NFTABLES)
    }

    /// Subscribes again.
    pub fn resume(&self) -> Result<(), Error> {
        self.raw.subscribe(NFNLGRP_NFTABLES)
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_fd()
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.raw.as_fd().as_raw_fd()
    }
}

fn is_overrun(error: &Error) -> bool {
    matches!(error, Error::Socket { source, .. } if source.raw_os_error() == Some(libc::ENOBUFS))
}
