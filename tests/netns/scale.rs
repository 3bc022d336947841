//! What size costs: as ratios to what the kernel itself takes in the same run, and as counts.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use zw_lab::Namespace;
use zw_netlink::nft::{Batch, Element, ElementData, Family, SetData, SetSpec, Socket, TypeOf};
use zw_tests::binary::{Agent, field};
use zw_tests::cluster::Shape;

use crate::table::{generation, listing, once};

const SHAPE: Shape = Shape { services: 5_000, endpoints: 50 };

/// The kernel's own time for as many elements of the same kind, in one transaction.
pub(crate) fn raw_insertion(elements: usize) -> Duration {
    let namespace = Namespace::new().unwrap();
    namespace.run(|| {
        let set = SetSpec {
            name: "endpoints".into(),
            key: vec![
                TypeOf::IpDaddr,
                TypeOf::MetaL4proto,
                TypeOf::ThDport,
                TypeOf::NumgenRandom { modulus: 2 },
            ],
            data: SetData::Fields(vec![TypeOf::IpDaddr, TypeOf::ThDport]),
            counter: false,
            timeout: None,
            gc_interval: None,
            dynamic: false,
            interval: false,
            size: None,
            comment: None,
        };
        let mut batch = Batch::new();
        batch.add_table(Family::Ip, "raw", None);
        batch.add_set(Family::Ip, "raw", &set);
        for n in 0..elements as u32 {
            let mut key = [0u8; 16];
            key[..4].copy_from_slice(&Ipv4Addr::from_bits(0x0a60_0000 + n / 50).octets());
            (key[4], key[9]) = (6, 80);
            key[12..].copy_from_slice(&(n % 50).to_ne_bytes());
            let mut data = [0u8; 8];
            data[..4].copy_from_slice(&Ipv4Addr::from_bits(0x0b00_0000 + n).octets());
            data[4..6].copy_from_slice(&8080u16.to_be_bytes());
            let element = Element {
                key: &key,
                key_end: None,
                data: Some(ElementData::Value(&data)),
                timeout: None,
                comment: None,
            };
            batch.add_element(Family::Ip, "raw", "endpoints", &element);
        }
        let mut socket = Socket::open().unwrap();
        let started = Instant::now();
        socket.commit(&mut batch).unwrap();
        started.elapsed()
    })
}

#[test]
fn a_large_table_is_adopted_while_others_never_rest() {
    let shape = Shape { services: 1_000, endpoints: 50 };
    let folder = tempfile::tempdir().unwrap();
    shape.write(folder.path());
    let namespace = Namespace::new().unwrap();
    once(&namespace, folder.path());

    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let restless = scope.spawn(|| {
            namespace.run(|| {
                let mut socket = Socket::open().unwrap();
                let mut changes = 0;
                // Ends by itself too: a test that fails must not wait for it for ever.
                while !done.load(Ordering::Relaxed) && changes < 2_000 {
                    let mut batch = Batch::new();
                    batch.add_table(Family::Ip, "restless", None);
                    batch.delete_table(Family::Ip, "restless");
                    socket.commit(&mut batch).unwrap();
                    changes += 1;
                    // Often enough that no read of this table falls between two.
                    thread::sleep(Duration::from_millis(20));
                }
                changes
            })
        });
        let log = once(&namespace, folder.path());
        assert_eq!(field(&log, "elements"), 0.0, "nothing was different: {log}");
        // And a change found by such a read is made.
        shape.write_service(folder.path(), 7, 49);
        let log = once(&namespace, folder.path());
        assert!((1.0..=6.0).contains(&field(&log, "elements")), "{log}");
        done.store(true, Ordering::Relaxed);
        println!("{} changes of another table meanwhile", restless.join().unwrap());
    });
}

