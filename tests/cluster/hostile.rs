//! What a tenant may write, whatever it is, harms nobody else.

use serde_json::{Value, json};
use zw_tests::binary::eventually;
use zw_tests::control_plane::{ControlPlane, shared};

use crate::node::{TestNode, node, service, slice, slice_path};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/hostile/endpointslices";

fn hostile_slice(name: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "api"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": [{"addresses": ["10.244.6.1"]}],
    })
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

/// How often the agent complained of an object so far.
fn complaints(node: &mut TestNode, name: &str) -> usize {
    node.agent.read_on();
    let of_it =
        |line: &&String| line.contains("WARN") && line.ends_with(&format!("hostile/{name}"));
    node.agent.log.iter().filter(of_it).count()
}

/// The API server does not take it, so no agent ever sees it.
fn refused(plane: &ControlPlane, path: &str, object: &Value) {
    let reply = plane.admin().post(path, object).unwrap();
    assert_eq!(reply.status, 422, "{}", reply.text);
}

#[test]
fn hostile_objects_cost_themselves_and_one_line_each() {
    let plane = shared();
    plane.apply(&node("hostile", "zone-a"));
    let status = "{apiVersion: v1, kind: Node, metadata: {name: hostile, labels: {topology.kubernetes.io/zone: \
                  zone-a}}, status: {addresses: [{type: InternalIP, address: 192.0.2.77}]}}";
    plane.apply(status);
    let test_node = &mut TestNode::start(&plane, "hostile");
    plane.apply(&service("hostile", 40));
    plane.apply(&service("neighbour", 41));
    plane.apply(&slice("neighbour", "api-1", "", &["10.244.5.1"]));

    let thousand: Vec<Value> = (0..1000)
        .map(|i| json!({"addresses": [format!("10.245.{}.{}", i / 250, i % 250 + 1)]}))
        .collect();
    plane.create(SLICES, &with(hostile_slice("thousand"), "/endpoints", json!(thousand)));
    let own = json!([{"addresses": ["192.0.2.77"]}]);
    plane.create(SLICES, &with(hostile_slice("own-address"), "/endpoints", own));
    let huge = json!({"huge": "x".repeat(250 << 10)});
    plane.create(SLICES, &with(hostile_slice("huge"), "/metadata/annotations", huge));

    // Those it has to complain about.
    let fqdn = with(hostile_slice("fqdn"), "/addressType", json!("FQDN"));
    let names = json!([{"addresses": ["example.test"]}]);
    plane.create(SLICES, &with(fqdn, "/endpoints", names));
    plane.create(SLICES, &with(hostile_slice("nobodys"), "/metadata/labels", json!({})));
    let no_number = json!([{"name": "http"}]);
    plane.create(SLICES, &with(hostile_slice("all-ports"), "/ports", no_number));
    let balanced = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "loopback"},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.7.42", "ports": [{"port": 80}]},
    });
    plane.create("/api/v1/namespaces/hostile/services", &balanced);
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "127.0.0.1"}]}}});
    plane.patch("/api/v1/namespaces/hostile/services/loopback/status", &ingress);

    // Those that the API server keeps from everyone.
    for address in ["127.0.0.1", "169.254.1.1", "224.0.0.1", "0.0.0.0"] {
        let endpoints = json!([{"addresses": [address]}]);
        refused(&plane, SLICES, &with(hostile_slice("odd"), "/endpoints", endpoints));
    }
    let twice = json!([{"name": "http", "port": 1}, {"name": "http", "port": 2}]);
    refused(&plane, SLICES, &with(hostile_slice("twice"), "/ports", twice));

    eventually("the hostile Service has all it is due", || {
        test_node.endpoints("hostile/api").is_some_and(|all| all.len() == 1002)
    });
    test_node.expect("neighbour/api", Some(&["10.244.5.1:8080"]));
    test_node.expect("hostile/loopback", Some(&[]));
    for name in ["fqdn", "nobodys", "all-ports", "loopback"] {
        eventually(name, || complaints(test_node, name) == 1);
    }

    // Another version is another line; what is fine gets none.
    let touched = json!({"metadata": {"labels": {"touched": "yes"}}});
    plane.patch(&slice_path("hostile", "fqdn"), &touched);
    eventually("a second line", || complaints(test_node, "fqdn") == 2);
    for name in ["nobodys", "all-ports", "loopback"] {
        assert_eq!(complaints(test_node, name), 1, "{name}");
    }
    for name in ["thousand", "own-address", "huge"] {
        assert_eq!(complaints(test_node, name), 0, "{name}");
    }
    plane.apply(&slice("neighbour", "api-2", "", &["10.244.5.2"]));
    test_node.expect("neighbour/api", Some(&["10.244.5.1:8080", "10.244.5.2:8080"]));
}
