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
/// How many of them get one slice more, of so many endpoints.
const LARGER: usize = 1_000;
const MORE: usize = 50;
/// Enough to keep the API server busy.
const WRITERS: usize = 12;

#[test]
fn ten_thousand_services_with_two_endpoints_each_fit_into_40_megabytes() {
    const MOST: usize = 40_000;
    /// An endpoint is 32 bytes in the index and 36 among the rules; the rest is slack.
    const MOST_PER_ENDPOINT: usize = 128;
    let plane = ControlPlane::start(&Namespace::new().unwrap());
    plane.apply(&node("memory", "zone-a"));
    plane.apply("{apiVersion: v1, kind: Namespace, metadata: {name: load}}");
    let (empty, _) = measure(&plane, "default/kubernetes");

    let started = Instant::now();
    write(&plane, SERVICES, |number| vec![service(number), slice(number)]);
    println!("{SERVICES} Services written in {:.1} s", started.elapsed().as_secs_f64());
    let (resident, log) = measure(&plane, "load/svc-9999");
    write(&plane, LARGER, |number| vec![larger_slice(number)]);
    let (larger, _) = measure(&plane, "load/svc-999");

    let per_endpoint = larger.saturating_sub(resident) * 1024 / (LARGER * MORE);
    let per_service = resident.saturating_sub(empty) * 1024 / SERVICES - 2 * per_endpoint;
    println!(
        "{per_endpoint} bytes per endpoint, {per_service} per Service and slice, {empty} kB without any"
    );
    assert!(resident < MOST, "{resident} kB are resident\n{log}");
    assert!(per_endpoint < MOST_PER_ENDPOINT, "{per_endpoint} bytes per endpoint\n{log}");
}

/// What an agent has resident once it has programmed everything, this Service too, and its log.
fn measure(plane: &ControlPlane, service: &str) -> (usize, String) {
    let test_node = TestNode::start(plane, "memory");
    assert!(test_node.endpoints(service).is_some_and(|all| !all.is_empty()), "{service}");
    let (resident, peak) = (memory(&test_node, "VmRSS"), memory(&test_node, "VmHWM"));
    println!("resident {resident} kB, at most {peak} kB");
    (resident, test_node.agent.log.join("\n"))
}

/// Many clients at a time, as it would take minutes one by one.
fn write(plane: &ControlPlane, count: usize, objects: impl Fn(usize) -> Vec<Value> + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            let (next, objects, client) = (&next, &objects, plane.admin().clone());
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    for object in objects(number) {
                        let path = match object["kind"].as_str() {
                            Some("Service") => "/api/v1/namespaces/load/services",
                            _ => "/apis/discovery.k8s.io/v1/namespaces/load/endpointslices",
                        };
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

fn slice(number: usize) -> Value {
    slice_of(number, "x7k2p", (0..2).map(|which| (1, 2 * number + which)))
}

fn larger_slice(number: usize) -> Value {
    slice_of(number, "m9q4s", (0..MORE).map(|which| (2, MORE * number + which)))
}

/// As the stock controller writes it: endpoints by the second byte of their address, and their number.
fn slice_of(number: usize, suffix: &str, endpoints: impl Iterator<Item = (usize, usize)>) -> Value {
    let name = format!("svc-{number}");
    let endpoint = |(range, address): (usize, usize)| {
        json!({
            "addresses": [format!("10.{range}.{}.{}", address / 256, address % 256)],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": format!("node-{}", address % 500),
            "zone": format!("zone-{}", address % 3),
            "targetRef": {"kind": "Pod", "namespace": "load", "name": format!("{name}-{address}")},
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{name}-{suffix}"),
            "labels": {
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints.map(endpoint).collect::<Vec<_>>(),
    })
}

/// A line of the process's status, in kB.
fn memory(test_node: &TestNode, which: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", test_node.agent.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(which)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
