//! Sets and maps: what they are keyed by, what they hold, and how nft knows their types.
//!
//! Owns the widths, datatype numbers and `typeof` userdata of every field this project keys by,
//! byte for byte what nft 1.0.6 sends. Elements are encoded in `element`.

use std::time::Duration;

use super::constants::*;
use super::expr::put_counter;
use super::load::CtKey;
use super::userdata;
use crate::attr;

/// A set or map to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetSpec {
    /// Its name.
    pub name: String,
    /// The fields of its key; more than one make a concatenation.
    pub key: Vec<TypeOf>,
    /// What its elements map to.
    pub data: SetData,
    /// Whether every element has a counter.
    pub counter: bool,
    /// How long elements live that name no timeout themselves.
    pub timeout: Option<Duration>,
    /// How often the kernel walks the whole set to free what has timed out. A second, if this is not given
    /// and elements may time out or rules may add some.
    pub gc_interval: Option<Duration>,
    /// Whether rules may add elements.
    pub dynamic: bool,
    /// Whether keys are ranges. Elements of a concatenation then need `key_end`.
    pub interval: bool,
    /// The most elements it may hold.
    pub size: Option<u32>,
    /// Shown by nft; cut to what the `typeof` leaves of the kernel's 256 bytes.
    pub comment: Option<String>,
}

/// What the elements of a set map to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetData {
    /// Nothing: a set.
    None,
    /// A verdict.
    Verdict,
    /// Values of these fields; more than one make a concatenation.
    Fields(Vec<TypeOf>),
}

/// The expression a field is `typeof`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TypeOf {
    /// `ip saddr`
    IpSaddr,
    /// `ip daddr`
    IpDaddr,
    /// `ip6 saddr`
    Ip6Saddr,
    /// `ip6 daddr`
    Ip6Daddr,
    /// `meta l4proto`
    MetaL4proto,
    /// `th sport`
    ThSport,
    /// `th dport`
    ThDport,
    /// `numgen random mod N`
    NumgenRandom {
        /// N
        modulus: u32,
    },
    /// `numgen inc mod N`
    NumgenInc {
        /// N
        modulus: u32,
    },
    /// `meta mark`
    MetaMark,
    /// `ct original ip saddr`
    CtOriginalIpSaddr,
    /// `ct original ip daddr`
    CtOriginalIpDaddr,
    /// `ct original ip6 saddr`
    CtOriginalIp6Saddr,
    /// `ct original ip6 daddr`
    CtOriginalIp6Daddr,
}

// nft's enum expr_types, proto_desc_id, the field index in proto_ip, proto_ip6 and proto_th, and
// enum byteorder. Not kernel interface: nft keeps them stable because they are stored in userdata.
const EXPR_VERDICT: u32 = 1;
const EXPR_PAYLOAD: u32 = 7;
const EXPR_META: u32 = 9;
const EXPR_CT: u32 = 12;
const EXPR_CONCAT: u32 = 13;
const EXPR_NUMGEN: u32 = 23;
const PROTO_DESC_TH: u32 = 11;
const PROTO_DESC_IP: u32 = 12;
const PROTO_DESC_IP6: u32 = 13;
const BYTEORDER_INVALID: u32 = 0;
const BYTEORDER_HOST_ENDIAN: u32 = 1;
const BYTEORDER_BIG_ENDIAN: u32 = 2;
const NFT_META_MARK: u32 = 3;
const NFT_META_L4PROTO: u32 = 16;
// nft packs the types of a concatenation into one u32, six bits each.
const TYPE_BITS: u32 = 6;

impl TypeOf {
    /// Bytes of a value, before padding.
    pub fn width(self) -> u32 {
        match self {
            Self::Ip6Saddr | Self::Ip6Daddr => 16,
            Self::CtOriginalIp6Saddr | Self::CtOriginalIp6Daddr => 16,
            Self::MetaL4proto => 1,
            Self::ThSport | Self::ThDport => 2,
            Self::IpSaddr | Self::IpDaddr | Self::MetaMark => 4,
            Self::CtOriginalIpSaddr | Self::CtOriginalIpDaddr => 4,
            Self::NumgenRandom { .. } | Self::NumgenInc { .. } => 4,
        }
    }

    /// nft's number of the datatype.
    pub fn datatype(self) -> u32 {
        match self {
            Self::NumgenRandom { .. } | Self::NumgenInc { .. } => 4, // integer
            Self::IpSaddr | Self::IpDaddr => 7,                      // ipv4_addr
            Self::Ip6Saddr | Self::Ip6Daddr => 8,                    // ipv6_addr
            Self::MetaL4proto => 12,                                 // inet_proto
            Self::ThSport | Self::ThDport => 13,                     // inet_service
            Self::MetaMark => 19,                                    // mark
            Self::CtOriginalIpSaddr | Self::CtOriginalIpDaddr => 7,
            Self::CtOriginalIp6Saddr | Self::CtOriginalIp6Daddr => 8,
        }
    }

