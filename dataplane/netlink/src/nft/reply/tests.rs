//! Any bytes give a value or an error, never a panic.
//!
//! `kernel-6.18.hex` is what a 6.18 kernel sent for dumps of every kind, for a generation, for a
//! missing set and for a refused batch, one datagram after the other.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::nft::{Batch, ChainSpec, Element, Expr, SetData, SetSpec, TypeOf};

/// Runs every parser over every message of a datagram.
fn parse_everything(datagram: &[u8]) {
    for message in parse_messages(datagram).flatten() {
        let _ = parse_ack(&message);
        let _ = parse_table(&message);
        let _ = parse_set(&message);
        let _ = parse_chain(&message);
        let _ = parse_rule(&message);
        let _ = parse_generation(&message);
        let _ = parse_elements(&message, &mut |_| {});
        let _ = crate::nft::parse_trace(&message);
    }
}

/// As text, so that a change of it can be reviewed.
static KERNEL_REPLIES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let digits: String = include_str!("kernel-6.18.hex").split_whitespace().collect();
    let byte = |i| u8::from_str_radix(&digits[i..i + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
});

/// What we send has the shape of what the kernel dumps, with attributes the captured replies lack.
fn well_formed() -> Vec<u8> {
    let mut batch = Batch::new();
    let t = (Family::Ip, "zoneward");
    batch.add_table(t.0, t.1, Some("comment"));
    let set = SetSpec {
        name: "map".into(),
        key: vec![TypeOf::IpDaddr, TypeOf::ThDport],
        data: SetData::Verdict,
        counter: true,
        timeout: Some(Duration::from_secs(1)),
        gc_interval: Some(Duration::from_secs(3)),
        dynamic: false,
        interval: true,
        size: Some(10),
        comment: Some("comment".into()),
    };
    batch.add_set(t.0, t.1, &set);
    let hook = Some(Hook { kind: HookKind::Nat, point: HookPoint::Postrouting, priority: -100 });
    let chain = ChainSpec { name: "c".into(), hook, comment: Some("comment".into()) };
    batch.add_chain(t.0, t.1, &chain);
    batch.add_rule(t.0, t.1, "c", &[Expr::Counter], Some("comment"));
    for data in [ElementData::Goto("c"), ElementData::Drop, ElementData::Value(&[1; 8])] {
        let element = Element {
            key: &[1, 2, 3, 4, 0, 80, 0, 0],
            key_end: Some(&[1, 2, 3, 4, 0, 90, 0, 0]),
            data: Some(data),
            timeout: Some(Duration::from_secs(2)),
            comment: Some("comment"),
        };
        batch.add_element(t.0, t.1, "map", &element);
    }
    let (begin, body, end) = batch.seal(1);
    let mut bytes = [begin.as_slice(), body, &end].concat();
    // An error with both extended attributes, capped.
    bytes.extend_from_slice(&error_message());
    bytes
}

fn error_message() -> Vec<u8> {
    let mut m = Vec::new();
    m.extend_from_slice(&0u32.to_ne_bytes());
    m.extend_from_slice(&2u16.to_ne_bytes());
    m.extend_from_slice(&0x300u16.to_ne_bytes());
    m.extend_from_slice(&7u32.to_ne_bytes());
    m.extend_from_slice(&0u32.to_ne_bytes());
    m.extend_from_slice(&(-2i32).to_ne_bytes());
    m.extend_from_slice(&[0; 16]);
    crate::attr::put_str(&mut m, 1, "no such thing");
    crate::attr::put(&mut m, 2, &44u32.to_ne_bytes());
    crate::message::end(&mut m, 0);
    m
}

#[test]
fn an_error_gives_its_number_offset_and_words() {
    let bytes = error_message();
    let message = parse_messages(&bytes).next().expect("one").expect("well formed");
    let want = Ack { errno: 2, offset: Some(44), message: Some("no such thing".into()) };
    assert_eq!((message.seq, parse_ack(&message).expect("well formed")), (7, want));
}

