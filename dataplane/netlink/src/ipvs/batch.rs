//! Operations on virtual and real servers as bytes.

use std::net::{IpAddr, SocketAddr};

use super::constants::*;
use super::{RealServer, ServerId, ServerSettings};
use crate::attr;
use crate::generic;
use crate::message;

/// Operations in the order they are to be done. IPVS' number is not known here; the socket fills it in.
#[derive(Default)]
pub struct Batch {
    buf: Vec<u8>,
    /// Where each message starts.
    starts: Vec<usize>,
}

impl Batch {
    /// Nothing to do yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many operations.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// A new virtual server: EEXIST if it is there, ENOENT if its scheduler is not.
    pub fn new_server(&mut self, id: &ServerId, settings: &ServerSettings) {
        self.server(IPVS_CMD_NEW_SERVICE, id, Some(settings), None);
    }

    /// Other settings for a virtual server: ESRCH if it is not there.
    pub fn set_server(&mut self, id: &ServerId, settings: &ServerSettings) {
        self.server(IPVS_CMD_SET_SERVICE, id, Some(settings), None);
    }

    /// A virtual server and its real servers go: ESRCH if it is not there.
    pub fn delete_server(&mut self, id: &ServerId) {
        self.server(IPVS_CMD_DEL_SERVICE, id, None, None);
    }

    /// A new real server: EEXIST if it is there, ESRCH if the virtual server is not.
    pub fn new_real(&mut self, id: &ServerId, real: &RealServer) {
        self.server(IPVS_CMD_NEW_DEST, id, None, Some((real.addr, Some(real.weight))));
    }

    /// Another weight: ENOENT if the real server is not there, ESRCH if the virtual one is not.
    pub fn set_real(&mut self, id: &ServerId, real: &RealServer) {
        self.server(IPVS_CMD_SET_DEST, id, None, Some((real.addr, Some(real.weight))));
    }

    /// A real server goes, with its connections: ENOENT and ESRCH as above.
    pub fn delete_real(&mut self, id: &ServerId, real: SocketAddr) {
        self.server(IPVS_CMD_DEL_DEST, id, None, Some((real, None)));
    }

    fn server(
        &mut self,
        command: u8,
        id: &ServerId,
        settings: Option<&ServerSettings>,
        real: Option<(SocketAddr, Option<u32>)>,
    ) {
        let buf = &mut self.buf;
        let header = generic::header(command, IPVS_GENL_VERSION);
        let start = message::begin_with(buf, 0, 0, 0, &header);
        put_server(buf, id, settings);
        if let Some((addr, weight)) = real {
            put_real(buf, addr, weight);
        }
        message::end(buf, start);
        self.starts.push(start);
    }

    /// The bytes of the operations `range`, numbered from `first`; the last asks for an answer.
    pub(crate) fn seal(&mut self, range: std::ops::Range<usize>, family: u16, first: u32) -> &[u8] {
        let starts = &self.starts[range.clone()];
        for (seq, start) in (0..).map(|n| first.wrapping_add(n)).zip(starts) {
            message::set_kind(&mut self.buf, *start, family);
            message::set_seq(&mut self.buf, *start, seq);
        }
        if let Some(last) = starts.last() {
            message::set_ack(&mut self.buf, *last, true);
        }
        let from = starts.first().copied().unwrap_or(self.buf.len());
        let to = self.starts.get(range.end).copied().unwrap_or(self.buf.len());
        &self.buf[from..to]
    }
}

/// What names a virtual server, and its settings where they matter.
pub(crate) fn put_server(buf: &mut Vec<u8>, id: &ServerId, settings: Option<&ServerSettings>) {
    let nest = attr::nest(buf, IPVS_CMD_ATTR_SERVICE);
    attr::put_host_u16(buf, IPVS_SVC_ATTR_AF, family(id.addr));
    attr::put_host_u16(buf, IPVS_SVC_ATTR_PROTOCOL, id.protocol.into());
    put_addr(buf, IPVS_SVC_ATTR_ADDR, id.addr);
    // The one number in network order besides the netmask.
    attr::put(buf, IPVS_SVC_ATTR_PORT, &id.port.to_be_bytes());
    if let Some(settings) = settings {
        attr::put_str(buf, IPVS_SVC_ATTR_SCHED_NAME, &settings.scheduler);
        // struct ip_vs_flags: the flags, and which of them are meant: all.
        let flags = [settings.flags.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat();
        attr::put(buf, IPVS_SVC_ATTR_FLAGS, &flags);
        attr::put_host_u32(buf, IPVS_SVC_ATTR_TIMEOUT, settings.timeout);
        attr::put(buf, IPVS_SVC_ATTR_NETMASK, &netmask(id.addr));
    }
    attr::end_nest(buf, nest);
}

fn put_real(buf: &mut Vec<u8>, addr: SocketAddr, weight: Option<u32>) {
    let nest = attr::nest(buf, IPVS_CMD_ATTR_DEST);
    put_addr(buf, IPVS_DEST_ATTR_ADDR, addr.ip());
    attr::put(buf, IPVS_DEST_ATTR_PORT, &addr.port().to_be_bytes());
    attr::put_host_u16(buf, IPVS_DEST_ATTR_ADDR_FAMILY, family(addr.ip()));
    if let Some(weight) = weight {
        attr::put_host_u32(buf, IPVS_DEST_ATTR_FWD_METHOD, IP_VS_CONN_F_MASQ);
        attr::put_host_u32(buf, IPVS_DEST_ATTR_WEIGHT, weight);
        // No limit of connections.
        attr::put_host_u32(buf, IPVS_DEST_ATTR_U_THRESH, 0);
        attr::put_host_u32(buf, IPVS_DEST_ATTR_L_THRESH, 0);
    }
    attr::end_nest(buf, nest);
}

/// `union nf_inet_addr`: as long as an IPv6 address, whatever the family.
fn put_addr(buf: &mut Vec<u8>, kind: u16, addr: IpAddr) {
    let mut bytes = [0; 16];
    match addr {
        IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => bytes = v6.octets(),
    }
    attr::put(buf, kind, &bytes);
}

/// Single client addresses: a mask of IPv4, a length of IPv6.
pub(crate) fn netmask(addr: IpAddr) -> [u8; 4] {
    match addr {
        IpAddr::V4(_) => [0xff; 4],
        IpAddr::V6(_) => 128u32.to_ne_bytes(),
    }
}

fn family(addr: IpAddr) -> u16 {
    if addr.is_ipv4() { AF_INET } else { AF_INET6 }
}

#[cfg(all(test, target_endian = "little"))]
mod tests;
