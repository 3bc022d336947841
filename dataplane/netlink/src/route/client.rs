//! Requests about one interface and their answers.

use std::io::IoSlice;
use std::net::IpAddr;

use super::constants::*;
use super::message::{
    LinkInfo, address_header, link_header, parse_address, parse_link, put_address, put_dummy,
    put_no_link_local,
};
use crate::Error;
use crate::attr;
use crate::exchange::Exchange;
use crate::message::{self, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};

/// Addresses in one send; see the same number in [`crate::ipvs`].
const ADDRESSES_PER_SEND: usize = 512;

/// A connection to route netlink in one network namespace.
pub struct Socket {
    exchange: Exchange,
}

/// An address the kernel did not take, or not let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRefusal {
    /// Which.
    pub addr: IpAddr,
    /// The kernel's error number, positive.
    pub errno: i32,
}

impl Socket {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { exchange: Exchange::open_to(libc::NETLINK_ROUTE)? })
    }

    /// The interface of this name, if there is one.
    pub fn link(&mut self, name: &str) -> Result<Option<LinkInfo>, Error> {
        let header = link_header(0, 0);
        let seq = self.exchange.request_with(RTM_GETLINK, 0, &header, |buf| {
            attr::put_str(buf, IFLA_IFNAME, name);
        })?;
        match self.exchange.read_reply(seq, RTM_NEWLINK, parse_link) {
            Ok(link) => Ok(Some(link)),
            Err(Error::Refused { errno: libc::ENODEV, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a dummy interface, up, without addresses. EOPNOTSUPP: the kernel has no such interfaces.
    pub fn add_dummy(&mut self, name: &str) -> Result<LinkInfo, Error> {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        let header = link_header(0, IFF_NOARP);
        let seq = self.exchange.request_with(RTM_NEWLINK, flags, &header, |buf| {
            put_dummy(buf, name);
        })?;
        self.exchange.read_ack(seq)?;
        let link =
            self.link(name)?.ok_or(Error::Malformed { what: "no interface after it was made" })?;
        // Before it goes up, which is when it would get one. A node without IPv6 has none anyway.
        let header = link_header(link.index, 0);
        let seq = self.exchange.request_with(RTM_NEWLINK, NLM_F_ACK, &header, put_no_link_local)?;
        if let Err(error) = self.exchange.read_ack(seq) {
            tracing::debug!(error = &error as &dyn std::error::Error, "a link-local address stays");
        }
        self.set_up(link.index)?;
        Ok(LinkInfo { up: true, ..link })
    }

    /// Brings an interface up.
    pub fn set_up(&mut self, link: u32) -> Result<(), Error> {
        let header = link_header(link, IFF_UP);
        let seq = self.exchange.request_with(RTM_NEWLINK, NLM_F_ACK, &header, |_| {})?;
        self.exchange.read_ack(seq)
    }

    /// Removes an interface with its addresses.
    pub fn delete_link(&mut self, link: u32) -> Result<(), Error> {
        let header = link_header(link, 0);
        let seq = self.exchange.request_with(RTM_DELLINK, NLM_F_ACK, &header, |_| {})?;
        self.exchange.read_ack(seq)
    }

    /// The addresses of an interface that stand for themselves alone.
    pub fn addresses(&mut self, link: u32) -> Result<Vec<IpAddr>, Error> {
        let header = [0; 8];
        let seq = self.exchange.request_with(RTM_GETADDR, NLM_F_DUMP, &header, |_| {})?;
        let mut found = Vec::new();
        self.exchange.read_dump(seq, RTM_NEWADDR, |message| {
            let own = parse_address(message)?;
            found.extend(own.filter(|own| own.link == link && own.single).map(|own| own.addr));
            Ok(())
        })?;
        Ok(found)
    }

    /// Gives an interface addresses; one it has already is no refusal.
    pub fn add_addresses(
        &mut self,
        link: u32,
        addresses: &[IpAddr],
    ) -> Result<Vec<AddressRefusal>, Error> {
        self.change(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, link, addresses, libc::EEXIST)
    }

    /// Takes addresses from an interface; one it does not have is no refusal.
    pub fn remove_addresses(
        &mut self,
        link: u32,
        addresses: &[IpAddr],
    ) -> Result<Vec<AddressRefusal>, Error> {
        self.change(RTM_DELADDR, 0, link, addresses, libc::EADDRNOTAVAIL)
    }

    fn change(
        &mut self,
        kind: u16,
        flags: u16,
        link: u32,
        addresses: &[IpAddr],
        already: i32,
    ) -> Result<Vec<AddressRefusal>, Error> {
        let mut refused = Vec::new();
        for some in addresses.chunks(ADDRESSES_PER_SEND) {
            let count = some.len() as u32;
            let first = self.exchange.take_seq(count);
            let mut request = Vec::with_capacity(some.len() * 96);
            let mut last = 0;
            for (seq, addr) in (0..count).map(|n| first.wrapping_add(n)).zip(some) {
                let header = address_header(link, *addr);
                last = message::begin_with(&mut request, kind, flags, seq, &header);
                put_address(&mut request, *addr, kind == RTM_NEWADDR);
                message::end(&mut request, last);
            }
            message::set_ack(&mut request, last, true);
            self.exchange.send(&[IoSlice::new(&request)])?;
            self.exchange.read_acks(first, count, count - 1, |index, ack| {
                if ack.errno != 0 && ack.errno != already {
                    let addr = some[index as usize];
                    refused.push(AddressRefusal { addr, errno: ack.errno });
                }
            })?;
        }
        Ok(refused)
    }
}
