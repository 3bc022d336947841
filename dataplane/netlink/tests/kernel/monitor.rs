//! What the kernel tells of changes, ours and those of strangers.

use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use zw_netlink::nft::{Change, Generation, Monitor, Notice, Object, Verb, Watch};

use super::*;

/// A notice that outlives its datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Change { verb: Verb, object: Object, family: Option<Family>, name: String, port: u32 },
    Generation { id: u32, port: u32, pid: u32, process: String },
}

type Told = (Verb, Object, Option<Family>, String);

/// All that is queued. The kernel notifies inside the commit, so there is nothing to wait for.
fn hear(monitor: &mut Monitor) -> Vec<Heard> {
    let mut heard = Vec::new();
    let mut each = |notice: Notice<'_>| {
        heard.push(match notice {
            Notice::Change(Change { verb, object, family, name, port, .. }) => {
                let name = name.unwrap_or_default().into_owned();
                Heard::Change { verb, object, family, name, port }
            }
            Notice::Generation(Generation { id, port, pid, process }) => {
                let pid = pid.expect("the kernel tells");
                let process = process.expect("the kernel tells").into_owned();
                Heard::Generation { id, port, pid, process }
            }
        });
    };
    while monitor.read(&mut each).expect("reads") {}
    heard
}

/// The changes without who made them, which must be the same for all, and the generation after them.
fn one_commit(heard: Vec<Heard>) -> (Vec<Told>, u32, u32, String) {
    let mut changes = Vec::new();
    let mut ports = Vec::new();
    let mut heard = heard.into_iter();
    for one in heard.by_ref() {
        match one {
            Heard::Change { verb, object, family, name, port } => {
                changes.push((verb, object, family, name));
                ports.push(port);
            }
            Heard::Generation { id, port, pid, process } => {
                assert!(pid > 0 && ports.iter().all(|p| *p == port), "{ports:?}");
                assert_eq!(heard.next(), None, "one commit");
                return (changes, id, port, process);
            }
        }
    }
    panic!("no generation after {changes:?}");
}

fn start(socket: &mut Socket) -> Batch {
    let mut batch = Batch::new();
    for family in FAMILIES {
        batch.add_table(family, T, None);
        batch.add_set(family, T, &endpoints_map(family));
        batch.add_chain(family, T, &plain_chain("svc"));
        batch.add_rule(family, T, "svc", &[Expr::Counter], None);
        let (key, data) = (endpoint_key(family, 1), endpoint_data(family, 1));
        let value = Some(ElementData::Value(&data));
        batch.add_element(family, T, "endpoints", &element(&key, value));
    }
    socket.commit(&mut batch).expect("lands");
    batch
}

#[test]
fn our_own_commit_is_told_apart_from_a_strangers_by_its_port() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        let mut monitor = Monitor::open(T, None).expect("opens");
        assert_eq!(hear(&mut monitor), []);
        start(&mut socket);
        let (changes, id, port, process) = one_commit(hear(&mut monitor));
        let mut want = Vec::new();
        for family in FAMILIES {
            for (object, name) in [
                (Object::Table, ""),
                (Object::Set, "endpoints"),
                (Object::Chain, "svc"),
                (Object::Rule, "svc"),
                (Object::Element, "endpoints"),
            ] {
                want.push((Verb::New, object, Some(family), name.to_owned()));
            }
        }
        assert_eq!(changes, want);
        assert_eq!((id, port), (socket.generation().expect("reads"), socket.port()));
        let own = std::fs::read_to_string("/proc/thread-self/comm").expect("reads");
        assert_eq!(process, own.trim_end());

        // A stranger deletes one of our elements.
        let key = "10.0.0.0 . tcp . 80 . 1";
        run("nft", &["delete", "element", "ip", T, "endpoints", &format!("{{ {key} }}")], "");
        let (changes, id, port, process) = one_commit(hear(&mut monitor));
        let name = "endpoints".to_owned();
        assert_eq!(changes, [(Verb::Deleted, Object::Element, Some(Family::Ip), name)]);
        assert_eq!((id, process.as_str()), (socket.generation().expect("reads"), "nft"));
        assert_ne!(port, socket.port());

        // A refused batch is no change.
        let mut batch = Batch::new();
        batch.delete_element(Family::Ip, T, "endpoints", &endpoint_key(Family::Ip, 1));
        socket.commit(&mut batch).expect_err("gone");
        assert_eq!(hear(&mut monitor), []);
    });
}

