//! Dumps and deletions of tracked connections.
//!
//! Owns how they are asked for and how many at once. Keeps no entry; retries nothing but a filter
//! the kernel does not take. Calls block; the thread is the caller's business.

use std::io::IoSlice;

use super::constants::*;
use super::{Entry, Filter, parse_entry};
use crate::Error;
use crate::exchange::{Exchange, refusal};
use crate::message::{self, NLM_F_DUMP};

/// Deletions in one send. Each may be answered with an error, and all answers queue up before the
/// first is read: these take well under a megabyte of the receive buffer.
const DELETES_PER_SEND: usize = 512;

/// Entries that are kept in memory between a dump and their deletion, about 2 MB.
const FOUND_PER_DUMP: usize = 16 * 1024;

/// Dumps for one request. Together with the above more than any table holds.
const DUMPS: usize = 256;

/// A connection to connection tracking in one network namespace.
pub struct Socket {
    exchange: Exchange,
}

/// What a dump met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dumped {
    /// Entries the kernel sent.
    pub received: usize,
    /// Those of them that matched the filter.
    pub matched: usize,
}

/// What became of entries to delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Deleted now.
    pub deleted: usize,
    /// Gone already.
    pub gone: usize,
    /// Left in place, because a flow table forwards them until it lets go.
    pub offloaded: usize,
}

impl Socket {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { exchange: Exchange::open()? })
    }

    /// Gives every entry that matches to `each`, as it arrives.
    ///
    /// The kernel is asked to send only those where it can be (5.8 and later, and no IPv6 address);
    /// whatever it sends is compared here, so `each` sees only matches. Entries come and go during a
    /// dump, and one may be given twice. After [`Error::Interrupted`] some may not have been given:
    /// the dump is to be asked for again.
    pub fn entries(
        &mut self,
        filter: &Filter,
        each: &mut dyn FnMut(&Entry),
    ) -> Result<Dumped, Error> {
        match self.dump(filter, true, each) {
            // Refused before the first entry: nothing was given yet.
            Err(Error::Refused { errno: libc::EINVAL | libc::EOPNOTSUPP, .. }) => {
                tracing::debug!("connection filter refused, dumping without");
                self.dump(filter, false, each)
            }
            other => other,
        }
    }

    /// Deletes these entries, of protocols with ports. One that is gone, or whose tuple meanwhile
    /// belongs to a connection of another number, is counted and no error.
    ///
    /// After an error some may be deleted: what is left shows in the next dump.
    pub fn delete(&mut self, entries: &[Entry]) -> Result<Deleted, Error> {
        let mut total = Deleted::default();
        for some in entries.chunks(DELETES_PER_SEND) {
            let count = some.len() as u32;
            let first = self.exchange.take_seq(count);
            let mut request = Vec::with_capacity(some.len() * 128);
            let mut last = 0;
            for (seq, entry) in (0..count).map(|n| first.wrapping_add(n)).zip(some) {
                let (kind, family) = (ct_kind(IPCTNL_MSG_CT_DELETE), entry.family().nfproto());
                last = message::begin(&mut request, kind, 0, seq, family, 0);
                entry.encode_name(&mut request);
                message::end(&mut request, last);
            }
            // The kernel works through them in order, answers those that fail, and this one.
            message::set_ack(&mut request, last, true);
            self.exchange.send(&[IoSlice::new(&request)])?;

            let mut failed = None;
            self.exchange.read_acks(first, count, count - 1, |_, ack| match ack.errno {
                0 => {}
                libc::ENOENT => total.gone += 1,
                libc::EBUSY => total.offloaded += 1,
                _ => failed = failed.take().or(Some(ack)),
            })?;
            if let Some(ack) = failed {
                return Err(refusal(ack));
            }
        }
        total.deleted = entries.len() - total.gone - total.offloaded;
        Ok(total)
    }

    /// Deletes the entries that match and that `doomed` says so of, a bounded number at a time.
    pub fn delete_matching(
        &mut self,
        filter: &Filter,
        doomed: &mut dyn FnMut(&Entry) -> bool,
    ) -> Result<Deleted, Error> {
        let mut total = Deleted::default();
        for _ in 0..DUMPS {
            let mut found = Vec::new();
            self.entries(filter, &mut |entry| {
                if found.len() < FOUND_PER_DUMP && doomed(entry) {
                    found.push(*entry);
                }
            })?;
            let some = self.delete(&found)?;
            total.deleted += some.deleted;
            total.gone += some.gone;
            total.offloaded += some.offloaded;
            // What stays in place would be found again and again.
            if found.len() < FOUND_PER_DUMP || some.deleted == 0 {
                break;
            }
        }
        Ok(total)
    }

    fn dump(
        &mut self,
        filter: &Filter,
        in_kernel: bool,
        each: &mut dyn FnMut(&Entry),
    ) -> Result<Dumped, Error> {
        let family = filter.family.nfproto();
        let kind = ct_kind(IPCTNL_MSG_CT_GET);
        let seq = self.exchange.request(kind, NLM_F_DUMP, family, |buf| {
            if in_kernel {
                filter.encode(buf);
            }
        })?;
        let mut dumped = Dumped::default();
        self.exchange.read_dump(seq, ct_kind(IPCTNL_MSG_CT_NEW), |message| {
            let entry = parse_entry(message)?;
            dumped.received += 1;
            if filter.matches(&entry) {
                dumped.matched += 1;
                each(&entry);
            }
            Ok(())
        })?;
        Ok(dumped)
    }
}

fn ct_kind(verb: u16) -> u16 {
    NFNL_SUBSYS_CTNETLINK << 8 | verb
}
