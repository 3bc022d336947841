//! The zone-slice controller beside a real API server and controller manager, with agents in different
//! zones and connections that never pause: turned on, scaled through both thresholds, nodes moved, its
//! leader killed, turned off. No connection may fail.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zw_lab::{Answer, Lab, Namespace, Protocol};
use zw_tests::binary::{Agent, eventually};
use zw_tests::control_plane::{Client, ControlPlane, Relay};

use crate::node::{RBAC, endpoints};

/// What the controller may do, and no more: what it is installed with.
pub(crate) const CONTROLLER_RBAC: &str =
    include_str!("../../deploy/components/controller/rbac.yaml");

const NAMESPACE: &str = "zoned";
const SERVICE: &str = "zoned/api";
const CLIENT: &str = "client";
const PODS: &str = "pods";
/// All that ever serve; a pod that is gone from the cluster still answers, as one that ends gracefully.
const MOST_PODS: usize = 36;
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
const PACE: Duration = Duration::from_millis(5);

fn pod_address(number: usize) -> String {
    format!("10.244.{}.{}", number % 3, number + 1)
}

/// A node with an agent, and all pods and a client around it.
struct Place {
    name: &'static str,
    lab: Lab,
    /// Runs as long as this.
    _agent: Agent,
    _relay: Relay,
}

impl Place {
    fn new(plane: &ControlPlane, name: &'static str, zone: &str) -> Self {
        node(plane, name, zone);
        let mut lab = Lab::new(&["192.0.2.10".parse().unwrap()]).unwrap();
        lab.add_host(CLIENT, &["10.244.9.1".parse().unwrap()]).unwrap();
        let addresses: Vec<IpAddr> =
            (0..MOST_PODS).map(|number| pod_address(number).parse().unwrap()).collect();
        lab.add_host(PODS, &addresses).unwrap();
        lab.serve(PODS, &[8080]).unwrap();
        let relay = plane.reach_from(lab.node());
        let kubeconfig = plane.kubeconfig_for_service_account("kube-system", "zoneward");
        let args = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--node-name", name];
        let mut agent = Agent::start(lab.node(), &args);
        agent.wait_for(&["synced"]);
        Self { name, lab, _agent: agent, _relay: relay }
    }

    /// The pods that the kernel sends connections to.
    fn pods(&self) -> Vec<usize> {
        let all = endpoints(self.lab.node(), SERVICE).unwrap_or_default();
        let number = |text: &String| {
            let address = text.split(':').next().unwrap();
            address.rsplit('.').next().unwrap().parse::<usize>().unwrap() - 1
        };
        let mut pods: Vec<usize> = all.iter().map(number).collect();
        pods.sort_unstable();
        pods
    }

    #[track_caller]
    fn expect(&self, what: &str, holds: impl Fn(&[usize]) -> bool) {
        eventually(&format!("{}: {what}; has {:?}", self.name, self.pods()), || {
            holds(&self.pods())
        });
    }

    /// Bytes of slices it has received so far.
    fn received(&self) -> u64 {
        let client = Client::plain(self.lab.node(), "http://127.0.0.1:10249");
        let text = client.get("/metrics").unwrap().text;
        let series = "zoneward_watch_bytes_total{resource=\"endpointslices\"} ";
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.expect("the agent counts").parse::<f64>().unwrap() as u64
    }
}

/// A Node in a zone.
fn node(plane: &ControlPlane, name: &str, zone: &str) {
    let labels = json!({"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "r"});
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    plane.apply(&node.to_string());
}

/// Pods of these numbers exist, each on the node of its zone, and no others.
fn scale(plane: &ControlPlane, count: usize) {
    for number in 0..MOST_PODS {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/api-{number}");
        let there = plane.admin().get(&path).unwrap().ok();
        if number < count && !there {
            pod(plane, number, true);
        } else if number >= count && there {
            plane.delete(&format!("{path}?gracePeriodSeconds=0"));
        }
    }
}

fn pod(plane: &ControlPlane, number: usize, ready: bool) {
    let ready = if ready { "True" } else { "False" };
    let (address, node) = (pod_address(number), ["zc-a", "zc-b", "zc-c"][number % 3]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("api-{number}"), "namespace": NAMESPACE, "labels": {"app": "api"}},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "c", "ports": [{"containerPort": 8080}]}],
        },
        "status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": ready}],
        },
    });
    plane.apply(&pod.to_string());
}

fn annotate(plane: &ControlPlane, asked: Value) {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/services/api");
    let annotations = json!({"endpointslice.kubernetes.io/same-zone": asked});
    plane.patch(&path, &json!({"metadata": {"annotations": annotations}}));
}

