//! The same object means the same in JSON and in protocol buffers.

use proptest::prelude::*;
use proptest::strategy::BoxedStrategy;
use serde_json::{Map, Value, json};

use super::super::{Content, Form, Kind, decode};
use crate::protobuf::write::{
    self, ENDPOINT_SLICE, Field, Message, NODE, SERVICE, SERVICE_CIDR, encode,
};

const KINDS: [(Kind, Message); 4] = [
    (Kind::Service, SERVICE),
    (Kind::EndpointSlice, ENDPOINT_SLICE),
    (Kind::Node, NODE),
    (Kind::ServiceCidr, SERVICE_CIDR),
];

pub(super) fn message(kind: Kind) -> Message {
    KINDS.into_iter().find(|(of, _)| *of == kind).unwrap().1
}

/// What may stand in a field: what means something there, and what does not.
fn texts(field: &str) -> &'static [&'static str] {
    match field {
        "name" | "nodeName" | "zone" => &["web", "zone-a", "node-1", "no name", "é\"", ""],
        "namespace" => &["web", "db", "a b"],
        "resourceVersion" => &["7", "123456789", "x"],
        "addressType" => &["IPv4", "IPv6", "FQDN", "IPX"],
        "protocol" => &["TCP", "UDP", "SCTP", "ICMP"],
        "type" => {
            &["ClusterIP", "NodePort", "LoadBalancer", "ExternalName", "InternalIP", "ExternalIP"]
        }
        "sessionAffinity" => &["ClientIP", "None", "Sticky"],
        "internalTrafficPolicy" | "externalTrafficPolicy" => &["Local", "Cluster", "Near"],
        "ipMode" => &["VIP", "Proxy", ""],
        "clusterIP" | "clusterIPs" => &["10.96.0.10", "fd00::10", "None", "", "127.0.0.1"],
        "podCIDR" | "podCIDRs" | "cidrs" | "loadBalancerSourceRanges" => {
            &["10.0.0.0/8", "fd00::/64", "0.0.0.0/0", "10.0.0.0/99", "", " 192.0.2.0/24 "]
        }
        "key" => &["ToBeDeletedByClusterAutoscaler", "other"],
        _ => &[
            "10.1.0.1",
            "10.1.0.2",
            "fd00:1::1",
            "::ffff:10.1.0.3",
            "010.1.0.4",
            "nowhere",
            "127.0.0.1",
        ],
    }
}

const KEYS: [&str; 15] = [
    "kubernetes.io/service-name",
    "service.kubernetes.io/service-proxy-name",
    "service.kubernetes.io/headless",
    "endpointslice.kubernetes.io/for-zone",
    "endpointslice.kubernetes.io/for-region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "endpoints.kubernetes.io/last-change-trigger-time",
    "endpointslice.kubernetes.io/managed-by",
    "zoneward/ipvs-scheduler",
    "zoneward/approach",
    "zoneward/reason",
    "zones.zoneward/zone-a",
    "zones.zoneward/",
    "app",
];

fn map() -> BoxedStrategy<Value> {
    let key = prop::sample::select(&KEYS[..]);
    let value = prop::sample::select(&["web", "zone-a", "", "2026-01-01T00:00:00Z", "rr"][..]);
    let entries = prop::collection::vec((key, value), 1..4);
    let object = |entries: Vec<(&str, &str)>| {
        entries.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect()
    };
    entries.prop_map(move |entries| Value::Object(object(entries))).boxed()
}

fn one(field: &'static Field) -> BoxedStrategy<Value> {
    match field.kind {
        write::Kind::Text => {
            // The server leaves out of JSON what is empty and cannot be absent.
            let may_be =
                |field: &Field, text: &str| !text.is_empty() || !field.always || field.required;
            let texts: Vec<&str> =
                texts(field.name).iter().copied().filter(|text| may_be(field, text)).collect();
            prop::sample::select(texts).prop_map(|text| json!(text)).boxed()
        }
        write::Kind::Number => {
            let numbers = [0, 1, 80, 8080, 30080, 65535, 65536, 86_401, -1, i32::MAX, i32::MIN];
            prop::sample::select(numbers.to_vec()).prop_map(|number| json!(number)).boxed()
        }
        write::Kind::Flag => any::<bool>().prop_map(|is| json!(is)).boxed(),
        write::Kind::Time => Just(json!("2026-01-01T00:00:00Z")).boxed(),
        write::Kind::Map => map(),
        write::Kind::Message(message) => any_message(message),
    }
}

