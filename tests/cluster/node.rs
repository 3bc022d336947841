//! A node of the test cluster: a namespace of its own with an agent in it.

use serde_json::Value;
use zw_lab::Namespace;
use zw_tests::binary::{Agent, eventually, run_in, text};
use zw_tests::control_plane::{ControlPlane, Relay};

/// What the agent may do, and no more: what it is installed with.
pub(crate) const RBAC: &str = include_str!("../../deploy/base/rbac.yaml");

pub(crate) struct TestNode {
    pub(crate) namespace: Namespace,
    pub(crate) agent: Agent,
    pub(crate) relay: Relay,
}

impl TestNode {
    /// Starts an agent with its own service account and waits for its first sync.
    pub(crate) fn start(plane: &ControlPlane, name: &str) -> Self {
        Self::start_with(plane, name, &[])
    }

    /// The same, with more arguments.
    pub(crate) fn start_with(plane: &ControlPlane, name: &str, more: &[&str]) -> Self {
        plane.apply(RBAC);
        let kubeconfig = plane.kubeconfig_for_service_account("kube-system", "zoneward");
        let namespace = Namespace::new().unwrap();
        let relay = plane.reach_from(&namespace);
        let args = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--node-name", name];
        let mut agent = Agent::start(&namespace, &[&args, more].concat());
        agent.wait_for(&["synced"]);
        Self { namespace, agent, relay }
    }

    /// See [`endpoints`].
    pub(crate) fn endpoints(&self, service: &str) -> Option<Vec<String>> {
        endpoints(&self.namespace, service)
    }

    /// Waits until the kernel holds exactly these.
    #[track_caller]
    pub(crate) fn expect(&self, service: &str, endpoints: Option<&[&str]>) {
        let want = endpoints.map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>());
        eventually(&format!("{service} has {want:?}"), || self.endpoints(service) == want);
    }
}

/// The bytes of slices that an agent had received at the end of its first lists.
pub(crate) fn received(node: &TestNode) -> f64 {
    let log = &node.agent.log;
    let line = log.iter().find(|line| line.contains("received_bytes=")).expect("it tells");
    let after = line.split_once("endpointslices=").unwrap().1;
    after.split(',').next().unwrap().parse().unwrap()
}

/// The endpoints the kernel holds for a Service; `None` while it is not programmed at all.
pub(crate) fn endpoints(namespace: &Namespace, service: &str) -> Option<Vec<String>> {
    let output = run_in(namespace, &["dump-rules", "-o", "json", service]);
    if !output.status.success() {
        let said = text(&output.stderr);
        assert!(said.contains("is programmed"), "{said}");
        return None;
    }
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ports = json["services"].as_array().unwrap().iter();
    let endpoints = ports.flat_map(|port| port["endpoints"].as_array().unwrap());
    let mut endpoints: Vec<String> =
        endpoints.map(|e| e["address"].as_str().unwrap().to_owned()).collect();
    endpoints.sort();
    Some(endpoints)
}

/// A Node object.
pub(crate) fn node(name: &str, zone: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{topology.kubernetes.io/zone: \
         {zone}, topology.kubernetes.io/region: region-1}}}}}}\n"
    )
}

/// A Service in a namespace of its own.
pub(crate) fn service(namespace: &str, last: u8) -> String {
    format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}\n---\n{{apiVersion: v1, kind: \
         Service, metadata: {{name: api, namespace: {namespace}}}, spec: {{clusterIP: 10.96.7.{last}, ports: \
         [{{name: http, port: 80}}]}}}}\n"
    )
}

/// A slice of that Service, with a label and ready endpoints.
pub(crate) fn slice(namespace: &str, name: &str, label: &str, endpoints: &[&str]) -> String {
    let endpoints: Vec<String> =
        endpoints.iter().map(|address| format!("{{addresses: [{address}]}}")).collect();
    let label = if label.is_empty() {
        String::new()
    } else {
        format!(", endpointslice.kubernetes.io/{label}")
    };
    format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {{name: {name}, \
         namespace: {namespace}, labels: {{kubernetes.io/service-name: api{label}}}}}, ports: [{{name: http, \
         port: 8080}}], endpoints: [{}]}}\n",
        endpoints.join(", ")
    )
}

/// Where a slice is found.
pub(crate) fn slice_path(namespace: &str, name: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/{name}")
}
