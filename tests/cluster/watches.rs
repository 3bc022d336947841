//! What the API server says reaches the kernel, whatever happens to the connection.

use serde_json::json;
use zw_lab::Namespace;
use zw_tests::binary::{Agent, run_in, text};
use zw_tests::control_plane::{exclusive, shared};

use crate::node::{TestNode, endpoints, node, service, slice, slice_path};

#[test]
fn create_scale_update_and_delete_reach_the_kernel() {
    let plane = shared();
    plane.apply(&node("follows", "zone-a"));
    let test_node = TestNode::start(&plane, "follows");
    test_node.expect("default/kubernetes", Some(&["192.0.2.1:6443"]));

    plane.apply(&service("follows", 1));
    test_node.expect("follows/api", Some(&[]));
    plane.apply(&slice("follows", "api-1", "", &["10.244.1.1", "10.244.1.2"]));
    test_node.expect("follows/api", Some(&["10.244.1.1:8080", "10.244.1.2:8080"]));
    let path = slice_path("follows", "api-1");
    plane.patch(&path, &json!({"endpoints": [{"addresses": ["10.244.1.2"]}]}));
    test_node.expect("follows/api", Some(&["10.244.1.2:8080"]));
    plane.patch(&path, &json!({"ports": [{"name": "http", "port": 9090}]}));
    test_node.expect("follows/api", Some(&["10.244.1.2:9090"]));

    plane.delete(&path);
    test_node.expect("follows/api", Some(&[]));
    plane.delete("/api/v1/namespaces/follows/services/api");
    test_node.expect("follows/api", None);
}

#[test]
fn what_another_proxy_or_nobody_serves_is_left_alone() {
    let plane = shared();
    plane.apply(&node("leaves", "zone-a"));
    let test_node = TestNode::start(&plane, "leaves");
    plane.apply(&service("leaves", 2));
    test_node.expect("leaves/api", Some(&[]));
    let path = "/api/v1/namespaces/leaves/services/api";
    let label = |value: serde_json::Value| json!({"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": value}}});
    plane.patch(path, &label("other".into()));
    test_node.expect("leaves/api", None);
    plane.patch(path, &label(serde_json::Value::Null));
    test_node.expect("leaves/api", Some(&[]));
}

#[test]
fn what_went_while_the_server_was_out_of_reach_goes_when_it_is_back() {
    let mut plane = exclusive();
    plane.apply(&node("cut-off", "zone-a"));
    plane.apply(&service("cut-off", 3));
    plane.apply(&slice("cut-off", "api-1", "", &["10.244.1.1"]));
    plane.apply(&slice("cut-off", "api-2", "", &["10.244.1.2"]));
    plane.apply(&service("cut-off-gone", 4));
    let test_node = TestNode::start(&plane, "cut-off");
    test_node.expect("cut-off/api", Some(&["10.244.1.1:8080", "10.244.1.2:8080"]));

    test_node.relay.cut();
    plane.delete(&slice_path("cut-off", "api-1"));
    plane.delete("/api/v1/namespaces/cut-off-gone/services/api");
    // And the versions the agent would resume from are forgotten: it must list anew.
    plane.forget_history();
    assert_eq!(
        test_node.endpoints("cut-off/api").unwrap(),
        ["10.244.1.1:8080", "10.244.1.2:8080"],
        "out of reach, nothing changes"
    );
    test_node.relay.mend();
    test_node.expect("cut-off/api", Some(&["10.244.1.2:8080"]));
    test_node.expect("cut-off-gone/api", None);
}

