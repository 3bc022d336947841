//! Entries of the table, the filters that choose some, and their bytes.

use std::net::IpAddr;

use super::constants::*;
use crate::Error;
use crate::attr::{self, Attr, Attrs, malformed};
use crate::message::Message;
use crate::nft::Family;

/// A packet of the other direction was seen.
pub const IPS_SEEN_REPLY: u32 = 1 << 1;
/// The source is translated.
pub const IPS_SRC_NAT: u32 = 1 << 4;
/// The destination is translated.
pub const IPS_DST_NAT: u32 = 1 << 5;
/// A flow table forwards it; the kernel refuses to delete such an entry.
pub const IPS_OFFLOAD: u32 = 1 << 14;

/// The addresses and ports of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// The source address.
    pub src: IpAddr,
    /// The destination address, of the same family.
    pub dst: IpAddr,
    /// The transport protocol, `IPPROTO_*`.
    pub protocol: u8,
    /// The source port; 0 for a protocol without ports.
    pub src_port: u16,
    /// The destination port; 0 for a protocol without ports.
    pub dst_port: u16,
}

/// A tracked connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// What its first packet said, before any translation.
    pub original: Tuple,
    /// What answers say before they are translated back: their source is whom the connection was
    /// sent to.
    pub reply: Tuple,
    /// `IPS_*` bits.
    pub status: u32,
    /// The zone the original direction is in, if not the default one.
    pub zone: Option<u16>,
    /// The kernel's number of this entry. A later connection of the same tuple has another, unless
    /// the kernel put it into the same piece of memory.
    pub id: Option<u32>,
}

/// Which entries to dump, by their original direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filter {
    /// The family.
    pub family: Family,
    /// The transport protocol, `IPPROTO_*`.
    pub protocol: u8,
    /// The destination address; none for any.
    pub dst: Option<IpAddr>,
    /// The destination port; none for any.
    pub dst_port: Option<u16>,
    /// Only those of which no packet of the other direction was seen.
    pub unanswered: bool,
}

impl Filter {
    /// Whether the entry is one to dump.
    pub fn matches(&self, entry: &Entry) -> bool {
        let original = &entry.original;
        original.dst.is_ipv4() == (self.family == Family::Ip)
            && original.protocol == self.protocol
            && self.dst.is_none_or(|dst| dst == original.dst)
            && self.dst_port.is_none_or(|port| port == original.dst_port)
            && !(self.unanswered && entry.is_answered())
    }

    /// Appends `CTA_FILTER` and the tuple it speaks of. It only has to keep the kernel from sending
    /// too much: what arrives is compared again.
    ///
    /// Never with an IPv6 address: kernels from 5.8 to at least 6.18 then send every entry *but*
    /// those that match (`ctnetlink_filter_match_tuple` takes `ipv6_addr_cmp` for a boolean).
    pub(crate) fn encode(&self, buf: &mut Vec<u8>) {
        let mut flags = CTA_FILTER_F_PROTO_NUM;
        let tuple = attr::nest(buf, CTA_TUPLE_ORIG);
        if let Some(IpAddr::V4(dst)) = self.dst {
            flags |= CTA_FILTER_F_IP_DST;
            let ip = attr::nest(buf, CTA_TUPLE_IP);
            attr::put(buf, CTA_IP_V4_DST, &dst.octets());
            attr::end_nest(buf, ip);
        }
        let proto = attr::nest(buf, CTA_TUPLE_PROTO);
        attr::put(buf, CTA_PROTO_NUM, &[self.protocol]);
        if let Some(port) = self.dst_port {
            flags |= CTA_FILTER_F_PROTO_DST_PORT;
            attr::put(buf, CTA_PROTO_DST_PORT, &port.to_be_bytes());
        }
        attr::end_nest(buf, proto);
        attr::end_nest(buf, tuple);
        let filter = attr::nest(buf, CTA_FILTER);
        // In host order, unlike every other number of this interface.
        attr::put(buf, CTA_FILTER_ORIG_FLAGS, &flags.to_ne_bytes());
        attr::end_nest(buf, filter);
        if self.unanswered {
            // Kernels before 5.15 take no notice.
            attr::put_u32(buf, CTA_STATUS, 0);
            attr::put_u32(buf, CTA_STATUS_MASK, IPS_SEEN_REPLY);
        }
    }
}

impl Entry {
    /// The family of its addresses.
    pub fn family(&self) -> Family {
        if self.original.dst.is_ipv4() { Family::Ip } else { Family::Ip6 }
    }

    /// Whether a packet of the other direction was seen.
    pub fn is_answered(&self) -> bool {
        self.status & IPS_SEEN_REPLY != 0
    }

