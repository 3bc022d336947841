//! Sets of ranges: of single fields, whose ends are elements, and of concatenations.

use super::*;

type Range = (Vec<u8>, Option<Vec<u8>>);

/// What nft calls the set, once as listed and once after it loaded its own listing.
fn listed_twice() -> String {
    let text = listing();
    run("nft", &["flush", "ruleset"], "");
    run("nft", &["-f", "-"], &text);
    assert_eq!(listing(), text, "nft reads its own listing of our ranges");
    text
}

/// Keys with whether they end a range, in order of key and ends before starts.
fn ends(socket: &mut Socket, family: Family) -> Vec<(Vec<u8>, bool)> {
    let mut all = Vec::new();
    socket
        .elements(family, T, "ranges", &mut |e| all.push((e.key.to_vec(), e.interval_end)))
        .expect("dumps");
    all.sort_by_key(|(key, end)| (key.clone(), !end));
    // nft puts the end of nothing before the first range; ours never has it.
    all.retain(|(key, end)| !(*end && key.iter().all(|b| *b == 0)));
    all
}

fn ranges(family: Family) -> (Vec<Range>, &'static str) {
    let v6 = |hex: u128| hex.to_be_bytes().to_vec();
    match family {
        Family::Ip => (
            vec![
                (vec![0, 0, 0, 0], Some(vec![1, 0, 0, 0])),
                (vec![10, 0, 0, 0], Some(vec![11, 0, 0, 0])),
                (vec![11, 0, 0, 0], Some(vec![11, 0, 0, 1])),
                (vec![192, 0, 2, 5], Some(vec![192, 0, 2, 8])),
                (vec![240, 0, 0, 0], None),
            ],
            "elements = { 0.0.0.0/8, 10.0.0.0/8,\n\t\t\t     11.0.0.0, 192.0.2.5-192.0.2.7,\n\t\t\t     240.0.0.0/4 }",
        ),
        Family::Ip6 => (
            vec![
                (v6(0xfd00 << 112), Some(v6(0xfd01 << 112))),
                (v6(0xfd01 << 112), Some(v6((0xfd01 << 112) + 1))),
                (v6(0xfd02 << 112), Some(v6((0xfd02 << 112) + 3))),
                (v6(0xffff << 112), None),
            ],
            "elements = { fd00::/16,\n\t\t\t     fd01::,\n\t\t\t     fd02::-fd02::2,\n\t\t\t     ffff::/16 }",
        ),
    }
}

#[test]
fn single_intervals_come_back_as_their_ends_and_are_deleted_one_by_one() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        for family in FAMILIES {
            let (ranges, text) = ranges(family);
            let mut batch = Batch::new();
            batch.add_table(family, T, None);
            let mut spec = set("ranges", &[daddr(family)], SetData::None);
            spec.interval = true;
            batch.add_set(family, T, &spec);
            // The order of adding must not matter: ours follows names, not addresses.
            for (key, end) in ranges.iter().rev() {
                batch.add_interval(family, T, "ranges", &element(key, None), end.as_deref());
            }
            socket.commit(&mut batch).unwrap_or_else(|e| panic!("{family:?}: {e}"));

            let mut want: Vec<_> = ranges.iter().map(|(key, _)| (key.clone(), false)).collect();
            want.extend(ranges.iter().filter_map(|(_, end)| Some((end.clone()?, true))));
            want.sort_by_key(|(key, end)| (key.clone(), !end));
            assert_eq!(ends(&mut socket, family), want);
            let listed = listed_twice();
            assert!(listed.contains(text), "{listed}");
            assert_eq!(ends(&mut socket, family), want, "as nft loads it back");

            // What replaces a range in the same batch may overlap it.
            let (key, end) = &ranges[0];
            let mut inside = key.clone();
            *inside.last_mut().expect("an address") += 1;
            for (old, new) in [(key, &inside), (&inside, key)] {
                let mut batch = Batch::new();
                batch.delete_interval(family, T, "ranges", old, end.as_deref());
                batch.add_interval(family, T, "ranges", &element(new, None), end.as_deref());
                socket.commit(&mut batch).unwrap_or_else(|e| panic!("{family:?}: {e}"));
            }
            assert_eq!(ends(&mut socket, family), want);

            for (n, (key, end)) in ranges.iter().enumerate() {
                let mut batch = Batch::new();
                batch.delete_interval(family, T, "ranges", key, end.as_deref());
                socket.commit(&mut batch).unwrap_or_else(|e| panic!("{family:?} {n}: {e}"));
                assert!(!ends(&mut socket, family).contains(&(key.clone(), false)));
            }
            assert_eq!(ends(&mut socket, family), []);
            run("nft", &["flush", "ruleset"], "");
        }
    });
}

