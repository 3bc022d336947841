//! The parsers of what the kernel sends: pure functions from bytes, apart from any socket.
//!
//! Every bound is checked; any bytes give a value or [`Error::Malformed`], never a panic. Unknown
//! attributes are skipped, since newer kernels add some.

use std::time::Duration;

use super::constants::*;
use super::{ElementData, Family, Hook, HookKind, HookPoint, userdata};
use crate::Error;
use crate::attr::{Attr, Attrs, malformed, until_nul};
pub use crate::message::{Ack, Message, parse_ack, parse_messages};

/// A table as dumped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Its family, if we know it.
    pub family: Option<Family>,
    /// Its name.
    pub name: String,
    /// `NFT_TABLE_F_*`, such as dormant.
    pub flags: u32,
    /// Its comment.
    pub comment: Option<String>,
}

/// A set or map as dumped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetInfo {
    /// The family of its table.
    pub family: Option<Family>,
    /// The table it is in.
    pub table: String,
    /// Its name.
    pub name: String,
    /// `NFT_SET_*`.
    pub flags: u32,
    /// nft's number of the key's type.
    pub key_type: u32,
    /// Bytes of a key.
    pub key_len: u32,
    /// nft's number of the data's type; none for a set.
    pub data_type: Option<u32>,
    /// Bytes of the data; none for a set, 0 for a verdict map.
    pub data_len: Option<u32>,
    /// How long elements live by default.
    pub timeout: Option<Duration>,
    /// How often it is walked for elements that have timed out, if not every second.
    pub gc_interval: Option<Duration>,
    /// The most elements it may hold.
    pub size: Option<u32>,
    /// Whether every element has a counter.
    pub counter: bool,
    /// The userdata as stored, to compare with `SetSpec::userdata`.
    pub userdata: Vec<u8>,
}

/// A chain as dumped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainInfo {
    /// The family of its table.
    pub family: Option<Family>,
    /// The table it is in.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Its hook. None for a plain chain, and for a base chain of a kind we never make.
    pub hook: Option<Hook>,
    /// Its policy is to drop what no rule decides.
    pub drops: bool,
    /// Its comment.
    pub comment: Option<String>,
}

/// A rule as dumped, without what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleInfo {
    /// The family of its table.
    pub family: Option<Family>,
    /// The table it is in.
    pub table: String,
    /// The chain it is in.
    pub chain: String,
    /// The kernel's number of it, unique in its table.
    pub handle: Option<u64>,
    /// Its comment.
    pub comment: Option<String>,
}

/// An element as dumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpedElement<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The end of its range.
    pub key_end: Option<&'a [u8]>,
    /// What it maps to. None in sets, and for a verdict that [`ElementData`] has no name for, so
    /// that a foreign element differs from every wanted one and does not end the dump.
    pub data: Option<ElementData<'a>>,
    /// Its comment.
    pub comment: Option<&'a str>,
    /// Packets and bytes counted.
    pub counter: Option<(u64, u64)>,
    /// How long it lives in all.
    pub timeout: Option<Duration>,
    /// How long it has left.
    pub expires: Option<Duration>,
    /// Whether it only marks the end of a range, in sets of single intervals.
    pub interval_end: bool,
}

/// Reads a `NEWTABLE`.
pub fn parse_table(message: &Message<'_>) -> Result<TableInfo, Error> {
    let (family, attrs) = message.body()?;
    let (mut name, mut flags, mut comment) = (None, 0, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_TABLE_NAME => name = Some(attr.text()),
            NFTA_TABLE_FLAGS => flags = attr.u32()?,
            NFTA_TABLE_USERDATA => {
                comment = userdata::find_comment(attr.payload, NFTNL_UDATA_TABLE_COMMENT);
            }
            _ => {}
        }
    }
    let name = name.ok_or_else(|| malformed("table without a name"))?;
    Ok(TableInfo {
        family: Family::from_nfproto(family),
        name,
        flags,
        comment: comment.map(Into::into),
    })
}