    fn byteorder(self) -> u32 {
        match self {
            Self::MetaL4proto | Self::MetaMark => BYTEORDER_HOST_ENDIAN,
            Self::NumgenRandom { .. } | Self::NumgenInc { .. } => BYTEORDER_HOST_ENDIAN,
            _ => BYTEORDER_BIG_ENDIAN,
        }
    }

    fn typeof_udata(self) -> Vec<u8> {
        let payload = |desc, field| typeof_expr(EXPR_PAYLOAD, &[desc, field]);
        let numgen = |kind, modulus| typeof_expr(EXPR_NUMGEN, &[kind, modulus, 0]);
        let original =
            |key: CtKey| typeof_expr(EXPR_CT, &[key.number(), u32::from(IP_CT_DIR_ORIGINAL)]);
        match self {
            Self::IpSaddr => payload(PROTO_DESC_IP, 11),
            Self::IpDaddr => payload(PROTO_DESC_IP, 12),
            Self::Ip6Saddr => payload(PROTO_DESC_IP6, 8),
            Self::Ip6Daddr => payload(PROTO_DESC_IP6, 9),
            Self::ThSport => payload(PROTO_DESC_TH, 1),
            Self::ThDport => payload(PROTO_DESC_TH, 2),
            Self::MetaL4proto => typeof_expr(EXPR_META, &[NFT_META_L4PROTO]),
            Self::MetaMark => typeof_expr(EXPR_META, &[NFT_META_MARK]),
            Self::NumgenRandom { modulus } => numgen(NFT_NG_RANDOM, modulus),
            Self::NumgenInc { modulus } => numgen(NFT_NG_INCREMENTAL, modulus),
            Self::CtOriginalIpSaddr => original(CtKey::OriginalIpSaddr),
            Self::CtOriginalIpDaddr => original(CtKey::OriginalIpDaddr),
            Self::CtOriginalIp6Saddr => original(CtKey::OriginalIp6Saddr),
            Self::CtOriginalIp6Daddr => original(CtKey::OriginalIp6Daddr),
        }
    }
}

impl SetSpec {
    /// Bytes of a key: the field's own width if there is one, as nft has it; of a concatenation
    /// every field is padded to four.
    pub fn key_len(&self) -> u32 {
        fields_len(&self.key)
    }

    /// Bytes of an element's data, by the same rule; 0 for sets and verdicts.
    pub fn data_len(&self) -> u32 {
        match &self.data {
            SetData::None | SetData::Verdict => 0,
            SetData::Fields(fields) => fields_len(fields),
        }
    }

    /// nft's number of the key's type.
    pub fn key_type(&self) -> u32 {
        fields_type(&self.key)
    }

    /// nft's number of the data's type; none for a set.
    pub fn data_type(&self) -> Option<u32> {
        match &self.data {
            SetData::None => None,
            SetData::Verdict => Some(NFT_DATA_VERDICT),
            SetData::Fields(fields) => Some(fields_type(fields)),
        }
    }

    /// `NFT_SET_*`, as sent and as dumped.
    pub fn flags(&self) -> u32 {
        let mut flags = 0;
        if self.interval {
            flags |= NFT_SET_INTERVAL;
            // Only ranges need the kernel to know the fields apart (pipapo). A hash compares a
            // concatenation as one string, and nft sends no flag for it either.
            if self.key.len() > 1 {
                flags |= NFT_SET_CONCAT;
            }
        }
        if self.data != SetData::None {
            flags |= NFT_SET_MAP;
        }
        if self.timeout.is_some() || self.gc_interval.is_some() {
            flags |= NFT_SET_TIMEOUT;
        }
        if self.dynamic {
            flags |= NFT_SET_EVAL;
        }
        flags
    }

    /// Exactly the userdata sent, to compare with what a dump returns.
    pub fn userdata(&self) -> Vec<u8> {
        let mut buf = Vec::with_capacity(NFT_USERDATA_MAXLEN);
        userdata::put_u32(&mut buf, NFTNL_UDATA_SET_KEYBYTEORDER, fields_byteorder(&self.key));
        let data = match &self.data {
            SetData::None => None,
            // `: verdict` is a typeof of the verdict expression with nothing inside.
            SetData::Verdict => Some((BYTEORDER_INVALID, typeof_expr(EXPR_VERDICT, &[]))),
            SetData::Fields(fields) => Some((fields_byteorder(fields), fields_typeof(fields))),
        };
        if let Some((byteorder, _)) = data {
            userdata::put_u32(&mut buf, NFTNL_UDATA_SET_DATABYTEORDER, byteorder);
        }
        userdata::put(&mut buf, NFTNL_UDATA_SET_KEY_TYPEOF, &fields_typeof(&self.key));
        if let Some((_, typeof_data)) = &data {
            userdata::put(&mut buf, NFTNL_UDATA_SET_DATA_TYPEOF, typeof_data);
            userdata::put_u32(&mut buf, NFTNL_UDATA_SET_DATA_INTERVAL, 0);
        }
        if let Some(comment) = &self.comment {
            userdata::put_comment(&mut buf, NFTNL_UDATA_SET_COMMENT, comment);
        }
        buf
    }

