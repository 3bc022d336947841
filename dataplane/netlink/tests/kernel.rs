//! The encoder and the parsers against the running kernel, nft 1.0.6 as second opinion.
//!
//! Every test is alone in a network namespace and fails without root.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use zw_netlink::nft::{
    Batch, ChainSpec, Element, ElementData, Error, Expr, Family, Hook, HookKind, HookPoint,
    MetaKey, OpId, PayloadBase, REG_VERDICT, REG32_00, SetData, SetSpec, Socket, TableInfo, TypeOf,
    Verdict,
};

#[path = "kernel/conntrack.rs"]
mod conntrack;
#[path = "kernel/dumps.rs"]
mod dumps;
#[path = "kernel/exprs.rs"]
mod exprs;
#[path = "kernel/intervals.rs"]
mod intervals;
#[path = "kernel/monitor.rs"]
mod monitor;
#[path = "kernel/netns.rs"]
mod netns;
#[path = "kernel/packets.rs"]
mod packets;
#[path = "kernel/refusals.rs"]
mod refusals;
#[path = "kernel/route.rs"]
mod route;
#[path = "kernel/userdata.rs"]
mod userdata;

use netns::{in_netns, listing, run};

const T: &str = "zoneward";
const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

fn set(name: &str, key: &[TypeOf], data: SetData) -> SetSpec {
    SetSpec {
        name: name.into(),
        key: key.to_vec(),
        data,
        counter: false,
        timeout: None,
        gc_interval: None,
        dynamic: false,
        interval: false,
        size: None,
        comment: None,
    }
}

fn plain_chain(name: &str) -> ChainSpec {
    ChainSpec { name: name.into(), hook: None, comment: None }
}

fn element<'a>(key: &'a [u8], data: Option<ElementData<'a>>) -> Element<'a> {
    Element { key, key_end: None, data, timeout: None, comment: None }
}

fn daddr(family: Family) -> TypeOf {
    match family {
        Family::Ip => TypeOf::IpDaddr,
        Family::Ip6 => TypeOf::Ip6Daddr,
    }
}

/// An address of 10/8 or fd00::/8 made from a number.
fn address(family: Family, n: u32) -> Vec<u8> {
    let [_, a, b, c] = n.to_be_bytes();
    match family {
        Family::Ip => vec![10, a, b, c],
        Family::Ip6 => vec![0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c],
    }
}

/// `ip daddr . meta l4proto . th dport . numgen` as the kernel compares it.
fn endpoint_key(family: Family, n: u32) -> Vec<u8> {
    let mut key = address(family, n / 2);
    key.extend_from_slice(&[6, 0, 0, 0, 0, 80, 0, 0]);
    key.extend_from_slice(&(n % 2).to_ne_bytes());
    key
}

fn endpoint_data(family: Family, n: u32) -> Vec<u8> {
    let mut data = address(family, 0x10_0000 + n);
    data.extend_from_slice(&[0x1f, 0x90, 0, 0]);
    data
}

fn endpoints_map(family: Family) -> SetSpec {
    let key =
        [daddr(family), TypeOf::MetaL4proto, TypeOf::ThDport, TypeOf::NumgenRandom { modulus: 2 }];
    set("endpoints", &key, SetData::Fields(vec![daddr(family), TypeOf::ThDport]))
}

/// `ip daddr . meta l4proto . th dport` from the first register on; returns the next register.
fn load_destination(family: Family, exprs: &mut Vec<Expr>) -> u32 {
    let (offset, len) = match family {
        Family::Ip => (16, 4),
        Family::Ip6 => (24, 16),
    };
    let next = REG32_00 + len / 4;
    exprs.extend([
        Expr::Payload { base: PayloadBase::Network, offset, len, dreg: REG32_00 },
        Expr::Meta { key: MetaKey::L4proto, dreg: next },
        Expr::Payload { base: PayloadBase::Transport, offset: 2, len: 2, dreg: next + 1 },
    ]);
    next + 2
}

/// All elements of a map, asked for until the dump is whole.
fn dump(socket: &mut Socket, family: Family, set: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let mut all = BTreeMap::new();
        let result = socket.elements(family, T, set, &mut |e| {
            let Some(ElementData::Value(value)) = e.data else { panic!("no value: {e:?}") };
            all.insert(e.key.to_vec(), value.to_vec());
        });
        match result {
            Err(Error::Interrupted) if Instant::now() < deadline => {}
            other => {
                other.expect("dumps");
                return all;
            }
        }
    }
}

