use serde_json::{Value, json};

use super::*;

fn slice(labels: Value, kind: &str) -> Option<(ServiceKey, Slice)> {
    let object = json!({
        "metadata": {"name": "x", "namespace": "web", "labels": labels, "resourceVersion": "5", "uid": "u",
            "annotations": {names::TRIGGER_TIME: "2026-01-01T00:00:00Z"}},
        "addressType": kind,
        "ports": [{"name": "b", "port": 2}, {"name": "a", "port": 1}],
        "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": []}],
    });
    Slice::of(serde_json::from_value(object).unwrap())
}

#[test]
fn a_slices_role_follows_from_its_labels() {
    let of = |extra: &[(&str, &str)]| {
        let mut labels = json!({names::SERVICE_NAME: "api"});
        for (name, value) in extra {
            labels[name] = json!(value);
        }
        slice(labels, "IPv4").unwrap().1.role
    };
    let stock = (names::MANAGED_BY, "endpointslice-controller.k8s.io");
    let ours = (names::MANAGED_BY, names::MANAGER);
    let zone = (names::FOR_ZONE, "a");
    let zoned = ("zones.zoneward/a", "true");
    let shown = || Default::default();
    assert_eq!(of(&[]), Role::Default { hidden: shown() });
    assert_eq!(of(&[stock]), Role::Default { hidden: shown() });
    assert_eq!(of(&[stock, zoned]), Role::Default { hidden: ["a".into()].into() });
    assert_eq!(of(&[ours, zone]), Role::Group(Some("a".into())));
    assert_eq!(of(&[ours]), Role::Group(None));
    assert_eq!(of(&[zone]), Role::Foreign);
    assert_eq!(of(&[stock, (names::FOR_REGION, "r")]), Role::Foreign);
    let mirror = (names::MANAGED_BY, names::MIRROR_MANAGER);
    assert_eq!(of(&[mirror]), Role::Mirror { hidden: shown() });
}

#[test]
fn a_slice_is_what_it_says() {
    let (key, read) = slice(json!({names::SERVICE_NAME: "api"}), "IPv6").unwrap();
    assert_eq!(key.to_string(), "web/api");
    assert_eq!((&*read.name, &*read.uid, &*read.version), ("x", "u", "5"));
    assert_eq!(read.family, Family::V6);
    assert_eq!(read.trigger.as_deref(), Some("2026-01-01T00:00:00Z"));
    let names: Vec<_> = read.ports.0.iter().map(|port| port.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["a", "b"], "order does not matter");
    assert_eq!(read.endpoints.len(), 1, "one without an address is none");
    assert!(is_ready(&read.endpoints[0]), "unknown is ready");
}

#[test]
fn what_belongs_to_no_service_or_has_names_for_addresses_is_left_out() {
    assert!(slice(json!({}), "IPv4").is_none());
    assert!(slice(json!({names::SERVICE_NAME: "api"}), "FQDN").is_none());
}

#[test]
fn nodes_that_are_cordoned_or_not_ready_do_not_count() {
    let node = |spec: Value, ready: &str| {
        let object = json!({
            "metadata": {"name": "n", "labels": {names::NODE_ZONE: "a"}, "resourceVersion": "3"},
            "spec": spec,
            "status": {"conditions": [
                {"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": ready}
            ]},
        });
        Node::of(serde_json::from_value(object).unwrap()).unwrap().0
    };
    assert!(node(json!({}), "True").counts);
    assert!(!node(json!({}), "False").counts);
    assert!(!node(json!({}), "Unknown").counts);
    assert!(!node(json!({"unschedulable": true}), "True").counts);
    assert_eq!(node(json!({}), "True").zone.as_deref(), Some("a"));
}