    /// Appends the attributes of `NEWSET` after the table's name. The kernel demands an `id`
    /// unique in the batch, even though rules find the set by name.
    pub(crate) fn encode(&self, buf: &mut Vec<u8>, id: u32) {
        attr::put_str(buf, NFTA_SET_NAME, &self.name);
        attr::put_u32(buf, NFTA_SET_FLAGS, self.flags());
        attr::put_u32(buf, NFTA_SET_KEY_TYPE, self.key_type());
        attr::put_u32(buf, NFTA_SET_KEY_LEN, self.key_len());
        if let Some(data_type) = self.data_type() {
            attr::put_u32(buf, NFTA_SET_DATA_TYPE, data_type);
            attr::put_u32(buf, NFTA_SET_DATA_LEN, self.data_len());
        }
        attr::put_u32(buf, NFTA_SET_ID, id);
        self.encode_description(buf);
        if let Some(timeout) = self.timeout {
            attr::put_u64(buf, NFTA_SET_TIMEOUT, millis(timeout));
        }
        if let Some(interval) = self.gc_interval {
            let interval = u32::try_from(millis(interval)).unwrap_or(u32::MAX);
            attr::put_u32(buf, NFTA_SET_GC_INTERVAL, interval);
        }
        attr::put(buf, NFTA_SET_USERDATA, &self.userdata());
        if self.counter {
            let at = attr::nest(buf, NFTA_SET_EXPR);
            put_counter(buf);
            attr::end_nest(buf, at);
        }
    }

    fn encode_description(&self, buf: &mut Vec<u8>) {
        let fields = self.flags() & NFT_SET_CONCAT != 0;
        if self.size.is_none() && !fields {
            return;
        }
        let desc = attr::nest(buf, NFTA_SET_DESC);
        if let Some(size) = self.size {
            attr::put_u32(buf, NFTA_SET_DESC_SIZE, size);
        }
        if fields {
            let concat = attr::nest(buf, NFTA_SET_DESC_CONCAT);
            for field in &self.key {
                let at = attr::nest(buf, NFTA_LIST_ELEM);
                attr::put_u32(buf, NFTA_SET_FIELD_LEN, field.width());
                attr::end_nest(buf, at);
            }
            attr::end_nest(buf, concat);
        }
        attr::end_nest(buf, desc);
    }
}

/// Milliseconds as the kernel counts timeouts; 0 means none there, so anything shorter is 1.
pub(crate) fn millis(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn fields_len(fields: &[TypeOf]) -> u32 {
    match fields {
        [one] => one.width(),
        many => many.iter().map(|f| f.width().next_multiple_of(4)).sum(),
    }
}

fn fields_type(fields: &[TypeOf]) -> u32 {
    fields.iter().fold(0, |all, f| (all << TYPE_BITS) | f.datatype())
}

fn fields_byteorder(fields: &[TypeOf]) -> u32 {
    match fields {
        [one] => one.byteorder(),
        _ => BYTEORDER_INVALID,
    }
}

fn fields_typeof(fields: &[TypeOf]) -> Vec<u8> {
    if let [one] = fields {
        return one.typeof_udata();
    }
    let mut parts = Vec::new();
    for (index, field) in (0u8..).zip(fields) {
        userdata::put(&mut parts, index, &field.typeof_udata());
    }
    wrap(EXPR_CONCAT, &parts)
}

/// One expression: its kind, and its numbers in the order of nft's attributes from 0.
fn typeof_expr(kind: u32, numbers: &[u32]) -> Vec<u8> {
    let mut inner = Vec::new();
    for (index, number) in (0u8..).zip(numbers) {
        userdata::put_u32(&mut inner, index, *number);
    }
    wrap(kind, &inner)
}

fn wrap(kind: u32, inner: &[u8]) -> Vec<u8> {
    let mut buf = Vec::new();
    userdata::put_u32(&mut buf, NFTNL_UDATA_SET_TYPEOF_EXPR, kind);
    userdata::put(&mut buf, NFTNL_UDATA_SET_TYPEOF_DATA, inner);
    buf
}
