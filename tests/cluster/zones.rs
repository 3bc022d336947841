//! Slices labelled for zones: who sees what, and no gap when labels or nodes move.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;
use zw_tests::control_plane::{exclusive, shared};

use crate::node::{TestNode, endpoints, node, service, slice, slice_path};

#[test]
fn two_nodes_in_two_zones_see_different_endpoints_of_one_service() {
    let plane = shared();
    plane.apply(&node("two-a", "zone-a"));
    plane.apply(&node("two-b", "zone-b"));
    plane.apply(&service("two", 20));
    plane.apply(&slice("two", "all", "", &["10.244.1.1", "10.244.2.1", "10.244.3.1"]));
    plane.apply(&slice("two", "a", "for-zone: zone-a", &["10.244.1.1"]));
    plane.apply(&slice("two", "b", "for-zone: zone-b", &["10.244.2.1"]));
    let (a, b) = (TestNode::start(&plane, "two-a"), TestNode::start(&plane, "two-b"));
    a.expect("two/api", Some(&["10.244.1.1:8080"]));
    b.expect("two/api", Some(&["10.244.2.1:8080"]));

    plane.apply(&slice("two", "region", "for-region: region-1", &["10.244.3.1"]));
    plane.patch(&slice_path("two", "a"), &json!({"endpoints": []}));
    a.expect("two/api", Some(&["10.244.3.1:8080"]));
    b.expect("two/api", Some(&["10.244.2.1:8080"]));
}

#[test]
fn a_node_without_a_zone_takes_everything() {
    let plane = shared();
    plane.apply(&service("unknown", 21));
    plane.apply(&slice("unknown", "a", "for-zone: zone-a", &["10.244.1.1"]));
    plane.apply(&slice("unknown", "b", "for-zone: zone-b", &["10.244.2.1"]));
    // There is not even a Node object.
    let test_node = TestNode::start(&plane, "unknown");
    test_node.expect("unknown/api", Some(&["10.244.1.1:8080", "10.244.2.1:8080"]));
    plane.apply(&node("unknown", "zone-b"));
    test_node.expect("unknown/api", Some(&["10.244.2.1:8080"]));
    plane.delete("/api/v1/nodes/unknown");
    test_node.expect("unknown/api", Some(&["10.244.1.1:8080", "10.244.2.1:8080"]));
}

#[test]
fn a_node_that_went_unseen_takes_everything_too() {
    let mut plane = exclusive();
    plane.apply(&node("unseen", "zone-b"));
    plane.apply(&service("unseen", 23));
    plane.apply(&slice("unseen", "a", "for-zone: zone-a", &["10.244.1.1"]));
    plane.apply(&slice("unseen", "b", "for-zone: zone-b", &["10.244.2.1"]));
    let test_node = TestNode::start(&plane, "unseen");
    test_node.expect("unseen/api", Some(&["10.244.2.1:8080"]));
    test_node.relay.cut();
    plane.delete("/api/v1/nodes/unseen");
    plane.forget_history();
    test_node.relay.mend();
    test_node.expect("unseen/api", Some(&["10.244.1.1:8080", "10.244.2.1:8080"]));
}

/// Looks at the kernel without a pause while `change` runs; the Service must always have an endpoint.
fn never_without(test_node: &TestNode, service: &str, change: impl FnOnce()) -> usize {
    let done = AtomicBool::new(false);
    let namespace = &test_node.namespace;
    thread::scope(|scope| {
        let done = &done;
        let watcher = scope.spawn(move || {
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) {
                let endpoints = endpoints(namespace, service);
                assert!(
                    endpoints.is_some_and(|e| !e.is_empty()),
                    "{service} lost all its endpoints"
                );
                looks += 1;
            }
            looks
        });
        change();
        done.store(true, Ordering::Relaxed);
        watcher.join().expect("never without an endpoint")
    })
}

#[test]
fn relabelled_slices_and_moving_nodes_leave_no_gap() {
    let plane = shared();
    plane.apply(&node("moves", "zone-a"));
    plane.apply(&service("moves", 22));
    plane.apply(&slice("moves", "one", "for-zone: zone-a", &["10.244.1.1"]));
    plane.apply(&slice("moves", "two", "for-zone: zone-b", &["10.244.2.1"]));
    let test_node = TestNode::start(&plane, "moves");
    test_node.expect("moves/api", Some(&["10.244.1.1:8080"]));

    let zone = |value: serde_json::Value| json!({"metadata": {"labels": {"endpointslice.kubernetes.io/for-zone": value}}});
    let (one, two) = (slice_path("moves", "one"), slice_path("moves", "two"));
    let looks = never_without(&test_node, "moves/api", || {
        for _ in 0..5 {
            // Zoned, then for everyone, then zoned again: one watch loses it, another finds it.
            plane.patch(&one, &zone(serde_json::Value::Null));
            test_node.expect("moves/api", Some(&["10.244.1.1:8080"]));
            plane.patch(&one, &zone("zone-a".into()));
            test_node.expect("moves/api", Some(&["10.244.1.1:8080"]));
        }
        // The other zone's slice is given to this zone, and this one's is taken away.
        plane.patch(&two, &zone("zone-a".into()));
        test_node.expect("moves/api", Some(&["10.244.1.1:8080", "10.244.2.1:8080"]));
        plane.patch(&one, &zone("zone-b".into()));
        test_node.expect("moves/api", Some(&["10.244.2.1:8080"]));
        // The node moves, forgets where it is, and comes home.
        let place = |value: serde_json::Value| json!({"metadata": {"labels": {"topology.kubernetes.io/zone": value}}});
        let path = "/api/v1/nodes/moves";
        plane.patch(path, &place("zone-b".into()));
        test_node.expect("moves/api", Some(&["10.244.1.1:8080"]));
        plane.patch(path, &place(serde_json::Value::Null));
        test_node.expect("moves/api", Some(&["10.244.1.1:8080", "10.244.2.1:8080"]));
        plane.patch(path, &place("zone-a".into()));
        test_node.expect("moves/api", Some(&["10.244.2.1:8080"]));
    });
    println!("{looks} looks at the kernel, never without an endpoint");
    assert!(looks > 20, "too few looks to mean anything: {looks}");
}
