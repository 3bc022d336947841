//! Dumps while somebody else changes the ruleset.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn a_dump_raced_by_a_change_is_interrupted_and_the_next_one_is_whole() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        let family = Family::Ip;
        let mut batch = Batch::new();
        batch.add_table(family, T, None);
        batch.add_set(family, T, &endpoints_map(family));
        let mut want = BTreeMap::new();
        for n in 0..10_000 {
            let (key, data) = (endpoint_key(family, n), endpoint_data(family, n));
            let value = Some(ElementData::Value(&data));
            batch.add_element(family, T, "endpoints", &element(&key, value));
            want.insert(key, data);
        }
        socket.commit(&mut batch).expect("lands");

        // A thread inherits the namespace of the one that starts it.
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut other = Socket::open().expect("opens");
                while !stop.load(Ordering::Relaxed) {
                    let mut batch = Batch::new();
                    batch.add_table(family, "other", None);
                    batch.delete_table(family, "other");
                    other.commit(&mut batch).expect("lands");
                }
            });
            let deadline = Instant::now() + Duration::from_secs(20);
            let interrupted = loop {
                match socket.elements(family, T, "endpoints", &mut |_| {}) {
                    Err(Error::Interrupted) => break true,
                    Err(error) => panic!("{error}"),
                    Ok(()) if Instant::now() > deadline => break false,
                    Ok(()) => {}
                }
            };
            stop.store(true, Ordering::Relaxed);
            assert!(interrupted, "no dump of 10,000 elements met a change");
        });
        assert_eq!(dump(&mut socket, family, "endpoints"), want);
    });
}

/// The kernel resizes a hash set after many additions, and walks it anew for every part of a dump.
#[test]
fn a_dump_torn_by_a_resize_is_never_taken_for_whole() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        let family = Family::Ip;
        for round in 0..60 {
            let mut batch = Batch::new();
            batch.add_table(family, T, None);
            batch.add_set(family, T, &endpoints_map(family));
            let mut want = BTreeMap::new();
            for n in 0..1_000 + round * 337 {
                let (key, data) = (endpoint_key(family, n), endpoint_data(family, n));
                let value = Some(ElementData::Value(&data));
                batch.add_element(family, T, "endpoints", &element(&key, value));
                want.insert(key, data);
            }
            socket.commit(&mut batch).expect("lands");
            assert!(dump(&mut socket, family, "endpoints") == want, "{} elements", want.len());
            let mut batch = Batch::new();
            batch.delete_table(family, T);
            socket.commit(&mut batch).expect("lands");
        }
    });
}
