//! Slices for other zones do not travel to a node.

use std::thread;

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_tests::control_plane::{Client, ControlPlane};

use crate::node::{TestNode, node, received, service};

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
const SLICES_PER_ZONE: usize = 100;
const ENDPOINTS: usize = 20;

#[test]
fn a_node_receives_its_zones_share_of_the_bytes() {
    // Alone: what other tests write would count too.
    let plane = ControlPlane::start(&Namespace::new().unwrap());
    for zone in ZONES {
        plane.apply(&node(&format!("share-{zone}"), zone));
    }
    plane.apply(&service("share", 30));
    thread::scope(|scope| {
        for (number, zone) in ZONES.into_iter().enumerate() {
            let client = plane.admin().clone();
            scope.spawn(move || write_slices(&client, number, zone));
        }
    });

    let start = |name: &str| TestNode::start(&plane, name);
    let (a, b, everywhere) = (start("share-zone-a"), start("share-zone-b"), start("share-nowhere"));
    let endpoints = |node: &TestNode| node.endpoints("share/api").unwrap();
    let (of_a, of_b, of_all) = (endpoints(&a), endpoints(&b), endpoints(&everywhere));
    assert_eq!(of_a.len(), SLICES_PER_ZONE * ENDPOINTS);
    assert_eq!(of_b.len(), SLICES_PER_ZONE * ENDPOINTS);
    assert_eq!(of_all.len(), 3 * SLICES_PER_ZONE * ENDPOINTS);
    assert!(of_a.iter().all(|endpoint| endpoint.starts_with("10.200.")), "{of_a:?}");
    assert!(of_b.iter().all(|endpoint| endpoint.starts_with("10.201.")), "{of_b:?}");

    let all = received(&everywhere);
    for (name, node) in [("zone-a", &a), ("zone-b", &b)] {
        let share = received(node) / all;
        println!("{name}: {} of {all} bytes of slices, {share:.3}", received(node));
        assert!((0.25..0.45).contains(&share), "{name}: {share}");
    }
}

fn write_slices(client: &Client, zone_number: usize, zone: &str) {
    for number in 0..SLICES_PER_ZONE {
        let slice = slice(zone_number, zone, number);
        let path = "/apis/discovery.k8s.io/v1/namespaces/share/endpointslices";
        let reply = client.post(path, &slice).unwrap();
        assert_eq!(reply.status, 201, "{}", reply.text);
    }
}

fn slice(zone_number: usize, zone: &str, number: usize) -> Value {
    let endpoint = |i: usize| {
        json!({
            "addresses": [format!("10.{}.{number}.{}", 200 + zone_number, i + 1)],
            "conditions": {"ready": true},
            "nodeName": format!("node-{i}"),
            "zone": zone,
        })
    };
    let labels = json!({
        "kubernetes.io/service-name": "api",
        "endpointslice.kubernetes.io/for-zone": zone,
    });
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": format!("api-{zone}-{number}"), "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": (0..ENDPOINTS).map(endpoint).collect::<Vec<_>>(),
    })
}