#[test]
fn a_flush_of_the_whole_ruleset_tells_of_both_tables() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        start(&mut socket);
        let mut monitor = Monitor::open(T, None).expect("opens");
        run("nft", &["flush", "ruleset"], "");
        let (changes, id, port, process) = one_commit(hear(&mut monitor));
        for family in FAMILIES {
            for (object, name) in
                [(Object::Table, ""), (Object::Chain, "svc"), (Object::Set, "endpoints")]
            {
                let gone = (Verb::Deleted, object, Some(family), name.to_owned());
                assert!(changes.contains(&gone), "{gone:?} not in {changes:?}");
            }
        }
        assert!(changes.iter().all(|(verb, ..)| *verb == Verb::Deleted));
        assert_eq!((id, process.as_str()), (socket.generation().expect("reads"), "nft"));
        assert_ne!(port, socket.port());
    });
}

#[test]
fn of_other_tables_only_the_generation_is_told() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        start(&mut socket);
        let mut monitor = Monitor::open(T, None).expect("opens");
        let script = "
            table ip other { set s { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 }; }
            chain c { accept; }
            }
            table inet zoneward2 { chain c { accept; }
            }";
        run("nft", &["-f", "-"], script);
        let (changes, id, ..) = one_commit(hear(&mut monitor));
        assert_eq!((changes, id), (vec![], socket.generation().expect("reads")));

        // A table of our name in a family that is not ours says so.
        run("nft", &["add", "table", "inet", T], "");
        let (changes, ..) = one_commit(hear(&mut monitor));
        assert_eq!(changes, [(Verb::New, Object::Table, None, String::new())]);

        // Kinds of objects we never make, in our table.
        run("nft", &["add", "counter", "ip", T, "count"], "");
        let (changes, ..) = one_commit(hear(&mut monitor));
        let name = "count".to_owned();
        assert_eq!(changes, [(Verb::New, Object::Stateful, Some(Family::Ip), name)]);
    });
}

fn add_many(socket: &mut Socket, from: u32, to: u32) {
    let mut batch = Batch::new();
    for n in from..to {
        let (key, data) = (endpoint_key(Family::Ip, n), endpoint_data(Family::Ip, n));
        let value = Some(ElementData::Value(&data));
        batch.add_element(Family::Ip, T, "endpoints", &element(&key, value));
    }
    socket.commit(&mut batch).expect("lands");
}

#[test]
fn lost_notifications_are_an_overrun_and_later_ones_are_told_again() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        start(&mut socket);
        let mut monitor = Monitor::open(T, None).expect("opens");
        set_socket_recv_buffer_size(&monitor, 4096).expect("shrinks");
        for round in 1..4 {
            add_many(&mut socket, round * 1000, round * 1000 + 1000);
            let error = monitor.read(&mut |_| {}).expect_err("too many");
            assert!(matches!(error, Error::Overrun), "{error}");
            assert_eq!(hear(&mut monitor), [], "what was queued is older than the next dump");
        }
        run("nft", &["flush", "chain", "ip", T, "svc"], "");
        let (changes, ..) = one_commit(hear(&mut monitor));
        assert_eq!(changes, [(Verb::Deleted, Object::Rule, Some(Family::Ip), "svc".into())]);
    });
}