#[test]
fn five_thousand_services_of_fifty_endpoints() {
    let folder = tempfile::tempdir().unwrap();
    SHAPE.write(folder.path());
    let elements = SHAPE.services * SHAPE.endpoints;

    // Interleaved, best of three each: other load on the machine only ever adds.
    let (mut raw, mut ours) = (f64::MAX, f64::MAX);
    let mut namespace = Namespace::new().unwrap();
    for _ in 0..3 {
        raw = raw.min(raw_insertion(elements).as_secs_f64() * 1e3);
        namespace = Namespace::new().unwrap();
        let log = once(&namespace, folder.path());
        println!("{log}");
        ours = ours.min(field(&log, "plan_ms") + field(&log, "commit_ms"));
    }
    println!(
        "{elements} endpoints: raw insertion {raw:.0} ms, planned and committed {ours:.0} ms, ratio {:.2}",
        ours / raw
    );
    assert!(ours <= 3.0 * raw, "planning and commit take {ours:.0} ms, raw insertion {raw:.0} ms");

    let before = generation(&namespace);
    let log = once(&namespace, folder.path());
    println!("started again: {log}");
    assert_eq!(generation(&namespace), before, "nothing was written");

    let path = folder.path().to_str().unwrap();
    let mut agent = Agent::start(&namespace, &["--state", path, "--node-name", "node-0"]);
    agent.wait_for(&["synced", "services=5000"]);
    let numbers = |range: std::ops::Range<usize>| range.collect::<Vec<usize>>();
    for (what, endpoints) in [
        ("the last gone", numbers(0..49)),
        ("and back", numbers(0..50)),
        ("one more", numbers(0..51)),
        // Its slot is filled by the last, and it ran on this node: the dearest case.
        ("the first gone", numbers(1..51)),
        ("and back", numbers(0..51)),
    ] {
        SHAPE.write_endpoints(folder.path(), 2_500, &endpoints);
        let line = agent.wait_for(&["synced"]);
        println!("one Service, {what}: {line}");
        assert_eq!(field(&line, "services"), 1.0);
        assert!((1.0..=6.0).contains(&field(&line, "elements")), "{line}");
    }
}

/// The sizes of some of the table's sets, as nft tells them.
fn sizes(namespace: &Namespace) -> Vec<(String, u32)> {
    let mut socket = namespace.run(|| Socket::open().unwrap());
    let sets = socket.sets(Family::Ip, "zoneward").unwrap().into_iter();
    let sized = sets.filter_map(|set| Some((set.name, set.size?)));
    sized.filter(|(name, _)| ["services", "endpoints", "cluster-ips"].contains(&&**name)).collect()
}

#[test]
fn sets_of_many_are_made_for_the_cluster_and_grow_with_it() {
    let namespace = Namespace::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape { services: 200, endpoints: 100 };
    shape.write(folder.path());
    let path = folder.path().to_str().unwrap();
    let mut agent = Agent::start(&namespace, &["--state", path, "--node-name", "node-0"]);
    agent.wait_for(&["synced"]);
    assert_eq!(sizes(&namespace), [("endpoints".to_owned(), 30_000)]);
    // Nor does the kernel walk any of them every second.
    let listed = listing(&namespace);
    assert_eq!(listed.matches("flags timeout\n\t\tgc-interval 1d\n").count(), 1, "{listed}");

    // More than there is room for, in one change.
    shape.write_service(folder.path(), 0, 12_000);
    let line = agent.wait_for(&["synced"]);
    assert_eq!(field(&line, "elements"), 11_902.0);
    assert!(!agent.log.iter().any(|line| line.contains("refused")), "{:?}", agent.log);
    let after = sizes(&namespace);
    assert!(after.iter().any(|(_, size)| *size >= 31_900), "{after:?}");

    // A restart finds it as it should be.
    drop(agent);
    let before = generation(&namespace);
    let mut agent = Agent::start(&namespace, &["--state", path, "--node-name", "node-0"]);
    agent.wait_for(&["synced"]);
    assert_eq!(generation(&namespace), before);
}