fn approach(plane: &ControlPlane) -> String {
    let service = plane.get(&format!("/api/v1/namespaces/{NAMESPACE}/services/api"));
    service["metadata"]["annotations"]["zoneward/approach"].as_str().unwrap_or("none").to_owned()
}

/// Our slices.
fn groups(plane: &ControlPlane) -> Vec<Value> {
    let ours = "labelSelector=endpointslice.kubernetes.io%2Fmanaged-by%3Dzoneward-controller";
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices?{ours}");
    plane.get(&path)["items"].as_array().cloned().unwrap_or_default()
}

/// A controller with its own identity.
fn controller(plane: &ControlPlane, kubeconfig: &Path, number: u16) -> Agent {
    let (identity, bind) =
        (format!("controller-{number}"), format!("127.0.0.1:{}", 10258 + number));
    let args = [
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--identity",
        &identity,
        "--bind-address",
        &bind,
        "--settle",
        "1",
    ];
    Agent::start_command(plane.namespace(), "controller", &args)
}

/// Connects without a pause until it is told to stop; returns what failed.
fn travel(lab: &Lab, vip: SocketAddr, done: &AtomicBool, count: &AtomicUsize) -> Vec<String> {
    let start = Instant::now();
    let mut failed = Vec::new();
    while !done.load(Ordering::Relaxed) && start.elapsed() < LONGEST {
        let answer = lab.probe(CLIENT, vip, Protocol::Tcp, PATIENCE);
        count.fetch_add(1, Ordering::Relaxed);
        if !matches!(answer, Answer::Answered { .. }) {
            failed.push(format!("after {:?}: {answer}", start.elapsed()));
        }
        thread::sleep(PACE);
    }
    failed
}

struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes some pods unready and ready again; returns the bytes each place received for that.
fn churn(plane: &ControlPlane, places: [&Place; 2]) -> [u64; 2] {
    const CHANGED: usize = 9;
    let before = places.map(quiet);
    for ready in [false, true] {
        for number in 0..CHANGED {
            pod(plane, number, ready);
            // One change after the other: each is in every slice before the next one is made.
            eventually("the change is in every slice", || is_in_every_slice(plane, number, ready));
        }
    }
    let after = places.map(quiet);
    [after[0] - before[0], after[1] - before[1]]
}

fn is_in_every_slice(plane: &ControlPlane, number: usize, ready: bool) -> bool {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
    let slices = plane.get(&path)["items"].as_array().cloned().unwrap_or_default();
    let address = json!([pod_address(number)]);
    let members = slices.iter().filter_map(|slice| slice["endpoints"].as_array()).flatten();
    members
        .filter(|endpoint| endpoint["addresses"] == address)
        .all(|endpoint| endpoint["conditions"]["ready"] == ready)
}

/// The bytes a place has received once no more come.
fn quiet(place: &Place) -> u64 {
    let mut received = place.received();
    eventually("no more bytes come", || {
        thread::sleep(Duration::from_millis(500));
        let before = std::mem::replace(&mut received, place.received());
        before == received
    });
    received
}

fn zone_of(pods: &[usize], zone: usize) -> bool {
    !pods.is_empty() && pods.iter().all(|pod| pod % 3 == zone)
}

fn prepare(plane: &mut ControlPlane) -> (SocketAddr, PathBuf) {
    plane.start_controller_manager("endpointslice-controller");
    plane.apply(RBAC);
    plane.apply(CONTROLLER_RBAC);
    plane.apply(
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            .to_string(),
    );
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "api", "namespace": NAMESPACE},
        "spec": {"selector": {"app": "api"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    });
    let service = plane.apply(&service.to_string());
    let address = service[0]["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
    let kubeconfig = plane.kubeconfig_for_service_account("kube-system", "zoneward-controller");
    (SocketAddr::new(address, 80), kubeconfig)
}