#[test]
fn a_watch_waits_until_something_is_told() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        start(&mut socket);
        let outside = Watch::new(Monitor::open(T, None).expect("opens"));
        assert!(matches!(outside, Err(Error::Socket { .. })), "no runtime, no panic");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("builds").block_on(async {
            let monitor = Monitor::open(T, None).expect("opens");
            set_socket_recv_buffer_size(&monitor, 4096).expect("shrinks");
            let mut watch = Watch::new(monitor).expect("registers");
            for n in 1..4 {
                // Dropped while waiting, for nothing is told: the wait must end by the clock.
                let mut surprise = |notice: Notice<'_>| panic!("{notice:?}");
                let quiet = watch.read(&mut surprise);
                assert!(tokio::time::timeout(Duration::from_millis(20), quiet).await.is_err());

                add_many(&mut socket, n * 10, n * 10 + 1);
                let mut changes = 0;
                let mut generation = None;
                let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
                while generation.is_none() {
                    let mut each = |notice: Notice<'_>| match notice {
                        Notice::Change(_) => changes += 1,
                        Notice::Generation(made) => generation = Some(made.id),
                    };
                    let told = tokio::time::timeout_at(deadline, watch.read(&mut each));
                    told.await.expect("in time").expect("reads");
                }
                assert_eq!(changes, 1);
                assert_eq!(generation, Some(socket.generation().expect("reads")));

                // Too many at once end the wait as well.
                add_many(&mut socket, n * 1000, n * 1000 + 1000);
                let mut each = |_: Notice<'_>| {};
                let lost = tokio::time::timeout_at(deadline, watch.read(&mut each)).await;
                assert!(matches!(lost.expect("in time"), Err(Error::Overrun)));
            }
        });
    });
}

#[test]
fn what_the_ignored_socket_commits_is_not_told() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        let mut other = Socket::open().expect("opens");
        let mut monitor = Monitor::open(T, Some(socket.port())).expect("opens");
        start(&mut socket);
        assert_eq!(hear(&mut monitor), []);
        // The same process, the same thread, another socket.
        add_many(&mut other, 10, 11);
        let (changes, _, port, _) = one_commit(hear(&mut monitor));
        assert_eq!((changes.len(), port), (1, other.port()));
        run("nft", &["flush", "ruleset"], "");
        let (changes, ..) = one_commit(hear(&mut monitor));
        let gone = (Verb::Deleted, Object::Table, Some(Family::Ip6), String::new());
        assert!(changes.contains(&gone), "{changes:?}");
    });
}

#[test]
fn what_is_committed_during_a_pause_is_not_told() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        let mut monitor = Monitor::open(T, None).expect("opens");
        monitor.pause().expect("unsubscribes");
        start(&mut socket);
        assert_eq!(hear(&mut monitor), []);
        monitor.resume().expect("subscribes");
        assert_eq!(hear(&mut monitor), []);
        add_many(&mut socket, 10, 11);
        let (changes, id, ..) = one_commit(hear(&mut monitor));
        assert_eq!((changes.len(), id), (1, socket.generation().expect("reads")));
    });
}

/// Prints what being watched costs a large commit; asserts that nothing is lost.
#[test]
fn a_hundred_thousand_elements_cause_no_overrun() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        for round in 0..3 {
            for (watched, ignored) in [(false, false), (true, true), (true, false)] {
                start(&mut socket);
                let ignored = ignored.then(|| socket.port());
                let mut monitor = Monitor::open(T, ignored).expect("opens");
                if !watched {
                    monitor.pause().expect("unsubscribes");
                }
                let began = Instant::now();
                add_many(&mut socket, 10, 100_010);
                let commit = began.elapsed();
                let began = Instant::now();
                let mut elements = 0;
                let mut each = |notice: Notice<'_>| {
                    elements += u32::from(matches!(notice, Notice::Change(_)));
                };
                while monitor.read(&mut each).expect("reads") {}
                let reading = began.elapsed();
                let told = watched && ignored.is_none();
                assert_eq!(elements, if told { 100_000 } else { 0 });
                println!(
                    "{round}: watched {watched}, told {told}: commit {commit:?}, reading {reading:?}"
                );
                run("nft", &["flush", "ruleset"], "");
            }
        }
    });
}