    /// Appends what names this entry and no other: its original tuple, its zone and its number.
    pub(crate) fn encode_name(&self, buf: &mut Vec<u8>) {
        let tuple = attr::nest(buf, CTA_TUPLE_ORIG);
        self.original.encode(buf);
        attr::end_nest(buf, tuple);
        if let Some(zone) = self.zone {
            attr::put(buf, CTA_ZONE, &zone.to_be_bytes());
        }
        if let Some(id) = self.id {
            attr::put_u32(buf, CTA_ID, id);
        }
    }
}

impl Tuple {
    fn encode(&self, buf: &mut Vec<u8>) {
        let ip = attr::nest(buf, CTA_TUPLE_IP);
        for (address, v4, v6) in
            [(self.src, CTA_IP_V4_SRC, CTA_IP_V6_SRC), (self.dst, CTA_IP_V4_DST, CTA_IP_V6_DST)]
        {
            match address {
                IpAddr::V4(address) => attr::put(buf, v4, &address.octets()),
                IpAddr::V6(address) => attr::put(buf, v6, &address.octets()),
            }
        }
        attr::end_nest(buf, ip);
        let proto = attr::nest(buf, CTA_TUPLE_PROTO);
        attr::put(buf, CTA_PROTO_NUM, &[self.protocol]);
        attr::put(buf, CTA_PROTO_SRC_PORT, &self.src_port.to_be_bytes());
        attr::put(buf, CTA_PROTO_DST_PORT, &self.dst_port.to_be_bytes());
        attr::end_nest(buf, proto);
    }
}

/// Reads an `IPCTNL_MSG_CT_NEW`, the form of a dumped entry.
pub fn parse_entry(message: &Message<'_>) -> Result<Entry, Error> {
    let (_, attrs) = message.body()?;
    let (mut original, mut reply, mut zone) = (None, None, None);
    let (mut status, mut id) = (0, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            CTA_TUPLE_ORIG => {
                let (tuple, of_tuple) = parse_tuple(attr.nested())?;
                original = Some(tuple);
                zone = zone.or(of_tuple);
            }
            CTA_TUPLE_REPLY => reply = Some(parse_tuple(attr.nested())?.0),
            CTA_STATUS => status = attr.u32()?,
            CTA_ZONE => zone = Some(u16_of(&attr)?),
            CTA_ID => id = Some(attr.u32()?),
            _ => {}
        }
    }
    match (original, reply) {
        (Some(original), Some(reply)) => Ok(Entry { original, reply, status, zone, id }),
        _ => Err(malformed("connection without both tuples")),
    }
}

/// A tuple, and the zone of that direction alone.
fn parse_tuple(attrs: Attrs<'_>) -> Result<(Tuple, Option<u16>), Error> {
    let (mut src, mut dst, mut protocol, mut zone) = (None, None, None, None);
    let (mut src_port, mut dst_port) = (0, 0);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            CTA_TUPLE_IP => {
                for part in attr.nested() {
                    let part = part?;
                    match part.kind {
                        CTA_IP_V4_SRC | CTA_IP_V6_SRC => src = Some(address(&part)?),
                        CTA_IP_V4_DST | CTA_IP_V6_DST => dst = Some(address(&part)?),
                        _ => {}
                    }
                }
            }
            CTA_TUPLE_PROTO => {
                for part in attr.nested() {
                    let part = part?;
                    match part.kind {
                        CTA_PROTO_NUM => protocol = part.payload.first().copied(),
                        CTA_PROTO_SRC_PORT => src_port = u16_of(&part)?,
                        CTA_PROTO_DST_PORT => dst_port = u16_of(&part)?,
                        _ => {}
                    }
                }
            }
            CTA_TUPLE_ZONE => zone = Some(u16_of(&attr)?),
            _ => {}
        }
    }
    match (src, dst, protocol) {
        (Some(src), Some(dst), Some(protocol)) if src.is_ipv4() == dst.is_ipv4() => {
            Ok((Tuple { src, dst, protocol, src_port, dst_port }, zone))
        }
        _ => Err(malformed("tuple of a connection")),
    }
}

fn address(attr: &Attr<'_>) -> Result<IpAddr, Error> {
    if let Ok(v4) = <[u8; 4]>::try_from(attr.payload) {
        return Ok(v4.into());
    }
    let v6 = <[u8; 16]>::try_from(attr.payload);
    v6.map(Into::into).map_err(|_| malformed("address of another length"))
}

fn u16_of(attr: &Attr<'_>) -> Result<u16, Error> {
    let bytes = attr.payload.try_into().map_err(|_| malformed("u16 of another length"))?;
    Ok(u16::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests;
