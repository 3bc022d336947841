//! What size costs on this kernel, with the agent as its users run it.

use std::time::Instant;

use zw_dataplane::Kernel;
use zw_lab::Namespace;
use zw_tests::binary::{Agent, field};
use zw_tests::cluster::Shape;
use zw_tests::vm::inside;

const SHAPE: Shape = Shape { services: 2_000, endpoints: 10 };

#[test]
fn two_thousand_services_are_adopted_as_they_are_and_one_endpoint_costs_a_few_elements() {
    inside(|| {
        let namespace = Namespace::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        SHAPE.write(folder.path());
        let path = folder.path().to_str().unwrap();
        let start = || {
            let started = Instant::now();
            let mut agent = Agent::start(&namespace, &["--state", path, "--node-name", "node-0"]);
            let line = agent.wait_for(&["synced", "services=2000"]);
            println!("started in {:?}: {line}", started.elapsed());
            (agent, line)
        };
        let generation = || namespace.run(|| Kernel::open().unwrap().generation().unwrap());

        let (agent, line) = start();
        assert!(field(&line, "elements") >= 20_000.0, "{line}");
        drop(agent);
        let before = generation();
        let (mut agent, _) = start();
        assert_eq!(generation(), before, "a restart writes nothing");
        for now in [9, 10, 11, 10] {
            SHAPE.write_service(folder.path(), 1_000, now);
            let line = agent.wait_for(&["synced"]);
            println!("one Service, now with {now} endpoints: {line}");
            assert_eq!(field(&line, "services"), 1.0);
            assert!((1.0..=6.0).contains(&field(&line, "elements")), "{line}");
        }
    });
}