/// Any value of a message's type.
fn any_message(message: Message) -> BoxedStrategy<Value> {
    let fields: Vec<_> = message
        .iter()
        .map(|field| {
            let value = if field.repeated {
                prop::collection::vec(one(field), 0..4).prop_map(Value::Array).boxed()
            } else {
                one(field)
            };
            // Mostly there, or hardly any object would come far.
            let value = if field.required {
                value.prop_map(Some).boxed()
            } else {
                prop::option::weighted(0.85, value).boxed()
            };
            value.prop_map(move |value| (field.name, value))
        })
        .collect();
    let object = |fields: Vec<(&str, Option<Value>)>| {
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(given.collect::<Map<_, _>>())
    };
    fields.prop_map(object).boxed()
}

fn any_object() -> BoxedStrategy<(Kind, Value)> {
    let kinds = KINDS.map(|(kind, message)| any_message(message).prop_map(move |v| (kind, v)));
    prop::strategy::Union::new(kinds).boxed()
}

fn assert_same(kind: Kind, object: &Value) {
    let bytes = encode(message(kind), object).unwrap();
    let json = decode(kind, Form::Json(&object.to_string()));
    let protobuf = decode(kind, Form::Protobuf(&bytes));
    assert_eq!(json, protobuf, "{object}");
}

#[test]
fn real_objects_mean_the_same_in_both_forms() {
    for (kind, object) in [
        (Kind::Service, super::service()),
        (Kind::EndpointSlice, super::slice()),
        (Kind::Service, json!({})),
        (
            Kind::Node,
            json!({"metadata": {"name": "node-1", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        ),
    ] {
        assert_same(kind, &object);
    }
}

#[test]
fn an_object_that_cannot_be_read_says_where_and_who() {
    let text = |number, bytes: &[u8]| {
        let mut field = Vec::new();
        write::tagged(&mut field, number, bytes);
        field
    };
    let metadata = text(1, &[text(1, b"api"), text(3, b"web"), text(6, b"7")].concat());
    for (rest, problem) in [
        (text(2, &text(3, b"\xff")), "spec.clusterIP: not UTF-8"),
        (
            text(2, &text(1, &[0x0d, 1, 2, 3, 4])),
            "spec.ports[0].name: invalid type: expected a string",
        ),
        (text(2, &text(1, &text(3, b"80"))), "spec.ports[0].port: invalid type: expected a number"),
        (
            text(2, &[text(5, b"10.1.1.1"), text(5, b"\xff")].concat()),
            "spec.externalIPs[1]: not UTF-8",
        ),
        (vec![0x10, 1], "spec: invalid type: expected a message"),
        (vec![0x12, 9], ".: it ends in the middle of a field"),
    ] {
        let decoded = decode(Kind::Service, Form::Protobuf(&[metadata.clone(), rest].concat()));
        assert_eq!(decoded.version.as_deref(), Some("7"));
        let Content::Bad(Some(id), is) = decoded.content else { panic!("{decoded:?}") };
        assert_eq!((id.to_string(), is.to_string()), ("Service web/api".into(), problem.into()));
    }
}

proptest! {
    #[test]
    fn any_object_means_the_same_in_both_forms((kind, object) in any_object()) {
        assert_same(kind, &object);
    }

    #[test]
    fn no_bytes_are_too_strange(
        (kind, object) in any_object(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode(message(kind), &object).unwrap();
        for (at, byte) in changes.into_iter().filter(|_| !bytes.is_empty()).collect::<Vec<_>>() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        let decoded = decode(kind, Form::Protobuf(&bytes));
        prop_assert_eq!(decoded, decode(kind, Form::Protobuf(&bytes)), "and mean the same each time");
    }
}
