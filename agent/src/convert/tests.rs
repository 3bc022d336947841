//! Every quirk of Kubernetes' fields that is known here, one row each, and any JSON at all.

use proptest::prelude::*;
use serde_json::{Value, json};
use zw_model::{
    Conditions, Hints, NodeContext, Protocol, Scope, Service, ServiceKey, ServicePort, Slice,
    SliceEndpoint, SliceKey, SlicePort,
};

use super::{Body, Kind, Object, ObjectId, Problem, convert, identity};

/// Sets a field by its JSON pointer; `Value::Null` stays there as an explicit null.
fn set(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

fn remove(mut object: Value, pointer: &str) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field).unwrap();
    object
}

fn service() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "web", "name": "api"},
        "spec": {
            "clusterIP": "10.96.0.10",
            "ports": [{"name": "http", "protocol": "TCP", "port": 80}],
        },
    })
}

fn slice() -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "web",
            "name": "api-1",
            "labels": {"kubernetes.io/service-name": "api"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        "endpoints": [{"addresses": ["10.244.0.1"]}],
    })
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
}

/// What [`service`] means.
fn want_service() -> Service {
    Service {
        key: ServiceKey::new("web", "api"),
        cluster_ips: vec!["10.96.0.10".parse().unwrap()],
        ports: vec![port("http", Protocol::Tcp, 80)],
        ..Service::default()
    }
}

/// What [`slice`] means.
fn want_slice() -> Slice {
    Slice {
        key: SliceKey { namespace: "web".into(), name: "api-1".into() },
        service: ServiceKey::new("web", "api"),
        family: zw_model::Family::V4,
        scope: Scope::Everyone,
        ports: vec![SlicePort { name: "http".into(), protocol: Protocol::Tcp, port: 8080 }],
        endpoints: vec![endpoint("10.244.0.1")],
    }
}

fn port(name: &str, protocol: Protocol, port: u16) -> ServicePort {
    ServicePort { name: name.into(), protocol, port, node_port: None }
}

fn endpoint(addr: &str) -> SliceEndpoint {
    SliceEndpoint {
        addr: addr.parse().unwrap(),
        conditions: Conditions { ready: true, serving: true, terminating: false },
        node: None,
        zone: None,
        hints: None,
    }
}

fn id(kind: Kind, namespace: &str, name: &str) -> ObjectId {
    ObjectId { kind, namespace: namespace.into(), name: name.into() }
}

fn texts(problems: Vec<Problem>) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

/// The Service and what was left out of it.
#[track_caller]
fn check_service(object: Value, want: Service, problems: &[&str]) {
    let object_id = id(Kind::Service, &want.key.namespace, &want.key.name);
    let (got, left_out) = convert(object).unwrap();
    assert_eq!(got, Object { id: object_id, body: Body::Service(want) });
    assert_eq!(texts(left_out), problems);
}

#[track_caller]
fn check_slice(object: Value, want: Slice, problems: &[&str]) {
    let object_id = id(Kind::EndpointSlice, &want.key.namespace, &want.key.name);
    let (got, left_out) = convert(object).unwrap();
    assert_eq!(got, Object { id: object_id, body: Body::Slice(want) });
    assert_eq!(texts(left_out), problems);
}

#[track_caller]
fn check_irrelevant(object: Value, want: ObjectId, problems: &[&str]) {
    let (got, left_out) = convert(object).unwrap();
    assert_eq!(got, Object { id: want, body: Body::Irrelevant });
    assert_eq!(texts(left_out), problems);
}

#[track_caller]
fn check_error(object: Value, want: &str) {
    assert_eq!(convert(object).map_err(|problem| problem.to_string()), Err(want.to_owned()));
}

// Services.

#[test]
fn a_service_keeps_addresses_and_ports_in_order() {
    let object = set(service(), "/spec/clusterIPs", json!(["fd00::10", "10.96.0.10"]));
    let object = set(
        object,
        "/spec/ports",
        json!([
            {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 5353, "nodePort": 30053},
            {"name": "dns-tcp", "protocol": "TCP", "port": 53, "targetPort": "dns"},
            {"name": "sig", "protocol": "SCTP", "port": 65535},
        ]),
    );
    let want = Service {
        cluster_ips: vec!["fd00::10".parse().unwrap(), "10.96.0.10".parse().unwrap()],
        ports: vec![
            port("dns", Protocol::Udp, 53),
            port("dns-tcp", Protocol::Tcp, 53),
            port("sig", Protocol::Sctp, 65535),
        ],
        ..want_service()
    };
    check_service(object, want, &[]);
}

