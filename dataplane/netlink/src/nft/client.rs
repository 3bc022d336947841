//! Requests to the kernel and their answers.
//!
//! Owns the sequence numbers, the reading of acknowledgements and the walking of dumps. Keeps no
//! copy of what it read and retries no batch: what to do after an error is the caller's choice.
//! Calls block, a commit for as long as the kernel takes; the thread is the caller's business.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice};

use super::constants::*;
use super::reply::{self, ChainInfo, DumpedElement, Message, SetInfo, TableInfo};
use super::{Batch, Family};
use crate::Error;
use crate::attr;
use crate::message::{self, Ack, NLM_F_DUMP, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR};
use crate::socket::RawSocket;

/// The kernel sizes its dump datagrams by the largest buffer it was offered, up to 32 KiB.
const RECEIVE_SIZE: usize = 64 << 10;
/// How often a dump torn by a change is begun again.
const DUMP_ATTEMPTS: usize = 5;

/// A connection to nf_tables in one network namespace.
pub struct Socket {
    raw: RawSocket,
    seq: u32,
    buf: Box<[u8]>,
    tolerant: bool,
}

/// What a commit sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Bytes on the socket.
    pub bytes: usize,
    /// Messages between begin and end of the batch.
    pub messages: usize,
    /// Operations.
    pub ops: usize,
}

impl Socket {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> Result<Self, Error> {
        let raw = RawSocket::open(libc::NETLINK_NETFILTER)?;
        let buf = vec![0; RECEIVE_SIZE].into_boxed_slice();
        Ok(Self { raw, seq: 1, buf, tolerant: false })
    }

    /// Sends the batch as one transaction and waits until it landed or was refused.
    ///
    /// An empty batch is not sent. The batch can be sent again, and may grow in between.
    pub fn commit(&mut self, batch: &mut Batch) -> Result<Committed, Error> {
        let (messages, ops) = (batch.messages(), batch.len());
        if batch.is_empty() {
            return Ok(Committed { bytes: 0, messages, ops });
        }
        let first = self.next_seq(messages as u32 + 2);
        let (begin, body, end) = batch.seal(first);
        let bytes = begin.len() + body.len() + end.len();
        let parts = [IoSlice::new(&begin), IoSlice::new(body), IoSlice::new(&end)];
        self.raw.send(&parts)?;
        self.read_outcome(batch, first)?;
        tracing::trace!(bytes, messages, ops, "batch committed");
        Ok(Committed { bytes, messages, ops })
    }

    /// Whether a dump may go on while the generation rises. It rises with every change of any table, so
    /// where others never rest a long dump would never end. What was dumped may then be torn by a change
    /// of the very table that is read.
    pub fn tolerate_changes(&mut self, tolerant: bool) {
        self.tolerant = tolerant;
    }

    /// The ruleset's generation, which every committed batch raises.
    pub fn generation(&mut self) -> Result<u32, Error> {
        let seq = self.request(NFT_MSG_GETGEN, 0, 0, |_| {})?;
        loop {
            let len = self.raw.receive(&mut self.buf)?;
            for message in reply::parse_messages(&self.buf[..len]) {
                let message = message?;
                match message.kind {
                    _ if message.seq != seq => {}
                    NLMSG_ERROR => return Err(refusal(reply::parse_ack(&message)?)),
                    kind if kind == nft_kind(NFT_MSG_NEWGEN) => {
                        return reply::parse_generation(&message);
                    }
                    _ => {}
                }
            }
        }
    }

    /// The tables of both families.
    pub fn tables(&mut self) -> Result<Vec<TableInfo>, Error> {
        self.dump_all(
            NFT_MSG_GETTABLE,
            0,
            |_| {},
            |message| {
                let table = reply::parse_table(message)?;
                Ok(table.family.is_some().then_some(table))
            },
        )
    }

    /// The sets and maps of a table; none if there is no such table.
    pub fn sets(&mut self, family: Family, table: &str) -> Result<Vec<SetInfo>, Error> {
        let filter = |buf: &mut Vec<u8>| attr::put_str(buf, NFTA_SET_TABLE, table);
        self.dump_table(NFT_MSG_GETSET, family, filter, |message| {
            let set = reply::parse_set(message)?;
            Ok((set.family == Some(family) && set.table == table).then_some(set))
        })
    }

