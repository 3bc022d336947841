//! The zone-slice controller beside a real API server and controller manager, with agents in different
//! zones and connections that never pause: turned on, scaled through both thresholds, nodes moved, its
//! leader killed, turned off. No connection may fail.

use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_tests::binary::eventually;
use zw_tests::control_plane::ControlPlane;

use crate::zone_place::{
    MOST_PODS, NAMESPACE, Place, annotate, approach, controller, groups, move_node, node, pod,
    pod_address, prepare, scale, without_a_failed_connection, zone_label,
};

/// Makes some pods unready and ready again; returns the bytes each place received for that.
fn churn(plane: &ControlPlane, places: [&Place; 2]) -> [u64; 2] {
    const CHANGED: usize = 9;
    let before = places.map(quiet);
    for ready in [false, true] {
        for number in 0..CHANGED {
            pod(plane, number, ready);
            // One change after the other: each is in every slice before the next one is made.
            eventually("the change is in every slice", || is_in_every_slice(plane, number, ready));
        }
    }
    let after = places.map(quiet);
    [after[0] - before[0], after[1] - before[1]]
}

fn is_in_every_slice(plane: &ControlPlane, number: usize, ready: bool) -> bool {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
    let slices = plane.get(&path)["items"].as_array().cloned().unwrap_or_default();
    let address = json!([pod_address(number)]);
    let members = slices.iter().filter_map(|slice| slice["endpoints"].as_array()).flatten();
    members
        .filter(|endpoint| endpoint["addresses"] == address)
        .all(|endpoint| endpoint["conditions"]["ready"] == ready)
}

/// The bytes a place has received once no more come.
fn quiet(place: &Place) -> u64 {
    let mut received = place.received();
    eventually("no more bytes come", || {
        thread::sleep(Duration::from_millis(500));
        let before = std::mem::replace(&mut received, place.received());
        before == received
    });
    received
}

fn zone_of(pods: &[usize], zone: usize) -> bool {
    !pods.is_empty() && pods.iter().all(|pod| pod % 3 == zone)
}

#[test]
fn zones_come_change_and_go_without_a_failed_connection() {
    // Alone: Nodes of other tests would count too.
    let mut plane = ControlPlane::start(&Namespace::new().unwrap());
    let (vip, kubeconfig) = prepare(&mut plane);
    let plane = &plane;
    let (a, b) = (Place::new(plane, "zc-a", "zone-a"), Place::new(plane, "zc-b", "zone-b"));
    node(plane, "zc-c", "zone-c");
    scale(plane, 9);
    for place in [&a, &b] {
        place.expect("all nine", |pods| pods.len() == 9);
    }
    without_a_failed_connection([&a, &b], vip, || story(plane, &kubeconfig, &a, &b));
}

fn story(plane: &ControlPlane, kubeconfig: &Path, a: &Place, b: &Place) {
    let mut first = controller(plane, kubeconfig, 0);
    first.wait_for(&["leadership changed", "leads=true"]);
    let mut second = controller(plane, kubeconfig, 1);
    second.wait_for(&["serving health"]);

    // Asked for, but with too few pods.
    annotate(plane, "Prefer".into());
    eventually("told that it is balanced", || approach(plane) == "Balanced");
    assert_eq!(groups(plane).len(), 0);

    // Through the upper threshold.
    scale(plane, 11);
    a.expect("eleven", |pods| pods.len() == 11);
    assert_eq!((approach(plane).as_str(), groups(plane).len()), ("Balanced", 0));
    scale(plane, 12);
    a.expect("all twelve, before they are divided or a's own", |pods| {
        pods.len() == 12 || pods.len() == 4
    });
    eventually("Prefer is in force", || approach(plane) == "Prefer");
    a.expect("zone a's own", |pods| zone_of(pods, 0) && pods.len() == 4);
    b.expect("zone b's own", |pods| zone_of(pods, 1) && pods.len() == 4);

    // Nodes move: between zones that have groups, into one that has none yet, and home again.
    node(plane, "zc-spare", "zone-b");
    move_node(plane, "zc-b", "zone-c");
    b.expect("other endpoints", |pods| !pods.is_empty() && !zone_of(pods, 0));
    move_node(plane, "zc-spare", "zone-d");
    move_node(plane, "zc-b", "zone-d");
    eventually("zone d has a group", || {
        groups(plane).iter().any(|group| zone_label(group) == "zone-d")
    });
    b.expect("zone d's group", |pods| !pods.is_empty() && pods.len() < 12);
    move_node(plane, "zc-b", "zone-b");
    plane.delete("/api/v1/nodes/zc-spare");
    eventually("zone d has no group", || {
        groups(plane).iter().all(|group| zone_label(group) != "zone-d")
    });

    // The leader dies in the middle of a change.
    scale(plane, 30);
    first.kill();
    scale(plane, MOST_PODS);
    second.wait_for(&["leadership changed", "leads=true"]);
    let members = || -> usize {
        let members = |group: &Value| group["endpoints"].as_array().map_or(0, Vec::len);
        groups(plane).iter().map(members).sum()
    };
    eventually("every pod is in a group", || members() == MOST_PODS);
    let divided = churn(plane, [a, b]);

    // Through the lower threshold, and back to what was.
    scale(plane, 6);
    eventually("balanced again", || approach(plane) == "Balanced" && groups(plane).is_empty());
    for place in [a, b] {
        place.expect("all six", |pods| pods.len() == 6);
    }
    scale(plane, MOST_PODS);
    eventually("Prefer is in force again", || {
        approach(plane) == "Prefer" && members() == MOST_PODS
    });
    annotate(plane, Value::Null);
    eventually("nothing is left", || approach(plane) == "none" && groups(plane).is_empty());
    for place in [a, b] {
        place.expect("all pods", |pods| pods.len() == MOST_PODS);
    }
    let undivided = churn(plane, [a, b]);
    let service = plane.get(&format!("/api/v1/namespaces/{NAMESPACE}/services/api"));
    assert_eq!(service["metadata"]["labels"], Value::Null, "nothing of ours is left");
    for (place, (before, after)) in [a, b].iter().zip(undivided.iter().zip(divided)) {
        println!(
            "{}: {before} B of slices for 18 changes without the controller, {after} B with it, {:.2}",
            place.name,
            after as f64 / *before as f64
        );
        assert!(after * 2 < *before, "{}: {after} of {before}", place.name);
    }
    let events = plane.get(&format!("/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"));
    let reasons: Vec<&str> =
        events["items"].as_array().unwrap().iter().filter_map(|e| e["reason"].as_str()).collect();
    for reason in ["ApproachStarted", "ApproachStopped"] {
        assert!(reasons.contains(&reason), "{reasons:?}");
    }
    assert!(second.terminate().success());
}