/// Reads a `NEWSET`.
pub fn parse_set(message: &Message<'_>) -> Result<SetInfo, Error> {
    let (family, attrs) = message.body()?;
    let mut set = SetInfo {
        family: Family::from_nfproto(family),
        table: String::new(),
        name: String::new(),
        flags: 0,
        key_type: 0,
        key_len: 0,
        data_type: None,
        data_len: None,
        timeout: None,
        gc_interval: None,
        size: None,
        counter: false,
        userdata: Vec::new(),
    };
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_SET_TABLE => set.table = attr.text(),
            NFTA_SET_NAME => set.name = attr.text(),
            NFTA_SET_FLAGS => set.flags = attr.u32()?,
            NFTA_SET_KEY_TYPE => set.key_type = attr.u32()?,
            NFTA_SET_KEY_LEN => set.key_len = attr.u32()?,
            NFTA_SET_DATA_TYPE => set.data_type = Some(attr.u32()?),
            NFTA_SET_DATA_LEN => set.data_len = Some(attr.u32()?),
            NFTA_SET_TIMEOUT => set.timeout = Some(Duration::from_millis(attr.u64()?)),
            NFTA_SET_GC_INTERVAL => {
                set.gc_interval = Some(Duration::from_millis(attr.u32()?.into()));
            }
            NFTA_SET_DESC => {
                let size = find(attr.nested(), NFTA_SET_DESC_SIZE)?;
                set.size = size.map(|size| size.u32()).transpose()?;
            }
            NFTA_SET_USERDATA => set.userdata = attr.payload.to_vec(),
            NFTA_SET_EXPR | NFTA_SET_EXPRESSIONS => {
                set.counter |= counter(&attr, NFTA_SET_EXPRESSIONS)?.is_some();
            }
            _ => {}
        }
    }
    if set.name.is_empty() { Err(malformed("set without a name")) } else { Ok(set) }
}

/// Reads a `NEWCHAIN`.
pub fn parse_chain(message: &Message<'_>) -> Result<ChainInfo, Error> {
    let (family, attrs) = message.body()?;
    let mut chain = ChainInfo {
        family: Family::from_nfproto(family),
        table: String::new(),
        name: String::new(),
        hook: None,
        drops: false,
        comment: None,
    };
    let (mut kind, mut place) = (None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_CHAIN_TABLE => chain.table = attr.text(),
            NFTA_CHAIN_NAME => chain.name = attr.text(),
            NFTA_CHAIN_TYPE => kind = HookKind::from_name(until_nul(attr.payload)),
            NFTA_CHAIN_POLICY => chain.drops = attr.u32()? == NF_DROP as u32,
            NFTA_CHAIN_HOOK => place = hook_place(attr.nested())?,
            NFTA_CHAIN_USERDATA => {
                let comment = userdata::find_comment(attr.payload, NFTNL_UDATA_CHAIN_COMMENT);
                chain.comment = comment.map(str::to_owned);
            }
            _ => {}
        }
    }
    if chain.name.is_empty() {
        return Err(malformed("chain without a name"));
    }
    if let (Some(kind), Some((point, priority))) = (kind, place) {
        chain.hook = Some(Hook { kind, point, priority });
    }
    Ok(chain)
}

/// Reads of a `NEWRULE` where it is and what it says of itself; its expressions are never decoded.
pub fn parse_rule(message: &Message<'_>) -> Result<RuleInfo, Error> {
    let (family, attrs) = message.body()?;
    let (mut table, mut chain, mut handle, mut comment) = (None, None, None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_RULE_HANDLE => handle = Some(attr.u64()?),
            NFTA_RULE_TABLE => table = Some(attr.text()),
            NFTA_RULE_CHAIN => chain = Some(attr.text()),
            NFTA_RULE_USERDATA => {
                comment = userdata::find_comment(attr.payload, NFTNL_UDATA_RULE_COMMENT);
            }
            _ => {}
        }
    }
    match (table, chain) {
        (Some(table), Some(chain)) => Ok(RuleInfo {
            family: Family::from_nfproto(family),
            table,
            chain,
            handle,
            comment: comment.map(Into::into),
        }),
        _ => Err(malformed("rule without table and chain")),
    }
}

/// Reads a `NEWGEN`: the ruleset's generation.
pub fn parse_generation(message: &Message<'_>) -> Result<u32, Error> {
    let (_, attrs) = message.body()?;
    find(attrs, NFTA_GEN_ID)?.ok_or_else(|| malformed("generation without a number"))?.u32()
}

