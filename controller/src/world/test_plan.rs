//! The rows of the topology document's test plan, each a test of that name. The last two are elsewhere: the
//! rolling update in `rolling.rs` beside, traffic reliability in the cluster tier, `zone_controller.rs` for
//! Prefer and `zone_require.rs` for Require.

use super::*;

const THREE: [(&str, u32); 3] = [("a", 5), ("b", 5), ("c", 5)];

/// A Service with pods in zones a, b and c, and what it asks for.
fn world(nodes: &[(&'static str, u32)], pods: [usize; 3], asked: &str) -> World {
    let mut world = World::new(nodes);
    for (zone, count) in ["a", "b", "c"].into_iter().zip(pods) {
        world.start_pods(zone, count);
    }
    world.ask(Some(asked));
    world
}

fn check(nodes: &[(&'static str, u32)], pods: [usize; 3], asked: &str, want: &str) {
    let mut world = world(nodes, pods, asked);
    world.converge();
    assert_eq!(world.shown(), want, "{asked} {pods:?}");
    let labelled = if want.is_empty() { 0 } else { 3 };
    assert_eq!(world.service.zones.len(), labelled, "{asked} {pods:?}");
}

#[test]
fn single_approach_small_and_large_numbers_of_nodes() {
    check(&[("a", 1), ("b", 1), ("c", 1)], [4, 4, 4], "Prefer", "a:4a b:4b c:4c");
    check(&[("a", 1), ("b", 1), ("c", 1)], [4, 4, 4], "Require", "a:4a b:4b c:4c");
    check(&[("a", 2000), ("b", 2000), ("c", 1000)], [40, 40, 20], "Prefer", "a:40a b:40b c:20c");
    check(&[("a", 2000), ("b", 2000), ("c", 1000)], [40, 40, 20], "Require", "a:40a b:40b c:20c");
}

#[test]
fn single_approach_balanced_and_imbalanced_endpoints() {
    check(&THREE, [30, 30, 30], "Prefer", "a:30a b:30b c:30c");
    check(&THREE, [60, 20, 10], "Prefer", "a:30a b:10a20b c:20a10c");
    check(&THREE, [60, 20, 10], "Require", "a:60a b:20b c:10c");
    check(&THREE, [60, 20, 10], "Balanced", "");
}

#[test]
fn single_approach_zero_endpoints_in_some_zones() {
    check(&THREE, [12, 0, 0], "Prefer", "a:4a b:4a c:4a");
    check(&THREE, [12, 0, 0], "Require", "a:12a b: c:");
    check(&THREE, [0, 0, 0], "Require", "a: b: c:");
    check(&THREE, [0, 0, 0], "Prefer", "");
}

#[test]
fn single_approach_invalid_annotation() {
    for invalid in ["", "prefer", "Maybe"] {
        let mut world = world(&THREE, [10, 10, 10], invalid);
        assert_eq!(world.converge(), Writes::default(), "{invalid:?}");
        assert_eq!(world.shown(), "");
    }
}

#[test]
fn prefer_invalid_starting_threshold() {
    let mut world = world(&THREE, [4, 4, 3], "Prefer");
    world.service.set_annotation(names::STARTING, Some("some"));
    let outcome = world.plan();
    assert_eq!(outcome.ignored.len(), 1, "it is told");
    world.converge();
    assert_eq!(world.approach(), Approach::Balanced, "11 endpoints, the default starts at 12");
    world.start_pods("c", 1);
    world.converge();
    assert_eq!(world.approach(), Approach::Prefer);
}

#[test]
fn prefer_endpoints_below_starting_threshold_and_padding() {
    check(&THREE, [4, 4, 3], "Prefer", "");
}

#[test]
fn prefer_endpoints_above_starting_threshold_and_padding() {
    check(&THREE, [5, 4, 4], "Prefer", "a:5a b:4b c:4c");
}

#[test]
fn transition_above_the_threshold_but_below_it_with_padding() {
    let mut world = world(&THREE, [2, 2, 2], "Prefer");
    world.converge();
    world.start_pods("a", 4);
    let writes = world.converge();
    assert_eq!((world.approach(), writes), (Approach::Balanced, Writes::default()));
}

#[test]
fn transition_to_above_the_threshold_with_padding() {
    let mut world = world(&THREE, [3, 3, 3], "Prefer");
    world.converge();
    for zone in ["a", "b", "c"] {
        assert_eq!(world.approach(), Approach::Balanced);
        world.start_pods(zone, 1);
        world.converge();
    }
    assert_eq!(world.approach(), Approach::Prefer);
    assert_eq!(world.shown(), "a:4a b:4b c:4c");
}

#[test]
fn transition_to_below_the_threshold_but_above_it_without_padding() {
    let mut world = world(&THREE, [4, 4, 4], "Prefer");
    world.converge();
    for (zone, count) in [("a", 1), ("b", 2), ("c", 2)] {
        world.stop_pods(zone, count);
        let writes = world.converge();
        assert_eq!(world.approach(), Approach::Prefer);
        println!("{} endpoints: {writes:?}", world.pods.len());
    }
    assert_eq!(world.shown(), "a:3a b:2b c:2c", "7 endpoints");
}

#[test]
fn transition_to_below_the_threshold_without_padding() {
    let mut world = world(&THREE, [4, 4, 4], "Prefer");
    world.converge();
    world.stop_pods("a", 2);
    world.stop_pods("b", 2);
    world.stop_pods("c", 2);
    world.converge();
    assert_eq!((world.approach(), &*world.shown()), (Approach::Balanced, ""));
    assert!(world.service.zones.is_empty() && world.hidden().is_empty());
}

#[test]
fn transition_between_any_two_approaches() {
    let shown = |approach| match approach {
        "Require" => "a:9a b:6b c:3c",
        "Prefer" => "a:6a b:6b c:3a3c",
        _ => "",
    };
    for from in ["Balanced", "Require", "Prefer"] {
        for to in ["Balanced", "Require", "Prefer"] {
            let mut world = world(&THREE, [9, 6, 3], from);
            world.converge();
            assert_eq!(world.shown(), shown(from), "{from}");
            world.ask(Some(to));
            let writes = world.converge();
            assert_eq!(world.shown(), shown(to), "{from} to {to}");
            println!("{from} to {to}: {writes:?}");
        }
    }
}

#[test]
fn transition_from_balanced_and_back() {
    for approach in ["Require", "Prefer"] {
        let mut world = world(&THREE, [5, 5, 5], "Balanced");
        world.converge();
        world.ask(Some(approach));
        world.converge();
        assert_eq!(world.shown(), "a:5a b:5b c:5c");
        world.ask(None);
        world.converge();
        assert_eq!(world.shown(), "");
        assert_eq!(world.service, service(&[]), "nothing of ours is left");
    }
}
