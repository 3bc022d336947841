//! The builder of one transaction.
//!
//! Owns the bytes of every operation in order, and the way back from a byte in a message to the
//! operation it belongs to. Sends nothing and reorders nothing: the kernel applies operations in
//! the order of calls, all or none.

use super::constants::*;
use super::{ChainSpec, Element, Expr, Family, OpId, SetSpec, userdata};
use crate::attr;
use crate::message::{self, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL};

/// Bytes of BATCH_BEGIN with a generation, and of BATCH_END.
const FRAME: usize = 28 + 20;

/// Operations on nf_tables that land together or not at all.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    buf: Vec<u8>,
    messages: Vec<MessageMark>,
    /// Where each operation starts, counted from the start of its message.
    offsets: Vec<u32>,
    generation: Option<u32>,
    /// The elements message at the end of the buffer, while more elements may join it.
    open: Option<OpenElements>,
}

#[derive(Debug, PartialEq, Eq)]
struct MessageMark {
    start: usize,
    first_op: u32,
}

#[derive(Debug, PartialEq, Eq)]
struct OpenElements {
    verb: u16,
    family: Family,
    table: String,
    set: String,
    nest: usize,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the kernel refuse the batch unless the ruleset is at this generation.
    pub fn expect_generation(&mut self, generation: u32) {
        self.generation = Some(generation);
    }

    /// Whether it holds no operation.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// How many operations it holds.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// How many bytes it takes to send.
    pub fn bytes(&self) -> usize {
        self.buf.len() + FRAME
    }

    /// How many netlink messages carry its operations.
    pub fn messages(&self) -> usize {
        self.messages.len()
    }

    /// `add table ip t { comment "..." }`. An existing table is kept, comment and all.
    pub fn add_table(&mut self, family: Family, table: &str, comment: Option<&str>) -> OpId {
        self.single(NFT_MSG_NEWTABLE, NLM_F_CREATE, family, |buf, _| {
            attr::put_str(buf, NFTA_TABLE_NAME, table);
            if let Some(comment) = comment {
                let bytes = userdata::comment(NFTNL_UDATA_TABLE_COMMENT, comment);
                attr::put(buf, NFTA_TABLE_USERDATA, &bytes);
            }
        })
    }

    /// `add table ip t { flags owner; }`: it goes when this socket is closed, however that comes about.
    pub fn add_owned_table(&mut self, family: Family, table: &str) -> OpId {
        self.single(NFT_MSG_NEWTABLE, NLM_F_CREATE, family, |buf, _| {
            attr::put_str(buf, NFTA_TABLE_NAME, table);
            attr::put_u32(buf, NFTA_TABLE_FLAGS, NFT_TABLE_F_OWNER);
        })
    }

    /// `delete table ip t`, with all it holds.
    pub fn delete_table(&mut self, family: Family, table: &str) -> OpId {
        self.single(NFT_MSG_DELTABLE, 0, family, |buf, _| {
            attr::put_str(buf, NFTA_TABLE_NAME, table);
        })
    }

    /// `add set ip t s { ... }` or `add map ...`. An existing set of the same shape is kept.
    pub fn add_set(&mut self, family: Family, table: &str, set: &SetSpec) -> OpId {
        self.single(NFT_MSG_NEWSET, NLM_F_CREATE, family, |buf, op| {
            attr::put_str(buf, NFTA_SET_TABLE, table);
            set.encode(buf, op.0.wrapping_add(1));
        })
    }

    /// `delete set ip t s`. Refused while a rule refers to it.
    pub fn delete_set(&mut self, family: Family, table: &str, set: &str) -> OpId {
        self.single(NFT_MSG_DELSET, 0, family, |buf, _| {
            attr::put_str(buf, NFTA_SET_TABLE, table);
            attr::put_str(buf, NFTA_SET_NAME, set);
        })
    }

    /// `add chain ip t c { ... }`. An existing chain is kept, comment and all.
    pub fn add_chain(&mut self, family: Family, table: &str, chain: &ChainSpec) -> OpId {
        self.single(NFT_MSG_NEWCHAIN, NLM_F_CREATE, family, |buf, _| {
            attr::put_str(buf, NFTA_CHAIN_TABLE, table);
            chain.encode(buf);
        })
    }

    /// `delete chain ip t c`. Refused while a rule or an element refers to it.
    pub fn delete_chain(&mut self, family: Family, table: &str, chain: &str) -> OpId {
        self.single(NFT_MSG_DELCHAIN, 0, family, |buf, _| {
            attr::put_str(buf, NFTA_CHAIN_TABLE, table);
            attr::put_str(buf, NFTA_CHAIN_NAME, chain);
        })
    }

