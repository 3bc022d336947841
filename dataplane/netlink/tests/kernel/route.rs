//! Addresses of an interface: the loopback one, which every namespace has, stands in for a dummy.

use std::net::IpAddr;

use zw_netlink::route::Socket;

use crate::netns::in_netns;

const LOOPBACK: u32 = 1;

#[test]
fn addresses_come_and_go_and_again_does_no_harm() {
    in_netns(|| {
        let mut socket = Socket::open().unwrap();
        let link = socket.link("lo").unwrap().expect("every namespace has one");
        assert_eq!((link.index, link.dummy, link.up), (LOOPBACK, false, false));
        socket.set_up(link.index).unwrap();
        assert!(socket.link("lo").unwrap().expect("still there").up);
        assert_eq!(socket.link("nobody").unwrap(), None);

        // More than one send.
        let v4 = (0..700u16).map(|n| IpAddr::from([10, 96, (n >> 8) as u8, n as u8]));
        let v6 = (0..700u16).map(|n| IpAddr::from([0xfd00, 0x96, 0, 0, 0, 0, 0, n + 1]));
        let mut all: Vec<IpAddr> = v4.chain(v6).collect();
        let ours = |socket: &mut Socket| {
            let mut found = socket.addresses(LOOPBACK).unwrap();
            found.retain(|addr| !addr.is_loopback());
            found.sort();
            found
        };
        for _ in 0..2 {
            assert_eq!(socket.add_addresses(LOOPBACK, &all).unwrap(), []);
            assert_eq!(ours(&mut socket), all);
        }
        let gone = all.split_off(1);
        for _ in 0..2 {
            assert_eq!(socket.remove_addresses(LOOPBACK, &gone).unwrap(), []);
            assert_eq!(ours(&mut socket), all);
        }
        let refused = socket.add_addresses(999, &all).unwrap();
        assert_eq!(refused.len(), 1, "no such interface: {refused:?}");
    });
}