#[test]
fn an_absent_or_null_name_is_empty_and_an_absent_or_null_protocol_is_tcp() {
    for raw in [json!({"port": 80}), json!({"name": null, "protocol": null, "port": 80})] {
        let want = Service { ports: vec![port("", Protocol::Tcp, 80)], ..want_service() };
        check_service(set(service(), "/spec/ports", json!([raw])), want, &[]);

        let ports = vec![SlicePort { name: "".into(), protocol: Protocol::Tcp, port: 80 }];
        let want = Slice { ports, ..want_slice() };
        check_slice(set(slice(), "/ports", json!([raw])), want, &[]);
    }
}

#[test]
fn absent_null_and_empty_lists_are_the_same() {
    let no_ports = || Service { ports: Vec::new(), ..want_service() };
    check_service(remove(service(), "/spec/ports"), no_ports(), &[]);
    for list in [json!(null), json!([])] {
        check_service(set(service(), "/spec/ports", list.clone()), no_ports(), &[]);
        check_service(set(service(), "/metadata/labels", json!(null)), want_service(), &[]);
        check_service(set(service(), "/spec/clusterIPs", list), want_service(), &[]);
    }
    let empty = || Slice { ports: Vec::new(), endpoints: Vec::new(), ..want_slice() };
    check_slice(remove(remove(slice(), "/ports"), "/endpoints"), empty(), &[]);
    let object = set(set(slice(), "/ports", json!(null)), "/endpoints", json!(null));
    check_slice(object, empty(), &[]);
}

#[test]
fn cluster_ips_come_before_cluster_ip() {
    let object = set(service(), "/spec/clusterIPs", json!(["10.96.0.99"]));
    let want = || Service { cluster_ips: vec!["10.96.0.99".parse().unwrap()], ..want_service() };
    check_service(object.clone(), want(), &[]);
    check_service(remove(object, "/spec/clusterIP"), want(), &[]);
}

#[test]
fn a_service_that_is_not_ours_is_known_but_irrelevant() {
    let rows = [
        ("headless", set(service(), "/spec/clusterIP", json!("None"))),
        ("headless, new field", set(service(), "/spec/clusterIPs", json!(["None"]))),
        ("no address yet", set(service(), "/spec/clusterIP", json!(""))),
        ("null address", set(service(), "/spec/clusterIP", json!(null))),
        ("no address at all", remove(service(), "/spec/clusterIP")),
        ("empty addresses", set(service(), "/spec/clusterIPs", json!([""]))),
        ("no spec", remove(service(), "/spec")),
        ("ExternalName", set(service(), "/spec/type", json!("ExternalName"))),
        (
            "another proxy's",
            set(
                service(),
                "/metadata/labels",
                json!({"service.kubernetes.io/service-proxy-name": ""}),
            ),
        ),
    ];
    for (name, object) in rows {
        let got = convert(object).unwrap();
        let want = Object { id: id(Kind::Service, "web", "api"), body: Body::Irrelevant };
        assert_eq!(got, (want, Vec::new()), "{name}");
    }
}

#[test]
fn the_other_types_of_service_are_programmed_for_their_cluster_ip() {
    for kind in ["ClusterIP", "NodePort", "LoadBalancer"] {
        check_service(set(service(), "/spec/type", json!(kind)), want_service(), &[]);
    }
}

#[test]
fn impossible_ports_are_left_out_and_named() {
    for (number, problem) in [
        (json!(0), "0 is not a port (1 to 65535)"),
        (json!(-1), "-1 is not a port (1 to 65535)"),
        (json!(65536), "65536 is not a port (1 to 65535)"),
        (json!(99999), "99999 is not a port (1 to 65535)"),
        (json!(i64::MAX), "9223372036854775807 is not a port (1 to 65535)"),
        (json!(null), "missing"),
    ] {
        let with = |pointer: &str, object: Value| {
            let bad = json!({"name": "bad", "port": number});
            let good = object.pointer(pointer).unwrap()[0].clone();
            set(object, pointer, json!([bad, good]))
        };
        let named = format!("spec.ports[0].port: {problem}");
        check_service(with("/spec/ports", service()), want_service(), &[&named]);
        let named = format!("ports[0].port: {problem}");
        check_slice(with("/ports", slice()), want_slice(), &[&named]);
    }
}

