//! A stranger empties the whole ruleset under a running agent: how long until all of it is back, beside
//! what the kernel alone takes for as many elements in the same run.

use std::time::{Duration, Instant};

use zw_lab::Namespace;
use zw_tests::binary::{Agent, eventually, field, tool_in};
use zw_tests::cluster::Shape;

use crate::scale::raw_insertion;
use crate::table::listing;

/// How long the stranger takes, and how long from his first moment until everything is back.
fn repair(shape: Shape) -> (Duration, Duration) {
    let folder = tempfile::tempdir().unwrap();
    shape.write(folder.path());
    let namespace = Namespace::new().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut agent = Agent::start(&namespace, &["--state", path, "--node-name", "node-0"]);
    let endpoints = (shape.services * shape.endpoints) as f64;
    wait_for_elements(&mut agent, endpoints);
    let before = listed(&namespace, shape);

    let started = Instant::now();
    assert!(tool_in(&namespace, "nft", &["flush", "ruleset"], "").status.success());
    let flushed = started.elapsed();
    wait_for_elements(&mut agent, endpoints);
    let back = started.elapsed();
    eventually("all of it is as before", || listed(&namespace, shape) == before);
    (flushed, back)
}

/// What is there, for tables that nft lists in reasonable time.
fn listed(namespace: &Namespace, shape: Shape) -> Vec<String> {
    if shape.services > 500 {
        return Vec::new();
    }
    let mut lines: Vec<String> = listing(namespace).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// A large table may come in several batches.
fn wait_for_elements(agent: &mut Agent, at_least: f64) {
    let mut written = 0.0;
    while written < at_least {
        written += field(&agent.wait_for(&["elements="]), "elements");
    }
}

#[test]
fn a_flushed_ruleset_is_back_in_little_more_than_the_kernels_own_time() {
    for shape in [Shape { services: 100, endpoints: 50 }, Shape { services: 5_000, endpoints: 50 }]
    {
        let elements = shape.services * shape.endpoints;
        // Interleaved, best of two each: other load on the machine only ever adds.
        let (mut raw, mut best) = (Duration::MAX, (Duration::MAX, Duration::MAX));
        for _ in 0..2 {
            raw = raw.min(raw_insertion(elements));
            best = [best, repair(shape)].into_iter().min_by_key(|(_, back)| *back).unwrap_or(best);
        }
        let (flushed, back) = best;
        println!(
            "{} Services of {} endpoints: raw insertion {} ms, nft took {} ms to flush, all was back {} ms \
             after it was started",
            shape.services,
            shape.endpoints,
            raw.as_millis(),
            flushed.as_millis(),
            back.as_millis(),
        );
        // What nft takes, most of it for its own start, is the measure of how slow this machine is now.
        assert!(back <= 4 * (raw + flushed), "raw {raw:?}, flushed {flushed:?}, back {back:?}");
    }
}
