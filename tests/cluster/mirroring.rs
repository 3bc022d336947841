//! Endpoints mirrored to slices where no kube-controller-manager does it, on a real API server and with no
//! more rights than `deploy/` gives; then the real one takes over, and finds nothing to change.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_tests::binary::{Agent, eventually};
use zw_tests::control_plane::{ControlPlane, kustomize, shared};

use crate::install::deploy;
use crate::zone_controller_scale::{Numbers, wait};
use crate::zone_place::CONTROLLER_RBAC;

const NAMESPACE: &str = "mirrored";
/// Most addresses with the same ports.
const MOST: usize = 1000;

/// The account that the overlay installs, and what it may do.
fn rights() -> String {
    let all = kustomize(&deploy().join("overlays/mirror"));
    let concerns = |text: &&str| {
        text.contains("name: zoneward-controller")
            && (text.contains("kind: ServiceAccount\n") || text.contains("apiVersion: rbac."))
    };
    all.split("---\n").filter(concerns).collect::<Vec<_>>().join("---\n")
}

fn start(plane: &ControlPlane, identity: &str) -> Agent {
    let kubeconfig = plane.kubeconfig_for_service_account("kube-system", "zoneward-controller");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let args =
        ["--kubeconfig", kubeconfig, "--mirror-endpoints", "--settle", "1", "--identity", identity];
    Agent::start_command(plane.namespace(), "controller", &args)
}

/// A Service; with a selector pods are chosen by it.
fn service(plane: &ControlPlane, name: &str, spec: Value) {
    let mut spec = spec;
    spec["ports"] = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    });
    plane.apply(&service.to_string());
}

/// Endpoints, as somebody writes them; returns their uid.
fn endpoints(plane: &ControlPlane, name: &str, metadata: Value, subsets: Value) -> String {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": name, "namespace": NAMESPACE}, "subsets": subsets,
    });
    for (field, value) in metadata.as_object().unwrap() {
        object["metadata"][field] = value.clone();
    }
    plane.apply(&object.to_string())[0]["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn subset(addresses: &[&str], not_ready: &[&str]) -> Value {
    let list = |all: &[&str]| all.iter().map(|ip| json!({"ip": ip})).collect::<Vec<Value>>();
    let ports = [json!({"name": "http", "port": 8080, "protocol": "TCP"})];
    json!([{"addresses": list(addresses), "notReadyAddresses": list(not_ready), "ports": ports}])
}

fn path(kind: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/{kind}/{name}")
}

/// All slices, those of one Service in the order of their address types.
fn slices(plane: &ControlPlane) -> Vec<Value> {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
    let mut slices = plane.get(&path)["items"].as_array().cloned().unwrap_or_default();
    slices.sort_by_key(|slice| slice["addressType"].to_string());
    slices
}

fn slices_of(plane: &ControlPlane, service: &str) -> Vec<Value> {
    let label = |slice: &Value| slice["metadata"]["labels"]["kubernetes.io/service-name"].clone();
    slices(plane).into_iter().filter(|slice| label(slice) == service).collect()
}

/// What a slice says besides its own name, version and times.
fn said(slice: &Value) -> Value {
    let metadata = &slice["metadata"];
    json!({
        "labels": metadata["labels"], "annotations": metadata["annotations"],
        "ownerReferences": metadata["ownerReferences"], "generateName": metadata["generateName"],
        "addressType": slice["addressType"], "ports": slice["ports"],
        "endpoints": slice["endpoints"],
    })
}

fn ready(slice: &Value, ready: bool) -> BTreeSet<String> {
    let all = slice["endpoints"].as_array().cloned().unwrap_or_default();
    let some = all.iter().filter(|endpoint| endpoint["conditions"]["ready"] == ready);
    some.map(|endpoint| endpoint["addresses"][0].as_str().unwrap().to_owned()).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

/// Who has mirrored slices, and each one's version.
fn mirrored(plane: &ControlPlane) -> BTreeSet<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |slice: &Value| {
        let metadata = &slice["metadata"];
        let service = text(&metadata["labels"]["kubernetes.io/service-name"]);
        (service, text(&metadata["name"]), text(&metadata["resourceVersion"]))
    };
    let is_mirror = |slice: &&Value| {
        let manager = &slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"];
        *manager == json!("endpointslicemirroring-controller.k8s.io")
    };
    slices(plane).iter().filter(is_mirror).map(of).collect()
}

