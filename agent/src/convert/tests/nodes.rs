//! Nodes and ServiceCIDRs.

use super::*;
use crate::convert::Node;

fn want_node() -> Node {
    Node { eligible: true, ..Node::default() }
}

#[track_caller]
fn check_node(object: Value, want: Node, problems: &[&str]) {
    let (got, left_out) = convert(object).unwrap();
    assert_eq!(got, Object::new(id(Kind::Node, "", "node-1"), Body::Node(Box::new(want))));
    assert_eq!(texts(left_out), problems);
}

#[test]
fn a_node_is_where_its_labels_say() {
    const ZONE: &str = "topology.kubernetes.io/zone";
    const REGION: &str = "topology.kubernetes.io/region";
    for (labels, zone, region) in [
        (json!(null), None, None),
        (json!({ZONE: "", REGION: ""}), None, None),
        (json!({ZONE: "zone-a"}), Some("zone-a"), None),
        (json!({REGION: "region-1", ZONE: "zone-a"}), Some("zone-a"), Some("region-1")),
    ] {
        let (zone, region) = (zone.map(Into::into), region.map(Into::into));
        let want = Node { zone, region, ..want_node() };
        check_node(set(node(), "/metadata/labels", labels), want, &[]);
    }
}

#[test]
fn a_nodes_addresses_are_its_first_and_the_first_of_the_other_family_internal_ones_first() {
    let internal = |ip: &str| json!({"type": "InternalIP", "address": ip});
    let external = |ip: &str| json!({"type": "ExternalIP", "address": ip});
    let name = json!({"type": "Hostname", "address": "node-1.example.org"});
    for (addresses, want) in [
        (json!(null), [].as_slice()),
        (json!([]), &[]),
        (json!([name]), &[]),
        (json!([name, internal("10.0.0.1")]), &["10.0.0.1"]),
        (json!([internal("10.0.0.1"), internal("10.0.0.2")]), &["10.0.0.1"]),
        (json!([external("203.0.113.1"), internal("10.0.0.1")]), &["10.0.0.1"]),
        (json!([external("203.0.113.1")]), &["203.0.113.1"]),
        (json!([internal("fd00::1"), internal("10.0.0.1")]), &["fd00::1", "10.0.0.1"]),
        (
            json!([external("2001:db8::1"), internal("10.0.0.1"), external("203.0.113.1")]),
            &["10.0.0.1", "2001:db8::1"],
        ),
        (json!([internal("010.0.0.1")]), &["10.0.0.1"]),
    ] {
        let addresses = json!({"addresses": addresses, "conditions": [{"type": "Ready"}]});
        let want = want.iter().map(|ip| ip.parse().unwrap()).collect();
        let object = set(node(), "/status", addresses);
        check_node(object, Node { addresses: want, ..want_node() }, &[]);
    }
    let status =
        json!({"addresses": [{"type": "InternalIP", "address": "oops"}, internal("10.0.0.1")]});
    let want = Node { addresses: vec!["10.0.0.1".parse().unwrap()], ..want_node() };
    let problem = "status.addresses[0].address: \"oops\" is not an IP address";
    check_node(set(node(), "/status", status), want, &[problem]);
}

#[test]
fn a_nodes_pods_live_in_the_list_or_else_in_the_one_range() {
    for (spec, want) in [
        (json!(null), [].as_slice()),
        (json!({"podCIDR": ""}), &[]),
        (json!({"podCIDR": "10.244.1.0/24"}), &["10.244.1.0/24"]),
        (json!({"podCIDR": "10.244.1.0/24", "podCIDRs": []}), &["10.244.1.0/24"]),
        (
            json!({"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:1::/64"]}),
            &["10.244.1.0/24", "fd00:1::/64"],
        ),
        (json!({"podCIDRs": ["10.244.1.7/24", "10.244.1.0/24"]}), &["10.244.1.0/24"]),
    ] {
        let want = want.iter().map(|range| range.parse().unwrap()).collect();
        let object = set(node(), "/spec", spec);
        check_node(object, Node { pod_ranges: want, ..want_node() }, &[]);
    }
    let object = set(node(), "/spec", json!({"podCIDRs": ["10.244.1.0", "fd00:1::/64"]}));
    let want = Node { pod_ranges: vec!["fd00:1::/64".parse().unwrap()], ..want_node() };
    let problem = "spec.podCIDRs[0]: \"10.244.1.0\" is not a range of addresses";
    check_node(object, want, &[problem]);
}

#[test]
fn a_node_that_is_going_away_is_not_for_load_balancers() {
    let leaving = Node { eligible: false, ..Node::default() };
    let object = set(node(), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    check_node(object, leaving.clone(), &[]);
    let tainted = |key: &str| {
        set(
            node(),
            "/spec",
            json!({"taints": [{"key": "other"}, {"key": key, "effect": "NoSchedule"}]}),
        )
    };
    check_node(tainted("ToBeDeletedByClusterAutoscaler"), leaving, &[]);
    check_node(tainted("node.kubernetes.io/unschedulable"), want_node(), &[]);
}

#[test]
fn a_service_cidr_says_where_services_addresses_come_from() {
    let object = |cidrs: Value| {
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "ServiceCIDR",
            "metadata": {"name": "kubernetes", "namespace": "nonsense"},
            "spec": {"cidrs": cidrs},
        })
    };
    let check = |object: Value, want: &[&str], problems: &[&str]| {
        let (got, left_out) = convert(object).unwrap();
        let want = want.iter().map(|range| range.parse().unwrap()).collect();
        let body = Body::ServiceRanges(want);
        assert_eq!(got, Object::new(id(Kind::ServiceCidr, "", "kubernetes"), body));
        assert_eq!(texts(left_out), problems);
    };
    check(object(json!(["10.96.0.0/16", "fd00::/108"])), &["10.96.0.0/16", "fd00::/108"], &[]);
    check(object(json!(null)), &[], &[]);
    check(remove(object(json!([])), "/spec"), &[], &[]);
    let problem = "spec.cidrs[0]: \"10.96\" is not a range of addresses";
    check(object(json!(["10.96", "10.97.0.0/16"])), &["10.97.0.0/16"], &[problem]);
}
