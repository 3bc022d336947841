//! The agent is killed the hard way and started again, with connections through all of it.

use zw_model::Family;
use zw_plan::testing::host;
use zw_tests::binary::{Agent, field};
use zw_tests::cluster::dual_stack;
use zw_tests::plane::{KernelPlane, vip};
use zw_tests::traffic::Traffic;

use crate::table::{generation, state};

const ROUNDS: usize = 40;
/// In each family.
const HELD: usize = 25;

#[test]
fn an_agent_that_is_killed_and_started_again_fails_no_connection_and_writes_nothing() {
    let plane = KernelPlane::new();
    let pods = ["local-1", "zone-b", "zone-c"].map(|name| {
        let text = |family| host(name).addr(family).to_string();
        (text(Family::V4).parse().unwrap(), text(Family::V6).parse().unwrap())
    });
    let folder = state(&dual_stack(("web", "api"), 10, ("http", "TCP", 80, 8080), &pods));
    let path = folder.path().to_str().unwrap();
    let cidr = "10.244.0.0/16,fd00:10:244::/48";
    let args = ["--state", path, "--node-name", "node-1", "--cluster-cidr", cidr];
    let node = plane.lab().node();
    let start = || {
        let mut agent = Agent::start(node, &args);
        let line = agent.wait_for(&["synced"]);
        (agent, line)
    };
    let (mut agent, _) = start();
    let before = generation(node);
    let to = Family::BOTH.map(|family| vip(family, 10, 80));
    let traffic = Traffic { lab: plane.lab(), client: "client", to: &to, held: HELD };
    traffic.during("kill -9", || {
        for _ in 0..ROUNDS {
            // Dropped, it is killed.
            drop(agent);
            let line;
            (agent, line) = start();
            assert_eq!(field(&line, "elements"), 0.0, "{line}");
        }
    });
    assert_eq!(generation(node), before, "nothing was written");
    println!("{ROUNDS} times killed and started again, 0 writes");
}
