//! What rules do to packets: matches by interface and address kind, and elements packets add.

use std::net::IpAddr;

use zw_netlink::nft::{CmpOp, CtKey, FibAddress, NameMatch, RTN_LOCAL};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn loopback(family: Family) -> IpAddr {
    match family {
        Family::Ip => [127, 0, 0, 1].into(),
        Family::Ip6 => 1u128.to_be_bytes().into(),
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// A client and a server on loopback, so that no packet is answered with an error.
fn pair(family: Family) -> [UdpSocket; 2] {
    [0; 2].map(|port| UdpSocket::bind((loopback(family), port)).expect("binds"))
}

fn send(from: &UdpSocket, to: &UdpSocket) {
    from.send_to(b"x", to.local_addr().expect("bound")).expect("sends");
    let mut buf = [0; 8];
    assert_eq!(to.recv(&mut buf).expect("arrives"), 1);
}

fn port(socket: &UdpSocket) -> [u8; 2] {
    socket.local_addr().expect("bound").port().to_be_bytes()
}

fn hooked(name: &str, point: HookPoint) -> ChainSpec {
    let hook = Some(Hook { kind: HookKind::Filter, point, priority: 0 });
    ChainSpec { name: name.into(), hook, comment: None }
}

/// The next rules see only UDP: loopback carries neighbour discovery as well.
fn only_udp(batch: &mut Batch, family: Family, chain: &str) {
    let not_udp = [
        Expr::Meta { key: MetaKey::L4proto, dreg: REG32_00 },
        Expr::Cmp { sreg: REG32_00, op: CmpOp::Neq, data: vec![17] },
        Expr::Verdict(Verdict::Accept),
    ];
    batch.add_rule(family, T, chain, &not_udp, None);
}

#[test]
fn interface_names_and_address_kinds_match_the_packets_they_name() {
    in_netns(|| {
        run("ip", &["link", "set", "lo", "up"], "");
        let mut socket = Socket::open().expect("opens");
        for family in FAMILIES {
            let name = |op, name| Expr::iifname(REG32_00, op, name).to_vec();
            let kind = |address, op| {
                let data = RTN_LOCAL.to_ne_bytes().to_vec();
                let cmp = Expr::Cmp { sreg: REG32_00, op, data };
                vec![Expr::FibType { address, dreg: REG32_00 }, cmp]
            };
            use CmpOp::{Eq, Neq};
            let rules = [
                (name(Eq, NameMatch::Exact("lo")), true),
                (name(Eq, NameMatch::Prefix("l")), true),
                (name(Eq, NameMatch::Prefix("lo")), true),
                (name(Eq, NameMatch::Exact("l")), false),
                (name(Eq, NameMatch::Prefix("lo0")), false),
                (name(Neq, NameMatch::Prefix("veth")), true),
                (name(Neq, NameMatch::Exact("lo")), false),
                (kind(FibAddress::Saddr, Eq), true),
                (kind(FibAddress::Daddr, Eq), true),
                (kind(FibAddress::Daddr, Neq), false),
            ];
            let mut batch = Batch::new();
            batch.add_table(family, T, None);
            batch.add_chain(family, T, &hooked("in", HookPoint::Input));
            only_udp(&mut batch, family, "in");
            for (n, (exprs, _)) in rules.iter().enumerate() {
                let exprs = [&exprs[..], &[Expr::Counter]].concat();
                batch.add_rule(family, T, "in", &exprs, Some(&format!("rule {n}.")));
            }
            socket.commit(&mut batch).unwrap_or_else(|e| panic!("{family:?}: {e}"));

            let [client, server] = pair(family);
            send(&client, &server);
            let text = listing();
            for (n, (_, matches)) in rules.iter().enumerate() {
                let packets = i32::from(*matches);
                let bytes = packets * if family == Family::Ip { 29 } else { 49 };
                let line = format!("counter packets {packets} bytes {bytes} comment \"rule {n}.\"");
                assert!(text.contains(&line), "{line} not in\n{text}");
            }
            run("nft", &["flush", "ruleset"], "");
        }
    });
}

/// A sticky Service's map: `ip daddr . meta l4proto . th dport . ip saddr : ip daddr . th dport`.
fn affinity(family: Family) -> SetSpec {
    let saddr = match family {
        Family::Ip => TypeOf::IpSaddr,
        Family::Ip6 => TypeOf::Ip6Saddr,
    };
    let key = [daddr(family), TypeOf::MetaL4proto, TypeOf::ThDport, saddr];
    let data = SetData::Fields(vec![daddr(family), TypeOf::ThDport]);
    let mut spec = set("affinity", &key, data);
    spec.dynamic = true;
    spec.timeout = Some(3 * HOUR);
    spec.size = Some(65_536);
    spec
}

/// `update @affinity { ct original ip daddr . meta l4proto . ct original proto-dst . ct original ip
/// saddr timeout 1h : ip daddr . th dport }`, or with `th dport` in the key.
fn learn(family: Family, original_port: bool) -> Vec<Expr> {
    let (saddr, daddr, words, offset) = match family {
        Family::Ip => (CtKey::OriginalIpSaddr, CtKey::OriginalIpDaddr, 1, 16),
        Family::Ip6 => (CtKey::OriginalIp6Saddr, CtKey::OriginalIp6Daddr, 4, 24),
    };
    let dport = |dreg| Expr::Payload { base: PayloadBase::Transport, offset: 2, len: 2, dreg };
    let (protocol, port) = (REG32_00 + words, REG32_00 + words + 1);
    let data = REG32_00 + 2 * words + 2;
    vec![
        Expr::Ct { key: daddr, dreg: REG32_00 },
        Expr::Meta { key: MetaKey::L4proto, dreg: protocol },
        match original_port {
            true => Expr::Ct { key: CtKey::OriginalProtoDst, dreg: port },
            false => dport(port),
        },
        Expr::Ct { key: saddr, dreg: port + 1 },
        Expr::Payload { base: PayloadBase::Network, offset, len: 4 * words, dreg: data },
        dport(data + words),
        Expr::Update {
            set: "affinity".into(),
            key_reg: REG32_00,
            data_reg: Some(data),
            timeout: Some(HOUR),
        },
        Expr::Counter,
    ]
}

fn learning(family: Family, original_port: bool) -> Batch {
    let mut batch = Batch::new();
    batch.add_table(family, T, None);
    batch.add_set(family, T, &affinity(family));
    batch.add_chain(family, T, &hooked("out", HookPoint::Output));
    only_udp(&mut batch, family, "out");
    batch.add_rule(family, T, "out", &learn(family, original_port), None);
    batch
}

#[test]
fn a_packet_adds_the_element_its_rule_names_and_the_listing_prints_it() {
    in_netns(|| {
        run("ip", &["link", "set", "lo", "up"], "");
        let mut socket = Socket::open().expect("opens");
        for family in FAMILIES {
            socket
                .commit(&mut learning(family, true))
                .unwrap_or_else(|e| panic!("{family:?}: {e}"));
            let [client, server] = pair(family);
            send(&client, &server);

            let address = octets(loopback(family));
            let service = [&address[..], &[17, 0, 0, 0], &port(&server), &[0, 0]].concat();
            let mut seen = Vec::new();
            socket
                .elements(family, T, "affinity", &mut |e| {
                    let Some(ElementData::Value(data)) = e.data else { panic!("{e:?}") };
                    seen.push((e.key.to_vec(), data.to_vec()));
                    assert_eq!(e.timeout, Some(HOUR), "not the set's three");
                    assert!(e.expires.is_some_and(|left| left <= HOUR && left > HOUR / 2));
                })
                .expect("dumps");
            let backend = [&address[..], &port(&server), &[0, 0]].concat();
            assert_eq!(seen, [([&service[..], &address].concat(), backend)]);

            let ip = if family == Family::Ip { "ip" } else { "ip6" };
            let text = listing();
            for line in [
                format!(
                    "typeof {ip} daddr . meta l4proto . th dport . {ip} saddr : {ip} daddr . th dport"
                ),
                format!(
                    "update @affinity {{ ct original {ip} daddr . meta l4proto . ct original proto-dst . ct original {ip} saddr timeout 1h : {ip} daddr . th dport }}"
                ),
                "timeout 1h expires ".into(),
            ] {
                assert!(text.contains(&line), "{line} not in\n{text}");
            }
            run("nft", &["flush", "ruleset"], "");
        }
    });
}

/// nft 1.0.6 reserves 16 bytes for the key and 16 for the data of an update of a map, and aborts
/// where either is longer, on its own listing as on any other.
#[test]
fn an_update_of_sixteen_byte_keys_without_the_original_port_loads_back() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        socket.commit(&mut learning(Family::Ip, false)).expect("lands");
        let family = Family::Ip6;
        let mut clients = affinity(family);
        clients.key = vec![TypeOf::CtOriginalIp6Saddr];
        clients.data = SetData::Fields(vec![TypeOf::Ip6Daddr]);
        let mut batch = Batch::new();
        batch.add_table(family, T, None);
        batch.add_set(family, T, &clients);
        batch.add_chain(family, T, &plain_chain("learn"));
        let rule = [
            Expr::Ct { key: CtKey::OriginalIp6Saddr, dreg: REG32_00 },
            Expr::Payload { base: PayloadBase::Network, offset: 24, len: 16, dreg: REG32_00 + 4 },
            Expr::Update {
                set: "affinity".into(),
                key_reg: REG32_00,
                data_reg: Some(REG32_00 + 4),
                timeout: None,
            },
        ];
        batch.add_rule(family, T, "learn", &rule, None);
        socket.commit(&mut batch).expect("lands");

        let text = listing();
        let line = "update @affinity { ct original ip6 saddr : ip6 daddr }";
        assert!(text.contains(line), "{text}");
        run("nft", &["flush", "ruleset"], "");
        run("nft", &["-f", "-"], &text);
        assert_eq!(listing(), text);
        for (family, spec) in [(Family::Ip, affinity(Family::Ip)), (Family::Ip6, clients)] {
            let sets = socket.sets(family, T).expect("dumps");
            assert_eq!((sets[0].flags, sets[0].size), (spec.flags(), spec.size));
            assert_eq!((sets[0].timeout, &sets[0].userdata), (spec.timeout, &spec.userdata()));
        }
    });
}

