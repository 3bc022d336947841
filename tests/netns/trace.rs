//! `zoneward trace` over the kernel's own state says what the kernel then does with real packets: for
//! random Services and random packets, in distribution where chance decides.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use zw_dataplane::Kernel;
use zw_lab::{Answer, Namespace};
use zw_model::{External, Family, Protocol, TrafficPolicy};
use zw_plan::bring_to;
use zw_plan::testing::{NODE, World, host, second_address};
use zw_tests::binary::{run_in, text, tool_in};
use zw_tests::plane::{KernelPlane, lab_protocol, vip};
use zw_tests::rng::Rng;

/// Both families of so many states, and so many packets each: 200 packets.
const STATES: u64 = 10;
const PACKETS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_millis(300);
/// Connections for each endpoint where chance decides.
const TRIES: usize = 16;

const PODS: [&str; 5] = ["local-1", "local-2", "same-zone", "zone-b", "zone-c"];
/// Not the pods of other nodes: their own nodes treat their packets.
const CLIENTS: [&str; 5] = ["client", "outside", "node", "local-1", "local-2"];
const PORTS: [(&str, Protocol, u16); 2] = [("http", Protocol::Tcp, 80), ("dns", Protocol::Udp, 53)];
const TARGETS: [(&str, Protocol, u16); 2] =
    [("http", Protocol::Tcp, 8080), ("dns", Protocol::Udp, 5353)];

fn outside_address(family: Family, last: u8) -> IpAddr {
    match family {
        Family::V4 => [198, 51, 100, last].into(),
        Family::V6 => [0x2001, 0xdb8, 0x100, 0, 0, 0, 0, u16::from(last)].into(),
    }
}

/// Three Services with whatever chance gives them.
fn state(rng: &mut Rng, family: Family) -> World {
    let mut world = World::new(family);
    if rng.chance(50) {
        let range = if family == Family::V4 { "10.96.0.0/16" } else { "fd00:10:96::/112" };
        world = world.surrounded(|around| around.service_ranges = vec![range.parse().unwrap()]);
    }
    for last in 1..=3u8 {
        let key = format!("web/svc-{last}");
        world = world.service(&key, last, &PORTS).offered(|service| {
            let policy = |local| if local { TrafficPolicy::Local } else { TrafficPolicy::Cluster };
            service.internal_policy = policy(rng.chance(20));
            service.external_policy = policy(rng.chance(40));
            service.affinity = rng.chance(25).then_some(600);
            if rng.chance(60) {
                for (i, port) in (0u16..).zip(&mut service.ports) {
                    port.node_port = (30_000 + u16::from(last) * 10 + i).try_into().ok();
                }
            }
            let ranges = ["203.0.113.0/24", "10.0.0.0/8", "2001:db8:ffff::/48", "fd00:10::/32"];
            let ranges = rng.some(&ranges, 40).iter().map(|range| range.parse().unwrap()).collect();
            service.external = Some(Box::new(External {
                ips: vec![outside_address(family, last)],
                load_balancer_ips: vec![outside_address(family, last + 100)],
                source_ranges: ranges,
                health_check_port: None,
            }));
        });
        for _ in 0..1 + rng.below(2) {
            let (ready, other) = (rng.some(&PODS, 45), rng.some(&PODS, 20));
            let kind = rng.below(3);
            let scope = rng.below(8);
            world = world.slice(&key, &TARGETS, |slice| {
                let slice = match scope {
                    0 => slice.for_zone("zone-a"),
                    1 => slice.for_zone("zone-b"),
                    2 => slice.for_region("region-1"),
                    _ => slice,
                };
                let slice = slice.ready(&ready);
                match kind {
                    0 => slice.not_ready(&other),
                    1 => slice.terminating(&other),
                    _ => slice,
                }
            });
        }
    }
    world
}

/// Somebody sends something somewhere.
fn packet(rng: &mut Rng, family: Family) -> (&'static str, SocketAddr, Protocol) {
    let from = rng.pick(&CLIENTS);
    let (_, protocol, port) = rng.pick(&PORTS);
    let last = 1 + rng.below(3) as u8;
    let node_port = 30_000 + u16::from(last) * 10 + u16::from(protocol == Protocol::Udp);
    let to = match rng.below(10) {
        0..=3 => vip(family, last, port),
        4 => SocketAddr::new(outside_address(family, last), port),
        5 | 6 => SocketAddr::new(outside_address(family, last + 100), port),
        7 => SocketAddr::new(NODE.addr(family), node_port),
        8 => SocketAddr::new(second_address(family), node_port),
        // The wrong port, or an address that nobody has.
        _ if rng.chance(50) => vip(family, last, 81),
        _ => vip(family, 99, port),
    };
    (from, to, protocol)
}

