//! What a notification says: a pure function from bytes, apart from any socket.
//!
//! Only names are read, and those of foreign tables only as far as the table's: a host may change
//! other tables all day, and each change passes through here. Elements are read when asked for.

use std::borrow::Cow;

use super::Family;
use super::constants::*;
use super::reply::{DumpedElement, Message, parse_list};
use crate::Error;
use crate::attr::{Attrs, malformed, until_nul};

/// Something that was committed.
///
/// The kernel sends the changes of one commit first, then the generation they made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// A change of the table watched.
    Change(Change<'a>),
    /// A commit to any table.
    Generation(Generation<'a>),
}

/// A change of a table, or of something in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// What happened.
    pub verb: Verb,
    /// To what kind of object.
    pub object: Object,
    /// The family of the table, if it is one we know.
    pub family: Option<Family>,
    /// The name of the chain, set, stateful object or flow table; that of the set an element is in
    /// and of the chain a rule is in. None for a table.
    pub name: Option<Cow<'a, str>>,
    /// The port of the socket that made the change: see [`Socket::port`](super::Socket::port).
    pub port: u32,
    /// The elements, of a change of some; else none.
    pub elements: Elements<'a>,
}

/// Elements as a notification carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elements<'a>(&'a [u8]);

impl Elements<'_> {
    /// Gives every one to `each`.
    pub fn read(&self, each: &mut dyn FnMut(DumpedElement<'_>)) -> Result<(), Error> {
        parse_list(Attrs(self.0), each)
    }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// It was added, or changed.
    New,
    /// It was deleted.
    Deleted,
}

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// The table itself.
    Table,
    /// A chain.
    Chain,
    /// A rule.
    Rule,
    /// A set or map.
    Set,
    /// An element of a set or map. Those that expire and those that packets add make no notice.
    Element,
    /// A named counter, quota, limit or the like.
    Stateful,
    /// A flow table.
    Flowtable,
}

/// A new generation of the ruleset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation<'a> {
    /// Its number.
    pub id: u32,
    /// The port of the socket that made it: see [`Socket::port`](super::Socket::port).
    pub port: u32,
    /// The number of the thread that made it, as the host counts, whatever the process namespace.
    pub pid: Option<u32>,
    /// The name of that thread.
    pub process: Option<Cow<'a, str>>,
}

/// Reads a notification. None if it is of another table, or of a kind we have no name for.
pub fn parse_notice<'a>(message: &Message<'a>, table: &str) -> Result<Option<Notice<'a>>, Error> {
    if message.kind >> 8 != NFNL_SUBSYS_NFTABLES {
        return Ok(None);
    }
    let (verb, object) = match message.kind & 0xff {
        NFT_MSG_NEWGEN => return parse_generation(message).map(Some),
        NFT_MSG_NEWTABLE => (Verb::New, Object::Table),
        NFT_MSG_DELTABLE => (Verb::Deleted, Object::Table),
        NFT_MSG_NEWCHAIN => (Verb::New, Object::Chain),
        NFT_MSG_DELCHAIN => (Verb::Deleted, Object::Chain),
        NFT_MSG_NEWRULE => (Verb::New, Object::Rule),
        NFT_MSG_DELRULE => (Verb::Deleted, Object::Rule),
        NFT_MSG_NEWSET => (Verb::New, Object::Set),
        NFT_MSG_DELSET => (Verb::Deleted, Object::Set),
        NFT_MSG_NEWSETELEM => (Verb::New, Object::Element),
        NFT_MSG_DELSETELEM => (Verb::Deleted, Object::Element),
        NFT_MSG_NEWOBJ => (Verb::New, Object::Stateful),
        NFT_MSG_DELOBJ => (Verb::Deleted, Object::Stateful),
        NFT_MSG_NEWFLOWTABLE => (Verb::New, Object::Flowtable),
        NFT_MSG_DELFLOWTABLE => (Verb::Deleted, Object::Flowtable),
        _ => return Ok(None),
    };
    // Whatever the object, its table is attribute 1 and comes first; its name is soon after.
    let name_kind = match object {
        Object::Table => None,
        Object::Chain => Some(NFTA_CHAIN_NAME),
        _ => Some(NFTA_NAME),
    };
    let (family, attrs) = message.body()?;
    let (mut ours, mut name) = (false, None);
    let (of, port) = (Family::from_nfproto(family), message.port);
    for attr in attrs {
        let attr = attr?;
        if attr.kind == NFTA_TABLE_NAME {
            ours = until_nul(attr.payload) == table.as_bytes();
            if !ours {
                return Ok(None);
            }
        } else if Some(attr.kind) == name_kind {
            name = Some(String::from_utf8_lossy(until_nul(attr.payload)));
        }
        let elements = match (object, attr.kind) {
            (Object::Element, NFTA_SET_ELEM_LIST_ELEMENTS) => Elements(attr.payload),
            (Object::Element, _) => continue,
            _ => Elements::default(),
        };
        if ours && (name.is_some() || name_kind.is_none()) {
            let change = Change { verb, object, family: of, name, port, elements };
            return Ok(Some(Notice::Change(change)));
        }
    }
    Err(malformed("notification without names"))
}

fn parse_generation<'a>(message: &Message<'a>) -> Result<Notice<'a>, Error> {
    let (_, attrs) = message.body()?;
    let (mut id, mut pid, mut process) = (None, None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_GEN_ID => id = Some(attr.u32()?),
            NFTA_GEN_PROC_PID => pid = Some(attr.u32()?),
            NFTA_GEN_PROC_NAME => {
                process = Some(String::from_utf8_lossy(until_nul(attr.payload)));
            }
            _ => {}
        }
    }
    let id = id.ok_or_else(|| malformed("generation without a number"))?;
    Ok(Notice::Generation(Generation { id, port: message.port, pid, process }))
}

#[cfg(test)]
mod tests;
