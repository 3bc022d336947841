//! Connections while something happens to the slices, the node, the API server or the agent, see
//! [`crate::road`].

use std::thread;
use std::time::Duration;

use zw_tests::control_plane::{exclusive, shared};

use crate::road::Road;

#[test]
fn relabelled_slices_fail_no_connection() {
    let plane = shared();
    let road = Road::new(&plane, "road-relabel");
    road.publish(&plane, "api", None, &[1]);
    let _agent = road.synced_agent();
    road.expect(&[1]);
    road.travel(|| {
        for _ in 0..10 {
            // The same slices: one watch loses them and another finds them, and which says so first is up
            // to the API server. The other pod in them shows that the agent has taken it in.
            road.publish(&plane, "api", Some("zone-a"), &[2]);
            road.expect(&[2]);
            road.publish(&plane, "api", None, &[1]);
            road.expect(&[1]);
        }
    });
}

#[test]
fn slices_replaced_by_others_in_either_order_fail_no_connection() {
    let plane = shared();
    let road = Road::new(&plane, "road-replace");
    road.publish(&plane, "old", None, &[1]);
    let _agent = road.synced_agent();
    road.expect(&[1]);
    road.travel(|| {
        // First the new, then the old goes: there and back.
        road.publish(&plane, "new", Some("zone-a"), &[2]);
        road.expect(&[2]);
        road.withdraw(&plane, "old");
        road.publish(&plane, "old", None, &[1]);
        road.withdraw(&plane, "new");
        road.expect(&[1]);
        // First the old goes, then the new comes: under another name, and under its own.
        road.withdraw(&plane, "old");
        road.publish(&plane, "new", Some("zone-a"), &[2]);
        road.expect(&[2]);
        road.withdraw(&plane, "new");
        road.publish(&plane, "old", None, &[1]);
        road.expect(&[1]);
        road.withdraw(&plane, "old");
        road.publish(&plane, "old", Some("zone-a"), &[2]);
        road.expect(&[2]);
        road.withdraw(&plane, "old");
        road.publish(&plane, "old", None, &[1]);
        road.expect(&[1]);
    });
}

#[test]
fn a_service_zoned_and_unzoned_fails_no_connection() {
    let plane = shared();
    let road = Road::new(&plane, "road-zoned");
    road.publish(&plane, "all", None, &[1, 2]);
    let _agent = road.synced_agent();
    road.expect(&[1, 2]);
    road.travel(|| {
        for _ in 0..3 {
            road.publish(&plane, "for-a", Some("zone-a"), &[1]);
            road.publish(&plane, "for-b", Some("zone-b"), &[2]);
            road.expect(&[1]);
            // The default slices of a zoned Service need not be there at all.
            road.withdraw(&plane, "all");
            road.publish(&plane, "for-a", Some("zone-a"), &[2]);
            road.expect(&[2]);
            road.publish(&plane, "all", None, &[1, 2]);
            road.withdraw(&plane, "for-a");
            road.withdraw(&plane, "for-b");
            road.expect(&[1, 2]);
        }
    });
}

#[test]
fn a_node_that_changes_loses_and_gets_its_zone_fails_no_connection() {
    let plane = shared();
    let road = Road::new(&plane, "road-moves");
    road.publish(&plane, "for-a", Some("zone-a"), &[1]);
    road.publish(&plane, "for-b", Some("zone-b"), &[2]);
    let _agent = road.synced_agent();
    road.expect(&[1]);
    road.travel(|| {
        for _ in 0..3 {
            road.move_to(&plane, Some("zone-b"));
            road.expect(&[2]);
            road.move_to(&plane, None);
            road.expect(&[1, 2]);
            road.move_to(&plane, Some("zone-a"));
            road.expect(&[1]);
        }
    });
}

#[test]
fn an_api_server_down_for_20_seconds_fails_no_connection() {
    let mut plane = exclusive();
    let road = Road::new(&plane, "road-outage");
    road.publish(&plane, "api", None, &[1]);
    let agent = road.synced_agent();
    road.expect(&[1]);
    road.travel(|| {
        plane.stop_api_server();
        // Half of the time with the agent that knew the cluster, half with one that knows nothing.
        thread::sleep(Duration::from_secs(10));
        agent.terminate();
        let mut agent = road.agent();
        agent.wait_for(&["WARN", "cannot list or watch"]);
        thread::sleep(Duration::from_secs(10));
        road.expect(&[1]);
        plane.start_api_server();
        road.publish(&plane, "api", None, &[1, 2]);
        road.expect(&[1, 2]);
    });
}

#[test]
fn an_agent_that_restarts_fails_no_connection() {
    let plane = shared();
    let road = Road::new(&plane, "road-restart");
    road.publish(&plane, "api", None, &[1]);
    let mut agent = road.synced_agent();
    road.expect(&[1]);
    road.travel(|| {
        for pods in [&[1, 2][..], &[2], &[1]] {
            // As the kubelet ends it, and the hard way; the cluster goes on meanwhile.
            assert!(agent.terminate().success());
            road.publish(&plane, "api", None, pods);
            agent = road.synced_agent();
            road.expect(pods);
            drop(agent);
            road.publish(&plane, "api", None, &[1, 2]);
            agent = road.synced_agent();
            road.expect(&[1, 2]);
        }
    });
}

#[test]
fn an_agent_that_is_upgraded_fails_no_connection() {
    let plane = shared();
    let road = Road::new(&plane, "road-upgrade");
    road.publish(&plane, "api", None, &[1]);
    let mut agent = road.synced_agent();
    road.expect(&[1]);
    road.travel(|| {
        for _ in 0..3 {
            // The new one beside the old one, both following the same changes.
            let mut new = road.agent();
            for pods in [&[1, 2][..], &[2], &[1, 2], &[1]] {
                road.publish(&plane, "api", None, pods);
                road.expect(pods);
            }
            new.wait_for(&["synced"]);
            for pods in [&[1, 2][..], &[2], &[1, 2], &[1]] {
                road.publish(&plane, "api", None, pods);
                road.expect(pods);
            }
            let old = std::mem::replace(&mut agent, new);
            assert!(old.terminate().success());
            road.publish(&plane, "api", None, &[2]);
            road.expect(&[2]);
        }
    });
}
