//! Every expression: accepted by the kernel, printed by nft, and taken back by nft.

use zw_netlink::nft::{
    CmpOp, CtKey, FibAddress, NAT_FULLY_RANDOM, NameMatch, RTN_LOCAL, RejectWith,
};

use super::*;

fn cmp(data: &[u8]) -> Expr {
    Expr::Cmp { sreg: REG32_00, op: CmpOp::Eq, data: data.to_vec() }
}

/// `meta l4proto`
fn l4proto() -> Expr {
    Expr::Meta { key: MetaKey::L4proto, dreg: REG32_00 }
}

fn bits(mask: u32, xor: u32) -> Expr {
    let (mask, xor) = (mask.to_ne_bytes().to_vec(), xor.to_ne_bytes().to_vec());
    Expr::Bitwise { sreg: REG32_00, dreg: REG32_00, mask, xor }
}

/// Rules by chain, each with the line nft prints for it.
fn rules(family: Family) -> Vec<(&'static str, Vec<Expr>, String)> {
    let (ip, offset, len) = match family {
        Family::Ip => ("ip", 12, 4),
        Family::Ip6 => ("ip6", 8, 16),
    };
    let saddr = Expr::Payload { base: PayloadBase::Network, offset, len, dreg: REG32_00 };
    let dport = Expr::Payload { base: PayloadBase::Transport, offset: 2, len: 2, dreg: REG32_00 };
    let nonzero = Expr::Cmp { sreg: REG32_00, op: CmpOp::Neq, data: 0u32.to_ne_bytes().to_vec() };
    let port_reg = REG32_00 + len / 4;
    let to = match family {
        Family::Ip => "10.0.0.1:8080".to_owned(),
        Family::Ip6 => "[fd00::1]:8080".to_owned(),
    };
    let verdict = |v| vec![Expr::Verdict(v)];
    let lookup = |dreg: Option<u32>, invert| Expr::Lookup {
        set: if dreg.is_some() { "services" } else { "clients" }.into(),
        sreg: REG32_00,
        dreg,
        invert,
    };
    let numgen = |random| Expr::Numgen { dreg: REG32_00, modulus: 4, random };
    let number = |n: u32| cmp(&n.to_ne_bytes());
    let name = |op, name| Expr::iifname(REG32_00, op, name).to_vec();
    let fib = |address, op| {
        let data = RTN_LOCAL.to_ne_bytes().to_vec();
        vec![Expr::FibType { address, dreg: REG32_00 }, Expr::Cmp { sreg: REG32_00, op, data }]
    };
    let original = match family {
        Family::Ip => (CtKey::OriginalIpSaddr, CtKey::OriginalIpDaddr),
        Family::Ip6 => (CtKey::OriginalIp6Saddr, CtKey::OriginalIp6Daddr),
    };
    vec![
        ("filter", vec![saddr.clone(), lookup(None, false)], format!("{ip} saddr @clients")),
        ("filter", vec![saddr.clone(), lookup(None, true)], format!("{ip} saddr != @clients")),
        (
            "filter",
            vec![saddr.clone(), lookup(Some(REG_VERDICT), false)],
            format!("{ip} saddr vmap @services"),
        ),
        (
            "filter",
            vec![l4proto(), cmp(&[6]), dport, cmp(&[0, 80]), Expr::Counter],
            "tcp dport 80 counter packets 0 bytes 0".into(),
        ),
        (
            "filter",
            vec![
                Expr::Ct { key: CtKey::State, dreg: REG32_00 },
                bits(2, 0),
                nonzero.clone(),
                Expr::Verdict(Verdict::Accept),
            ],
            "ct state established accept".into(),
        ),
        (
            "filter",
            vec![Expr::Ct { key: CtKey::Status, dreg: REG32_00 }, bits(0x20, 0), nonzero],
            "ct status dnat".into(),
        ),
        (
            "filter",
            vec![
                Expr::Meta { key: MetaKey::Mark, dreg: REG32_00 },
                bits(!0x4000, 0x4000),
                Expr::MetaSet { key: MetaKey::Mark, sreg: REG32_00 },
            ],
            "meta mark set meta mark | 0x00004000".into(),
        ),
        (
            "filter",
            vec![
                Expr::Immediate { dreg: REG32_00, data: 7u32.to_ne_bytes().to_vec() },
                Expr::MetaSet { key: MetaKey::Mark, sreg: REG32_00 },
            ],
            "meta mark set 0x00000007".into(),
        ),
        ("filter", name(CmpOp::Eq, NameMatch::Exact("eth0")), "iifname \"eth0\"\n".into()),
        ("filter", name(CmpOp::Neq, NameMatch::Exact("eth0")), "iifname != \"eth0\"\n".into()),
        ("filter", name(CmpOp::Eq, NameMatch::Prefix("veth")), "iifname \"veth*\"\n".into()),
        ("filter", name(CmpOp::Neq, NameMatch::Prefix("cali-")), "iifname != \"cali-*\"\n".into()),
        ("filter", name(CmpOp::Eq, NameMatch::Prefix("e")), "iifname \"e*\"\n".into()),
        (
            "filter",
            name(CmpOp::Eq, NameMatch::Exact("fifteen-letters")),
            "iifname \"fifteen-letters\"\n".into(),
        ),
        (
            "filter",
            name(CmpOp::Eq, NameMatch::Prefix("fourteen-start")),
            "iifname \"fourteen-start*\"\n".into(),
        ),
        ("filter", fib(FibAddress::Saddr, CmpOp::Eq), "fib saddr type local".into()),
        ("filter", fib(FibAddress::Daddr, CmpOp::Eq), "fib daddr type local".into()),
        ("filter", fib(FibAddress::Daddr, CmpOp::Neq), "fib daddr type != local".into()),
        (
            "filter",
            vec![Expr::Ct { key: original.0, dreg: REG32_00 }, lookup(None, false)],
            format!("ct original {ip} saddr @clients"),
        ),
        (
            "filter",
            vec![Expr::Ct { key: original.1, dreg: REG32_00 }, cmp(&address(family, 1))],
            format!("ct original {ip} daddr {}", if ip == "ip" { "10.0.0.1" } else { "fd00::1" }),
        ),
        (
            "filter",
            vec![
                l4proto(),
                cmp(&[6]),
                Expr::Ct { key: CtKey::OriginalProtoDst, dreg: REG32_00 },
                cmp(&[0, 80]),
            ],
            "meta l4proto tcp ct original proto-dst 80".into(),
        ),
        ("filter", vec![numgen(true), number(1)], "numgen random mod 4 1".into()),
        ("filter", vec![numgen(false), number(2)], "numgen inc mod 4 2".into()),
        (
            "filter",
            vec![l4proto(), cmp(&[6]), Expr::Reject(RejectWith::TcpReset)],
            "reject with tcp reset".into(),
        ),
        ("filter", verdict(Verdict::Jump("plain".into())), "jump plain".into()),
        // nft prints the default, port unreachable, as a bare "reject".
        ("plain", vec![Expr::Reject(RejectWith::IcmpPortUnreachable)], "\t\treject\n".into()),
        ("plain", verdict(Verdict::Goto("last".into())), "goto last".into()),
        ("last", verdict(Verdict::Return), "\t\treturn\n".into()),
        ("last", verdict(Verdict::Drop), "\t\tdrop\n".into()),
        (
            "pre",
            vec![
                l4proto(),
                cmp(&[17]),
                Expr::Immediate { dreg: REG32_00, data: address(family, 1) },
                Expr::Immediate { dreg: port_reg, data: vec![0x1f, 0x90] },
                Expr::Nat {
                    dnat: true,
                    family,
                    addr_reg: REG32_00,
                    port_reg: Some(port_reg),
                    flags: 0,
                },
            ],
            format!("dnat to {to}"),
        ),
        (
            "post",
            vec![
                Expr::Immediate { dreg: REG32_00, data: address(family, 1) },
                Expr::Nat {
                    dnat: false,
                    family,
                    addr_reg: REG32_00,
                    port_reg: None,
                    flags: NAT_FULLY_RANDOM,
                },
            ],
            "fully-random".into(),
        ),
        ("post", vec![Expr::Masquerade { fully_random: true }], "masquerade fully-random".into()),
        ("post", vec![Expr::Masquerade { fully_random: false }], "masquerade\n".into()),
    ]
}

