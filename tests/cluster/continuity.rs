//! New connections without a pause, from a client's namespace through the node's rules to a Service of
//! both families, while something happens to the slices, the node, the API server or the agent. None may
//! fail, and none may need a second try: the pods behind the Service are there all the time.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zw_lab::{Answer, Held, Lab, Protocol};
use zw_tests::binary::{Agent, eventually};
use zw_tests::control_plane::{ControlPlane, Relay, exclusive, shared};

use crate::node::{endpoints, node, slice_path};

/// What the agent may do, and no more.
const RBAC: &str = include_str!("../../deploy/base/rbac.yaml");

/// Long enough for an answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// A loop ends by itself then, whatever the change it runs through is waiting for.
const LONGEST: Duration = Duration::from_secs(180);
/// Between two connections of one family: faster would run out of ports in the longest scenario.
const PACE: Duration = Duration::from_millis(2);

const CLIENT: &str = "client";
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

/// A pod's addresses.
fn pod(number: u8) -> [String; 2] {
    [format!("10.244.{number}.1"), format!("fd00:10:244:{number}::1")]
}

/// A node with two pods behind a Service, and a client; the agent is the scenario's.
struct Road {
    name: &'static str,
    lab: Lab,
    kubeconfig: PathBuf,
    vips: [SocketAddr; 2],
    _relay: Relay,
}

impl Road {
    /// The Service, without slices yet; the Node is in zone-a.
    fn new(plane: &ControlPlane, name: &'static str) -> Self {
        let addresses = |number| pod(number).map(|address| address.parse().unwrap());
        let mut lab =
            Lab::new(&["192.0.2.10".parse().unwrap(), "2001:db8::10".parse().unwrap()]).unwrap();
        for (host, number) in [(CLIENT, 9), ("pod-1", 1), ("pod-2", 2)] {
            lab.add_host(host, &addresses(number)).unwrap();
        }
        for host in ["pod-1", "pod-2"] {
            lab.serve(host, &[8080]).unwrap();
        }
        plane.apply(RBAC);
        plane.apply(&node(name, "zone-a"));
        let applied = plane.apply(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}\n---\n{{apiVersion: v1, kind: \
             Service, metadata: {{name: api, namespace: {name}}}, spec: {{ipFamilyPolicy: RequireDualStack, \
             ports: [{{name: http, port: 80}}]}}}}\n"
        ));
        let vip = |i: usize| {
            let address = applied[1]["spec"]["clusterIPs"][i].as_str().unwrap();
            SocketAddr::new(address.parse().unwrap(), 80)
        };
        Self {
            kubeconfig: plane.kubeconfig_for_service_account("kube-system", "zoneward"),
            _relay: plane.reach_from(lab.node()),
            vips: [vip(0), vip(1)],
            name,
            lab,
        }
    }

    /// Starts an agent on the node; it may not have synced yet.
    fn agent(&self) -> Agent {
        let kubeconfig = self.kubeconfig.to_str().unwrap();
        let args = ["--kubeconfig", kubeconfig, "--node-name", self.name];
        Agent::start(self.lab.node(), &args)
    }

    fn synced_agent(&self) -> Agent {
        let mut agent = self.agent();
        agent.wait_for(&["synced"]);
        agent
    }

    /// Writes slices with these pods, one per family; changes those that are there, label and all.
    fn publish(&self, plane: &ControlPlane, name: &str, zone: Option<&str>, pods: &[u8]) {
        for (i, family) in FAMILIES.into_iter().enumerate() {
            let endpoints: Vec<Value> =
                pods.iter().map(|&number| json!({"addresses": [pod(number)[i]]})).collect();
            let mut labels = json!({"kubernetes.io/service-name": "api"});
            if let Some(zone) = zone {
                labels["endpointslice.kubernetes.io/for-zone"] = zone.into();
            }
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
                "metadata": {"name": slice_name(name, family), "namespace": self.name, "labels": labels},
                "ports": [{"name": "http", "port": 8080}], "endpoints": endpoints,
            });
            plane.apply(&slice.to_string());
        }
    }

    /// Deletes the slices of this name.
    fn withdraw(&self, plane: &ControlPlane, name: &str) {
        for family in FAMILIES {
            plane.delete(&slice_path(self.name, &slice_name(name, family)));
        }
    }

    /// Puts the Node into a zone, or into none.
    fn move_to(&self, plane: &ControlPlane, zone: Option<&str>) {
        let label = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
        plane.patch(&format!("/api/v1/nodes/{}", self.name), &label);
    }

    /// Waits until the kernel holds exactly these pods, in both families.
    #[track_caller]
    fn expect(&self, pods: &[u8]) {
        let mut want: Vec<String> = pods
            .iter()
            .flat_map(|&number| pod(number))
            .map(|address| SocketAddr::new(address.parse().unwrap(), 8080).to_string())
            .collect();
        want.sort();
        let service = format!("{}/api", self.name);
        eventually(&format!("{service} has {want:?}"), || {
            endpoints(self.lab.node(), &service).as_ref() == Some(&want)
        });
    }

    /// Runs `change` with connections through it, two per family that stay and new ones without a pause;
    /// says how many and fails if one did.
    fn travel(&self, change: impl FnOnce()) {
        let mut held: Vec<Held> = self
            .vips
            .iter()
            .flat_map(|&vip| [vip; 2])
            .map(|vip| self.lab.open(CLIENT, vip, PATIENCE).expect("it works before"))
            .collect();
        let resent = self.resent();
        let done = AtomicBool::new(false);
        let outcomes = thread::scope(|scope| {
            let done = &done;
            let loops = self.vips.map(|vip| scope.spawn(move || self.connect_until(vip, done)));
            // Also if the change panics: the loops would not end.
            let guard = Done(done);
            change();
            drop(guard);
            loops.map(|family| family.join().expect("a loop does not panic"))
        });
        let counts: Vec<String> = FAMILIES
            .iter()
            .zip(&outcomes)
            .map(|(family, (count, failed))| {
                format!("{family}: {count} connections, {} failed", failed.len())
            })
            .collect();
        println!("{}: {}", self.name, counts.join("; "));
        for (count, failed) in &outcomes {
            assert_eq!(*failed, Vec::<String>::new(), "of {count} connections");
            assert!(*count > 100, "too few connections to mean anything: {count}");
        }
        assert_eq!(self.resent(), resent, "opening packets that were lost and sent again");
        for held in &mut held {
            let greeting = held.greeting().clone();
            assert_eq!(held.say(), greeting, "a connection from before still works");
        }
    }

    fn connect_until(&self, vip: SocketAddr, done: &AtomicBool) -> (usize, Vec<String>) {
        let start = Instant::now();
        let (mut count, mut failed) = (0, Vec::new());
        while !done.load(Ordering::Relaxed) && start.elapsed() < LONGEST {
            let answer = self.lab.probe(CLIENT, vip, Protocol::Tcp, PATIENCE);
            count += 1;
            if !matches!(answer, Answer::Answered { .. }) {
                failed.push(format!("{vip} after {:?}: {answer}", start.elapsed()));
            }
            thread::sleep(PACE);
        }
        (count, failed)
    }

    /// How many opening packets the client has sent again so far. A packet that a gap in the rules lost
    /// would only make its connection slow.
    fn resent(&self) -> u64 {
        let client = self.lab.host(CLIENT).unwrap();
        let text = client.run(|| fs::read_to_string("/proc/thread-self/net/netstat")).unwrap();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let counter =
            names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == "TCPSynRetrans");
        counter.unwrap().1.parse().unwrap()
    }
}

