//! Requests to the kernel and their answers.
//!
//! Owns what is asked and when an answer counts as whole. Keeps no copy of what it read and retries
//! no batch: what to do after an error is the caller's choice. Calls block, a commit for as long as
//! the kernel takes; the thread is the caller's business.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::IoSlice;

use super::constants::*;
use super::reply::{self, ChainInfo, DumpedElement, Message, RuleInfo, SetInfo, TableInfo};
use super::{Batch, Element, Family};
use crate::Error;
use crate::attr;
use crate::exchange::Exchange;
use crate::message::{Ack, NLM_F_DUMP};

/// How often a dump torn by a change is begun again.
const DUMP_ATTEMPTS: usize = 5;

/// A connection to nf_tables in one network namespace.
pub struct Socket {
    exchange: Exchange,
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
        Ok(Self { exchange: Exchange::open()?, tolerant: false })
    }

    /// The number the kernel knows this socket by. A [`Notice`](super::Notice) of what this socket
    /// committed carries it; no other socket in the network namespace has it at the same time.
    pub fn port(&self) -> u32 {
        self.exchange.port()
    }

    /// Sends the batch as one transaction and waits until it landed or was refused.
    ///
    /// An empty batch is not sent. The batch can be sent again, and may grow in between.
    pub fn commit(&mut self, batch: &mut Batch) -> Result<Committed, Error> {
        let (messages, ops) = (batch.messages(), batch.len());
        if batch.is_empty() {
            return Ok(Committed { bytes: 0, messages, ops });
        }
        let first = self.exchange.take_seq(messages as u32 + 2);
        let (begin, body, end) = batch.seal(first);
        let bytes = begin.len() + body.len() + end.len();
        let parts = [IoSlice::new(&begin), IoSlice::new(body), IoSlice::new(&end)];
        self.exchange.send(&parts)?;
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
        let seq = self.exchange.request(nft_kind(NFT_MSG_GETGEN), 0, 0, |_| {})?;
        self.exchange.read_reply(seq, nft_kind(NFT_MSG_NEWGEN), reply::parse_generation)
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
        let mut chains: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
        for rule in self.rule_list(family, table)? {
            chains.entry(rule.chain).or_default().push(rule.comment);
        }
        Ok(chains)
    }

    /// Every rule of a table, in order within its chain.
    pub fn rule_list(&mut self, family: Family, table: &str) -> Result<Vec<RuleInfo>, Error> {
        let filter = |buf: &mut Vec<u8>| attr::put_str(buf, NFTA_RULE_TABLE, table);
        self.dump_table(NFT_MSG_GETRULE, family, filter, |message| {
            let rule = reply::parse_rule(message)?;
            Ok((rule.family == Some(family) && rule.table == table).then_some(rule))
        })
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

    /// One element of a set, as `read` understands it; none if it is not there, or the set is not.
    pub fn element<T>(
        &mut self,
        family: Family,
        table: &str,
        set: &str,
        key: &[u8],
        read: impl Fn(&DumpedElement<'_>) -> T,
    ) -> Result<Option<T>, Error> {
        let wanted = Element { key, key_end: None, data: None, timeout: None, comment: None };
        let ask = |buf: &mut Vec<u8>| {
            attr::put_str(buf, NFTA_SET_ELEM_LIST_TABLE, table);
            attr::put_str(buf, NFTA_SET_ELEM_LIST_SET, set);
            let at = attr::nest(buf, NFTA_SET_ELEM_LIST_ELEMENTS);
            wanted.encode(buf);
            attr::end_nest(buf, at);
        };
        let seq = self.exchange.request(nft_kind(NFT_MSG_GETSETELEM), 0, family.nfproto(), ask)?;
        let found = self.exchange.read_reply(seq, nft_kind(NFT_MSG_NEWSETELEM), |message| {
            let mut found = None;
            reply::parse_elements(message, &mut |element| found = Some(read(&element)))?;
            Ok(found)
        });
        match found {
            Err(Error::Refused { errno: libc::ENOENT, .. }) => Ok(None),
            found => found,
        }
    }

    /// Reads what the batch numbered from `first` met.
    fn read_outcome(&mut self, batch: &Batch, first: u32) -> Result<(), Error> {
        // 0 is BATCH_BEGIN. The last operation asks for the answer, not BATCH_END: before 6.10
        // that one is never acknowledged.
        let last = batch.messages() as u32;
        let mut refused: Option<Error> = None;
        let read = self.exchange.read_acks(first, last + 2, last, |index, ack| {
            // Later errors are often only consequences of the first.
            if ack.errno != 0 && refused.is_none() {
                refused = Some(batch_error(batch, index, ack));
            }
        });
        refused.map_or(read, Err)
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
        let seq = self.exchange.request(nft_kind(verb), NLM_F_DUMP, family, filter)?;
        // GET is followed by DEL and preceded by NEW, the verb of the replies, for every object.
        self.exchange.read_dump(seq, nft_kind(verb - 1), each)?;
        let whole = self.tolerant || self.generation()? == before;
        if whole { Ok(()) } else { Err(Error::Interrupted) }
    }
}

fn nft_kind(verb: u16) -> u16 {
    NFNL_SUBSYS_NFTABLES << 8 | verb
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