#[test]
fn ten_thousand_endpoints_come_back_equal_and_nft_prints_their_types() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        for family in FAMILIES {
            let mut batch = Batch::new();
            batch.expect_generation(socket.generation().expect("reads"));
            batch.add_table(family, T, Some("owned by zoneward"));
            batch.add_set(family, T, &endpoints_map(family));
            let hook = Hook { kind: HookKind::Nat, point: HookPoint::Prerouting, priority: -100 };
            let chain = ChainSpec { name: "pre".into(), hook: Some(hook), comment: None };
            batch.add_chain(family, T, &chain);
            let mut exprs = Vec::new();
            let index = load_destination(family, &mut exprs);
            let port_reg = Some(if family == Family::Ip { REG32_00 + 1 } else { REG32_00 + 4 });
            exprs.extend([
                Expr::Numgen { dreg: index, modulus: 3, random: true },
                Expr::Lookup {
                    set: "endpoints".into(),
                    sreg: REG32_00,
                    dreg: Some(REG32_00),
                    invert: false,
                },
                Expr::Nat { dnat: true, family, addr_reg: REG32_00, port_reg, flags: 0 },
            ]);
            batch.add_rule(family, T, "pre", &exprs, Some("the rule"));
            let mut want = BTreeMap::new();
            for n in 0..10_000 {
                let (key, data) = (endpoint_key(family, n), endpoint_data(family, n));
                batch.add_element(
                    family,
                    T,
                    "endpoints",
                    &element(&key, Some(ElementData::Value(&data))),
                );
                want.insert(key, data);
            }
            let committed = socket.commit(&mut batch).expect("lands");
            assert_eq!((committed.ops, committed.bytes), (10_004, batch.bytes()));
            assert_eq!(committed.messages, batch.messages());
            assert_eq!(dump(&mut socket, family, "endpoints"), want);
        }

        let text = listing();
        for ip in ["ip", "ip6"] {
            let types = format!(
                "typeof {ip} daddr . meta l4proto . th dport . numgen random mod 2 : {ip} daddr . th dport"
            );
            let rule = format!(
                "dnat {ip} to {ip} daddr . meta l4proto . th dport . numgen random mod 3 map @endpoints comment \"the rule\""
            );
            assert!(text.contains(&types), "{types}");
            assert!(text.contains(&rule), "{rule}");
        }
        assert!(text.contains("comment \"owned by zoneward\""));
        assert_eq!(text.matches("fd00::10:").count(), 10_000, "all v6 endpoints are listed");
        let comment = Some("owned by zoneward".to_owned());
        let tables = FAMILIES.map(|family| TableInfo {
            family: Some(family),
            name: T.to_owned(),
            flags: 0,
            comment: comment.clone(),
        });
        assert_eq!(socket.tables().expect("dumps"), tables);
    });
}

#[test]
fn verdict_maps_comments_and_timeouts_come_back_equal() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        let family = Family::Ip;
        let mut batch = Batch::new();
        batch.add_table(family, T, None);
        batch.add_chain(family, T, &plain_chain("svc"));
        let mut spec = set("services", &[TypeOf::IpDaddr, TypeOf::ThDport], SetData::Verdict);
        spec.counter = true;
        spec.timeout = Some(Duration::from_secs(3600));
        batch.add_set(family, T, &spec);
        let keys: Vec<Vec<u8>> = (0..5u8).map(|n| vec![10, 0, 0, n, 0, 80, 0, 0]).collect();
        let verdicts = [
            ElementData::Goto("svc"),
            ElementData::Jump("svc"),
            ElementData::Accept,
            ElementData::Drop,
            ElementData::Return,
        ];
        for (key, verdict) in keys.iter().zip(verdicts) {
            let timeout = Some(Duration::from_secs(600));
            let comment = Some("a comment");
            let element = Element { key, key_end: None, data: Some(verdict), timeout, comment };
            batch.add_element(family, T, "services", &element);
        }
        socket.commit(&mut batch).expect("lands");

        let mut seen = 0;
        socket
            .elements(family, T, "services", &mut |e| {
                let at = keys.iter().position(|k| k == e.key).expect("a key of ours");
                assert_eq!(e.data, Some(verdicts[at]));
                assert_eq!((e.comment, e.counter), (Some("a comment"), Some((0, 0))));
                assert_eq!(e.timeout, Some(Duration::from_secs(600)));
                assert!(e.expires.is_some_and(|left| left <= Duration::from_secs(600)));
                seen += 1;
            })
            .expect("dumps");
        assert_eq!(seen, 5);

        let sets = socket.sets(family, T).expect("dumps");
        assert_eq!(sets.len(), 1);
        assert_eq!((sets[0].counter, sets[0].timeout), (true, spec.timeout));
        assert_eq!((sets[0].flags, &sets[0].userdata), (spec.flags(), &spec.userdata()));
        assert!(listing().contains("typeof ip daddr . th dport : verdict"));
    });
}

