//! What one update changes, and what it leaves alone.

use super::*;

#[test]
fn without_services_a_fresh_start_makes_the_base_of_both_tables() {
    let desired = Desired::new(config(), Surroundings::default());
    let empty: BTreeMap<SetName, BTreeMap<Key, Element>> =
        SetName::ALL.into_iter().map(|set| (set, BTreeMap::new())).collect();
    for table in tables_of(&desired) {
        let base: BTreeMap<String, Chain> = base_table(table.family, &config(), false)
            .into_iter()
            .map(|chain| (chain.name.clone(), chain))
            .collect();
        assert_eq!((&table.chains, &table.elements), (&base, &empty));
        assert!(table.exists());
    }
}

#[test]
fn one_endpoint_more_or_less_changes_a_handful_of_elements_at_any_size() {
    for (family, vips) in [(Family::V4, [Some(1), None]), (Family::V6, [None, Some(1)])] {
        for size in [1u16, 2, 50, 20_000] {
            // Every other endpoint is a local one, which takes its hairpin address along.
            let of = |endpoints: &mut dyn Iterator<Item = u16>| Spec {
                vips,
                udp: false,
                endpoints: endpoints.map(|n| (n, n % 2 == 0)).collect(),
                features: Features::default(),
            };
            let mut run = Run::new();
            run.step([(key(0), Some(of(&mut (0..size))))]);
            for gone in BTreeSet::from([0, size / 2, size - 1]) {
                let name = format!("{family}, endpoint {gone} of {size}");
                let removed = of(&mut (0..size).filter(|n| *n != gone));
                for spec in [removed, of(&mut (0..size))] {
                    let changes = run.step([(key(0), Some(spec))]);
                    let operations = changes.element_operations();
                    assert!((1..=6).contains(&operations), "{name}: {operations} elements");
                    assert_eq!(changes.tables.len(), 1, "{name}");
                    let table = &changes.tables[&family];
                    assert_eq!(table.rewrite_chains, [], "{name}");
                    assert_eq!(table.delete_chains, Vec::<String>::new(), "{name}");
                    assert!(table.add_chains.len() <= 1, "{name}");
                }
            }
            run.check();
        }
    }
}

#[test]
fn under_any_policy_one_endpoint_more_or_less_moves_no_other() {
    for (internal_local, external_local) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let features = Features {
            node_port: Some(30_000),
            external_ip: true,
            internal_local,
            external_local,
            ..Features::default()
        };
        let of = |endpoints: &mut dyn Iterator<Item = u16>| Spec {
            vips: [Some(0), None],
            udp: false,
            endpoints: endpoints.map(|n| (n, n % 3 == 0)).collect(),
            features,
        };
        let mut run = Run::new();
        run.step([(key(0), Some(of(&mut (0..300))))]);
        for gone in [0, 1, 150, 151, 299] {
            for spec in [of(&mut (0..300).filter(|n| *n != gone)), of(&mut (0..300))] {
                let operations = run.step([(key(0), Some(spec))]).element_operations();
                // Three frontends with two lists each.
                let name = format!("internal {internal_local}, external {external_local}, {gone}");
                assert!((1..=36).contains(&operations), "{name}: {operations} elements");
            }
        }
        run.check();
    }
}

#[test]
fn removing_an_endpoint_moves_the_last_one_into_its_slot() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..4)))]);
    let changes = run.step([(key(0), Some(plain([0, 2, 3])))]);
    let front = frontend_key(Family::V4, 1);
    let slot = |slot, n| Element {
        key: front.slot(slot),
        data: Data::Value(Key::new().addr(pod(Family::V4, n)).port(8080)),
        comment: None,
    };
    let want = TableChanges {
        delete_elements: BTreeMap::from([(SetName::Endpoints, vec![slot(1, 1), slot(3, 3)])]),
        add_elements: BTreeMap::from([(SetName::Endpoints, vec![slot(1, 3)])]),
        ..TableChanges::default()
    };
    let tables = BTreeMap::from([(Family::V4, want)]);
    assert_eq!(changes, Changes { tables, ..Changes::default() });
}

#[test]
fn a_service_is_led_to_another_chain_only_where_its_slots_double_or_halve() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..1)))]);
    let led_on = |size: u16, run: &mut Run| {
        let changes = run.step([(key(0), Some(plain(0..size)))]);
        let moved = changes.tables[&Family::V4].add_elements.contains_key(&SetName::Services);
        (moved || changes.chain_operations() > 0).then_some(size)
    };
    let growing: Vec<u16> = (2..=70).filter_map(|size| led_on(size, &mut run)).collect();
    assert_eq!(growing, [2, 3, 5, 9, 17, 33, 65]);
    let shrinking: Vec<u16> = (0..70).rev().filter_map(|size| led_on(size, &mut run)).collect();
    assert_eq!(shrinking, [64, 32, 16, 8, 4, 2, 1]);
    run.check();
}

