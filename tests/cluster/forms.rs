//! The API server's two forms of the same objects mean the same.

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_tests::binary::{eventually, run_in, text};
use zw_tests::control_plane::ControlPlane;

use crate::node::{TestNode, node, received};

const NAMESPACE: &str = "forms";
const JSON: [&str; 2] = ["--kube-api-content-type", "application/json"];

#[test]
fn an_agent_does_the_same_with_protobuf_and_with_json_and_receives_less() {
    // Alone: what other tests write would make a difference in the kernel.
    let plane = ControlPlane::start(&Namespace::new().unwrap());
    plane.apply(&node("forms", "zone-a"));
    let addresses = json!({"status": {"addresses": [
        {"type": "InternalIP", "address": "192.0.2.9"},
        {"type": "InternalIP", "address": "2001:db8::9"},
    ]}});
    plane.patch("/api/v1/nodes/forms/status", &addresses);
    plane.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}"));
    for service in services() {
        plane.create(&format!("/api/v1/namespaces/{NAMESPACE}/services"), &service);
    }
    let ingress = json!({"status": {"loadBalancer": {"ingress": [
        {"ip": "203.0.113.5", "ipMode": "VIP"}, {"ip": "203.0.113.6", "ipMode": "Proxy"},
        {"hostname": "example.test"},
    ]}}});
    plane.patch(&format!("/api/v1/namespaces/{NAMESPACE}/services/balanced/status"), &ingress);
    for slice in slices() {
        plane.create(&slices_path(), &slice);
    }

    let protobuf = TestNode::start(&plane, "forms");
    let json = TestNode::start_with(&plane, "forms", &JSON);
    let (listed, as_json) = (dump(&protobuf, "nft"), dump(&json, "nft"));
    assert!(listed.contains("10.1.3.8 . 8080"), "{listed}");
    assert_eq!(listed, as_json, "listed");

    let ratio = received(&protobuf) / received(&json);
    println!("{} bytes of slices instead of {}, {ratio:.3}", received(&protobuf), received(&json));
    assert!(ratio < 0.5, "{ratio}");

    // What comes in watches: added, modified, relabelled, deleted.
    plane.create(&slices_path(), &slice("later", "plain", json!({}), &[endpoint("10.1.9.1")]));
    let path = |name: &str| format!("{}/{name}", slices_path());
    plane.patch(&path("plain-0"), &json!({"endpoints": [endpoint("10.1.9.2")]}));
    let label = json!({"endpointslice.kubernetes.io/for-zone": "zone-a"});
    plane.patch(&path("plain-1"), &json!({"metadata": {"labels": label}}));
    plane.delete(&path("sticky-0"));
    plane.delete(&format!("/api/v1/namespaces/{NAMESPACE}/services/outside"));
    for node in [&protobuf, &json] {
        let left = ["10.1.1.1:5353", "10.1.1.1:8080", "10.1.1.2:5353", "10.1.1.2:8080"];
        node.expect("forms/sticky", Some(&left));
        node.expect("forms/plain", Some(&["10.1.1.1:8080", "10.1.1.2:8080"]));
        node.expect("forms/outside", None);
    }
    // Not the chains: those that lie idle may differ, by which changes came together.
    eventually("both say the same", || dump(&protobuf, "text") == dump(&json, "text"));
}

/// All that the kernel holds.
fn dump(node: &TestNode, form: &str) -> String {
    let output = run_in(&node.namespace, &["dump-rules", "-o", form]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn slices_path() -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices")
}

/// One Service for each group of fields.
fn services() -> Vec<Value> {
    let http = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    let specs = [
        ("plain", json!({"ports": http})),
        ("dual", json!({"ports": http, "ipFamilyPolicy": "RequireDualStack"})),
        (
            "sticky",
            json!({
                "ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}],
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 90}},
            }),
        ),
        ("near", json!({"ports": http, "internalTrafficPolicy": "Local"})),
        (
            "outside",
            json!({
                "ports": [{"name": "http", "port": 80, "nodePort": 30081}],
                "type": "NodePort",
                "externalIPs": ["198.51.100.7"],
            }),
        ),
        (
            "balanced",
            json!({
                "ports": [{"name": "http", "port": 80, "nodePort": 30082}],
                "type": "LoadBalancer",
                "externalTrafficPolicy": "Local",
                "healthCheckNodePort": 30083,
                "loadBalancerSourceRanges": ["192.0.2.0/24", "2001:db8::/32"],
            }),
        ),
        ("headless", json!({"ports": http, "clusterIP": "None"})),
        ("elsewhere", json!({"type": "ExternalName", "externalName": "example.test"})),
    ];
    let service = |(name, spec): (&str, Value)| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    specs.into_iter().map(service).collect()
}

fn slices() -> Vec<Value> {
    let none = || json!({});
    let zone = |zone: &str| json!({"endpointslice.kubernetes.io/for-zone": zone});
    let mut slices = Vec::new();
    for service in ["plain", "sticky", "near", "outside", "balanced", "headless"] {
        let name = |number: usize| format!("{service}-{number}");
        let many: Vec<Value> = (1..100).map(|last| endpoint(&format!("10.1.3.{last}"))).collect();
        slices.push(slice(&name(0), service, none(), &many));
        slices.push(slice(&name(1), service, none(), &[endpoint("10.1.1.1"), here("10.1.1.2")]));
    }
    let v6 = [endpoint("fd00:10:1::1"), here("fd00:10:1::2")];
    let mut dual = slice("dual-v6", "dual", none(), &v6);
    dual["addressType"] = "IPv6".into();
    slices.push(dual);
    slices.push(slice("dual-a", "dual", zone("zone-a"), &[endpoint("10.1.2.1")]));
    slices.push(slice("dual-b", "dual", zone("zone-b"), &[endpoint("10.1.2.2")]));
    let region = json!({"endpointslice.kubernetes.io/for-region": "region-1"});
    slices.push(slice("dual-r", "dual", region, &[endpoint("10.1.2.3")]));
    slices
}

fn slice(name: &str, service: &str, mut labels: Value, endpoints: &[Value]) -> Value {
    labels["kubernetes.io/service-name"] = service.into();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}, {"name": "dns", "port": 5353, "protocol": "UDP"}],
        "endpoints": endpoints,
    })
}

/// One of another node, with everything that the stock controller writes.
fn endpoint(address: &str) -> Value {
    // The last digit decides how it is.
    let odd = address.ends_with(['3', '7']);
    json!({
        "addresses": [address],
        "conditions": {"ready": !odd, "serving": true, "terminating": odd},
        "nodeName": "another",
        "zone": "zone-a",
        "hints": {"forZones": [{"name": "zone-a"}, {"name": "zone-b"}]},
        "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": format!("pod-{}", address.replace([':', '.'], "-"))},
    })
}

/// One of this node, with the least that an endpoint may have.
fn here(address: &str) -> Value {
    json!({"addresses": [address], "nodeName": "forms"})
}
