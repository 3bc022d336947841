use serde_json::{Value, json};

use super::*;
use crate::testing::service_of;

fn endpoints(metadata: Value, subsets: Value) -> Mirrored {
    let mut object = json!({
        "metadata": {"name": "api", "namespace": "web", "uid": "endpoints-uid", "resourceVersion": "3"},
        "subsets": subsets,
    });
    for (name, value) in metadata.as_object().unwrap() {
        object["metadata"][name] = value.clone();
    }
    Mirrored::of(serde_json::from_value(object).unwrap()).unwrap().0
}

fn without_selector() -> Service {
    service_of(json!({}), json!({"selector": null}))
}

fn two_families() -> Value {
    json!([{
        "addresses": [{"ip": "10.0.0.1", "nodeName": "n1"}, {"ip": "fd00::1"}],
        "notReadyAddresses": [{"ip": "10.0.0.2", "hostname": "b"}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }])
}

/// What the writes would make, as slices of the store.
fn made(endpoints: &Mirrored, writes: &[SliceWrite]) -> Vec<Slice> {
    let slice = |(i, write): (usize, &SliceWrite)| {
        let (SliceWrite::Create(content) | SliceWrite::Update(_, content)) = write else {
            panic!("{write:?}")
        };
        let mut object = endpoints.slice(content, None);
        object.metadata.name = Some(format!("api-{i}"));
        object.metadata.resource_version = Some("1".into());
        Slice::of(object).unwrap().1
    };
    writes.iter().enumerate().map(slice).collect()
}

#[test]
fn endpoints_become_a_slice_for_each_family_and_stay_so() {
    let endpoints = endpoints(json!({"labels": {"team": "x"}}), two_families());
    let service = without_selector();
    let writes = mirror(Some(&endpoints), Some(&service), &[]);
    assert_eq!(writes.len(), 2);
    let slices = made(&endpoints, &writes);
    assert_eq!(mirror(Some(&endpoints), Some(&service), &slices), []);
    assert!(slices.iter().all(|slice| slice.hidden().is_some_and(|zones| zones.is_empty())));
}

#[test]
fn slices_are_owned_and_labelled_as_upstream_does() {
    let annotations = json!({
        "note": "kept", names::LAST_APPLIED: "{}", names::TRIGGER_TIME: "2026-01-01T00:00:00Z",
    });
    let subsets = json!([{"addresses": [{"ip": "10.0.0.1", "nodeName": "n1"}],
        "ports": [{"port": 8080}]}]);
    let endpoints =
        endpoints(json!({"labels": {"team": "x"}, "annotations": annotations}), subsets);
    let writes = mirror(Some(&endpoints), Some(&without_selector()), &[]);
    let [SliceWrite::Create(content)] = &writes[..] else { panic!("{writes:?}") };
    let want = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "generateName": "api-", "namespace": "web",
            "labels": {
                "team": "x", "kubernetes.io/service-name": "api",
                "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
            },
            "annotations": {"note": "kept"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Endpoints", "name": "api",
                "uid": "endpoints-uid", "controller": true}],
        },
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n1"}],
    });
    assert_eq!(serde_json::to_value(endpoints.slice(content, None)).unwrap(), want);
}

#[test]
fn four_kinds_of_endpoints_are_left_alone() {
    let plain = endpoints(json!({}), two_families());
    let skipped = endpoints(json!({"labels": {names::SKIP_MIRROR: "true"}}), two_families());
    let lock = endpoints(json!({"annotations": {names::LEADER: "{}"}}), two_families());
    let selecting = service_of(json!({}), json!({}));
    let service = without_selector();
    assert!(plain.is_for(Some(&service)));
    assert!(!skipped.is_for(Some(&service)));
    assert!(!lock.is_for(Some(&service)));
    assert!(!plain.is_for(None), "there is no Service");
    assert!(!plain.is_for(Some(&selecting)), "its Service selects pods");
    // And what was mirrored before goes.
    let slices = made(&plain, &mirror(Some(&plain), Some(&service), &[]));
    let writes = mirror(Some(&skipped), Some(&service), &slices);
    assert!(writes.len() == 2 && writes.iter().all(SliceWrite::is_delete));
    assert_eq!(mirror(None, Some(&service), &slices).len(), 2);
}