#[test]
fn the_last_endpoint_goes_and_the_first_one_comes_without_a_verdict() {
    for (internal_local, external_local) in [(false, false), (false, true), (true, false)] {
        let features = Features {
            node_port: Some(30_000),
            external_ip: true,
            load_balancer: true,
            internal_local,
            external_local,
            ..Features::default()
        };
        let of = |endpoints: &[(u16, bool)]| Spec {
            endpoints: endpoints.to_vec(),
            features,
            ..plain([])
        };
        let mut run = Run::new();
        run.step([(key(0), Some(of(&[(1, true)])))]);
        // One here, none, one elsewhere.
        for endpoints in [&[][..], &[(1, true)], &[(2, false)], &[], &[(2, false)], &[(1, true)]] {
            let changes = run.step([(key(0), Some(of(endpoints)))]);
            let table = &changes.tables[&Family::V4];
            let verdicts = table.add_elements.keys().filter(|s| s.def().data == SetData::Verdict);
            let verdicts: Vec<_> = verdicts.collect();
            assert!(verdicts.is_empty(), "{features:?} to {endpoints:?}: {verdicts:?}");
            assert_eq!(changes.chain_operations(), 0, "{features:?} to {endpoints:?}");
        }
        run.check();
    }
}

#[test]
fn an_update_that_says_the_same_changes_nothing() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..4)))]);
    assert_eq!(run.step([(key(0), Some(plain(0..4)))]), Changes::default());
    assert_eq!(run.step([(key(2), None)]), Changes::default());
}

#[test]
fn a_service_that_scales_through_many_sizes_leaves_few_idle_chains() {
    let config = PlanConfig { balance: Balance::RoundRobin, ..config() };
    let mut run = Run::with(config.clone());
    let sizes = (1..=100).chain((1..100).rev()).chain([0]);
    for size in sizes {
        run.step([(key(0), Some(plain(0..size)))]);
        let fresh = run.fresh();
        let idle = idle(&run.tables[0], &Table::of(&fresh, Family::V4).unwrap(), &config);
        assert!(idle.len() <= IDLE_SHAPES, "{} idle chains at size {size}", idle.len());
    }
    run.check();
}

#[test]
fn shapes_that_all_fall_idle_at_once_go_with_the_next_update() {
    let many = 2 * IDLE_SHAPES;
    let name = |n: usize| ServiceKey::new("web", format!("svc-{n:03}"));
    // In turn, because there is a chain for every number then.
    let config = PlanConfig { balance: Balance::RoundRobin, ..config() };
    let mut run = Run::with(config.clone());
    run.step((0..many).map(|n| {
        let endpoints = (0..=u16::try_from(n).unwrap()).map(|n| (n, false)).collect();
        let last = u8::try_from(n).unwrap();
        (name(n), Some(Spec { vips: [Some(last), None], endpoints, ..plain([]) }))
    }));
    let idle = |run: &Run| {
        idle(&run.tables[0], &Table::of(&run.fresh(), Family::V4).unwrap(), &config).len()
    };
    run.step((0..many).map(|n| (name(n), None)));
    assert_eq!(idle(&run), many, "they may not go in the transaction that frees them");
    run.step([(key(0), Some(plain(0..2)))]);
    assert_eq!(idle(&run), 0);
    run.check();
}

#[test]
fn an_idle_shape_is_taken_up_again_without_writing_it() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..2)))]);
    run.step([(key(0), Some(plain(0..3)))]);
    let changes = run.step([(key(0), Some(plain(0..2)))]);
    assert_eq!(changes.chain_operations(), 0);
    run.check();
}

#[test]
fn two_services_swap_their_addresses_in_one_update() {
    let with_vip =
        |last, endpoints: [u16; 2]| Spec { vips: [Some(last), Some(last)], ..plain(endpoints) };
    for turn in [[0, 1], [1, 0]] {
        let mut run = Run::new();
        run.step([(key(0), Some(with_vip(1, [0, 1]))), (key(1), Some(with_vip(2, [2, 3])))]);
        let swapped = [with_vip(2, [0, 1]), with_vip(1, [2, 3])];
        let changes = run.step(turn.map(|n| (key(n), Some(swapped[n].clone()))));
        run.check();
        assert_eq!(changes.chain_operations(), 0, "the shape stays the same");
        assert_eq!(run.desired.contested(&key(0)), []);
        assert_eq!(run.desired.contested(&key(1)), []);
        let slots = actual(&run.tables).slots();
        let at_8080 = |n: u16| SocketAddr::new(pod(Family::V4, n), 8080);
        assert_eq!(slots[&frontend(1)].all, [at_8080(2), at_8080(3)]);
        assert_eq!(slots[&frontend(2)].all, [at_8080(0), at_8080(1)]);
    }
}

