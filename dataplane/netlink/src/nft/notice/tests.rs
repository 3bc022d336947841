//! Any bytes give a notice, nothing or an error, never a panic.

use proptest::prelude::*;

use super::*;
use crate::attr;
use crate::message::{self, parse_messages};

const TABLE: &str = "zoneward";

/// A notification of `verb` with these attributes, from the socket with port 77.
fn notification(verb: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut buf = Vec::new();
    message::begin(&mut buf, NFNL_SUBSYS_NFTABLES << 8 | verb, 0, 1, 2, 0);
    for (kind, payload) in attributes {
        attr::put(&mut buf, *kind, payload);
    }
    message::end(&mut buf, 0);
    buf[12..16].copy_from_slice(&77u32.to_ne_bytes());
    buf
}

fn parse(bytes: &[u8]) -> Result<Option<Notice<'_>>, Error> {
    parse_notice(&parse_messages(bytes).next().expect("one")?, TABLE)
}

fn change(verb: Verb, object: Object, name: Option<&str>) -> Notice<'_> {
    let name = name.map(Cow::Borrowed);
    let (family, elements) = (Some(Family::Ip), Elements::default());
    Notice::Change(Change { verb, object, family, name, port: 77, elements })
}

#[test]
fn the_names_of_an_object_are_found_and_what_follows_is_not_read() {
    let rest: (u16, &[u8]) = (9, b"unread");
    let table: (u16, &[u8]) = (1, b"zoneward\0");
    let bytes = notification(NFT_MSG_DELRULE, &[table, (2, b"dispatch\0"), rest]);
    let want = change(Verb::Deleted, Object::Rule, Some("dispatch"));
    assert_eq!(parse(&bytes).expect("well formed"), Some(want.clone()));
    let mut cut = bytes;
    let end = cut.len();
    cut[end - 12..end - 8].fill(0xff);
    assert_eq!(parse(&cut).expect("stops before the damage"), Some(want));

    let bytes = notification(NFT_MSG_NEWCHAIN, &[table, (3, b"pre\0"), (2, b"handle00")]);
    let want = change(Verb::New, Object::Chain, Some("pre"));
    assert_eq!(parse(&bytes).expect("well formed"), Some(want));
    let bytes = notification(NFT_MSG_DELTABLE, &[table]);
    assert_eq!(
        parse(&bytes).expect("well formed"),
        Some(change(Verb::Deleted, Object::Table, None))
    );
}

#[test]
fn elements_are_told_with_what_they_map_to() {
    let mut list = Vec::new();
    for n in [7u8, 8] {
        let element = crate::nft::Element {
            key: &[n; 4],
            key_end: None,
            data: Some(crate::nft::ElementData::Goto("cluster-1")),
            timeout: None,
            comment: Some("web/api"),
        };
        element.encode(&mut list);
    }
    let attributes = [(1, &b"zoneward\0"[..]), (2, b"services\0"), (3, &list)];
    let bytes = notification(NFT_MSG_NEWSETELEM, &attributes);
    let Some(Notice::Change(change)) = parse(&bytes).expect("well formed") else { panic!() };
    assert_eq!((change.object, change.name.as_deref()), (Object::Element, Some("services")));
    let mut read = Vec::new();
    let mut take = |element: DumpedElement<'_>| {
        let data = element.data.expect("a map's");
        read.push(format!("{:?} {data:?} {:?}", element.key, element.comment));
    };
    change.elements.read(&mut take).expect("well formed");
    assert_eq!(
        read,
        [
            r#"[7, 7, 7, 7] Goto("cluster-1") Some("web/api")"#,
            r#"[8, 8, 8, 8] Goto("cluster-1") Some("web/api")"#
        ]
    );
    let bytes = notification(NFT_MSG_NEWSETELEM, &attributes[..2]);
    assert!(matches!(parse(&bytes), Err(Error::Malformed { .. })), "no elements");
}

#[test]
fn other_tables_and_other_kinds_are_nothing() {
    for table in [&b"zoneward2\0"[..], b"zonewar\0", b"\xff\xfe\0", b""] {
        let bytes = notification(NFT_MSG_NEWSET, &[(1, table), (2, b"s\0")]);
        assert_eq!(parse(&bytes).expect("well formed"), None, "{table:?}");
    }
    for verb in [NFT_MSG_GETRULE, NFT_MSG_GETGEN, 200] {
        let bytes = notification(verb, &[(1, b"zoneward\0")]);
        assert_eq!(parse(&bytes).expect("well formed"), None, "{verb}");
    }
    let mut bytes = notification(NFT_MSG_NEWTABLE, &[(1, b"zoneward\0")]);
    bytes[4..6].copy_from_slice(&(1u16 << 8).to_ne_bytes());
    assert_eq!(parse(&bytes).expect("connection tracking's"), None);
}

#[test]
fn a_notification_without_names_is_malformed() {
    for attributes in [&[][..], &[(2, &b"s\0"[..])], &[(1, b"zoneward\0")]] {
        let bytes = notification(NFT_MSG_NEWSET, attributes);
        assert!(matches!(parse(&bytes), Err(Error::Malformed { .. })), "{attributes:?}");
    }
    let bytes = notification(NFT_MSG_NEWGEN, &[(2, &[0; 4])]);
    assert!(matches!(parse(&bytes), Err(Error::Malformed { .. })));
}

#[test]
fn a_generation_tells_who_made_it_where_the_kernel_does() {
    let bytes = notification(NFT_MSG_NEWGEN, &[(1, &[0, 0, 0, 9])]);
    let mut want = Generation { id: 9, port: 77, pid: None, process: None };
    assert_eq!(parse(&bytes).expect("well formed"), Some(Notice::Generation(want.clone())));
    let bytes =
        notification(NFT_MSG_NEWGEN, &[(1, &[0, 0, 0, 9]), (2, &[0, 0, 1, 0]), (3, b"n\xfft\0")]);
    want.pid = Some(256);
    want.process = Some("n\u{fffd}t".into());
    assert_eq!(parse(&bytes).expect("well formed"), Some(Notice::Generation(want)));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(
        verb in any::<u8>(),
        bytes in prop::collection::vec(any::<u8>(), 0..512),
    ) {
        let kind = NFNL_SUBSYS_NFTABLES << 8 | u16::from(verb);
        let _ = parse_notice(&Message { kind, flags: 0, seq: 0, port: 0, payload: &bytes }, TABLE);
    }

    #[test]
    fn damaged_notifications_never_panic(
        verb in 0u16..26,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = notification(verb, &[(1, b"zoneward\0"), (2, b"name\0"), (3, b"n\0")]);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= value;
        }
        bytes.truncate(cut.index(bytes.len()));
        for message in parse_messages(&bytes).flatten() {
            if let Ok(Some(Notice::Change(change))) = parse_notice(&message, TABLE) {
                let _ = change.elements.read(&mut |_| {});
            }
        }
    }
}
