//! The ipvs mode on Debian's kernel: the packet cases, how endpoints leave, who is left alone, and what
//! changes cost.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use zw_dataplane::{Ipvs, IpvsOptions, Kernel, Tables, WithIpvs};
use zw_lab::{Answer, Namespace};
use zw_model::{
    Conditions, Family, NodeContext, Protocol, Scheduler, Scope, Service, ServiceKey, ServicePort,
    Slice, SliceEndpoint, SliceKey, SlicePort, Topology,
};
use zw_netlink::ipvs::{Batch, RealServer, ServerId, ServerSettings, Socket};
use zw_plan::testing::{World, by_ipvs, cases, sctp_cases};
use zw_plan::{
    Desired, PlanConfig, ServiceRules, Slots, Surroundings, VirtualKey, bring_to, plan_service,
};
use zw_tests::plane::{KernelPlane, check_all, load, vip};
use zw_tests::vm::inside;

const PATIENCE: Duration = Duration::from_secs(5);

#[test]
fn in_the_ipvs_mode_every_packet_meets_the_same_fate() {
    inside(|| {
        let rows = check_all(&KernelPlane::new(), |family| by_ipvs(cases(family)).collect());
        println!("{rows} packet rows by IPVS");
    });
}

#[test]
fn in_the_ipvs_mode_every_sctp_packet_meets_the_same_fate() {
    inside(|| {
        let rows =
            check_all(&KernelPlane::with_sctp(), |family| by_ipvs(sctp_cases(family)).collect());
        println!("{rows} SCTP packet rows by IPVS");
    });
}

#[test]
fn switching_modes_serves_on_and_leaves_nothing_of_the_other() {
    inside(|| {
        let plane = KernelPlane::new();
        for family in Family::BOTH {
            let world = two_endpoints(family, &["zone-b", "zone-c"], &[]);
            let to = vip(family, 10, 80);
            for _ in 0..2 {
                // One for TCP, one for UDP.
                for (world, servers) in [(world.clone().by_ipvs(), 2), (world.clone(), 0)] {
                    plane.lab().node().run(|| load(&world.desired()));
                    let answer = plane.lab().probe("client", to, zw_lab::Protocol::Tcp, PATIENCE);
                    assert!(matches!(answer, Answer::Answered { .. }), "{family}: {answer:?}");
                    plane.lab().node().run(|| {
                        let found = Socket::open().unwrap().unwrap().servers().unwrap();
                        assert_eq!(found.len(), servers, "{found:?}");
                        assert_eq!(zw_dataplane::link_index().is_some(), servers > 0);
                    });
                }
            }
        }
    });
}

/// A Service of TCP and UDP with some endpoints that are ready and some that are leaving.
fn two_endpoints(family: Family, ready: &[&str], leaving: &[&str]) -> World {
    World::new(family)
        .service("web/api", 10, &[("http", Protocol::Tcp, 80), ("dns", Protocol::Udp, 53)])
        .slice("web/api", &[("http", Protocol::Tcp, 8080), ("dns", Protocol::Udp, 5353)], |slice| {
            slice.ready(ready).terminating(leaving)
        })
}

