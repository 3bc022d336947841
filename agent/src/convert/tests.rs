//! Every quirk of Kubernetes' fields that is known here, one row each, and any JSON at all.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use zw_model::{
    Conditions, Division, Hints, Protocol, Scope, Service, ServiceKey, ServicePort, Slice,
    SliceEndpoint, SliceKey, SlicePort, Topology,
};

use super::{Body, Content, Decoded, Form, Kind, Object, ObjectId, Problem, decode, identity};

mod external;
mod nodes;
mod protobuf;
mod services;
mod slices;

/// Converts an object, and makes sure that it means the same in the API server's other form, where it can
/// have that form.
fn convert(object: Value) -> Result<(Object, Vec<Problem>), Problem> {
    let converted = super::convert(&object);
    let kind = match object["kind"].as_str() {
        Some("Service") => Kind::Service,
        Some("EndpointSlice") => Kind::EndpointSlice,
        Some("Node") => Kind::Node,
        Some("ServiceCIDR") => Kind::ServiceCidr,
        _ => return converted,
    };
    let bytes = crate::protobuf::write::encode(protobuf::message(kind), &object);
    if let (Ok((object, problems)), Some(bytes)) = (&converted, bytes) {
        let Decoded { content, .. } = decode(kind, Form::Protobuf(&bytes));
        assert_eq!(content, Content::Good(object.clone(), problems.clone()));
    }
    converted
}

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
        managed_by: None,
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
        topology: Arc::default(),
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
    assert_eq!(got, Object::new(object_id, Body::Service(want)));
    assert_eq!(texts(left_out), problems);
}

#[track_caller]
fn check_slice(object: Value, want: Slice, problems: &[&str]) {
    let object_id = id(Kind::EndpointSlice, &want.key.namespace, &want.key.name);
    let (got, left_out) = convert(object).unwrap();
    assert_eq!(got, Object::new(object_id, Body::Slice(want)));
    assert_eq!(texts(left_out), problems);
}

#[track_caller]
fn check_irrelevant(object: Value, want: ObjectId, problems: &[&str]) {
    let (got, left_out) = convert(object).unwrap();
    assert_eq!(got, Object::new(want, Body::Irrelevant));
    assert_eq!(texts(left_out), problems);
}

#[track_caller]
fn check_error(object: Value, want: &str) {
    assert_eq!(convert(object).map_err(|problem| problem.to_string()), Err(want.to_owned()));
}

// Any kind.
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
            json!({"other": 5, "service.kubernetes.io/headless": 5}),
            "metadata.labels.service.kubernetes.io/headless",
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
        "externalIPs",
        "nodePort",
        "ingress",
        "ip",
        "ipMode",
        "cidrs",
        "podCIDRs",
        "taints",
        "address",
        "timeoutSeconds",
        "clientIP",
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
        (service, "/spec/externalIPs"),
        (service, "/spec/loadBalancerSourceRanges"),
        (service, "/spec/sessionAffinityConfig"),
        (service, "/status"),
        (slice, "/metadata/namespace"),
        (slice, "/addressType"),
        (slice, "/ports"),
        (slice, "/endpoints"),
        (node, "/metadata"),
        (node, "/spec"),
        (node, "/status"),
        (node, "/kind"),
        (node, "/apiVersion"),
    ];
    (prop::sample::select(places.to_vec()), any_json())
        .prop_map(|((object, place), value)| set(object(), place, value))
}

proptest! {
    #[test]
    fn an_object_means_the_same_in_a_file_and_on_the_wire(
        object in almost_valid(),
    ) {
        let kind = match object["kind"].as_str() {
            Some("Service") => Kind::Service,
            Some("EndpointSlice") => Kind::EndpointSlice,
            _ => Kind::Node,
        };
        let file = convert(set(set(object.clone(), "/kind", json!(format!("{kind:?}"))), "/apiVersion", json!(
            if kind == Kind::EndpointSlice { "discovery.k8s.io/v1" } else { "v1" }
        )));
        let wire = decode(kind, Form::Json(&object.to_string())).content;
        match (file, wire) {
            (Ok(file), Content::Good(object, problems)) => prop_assert_eq!(file, (object, problems)),
            (Err(file), Content::Bad(_, wire)) => prop_assert_eq!(file.field, wire.field),
            (file, wire) => prop_assert!(false, "{:?} but {:?}", file, wire),
        }
    }

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
