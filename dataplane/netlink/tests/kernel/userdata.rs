//! What we send for a set is what nft sends for the same set, byte for byte.

use super::*;

/// Sets in our types, and the body nft is given for them.
fn pairs() -> Vec<(SetSpec, &'static str, Family)> {
    use TypeOf::*;
    let (v4, v6) = (Family::Ip, Family::Ip6);
    let fields = SetData::Fields;
    let numgen = NumgenRandom { modulus: 2 };
    let mut all = vec![
        (
            set("", &[IpDaddr, MetaL4proto, ThDport, numgen], fields(vec![IpDaddr, ThDport])),
            "typeof ip daddr . meta l4proto . th dport . numgen random mod 2 : ip daddr . th dport;",
            v4,
        ),
        (
            set("", &[Ip6Daddr, MetaL4proto, ThDport, numgen], fields(vec![Ip6Daddr, ThDport])),
            "typeof ip6 daddr . meta l4proto . th dport . numgen random mod 2 : ip6 daddr . th dport;",
            v6,
        ),
        (
            set("", &[IpSaddr, ThSport, MetaMark, NumgenInc { modulus: 70_000 }], SetData::Verdict),
            "typeof ip saddr . th sport . meta mark . numgen inc mod 70000 : verdict;",
            v4,
        ),
        (set("", &[Ip6Saddr], SetData::Verdict), "typeof ip6 saddr : verdict;", v6),
        (set("", &[IpSaddr], fields(vec![IpDaddr])), "typeof ip saddr : ip daddr;", v4),
        (set("", &[ThDport], fields(vec![MetaMark])), "typeof th dport : meta mark;", v4),
        (set("", &[MetaL4proto], SetData::None), "typeof meta l4proto;", v4),
        (set("", &[MetaMark], SetData::None), "typeof meta mark;", v6),
        (set("", &[NumgenRandom { modulus: 5 }], SetData::None), "typeof numgen random mod 5;", v4),
        (set("", &[ThSport, Ip6Daddr], SetData::None), "typeof th sport . ip6 daddr;", v6),
    ];
    let mut counted = set("", &[IpSaddr, IpDaddr], SetData::None);
    counted.counter = true;
    counted.comment = Some("a comment".into());
    all.push((counted, "typeof ip saddr . ip daddr; counter; comment \"a comment\";", v4));
    let mut affinity = set("", &[IpSaddr, ThDport], fields(vec![IpDaddr]));
    affinity.dynamic = true;
    affinity.timeout = Some(Duration::from_secs(10_800));
    affinity.size = Some(1000);
    let body =
        "typeof ip saddr . th dport : ip daddr; flags dynamic,timeout; timeout 3h; size 1000;";
    all.push((affinity, body, v4));
    let mut affinity = set(
        "",
        &[CtOriginalIp6Daddr, MetaL4proto, ThDport, CtOriginalIp6Saddr],
        fields(vec![Ip6Daddr, ThDport]),
    );
    affinity.dynamic = true;
    affinity.timeout = Some(Duration::from_secs(600));
    affinity.size = Some(65_536);
    let body = "typeof ct original ip6 daddr . meta l4proto . th dport . ct original ip6 saddr : ip6 daddr . th dport; flags dynamic,timeout; timeout 10m; size 65536;";
    all.push((affinity, body, v6));
    let mut clients = set("", &[CtOriginalIpSaddr], fields(vec![CtOriginalIpDaddr]));
    clients.dynamic = true;
    clients.size = Some(100);
    let body = "typeof ct original ip saddr : ct original ip daddr; flags dynamic; size 100;";
    all.push((clients, body, v4));
    // nft 1.0.6 reads this of sets only.
    let mut seldom = set("", &[IpSaddr, ThDport], SetData::None);
    seldom.gc_interval = Some(Duration::from_secs(86_400));
    seldom.size = Some(100);
    let body = "typeof ip saddr . th dport; flags timeout; gc-interval 1d; size 100;";
    all.push((seldom, body, v4));
    let mut ranges = set("", &[Ip6Saddr, ThDport], SetData::None);
    ranges.interval = true;
    all.push((ranges, "typeof ip6 saddr . th dport; flags interval;", v6));
    let mut range = set("", &[IpSaddr], SetData::None);
    range.interval = true;
    all.push((range, "typeof ip saddr; flags interval;", v4));
    for (n, (spec, ..)) in all.iter_mut().enumerate() {
        spec.name = format!("s{n:02}");
    }
    all
}

#[test]
fn sets_are_what_nft_makes_of_the_same_words() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        let mut batch = Batch::new();
        for family in FAMILIES {
            batch.add_table(family, "ours", None);
        }
        let mut script = String::from("table ip theirs {}\ntable ip6 theirs {}\n");
        for (spec, body, family) in pairs() {
            batch.add_set(family, "ours", &spec);
            let ip = if family == Family::Ip { "ip" } else { "ip6" };
            let kind = if spec.data == SetData::None { "set" } else { "map" };
            script += &format!("add {kind} {ip} theirs {} {{ {body} }}\n", spec.name);
        }
        socket.commit(&mut batch).expect("lands");
        run("nft", &["-f", "-"], &script);

        for family in FAMILIES {
            let ours = socket.sets(family, "ours").expect("dumps");
            let mut theirs = socket.sets(family, "theirs").expect("dumps");
            for set in &mut theirs {
                set.table = "ours".into();
            }
            assert_eq!(ours, theirs);
            for set in &ours {
                let all = pairs();
                let (spec, ..) = all.iter().find(|p| p.0.name == set.name).expect("one of ours");
                assert_eq!(set.userdata, spec.userdata(), "{}", set.name);
                assert_eq!((set.flags, set.key_len), (spec.flags(), spec.key_len()));
                assert_eq!((set.key_type, set.data_type), (spec.key_type(), spec.data_type()));
                assert_eq!((set.size, set.timeout), (spec.size, spec.timeout));
            }
        }
        let text = listing();
        for (_, body, _) in pairs() {
            let types = body.split(';').next().expect("a first word");
            assert_eq!(text.matches(&format!("\t{types}\n")).count(), 2, "{types}");
        }
    });
}

#[test]
fn adding_the_same_set_again_is_no_change() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        for _ in 0..2 {
            let mut batch = Batch::new();
            for family in FAMILIES {
                batch.add_table(family, T, None);
                batch.add_set(family, T, &endpoints_map(family));
                batch.add_chain(family, T, &plain_chain("c"));
            }
            socket.commit(&mut batch).expect("lands twice");
        }
    });
}

#[test]
fn a_long_set_comment_is_cut_to_what_the_kernel_keeps() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        let family = Family::Ip6;
        let mut spec = endpoints_map(family);
        spec.comment = Some("x".repeat(500));
        let mut batch = Batch::new();
        batch.add_table(family, T, Some(&"y".repeat(500)));
        batch.add_set(family, T, &spec);
        socket.commit(&mut batch).expect("lands");
        assert_eq!(socket.sets(family, T).expect("dumps")[0].userdata, spec.userdata());
        assert!(listing().contains(&format!("comment \"{}\"", "y".repeat(127))));
    });
}