#[test]
fn a_thousand_addresses_of_a_subset_are_mirrored_and_the_rest_is_counted() {
    let address = |i: usize| json!({"ip": format!("10.0.{}.{}", i / 250, i % 250)});
    let addresses: Vec<Value> = (0..1005).map(address).chain([json!({"ip": "nonsense"})]).collect();
    let endpoints = endpoints(json!({}), json!([{"addresses": addresses, "ports": [{"port": 1}]}]));
    assert_eq!((endpoints.too_many, endpoints.invalid), (5, 1));
    let writes = mirror(Some(&endpoints), Some(&without_selector()), &[]);
    let [SliceWrite::Create(content)] = &writes[..] else { panic!("one slice") };
    assert_eq!(content.endpoints.len(), MOST);
}

#[test]
fn the_limit_is_for_all_subsets_of_the_same_ports_and_ready_addresses_come_first() {
    let address = |i: usize| json!({"ip": format!("10.0.{}.{}", i / 250, i % 250)});
    let some = |range: std::ops::Range<usize>| range.map(address).collect::<Vec<Value>>();
    let subsets = json!([
        {"notReadyAddresses": some(0..600), "ports": [{"port": 1}]},
        {"addresses": some(600..1200), "ports": [{"port": 1}]},
        {"addresses": some(0..600), "ports": [{"port": 2}]},
    ]);
    let endpoints = endpoints(json!({}), subsets);
    assert_eq!(endpoints.too_many, 200);
    let writes = mirror(Some(&endpoints), Some(&without_selector()), &[]);
    let counted = |write: &SliceWrite| {
        let SliceWrite::Create(content) = write else { panic!("{write:?}") };
        let ready = content.endpoints.iter().filter(|e| crate::input::is_ready(e)).count();
        (ready, content.endpoints.len())
    };
    let mut counts: Vec<(usize, usize)> = writes.iter().map(counted).collect();
    counts.sort_unstable();
    assert_eq!(counts, [(600, 600), (600, MOST)]);
}

#[test]
fn a_label_that_changes_is_mirrored_too() {
    let before = endpoints(json!({"labels": {"team": "x"}}), two_families());
    let service = without_selector();
    let slices = made(&before, &mirror(Some(&before), Some(&service), &[]));
    let after = endpoints(json!({"labels": {"team": "y"}}), two_families());
    let writes = mirror(Some(&after), Some(&service), &slices);
    assert!(writes.len() == 2 && writes.iter().all(|w| matches!(w, SliceWrite::Update(..))));
}

#[test]
fn an_address_that_stands_there_twice_is_one_endpoint() {
    let subset = |field: &str| json!({field: [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]});
    let both = json!([subset("notReadyAddresses"), subset("addresses")]);
    let endpoints = endpoints(json!({}), both);
    let service = without_selector();
    let writes = mirror(Some(&endpoints), Some(&service), &[]);
    let [SliceWrite::Create(content)] = &writes[..] else { panic!("{writes:?}") };
    let [endpoint] = &content.endpoints[..] else { panic!("{content:?}") };
    assert!(!crate::input::is_ready(endpoint), "one that is both is not ready");
    assert_eq!(mirror(Some(&endpoints), Some(&service), &made(&endpoints, &writes)), []);
}

#[test]
fn whatever_labels_endpoints_have_their_slices_are_known_again() {
    for label in [names::FOR_ZONE, names::FOR_REGION, names::MANAGED_BY, names::SERVICE_NAME] {
        let endpoints = endpoints(json!({"labels": {label: "x"}}), two_families());
        let service = without_selector();
        let slices = made(&endpoints, &mirror(Some(&endpoints), Some(&service), &[]));
        assert_eq!(mirror(Some(&endpoints), Some(&service), &slices), [], "{label}");
    }
}