#[test]
fn a_lookup_counts_on_the_element_it_found() {
    in_netns(|| {
        run("ip", &["link", "set", "lo", "up"], "");
        let mut socket = Socket::open().expect("opens");
        let family = Family::Ip;
        let mut batch = Batch::new();
        batch.add_table(family, T, None);
        let mut spec = set("seen", &[TypeOf::IpDaddr, TypeOf::ThDport], SetData::None);
        spec.counter = true;
        batch.add_set(family, T, &spec);
        let hit = [127, 0, 0, 1, 0x1f, 0x90, 0, 0];
        let missed = [127, 0, 0, 1, 0x1f, 0x91, 0, 0];
        batch.add_element(family, T, "seen", &element(&hit, None));
        batch.add_element(family, T, "seen", &element(&missed, None));
        let hook = Some(Hook { kind: HookKind::Filter, point: HookPoint::Output, priority: 0 });
        batch.add_chain(family, T, &ChainSpec { name: "out".into(), hook, comment: None });
        let rule = [
            Expr::Payload { base: PayloadBase::Network, offset: 16, len: 4, dreg: REG32_00 },
            Expr::Payload { base: PayloadBase::Transport, offset: 2, len: 2, dreg: REG32_00 + 1 },
            Expr::Lookup { set: "seen".into(), sreg: REG32_00, dreg: None, invert: false },
        ];
        batch.add_rule(family, T, "out", &rule, None);
        socket.commit(&mut batch).expect("lands");

        let sender = UdpSocket::bind("127.0.0.1:0").expect("binds");
        for _ in 0..3 {
            // An earlier packet's "port unreachable" shows up on the next call; only packets count.
            let _ = sender.send_to(b"12345678", "127.0.0.1:8080");
        }
        let mut counters = BTreeMap::new();
        socket
            .elements(family, T, "seen", &mut |e| {
                counters.insert(e.key.to_vec(), e.counter);
            })
            .expect("dumps");
        let (packets, bytes) = counters[&hit[..]].expect("a counter");
        assert!(packets > 0 && bytes == packets * 36, "{packets} packets, {bytes} bytes");
        assert_eq!(counters[&missed[..]], Some((0, 0)));
    });
}

#[test]
fn chains_come_back_with_hook_and_comment_and_rules_with_theirs() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        for family in FAMILIES {
            assert_eq!(socket.chains(family, T).expect("no table, no chains"), []);
            assert_eq!(socket.sets(family, T).expect("no table, no sets"), []);
            assert_eq!(socket.rules(family, T).expect("no table, no rules"), BTreeMap::new());

            let hooks = [
                (HookKind::Nat, HookPoint::Prerouting, -100),
                (HookKind::Nat, HookPoint::Postrouting, 100),
                (HookKind::Filter, HookPoint::Forward, i32::MIN + 1),
                (HookKind::Filter, HookPoint::Input, 5),
                (HookKind::Route, HookPoint::Output, -150),
            ];
            let mut specs = vec![plain_chain("plain")];
            for (n, (kind, point, priority)) in hooks.into_iter().enumerate() {
                let hook = Some(Hook { kind, point, priority });
                let comment = Some(format!("fingerprint {n}"));
                specs.push(ChainSpec { name: format!("c{n}"), hook, comment });
            }
            let mut batch = Batch::new();
            for table in [T, "other"] {
                batch.add_table(family, table, None);
                for spec in &specs {
                    batch.add_chain(family, table, spec);
                }
                batch.add_rule(family, table, "plain", &[Expr::Counter], None);
                batch.add_rule(
                    family,
                    table,
                    "plain",
                    &[Expr::Verdict(Verdict::Drop)],
                    Some("second"),
                );
                batch.add_rule(family, table, "c0", &[Expr::Verdict(Verdict::Accept)], None);
            }
            socket.commit(&mut batch).expect("lands");

            let dumped = socket.chains(family, T).expect("dumps");
            let back: Vec<ChainSpec> = dumped
                .into_iter()
                .map(|c| ChainSpec { name: c.name, hook: c.hook, comment: c.comment })
                .collect();
            assert_eq!(back, specs);
            let second = Some("second".to_owned());
            let comments = BTreeMap::from([
                ("c0".to_owned(), vec![None]),
                ("plain".to_owned(), vec![None, second]),
            ]);
            assert_eq!(socket.rules(family, T).expect("dumps"), comments);

            // The sync loop's shape: flush and rewrite in one batch.
            let mut batch = Batch::new();
            batch.flush_chain(family, T, "plain");
            batch.add_rule(family, T, "plain", &[Expr::Counter], None);
            batch.flush_chain(family, T, "c0");
            socket.commit(&mut batch).expect("lands");
            let comments = BTreeMap::from([("plain".to_owned(), vec![None])]);
            assert_eq!(socket.rules(family, T).expect("dumps"), comments);
        }
    });
}
