//! What an agent costs its node.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_tests::control_plane::ControlPlane;

use crate::node::{TestNode, node};

const SERVICES: usize = 10_000;
/// Enough to keep the API server busy.
const WRITERS: usize = 12;

#[test]
fn ten_thousand_services_with_two_endpoints_each_fit_into_55_megabytes() {
    const MOST: usize = 55_000;
    let plane = ControlPlane::start(&Namespace::new().unwrap());
    let started = Instant::now();
    plane.apply(&node("memory", "zone-a"));
    plane.apply("{apiVersion: v1, kind: Namespace, metadata: {name: load}}");
    load(&plane);
    println!("{SERVICES} Services written in {:.1} s", started.elapsed().as_secs_f64());

    let test_node = TestNode::start(&plane, "memory");
    test_node.expect("load/svc-9999", Some(&["10.1.78.30:8080", "10.1.78.31:8080"]));
    let (resident, peak) = (memory(&test_node, "VmRSS"), memory(&test_node, "VmHWM"));
    println!("resident {resident} kB, at most {peak} kB");
    let log = test_node.agent.log.join("\n");
    assert!(resident < MOST, "{resident} kB are resident\n{log}");
}

/// Many clients at a time, as it would take minutes one by one.
fn load(plane: &ControlPlane) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            let (next, client) = (&next, plane.admin().clone());
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= SERVICES {
                        return;
                    }
                    for (path, object) in [
                        ("/api/v1/namespaces/load/services", service(number)),
                        ("/apis/discovery.k8s.io/v1/namespaces/load/endpointslices", slice(number)),
                    ] {
                        let reply = client.post(path, &object).unwrap();
                        assert_eq!(reply.status, 201, "{path} {object}: {}", reply.text);
                    }
                }
            });
        }
    });
}

fn service(number: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": format!("svc-{number}"), "labels": {"app": format!("svc-{number}")}},
        "spec": {
            "selector": {"app": format!("svc-{number}")},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        },
    })
}

/// As the stock controller writes it.
fn slice(number: usize) -> Value {
    let name = format!("svc-{number}");
    let endpoint = |which: usize| {
        let address = 2 * number + which;
        json!({
            "addresses": [format!("10.1.{}.{}", address / 256, address % 256)],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": format!("node-{}", address % 500),
            "zone": format!("zone-{}", address % 3),
            "targetRef": {"kind": "Pod", "namespace": "load", "name": format!("{name}-{which}")},
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{name}-x7k2p"),
            "labels": {
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [endpoint(0), endpoint(1)],
    })
}

/// A line of the process's status, in kB.
fn memory(test_node: &TestNode, which: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", test_node.agent.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(which)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
