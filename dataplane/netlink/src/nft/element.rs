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
    /// Appends it to a list of elements.
    pub(crate) fn encode(&self, buf: &mut Vec<u8>) {
        self.encode_with(buf, 0);
    }

    /// Appends it as the start of a single interval, and the end after it.
    pub(crate) fn encode_interval(&self, buf: &mut Vec<u8>, end: Option<&[u8]>) {
        let Some(end) = end else {
            return self.encode_with(buf, NFTNL_SET_ELEM_F_INTERVAL_OPEN);
        };
        self.encode_with(buf, 0);
        let at = attr::nest(buf, NFTA_LIST_ELEM);
        put_value(buf, NFTA_SET_ELEM_KEY, end);
        attr::put_u32(buf, NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END);
        attr::end_nest(buf, at);
    }

    /// `nft_flags` are nft's own, kept in userdata: one tells it that no end follows.
    fn encode_with(&self, buf: &mut Vec<u8>, nft_flags: u32) {
        let at = attr::nest(buf, NFTA_LIST_ELEM);
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
        let mut data = Vec::new();
        if let Some(comment) = self.comment {
            userdata::put_comment(&mut data, NFTNL_UDATA_SET_ELEM_COMMENT, comment);
        }
        if nft_flags != 0 {
            userdata::put_u32(&mut data, NFTNL_UDATA_SET_ELEM_FLAGS, nft_flags);
        }
        if !data.is_empty() {
            attr::put(buf, NFTA_SET_ELEM_USERDATA, &data);
        }
        attr::end_nest(buf, at);
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
