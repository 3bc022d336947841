//! EndpointSlices.

use std::time::{Duration, UNIX_EPOCH};

use super::*;

#[test]
fn an_endpoint_is_read_with_all_it_says() {
    let raw = json!({
        "addresses": ["10.244.0.1", "10.244.0.2"],
        "conditions": {"ready": false, "serving": true, "terminating": true},
        "nodeName": "node-1",
        "zone": "zone-a",
        "hints": {"forZones": [{"name": "zone-a"}, {"name": "zone-b"}], "forNodes": [{"name": "node-1"}]},
        "targetRef": {"kind": "Pod", "name": "api-0"},
    });
    let want = SliceEndpoint {
        addr: "10.244.0.1".parse().unwrap(),
        conditions: Conditions { ready: false, serving: true, terminating: true },
        topology: Arc::new(Topology {
            node: Some("node-1".into()),
            zone: Some("zone-a".into()),
            hints: Some(Hints {
                zones: vec!["zone-a".into(), "zone-b".into()],
                nodes: vec!["node-1".into()],
            }),
        }),
    };
    let object = set(slice(), "/endpoints", json!([raw]));
    check_slice(object, Slice { endpoints: vec![want], ..want_slice() }, &[]);
}

#[test]
fn absent_conditions_have_kubernetes_defaults() {
    let conditions = |ready, serving, terminating| Conditions { ready, serving, terminating };
    for (raw, want) in [
        (json!(null), conditions(true, true, false)),
        (json!({}), conditions(true, true, false)),
        (
            json!({"ready": null, "serving": null, "terminating": null}),
            conditions(true, true, false),
        ),
        (json!({"ready": false}), conditions(false, true, false)),
        (json!({"serving": false}), conditions(true, false, false)),
        (json!({"terminating": true}), conditions(true, true, true)),
    ] {
        let object = set(slice(), "/endpoints/0/conditions", raw);
        let endpoints = vec![SliceEndpoint { conditions: want, ..endpoint("10.244.0.1") }];
        check_slice(object, Slice { endpoints, ..want_slice() }, &[]);
    }
}

#[test]
fn null_hints_are_none_and_empty_hints_name_nobody() {
    for (raw, want) in [
        (json!(null), None),
        (json!({}), Some(Hints::default())),
        (json!({"forZones": null, "forNodes": []}), Some(Hints::default())),
    ] {
        let raw =
            json!([{"addresses": ["10.244.0.1"], "hints": raw, "nodeName": null, "zone": null}]);
        let topology = Arc::new(Topology { hints: want, ..Topology::default() });
        let endpoints = vec![SliceEndpoint { topology, ..endpoint("10.244.0.1") }];
        let object = set(slice(), "/endpoints", raw);
        check_slice(object, Slice { endpoints, ..want_slice() }, &[]);
    }
}

#[test]
fn the_labels_for_zone_and_region_say_whom_a_slice_is_for() {
    const ZONE: &str = "endpointslice.kubernetes.io/for-zone";
    const REGION: &str = "endpointslice.kubernetes.io/for-region";
    for (labels, want) in [
        (json!({ZONE: "zone-a"}), Scope::Zone("zone-a".into())),
        (json!({REGION: "region-1"}), Scope::Region("region-1".into())),
        (json!({ZONE: "zone-a", REGION: "region-1"}), Scope::Zone("zone-a".into())),
        (json!({ZONE: "", REGION: "region-1"}), Scope::Region("region-1".into())),
        (json!({ZONE: "", REGION: ""}), Scope::Everyone),
        (json!({"topology.kubernetes.io/zone": "zone-a"}), Scope::Everyone),
    ] {
        let mut object = slice();
        for (key, value) in labels.as_object().unwrap() {
            object["metadata"]["labels"][key] = value.clone();
        }
        check_slice(object, Slice { scope: want, ..want_slice() }, &[]);
    }
}

#[test]
fn a_slice_without_a_service_name_belongs_to_nobody() {
    let problem =
        "metadata.labels[kubernetes.io/service-name]: missing: the slice belongs to no Service";
    for labels in [json!(null), json!({}), json!({"kubernetes.io/service-name": ""})] {
        let object = set(slice(), "/metadata/labels", labels);
        check_irrelevant(object, id(Kind::EndpointSlice, "web", "api-1"), &[problem]);
    }
}

#[test]
fn a_headless_services_slice_is_none_of_our_business() {
    let mut object = slice();
    object["metadata"]["labels"]["service.kubernetes.io/headless"] = json!("");
    check_irrelevant(object, id(Kind::EndpointSlice, "web", "api-1"), &[]);
}