/// Two that are mirrored in both families and in part; one for each reason not to; one that is too large.
fn write_everything(plane: &ControlPlane) -> String {
    plane.apply(
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            .to_string(),
    );
    for name in ["plain", "skipped", "lock", "large"] {
        service(plane, name, json!({}));
    }
    service(plane, "headless", json!({"clusterIP": "None"}));
    service(plane, "selecting", json!({"selector": {"app": "api"}}));
    let one = subset(&["10.244.0.1"], &[]);
    let skip = json!({"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}});
    endpoints(plane, "skipped", skip, one.clone());
    let leader = json!({"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}});
    endpoints(plane, "lock", leader, one.clone());
    endpoints(plane, "of-nobody", json!({}), one.clone());
    endpoints(plane, "selecting", json!({}), one.clone());
    // As the controller of Endpoints leaves them when a headless Service loses its selector.
    endpoints(plane, "headless", json!({"labels": {"service.kubernetes.io/headless": ""}}), one);
    let address = |i: usize| format!("10.245.{}.{}", i / 250, i % 250 + 1);
    let addresses: Vec<String> = (0..MOST + 5).map(address).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    endpoints(plane, "large", json!({}), subset(&addresses, &[]));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "api", "namespace": NAMESPACE, "labels": {"app": "api"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "c"}]},
        "status": {"phase": "Running", "podIP": "10.244.0.2", "podIPs": [{"ip": "10.244.0.2"}],
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    plane.apply(&pod.to_string());
    let marks = json!({"labels": {"team": "x"}, "annotations": {"note": "kept"}});
    endpoints(plane, "plain", marks, subset(&["10.244.0.1", "fd00:10:244::1"], &["10.244.0.3"]))
}

#[test]
fn endpoints_are_mirrored_with_the_rights_of_the_component_as_upstream_does_it() {
    // Alone: its role is not the one that other tests install.
    let mut plane = ControlPlane::start(&Namespace::new().unwrap());
    plane.apply(&rights());
    // Not the controller of Endpoints: it takes away those that have no Service.
    plane.start_controller_manager("endpointslice-controller");
    let uid = write_everything(&plane);
    eventually("the stock controller serves the one with a selector", || {
        slices_of(&plane, "selecting").len() == 1
    });
    let controller = start(&plane, "first");
    let numbers = wait(&plane, |numbers| numbers.creates >= 4 && numbers.queue == 0);
    println!("at first: {numbers:?}");
    assert_eq!((numbers.creates, numbers.updates, numbers.deletes), (4, 0, 0));
    let services: Vec<String> = mirrored(&plane).into_iter().map(|(service, ..)| service).collect();
    assert_eq!(services, ["headless", "large", "plain", "plain"]);
    assert_eq!(slices_of(&plane, "selecting").len(), 1, "the stock controller's");

    let plain = slices_of(&plane, "plain");
    let want = json!({
        "labels": {
            "team": "x", "kubernetes.io/service-name": "plain",
            "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
        },
        "annotations": {"note": "kept"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Endpoints", "name": "plain", "uid": uid,
            "controller": true}],
        "generateName": "plain-", "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": ["10.244.0.1"], "conditions": {"ready": true}},
            {"addresses": ["10.244.0.3"], "conditions": {"ready": false}},
        ],
    });
    assert_eq!(said(&plain[0]), want);
    assert_eq!(ready(&plain[1], true), set(&["fd00:10:244::1"]));

    assert_eq!(slices_of(&plane, "large")[0]["endpoints"].as_array().unwrap().len(), MOST);
    let event = || {
        let events = plane.get(&format!("/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"));
        let all = events["items"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|event| event["reason"] == "TooManyAddressesToMirror")
    };
    eventually("an Event says what was left out", || event().is_some());
    let event = event().unwrap();
    assert_eq!(
        (&event["type"], &event["regarding"]["kind"]),
        (&json!("Warning"), &json!("Endpoints"))
    );
    assert_eq!(event["regarding"]["name"], "large");
    let note = "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. 5 \
                addresses were skipped";
    assert_eq!(event["note"], note);

    follow(&plane, &plain[0]);
    assert!(controller.terminate().success());
    take_over(&mut plane);
}