#[test]
fn a_node_that_starts_while_etcd_is_down_gets_its_services() {
    let mut plane = exclusive();
    plane.apply(&node("no-etcd", "zone-a"));
    plane.apply(&service("no-etcd", 9));
    plane.apply(&slice("no-etcd", "api-1", "", &["10.244.1.1"]));
    // What one was told the API server has in its caches.
    TestNode::start(&plane, "no-etcd").expect("no-etcd/api", Some(&["10.244.1.1:8080"]));
    let kubeconfig = plane.kubeconfig();
    plane.stop_etcd();
    let namespace = Namespace::new().unwrap();
    let _relay = plane.reach_from(&namespace);
    let args = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--node-name", "no-etcd"];
    let mut agent = Agent::start(&namespace, &args);
    agent.wait_for(&["synced"]);
    assert_eq!(endpoints(&namespace, "no-etcd/api"), Some(vec!["10.244.1.1:8080".to_owned()]));
}

#[test]
fn an_agent_follows_on_after_the_server_restarts() {
    let mut plane = exclusive();
    plane.apply(&node("restarts", "zone-a"));
    plane.apply(&service("restarts", 5));
    let test_node = TestNode::start(&plane, "restarts");
    test_node.expect("restarts/api", Some(&[]));
    plane.stop_api_server();
    plane.start_api_server();
    plane.apply(&slice("restarts", "api-1", "", &["10.244.1.9"]));
    test_node.expect("restarts/api", Some(&["10.244.1.9:8080"]));
}

#[test]
fn a_refused_request_names_verb_and_resource_and_nothing_is_written() {
    let plane = shared();
    let kubeconfig = plane.kubeconfig_for_service_account("nobody", "nobody");
    let namespace = Namespace::new().unwrap();
    let _relay = plane.reach_from(&namespace);
    let args = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--node-name", "refused"];
    let mut agent = Agent::start(&namespace, &args);
    for resource in ["services", "nodes"] {
        agent.wait_for(&["WARN", "cannot list", &format!("resource \\\"{resource}\\\"")]);
    }
    let output = run_in(&namespace, &["dump-rules"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
}

#[test]
fn one_odd_object_costs_only_itself() {
    let plane = shared();
    plane.apply(&node("odd", "zone-a"));
    let test_node = &mut TestNode::start(&plane, "odd");
    plane.apply(&service("odd", 6));
    let fqdn = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "FQDN",
        "metadata": {"name": "api-fqdn", "labels": {"kubernetes.io/service-name": "api"}},
        "endpoints": [{"addresses": ["example.test"]}], "ports": [],
    });
    plane.create("/apis/discovery.k8s.io/v1/namespaces/odd/endpointslices", &fqdn);
    plane.apply(&slice("odd", "api-1", "", &["10.244.1.1"]));
    test_node.expect("odd/api", Some(&["10.244.1.1:8080"]));
    test_node.agent.wait_for(&["WARN", "odd/api-fqdn", "addressType"]);
}

#[test]
fn once_programs_the_cluster_and_ends() {
    let plane = shared();
    plane.apply(&node("once", "zone-a"));
    plane.apply(&service("once", 7));
    plane.apply(&slice("once", "api-1", "", &["10.244.1.1"]));
    let namespace = Namespace::new().unwrap();
    let _relay = plane.reach_from(&namespace);
    let kubeconfig = plane.kubeconfig();
    let args =
        ["run", "--once", "--node-name", "once", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let output = run_in(&namespace, &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let dumped = text(&run_in(&namespace, &["dump-rules", "once/api"]).stdout);
    assert!(dumped.contains("10.244.1.1:8080"), "{dumped}");

    // The same cluster, scored.
    let args = ["simulate", "--cluster", "--algorithm", "balanced", "-o", "csv", "--kubeconfig"];
    let output = run_in(&namespace, &[&args[..], &[kubeconfig.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("once/api: endpoint 10.244.1.1 has no zone"), "{said}");

    let zoned = json!({"endpoints": [{"addresses": ["10.244.1.1"], "zone": "zone-a"}]});
    plane.patch(&slice_path("once", "api-1"), &zoned);
    let output = run_in(&namespace, &[&args[..], &[kubeconfig.to_str().unwrap()]].concat());
    let scored = text(&output.stdout);
    assert!(scored.lines().any(|line| line.starts_with("once/api,balanced,")), "{scored}");
}