#[test]
fn an_update_keeps_the_data_that_is_there_and_a_full_map_ends_the_rule() {
    in_netns(|| {
        run("ip", &["link", "set", "lo", "up"], "");
        let mut socket = Socket::open().expect("opens");
        let family = Family::Ip;
        let mut batch = Batch::new();
        batch.add_table(family, T, None);
        let key = [TypeOf::IpDaddr];
        let mut spec = set("first", &key, SetData::Fields(vec![TypeOf::ThDport]));
        spec.dynamic = true;
        spec.size = Some(1);
        batch.add_set(family, T, &spec);
        batch.add_chain(family, T, &hooked("out", HookPoint::Output));
        only_udp(&mut batch, family, "out");
        let rule = [
            Expr::Payload { base: PayloadBase::Network, offset: 16, len: 4, dreg: REG32_00 },
            Expr::Payload { base: PayloadBase::Transport, offset: 2, len: 2, dreg: REG32_00 + 1 },
            Expr::Update {
                set: "first".into(),
                key_reg: REG32_00,
                data_reg: Some(REG32_00 + 1),
                timeout: None,
            },
            Expr::Counter,
        ];
        batch.add_rule(family, T, "out", &rule, None);
        socket.commit(&mut batch).expect("lands");

        let [client, first] = pair(family);
        let [second, _] = pair(family);
        let elsewhere = UdpSocket::bind("127.0.0.2:0").expect("binds");
        for server in [&first, &second, &elsewhere] {
            send(&client, server);
        }
        let want = BTreeMap::from([(vec![127, 0, 0, 1], port(&first).to_vec())]);
        assert_eq!(dump(&mut socket, family, "first"), want);
        let text = listing();
        assert!(text.contains("counter packets 2 bytes 58"), "the third found it full: {text}");
    });
}
