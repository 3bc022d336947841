//! Places of a cluster with zones: nodes with agents in different zones, pods and clients around them, the
//! controller beside, and connections that never pause.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use zw_lab::{Answer, Lab, Protocol};
use zw_tests::binary::{Agent, eventually, run_in, text};
use zw_tests::control_plane::{Client, ControlPlane, Relay};

use crate::node::{RBAC, endpoints};

/// What the controller may do, and no more: what it is installed with.
pub(crate) const CONTROLLER_RBAC: &str =
    include_str!("../../deploy/components/controller/rbac.yaml");

pub(crate) const NAMESPACE: &str = "zoned";
const SERVICE: &str = "zoned/api";
const CLIENT: &str = "client";
/// The hosts of the pods of each zone.
const PODS: [&str; 3] = ["pods-a", "pods-b", "pods-c"];
/// All that ever serve; a pod that is gone from the cluster still answers, as one that ends gracefully.
pub(crate) const MOST_PODS: usize = 36;
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
const PACE: Duration = Duration::from_millis(5);

pub(crate) fn pod_address(number: usize) -> String {
    format!("10.244.{}.{}", number % 3, number + 1)
}

/// A node with an agent, and all pods and a client around it.
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) lab: Lab,
    /// Where its agent answers questions.
    folder: TempDir,
    /// Runs as long as this.
    _agent: Agent,
    _relay: Relay,
}

impl Place {
    pub(crate) fn new(plane: &ControlPlane, name: &'static str, zone: &str) -> Self {
        node(plane, name, zone);
        let mut lab = Lab::new(&["192.0.2.10".parse().unwrap()]).unwrap();
        lab.add_host(CLIENT, &["10.244.9.1".parse().unwrap()]).unwrap();
        for (zone, host) in PODS.into_iter().enumerate() {
            let numbers = (zone..MOST_PODS).step_by(PODS.len());
            let addresses: Vec<IpAddr> =
                numbers.map(|number| pod_address(number).parse().unwrap()).collect();
            lab.add_host(host, &addresses).unwrap();
            lab.serve(host, &[8080]).unwrap();
        }
        let relay = plane.reach_from(lab.node());
        let kubeconfig = plane.kubeconfig_for_service_account("kube-system", "zoneward");
        let folder = TempDir::new().unwrap();
        let socket = socket(&folder);
        let kubeconfig = kubeconfig.to_str().unwrap();
        let args = ["--kubeconfig", kubeconfig, "--node-name", name, "--socket", &socket];
        let mut agent = Agent::start(lab.node(), &args);
        agent.wait_for(&["synced"]);
        Self { name, lab, folder, _agent: agent, _relay: relay }
    }

    /// The pods that the kernel sends connections to.
    pub(crate) fn pods(&self) -> Vec<usize> {
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
    pub(crate) fn expect(&self, what: &str, holds: impl Fn(&[usize]) -> bool) {
        eventually(&format!("{}: {what}; has {:?}", self.name, self.pods()), || {
            holds(&self.pods())
        });
    }

    /// Who answers this many connections.
    pub(crate) fn answers(&self, vip: SocketAddr, count: usize) -> BTreeSet<String> {
        let ask = |_| self.lab.probe(CLIENT, vip, Protocol::Tcp, PATIENCE);
        let name = |answer: Answer| answer.by().map_or_else(|| answer.to_string(), str::to_owned);
        (0..count).map(ask).map(name).collect()
    }

    /// What its agent tells of the Service.
    pub(crate) fn explain(&self) -> String {
        let socket = socket(&self.folder);
        let output = run_in(self.lab.node(), &["explain", SERVICE, "--socket", &socket]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Bytes of slices it has received so far.
    pub(crate) fn received(&self) -> u64 {
        let client = Client::plain(self.lab.node(), "http://127.0.0.1:10249");
        let text = client.get("/metrics").unwrap().text;
        let series = "zoneward_watch_bytes_total{resource=\"endpointslices\"} ";
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.expect("the agent counts").parse::<f64>().unwrap() as u64
    }
}

fn socket(folder: &TempDir) -> String {
    folder.path().join("agent/agent.sock").to_str().unwrap().to_owned()
}

/// A Node in a zone.
pub(crate) fn node(plane: &ControlPlane, name: &str, zone: &str) {
    let labels = json!({"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "r"});
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    plane.apply(&node.to_string());
}

/// Pods of these numbers exist, each on the node of its zone, and no others.
pub(crate) fn scale(plane: &ControlPlane, count: usize) {
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

pub(crate) fn pod(plane: &ControlPlane, number: usize, ready: bool) {
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

pub(crate) fn annotate(plane: &ControlPlane, asked: Value) {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/services/api");
    let annotations = json!({"endpointslice.kubernetes.io/same-zone": asked});
    plane.patch(&path, &json!({"metadata": {"annotations": annotations}}));
}

pub(crate) fn approach(plane: &ControlPlane) -> String {
    let service = plane.get(&format!("/api/v1/namespaces/{NAMESPACE}/services/api"));
    service["metadata"]["annotations"]["zoneward/approach"].as_str().unwrap_or("none").to_owned()
}

/// Our slices.
pub(crate) fn groups(plane: &ControlPlane) -> Vec<Value> {
    let ours = "labelSelector=endpointslice.kubernetes.io%2Fmanaged-by%3Dzoneward-controller";
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices?{ours}");
    plane.get(&path)["items"].as_array().cloned().unwrap_or_default()
}

/// A controller with its own identity.
pub(crate) fn controller(plane: &ControlPlane, kubeconfig: &Path, number: u16) -> Agent {
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

/// Runs `change` with connections from these places that never pause; says how many and fails if one did.
pub(crate) fn without_a_failed_connection(
    places: [&Place; 2],
    vip: SocketAddr,
    change: impl FnOnce(),
) {
    let (done, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let failed = thread::scope(|scope| {
        let (done, count) = (&done, &count);
        let loops = places
            .map(|place| &place.lab)
            .map(|lab| scope.spawn(move || travel(lab, vip, done, count)));
        // Also if something panics: the loops would not end.
        let guard = Done(done);
        change();
        drop(guard);
        loops.map(|one| one.join().expect("a loop does not panic")).concat()
    });
    let count = count.load(Ordering::Relaxed);
    println!("{count} connections, {} failed", failed.len());
    assert_eq!(failed, Vec::<String>::new(), "of {count} connections");
    assert!(count > 500, "too few connections to mean anything: {count}");
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

/// The stock controller, accounts with the rights of the installation, and the Service.
pub(crate) fn prepare(plane: &mut ControlPlane) -> (SocketAddr, PathBuf) {
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

/// The zone a group is for.
pub(crate) fn zone_label(group: &Value) -> &str {
    group["metadata"]["labels"]["endpointslice.kubernetes.io/for-zone"].as_str().unwrap_or_default()
}

pub(crate) fn move_node(plane: &ControlPlane, name: &str, zone: &str) {
    let labels = json!({"topology.kubernetes.io/zone": zone});
    plane.patch(&format!("/api/v1/nodes/{name}"), &json!({"metadata": {"labels": labels}}));
}
