//! Five ways to break a Service, and the one command that names the cause: what a new user would try
//! first, on a node where an agent runs.

use zw_lab::Namespace;
use zw_tests::binary::{Agent, run_in};

use crate::command::{Ended, Folder, NODE};

const THIS_NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {topology.kubernetes.io/zone: zone-a}}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
";

/// A Service `shop/cart` with this in its spec and these slices.
fn manifests(spec: &str, slices: &[&str]) -> String {
    let service = format!(
        "{THIS_NODE}---
apiVersion: v1
kind: Service
metadata: {{name: cart, namespace: shop}}
spec:
  clusterIP: 10.96.0.7
  selector: {{app: cart}}
  ports: [{{name: http, port: 80}}]
{spec}
"
    );
    let slices = slices.iter().enumerate().map(|(i, slice)| {
        let (labels, rest) = slice.split_once('|').unwrap_or(("", slice));
        format!(
            "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: cart-{i}
  namespace: shop
  labels: {{kubernetes.io/service-name: cart{labels}}}
addressType: IPv4
{rest}
"
        )
    });
    service + &slices.collect::<String>()
}

const HTTP: &str = "ports: [{name: http, port: 8080}]\n";

fn endpoint(address: &str, node: &str, zone: &str, ready: bool) -> String {
    format!(
        "- {{addresses: [{address}], nodeName: {node}, zone: {zone}, conditions: {{ready: {ready}}}}}\n"
    )
}

/// An agent that follows these, and what a command on its node says.
fn ask(manifests: &str, command: &[&str]) -> Ended {
    let folder = Folder::new(&[("state.yaml", manifests.as_bytes())]);
    let namespace = Namespace::new().unwrap();
    let socket = folder.path().join("agent.sock");
    let socket = ["--socket", socket.to_str().unwrap()];
    let state = ["--state", folder.path().to_str().unwrap()];
    let mut agent = Agent::start(&namespace, &[&state[..], &NODE, &socket].concat());
    agent.wait_for(&["synced"]);
    let more: &[&str] = if command[0] == "trace" { &[] } else { &socket };
    Ended::of(&run_in(&namespace, &[command, more].concat())).success()
}

#[track_caller]
fn names(ended: &Ended, cause: &str) {
    // Lines are not broken where there is no terminal.
    assert!(ended.out.contains(cause), "{cause:?} is not in\n{}", ended.out);
}

#[test]
fn a_wrong_port_name_is_found_with_one_command() {
    let slice = "ports: [{name: web, port: 8080}]\nendpoints:\n".to_owned()
        + &endpoint("10.244.1.1", "node-1", "zone-a", true);
    let said = ask(&manifests("", &[&slice]), &["explain", "shop/cart"]);
    names(
        &said,
        "connections are refused: its slices have no port of that name: the Service wants a tcp port \
         named \"http\", the slices have \"web\" 8080/tcp",
    );
    names(&said, "kernel:  holds what the agent wants");
}

#[test]
fn a_service_without_a_ready_endpoint_is_found_with_one_command() {
    let slice = format!("{HTTP}endpoints:\n")
        + &endpoint("10.244.1.1", "node-1", "zone-a", false)
        + &endpoint("10.244.2.1", "node-2", "zone-b", false);
    let said = ask(&manifests("", &[&slice]), &["explain", "shop/cart"]);
    names(&said, "connections are refused: none of its 2 endpoints is ready");
    names(&said, "out  2 endpoints not ready (until its pod is ready;");
}

#[test]
fn a_slice_for_another_zone_is_found_with_one_command() {
    let slice = format!(", endpointslice.kubernetes.io/for-zone: zone-b|{HTTP}endpoints:\n")
        + &endpoint("10.244.2.1", "node-2", "zone-b", true);
    let said = ask(&manifests("", &[&slice]), &["explain", "shop/cart"]);
    names(
        &said,
        "connections are refused: all its slices are labelled for zone zone-b; this node, node-1, is in \
         zone zone-a",
    );
}

#[test]
fn a_client_outside_of_the_source_ranges_is_found_with_one_command() {
    let spec = "  type: LoadBalancer\n  loadBalancerSourceRanges: [10.0.0.0/8]\n\
                status: {loadBalancer: {ingress: [{ip: 198.51.100.7}]}}";
    let slice = format!("{HTTP}endpoints:\n") + &endpoint("10.244.1.1", "node-1", "zone-a", true);
    let state = manifests(spec, &[&slice]);
    let said = ask(&state, &["trace", "203.0.113.9", "198.51.100.7:80"]);
    names(
        &said,
        "dropped:  203.0.113.9 is in none of the source ranges of shop/cart:http \
         (loadBalancerSourceRanges): 10.0.0.0/8",
    );
    let said = ask(&state, &["explain", "shop/cart"]);
    names(&said, "its load balancer addresses answer only clients in 10.0.0.0/8");
}

#[test]
fn a_local_policy_without_a_local_endpoint_is_found_with_one_command() {
    let slice = format!("{HTTP}endpoints:\n") + &endpoint("10.244.2.1", "node-2", "zone-b", true);
    let spec = "  type: NodePort\n  externalTrafficPolicy: Local";
    let state = manifests(spec, &[&slice]).replace("port: 80}", "port: 80, nodePort: 30080}");
    let said = ask(&state, &["explain", "shop/cart"]);
    names(
        &said,
        "connections from outside are ignored: externalTrafficPolicy is Local, and no endpoint is on this \
         node, node-1; there is 1 endpoint on node-2",
    );
}