#[test]
fn an_endpoint_that_leaves_keeps_its_connections_for_a_while_and_gets_no_new_ones() {
    inside(|| {
        let plane = KernelPlane::new();
        let node = plane.lab().node();
        for (family, bound) in [
            (Family::V4, Duration::from_secs(900)),
            (Family::V6, Duration::from_secs(900)),
            // As if all of it had passed.
            (Family::V4, Duration::ZERO),
            (Family::V6, Duration::ZERO),
        ] {
            let to = vip(family, 10, 80);
            let both = two_endpoints(family, &["zone-b", "zone-c"], &[]).by_ipvs().desired();
            let leaving = two_endpoints(family, &["zone-c"], &["zone-b"]).by_ipvs().desired();
            let mut kernel = node.run(|| kernel(bound));
            node.run(|| sync(&mut kernel, &both));
            let mut held = Vec::new();
            for _ in 0..8 {
                held.push(plane.lab().open("client", to, PATIENCE).expect("a connection"));
            }
            let stays = |answer: &Answer| matches!(answer, Answer::Answered { .. });
            let by = |answer: Answer| match answer {
                Answer::Answered { by, .. } => by,
                other => panic!("{other:?}"),
            };
            let on_b: Vec<bool> = held.iter_mut().map(|held| by(held.say()) == "zone-b").collect();
            assert!(on_b.contains(&true) && on_b.contains(&false), "{on_b:?}");

            assert_eq!(
                node.run(|| sync(&mut kernel, &leaving)),
                2,
                "one weight, one UDP endpoint gone"
            );
            for _ in 0..8 {
                let answer = plane.lab().probe("client", to, zw_lab::Protocol::Tcp, PATIENCE);
                assert_eq!(by(answer), "zone-c", "new connections go elsewhere at once");
            }
            if bound > Duration::ZERO {
                assert!(node.run(|| kernel.ipvs().drain()).unwrap(), "it has connections");
                for (held, on_b) in held.iter_mut().zip(&on_b) {
                    assert_eq!(by(held.say()) == "zone-b", *on_b, "old ones stay where they are");
                }
                // A restart sends nothing, and knows who is leaving.
                let mut again = node.run(|| self::kernel(bound));
                assert_eq!(node.run(|| sync(&mut again, &leaving)), 0);
                assert!(node.run(|| again.ipvs().drain()).unwrap());
            } else {
                assert!(!node.run(|| kernel.ipvs().drain()).unwrap(), "the time is over");
                for (held, on_b) in held.iter_mut().zip(&on_b) {
                    assert_eq!(stays(&held.say()), !on_b, "those of the endpoint that left end");
                }
            }
            drop(held);
            node.run(|| kernel.ipvs().remove().unwrap());
        }
    });
}

#[test]
fn a_client_stays_with_its_endpoint_until_that_goes() {
    const CLIENTS: [&str; 3] = ["client", "same-zone", "outside"];
    inside(|| {
        let plane = KernelPlane::new();
        let node = plane.lab().node();
        for family in Family::BOTH {
            let world = |ready: &[&str]| {
                let sticky = two_endpoints(family, &[], &[]).offered(|s| s.affinity = Some(600));
                let ports = [("http", Protocol::Tcp, 8080), ("dns", Protocol::Udp, 5353)];
                sticky.slice("web/api", &ports, |slice| slice.ready(ready)).by_ipvs().desired()
            };
            let endpoints = ["local-2", "zone-b", "zone-c"];
            let mut kernel = node.run(|| kernel(Duration::from_secs(900)));
            node.run(|| sync(&mut kernel, &world(&endpoints)));
            let asked = [(80, zw_lab::Protocol::Tcp), (53, zw_lab::Protocol::Udp)];
            for (port, protocol) in asked {
                let to = vip(family, 10, port);
                let the_one = |client: &str| -> String {
                    let answers = plane.lab().probe_many(client, to, protocol, 6, PATIENCE);
                    let by: BTreeSet<&str> = answers.iter().filter_map(Answer::by).collect();
                    assert_eq!(by.len(), 1, "{family}, {client}: {answers:?}");
                    assert!(answers.iter().all(|answer| answer.by().is_some()), "{answers:?}");
                    by.into_iter().collect()
                };
                let before = CLIENTS.map(the_one);
                assert!(before[1..].iter().any(|with| *with != before[0]), "rr: {before:?}");
                let gone = &before[0];
                let left: Vec<&str> = endpoints.into_iter().filter(|name| name != gone).collect();
                node.run(|| sync(&mut kernel, &world(&left)));
                for (client, was) in CLIENTS.iter().zip(&before) {
                    let now = the_one(client);
                    assert_ne!(now, *gone, "{family}: {client} is not sent where nobody is");
                    assert!(was == gone || now == *was, "{family}: {client} {was} -> {now}");
                }
                // For the other protocol all are there again.
                node.run(|| sync(&mut kernel, &world(&endpoints)));
            }
            node.run(|| kernel.ipvs().remove().unwrap());
        }
    });
}