    /// `flush chain ip t c`: deletes its rules, those added earlier in this batch too.
    pub fn flush_chain(&mut self, family: Family, table: &str, chain: &str) -> OpId {
        self.single(NFT_MSG_DELRULE, 0, family, |buf, _| {
            attr::put_str(buf, NFTA_RULE_TABLE, table);
            attr::put_str(buf, NFTA_RULE_CHAIN, chain);
        })
    }

    /// `add rule ip t c ... comment "..."`, at the end of the chain.
    pub fn add_rule(
        &mut self,
        family: Family,
        table: &str,
        chain: &str,
        exprs: &[Expr],
        comment: Option<&str>,
    ) -> OpId {
        self.single(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, family, |buf, _| {
            attr::put_str(buf, NFTA_RULE_TABLE, table);
            attr::put_str(buf, NFTA_RULE_CHAIN, chain);
            let at = attr::nest(buf, NFTA_RULE_EXPRESSIONS);
            for expr in exprs {
                expr.encode(buf, family);
            }
            attr::end_nest(buf, at);
            if let Some(comment) = comment {
                let bytes = userdata::comment(NFTNL_UDATA_RULE_COMMENT, comment);
                attr::put(buf, NFTA_RULE_USERDATA, &bytes);
            }
        })
    }

    /// `create element ip t s { ... }`. Refused if the key is there already.
    pub fn add_element(
        &mut self,
        family: Family,
        table: &str,
        set: &str,
        element: &Element<'_>,
    ) -> OpId {
        self.element(NFT_MSG_NEWSETELEM, family, table, set, element)
    }

    /// `delete element ip t s { ... }`. Refused if the key is not there.
    pub fn delete_element(&mut self, family: Family, table: &str, set: &str, key: &[u8]) -> OpId {
        let element = Element { key, key_end: None, data: None, timeout: None, comment: None };
        self.element(NFT_MSG_DELSETELEM, family, table, set, &element)
    }

    /// `delete element ip t s { a-b . c-d }`, for sets of concatenated intervals.
    pub fn delete_range(
        &mut self,
        family: Family,
        table: &str,
        set: &str,
        key: &[u8],
        end: &[u8],
    ) -> OpId {
        let element = Element { key, key_end: Some(end), data: None, timeout: None, comment: None };
        self.element(NFT_MSG_DELSETELEM, family, table, set, &element)
    }

    /// `create element ip t s { a-b }` in a set of single intervals: `element` is the first key of
    /// the range and `end` the first one after it, none for a range up to the very last key.
    ///
    /// Each end is an element of its own to the kernel, and dumped as one. Ranges may
    /// touch. Ones that overlap are refused, except that the kernel overlooks those inside a range
    /// without an end: they would cut it off.
    pub fn add_interval(
        &mut self,
        family: Family,
        table: &str,
        set: &str,
        element: &Element<'_>,
        end: Option<&[u8]>,
    ) -> OpId {
        self.elements(NFT_MSG_NEWSETELEM, family, table, set, |buf| {
            element.encode_interval(buf, end);
        })
    }

    /// `delete element ip t s { a-b }`, of a range that was added with these ends.
    pub fn delete_interval(
        &mut self,
        family: Family,
        table: &str,
        set: &str,
        key: &[u8],
        end: Option<&[u8]>,
    ) -> OpId {
        let element = Element { key, key_end: None, data: None, timeout: None, comment: None };
        self.elements(NFT_MSG_DELSETELEM, family, table, set, |buf| {
            element.encode_interval(buf, end);
        })
    }

    /// `flush set ip t s`: deletes all its elements, those added earlier in this batch too.
    pub fn flush_set(&mut self, family: Family, table: &str, set: &str) -> OpId {
        self.single(NFT_MSG_DELSETELEM, 0, family, |buf, _| {
            attr::put_str(buf, NFTA_SET_ELEM_LIST_TABLE, table);
            attr::put_str(buf, NFTA_SET_ELEM_LIST_SET, set);
        })
    }

    fn single(
        &mut self,
        verb: u16,
        flags: u16,
        family: Family,
        attributes: impl FnOnce(&mut Vec<u8>, OpId),
    ) -> OpId {
        self.open = None;
        let start = self.begin(verb, flags, family);
        let op = self.mark(0);
        attributes(&mut self.buf, op);
        message::end(&mut self.buf, start);
        op
    }

    fn element(
        &mut self,
        verb: u16,
        family: Family,
        table: &str,
        set: &str,
        element: &Element<'_>,
    ) -> OpId {
        self.elements(verb, family, table, set, |buf| element.encode(buf))
    }