#[test]
fn every_expression_is_accepted_printed_and_loads_back() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        for family in FAMILIES {
            let saddr = match family {
                Family::Ip => TypeOf::IpSaddr,
                Family::Ip6 => TypeOf::Ip6Saddr,
            };
            let mut batch = Batch::new();
            batch.add_table(family, T, None);
            for (name, kind, point) in [
                ("filter", HookKind::Filter, HookPoint::Input),
                ("pre", HookKind::Nat, HookPoint::Prerouting),
                ("post", HookKind::Nat, HookPoint::Postrouting),
            ] {
                let hook = Some(Hook { kind, point, priority: 0 });
                batch.add_chain(family, T, &ChainSpec { name: name.into(), hook, comment: None });
            }
            batch.add_chain(family, T, &plain_chain("plain"));
            batch.add_chain(family, T, &plain_chain("last"));
            batch.add_set(family, T, &set("clients", &[saddr], SetData::None));
            batch.add_set(family, T, &set("services", &[saddr], SetData::Verdict));
            for (n, (chain, exprs, _)) in rules(family).iter().enumerate() {
                batch.add_rule(family, T, chain, exprs, (n == 0).then_some("first"));
            }
            socket.commit(&mut batch).unwrap_or_else(|e| panic!("{family:?}: {e}"));

            let text = listing();
            for (_, _, line) in rules(family) {
                assert!(text.contains(&line), "{line:?} not in\n{text}");
            }
            let comments = socket.rules(family, T).expect("dumps");
            run("nft", &["flush", "ruleset"], "");
            run("nft", &["-f", "-"], &text);
            assert_eq!(listing(), text, "nft reads its own listing of our rules");
            assert_eq!(socket.rules(family, T).expect("dumps"), comments);
            run("nft", &["flush", "ruleset"], "");
        }
    });
}