/// Ends the loops when dropped.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn slice_name(name: &str, family: &str) -> String {
    format!("{name}-{}", family.to_lowercase())
}

#[test]
fn relabelled_slices_fail_no_connection() {
    let plane = shared();
    let road = Road::new(&plane, "road-relabel");
    road.publish(&plane, "api", None, &[1]);
    let _agent = road.synced_agent();
    road.expect(&[1]);
    road.travel(|| {
        for _ in 0..10 {
            // The same slices: one watch loses them and another finds them, and which says so first is up
            // to the API server. The other pod in them shows that the agent has taken it in.
            road.publish(&plane, "api", Some("zone-a"), &[2]);
            road.expect(&[2]);
            road.publish(&plane, "api", None, &[1]);
            road.expect(&[1]);
        }
    });
}

#[test]
fn slices_replaced_by_others_in_either_order_fail_no_connection() {
    let plane = shared();
    let road = Road::new(&plane, "road-replace");
    road.publish(&plane, "old", None, &[1]);
    let _agent = road.synced_agent();
    road.expect(&[1]);
    road.travel(|| {
        // First the new, then the old goes: there and back.
        road.publish(&plane, "new", Some("zone-a"), &[2]);
        road.expect(&[2]);
        road.withdraw(&plane, "old");
        road.publish(&plane, "old", None, &[1]);
        road.withdraw(&plane, "new");
        road.expect(&[1]);
        // First the old goes, then the new comes: under another name, and under its own.
        road.withdraw(&plane, "old");
        road.publish(&plane, "new", Some("zone-a"), &[2]);
        road.expect(&[2]);
        road.withdraw(&plane, "new");
        road.publish(&plane, "old", None, &[1]);
        road.expect(&[1]);
        road.withdraw(&plane, "old");
        road.publish(&plane, "old", Some("zone-a"), &[2]);
        road.expect(&[2]);
        road.withdraw(&plane, "old");
        road.publish(&plane, "old", None, &[1]);
        road.expect(&[1]);
    });
}