/// Reads a `NEWSETELEM`, giving every element in order.
pub fn parse_elements(
    message: &Message<'_>,
    each: &mut dyn FnMut(DumpedElement<'_>),
) -> Result<(), Error> {
    let (_, attrs) = message.body()?;
    for list in attrs {
        let list = list?;
        if list.kind == NFTA_SET_ELEM_LIST_ELEMENTS {
            parse_list(list.nested(), each)?;
        }
    }
    Ok(())
}

/// Reads a list of elements.
pub(crate) fn parse_list(
    list: Attrs<'_>,
    each: &mut dyn FnMut(DumpedElement<'_>),
) -> Result<(), Error> {
    for element in list {
        each(parse_element(element?.nested())?);
    }
    Ok(())
}

fn parse_element(attrs: Attrs<'_>) -> Result<DumpedElement<'_>, Error> {
    let mut key = None;
    let mut element = DumpedElement {
        key: &[],
        key_end: None,
        data: None,
        comment: None,
        counter: None,
        timeout: None,
        expires: None,
        interval_end: false,
    };
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_SET_ELEM_KEY => key = value(&attr)?,
            NFTA_SET_ELEM_KEY_END => element.key_end = value(&attr)?,
            NFTA_SET_ELEM_DATA => element.data = data(&attr)?,
            NFTA_SET_ELEM_FLAGS => {
                element.interval_end = attr.u32()? & NFT_SET_ELEM_INTERVAL_END != 0;
            }
            NFTA_SET_ELEM_TIMEOUT => element.timeout = Some(Duration::from_millis(attr.u64()?)),
            NFTA_SET_ELEM_EXPIRATION => element.expires = Some(Duration::from_millis(attr.u64()?)),
            NFTA_SET_ELEM_USERDATA => {
                element.comment =
                    userdata::find_comment(attr.payload, NFTNL_UDATA_SET_ELEM_COMMENT);
            }
            NFTA_SET_ELEM_EXPR | NFTA_SET_ELEM_EXPRESSIONS => {
                element.counter = counter(&attr, NFTA_SET_ELEM_EXPRESSIONS)?.or(element.counter);
            }
            _ => {}
        }
    }
    // pipapo's catch-all element has no key; we never write one, so it shows as an empty key.
    element.key = key.unwrap_or_default();
    Ok(element)
}

fn value<'a>(attr: &Attr<'a>) -> Result<Option<&'a [u8]>, Error> {
    Ok(find(attr.nested(), NFTA_DATA_VALUE)?.map(|value| value.payload))
}

fn data<'a>(attr: &Attr<'a>) -> Result<Option<ElementData<'a>>, Error> {
    for part in attr.nested() {
        let part = part?;
        match part.kind {
            NFTA_DATA_VALUE => return Ok(Some(ElementData::Value(part.payload))),
            NFTA_DATA_VERDICT => return verdict(part.nested()),
            _ => {}
        }
    }
    Ok(None)
}

fn verdict(attrs: Attrs<'_>) -> Result<Option<ElementData<'_>>, Error> {
    let (mut code, mut chain) = (None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_VERDICT_CODE => code = Some(attr.u32()? as i32),
            NFTA_VERDICT_CHAIN => chain = std::str::from_utf8(until_nul(attr.payload)).ok(),
            _ => {}
        }
    }
    let code = code.ok_or_else(|| malformed("verdict without a code"))?;
    Ok(match (code, chain) {
        (NF_ACCEPT, _) => Some(ElementData::Accept),
        (NF_DROP, _) => Some(ElementData::Drop),
        (NFT_RETURN, _) => Some(ElementData::Return),
        (NFT_GOTO, Some(chain)) => Some(ElementData::Goto(chain)),
        (NFT_JUMP, Some(chain)) => Some(ElementData::Jump(chain)),
        _ => None,
    })
}

/// The counter in an expression, or in a list of them if the attribute is of kind `list`.
fn counter(attr: &Attr<'_>, list: u16) -> Result<Option<(u64, u64)>, Error> {
    if attr.kind != list {
        return one_counter(attr.nested());
    }
    for expr in attr.nested() {
        if let Some(found) = one_counter(expr?.nested())? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn one_counter(attrs: Attrs<'_>) -> Result<Option<(u64, u64)>, Error> {
    let (mut named, mut packets, mut bytes) = (false, 0, 0);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_EXPR_NAME => named = until_nul(attr.payload) == b"counter",
            // The name comes first: other expressions use the same numbers for other things.
            NFTA_EXPR_DATA if named => {
                for number in attr.nested() {
                    let number = number?;
                    match number.kind {
                        NFTA_COUNTER_BYTES => bytes = number.u64()?,
                        NFTA_COUNTER_PACKETS => packets = number.u64()?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(named.then_some((packets, bytes)))
}

fn hook_place(attrs: Attrs<'_>) -> Result<Option<(HookPoint, i32)>, Error> {
    let (mut point, mut priority) = (None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_HOOK_HOOKNUM => point = HookPoint::from_number(attr.u32()?),
            NFTA_HOOK_PRIORITY => priority = Some(attr.u32()? as i32),
            _ => {}
        }
    }
    Ok(point.zip(priority))
}

fn find(attrs: Attrs<'_>, kind: u16) -> Result<Option<Attr<'_>>, Error> {
    for attr in attrs {
        let attr = attr?;
        if attr.kind == kind {
            return Ok(Some(attr));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