#[test]
fn an_unknown_protocol_costs_its_port_only() {
    for protocol in ["tcp", "ICMP", ""] {
        let more = json!({"name": "odd", "protocol": protocol, "port": 1});
        let mut object = service();
        object["spec"]["ports"].as_array_mut().unwrap().push(more.clone());
        let problem = format!("spec.ports[1].protocol: {protocol:?} is not TCP, UDP or SCTP");
        check_service(object, want_service(), &[&problem]);

        let mut object = slice();
        object["ports"].as_array_mut().unwrap().push(more);
        let problem = format!("ports[1].protocol: {protocol:?} is not TCP, UDP or SCTP");
        check_slice(object, want_slice(), &[&problem]);
    }
}

#[test]
fn of_duplicate_service_ports_the_first_counts() {
    let ports = json!([
        {"name": "http", "port": 80},
        {"name": "again", "port": 80},
        {"name": "http", "port": 81},
        {"name": "http", "port": 80, "protocol": "UDP"},
        {"port": 90},
        {"port": 91},
    ]);
    let want = Service {
        ports: vec![
            port("http", Protocol::Tcp, 80),
            port("http", Protocol::Udp, 80),
            port("", Protocol::Tcp, 90),
        ],
        ..want_service()
    };
    let problems = [
        "spec.ports[1]: \"again\" 80/tcp stands there twice",
        "spec.ports[2]: \"http\" 81/tcp stands there twice",
        "spec.ports[5]: \"\" 91/tcp stands there twice",
    ];
    check_service(set(service(), "/spec/ports", ports), want, &problems);
}

#[test]
fn a_bad_cluster_ip_is_named_by_the_field_it_stands_in() {
    let nowhere = || Service { cluster_ips: Vec::new(), ..want_service() };
    let object = set(service(), "/spec/clusterIP", json!("10.96.0.300"));
    let problem = "spec.clusterIP: \"10.96.0.300\" is not an IP address";
    check_service(object, nowhere(), &[problem]);

    let object = set(service(), "/spec/clusterIPs", json!(["oops", "10.96.0.10", "10.96.0.11"]));
    let problems = [
        "spec.clusterIPs[0]: \"oops\" is not an IP address",
        "spec.clusterIPs[2]: 10.96.0.11 is a second address of its family",
    ];
    check_service(object, want_service(), &problems);
}

#[test]
fn addresses_are_read_as_kubernetes_reads_them() {
    for (text, want) in [
        ("010.096.000.010", "10.96.0.10"),
        ("::ffff:10.96.0.10", "10.96.0.10"),
        ("FD00:0:0::010", "fd00::10"),
    ] {
        let want = Service { cluster_ips: vec![want.parse().unwrap()], ..want_service() };
        check_service(set(service(), "/spec/clusterIP", json!(text)), want, &[]);
    }
    for text in [
        "10.96.0",
        "10.96.0.1.1",
        "10.96.0.256",
        "0010.96.0.1",
        "+10.96.0.1",
        "10.96.0.-1",
        "10.96..1",
        "10.96.0.1 ",
        "10.96.0.1/32",
        "0x0a.0.0.1",
        "fe80::1%eth0",
        "example.org",
    ] {
        let object = set(service(), "/spec/clusterIP", json!(text));
        let problem = format!("spec.clusterIP: {text:?} is not an IP address");
        check_service(object, Service { cluster_ips: Vec::new(), ..want_service() }, &[&problem]);
    }
}

