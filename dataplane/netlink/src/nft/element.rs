//! Elements of sets and maps, and the verdicts they and rules share.
//!
//! Keys and values are bytes in the kernel's register layout: the caller's business, not checked
//! here beyond what the kernel checks.

use std::time::Duration;

use super::constants::*;
use super::set::millis;
use super::userdata;
use crate::attr;

/// An element to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// Its key, every field of a concatenation padded to four bytes.
    pub key: &'a [u8],
    /// The end of the range, inclusive, for sets of concatenated intervals.
    pub key_end: Option<&'a [u8]>,
    /// What it maps to, in maps.
    pub data: Option<ElementData<'a>>,
    /// How long it lives, in sets with timeouts.
    pub timeout: Option<Duration>,
    /// Shown by nft.
    pub comment: Option<&'a str>,
}

/// What an element maps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ElementData<'a> {
    /// A value, laid out like a key.
    Value(&'a [u8]),
    /// Go on in that chain and do not come back.
    Goto(&'a str),
    /// Go on in that chain and come back.
    Jump(&'a str),
    /// Accept the packet.
    Accept,
    /// Drop the packet.
    Drop,
    /// Go back to the calling chain.
    Return,
}

impl Element<'_> {
    pub(crate) fn encode(&self, buf: &mut Vec<u8>) {
        put_value(buf, NFTA_SET_ELEM_KEY, self.key);
        if let Some(end) = self.key_end {
            put_value(buf, NFTA_SET_ELEM_KEY_END, end);
        }
        if let Some(data) = self.data {
            put_data(buf, NFTA_SET_ELEM_DATA, data);
        }
        if let Some(timeout) = self.timeout {
            attr::put_u64(buf, NFTA_SET_ELEM_TIMEOUT, millis(timeout));
        }
        if let Some(comment) = self.comment {
            let bytes = userdata::comment(NFTNL_UDATA_SET_ELEM_COMMENT, comment);
            attr::put(buf, NFTA_SET_ELEM_USERDATA, &bytes);
        }
    }
}

/// A value nested the way the kernel's `nft_data_init` wants it.
pub(crate) fn put_value(buf: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let at = attr::nest(buf, kind);
    attr::put(buf, NFTA_DATA_VALUE, value);
    attr::end_nest(buf, at);
}

/// A value or a verdict.
pub(crate) fn put_data(buf: &mut Vec<u8>, kind: u16, data: ElementData<'_>) {
    let (code, chain) = match data {
        ElementData::Value(value) => return put_value(buf, kind, value),
        ElementData::Goto(chain) => (NFT_GOTO, Some(chain)),
        ElementData::Jump(chain) => (NFT_JUMP, Some(chain)),
        ElementData::Accept => (NF_ACCEPT, None),
        ElementData::Drop => (NF_DROP, None),
        ElementData::Return => (NFT_RETURN, None),
    };
    let outer = attr::nest(buf, kind);
    let verdict = attr::nest(buf, NFTA_DATA_VERDICT);
    attr::put_u32(buf, NFTA_VERDICT_CODE, code as u32);
    if let Some(chain) = chain {
        attr::put_str(buf, NFTA_VERDICT_CHAIN, chain);
    }
    attr::end_nest(buf, verdict);
    attr::end_nest(buf, outer);
}
