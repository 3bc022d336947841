use serde_json::json;

use super::*;
use crate::testing::{service, service_of};

fn decided(asked: &str, in_force: &str, endpoints: usize, zones: usize) -> Approach {
    let service = service(&[(names::SAME_ZONE, asked), (names::APPROACH, in_force)]);
    decide(&service, Size { endpoints, zones }, &Settings::default()).0
}

#[test]
fn prefer_starts_and_stops_with_a_padding() {
    use Approach::{Balanced, Prefer};
    for (in_force, endpoints, want) in [
        ("Balanced", 9, Balanced),
        ("Balanced", 11, Balanced),
        ("Balanced", 12, Prefer),
        ("Prefer", 11, Prefer),
        ("Prefer", 7, Prefer),
        ("Prefer", 6, Balanced),
        ("Prefer", 0, Balanced),
        // Its groups are there, so that nothing has to start.
        ("Require", 7, Prefer),
        ("Require", 6, Balanced),
        ("anything", 11, Balanced),
    ] {
        assert_eq!(decided("Prefer", in_force, endpoints, 3), want, "{in_force}, {endpoints}");
    }
}

#[test]
fn require_needs_no_threshold() {
    for (endpoints, zones, want) in [
        (1000, 3, Approach::Require),
        (1, 3, Approach::Require),
        (0, 1, Approach::Require),
        (5, 0, Approach::Balanced),
    ] {
        assert_eq!(decided("Require", "", endpoints, zones), want, "{endpoints}, {zones}");
    }
}

#[test]
fn anything_but_require_and_prefer_is_balanced() {
    for asked in ["", "Balanced", "prefer", "PREFER", "Prefer ", "Always"] {
        for in_force in ["Balanced", "Require", "Prefer"] {
            assert_eq!(decided(asked, in_force, 1000, 3), Approach::Balanced, "{asked:?}");
        }
    }
}

#[test]
fn one_zone_is_nothing_to_prefer() {
    assert_eq!(decided("Prefer", "", 1000, 1), Approach::Balanced);
}

#[test]
fn services_that_need_each_nodes_own_endpoints_are_never_divided() {
    let with = |spec: serde_json::Value, label: Option<&str>| {
        let labels = label.map(|label| json!({label: "x"})).unwrap_or(json!({}));
        let annotations = json!({names::SAME_ZONE: "Require"});
        let service = service_of(json!({"annotations": annotations, "labels": labels}), spec);
        decide(&service, Size { endpoints: 100, zones: 3 }, &Settings::default())
    };
    let not = |obstacle| (Approach::Balanced, Why::Obstacle(obstacle));
    for (spec, want) in [
        (json!({}), (Approach::Require, Why::Asked)),
        (json!({"internalTrafficPolicy": "Cluster"}), (Approach::Require, Why::Asked)),
        (json!({"internalTrafficPolicy": "Local"}), not(Obstacle::LocalPolicy)),
        (json!({"externalTrafficPolicy": "Local"}), not(Obstacle::LocalPolicy)),
        (json!({"clusterIP": "None"}), not(Obstacle::NoAddress)),
        (json!({"clusterIP": null, "type": "ExternalName"}), not(Obstacle::NoAddress)),
        (json!({"trafficDistribution": "PreferSameNode"}), not(Obstacle::SameNode)),
    ] {
        assert_eq!(with(spec.clone(), None), want, "{spec}");
    }
    let other = with(json!({}), Some(names::OTHER_PROXY));
    assert_eq!(other, not(Obstacle::OtherProxy));
}

#[test]
fn zone_preferences_of_the_stock_controller_do_not_keep_a_service_from_being_divided() {
    for (spec, mode) in [
        (json!({"trafficDistribution": "PreferClose"}), None),
        (json!({"trafficDistribution": "PreferSameZone"}), None),
        (json!({}), Some("Auto")),
    ] {
        let mut annotations = json!({names::SAME_ZONE: "Prefer"});
        if let Some(mode) = mode {
            annotations["service.kubernetes.io/topology-mode"] = json!(mode);
        }
        let service = service_of(json!({"annotations": annotations}), spec.clone());
        let size = Size { endpoints: 12, zones: 3 };
        assert_eq!(decide(&service, size, &Settings::default()), (Approach::Prefer, Why::Asked));
    }
    // And by themselves they are no wish for groups: hints stay what they are.
    let service = service_of(json!({}), json!({"trafficDistribution": "PreferSameZone"}));
    let size = Size { endpoints: 12, zones: 3 };
    assert_eq!(decide(&service, size, &Settings::default()), (Approach::Balanced, Why::Asked));
}

#[test]
fn a_reason_does_not_change_with_every_endpoint() {
    let why = |in_force, endpoints| {
        let service = service(&[(names::SAME_ZONE, "Prefer"), (names::APPROACH, in_force)]);
        decide(&service, Size { endpoints, zones: 3 }, &Settings::default()).1.to_string()
    };
    assert_eq!(why("Balanced", 8), "Prefer starts at 12 ready endpoints and stops at 6");
    assert_eq!(why("Balanced", 8), why("Balanced", 3));
    assert_eq!(why("Prefer", 6), why("Balanced", 6));
}