#[test]
fn a_contested_frontend_is_the_first_claimants_until_he_lets_go() {
    let mut run = Run::new();
    let backends = |run: &Run| actual(&run.tables).slots().remove(&frontend(1)).unwrap().all;
    let at_8080 = |n: u16| SocketAddr::new(pod(Family::V4, n), 8080);
    let contested = |owner, losers: &[usize]| {
        let losers = losers.iter().map(|n| key(*n)).collect();
        vec![Contested { frontend: frontend(1), owner: key(owner), losers }]
    };

    run.step([(key(1), Some(plain([1])))]);
    let silent = run.step([(key(2), Some(plain([2])))]);
    assert_eq!(silent, Changes::default(), "who loses changes nothing");
    assert_eq!(run.desired.contested(&key(1)), contested(1, &[2]));

    run.step([(key(0), Some(plain([0])))]);
    assert_eq!(backends(&run), [at_8080(0)], "by name, whoever came first");
    for n in 0..3 {
        assert_eq!(run.desired.contested(&key(n)), contested(0, &[1, 2]));
    }
    run.check();

    run.step([(key(0), None), (key(1), None)]);
    assert_eq!(backends(&run), [at_8080(2)]);
    assert_eq!(run.desired.contested(&key(2)), []);
    run.check();
}

#[test]
fn a_hairpin_address_stays_until_its_last_user_goes() {
    let local = |last| Spec {
        vips: [Some(last), None],
        udp: true,
        endpoints: vec![(0, true)],
        ..plain([])
    };
    let pair = Key::new().addr(pod(Family::V4, 0)).addr(pod(Family::V4, 0));
    let hairpins = |run: &Run| -> Vec<Key> {
        run.tables[0].elements[&SetName::Hairpin].keys().copied().collect()
    };
    let mut run = Run::new();
    run.step([(key(0), Some(local(1))), (key(1), Some(local(2)))]);
    assert_eq!(hairpins(&run), [pair]);
    run.step([(key(0), None)]);
    assert_eq!(hairpins(&run), [pair]);
    let moved_away = Spec { endpoints: vec![(0, false)], ..local(2) };
    let changes = run.step([(key(1), Some(moved_away))]);
    let want = TableChanges {
        delete_elements: BTreeMap::from([(SetName::Hairpin, vec![Element::bare(pair)])]),
        ..TableChanges::default()
    };
    let tables = BTreeMap::from([(Family::V4, want)]);
    assert_eq!(changes, Changes { tables, ..Changes::default() });
    run.check();
}

#[test]
fn only_a_few_elements_and_nothing_else_are_a_small_change() {
    let spec = |endpoints: u16, affinity| Spec {
        vips: [Some(1), None],
        udp: false,
        endpoints: (0..endpoints).map(|n| (n, false)).collect(),
        features: Features { affinity, ..Features::default() },
    };
    let mut run = Run::new();
    let mut small =
        |endpoints, affinity| run.step([(key(0), Some(spec(endpoints, affinity)))]).is_small();
    assert!(!small(3, None), "a new Service, and a chain with it");
    assert!(small(4, None), "one endpoint more");
    assert!(small(3, None), "and less");
    assert!(!small(5, None), "another chain");
    assert!(small(4, None), "a chain that lies idle is not made again");
    assert!(!small(4, Some(10)), "it remembers clients from now on");
    assert!(!small(3, Some(10)), "those of an endpoint are to be forgotten");
    assert!(!small(300, None), "many endpoints");
    assert!(!small(200, None), "and fewer of them");
}

proptest! {
    /// That the heads are the same is found out without making them.
    #[test]
    fn heads_are_the_same_if_and_only_if_they_are_said_to_be(one in spec(), other in spec()) {
        let desired = Desired::new(config(), surroundings());
        let [one, other] = [one, other].map(|spec| plan(&key(0), &spec, &desired));
        let by_ipvs = PlanConfig { ipvs: Some(Default::default()), ..config() };
        for picker in [config().picker(), by_ipvs.picker()] {
            for (a, b) in one.ports.iter().filter_map(|a| Some((a, other.port(&a.frontend)?))) {
                let same = a.heads(picker) == b.heads(picker);
                prop_assert_eq!(a.has_heads_of(b, picker), same, "{:?} {:?}", a, b);
            }
        }
    }
}
