//! Bytes as the kernel's headers say they are, written out by hand (for little-endian machines).

use proptest::prelude::*;

use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn payload(link: u32, addr: IpAddr) -> Vec<u8> {
    let mut bytes = address_header(link, addr).to_vec();
    put_address(&mut bytes, addr, true);
    bytes
}

fn message(payload: &[u8]) -> Message<'_> {
    Message { kind: RTM_NEWADDR, flags: 0, seq: 0, port: 0, payload }
}

#[test]
fn an_ipv4_address_is_the_hosts_own_and_no_source() {
    let want = [
        vec![2, 32, 0, 254, 7, 0, 0, 0], // AF_INET, /32, scope host, interface 7
        vec![8, 0, 2, 0, 10, 96, 0, 10], // IFA_LOCAL
        vec![8, 0, 1, 0, 10, 96, 0, 10], // IFA_ADDRESS
    ];
    assert_eq!(payload(7, address("10.96.0.10")), want.concat());
}

#[test]
fn an_ipv6_address_is_deprecated_at_once() {
    let want = [
        vec![10, 128, 0, 0, 7, 0, 0, 0],
        vec![20, 0, 1, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10],
        vec![8, 0, 8, 0, 2, 2, 0, 0], // NODAD, NOPREFIXROUTE
        vec![20, 0, 6, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    assert_eq!(payload(7, address("fd00::a")), want.concat());
}

#[test]
fn a_dummy_interface_is_asked_for_by_name_and_kind() {
    let mut bytes = link_header(0, IFF_UP | IFF_NOARP).to_vec();
    put_dummy(&mut bytes, "zw0");
    let want = [
        vec![0, 0, 0, 0, 0, 0, 0, 0, 0x81, 0, 0, 0, 0x81, 0, 0, 0],
        vec![8, 0, 3, 0, b'z', b'w', b'0', 0],
        vec![16, 0, 18, 0x80, 10, 0, 1, 0, b'd', b'u', b'm', b'm', b'y', 0, 0, 0],
    ];
    assert_eq!(bytes, want.concat());
    let link = parse_link(&message(&bytes)).expect("well formed");
    assert_eq!(link, LinkInfo { index: 0, dummy: true, up: true });
}

#[test]
fn addresses_are_read_back() {
    for addr in [address("10.96.0.10"), address("fd00::a")] {
        let got = parse_address(&message(&payload(7, addr))).expect("well formed");
        assert_eq!(got, Some(OwnAddress { link: 7, addr, single: true }));
    }
    let mut network = payload(7, address("192.0.2.1"));
    network[1] = 24;
    let got = parse_address(&message(&network)).expect("well formed");
    assert_eq!(got.map(|own| own.single), Some(false));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(payload in prop::collection::vec(any::<u8>(), 0..128)) {
        let _ = parse_link(&message(&payload));
        let _ = parse_address(&message(&payload));
    }
}