// Slices.

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
        node: Some("node-1".into()),
        zone: Some("zone-a".into()),
        hints: Some(Box::new(Hints {
            zones: vec!["zone-a".into(), "zone-b".into()],
            nodes: vec!["node-1".into()],
        })),
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
        (json!({}), Some(Box::default())),
        (json!({"forZones": null, "forNodes": []}), Some(Box::default())),
    ] {
        let raw =
            json!([{"addresses": ["10.244.0.1"], "hints": raw, "nodeName": null, "zone": null}]);
        let endpoints = vec![SliceEndpoint { hints: want, ..endpoint("10.244.0.1") }];
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

// Nodes and the rest.

#[test]
fn a_node_is_where_its_labels_say() {
    const ZONE: &str = "topology.kubernetes.io/zone";
    const REGION: &str = "topology.kubernetes.io/region";
    let context = |zone: Option<&str>, region: Option<&str>| NodeContext {
        name: "node-1".into(),
        zone: zone.map(Into::into),
        region: region.map(Into::into),
        ..NodeContext::default()
    };
    for (labels, want) in [
        (json!(null), context(None, None)),
        (json!({ZONE: "", REGION: ""}), context(None, None)),
        (json!({ZONE: "zone-a"}), context(Some("zone-a"), None)),
        (json!({REGION: "region-1", ZONE: "zone-a"}), context(Some("zone-a"), Some("region-1"))),
    ] {
        let (got, problems) = convert(set(node(), "/metadata/labels", labels)).unwrap();
        let NodeContext { name, zone, region, .. } = want;
        let want = Object { id: id(Kind::Node, "", &name), body: Body::Node { zone, region } };
        assert_eq!((got, problems), (want, Vec::new()));
    }
}

#[test]
fn a_service_cidr_is_known_without_effect() {
    let object = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes", "namespace": "nonsense"},
        "spec": {"cidrs": ["10.96.0.0/16"]},
    });
    check_irrelevant(object, id(Kind::ServiceCidr, "", "kubernetes"), &[]);
}

#[test]
fn without_a_namespace_an_object_is_in_default() {
    for namespace in [json!(null), json!("")] {
        let want = Service { key: ServiceKey::new("default", "api"), ..want_service() };
        check_service(set(service(), "/metadata/namespace", namespace.clone()), want, &[]);

        let want = Slice {
            key: SliceKey { namespace: "default".into(), name: "api-1".into() },
            service: ServiceKey::new("default", "api"),
            ..want_slice()
        };
        check_slice(set(slice(), "/metadata/namespace", namespace), want, &[]);
    }
}

#[test]
fn an_object_reads_as_its_kind_and_full_name() {
    assert_eq!(id(Kind::Service, "web", "api").to_string(), "Service web/api");
    assert_eq!(id(Kind::EndpointSlice, "web", "api-1").to_string(), "EndpointSlice web/api-1");
    assert_eq!(id(Kind::Node, "", "node-1").to_string(), "Node node-1");
}

#[test]
fn an_object_without_a_name_cannot_be_read() {
    for object in [service(), slice(), node()] {
        check_error(remove(object.clone(), "/metadata/name"), "metadata.name: missing");
        check_error(set(object.clone(), "/metadata/name", json!("")), "metadata.name: missing");
        check_error(remove(object, "/metadata"), "metadata.name: missing");
    }
}

#[test]
fn an_object_that_cannot_be_read_still_says_who_it_is() {
    let broken = set(service(), "/spec", json!(5));
    assert_eq!(identity(&broken), Some(id(Kind::Service, "web", "api")));
    let in_default = remove(broken, "/metadata/namespace");
    assert_eq!(identity(&in_default), Some(id(Kind::Service, "default", "api")));
    assert_eq!(identity(&node()), Some(id(Kind::Node, "", "node-1")));
    for nobody in [
        json!(null),
        json!({"kind": "Service"}),
        set(service(), "/kind", json!("Pod")),
        set(service(), "/metadata/name", json!("a\"b")),
        set(service(), "/metadata/name", json!(5)),
    ] {
        assert_eq!(identity(&nobody), None, "{nobody}");
    }
}

#[test]
fn kinds_and_versions_that_are_not_read_say_so() {
    let kinds = "is not one that Zoneward reads (Service, EndpointSlice, Node, ServiceCIDR, List)";
    check_error(json!({"apiVersion": "v1", "kind": "Pod"}), &format!("kind: \"Pod\" {kinds}"));
    for nothing in
        [json!({}), json!(null), json!("Service"), json!([service()]), json!({"kind": 5})]
    {
        check_error(nothing, "kind: missing: not a Kubernetes object");
    }
    for (version, object) in [
        (
            "discovery.k8s.io/v1beta1",
            set(slice(), "/apiVersion", json!("discovery.k8s.io/v1beta1")),
        ),
        ("v1", set(slice(), "/apiVersion", json!("v1"))),
        ("v2", set(service(), "/apiVersion", json!("v2"))),
        ("", remove(service(), "/apiVersion")),
        ("apps/v1", set(node(), "/apiVersion", json!("apps/v1"))),
    ] {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let error =
            format!("apiVersion: {version:?} is not a version of {kind} that Zoneward reads");
        check_error(object, &error);
    }
}