#[test]
fn an_unknown_verdict_is_data_of_no_kind() {
    let mut bytes = Vec::new();
    crate::message::begin(&mut bytes, 0, 0, 0, 2, 0);
    let nests: Vec<usize> =
        [NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_LIST_ELEM, NFTA_SET_ELEM_DATA, NFTA_DATA_VERDICT]
            .into_iter()
            .map(|kind| crate::attr::nest(&mut bytes, kind))
            .collect();
    crate::attr::put_u32(&mut bytes, NFTA_VERDICT_CODE, -1i32 as u32);
    for at in nests.into_iter().rev() {
        crate::attr::end_nest(&mut bytes, at);
    }
    crate::message::end(&mut bytes, 0);
    let message = parse_messages(&bytes).next().expect("one").expect("well formed");
    let mut seen = Vec::new();
    parse_elements(&message, &mut |e| seen.push(e.data.is_none())).expect("well formed");
    assert_eq!(seen, [true]);
}

#[test]
fn the_captured_replies_are_understood() {
    let (mut elements, mut acks, mut chains) = (Vec::new(), Vec::new(), Vec::new());
    for message in parse_messages(&KERNEL_REPLIES) {
        let message = message.expect("well formed");
        match (message.kind, message.kind & 0xff) {
            (2, _) => acks.push(parse_ack(&message).expect("an answer")),
            (3, _) => {}
            (_, NFT_MSG_NEWTABLE) => {
                let table = parse_table(&message).expect("a table");
                assert_eq!((table.family, table.name.as_str()), (Some(Family::Ip), "zoneward"));
            }
            (_, NFT_MSG_NEWCHAIN) => chains.push(parse_chain(&message).expect("a chain").name),
            (_, NFT_MSG_NEWRULE) => drop(parse_rule(&message).expect("a rule")),
            (_, NFT_MSG_NEWSET) => drop(parse_set(&message).expect("a set")),
            (_, NFT_MSG_NEWGEN) => drop(parse_generation(&message).expect("a generation")),
            (_, NFT_MSG_NEWSETELEM) => {
                parse_elements(&message, &mut |e| {
                    elements.push((e.key.to_vec(), e.data.is_some(), e.counter.is_some()));
                })
                .expect("elements");
            }
            other => panic!("{other:?}"),
        }
    }
    elements.sort();
    let want = [
        (vec![10, 0, 0, 0, 0, 80, 0, 0], false, false),
        (vec![10, 0, 0, 1], true, true),
        (vec![10, 0, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0, 0, 0, 0, 0], true, false),
        (vec![10, 0, 0, 2], true, true),
        (vec![10, 0, 0, 3], false, true), // "continue" has no name here
    ];
    assert_eq!(elements, want);
    assert_eq!(chains, ["svc", "pre"]);
    let answers: Vec<_> = acks.iter().map(|a| (a.errno, a.offset.is_some())).collect();
    assert_eq!(answers, [(2, true), (2, true), (2, true)]);
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
        parse_everything(&bytes);
        let message = Message { kind: 0, flags: 0x200, seq: 0, port: 0, payload: &bytes };
        let _ = parse_ack(&message);
        let _ = parse_elements(&message, &mut |_| {});
        let _ = parse_set(&message);
        let _ = parse_chain(&message);
        let _ = parse_rule(&message);
        let _ = parse_table(&message);
        let _ = parse_generation(&message);
    }

    #[test]
    fn damaged_messages_never_panic(
        captured in any::<bool>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = if captured { KERNEL_REPLIES.to_vec() } else { well_formed() };
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= value;
        }
        parse_everything(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        parse_everything(&bytes);
    }
}

#[test]
fn every_prefix_of_a_datagram_is_safe() {
    for bytes in [&well_formed()[..], &KERNEL_REPLIES] {
        for end in 0..=bytes.len() {
            parse_everything(&bytes[..end]);
        }
    }
}