    /// Appends one operation's elements: one, or the two ends of an interval.
    fn elements(
        &mut self,
        verb: u16,
        family: Family,
        table: &str,
        set: &str,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> OpId {
        let joins = self.open.as_ref().is_some_and(|o| {
            o.verb == verb && o.family == family && o.table == table && o.set == set
        });
        let mut nest = match &self.open {
            Some(open) if joins => open.nest,
            _ => self.begin_elements(verb, family, table, set),
        };

        let mut at = self.buf.len();
        encode(&mut self.buf);

        // Too long only shows once encoded: then the operation moves to a message of its own, with
        // the lengths before it as they were.
        if self.buf.len() - nest > attr::MAX_LEN && at > nest + attr::HEADER {
            let tail = self.buf.split_off(at);
            nest = self.begin_elements(verb, family, table, set);
            at = self.buf.len();
            self.buf.extend_from_slice(&tail);
        }

        // Both lengths are written at once, so that the buffer is complete after every call.
        attr::end_nest(&mut self.buf, nest);
        let start = self.messages.last().map_or(0, |m| m.start);
        message::end(&mut self.buf, start);
        self.mark(at - start)
    }

    fn begin_elements(&mut self, verb: u16, family: Family, table: &str, set: &str) -> usize {
        // EXCL because a duplicate means our view of the table is wrong: silence would hide it.
        let flags = if verb == NFT_MSG_NEWSETELEM { NLM_F_CREATE | NLM_F_EXCL } else { 0 };
        self.begin(verb, flags, family);
        attr::put_str(&mut self.buf, NFTA_SET_ELEM_LIST_TABLE, table);
        attr::put_str(&mut self.buf, NFTA_SET_ELEM_LIST_SET, set);
        let nest = attr::nest(&mut self.buf, NFTA_SET_ELEM_LIST_ELEMENTS);
        self.open =
            Some(OpenElements { verb, family, table: table.to_owned(), set: set.to_owned(), nest });
        nest
    }

    fn begin(&mut self, verb: u16, flags: u16, family: Family) -> usize {
        let kind = NFNL_SUBSYS_NFTABLES << 8 | verb;
        let start = message::begin(&mut self.buf, kind, flags, 0, family.nfproto(), 0);
        self.messages.push(MessageMark { start, first_op: self.offsets.len() as u32 });
        start
    }

    fn mark(&mut self, offset: usize) -> OpId {
        let op = OpId(self.offsets.len() as u32);
        self.offsets.push(offset as u32);
        op
    }

    /// Numbers the messages from `seq` and asks for an acknowledgement of the last alone. Returns
    /// the three parts of the datagram: BATCH_BEGIN, the operations, BATCH_END.
    pub(crate) fn seal(&mut self, seq: u32) -> (Vec<u8>, &[u8], Vec<u8>) {
        let mut begin = Vec::with_capacity(FRAME);
        let at = frame(&mut begin, NFNL_MSG_BATCH_BEGIN, seq);
        if let Some(generation) = self.generation {
            attr::put_u32(&mut begin, NFNL_BATCH_GENID, generation);
        }
        message::end(&mut begin, at);

        let mut next = seq;
        let last = self.messages.len().saturating_sub(1);
        for (index, mark) in self.messages.iter().enumerate() {
            next = next.wrapping_add(1);
            message::set_seq(&mut self.buf, mark.start, next);
            message::set_ack(&mut self.buf, mark.start, index == last);
        }

        let mut end = Vec::with_capacity(FRAME);
        let at = frame(&mut end, NFNL_MSG_BATCH_END, next.wrapping_add(1));
        message::end(&mut end, at);
        (begin, &self.buf, end)
    }

    /// The operation at `offset` of the message with that index. Without an offset only a message
    /// of one operation tells which.
    pub(crate) fn locate(&self, message: usize, offset: Option<u32>) -> Option<OpId> {
        let first = self.messages.get(message)?.first_op as usize;
        let next =
            self.messages.get(message + 1).map_or(self.offsets.len(), |m| m.first_op as usize);
        let ops = self.offsets.get(first..next)?;
        let index = match (ops.len(), offset) {
            (1, _) => 0,
            (_, Some(offset)) => ops.partition_point(|start| *start <= offset).checked_sub(1)?,
            (_, None) => return None,
        };
        Some(OpId((first + index) as u32))
    }
}

fn frame(buf: &mut Vec<u8>, kind: u16, seq: u32) -> usize {
    message::begin(buf, kind, 0, seq, 0, NFNL_SUBSYS_NFTABLES)
}

#[cfg(test)]
mod tests;