/// What `zoneward trace` says on the node.
fn trace(node: &Namespace, from: &str, to: SocketAddr, protocol: Protocol) -> Value {
    let from =
        if from == "node" { from.into() } else { host(from).addr(family_of(to)).to_string() };
    let to = format!("{to}/{protocol}");
    let output = run_in(node, &["trace", &from, &to, "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn family_of(to: SocketAddr) -> Family {
    Family::of(to.ip())
}

/// The endpoints that are predicted, and how likely: who, where, seeing whom.
fn predicted(said: &Value, client: IpAddr, node: IpAddr) -> BTreeMap<(SocketAddr, IpAddr), f64> {
    let endpoints = said["endpoints"].as_array().unwrap().iter();
    endpoints
        .map(|endpoint| {
            let at = endpoint["address"].as_str().unwrap().parse().unwrap();
            let seen = if endpoint["asNode"].as_bool().unwrap() { node } else { client };
            ((at, seen), endpoint["probability"].as_f64().unwrap())
        })
        .collect()
}

/// How far what happened is from what was predicted.
#[derive(Default)]
struct Deviation {
    chi_squared: f64,
    freedom: usize,
}

impl Deviation {
    fn add(
        &mut self,
        want: &BTreeMap<(SocketAddr, IpAddr), f64>,
        got: &BTreeMap<(SocketAddr, IpAddr), usize>,
    ) {
        let sent: usize = got.values().sum();
        for (outcome, probability) in want {
            let expected = probability * sent as f64;
            let is = got.get(outcome).copied().unwrap_or(0) as f64;
            self.chi_squared += (is - expected).powi(2) / expected;
        }
        self.freedom += want.len() - 1;
    }
}

/// Sends one packet, or many where chance decides, and says what was not as predicted.
fn check(
    plane: &KernelPlane,
    packet: (&str, SocketAddr, Protocol),
    deviation: &mut Deviation,
) -> Result<String, String> {
    let (from, to, protocol) = packet;
    let family = family_of(to);
    let said = trace(plane.lab().node(), from, to, protocol);
    let fate = said["fate"].as_str().unwrap().to_owned();
    let send = |patience| plane.lab().probe(from, to, lab_protocol(protocol), patience);
    let wrong = |got: &dyn std::fmt::Debug| Err(format!("{packet:?}: {got:?}, but\n{said:#}"));
    match fate.as_str() {
        "refused" => match send(PATIENCE) {
            Answer::Refused => {}
            other => return wrong(&other),
        },
        "dropped" => match send(SILENCE) {
            Answer::Silent => {}
            other => return wrong(&other),
        },
        "untouched" => match send(SILENCE) {
            Answer::Silent => {}
            // Nobody listens there, and the node itself says so.
            Answer::Refused if NODE.addresses(family).contains(&to.ip()) => {}
            other => return wrong(&other),
        },
        "reaches" => {
            let (client, node) = (host(from).addr(family), NODE.addr(family));
            let want = predicted(&said, client, node);
            let mut got: BTreeMap<(SocketAddr, IpAddr), usize> = BTreeMap::new();
            let sticky = said["steps"].to_string().contains("-sticky-");
            let times = if want.len() == 1 { 3 } else { want.len() * TRIES };
            for _ in 0..if sticky { 1 } else { times } {
                match send(PATIENCE) {
                    Answer::Answered { by, port, seen } => {
                        let by = SocketAddr::new(host(&by).addr(family), port);
                        if !want.contains_key(&(by, seen)) {
                            return wrong(&(by, seen));
                        }
                        *got.entry((by, seen)).or_default() += 1;
                    }
                    other => return wrong(&other),
                }
            }
            if sticky {
                // From now on it is known.
                let again = trace(plane.lab().node(), from, to, protocol);
                let now = predicted(&again, client, node);
                let went = got.keys().map(|outcome| (*outcome, 1.0)).collect::<BTreeMap<_, _>>();
                if now != went {
                    return Err(format!("{packet:?}: went to {went:?}, then\n{again:#}"));
                }
            } else {
                deviation.add(&want, &got);
            }
        }
        other => return Err(format!("{packet:?}: {other}\n{said:#}")),
    }
    Ok(fate)
}

#[test]
fn trace_predicts_what_the_kernel_does_with_two_hundred_random_packets() {
    let plane = KernelPlane::new();
    let mut fates: BTreeMap<String, usize> = BTreeMap::new();
    let mut deviation = Deviation::default();
    let mut failures = Vec::new();
    for number in 0..STATES {
        for family in Family::BOTH {
            let rng = &mut Rng::stream(2026, number);
            let desired = state(rng, family).desired();
            plane.lab().node().run(|| {
                let mut kernel = Kernel::open().unwrap();
                // Without what clients of the state before are remembered for.
                kernel.remove().unwrap();
                let read = kernel.read_back().unwrap();
                kernel.commit(&bring_to(&desired, &read.actual), read.generation).unwrap();
            });
            for _ in 0..PACKETS {
                match check(&plane, packet(rng, family), &mut deviation) {
                    Ok(fate) => *fates.entry(fate).or_default() += 1,
                    Err(failure) => failures.push(format!("state {number}, {family}: {failure}")),
                }
            }
        }
    }
    println!("{fates:?}, chi² {:.1} of {}", deviation.chi_squared, deviation.freedom);
    assert!(failures.is_empty(), "{} wrong:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(fates.values().sum::<usize>(), 2 * STATES as usize * PACKETS);
    for fate in ["reaches", "refused", "dropped", "untouched"] {
        assert!(fates.contains_key(fate), "no packet was {fate}: {fates:?}");
    }
    // Six standard deviations.
    let freedom = deviation.freedom as f64;
    let most = freedom + 6.0 * (2.0 * freedom).sqrt();
    assert!(deviation.chi_squared < most, "{} of {freedom}", deviation.chi_squared);
}

#[test]
fn a_real_packet_is_shown_by_the_kernels_own_trace() {
    let plane = KernelPlane::new();
    for family in Family::BOTH {
        let world =
            World::new(family)
                .service("web/api", 10, &PORTS)
                .slice("web/api", &TARGETS, |slice| slice.ready(&["zone-b"]));
        let to = vip(family, 10, 80);
        plane.lab().node().run(|| {
            let mut kernel = Kernel::open().unwrap();
            let read = kernel.read_back().unwrap();
            kernel.commit(&bring_to(&world.desired(), &read.actual), read.generation).unwrap();
        });
        let client = host("client").addr(family).to_string();
        let live = |node: &Namespace| {
            let to = format!("{to}/tcp");
            let output =
                run_in(node, &["trace", &client, &to, "--live", "--wait", "60", "-o", "json"]);
            assert!(output.status.success(), "{}", text(&output.stderr));
            serde_json::from_slice::<Value>(&output.stdout).unwrap()
        };
        let said = thread::scope(|scope| {
            let watching = scope.spawn(|| live(plane.lab().node()));
            // It does not matter how many go by before it looks.
            while !watching.is_finished() {
                plane.lab().probe("client", to, zw_lab::Protocol::Tcp, PATIENCE);
            }
            watching.join().unwrap()
        });
        let endpoint = SocketAddr::new(host("zone-b").addr(family), 8080).to_string();
        assert_eq!(said["fate"], "reaches", "{said:#}");
        assert_eq!(said["service"], "web/api:http", "{said:#}");
        assert_eq!(said["endpoints"][0]["address"], endpoint.as_str(), "{said:#}");
        // The same rules as the walker met.
        let rules = |said: &Value| -> Vec<String> {
            let of = |steps: &Value| -> Vec<String> {
                let steps = steps.as_array().cloned().unwrap_or_default();
                steps.iter().map(|s| format!("{} {}", s["chain"], s["rule"])).collect()
            };
            [of(&said["steps"]), of(&said["endpoints"][0]["steps"])].concat()
        };
        let walked = trace(plane.lab().node(), "client", to, Protocol::Tcp);
        assert_eq!(rules(&said), rules(&walked), "{said:#}\n{walked:#}");
        // Its own table went with it.
        let listed = tool_in(plane.lab().node(), "nft", &["list", "tables"], "");
        assert!(!text(&listed.stdout).contains("trace"), "{}", text(&listed.stdout));
    }
}

#[test]
fn rules_that_are_not_ours_are_said_to_be_unknown() {
    let plane = KernelPlane::new();
    let world =
        World::new(Family::V4)
            .service("web/api", 10, &PORTS)
            .slice("web/api", &TARGETS, |slice| slice.ready(&["zone-b", "zone-c"]));
    let node = plane.lab().node();
    node.run(|| {
        let mut kernel = Kernel::open().unwrap();
        let read = kernel.read_back().unwrap();
        kernel.commit(&bring_to(&world.desired(), &read.actual), read.generation).unwrap();
    });
    let meddled = tool_in(node, "nft", &["-f", "-"], "add rule ip zoneward cluster-2 drop");
    assert!(meddled.status.success(), "{}", text(&meddled.stderr));
    let said = trace(node, "client", vip(Family::V4, 10, 80), Protocol::Tcp);
    assert_eq!(said["fate"], "unknown", "{said:#}");
    assert!(
        said["because"].as_str().unwrap().starts_with("chain cluster-2 has rules of"),
        "{said:#}"
    );
}
