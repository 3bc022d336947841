//! The zone-slice controller with many Services: every slice is written once, a restart writes nothing,
//! and a dry run says so.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_tests::binary::{Agent, run_in, text};
use zw_tests::control_plane::{Client, ControlPlane};

use crate::zone_place::CONTROLLER_RBAC;

const SERVICES: usize = 200;
const ENDPOINTS: usize = 500;
const PER_SLICE: usize = 100;
const LONGEST: Duration = Duration::from_secs(400);

#[test]
fn many_services_are_written_once_and_a_restart_writes_nothing() {
    let plane = ControlPlane::start(&Namespace::new().unwrap());
    plane.apply(CONTROLLER_RBAC);
    plane.apply("{apiVersion: v1, kind: Namespace, metadata: {name: many}}");
    for zone in ["a", "b", "c"] {
        let labels = json!({"topology.kubernetes.io/zone": zone});
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("node-{zone}"), "labels": labels}});
        plane.apply(&node.to_string());
    }
    thread::scope(|scope| {
        for part in 0..4 {
            let client = plane.admin().clone();
            scope
                .spawn(move || (part..SERVICES).step_by(4).for_each(|n| write_service(&client, n)));
        }
    });
    let kubeconfig = plane.kubeconfig_for_service_account("kube-system", "zoneward-controller");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let args = [
        "--kubeconfig",
        kubeconfig,
        "--kube-api-qps",
        "2000",
        "--kube-api-burst",
        "2000",
        "--concurrent-syncs",
        "20",
        "--settle",
        "1",
        "--identity",
        "first",
    ];

    let dry = run_in(plane.namespace(), &["controller", "--dry-run", "--kubeconfig", kubeconfig]);
    let said = text(&dry.stdout);
    assert!(dry.status.success(), "{}", text(&dry.stderr));
    let creates = said.lines().filter(|line| line.contains(": create a slice for zone ")).count();
    assert_eq!(creates, SERVICES * 6, "two slices for each of three zones");
    assert_eq!(
        said.lines().filter(|line| line.contains(": patch the Service: ")).count(),
        SERVICES
    );
    assert_eq!(groups(&plane), 0, "and nothing was written");

    let start = Instant::now();
    let first = Agent::start_command(plane.namespace(), "controller", &args);
    let numbers = wait(&plane, |numbers| numbers.patches >= SERVICES as u64);
    println!(
        "{SERVICES} Services of {ENDPOINTS} endpoints after {:?}: {numbers:?}",
        start.elapsed()
    );
    let want = Numbers { creates: 6 * SERVICES as u64, patches: SERVICES as u64, ..numbers };
    assert_eq!((numbers, numbers.updates, numbers.deletes), (want, 0, 0));
    assert_eq!(groups(&plane), 6 * SERVICES);
    assert!(first.terminate().success());

    let mut second = Agent::start_command(plane.namespace(), "controller", &args);
    second.wait_for(&["everything is listed"]);
    let numbers = wait(&plane, |numbers| {
        numbers.leads && numbers.plans >= SERVICES as u64 && numbers.queue == 0
    });
    println!("after a restart: {numbers:?}");
    assert_eq!((numbers.creates, numbers.updates, numbers.deletes, numbers.patches), (0, 0, 0, 0));
    let dry = run_in(plane.namespace(), &["controller", "--dry-run", "--kubeconfig", kubeconfig]);
    assert_eq!(
        (text(&dry.stdout).as_str(), dry.status.success()),
        ("", true),
        "nothing left to do"
    );
}

/// What a controller has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) creates: u64,
    pub(crate) updates: u64,
    pub(crate) deletes: u64,
    pub(crate) patches: u64,
    pub(crate) queue: u64,
    pub(crate) plans: u64,
    pub(crate) leads: bool,
}

/// Waits for the controller's numbers to be these.
pub(crate) fn wait(plane: &ControlPlane, holds: impl Fn(&Numbers) -> bool) -> Numbers {
    let client = Client::plain(plane.namespace(), "http://127.0.0.1:10258");
    let end = Instant::now() + LONGEST;
    loop {
        if let Ok(reply) = client.get("/metrics") {
            let of = |series: &str| -> u64 {
                let line = reply
                    .text
                    .lines()
                    .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
                line.and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0) as u64
            };
            let writes =
                |verb: &str| of(&format!("zoneward_controller_writes_total{{verb=\"{verb}\"}}"));
            let numbers = Numbers {
                creates: writes("create"),
                updates: writes("update"),
                deletes: writes("delete"),
                patches: writes("patch-service"),
                queue: of("zoneward_controller_queue_depth"),
                plans: of("zoneward_controller_plan_seconds_count"),
                leads: of("zoneward_controller_leader") == 1,
            };
            if holds(&numbers) {
                return numbers;
            }
        }
        assert!(Instant::now() < end, "not in time");
        thread::sleep(Duration::from_millis(50));
    }
}

fn groups(plane: &ControlPlane) -> usize {
    let ours = "labelSelector=endpointslice.kubernetes.io%2Fmanaged-by%3Dzoneward-controller";
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/many/endpointslices?{ours}");
    plane.get(&path)["items"].as_array().map_or(0, Vec::len)
}

/// A Service and its slices as the stock controller makes them.
fn write_service(client: &Client, number: usize) {
    let name = format!("svc-{number}");
    let annotations = json!({"endpointslice.kubernetes.io/same-zone": "Prefer"});
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "annotations": annotations},
        "spec": {"ports": [{"name": "http", "port": 80}]},
    });
    post(client, "/api/v1/namespaces/many/services", &service);
    let endpoint = |i: usize| {
        let address = Ipv4Addr::from_bits(0x0b00_0000 + (number * ENDPOINTS + i) as u32 + 1);
        let zone = ["a", "b", "c"][i % 3];
        json!({"addresses": [address.to_string()], "conditions": {"ready": true},
            "nodeName": format!("node-{zone}"), "zone": zone})
    };
    for first in (0..ENDPOINTS).step_by(PER_SLICE) {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("{name}-{first}"), "labels": {"kubernetes.io/service-name": name}},
            "ports": [{"name": "http", "port": 8080}],
            "endpoints": (first..first + PER_SLICE).map(endpoint).collect::<Vec<Value>>(),
        });
        post(client, "/apis/discovery.k8s.io/v1/namespaces/many/endpointslices", &slice);
    }
}

fn post(client: &Client, path: &str, object: &Value) {
    let reply = client.post(path, object).unwrap();
    assert_eq!(reply.status, 201, "{}", reply.text);
}
