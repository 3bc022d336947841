//! Any bytes give an entry or an error, never a panic; what filters say and match.

use proptest::prelude::*;

use super::*;
use crate::message::{self, parse_messages};

fn tuple(src: IpAddr, dst: IpAddr, src_port: u16, dst_port: u16) -> Tuple {
    Tuple { src, dst, protocol: 17, src_port, dst_port }
}

fn entry(family: Family) -> Entry {
    let ip = |n: u8| match family {
        Family::Ip => IpAddr::from([10, 0, 0, n]),
        Family::Ip6 => IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n]),
    };
    Entry {
        original: tuple(ip(1), ip(2), 40_000, 53),
        reply: tuple(ip(3), ip(1), 5353, 40_000),
        status: IPS_DST_NAT | IPS_SEEN_REPLY,
        zone: Some(7),
        id: Some(0x0102_0304),
    }
}

/// An entry as the kernel sends it, with a nest nobody reads.
fn message(entry: &Entry) -> Vec<u8> {
    let mut buf = Vec::new();
    message::begin(&mut buf, NFNL_SUBSYS_CTNETLINK << 8, 0, 1, entry.family().nfproto(), 0);
    entry.encode_name(&mut buf);
    let reply = attr::nest(&mut buf, CTA_TUPLE_REPLY);
    entry.reply.encode(&mut buf);
    attr::end_nest(&mut buf, reply);
    attr::put_u32(&mut buf, CTA_STATUS, entry.status);
    let unread = attr::nest(&mut buf, 4);
    attr::put(&mut buf, 1, &[1, 2, 3]);
    attr::end_nest(&mut buf, unread);
    message::end(&mut buf, 0);
    buf
}

fn parse(bytes: &[u8]) -> Result<Entry, Error> {
    parse_entry(&parse_messages(bytes).next().expect("one")?)
}

#[test]
fn what_names_an_entry_is_read_back() {
    for family in [Family::Ip, Family::Ip6] {
        let entry = entry(family);
        assert_eq!(parse(&message(&entry)).expect("well formed"), entry);
        let bare = Entry { zone: None, id: None, ..entry };
        assert_eq!(parse(&message(&bare)).expect("well formed"), bare);
    }
}

#[test]
fn an_entry_of_half_a_tuple_or_of_two_families_is_malformed() {
    let mut mixed = entry(Family::Ip);
    mixed.original.src = entry(Family::Ip6).original.src;
    assert!(matches!(parse(&message(&mixed)), Err(Error::Malformed { .. })));
    let mut buf = Vec::new();
    message::begin(&mut buf, 0, 0, 1, 2, 0);
    entry(Family::Ip).encode_name(&mut buf);
    message::end(&mut buf, 0);
    assert!(matches!(parse(&buf), Err(Error::Malformed { .. })), "no reply");
}

#[test]
fn no_filter_ever_carries_an_ipv6_address() {
    for family in [Family::Ip, Family::Ip6] {
        let dst = entry(family).original.dst;
        let filter =
            Filter { family, protocol: 17, dst: Some(dst), dst_port: Some(53), unanswered: false };
        let mut buf = Vec::new();
        filter.encode(&mut buf);
        let (mut addresses, mut flags) = (0, None);
        for outer in Attrs(&buf).map(|a| a.expect("well formed")) {
            for inner in outer.nested().map(|a| a.expect("well formed")) {
                match (outer.kind, inner.kind) {
                    (CTA_TUPLE_ORIG, CTA_TUPLE_IP) => addresses += 1,
                    (CTA_FILTER, CTA_FILTER_ORIG_FLAGS) => flags = Some(inner.payload.to_vec()),
                    _ => {}
                }
            }
        }
        let with_address = family == Family::Ip;
        assert_eq!(addresses, i32::from(with_address));
        let want = if with_address { 0b10_1010u32 } else { 0b10_1000 };
        assert_eq!(flags, Some(want.to_ne_bytes().to_vec()));
    }
}

#[test]
fn a_filter_compares_every_field_it_names() {
    let entry = entry(Family::Ip);
    let (dst, dst_port) = (Some(entry.original.dst), Some(53));
    let whole = Filter { family: Family::Ip, protocol: 17, dst, dst_port, unanswered: false };
    assert!(whole.matches(&entry));
    assert!(Filter { dst: None, dst_port: None, ..whole }.matches(&entry));
    assert!(!Filter { dst: Some(entry.original.src), ..whole }.matches(&entry));
    assert!(!Filter { dst_port: Some(54), ..whole }.matches(&entry));
    assert!(!Filter { protocol: 6, ..whole }.matches(&entry));
    assert!(!Filter { family: Family::Ip6, dst: None, ..whole }.matches(&entry));
    let unanswered = Filter { unanswered: true, ..whole };
    assert!(!unanswered.matches(&entry));
    assert!(unanswered.matches(&Entry { status: IPS_DST_NAT, ..entry }));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = parse_entry(&Message { kind: 0, flags: 0, seq: 0, port: 0, payload: &bytes });
    }

    #[test]
    fn damaged_entries_never_panic(
        v6 in any::<bool>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = message(&entry(if v6 { Family::Ip6 } else { Family::Ip }));
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= value;
        }
        bytes.truncate(cut.index(bytes.len()));
        for message in parse_messages(&bytes).flatten() {
            let _ = parse_entry(&message);
        }
        let payload = bytes.get(16..).unwrap_or_default();
        let _ = parse_entry(&Message { kind: 0, flags: 0, seq: 0, port: 0, payload });
    }
}
