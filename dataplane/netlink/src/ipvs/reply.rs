//! What IPVS answers. Takes any bytes without panicking.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::batch::netmask;
use super::constants::*;
use super::{Info, RealServer, RealServerInfo, ServerId, ServerInfo, ServerSettings, Timeouts};
use crate::Error;
use crate::attr::{Attr, Attrs, malformed};
use crate::generic;
pub use crate::message::{Message, parse_messages};

/// Reads a virtual server.
pub fn parse_server(message: &Message<'_>) -> Result<ServerInfo, Error> {
    let (mut v6, mut protocol, mut addr, mut port, mut marked) = (None, None, None, None, false);
    let (mut scheduler, mut flags, mut timeout, mut mask) = (None, None, None, None);
    for attr in nested(message, IPVS_CMD_ATTR_SERVICE)? {
        let attr = attr?;
        match attr.kind {
            IPVS_SVC_ATTR_AF => v6 = Some(attr.host_u16()? == AF_INET6),
            IPVS_SVC_ATTR_PROTOCOL => protocol = Some(attr.host_u16()?),
            IPVS_SVC_ATTR_ADDR => addr = Some(attr),
            IPVS_SVC_ATTR_PORT => port = Some(attr.u16()?),
            IPVS_SVC_ATTR_FWMARK => marked = true,
            IPVS_SVC_ATTR_SCHED_NAME => scheduler = Some(attr.text()),
            IPVS_SVC_ATTR_FLAGS => flags = Some(first_u32(&attr)?),
            IPVS_SVC_ATTR_TIMEOUT => timeout = Some(attr.host_u32()?),
            IPVS_SVC_ATTR_NETMASK => mask = Some(attr.payload),
            _ => {}
        }
    }
    let v6 = v6.ok_or_else(|| malformed("a virtual server without a family"))?;
    let id = match (marked, addr, protocol, port) {
        (true, ..) => None,
        (false, Some(addr), Some(protocol), Some(port)) => Some(ServerId {
            addr: address(&addr, v6)?,
            protocol: u8::try_from(protocol).map_err(|_| malformed("protocol number"))?,
            port,
        }),
        _ => return Err(malformed("a virtual server without an address")),
    };
    let settings = ServerSettings {
        scheduler: scheduler.ok_or_else(|| malformed("a virtual server without a scheduler"))?,
        flags: flags.unwrap_or_default() & !IP_VS_SVC_F_HASHED,
        timeout: timeout.unwrap_or_default(),
    };
    let whole =
        netmask(if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() });
    Ok(ServerInfo { id, settings, whole_netmask: mask == Some(&whole[..]) })
}

/// Reads a real server of a virtual server of this family, which kernels before 3.18 do not tell.
pub fn parse_real(message: &Message<'_>, v6: bool) -> Result<RealServerInfo, Error> {
    let (mut v6, mut addr, mut port) = (v6, None, None);
    let (mut method, mut weight, mut active, mut inactive) = (None, None, 0, 0);
    for attr in nested(message, IPVS_CMD_ATTR_DEST)? {
        let attr = attr?;
        match attr.kind {
            IPVS_DEST_ATTR_ADDR_FAMILY => v6 = attr.host_u16()? == AF_INET6,
            IPVS_DEST_ATTR_ADDR => addr = Some(attr),
            IPVS_DEST_ATTR_PORT => port = Some(attr.u16()?),
            IPVS_DEST_ATTR_FWD_METHOD => method = Some(attr.host_u32()?),
            IPVS_DEST_ATTR_WEIGHT => weight = Some(attr.host_u32()?),
            IPVS_DEST_ATTR_ACTIVE_CONNS => active = attr.host_u32()?,
            IPVS_DEST_ATTR_INACT_CONNS => inactive = attr.host_u32()?,
            _ => {}
        }
    }
    let (Some(addr), Some(port), Some(weight)) = (addr, port, weight) else {
        return Err(malformed("a real server without address, port or weight"));
    };
    let real = RealServer { addr: SocketAddr::new(address(&addr, v6)?, port), weight };
    let rewritten = method.map(|m| m & IP_VS_CONN_F_FWD_MASK) == Some(IP_VS_CONN_F_MASQ);
    Ok(RealServerInfo { real, rewritten, active, inactive })
}

/// Reads how long connections are remembered.
pub fn parse_timeouts(message: &Message<'_>) -> Result<Timeouts, Error> {
    let mut timeouts = Timeouts::default();
    for attr in generic::body(message)?.1 {
        let attr = attr?;
        match attr.kind {
            IPVS_CMD_ATTR_TIMEOUT_TCP => timeouts.tcp = attr.host_u32()?,
            IPVS_CMD_ATTR_TIMEOUT_TCP_FIN => timeouts.tcp_fin = attr.host_u32()?,
            IPVS_CMD_ATTR_TIMEOUT_UDP => timeouts.udp = attr.host_u32()?,
            _ => {}
        }
    }
    Ok(timeouts)
}

/// Reads what IPVS says of itself.
pub fn parse_info(message: &Message<'_>) -> Result<Info, Error> {
    let mut info = Info { version: [0; 3], table_size: 0 };
    for attr in generic::body(message)?.1 {
        let attr = attr?;
        match attr.kind {
            IPVS_INFO_ATTR_VERSION => {
                let [_, major, minor, patch] = attr.host_u32()?.to_be_bytes();
                info.version = [major, minor, patch];
            }
            IPVS_INFO_ATTR_CONN_TAB_SIZE => info.table_size = attr.host_u32()?,
            _ => {}
        }
    }
    Ok(info)
}

fn nested<'a>(message: &Message<'a>, kind: u16) -> Result<Attrs<'a>, Error> {
    for attr in generic::body(message)?.1 {
        let attr = attr?;
        if attr.kind == kind {
            return Ok(attr.nested());
        }
    }
    Err(malformed("an answer about nothing"))
}

/// `union nf_inet_addr`: as long as an IPv6 address, whatever the family.
fn address(attr: &Attr<'_>, v6: bool) -> Result<IpAddr, Error> {
    let bytes: [u8; 16] =
        attr.payload.try_into().map_err(|_| malformed("address of another length"))?;
    let [a, b, c, d, ..] = bytes;
    Ok(if v6 { Ipv6Addr::from(bytes).into() } else { Ipv4Addr::new(a, b, c, d).into() })
}

/// The flags of `struct ip_vs_flags`, whose mask means nothing in an answer.
fn first_u32(attr: &Attr<'_>) -> Result<u32, Error> {
    let (flags, _) =
        attr.payload.split_first_chunk::<4>().ok_or_else(|| malformed("flags cut short"))?;
    Ok(u32::from_ne_bytes(*flags))
}

#[cfg(test)]
mod tests;
