//! A lab carries real packets. Needs root, or at least `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use zw_lab::{Answer, Lab, LabError, NODE, Namespace, Protocol};

const LONG: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(150);
const BOTH: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];

const NODE_ADDRESSES: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const A: [&str; 2] = ["10.1.0.1", "fd00:1::1"];
const B: [&str; 2] = ["10.1.0.2", "fd00:1::2"];
/// Nobody has these.
const VIP: [&str; 2] = ["10.96.0.10", "fd00:96::10"];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(text: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip(text), port)
}

fn answered(by: &str, port: u16, seen: &str) -> Answer {
    Answer::Answered { by: by.into(), port, seen: ip(seen) }
}

/// Hosts a and b around a node; b serves on 80 and 8080.
fn lab() -> Lab {
    let mut lab = Lab::new(&NODE_ADDRESSES.map(ip)).unwrap();
    lab.add_host("a", &A.map(ip)).unwrap();
    lab.add_host("b", &B.map(ip)).unwrap();
    lab.serve("b", &[80, 8080]).unwrap();
    lab
}

fn nft(namespace: &Namespace, rules: &str) {
    let status = namespace.run(|| {
        let mut child =
            Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(rules.as_bytes()).unwrap();
        drop(input);
        child.wait().unwrap()
    });
    assert!(status.success(), "{rules}");
}

#[test]
fn a_host_answers_at_every_address_of_a_range() {
    let mut lab = lab();
    for (network, prefix, asked) in
        [("10.128.0.0", 10, "10.150.1.2"), ("fd00:128::", 32, "fd00:128:7::9")]
    {
        lab.add_range("b", ip(network), prefix).unwrap();
        let answer = lab.probe("a", at(asked, 80), Protocol::Tcp, LONG);
        assert!(matches!(&answer, Answer::Answered { by, .. } if by == "b"), "{asked}: {answer:?}");
    }
}

#[test]
fn hosts_and_node_reach_each_other_and_are_seen_as_themselves() {
    let mut lab = lab();
    lab.serve(NODE, &[10250]).unwrap();
    for family in [0, 1] {
        for protocol in BOTH {
            let probe = |from, to| lab.probe(from, to, protocol, LONG);
            let case = format!("{protocol:?} {}", A[family]);
            for port in [80, 8080] {
                let want = answered("b", port, A[family]);
                assert_eq!(probe("a", at(B[family], port)), want, "{case}");
            }
            let want = answered("b", 80, NODE_ADDRESSES[family]);
            assert_eq!(probe(NODE, at(B[family], 80)), want, "{case}");
            let want = answered(NODE, 10250, A[family]);
            assert_eq!(probe("a", at(NODE_ADDRESSES[family], 10250)), want, "{case}");
        }
    }
}

#[test]
fn the_first_packet_to_a_new_host_is_not_lost() {
    let mut lab = Lab::new(&NODE_ADDRESSES.map(ip)).unwrap();
    for number in 1..=20 {
        let (name, v4, v6) =
            (format!("host-{number}"), format!("10.1.1.{number}"), format!("fd00:1::1:{number}"));
        lab.add_host(&name, &[ip(&v4), ip(&v6)]).unwrap();
        lab.serve(&name, &[80]).unwrap();
        // A lost SYN would come again after a second.
        let patience = Duration::from_millis(500);
        let (to4, to6) = (at(&v4, 80), at(&v6, 80));
        let answer = lab.probe(NODE, to6, Protocol::Tcp, patience);
        assert_eq!(answer, answered(&name, 80, NODE_ADDRESSES[1]));
        let answer = lab.probe(NODE, to4, Protocol::Tcp, patience);
        assert_eq!(answer, answered(&name, 80, NODE_ADDRESSES[0]));
    }
}

#[test]
fn a_closed_port_refuses_and_an_address_nobody_has_is_silent() {
    let lab = lab();
    for family in [0, 1] {
        for protocol in BOTH {
            for from in [NODE, "a"] {
                let case = format!("{protocol:?} {} from {from}", A[family]);
                let answer = lab.probe(from, at(B[family], 81), protocol, LONG);
                assert_eq!(answer, Answer::Refused, "{case}");
                let answer = lab.probe(from, at(VIP[family], 80), protocol, SHORT);
                assert_eq!(answer, Answer::Silent, "{case}");
            }
        }
    }
}