/// Changes are followed: in place where there is a slice, and away where there is no more to mirror.
fn follow(plane: &ControlPlane, before: &Value) {
    let marks = json!({"labels": {"team": "y"}, "annotations": {"note": "kept"}});
    endpoints(plane, "plain", marks, subset(&["10.244.0.3", "10.244.0.4"], &["10.244.0.1"]));
    let name = |slice: &Value| slice["metadata"]["name"].clone();
    eventually("the change is mirrored", || {
        let slices = slices_of(plane, "plain");
        let [slice] = &slices[..] else { return false };
        ready(slice, true) == set(&["10.244.0.3", "10.244.0.4"])
            && ready(slice, false) == set(&["10.244.0.1"])
            && slice["metadata"]["labels"]["team"] == "y"
    });
    assert_eq!(name(&slices_of(plane, "plain")[0]), name(before), "in place");

    // Into and out of every reason to leave Endpoints alone.
    let there = |service: &str| !slices_of(plane, service).is_empty();
    let skip = |value: Value| json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": value}}});
    plane.patch(&path("endpoints", "skipped"), &skip(Value::Null));
    eventually("no longer skipped", || there("skipped"));
    plane.patch(&path("endpoints", "skipped"), &skip("true".into()));
    eventually("skipped again", || !there("skipped"));
    let leader = |value: Value| json!({"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": value}}});
    plane.patch(&path("endpoints", "lock"), &leader(Value::Null));
    eventually("no longer a lock", || there("lock"));
    plane.patch(&path("endpoints", "lock"), &leader("{}".into()));
    eventually("a lock again", || !there("lock"));
    service(plane, "of-nobody", json!({}));
    eventually("of somebody", || there("of-nobody"));
    let selector = |value: Value| json!({"spec": {"selector": value}});
    let mirrors = |service: &str| mirrored(plane).iter().any(|(of, ..)| of == service);
    plane.patch(&path("services", "of-nobody"), &selector(json!({"app": "other"})));
    eventually("it selects pods now", || !mirrors("of-nobody"));
    plane.delete(&path("services", "of-nobody"));

    // And gone with what is mirrored.
    endpoints(plane, "late", json!({}), subset(&["10.244.0.9"], &[]));
    service(plane, "late", json!({}));
    eventually("one more", || there("late"));
    plane.delete(&path("endpoints", "late"));
    eventually("gone with its Endpoints", || !there("late"));
}

/// The real controller finds everything as it would have made it, and so does ours of what that one made.
fn take_over(plane: &mut ControlPlane) {
    let ours = mirrored(plane);
    let services: Vec<&str> = ours.iter().map(|(service, ..)| service.as_str()).collect();
    assert_eq!(services, ["headless", "large", "plain"]);
    plane.start_controller_manager("endpointslice-mirroring-controller");
    for round in ["10.244.0.20", "10.244.0.21"] {
        // What it does with these shows that it has been through all of them.
        endpoints(plane, "late", json!({"labels": {"made": "upstream"}}), subset(&[round], &[]));
        eventually("upstream mirrors", || {
            let slices = slices_of(plane, "late");
            slices.len() == 1 && ready(&slices[0], true) == set(&[round])
        });
    }
    let mut theirs = mirrored(plane);
    theirs.retain(|(service, ..)| service != "late");
    assert_eq!(theirs, ours, "upstream changes nothing");

    plane.stop_controller_manager();
    let before = mirrored(plane);
    let mut controller = start(plane, "second");
    controller.wait_for(&["everything is listed"]);
    let numbers = wait(plane, |numbers| numbers.leads && numbers.plans >= 4 && numbers.queue == 0);
    let Numbers { creates, updates, deletes, patches, .. } = numbers;
    println!("beside upstream's: {numbers:?}");
    assert_eq!((creates, updates, deletes, patches), (0, 0, 0, 0));
    assert_eq!(mirrored(plane), before, "nor do we");
    assert!(controller.terminate().success());
}

#[test]
fn without_the_component_the_controller_may_not_read_endpoints_and_says_so() {
    let plane = shared();
    plane.apply(CONTROLLER_RBAC);
    let mut controller = start(&plane, "without-the-right");
    let line = controller.wait_for(&["cannot list or watch endpoints"]);
    assert!(line.contains("endpoints is forbidden"), "{line}");
}