#[test]
fn names_that_kubernetes_would_not_take_are_refused() {
    let long = "n".repeat(254);
    for name in ["a\"b", "a b", "a/b", "a:b", "a\nb", "\u{e4}", &long] {
        let why = |field: &str| format!("{field}: {name:?} is not a name in Kubernetes");
        for field in ["name", "namespace"] {
            let object = set(service(), &format!("/metadata/{field}"), json!(name));
            check_error(object, &why(&format!("metadata.{field}")));
        }
        let object = set(service(), "/spec/ports/0/name", json!(name));
        let want = Service { ports: Vec::new(), ..want_service() };
        check_service(object, want, &[&why("spec.ports[0].name")]);
    }
    let longest = "n".repeat(253);
    let want = Service { key: ServiceKey::new("web", longest.as_str()), ..want_service() };
    check_service(set(service(), "/metadata/name", json!(longest)), want, &[]);
}

#[test]
fn a_wrong_type_is_named_by_its_path() {
    let string = |text: &str, want: &str| format!("invalid type: string {text:?}, expected {want}");
    for (object, field, value, path, message) in [
        (service(), "/spec/ports/0/port", json!("80"), "spec.ports[0].port", string("80", "i64")),
        (service(), "/spec/ports", json!("80"), "spec.ports", string("80", "a sequence")),
        (
            service(),
            "/metadata/labels",
            json!({"a": 5}),
            "metadata.labels.a",
            "invalid type: integer `5`, expected a string".into(),
        ),
        (
            service(),
            "/spec/clusterIPs",
            json!(["10.96.0.10", 5]),
            "spec.clusterIPs[1]",
            "invalid type: integer `5`, expected a string".into(),
        ),
        (
            slice(),
            "/endpoints",
            json!([{"addresses": ["10.244.0.1"]}, {"conditions": {"ready": "yes"}}]),
            "endpoints[1].conditions.ready",
            string("yes", "a boolean"),
        ),
        (
            slice(),
            "/ports",
            json!([{"port": 80.5}]),
            "ports[0].port",
            "invalid type: floating point `80.5`, expected i64".into(),
        ),
    ] {
        check_error(set(object, field, value), &format!("{path}: {message}"));
    }
}

// Any JSON.

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-2i64..70000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
        prop::sample::select(vec!["", "None", "10.0.0.1", "::1", "IPv4", "TCP", "api", "FQDN"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(field_name(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn field_name() -> impl Strategy<Value = String> {
    let known = vec![
        "name",
        "namespace",
        "labels",
        "port",
        "protocol",
        "addresses",
        "conditions",
        "hints",
        "ready",
        "forZones",
        "clusterIP",
        "clusterIPs",
        "ports",
        "type",
        "kubernetes.io/service-name",
    ];
    prop_oneof![4 => prop::sample::select(known).prop_map(String::from), 1 => ".{0,4}"]
}

/// Valid but for one place, which holds anything: reaches further than JSON that is all random.
fn almost_valid() -> impl Strategy<Value = Value> {
    let places = [
        (service as fn() -> Value, "/metadata"),
        (service, "/metadata/name"),
        (service, "/metadata/labels"),
        (service, "/spec"),
        (service, "/spec/clusterIP"),
        (service, "/spec/clusterIPs"),
        (service, "/spec/ports"),
        (slice, "/metadata/namespace"),
        (slice, "/addressType"),
        (slice, "/ports"),
        (slice, "/endpoints"),
        (node, "/metadata"),
        (node, "/kind"),
        (node, "/apiVersion"),
    ];
    (prop::sample::select(places.to_vec()), any_json())
        .prop_map(|((object, place), value)| set(object(), place, value))
}

proptest! {
    #[test]
    fn no_json_is_too_strange(value in prop_oneof![any_json(), almost_valid()]) {
        let converted = convert(value.clone());
        prop_assert_eq!(&converted, &convert(value), "and it means the same each time");
        if let Ok((object, problems)) = converted {
            prop_assert!(!object.id.name.is_empty());
            for problem in problems {
                prop_assert!(!problem.field.is_empty() && !problem.message.is_empty());
            }
        }
    }
}