#[test]
fn others_virtual_servers_are_never_touched() {
    inside(|| {
        Namespace::new().unwrap().run(|| {
            let mut socket = Socket::open().unwrap().unwrap();
            let theirs =
                |addr: &str| ServerId { addr: addr.parse().unwrap(), protocol: 6, port: 80 };
            // One at a Service's own address, one elsewhere.
            let foreign = [theirs("10.96.0.10"), theirs("198.51.100.7")];
            let settings = ServerSettings { scheduler: "wlc".into(), flags: 0, timeout: 0 };
            let mut batch = Batch::new();
            for id in &foreign {
                batch.new_server(id, &settings);
                let addr = "203.0.113.9:80".parse().unwrap();
                batch.new_real(id, &RealServer { addr, weight: 7 });
            }
            assert_eq!(socket.send(&mut batch).unwrap(), []);
            let mut look = || {
                let mut all = socket.servers().unwrap();
                all.retain(|server| server.id.is_some_and(|id| foreign.contains(&id)));
                all.sort_by_key(|server| server.id);
                let reals: Vec<_> = foreign.iter().map(|id| socket.reals(id).unwrap()).collect();
                (all, reals)
            };
            let before = look();

            let mut kernel = kernel(Duration::ZERO);
            let world = two_endpoints(Family::V4, &["zone-b"], &[]).by_ipvs();
            for ready in [&["zone-b"][..], &["zone-b", "zone-c"], &["zone-c"], &[]] {
                let world = two_endpoints(Family::V4, ready, &[]).by_ipvs();
                sync(&mut kernel, &world.desired());
                assert_eq!(look(), before, "with {ready:?}");
            }
            // And one that comes when ours should be there already.
            let mut desired = world.desired();
            sync(&mut kernel, &desired);
            let changes = desired.update([(ServiceKey::new("web", "api"), None)]);
            kernel.commit(&changes, None).unwrap();
            assert_eq!(look(), before);
            let removed = kernel.ipvs().remove().unwrap();
            assert!(removed.link);
            assert_eq!(look(), before, "nor when everything of ours goes");
        });
    });
}

#[test]
fn a_service_may_have_a_scheduler_of_its_own_and_one_that_is_missing_costs_nobody_else() {
    inside(|| {
        Namespace::new().unwrap().run(|| {
            let mut kernel = kernel(Duration::ZERO);
            let world = |scheduler: Option<&str>| {
                let scheduler: Option<Scheduler> = scheduler.map(|text| text.parse().unwrap());
                two_endpoints(Family::V4, &["zone-b"], &[])
                    .offered(|service| service.scheduler = scheduler)
                    .service("web/other", 11, &[("http", Protocol::Tcp, 80)])
                    .slice("web/other", &[("http", Protocol::Tcp, 8080)], |s| s.ready(&["zone-c"]))
                    .by_ipvs()
            };
            let other = VirtualKey { addr: vip(Family::V4, 11, 80).ip(), ..key(10) };
            for text in ["wrr", "sh,port", "mh,fallback,port", "lc"] {
                sync(&mut kernel, &world(Some(text)).desired());
                let read = kernel.read_back().unwrap().actual.ipvs;
                let settings = |key| read.servers[&key].settings.clone().unwrap();
                assert_eq!(settings(key(10)).scheduler.to_string(), text);
                assert_eq!(settings(other).scheduler.to_string(), "rr");
                assert_eq!(sync(&mut kernel, &world(Some(text)).desired()), 0);
            }
            // Debian's kernel has no such module.
            sync(&mut kernel, &world(Some("twos")).desired());
            let read = kernel.read_back().unwrap().actual.ipvs;
            assert!(read.servers.contains_key(&other));
            sync(&mut kernel, &world(None).desired());
            let read = kernel.read_back().unwrap().actual.ipvs;
            assert_eq!(
                read.servers[&key(10)].settings.clone().unwrap().scheduler.to_string(),
                "rr"
            );
        });
    });
}