    /// The chains of a table; none if there is no such table.
    pub fn chains(&mut self, family: Family, table: &str) -> Result<Vec<ChainInfo>, Error> {
        let filter = |buf: &mut Vec<u8>| attr::put_str(buf, NFTA_CHAIN_TABLE, table);
        self.dump_table(NFT_MSG_GETCHAIN, family, filter, |message| {
            let chain = reply::parse_chain(message)?;
            Ok((chain.family == Some(family) && chain.table == table).then_some(chain))
        })
    }

    /// The comments of every chain's rules, in order. Chains without rules are not listed.
    pub fn rules(
        &mut self,
        family: Family,
        table: &str,
    ) -> Result<BTreeMap<String, Vec<Option<String>>>, Error> {
        let filter = |buf: &mut Vec<u8>| attr::put_str(buf, NFTA_RULE_TABLE, table);
        let rules = self.dump_table(NFT_MSG_GETRULE, family, filter, |message| {
            let rule = reply::parse_rule(message)?;
            Ok((rule.family == Some(family) && rule.table == table).then_some(rule))
        })?;
        let mut chains: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
        for rule in rules {
            chains.entry(rule.chain).or_default().push(rule.comment);
        }
        Ok(chains)
    }

    /// Gives every element of a set to `each`, as it arrives.
    ///
    /// Elements are not kept, so a torn dump is not begun again here: after [`Error::Interrupted`]
    /// what `each` saw is to be thrown away and the dump asked for again, best a few milliseconds
    /// later. A missing set is `Refused` with ENOENT.
    ///
    /// A hash set may tear a dump with no change of generation: after many additions or deletions
    /// the kernel resizes the table from a worker, while each 32 KiB of the dump walks it anew and
    /// skips as many elements as it already sent. Elements are then sent twice and as many others
    /// not at all (seen on 6.18 in a quarter of dumps right after adding 1,000 to 20,000). Every
    /// omission comes with a repetition, so a key met twice is how that is noticed. Elements that
    /// expire or that packets add change neither generation nor that count: a dump of a dynamic set
    /// or one with timeouts is a sample, not a basis for a diff.
    pub fn elements(
        &mut self,
        family: Family,
        table: &str,
        set: &str,
        each: &mut dyn FnMut(DumpedElement<'_>),
    ) -> Result<(), Error> {
        // Eight bytes each, not the keys. Seeded anew per dump, lest a collision be permanent.
        let seed = RandomState::new();
        let mut seen = Vec::new();
        let filter = |buf: &mut Vec<u8>| {
            attr::put_str(buf, NFTA_SET_ELEM_LIST_TABLE, table);
            attr::put_str(buf, NFTA_SET_ELEM_LIST_SET, set);
        };
        self.dump(NFT_MSG_GETSETELEM, family.nfproto(), filter, |message| {
            reply::parse_elements(message, &mut |element| {
                // Where one single interval ends another may start, under the same key.
                seen.push(seed.hash_one((element.key, element.interval_end)));
                each(element);
            })
        })?;
        seen.sort_unstable();
        let repeated = seen.windows(2).any(|pair| pair[0] == pair[1]);
        if repeated { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Reads what the batch numbered from `first` met.
    ///
    /// nfnetlink runs a batch inside sendmsg, so every reply is queued by now: one that is not
    /// there will never come, and waiting for it would hang (the ack of BATCH_END needs 6.10).
    fn read_outcome(&mut self, batch: &Batch, first: u32) -> Result<(), Error> {
        let last = batch.messages() as u32;
        let mut acknowledged = false;
        let mut refused: Option<Error> = None;
        while let Some(len) = self.raw.try_receive(&mut self.buf)? {
            for message in reply::parse_messages(&self.buf[..len]) {
                let message = message?;
                // 0 is BATCH_BEGIN; anything past BATCH_END answers an older request.
                let index = message.seq.wrapping_sub(first);
                if message.kind != NLMSG_ERROR || index > last + 1 {
                    continue;
                }
                let ack = reply::parse_ack(&message)?;
                if ack.errno == 0 {
                    acknowledged |= index == last;
                } else if refused.is_none() {
                    // Later errors are often only consequences of the first.
                    refused = Some(batch_error(batch, index, ack));
                }
            }
        }
        match (refused, acknowledged) {
            (Some(error), _) => Err(error),
            (None, true) => Ok(()),
            (None, false) => Err(Error::Socket {
                action: "find the acknowledgement",
                source: io::ErrorKind::WouldBlock.into(),
            }),
        }
    }

    fn dump_table<T>(
        &mut self,
        verb: u16,
        family: Family,
        filter: impl Fn(&mut Vec<u8>),
        parse: impl Fn(&Message<'_>) -> Result<Option<T>, Error>,
    ) -> Result<Vec<T>, Error> {
        match self.dump_all(verb, family.nfproto(), filter, parse) {
            Err(Error::Refused { errno: libc::ENOENT, .. }) => Ok(Vec::new()),
            other => other,
        }
    }

    fn dump_all<T>(
        &mut self,
        verb: u16,
        family: u8,
        filter: impl Fn(&mut Vec<u8>),
        parse: impl Fn(&Message<'_>) -> Result<Option<T>, Error>,
    ) -> Result<Vec<T>, Error> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut all = Vec::new();
            let result = self.dump(verb, family, &filter, |message| {
                all.extend(parse(message)?);
                Ok(())
            });
            match result {
                Err(Error::Interrupted) => tracing::debug!(verb, "dump interrupted, again"),
                Err(error) => return Err(error),
                Ok(()) => return Ok(all),
            }
        }
        Err(Error::Interrupted)
    }

    /// Requests one dump and gives each of its messages to `each`.
    ///
    /// NLM_F_DUMP_INTR alone does not tell a torn dump: 6.18 never sets it when dumping elements
    /// (`nf_tables_dump_set` lacks the check the other dumps have), so the generations before and
    /// after are compared as well.
    fn dump(
        &mut self,
        verb: u16,
        family: u8,
        filter: impl Fn(&mut Vec<u8>),
        each: impl FnMut(&Message<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let before = self.generation()?;
        let seq = self.request(verb, NLM_F_DUMP, family, filter)?;
        // GET is followed by DEL and preceded by NEW, the verb of the replies, for every object.
        let result = self.read_dump(seq, nft_kind(verb - 1), each);
        if !matches!(result, Ok(()) | Err(Error::Interrupted)) {
            // The kernel makes the rest of a dump as it is read, and refuses the next one with
            // EBUSY until then.
            while let Ok(Some(_)) = self.raw.try_receive(&mut self.buf) {}
        }
        result?;
        let whole = self.tolerant || self.generation()? == before;
        if whole { Ok(()) } else { Err(Error::Interrupted) }
    }

    fn read_dump(
        &mut self,
        seq: u32,
        kind: u16,
        mut each: impl FnMut(&Message<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut interrupted = false;
        loop {
            let len = self.raw.receive(&mut self.buf)?;
            for message in reply::parse_messages(&self.buf[..len]) {
                let message = message?;
                if message.seq != seq {
                    continue;
                }
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.kind {
                    NLMSG_ERROR => return Err(refusal(reply::parse_ack(&message)?)),
                    // DONE carries an error number like ERROR does, without the request.
                    NLMSG_DONE => {
                        let ack = reply::parse_ack(&Message { flags: 0, ..message })?;
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

    fn request(
        &mut self,
        verb: u16,
        flags: u16,
        family: u8,
        attributes: impl FnOnce(&mut Vec<u8>),
    ) -> Result<u32, Error> {
        let seq = self.next_seq(1);
        let mut request = Vec::new();
        let at = message::begin(&mut request, nft_kind(verb), flags, seq, family, 0);
        attributes(&mut request);
        message::end(&mut request, at);
        self.raw.send(&[IoSlice::new(&request)])?;
        Ok(seq)
    }

    fn next_seq(&mut self, count: u32) -> u32 {
        let seq = self.seq;
        self.seq = self.seq.wrapping_add(count);
        seq
    }
}

fn nft_kind(verb: u16) -> u16 {
    NFNL_SUBSYS_NFTABLES << 8 | verb
}

fn refusal(ack: Ack) -> Error {
    Error::Refused { op: None, errno: ack.errno, message: ack.message }
}

/// The error of the message `index` places after BATCH_BEGIN.
fn batch_error(batch: &Batch, index: u32, ack: Ack) -> Error {
    // nfnetlink answers BATCH_BEGIN with ERESTART if its generation is not the ruleset's.
    if ack.errno == libc::ERESTART && index == 0 {
        return Error::StaleGeneration;
    }
    let message = (index as usize).checked_sub(1);
    let op = message.and_then(|message| batch.locate(message, ack.offset));
    Error::Refused { op, errno: ack.errno, message: ack.message }
}