#[test]
fn thousands_of_questions_at_once_get_each_its_own_answer() {
    let lab = lab();
    // Served, closed, and nobody's, mixed; more than are under way at once.
    let questions: Vec<(SocketAddr, Protocol)> = (0..3000)
        .map(|i| {
            let (family, protocol) = (i % 2, BOTH[i / 2 % 2]);
            let to = match i / 4 % 10 {
                0 => at(VIP[family], 80),
                1 => at(B[family], 81),
                2..6 => at(B[family], 80),
                _ => at(B[family], 8080),
            };
            (to, protocol)
        })
        .collect();
    for from in [NODE, "a"] {
        let answers = lab.probe_all(from, &questions, Duration::from_secs(1));
        assert_eq!(answers.len(), questions.len());
        for (i, (answer, (to, protocol))) in answers.iter().zip(&questions).enumerate() {
            let seen = if from == NODE { NODE_ADDRESSES[i % 2] } else { A[i % 2] };
            let want = match to.port() {
                81 => Answer::Refused,
                80 if to.ip() == ip(VIP[i % 2]) => Answer::Silent,
                port => answered("b", port, seen),
            };
            assert_eq!(answer, &want, "{from} asks {to} {protocol:?}");
        }
    }
    assert!(matches!(lab.probe_all("nobody", &questions[..1], LONG)[0], Answer::Failed(_)));
}

#[test]
fn a_held_connection_answers_again_until_the_server_stops() {
    let mut lab = lab();
    for family in [0, 1] {
        let mut held = lab.open("a", at(B[family], 80), LONG).unwrap();
        let want = answered("b", 80, A[family]);
        assert_eq!(held.greeting(), &want);
        assert_eq!([held.say(), held.say()], [want.clone(), want.clone()]);

        lab.stop_serving("b");
        let answer = held.say();
        assert!(matches!(answer, Answer::Failed(_)), "{answer:?}");
        for protocol in BOTH {
            let answer = lab.probe("a", at(B[family], 80), protocol, LONG);
            assert_eq!(answer, Answer::Refused, "{protocol:?}");
        }
        let refused = lab.open("a", at(B[family], 80), LONG);
        assert_eq!(refused.unwrap_err(), Answer::Refused);

        lab.serve("b", &[80]).unwrap();
        let answer = lab.probe("a", at(B[family], 80), Protocol::Tcp, LONG);
        assert_eq!(answer, want);
    }
}

#[test]
fn an_address_added_later_answers_from_itself() {
    let mut lab = lab();
    for more in ["10.1.0.77", "fd00:1::77"] {
        lab.add_address("b", ip(more)).unwrap();
        for protocol in BOTH {
            let answer = lab.probe("a", at(more, 80), protocol, LONG);
            assert_eq!(answer.by(), Some("b"), "{protocol:?} {more}: {answer}");
        }
    }
}

#[test]
fn five_hundred_probes_are_quick_and_all_answered() {
    let lab = lab();
    for family in [0, 1] {
        for protocol in BOTH {
            let start = Instant::now();
            let answers = lab.probe_many("a", at(B[family], 80), protocol, 500, LONG);
            let took = start.elapsed();
            assert_eq!(answers, vec![answered("b", 80, A[family]); 500]);
            eprintln!("500 probes, {protocol:?} {}: {took:?}", A[family]);
            assert!(took < Duration::from_secs(2), "{protocol:?}: {took:?}");
        }
    }
}

#[test]
fn probes_from_many_threads_wait_at_the_same_time() {
    let lab = lab();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let patience = Duration::from_millis(500);
                let answer = lab.probe("a", at(VIP[0], 80), Protocol::Tcp, patience);
                assert_eq!(answer, Answer::Silent);
            });
        }
    });
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
}

