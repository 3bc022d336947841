//! A road through a node: new connections without a pause, from a client's namespace through the node's
//! rules to a Service of both families, while something happens to any of it. None may fail, and none may
//! need a second try: the pods behind the Service are there all the time.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use zw_lab::{Answer, Lab, Protocol};
use zw_tests::binary::{Agent, eventually};
use zw_tests::control_plane::{ControlPlane, Relay};
use zw_tests::traffic::Traffic;

use crate::node::{RBAC, endpoints, node, slice_path};

/// Who opens the connections.
const CLIENT: &str = "client";
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

/// A pod's addresses.
fn pod(number: u8) -> [String; 2] {
    [format!("10.244.{number}.1"), format!("fd00:10:244:{number}::1")]
}

/// A node with two pods behind a Service, and a client; the agent is the scenario's.
pub(crate) struct Road {
    pub(crate) name: &'static str,
    pub(crate) lab: Lab,
    kubeconfig: PathBuf,
    vips: [SocketAddr; 2],
    _relay: Relay,
}

impl Road {
    /// The Service, without slices yet; the Node is in zone-a.
    pub(crate) fn new(plane: &ControlPlane, name: &'static str) -> Self {
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
    pub(crate) fn agent(&self) -> Agent {
        let kubeconfig = self.kubeconfig.to_str().unwrap();
        let args = ["--kubeconfig", kubeconfig, "--node-name", self.name];
        Agent::start(self.lab.node(), &args)
    }

    pub(crate) fn synced_agent(&self) -> Agent {
        let mut agent = self.agent();
        agent.wait_for(&["synced"]);
        agent
    }

    /// Writes slices with these pods, one per family; changes those that are there, label and all.
    pub(crate) fn publish(
        &self,
        plane: &ControlPlane,
        name: &str,
        zone: Option<&str>,
        pods: &[u8],
    ) {
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
    pub(crate) fn withdraw(&self, plane: &ControlPlane, name: &str) {
        for family in FAMILIES {
            plane.delete(&slice_path(self.name, &slice_name(name, family)));
        }
    }

    /// Puts the Node into a zone, or into none.
    pub(crate) fn move_to(&self, plane: &ControlPlane, zone: Option<&str>) {
        let label = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
        plane.patch(&format!("/api/v1/nodes/{}", self.name), &label);
    }

    /// Waits until the kernel holds exactly these pods, in both families.
    #[track_caller]
    pub(crate) fn expect(&self, pods: &[u8]) {
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
    pub(crate) fn travel(&self, change: impl FnOnce()) {
        let traffic = Traffic { lab: &self.lab, client: CLIENT, to: &self.vips, held: 2 };
        traffic.during(self.name, change);
    }

    /// Whether both families answer right now.
    pub(crate) fn is_open(&self) -> bool {
        self.vips.iter().all(|&vip| {
            let answer = self.lab.probe(CLIENT, vip, Protocol::Tcp, Duration::from_millis(500));
            matches!(answer, Answer::Answered { .. })
        })
    }
}

fn slice_name(name: &str, family: &str) -> String {
    format!("{name}-{}", family.to_lowercase())
}
