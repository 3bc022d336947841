//! Hundreds of endpoint changes of one Service within seconds, with new connections all the time. Every
//! pod answers throughout, so whatever generation of the rules a packet meets, somebody is there for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use zw_dataplane::Kernel;
use zw_lab::{Answer, Protocol};
use zw_model::{Family, Slice};
use zw_plan::testing::World;
use zw_plan::{Desired, bring_to, plan_service};
use zw_tests::plane::{KernelPlane, vip};
use zw_tests::rng::Rng;
use zw_tests::traffic::resent;

const PODS: [&str; 5] = ["local-1", "local-2", "same-zone", "zone-b", "zone-c"];
const CLIENT: &str = "client";
const PORT: u16 = 80;

/// In each family. A round begins with a table that has none of the chains that its changes need.
const ROUNDS: u64 = 10;
const CHANGES: usize = 100;
const CONNECTIONS: usize = 2_000;
/// How many connections are opened at once.
const AT_ONCE: usize = 100;
/// Ends connections whose storm does not end.
const LONGEST: Duration = Duration::from_secs(120);
/// An opening packet that is lost is sent again after 1, 3 and 7 seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The Service with these pods.
fn world(family: Family, pods: &[&str]) -> World {
    World::new(family).service("web/api", 10, &[("http", zw_model::Protocol::Tcp, PORT)]).slice(
        "web/api",
        &[("http", zw_model::Protocol::Tcp, 8080)],
        |slice| slice.ready(pods),
    )
}

/// The agent's way from a changed slice to the kernel: only this Service is planned, from the slots it
/// has, and only what differs is written.
struct Writer {
    desired: Desired,
    kernel: Kernel,
}

impl Writer {
    fn start(world: &World) -> Self {
        let mut kernel = Kernel::open().unwrap();
        let desired = world.desired();
        let read = kernel.read_back().unwrap();
        kernel.commit(&bring_to(&desired, &read.actual), read.generation).unwrap();
        Self { desired, kernel }
    }

    fn change(&mut self, world: &World) {
        let service = &world.services[0];
        let slices: Vec<&Slice> = world.slices.iter().collect();
        let slots = |frontend: &_| self.desired.slots(&service.key, frontend);
        let rules = plan_service(service, slices, &world.node, slots);
        let changes = self.desired.update([(service.key.clone(), Some(rules))]);
        self.kernel.commit(&changes, None).unwrap();
    }
}

#[test]
fn a_storm_of_endpoint_changes_loses_no_connection() {
    let plane = KernelPlane::new();
    let node = plane.lab().node();
    for family in Family::BOTH {
        let started = Instant::now();
        let before = resent(plane.lab(), CLIENT);
        let questions = vec![(vip(family, 10, PORT), Protocol::Tcp); AT_ONCE];
        let (mut changes, mut answers) = (0, Vec::new());
        for round in 0..ROUNDS {
            let mut writer = node.run(|| {
                Kernel::open().unwrap().remove().unwrap();
                Writer::start(&world(family, &PODS))
            });
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                let connections = scope.spawn(|| {
                    let mut answers = plane.lab().probe_all(CLIENT, &questions, PATIENCE);
                    while !done.load(Ordering::Relaxed) && started.elapsed() < LONGEST {
                        answers.extend(plane.lab().probe_all(CLIENT, &questions, PATIENCE));
                    }
                    answers
                });
                node.run(|| {
                    let mut rng = Rng::stream(1, round);
                    for _ in 0..CHANGES {
                        let mut pods = rng.some(&PODS, 50);
                        if pods.is_empty() {
                            pods.push(rng.pick(&PODS));
                        }
                        writer.change(&world(family, &pods));
                        // As fast as an API server tells, and slower than the kernel could.
                        thread::sleep(Duration::from_millis(1));
                    }
                });
                done.store(true, Ordering::Relaxed);
                answers.extend(connections.join().unwrap());
            });
            changes += CHANGES;
        }
        let failed: Vec<&Answer> =
            answers.iter().filter(|answer| !matches!(answer, Answer::Answered { .. })).collect();
        println!(
            "{family}: {changes} changes and {} connections in {:?}: {} failed, {} opening packets sent \
             again",
            answers.len(),
            started.elapsed(),
            failed.len(),
            resent(plane.lab(), CLIENT) - before,
        );
        assert_eq!(failed, Vec::<&Answer>::new());
        assert!(answers.len() >= CONNECTIONS, "{} connections are too few", answers.len());
    }
}
