//! The zone-slice controller under Require, with connections that never pause: each zone's clients are
//! answered by its own endpoints and no others, and those of a zone without any are refused.

use std::collections::BTreeSet;

use serde_json::Value;
use zw_lab::Namespace;
use zw_tests::binary::eventually;
use zw_tests::control_plane::ControlPlane;

use crate::zone_place::{
    Place, annotate, approach, controller, groups, move_node, node, prepare, scale,
    without_a_failed_connection, zone_label,
};

/// Enough for every endpoint of nine to have its turn; that a third of them is missed once in 10^10 runs.
const MANY: usize = 60;

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn require_keeps_connections_in_their_zone_and_refuses_those_of_a_zone_without_endpoints() {
    // Alone: Nodes of other tests would count too.
    let mut plane = ControlPlane::start(&Namespace::new().unwrap());
    let (vip, kubeconfig) = prepare(&mut plane);
    let plane = &plane;
    let (a, b) = (Place::new(plane, "zc-a", "zone-a"), Place::new(plane, "zc-b", "zone-b"));
    // No pod runs there.
    let bare = Place::new(plane, "zc-bare", "zone-bare");
    node(plane, "zc-c", "zone-c");
    scale(plane, 9);
    let everybody = names(&["pods-a", "pods-b", "pods-c"]);
    for place in [&a, &b, &bare] {
        place.expect("all nine", |pods| pods.len() == 9);
        assert_eq!(place.answers(vip, MANY), everybody, "{}", place.name);
    }
    let mut first = controller(plane, &kubeconfig, 0);
    first.wait_for(&["leadership changed", "leads=true"]);
    without_a_failed_connection([&a, &b], vip, || {
        annotate(plane, "Require".into());
        eventually("Require is in force", || approach(plane) == "Require");
        a.expect("zone a's own", |pods| pods == [0, 3, 6]);
        b.expect("zone b's own", |pods| pods == [1, 4, 7]);
        bare.expect("none", <[usize]>::is_empty);
        assert_eq!(a.answers(vip, MANY), names(&["pods-a"]));
        assert_eq!(b.answers(vip, MANY), names(&["pods-b"]));
        assert_eq!(bare.answers(vip, 5), names(&["refused"]));
        let group = groups(plane).into_iter().find(|group| zone_label(group) == "zone-bare");
        let group = group.expect("a zone with a Node and no endpoint has a slice too");
        assert!(group["endpoints"].as_array().is_none_or(Vec::is_empty), "{group}");

        let told = a.explain();
        for line in [
            "zones  Require is in force: as annotated\n",
            "  zone-a  IPv4  3 endpoints, all of this zone\n",
            "  labels of the Service keep the default slices off the nodes of zone-a, zone-b, \
             zone-bare, zone-c\n",
            "  other zones' slices are not received by this node\n",
        ] {
            assert!(told.contains(line), "{line}is not in\n{told}");
        }
        assert!(!told.contains("  zone-b  "), "{told}");
        let told = bare.explain();
        let line = "  zone-bare  IPv4  no endpoint: its nodes refuse connections\n";
        assert!(told.contains(line), "{told}");

        // The Node of zone c moves, and its pods with it.
        move_node(plane, "zc-c", "zone-bare");
        bare.expect("those of the Node that came", |pods| pods == [2, 5, 8]);
        assert_eq!(bare.answers(vip, MANY), names(&["pods-c"]));
        eventually("zone c has no group any more", || {
            groups(plane).iter().all(|group| zone_label(group) != "zone-c")
        });
        assert_eq!(a.answers(vip, MANY), names(&["pods-a"]));

        annotate(plane, Value::Null);
        eventually("nothing is left", || approach(plane) == "none" && groups(plane).is_empty());
        for place in [&a, &b, &bare] {
            place.expect("all nine", |pods| pods.len() == 9);
            assert_eq!(place.answers(vip, MANY), everybody, "{}", place.name);
        }
        assert!(!a.explain().contains("\nzones  "), "{}", a.explain());
    });
    assert!(first.terminate().success());
}
