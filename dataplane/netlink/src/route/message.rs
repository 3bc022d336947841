//! The messages' bytes, both ways.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::constants::*;
use crate::Error;
use crate::attr::{self, Attrs, malformed};
use crate::message::Message;

/// `struct ifinfomsg`
const LINK_HEADER: usize = 16;
/// `struct ifaddrmsg`
const ADDRESS_HEADER: usize = 8;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Its number.
    pub index: u32,
    /// It is a dummy interface.
    pub dummy: bool,
    /// It is up.
    pub up: bool,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// The interface.
    pub link: u32,
    /// The address.
    pub addr: IpAddr,
    /// It stands for itself alone, not for a network.
    pub single: bool,
}

/// Family, padding, type, index, flags and which of them are meant.
pub(crate) fn link_header(index: u32, flags: u32) -> [u8; LINK_HEADER] {
    let mut header = [0; LINK_HEADER];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&flags.to_ne_bytes());
    header
}

/// `ip link add NAME up type dummy`, without link-local address and neighbours.
pub(crate) fn put_dummy(buf: &mut Vec<u8>, name: &str) {
    attr::put_str(buf, IFLA_IFNAME, name);
    let info = attr::nest(buf, IFLA_LINKINFO);
    attr::put_str(buf, IFLA_INFO_KIND, "dummy");
    attr::end_nest(buf, info);
}

/// `ip link set NAME addrgenmode none`
pub(crate) fn put_no_link_local(buf: &mut Vec<u8>) {
    let families = attr::nest(buf, IFLA_AF_SPEC);
    let v6 = attr::nest(buf, AF_INET6.into());
    attr::put(buf, IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
    attr::end_nest(buf, v6);
    attr::end_nest(buf, families);
}

/// Family, prefix length, flags, scope, index.
///
/// An address of the scope host is delivered to the node and never chosen as the source of anything; of
/// IPv6 the scope is the address' own, and a deprecated one is not chosen.
pub(crate) fn address_header(link: u32, addr: IpAddr) -> [u8; ADDRESS_HEADER] {
    let (family, bits, scope) = match addr {
        IpAddr::V4(_) => (AF_INET, 32, RT_SCOPE_HOST),
        IpAddr::V6(_) => (AF_INET6, 128, RT_SCOPE_UNIVERSE),
    };
    let [a, b, c, d] = link.to_ne_bytes();
    [family, bits, 0, scope, a, b, c, d]
}

/// The address, and for a new one of IPv6 that nobody asks the neighbours for it or prefers it.
pub(crate) fn put_address(buf: &mut Vec<u8>, addr: IpAddr, new: bool) {
    match addr {
        IpAddr::V4(v4) => {
            attr::put(buf, IFA_LOCAL, &v4.octets());
            attr::put(buf, IFA_ADDRESS, &v4.octets());
        }
        IpAddr::V6(v6) => {
            attr::put(buf, IFA_ADDRESS, &v6.octets());
            if new {
                attr::put_host_u32(buf, IFA_FLAGS, IFA_F_NODAD | IFA_F_NOPREFIXROUTE);
                // Preferred for no time, valid for ever; the two times after that are the kernel's.
                let [preferred, valid] = [0u32, u32::MAX].map(u32::to_ne_bytes);
                attr::put(buf, IFA_CACHEINFO, &[preferred, valid, [0; 4], [0; 4]].concat());
            }
        }
    }
}

/// Reads an interface.
pub fn parse_link(message: &Message<'_>) -> Result<LinkInfo, Error> {
    let (header, attrs) = message
        .payload
        .split_first_chunk::<LINK_HEADER>()
        .ok_or_else(|| malformed("ifinfomsg cut short"))?;
    let number = |at: usize| {
        u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let mut dummy = false;
    for attr in Attrs(attrs) {
        let attr = attr?;
        if attr.kind == IFLA_LINKINFO {
            for info in attr.nested() {
                let info = info?;
                dummy |= info.kind == IFLA_INFO_KIND && info.text() == "dummy";
            }
        }
    }
    Ok(LinkInfo { index: number(4), dummy, up: number(8) & IFF_UP != 0 })
}

/// Reads an address; `None` if it is of another family.
pub fn parse_address(message: &Message<'_>) -> Result<Option<OwnAddress>, Error> {
    let ([family, bits, _, _, link @ ..], attrs) = message
        .payload
        .split_first_chunk::<ADDRESS_HEADER>()
        .ok_or_else(|| malformed("ifaddrmsg cut short"))?;
    let (mut local, mut address) = (None, None);
    for attr in Attrs(attrs) {
        let attr = attr?;
        match attr.kind {
            IFA_LOCAL => local = Some(attr.payload),
            IFA_ADDRESS => address = Some(attr.payload),
            _ => {}
        }
    }
    let Some(bytes) = local.or(address) else { return Err(malformed("an address without one")) };
    let wrong = || malformed("address of another length");
    let (addr, all): (IpAddr, u8) = match *family {
        AF_INET => {
            let bytes: [u8; 4] = bytes.try_into().map_err(|_| wrong())?;
            (Ipv4Addr::from(bytes).into(), 32)
        }
        AF_INET6 => {
            let bytes: [u8; 16] = bytes.try_into().map_err(|_| wrong())?;
            (Ipv6Addr::from(bytes).into(), 128)
        }
        _ => return Ok(None),
    };
    Ok(Some(OwnAddress { link: u32::from_ne_bytes(*link), addr, single: *bits == all }))
}

#[cfg(all(test, target_endian = "little"))]
mod tests;