#[test]
fn a_refused_interval_is_named_as_one_operation() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        let family = Family::Ip;
        let mut batch = Batch::new();
        batch.add_table(family, T, None);
        let mut spec = set("ranges", &[TypeOf::IpSaddr], SetData::None);
        spec.interval = true;
        batch.add_set(family, T, &spec);
        // Enough for several messages: a range is never torn between two.
        let address = |n: u32| (n << 8).to_be_bytes();
        for n in 1..4000 {
            let (key, end) = (address(n), address(n + 1));
            batch.add_interval(family, T, "ranges", &element(&key, None), Some(&end));
        }
        assert!(batch.messages() > 4);
        socket.commit(&mut batch).expect("lands");
        assert_eq!(ends(&mut socket, family).len(), 2 * 3999);

        let mut batch = Batch::new();
        batch.delete_interval(family, T, "ranges", &address(1), Some(&address(2)));
        let missing =
            batch.delete_interval(family, T, "ranges", &address(5000), Some(&address(5001)));
        batch.delete_interval(family, T, "ranges", &address(2), Some(&address(3)));
        let error = socket.commit(&mut batch).expect_err("no such range");
        let Error::Refused { op, errno, .. } = error else { panic!("{error}") };
        assert_eq!((op, errno), (Some(missing), libc::ENOENT));
        assert_eq!(ends(&mut socket, family).len(), 2 * 3999);

        let mut batch = Batch::new();
        batch.add_interval(family, T, "ranges", &element(&address(6000), None), None);
        let key = address(10);
        let inside = [key[0], key[1], key[2], 9];
        let overlaps =
            batch.add_interval(family, T, "ranges", &element(&inside, None), Some(&address(12)));
        let error = socket.commit(&mut batch).expect_err("overlaps");
        let Error::Refused { op, .. } = error else { panic!("{error}") };
        assert_eq!(op, Some(overlaps));
    });
}

#[test]
fn an_interval_map_with_comments_loads_back() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        let family = Family::Ip;
        let mut batch = Batch::new();
        batch.add_table(family, T, None);
        let mut spec = set("ranges", &[TypeOf::IpSaddr], SetData::Verdict);
        spec.interval = true;
        batch.add_set(family, T, &spec);
        let comment = Some("a comment");
        for (key, end, verdict) in [
            ([10, 0, 0, 0], Some([11, 0, 0, 0]), ElementData::Accept),
            ([224, 0, 0, 0], None, ElementData::Drop),
        ] {
            let element = Element { comment, ..element(&key, Some(verdict)) };
            let end = end.as_ref().map(|end| &end[..]);
            batch.add_interval(family, T, "ranges", &element, end);
        }
        socket.commit(&mut batch).expect("lands");
        let mut seen = Vec::new();
        socket
            .elements(family, T, "ranges", &mut |e| {
                seen.push((e.key.to_vec(), e.interval_end, e.data == Some(ElementData::Drop)));
                assert_eq!(e.comment, comment.filter(|_| !e.interval_end));
            })
            .expect("dumps");
        seen.sort();
        let want = [
            (vec![10, 0, 0, 0], false, false),
            (vec![11, 0, 0, 0], true, false),
            (vec![224, 0, 0, 0], false, true),
        ];
        assert_eq!(seen, want);
        let text = listed_twice();
        assert!(text.contains("10.0.0.0/8 comment \"a comment\" : accept"), "{text}");
        assert!(text.contains("224.0.0.0/3 comment \"a comment\" : drop"), "{text}");
    });
}

/// `ip daddr . meta l4proto . th dport . ip saddr`, the shape of a Service's source ranges.
#[test]
fn concatenated_ranges_come_back_load_back_and_are_deleted() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        for family in FAMILIES {
            let saddr = match family {
                Family::Ip => TypeOf::IpSaddr,
                Family::Ip6 => TypeOf::Ip6Saddr,
            };
            let mut batch = Batch::new();
            batch.add_table(family, T, None);
            let fields = [daddr(family), TypeOf::MetaL4proto, TypeOf::ThDport, saddr];
            let mut spec = set("ranges", &fields, SetData::None);
            spec.interval = true;
            spec.size = Some(64);
            batch.add_set(family, T, &spec);
            let key = |port: u8, from: &[u8]| {
                [&address(family, 1)[..], &[6, 0, 0, 0, 0, port, 0, 0], from].concat()
            };
            let width = address(family, 0).len();
            let low = address(family, 0);
            let mut high = low.clone();
            high[1..width].fill(255);
            let mut one = vec![203; width];
            one[0] = 32;
            let ranges = [
                (key(80, &low), key(90, &high)),
                (key(80, &one), key(80, &one)),
                (key(100, &[0; 16][..width]), key(100, &[255; 16][..width])),
            ];
            for (key, end) in &ranges {
                let range = Element { key_end: Some(end), ..element(key, None) };
                batch.add_element(family, T, "ranges", &range);
            }
            socket.commit(&mut batch).expect("lands");
            let dump = |socket: &mut Socket| {
                let mut seen = Vec::new();
                socket
                    .elements(family, T, "ranges", &mut |e| {
                        assert!(!e.interval_end && e.data.is_none());
                        seen.push((e.key.to_vec(), e.key_end.map(<[u8]>::to_vec)));
                    })
                    .expect("dumps");
                seen.sort();
                seen
            };
            let mut want = ranges.clone().map(|(key, end)| (key, Some(end)));
            want.sort();
            assert_eq!(dump(&mut socket), want);
            let text = listed_twice();
            let line = match family {
                Family::Ip => "10.0.0.1 . tcp . 80-90 . 10.0.0.0/8",
                Family::Ip6 => "fd00::1 . tcp . 80-90 . fd00::/8",
            };
            assert!(text.contains(line), "{text}");
            assert_eq!(dump(&mut socket), want, "as nft loads it back");

            let mut batch = Batch::new();
            batch.delete_range(family, T, "ranges", &ranges[0].0, &ranges[0].1);
            batch.delete_range(family, T, "ranges", &ranges[2].0, &ranges[2].1);
            socket.commit(&mut batch).expect("lands");
            let left = [(ranges[1].0.clone(), Some(ranges[1].1.clone()))];
            assert_eq!(dump(&mut socket), left);
            run("nft", &["flush", "ruleset"], "");
        }
    });
}
