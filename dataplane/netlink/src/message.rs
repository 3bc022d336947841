//! Netlink message headers, and the kernel's acknowledgements and errors.
//!
//! Owns the layer between a datagram and the attributes of one message. Knows the two headers of
//! nfnetlink (`nlmsghdr`, `nfgenmsg`) and no message type of nf_tables; other families bring their
//! second header themselves.

use crate::Error;
use crate::attr::{Attrs, malformed, until_nul};

pub(crate) const NLMSG_HDRLEN: usize = 16;
pub(crate) const NFGENMSG_LEN: usize = 4;

pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;

pub(crate) const NLM_F_REQUEST: u16 = 0x1;
pub(crate) const NLM_F_ACK: u16 = 0x4;
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(crate) const NLM_F_CAPPED: u16 = 0x100;
pub(crate) const NLM_F_ACK_TLVS: u16 = 0x200;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
pub(crate) const NLM_F_APPEND: u16 = 0x800;

const NLMSGERR_ATTR_MSG: u16 = 1;
const NLMSGERR_ATTR_OFFS: u16 = 2;

/// Appends `nlmsghdr` and `nfgenmsg`; returns where the message starts, for [`end`].
pub(crate) fn begin(
    buf: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    seq: u32,
    family: u8,
    res: u16,
) -> usize {
    // nfgenmsg: family, version 0, resource id in network order.
    let [hi, lo] = res.to_be_bytes();
    begin_with(buf, kind, flags, seq, &[family, 0, hi, lo])
}

/// Appends `nlmsghdr` and the family's own header; returns where the message starts, for [`end`].
pub(crate) fn begin_with(
    buf: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    seq: u32,
    header: &[u8],
) -> usize {
    let at = buf.len();
    buf.extend_from_slice(&[0; 4]);
    buf.extend_from_slice(&kind.to_ne_bytes());
    buf.extend_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
    buf.extend_from_slice(&seq.to_ne_bytes());
    buf.extend_from_slice(&[0; 4]);
    buf.extend_from_slice(header);
    at
}

/// Writes the length of the message that starts at `at` and reaches to the end of the buffer.
pub(crate) fn end(buf: &mut [u8], at: usize) {
    let len = (buf.len() - at) as u32;
    buf[at..at + 4].copy_from_slice(&len.to_ne_bytes());
}

/// Sets the sequence number of the message at `at`.
pub(crate) fn set_seq(buf: &mut [u8], at: usize, seq: u32) {
    buf[at + 8..at + 12].copy_from_slice(&seq.to_ne_bytes());
}

/// Sets the type of the message at `at`.
pub(crate) fn set_kind(buf: &mut [u8], at: usize, kind: u16) {
    buf[at + 4..at + 6].copy_from_slice(&kind.to_ne_bytes());
}

/// Turns the request for an acknowledgement of the message at `at` on or off.
pub(crate) fn set_ack(buf: &mut [u8], at: usize, on: bool) {
    let flags = u16::from_ne_bytes([buf[at + 6], buf[at + 7]]);
    let flags = if on { flags | NLM_F_ACK } else { flags & !NLM_F_ACK };
    buf[at + 6..at + 8].copy_from_slice(&flags.to_ne_bytes());
}

/// One message of a received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// `nlmsg_seq`, that of the request answered.
    pub seq: u32,
    /// `nlmsg_pid`: the port of the socket that asked, in a notification that of whoever made the
    /// change.
    pub port: u32,
    /// Everything after the header.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// The protocol family in `nfgenmsg`, and the attributes after it.
    pub(crate) fn body(&self) -> Result<(u8, Attrs<'a>), Error> {
        let ([family, ..], attrs) = self
            .payload
            .split_first_chunk::<NFGENMSG_LEN>()
            .ok_or_else(|| malformed("nfgenmsg cut short"))?;
        Ok((*family, Attrs(attrs)))
    }
}

/// The messages of one datagram; ends after the first malformed one.
pub fn parse_messages(datagram: &[u8]) -> impl Iterator<Item = Result<Message<'_>, Error>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let all = std::mem::take(&mut rest);
        let Some((head, _)) = all.split_first_chunk::<NLMSG_HDRLEN>() else {
            return Some(Err(malformed("message header cut short")));
        };
        let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, p0, p1, p2, p3] = *head;
        let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let Some(payload) = all.get(NLMSG_HDRLEN..len) else {
            return Some(Err(malformed("message length")));
        };
        rest = all.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Ok(Message {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            seq: u32::from_ne_bytes([s0, s1, s2, s3]),
            port: u32::from_ne_bytes([p0, p1, p2, p3]),
            payload,
        }))
    })
}

/// The kernel's answer to one message: an acknowledgement or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// 0 for an acknowledgement, else the positive error number.
    pub errno: i32,
    /// Where in the message at fault the offending attribute starts, header included.
    pub offset: Option<u32>,
    /// The kernel's words.
    pub message: Option<String>,
}

/// Reads the payload of an `NLMSG_ERROR`.
pub fn parse_ack(message: &Message<'_>) -> Result<Ack, Error> {
    let (code, rest) = message
        .payload
        .split_first_chunk::<4>()
        .ok_or_else(|| malformed("error code cut short"))?;
    let errno = i32::from_ne_bytes(*code).checked_neg().ok_or_else(|| malformed("error code"))?;
    let mut ack = Ack { errno, offset: None, message: None };
    if message.flags & NLM_F_ACK_TLVS == 0 {
        return Ok(ack);
    }
    // The request's header follows, then its payload unless capped, then the extended attributes.
    let (head, _) = rest
        .split_first_chunk::<4>()
        .ok_or_else(|| malformed("error without the request's header"))?;
    let skip = if message.flags & NLM_F_CAPPED != 0 {
        NLMSG_HDRLEN
    } else {
        (u32::from_ne_bytes(*head) as usize).next_multiple_of(4).max(NLMSG_HDRLEN)
    };
    let attrs = rest.get(skip..).ok_or_else(|| malformed("request's length in an error"))?;
    for attr in Attrs(attrs) {
        let attr = attr?;
        match attr.kind {
            NLMSGERR_ATTR_MSG => {
                ack.message = Some(String::from_utf8_lossy(until_nul(attr.payload)).into_owned());
            }
            // The one number netlink itself gives in host order.
            NLMSGERR_ATTR_OFFS => {
                let bytes = attr.payload.try_into().map_err(|_| malformed("offset in an error"))?;
                ack.offset = Some(u32::from_ne_bytes(bytes));
            }
            _ => {}
        }
    }
    Ok(ack)
}