#[test]
fn zones_come_change_and_go_without_a_failed_connection() {
    // Alone: Nodes of other tests would count too.
    let mut plane = ControlPlane::start(&Namespace::new().unwrap());
    let (vip, kubeconfig) = prepare(&mut plane);
    let plane = &plane;
    let (a, b) = (Place::new(plane, "zc-a", "zone-a"), Place::new(plane, "zc-b", "zone-b"));
    node(plane, "zc-c", "zone-c");
    scale(plane, 9);
    for place in [&a, &b] {
        place.expect("all nine", |pods| pods.len() == 9);
    }
    let (done, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let failed = thread::scope(|scope| {
        let (done, count) = (&done, &count);
        let loops = [&a.lab, &b.lab].map(|lab| scope.spawn(move || travel(lab, vip, done, count)));
        // Also if something panics: the loops would not end.
        let guard = Done(done);
        story(plane, &kubeconfig, &a, &b);
        drop(guard);
        loops.map(|one| one.join().expect("a loop does not panic")).concat()
    });
    let count = count.load(Ordering::Relaxed);
    println!("{count} connections, {} failed", failed.len());
    assert_eq!(failed, Vec::<String>::new(), "of {count} connections");
    assert!(count > 500, "too few connections to mean anything: {count}");
}

fn story(plane: &ControlPlane, kubeconfig: &Path, a: &Place, b: &Place) {
    let mut first = controller(plane, kubeconfig, 0);
    first.wait_for(&["leadership changed", "leads=true"]);
    let mut second = controller(plane, kubeconfig, 1);
    second.wait_for(&["serving health"]);

    // Asked for, but with too few pods.
    annotate(plane, "Prefer".into());
    eventually("told that it is balanced", || approach(plane) == "Balanced");
    assert_eq!(groups(plane).len(), 0);

    // Through the upper threshold.
    scale(plane, 11);
    a.expect("eleven", |pods| pods.len() == 11);
    assert_eq!((approach(plane).as_str(), groups(plane).len()), ("Balanced", 0));
    scale(plane, 12);
    a.expect("all twelve, before they are divided or a's own", |pods| {
        pods.len() == 12 || pods.len() == 4
    });
    eventually("Prefer is in force", || approach(plane) == "Prefer");
    a.expect("zone a's own", |pods| zone_of(pods, 0) && pods.len() == 4);
    b.expect("zone b's own", |pods| zone_of(pods, 1) && pods.len() == 4);

    // Nodes move: between zones that have groups, into one that has none yet, and home again.
    node(plane, "zc-spare", "zone-b");
    move_node(plane, "zc-b", "zone-c");
    b.expect("other endpoints", |pods| !pods.is_empty() && !zone_of(pods, 0));
    move_node(plane, "zc-spare", "zone-d");
    move_node(plane, "zc-b", "zone-d");
    eventually("zone d has a group", || {
        groups(plane).iter().any(|group| zone_label(group) == "zone-d")
    });
    b.expect("zone d's group", |pods| !pods.is_empty() && pods.len() < 12);
    move_node(plane, "zc-b", "zone-b");
    plane.delete("/api/v1/nodes/zc-spare");
    eventually("zone d has no group", || {
        groups(plane).iter().all(|group| zone_label(group) != "zone-d")
    });

    // The leader dies in the middle of a change.
    scale(plane, 30);
    first.kill();
    scale(plane, MOST_PODS);
    second.wait_for(&["leadership changed", "leads=true"]);
    let members = || -> usize {
        let members = |group: &Value| group["endpoints"].as_array().map_or(0, Vec::len);
        groups(plane).iter().map(members).sum()
    };
    eventually("every pod is in a group", || members() == MOST_PODS);
    let divided = churn(plane, [a, b]);

    // Through the lower threshold, and back to what was.
    scale(plane, 6);
    eventually("balanced again", || approach(plane) == "Balanced" && groups(plane).is_empty());
    for place in [a, b] {
        place.expect("all six", |pods| pods.len() == 6);
    }
    scale(plane, MOST_PODS);
    eventually("Prefer is in force again", || {
        approach(plane) == "Prefer" && members() == MOST_PODS
    });
    annotate(plane, Value::Null);
    eventually("nothing is left", || approach(plane) == "none" && groups(plane).is_empty());
    for place in [a, b] {
        place.expect("all pods", |pods| pods.len() == MOST_PODS);
    }
    let undivided = churn(plane, [a, b]);
    let service = plane.get(&format!("/api/v1/namespaces/{NAMESPACE}/services/api"));
    assert_eq!(service["metadata"]["labels"], Value::Null, "nothing of ours is left");
    for (place, (before, after)) in [a, b].iter().zip(undivided.iter().zip(divided)) {
        println!(
            "{}: {before} B of slices for 18 changes without the controller, {after} B with it, {:.2}",
            place.name,
            after as f64 / *before as f64
        );
        assert!(after * 2 < *before, "{}: {after} of {before}", place.name);
    }
    let events = plane.get(&format!("/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"));
    let reasons: Vec<&str> =
        events["items"].as_array().unwrap().iter().filter_map(|e| e["reason"].as_str()).collect();
    for reason in ["ApproachStarted", "ApproachStopped"] {
        assert!(reasons.contains(&reason), "{reasons:?}");
    }
    assert!(second.terminate().success());
}

fn zone_label(group: &Value) -> &str {
    group["metadata"]["labels"]["endpointslice.kubernetes.io/for-zone"].as_str().unwrap_or_default()
}

fn move_node(plane: &ControlPlane, name: &str, zone: &str) {
    let labels = json!({"topology.kubernetes.io/zone": zone});
    plane.patch(&format!("/api/v1/nodes/{name}"), &json!({"metadata": {"labels": labels}}));
}