#[test]
fn a_service_zoned_and_unzoned_fails_no_connection() {
    let plane = shared();
    let road = Road::new(&plane, "road-zoned");
    road.publish(&plane, "all", None, &[1, 2]);
    let _agent = road.synced_agent();
    road.expect(&[1, 2]);
    road.travel(|| {
        for _ in 0..3 {
            road.publish(&plane, "for-a", Some("zone-a"), &[1]);
            road.publish(&plane, "for-b", Some("zone-b"), &[2]);
            road.expect(&[1]);
            // The default slices of a zoned Service need not be there at all.
            road.withdraw(&plane, "all");
            road.publish(&plane, "for-a", Some("zone-a"), &[2]);
            road.expect(&[2]);
            road.publish(&plane, "all", None, &[1, 2]);
            road.withdraw(&plane, "for-a");
            road.withdraw(&plane, "for-b");
            road.expect(&[1, 2]);
        }
    });
}

#[test]
fn a_node_that_changes_loses_and_gets_its_zone_fails_no_connection() {
    let plane = shared();
    let road = Road::new(&plane, "road-moves");
    road.publish(&plane, "for-a", Some("zone-a"), &[1]);
    road.publish(&plane, "for-b", Some("zone-b"), &[2]);
    let _agent = road.synced_agent();
    road.expect(&[1]);
    road.travel(|| {
        for _ in 0..3 {
            road.move_to(&plane, Some("zone-b"));
            road.expect(&[2]);
            road.move_to(&plane, None);
            road.expect(&[1, 2]);
            road.move_to(&plane, Some("zone-a"));
            road.expect(&[1]);
        }
    });
}

#[test]
fn an_api_server_down_for_20_seconds_fails_no_connection() {
    let mut plane = exclusive();
    let road = Road::new(&plane, "road-outage");
    road.publish(&plane, "api", None, &[1]);
    let agent = road.synced_agent();
    road.expect(&[1]);
    road.travel(|| {
        plane.stop_api_server();
        // Half of the time with the agent that knew the cluster, half with one that knows nothing.
        thread::sleep(Duration::from_secs(10));
        agent.terminate();
        let mut agent = road.agent();
        agent.wait_for(&["WARN", "cannot list or watch"]);
        thread::sleep(Duration::from_secs(10));
        road.expect(&[1]);
        plane.start_api_server();
        road.publish(&plane, "api", None, &[1, 2]);
        road.expect(&[1, 2]);
    });
}

#[test]
fn an_agent_that_restarts_fails_no_connection() {
    let plane = shared();
    let road = Road::new(&plane, "road-restart");
    road.publish(&plane, "api", None, &[1]);
    let mut agent = road.synced_agent();
    road.expect(&[1]);
    road.travel(|| {
        for pods in [&[1, 2][..], &[2], &[1]] {
            // As the kubelet ends it, and the hard way; the cluster goes on meanwhile.
            assert!(agent.terminate().success());
            road.publish(&plane, "api", None, pods);
            agent = road.agent();
            road.expect(pods);
            drop(agent);
            road.publish(&plane, "api", None, &[1, 2]);
            agent = road.agent();
            road.expect(&[1, 2]);
        }
    });
}

#[test]
fn an_agent_that_is_upgraded_fails_no_connection() {
    let plane = shared();
    let road = Road::new(&plane, "road-upgrade");
    road.publish(&plane, "api", None, &[1]);
    let mut agent = road.synced_agent();
    road.expect(&[1]);
    road.travel(|| {
        for _ in 0..3 {
            // The new one beside the old one, both following the same changes.
            let mut new = road.agent();
            for pods in [&[1, 2][..], &[2], &[1, 2], &[1]] {
                road.publish(&plane, "api", None, pods);
                road.expect(pods);
            }
            new.wait_for(&["synced"]);
            for pods in [&[1, 2][..], &[2], &[1, 2], &[1]] {
                road.publish(&plane, "api", None, pods);
                road.expect(pods);
            }
            let old = std::mem::replace(&mut agent, new);
            assert!(old.terminate().success());
            road.publish(&plane, "api", None, &[2]);
            road.expect(&[2]);
        }
    });
}