/// Also that rejects are heard at once, all of them: no rate limit, and no waiting for a second
/// SYN where the node rejects its own packet.
#[test]
fn what_the_nodes_rules_do_to_a_packet_is_what_a_probe_reports() {
    let lab = lab();
    nft(
        lab.node(),
        "table inet t {
           chain pre { type nat hook prerouting priority dstnat; jump vip; }
           chain out { type nat hook output priority -100; jump vip; }
           chain vip {
             ip daddr 10.96.0.10 meta l4proto { tcp, udp } th dport 80 dnat ip to 10.1.0.2:8080
             ip6 daddr fd00:96::10 meta l4proto { tcp, udp } th dport 80 dnat ip6 to [fd00:1::2]:8080
           }
           chain leave {
             type nat hook postrouting priority srcnat
             ip saddr 10.1.0.2 masquerade
             ip6 saddr fd00:1::2 masquerade
           }
           chain forwarded { type filter hook forward priority 0; jump judge; }
           chain sent { type filter hook output priority 0; jump judge; }
           chain judge {
             meta l4proto { tcp, udp } th dport 81 reject
             meta l4proto { tcp, udp } th dport 82 drop
             meta l4proto { tcp, udp } th dport 83 reject with icmpx admin-prohibited
             meta l4proto { tcp, udp } th dport 84 reject with icmpx no-route
           }
         }",
    );
    for family in [0, 1] {
        for protocol in BOTH {
            let own = [("a", A[family]), (NODE, NODE_ADDRESSES[family])];
            for (from, seen) in own {
                let case = format!("{protocol:?} {} from {from}", VIP[family]);
                let probe =
                    |port, patience| lab.probe(from, at(VIP[family], port), protocol, patience);
                assert_eq!(probe(80, LONG), answered("b", 8080, seen), "{case}");
                assert_eq!(probe(82, SHORT), Answer::Silent, "{case}");
                for port in [81, 83, 84] {
                    let start = Instant::now();
                    let answers = lab.probe_many(from, at(VIP[family], port), protocol, 200, LONG);
                    assert_eq!(answers, vec![Answer::Refused; 200], "{case}:{port}");
                    let took = start.elapsed();
                    assert!(took < Duration::from_secs(1), "{case}:{port} took {took:?}");
                }
            }
            // Back to where it came from, seen as coming from the node.
            let answer = lab.probe("b", at(VIP[family], 80), protocol, LONG);
            assert_eq!(answer, answered("b", 8080, NODE_ADDRESSES[family]));
        }
    }
}

#[test]
fn a_dropped_lab_ends_its_threads_and_its_namespaces() {
    let mut lab = lab();
    let held = Namespace::new().unwrap();
    let inode = |namespace: &Namespace| {
        namespace.run(|| std::fs::read_link("/proc/thread-self/ns/net").unwrap())
    };
    lab.serve("a", &[80]).unwrap();
    let gone = [inode(lab.node()), inode(lab.host("a").unwrap()), inode(lab.host("b").unwrap())];
    drop(lab);
    let mut inside = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // Other tests of this process start and end threads meanwhile.
        if let Ok(link) = std::fs::read_link(task.unwrap().path().join("ns/net")) {
            inside.push(link);
        }
    }
    for namespace in gone {
        assert!(!inside.contains(&namespace), "a thread is still inside");
    }
    assert_eq!(inode(&held), inode(&held.clone()));
}

#[test]
fn code_runs_inside_and_its_panics_come_out() {
    let namespace = Namespace::new().unwrap();
    let own = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let outside = own();
    assert_ne!(namespace.run(own), outside);
    assert_eq!(namespace.run(own), namespace.spawn(own).join().unwrap());
    assert_eq!(Namespace::current().unwrap().run(own), outside);
    let panic = std::panic::catch_unwind(|| namespace.run(|| panic!("from inside")));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"from inside"));
}

#[test]
fn names_that_cannot_be_a_hosts_are_refused() {
    let mut lab = lab();
    for name in ["", "two words", NODE, "a"] {
        let outcome = lab.add_host(name, &[]);
        assert!(matches!(outcome, Err(LabError::Name { .. })), "{name:?}");
    }
    let outcome = lab.serve("nobody", &[80]);
    assert!(matches!(outcome, Err(LabError::UnknownHost { .. })));
    let answer = lab.probe("nobody", at(B[0], 80), Protocol::Tcp, LONG);
    assert!(matches!(answer, Answer::Failed(_)), "{answer:?}");
    let outcome = lab.serve("b", &[80]).unwrap_err();
    assert!(matches!(outcome, LabError::Serve { port: 80, .. }), "{outcome:?}");
}