fn key(last: u8) -> VirtualKey {
    VirtualKey { addr: vip(Family::V4, last, 80).ip(), protocol: Protocol::Tcp, port: 80 }
}

#[test]
fn two_thousand_services_of_ten_endpoints() {
    const SERVICES: u16 = 2_000;
    const ENDPOINTS: u16 = 10;
    inside(|| {
        Namespace::new().unwrap().run(|| {
            let mut kernel = kernel(Duration::from_secs(900));
            let mut desired = Desired::new(by_rr(), Surroundings::default());
            desired.load((0..SERVICES).map(|n| (name(n), Some(planned(n, ENDPOINTS)))));
            let started = Instant::now();
            let sent = sync(&mut kernel, &desired);
            println!("cold start: {sent} requests, {:?}", started.elapsed());
            assert_eq!(sent, usize::from(SERVICES) * (usize::from(ENDPOINTS) + 2));

            let started = Instant::now();
            let sent = sync(&mut self::kernel(Duration::from_secs(900)), &desired);
            println!("restart: {sent} requests, {:?}", started.elapsed());
            assert_eq!(sent, 0);

            for (what, endpoints) in [("one more", ENDPOINTS + 1), ("and gone", ENDPOINTS)] {
                let before = kernel.ipvs().requests();
                let started = Instant::now();
                let changes = desired.update([(name(7), Some(planned(7, endpoints)))]);
                kernel.commit(&changes, None).unwrap();
                let sent = kernel.ipvs().requests() - before;
                println!("{what}: {sent} requests, {:?}", started.elapsed());
                assert_eq!(sent, 1);
            }
        });
    });
}

fn by_rr() -> PlanConfig {
    PlanConfig { ipvs: Some(Scheduler::default()), ..PlanConfig::default() }
}

fn name(n: u16) -> ServiceKey {
    ServiceKey::new("web", format!("api-{n}"))
}

/// One of many Services.
fn planned(n: u16, endpoints: u16) -> ServiceRules {
    let [high, low] = n.to_be_bytes();
    let protocol = Protocol::Tcp;
    let service = Service {
        key: name(n),
        cluster_ips: vec![IpAddr::from([10, 96, high, low])],
        ports: vec![ServicePort { name: "http".into(), protocol, port: 80, node_port: None }],
        ..Service::default()
    };
    let endpoint = |at: u16| {
        let addr = Ipv4Addr::from_bits(0x0af4_0000 + u32::from(n) * 16 + u32::from(at));
        SliceEndpoint {
            addr: addr.into(),
            conditions: Conditions { ready: true, serving: true, terminating: false },
            topology: Arc::new(Topology { node: Some("node-2".into()), ..Topology::default() }),
        }
    };
    let slice = Slice {
        key: SliceKey { namespace: "web".into(), name: format!("api-{n}-0").into() },
        service: name(n),
        family: Family::V4,
        scope: Scope::Everyone,
        managed_by: None,
        ports: vec![SlicePort { name: "http".into(), protocol, port: 8080 }],
        endpoints: (0..endpoints).map(endpoint).collect(),
    };
    plan_service(&service, [&slice], &NodeContext::default(), |_| Slots::default())
}

/// The kernel of this namespace, ready for the mode.
fn kernel(drain: Duration) -> WithIpvs {
    let mut ipvs = Ipvs::open(drain).unwrap();
    ipvs.prepare(&IpvsOptions::default()).unwrap();
    WithIpvs::new(Kernel::open().unwrap(), ipvs)
}

/// Brings the kernel to what is desired; says how many requests to IPVS and the interface that took.
fn sync(kernel: &mut WithIpvs, desired: &Desired) -> usize {
    let before = kernel.ipvs().requests();
    let read = kernel.read_back().unwrap();
    kernel.commit(&bring_to(desired, &read.actual), read.generation).unwrap();
    kernel.ipvs().requests() - before
}
