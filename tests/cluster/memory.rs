//! What an agent costs its node.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_tests::control_plane::ControlPlane;

use crate::node::{TestNode, node};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/load/endpointslices";
const SERVICES: usize = 10_000;
/// That many of them get slices of as many more endpoints, for what an endpoint takes.
const WIDE: usize = 500;
const MORE: usize = 100;
/// Enough to keep the API server busy.
const WRITERS: usize = 12;

#[test]
fn ten_thousand_services_with_two_endpoints_each_fit_into_45_megabytes() {
    const MOST: usize = 45_000;
    /// In bytes, of what is the process's own: not its binary's. Among them is what the first sync needed
    /// and the allocator kept, more or less of it.
    const MOST_PER_SERVICE: usize = 2600;
    const MOST_PER_ENDPOINT: usize = 250;
    let plane = ControlPlane::start(&Namespace::new().unwrap());
    let started = Instant::now();
    plane.apply(&node("memory", "zone-a"));
    plane.apply("{apiVersion: v1, kind: Namespace, metadata: {name: load}}");
    let alone = Memory::of(&TestNode::start(&plane, "memory"));
    println!("nothing: {alone:?}");
    create(&plane, SERVICES, |number| {
        [("/api/v1/namespaces/load/services", service(number)), (SLICES, slice(number))]
    });
    println!("{SERVICES} Services written in {:.1} s", started.elapsed().as_secs_f64());

    let test_node = TestNode::start(&plane, "memory");
    test_node.expect("load/svc-9999", Some(&["10.1.78.30:8080", "10.1.78.31:8080"]));
    let loaded = Memory::of(&test_node);
    println!("{SERVICES} Services with two endpoints: {loaded:?}");
    let log = test_node.agent.log.join("\n");
    assert!(loaded.resident < MOST, "{loaded:?}\n{log}");
    drop(test_node);

    create(&plane, WIDE, |number| [(SLICES, wide_slice(number))]);
    let wide = Memory::of(&TestNode::start(&plane, "memory"));
    println!("{} endpoints more: {wide:?}", WIDE * MORE);
    let endpoint = (wide.own - loaded.own) * 1024 / (WIDE * MORE);
    let service = (loaded.own - alone.own) * 1024 / SERVICES - 2 * endpoint;
    println!("a Service takes {service} bytes and each of its endpoints {endpoint}");
    assert!(service < MOST_PER_SERVICE, "{service} bytes for a Service");
    assert!(endpoint < MOST_PER_ENDPOINT, "{endpoint} bytes for an endpoint");
}

/// What an agent has after its first sync, in kB.
#[derive(Debug)]
#[expect(dead_code, reason = "the peak is printed")]
struct Memory {
    resident: usize,
    /// Without what is mapped from files.
    own: usize,
    peak: usize,
}

impl Memory {
    fn of(test_node: &TestNode) -> Self {
        let status = fs::read_to_string(format!("/proc/{}/status", test_node.agent.id())).unwrap();
        let line = |which: &str| -> usize {
            let line = status.lines().find(|line| line.starts_with(which)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        Self { resident: line("VmRSS"), own: line("RssAnon"), peak: line("VmHWM") }
    }
}

/// Many clients at a time, as it would take minutes one by one.
fn create<const N: usize>(
    plane: &ControlPlane,
    count: usize,
    objects: impl Fn(usize) -> [(&'static str, Value); N] + Sync,
) {
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
                    for (path, object) in objects(number) {
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

/// Two endpoints of a Service, as the stock controller writes them.
fn slice(number: usize) -> Value {
    let endpoints = [0, 1].map(|which| endpoint(1, 2 * number + which, number));
    slice_of(number, &format!("svc-{number}-x7k2p"), &endpoints)
}

/// Many more of them.
fn wide_slice(number: usize) -> Value {
    let endpoints: Vec<Value> =
        (0..MORE).map(|which| endpoint(2, MORE * number + which, number)).collect();
    slice_of(number, &format!("svc-{number}-w4d9q"), &endpoints)
}

fn slice_of(number: usize, name: &str, endpoints: &[Value]) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/service-name": format!("svc-{number}"),
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    })
}

fn endpoint(network: usize, address: usize, service: usize) -> Value {
    json!({
        "addresses": [format!("10.{network}.{}.{}", address / 256, address % 256)],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "nodeName": format!("node-{}", address % 500),
        "zone": format!("zone-{}", address % 3),
        "targetRef": {"kind": "Pod", "namespace": "load", "name": format!("svc-{service}-{address}")},
    })
}