#[test]
fn a_slice_of_names_is_reported_and_left_out() {
    let object = set(slice(), "/addressType", json!("FQDN"));
    let problem = "addressType: FQDN: names cannot be programmed";
    check_irrelevant(object, id(Kind::EndpointSlice, "web", "api-1"), &[problem]);
}

#[test]
fn a_slice_of_an_unknown_address_type_cannot_be_read() {
    let error = |text: &str| format!("addressType: {text:?} is neither IPv4 nor IPv6");
    check_error(set(slice(), "/addressType", json!("ipv4")), &error("ipv4"));
    check_error(set(slice(), "/addressType", json!(null)), &error(""));
    check_error(remove(slice(), "/addressType"), &error(""));
}

#[test]
fn an_endpoint_that_cannot_be_one_is_left_out_and_the_others_stay() {
    let unreachable = "is not an address of one endpoint that nodes can reach";
    let rows: [(&str, Value, String); 15] = [
        ("IPv4", json!(["fd00::1"]), "fd00::1 is not IPv4, as the slice's addressType says".into()),
        (
            "IPv6",
            json!(["10.0.0.1"]),
            "10.0.0.1 is not IPv6, as the slice's addressType says".into(),
        ),
        (
            "IPv6",
            json!(["::ffff:10.0.0.1"]),
            "10.0.0.1 is not IPv6, as the slice's addressType says".into(),
        ),
        ("IPv4", json!(["0.0.0.0"]), format!("0.0.0.0 {unreachable}")),
        ("IPv4", json!(["127.0.0.1"]), format!("127.0.0.1 {unreachable}")),
        ("IPv4", json!(["169.254.1.1"]), format!("169.254.1.1 {unreachable}")),
        ("IPv4", json!(["224.0.0.1"]), format!("224.0.0.1 {unreachable}")),
        ("IPv6", json!(["::"]), format!(":: {unreachable}")),
        ("IPv6", json!(["::1"]), format!("::1 {unreachable}")),
        ("IPv6", json!(["fe80::1"]), format!("fe80::1 {unreachable}")),
        ("IPv6", json!(["ff02::1"]), format!("ff02::1 {unreachable}")),
        ("IPv4", json!(["pod.example.org"]), "\"pod.example.org\" is not an IP address".into()),
        ("IPv4", json!([""]), "\"\" is not an IP address".into()),
        ("IPv4", json!([]), "missing".into()),
        ("IPv6", json!(null), "missing".into()),
    ];
    for (kind, bad, problem) in rows {
        let (family, good) = match kind {
            "IPv4" => (zw_model::Family::V4, "10.244.0.1"),
            _ => (zw_model::Family::V6, "fd00:10:244::1"),
        };
        let endpoints = json!([{"addresses": bad}, {"addresses": [good]}]);
        let object = set(set(slice(), "/addressType", json!(kind)), "/endpoints", endpoints);
        let want = Slice { family, endpoints: vec![endpoint(good)], ..want_slice() };
        check_slice(object, want, &[&format!("endpoints[0].addresses[0]: {problem}")]);
    }
}

#[test]
fn an_ipv4_address_in_ipv6_notation_fits_an_ipv4_slice() {
    let object = set(slice(), "/endpoints", json!([{"addresses": ["::ffff:10.244.0.1"]}]));
    check_slice(object, want_slice(), &[]);
}

#[test]
fn a_slice_may_name_a_port_twice_with_different_numbers() {
    let ports = json!([{"name": "http", "port": 8080}, {"name": "http", "port": 8081}]);
    let number = |port| SlicePort { name: "http".into(), protocol: Protocol::Tcp, port };
    let want = Slice { ports: vec![number(8080), number(8081)], ..want_slice() };
    check_slice(set(slice(), "/ports", ports), want, &[]);
}

#[test]
fn a_slice_tells_when_its_pods_changed_beside_what_it_is() {
    const KEY: &str = "endpoints.kubernetes.io/last-change-trigger-time";
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    for (annotations, want) in [
        (json!(null), None),
        (json!({"other": "2026-01-01T00:00:00Z"}), None),
        (json!({KEY: "1970-01-02T00:00:00Z"}), Some(at(86400))),
        (json!({KEY: "1970-01-02T01:00:00.5+01:00"}), Some(at(86400) + Duration::from_millis(500))),
        (json!({KEY: "yesterday"}), None),
        (json!({KEY: ""}), None),
    ] {
        let (got, problems) = convert(set(slice(), "/metadata/annotations", annotations)).unwrap();
        let want = Object {
            triggered: want,
            ..Object::new(id(Kind::EndpointSlice, "web", "api-1"), Body::Slice(want_slice()))
        };
        assert_eq!((got, problems), (want, Vec::new()));
    }
}
