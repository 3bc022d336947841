//! An agent that may not, or not yet, says what it lacks and goes on when it is given.

use std::fs;

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_tests::binary::{Agent, run_in, text};
use zw_tests::control_plane::shared;

use crate::node::{RBAC, TestNode, endpoints, node, service};

/// A kubeconfig like another one, with one place in it changed.
fn changed(kubeconfig: &std::path::Path, name: &str, change: impl Fn(&mut Value)) -> String {
    let mut config: Value = serde_json::from_slice(&fs::read(kubeconfig).unwrap()).unwrap();
    change(&mut config);
    let path = kubeconfig.with_file_name(format!("{name}.kubeconfig"));
    fs::write(&path, config.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_permission_that_is_missing_is_named_and_the_agent_starts_when_it_is_given() {
    let plane = shared();
    plane.apply(RBAC);
    plane.apply(&node("late", "zone-a"));
    plane.apply(&service("late", 50));
    let kubeconfig = plane.kubeconfig_for_service_account("late", "agent");
    let namespace = Namespace::new().unwrap();
    let _relay = plane.reach_from(&namespace);
    let args = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--node-name", "late"];
    let mut agent = Agent::start(&namespace, &args);
    for resource in ["services", "nodes", "servicecidrs"] {
        let refused = format!("cannot list resource \\\"{resource}\\\"");
        agent.wait_for(&["WARN", &refused, "(403)"]);
    }
    agent.wait_for(&["WARN", "(403)"]);
    plane.apply(
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: late-agent}, \
         roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: zoneward}, subjects: \
         [{kind: ServiceAccount, namespace: late, name: agent}]}",
    );
    agent.wait_for(&["synced"]);
    assert_eq!(endpoints(&namespace, "late/api"), Some(Vec::new()));
}

#[test]
fn a_token_that_the_server_refuses_is_named_and_tried_again() {
    let plane = shared();
    let good = plane.kubeconfig();
    let token = good.with_file_name("expired.token");
    fs::write(&token, "expired").unwrap();
    let bad = changed(&good, "expired", |config| {
        config["users"][0]["user"] = json!({"tokenFile": token});
    });
    let namespace = Namespace::new().unwrap();
    let _relay = plane.reach_from(&namespace);
    let mut agent = Agent::start(&namespace, &["--kubeconfig", &bad, "--node-name", "expired"]);
    for _ in 0..2 {
        agent.wait_for(&["WARN", "cannot list or watch services", "(401)"]);
    }
    assert!(!agent.log.iter().any(|line| line.contains("synced")), "{:?}", agent.log);
}

#[test]
fn a_server_that_is_not_there_is_named_and_tried_again() {
    let plane = shared();
    plane.apply(&node("nowhere", "zone-a"));
    let namespace = Namespace::new().unwrap();
    let kubeconfig = plane.kubeconfig();
    let args = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--node-name", "nowhere"];
    let mut agent = Agent::start(&namespace, &args);
    for _ in 0..2 {
        agent.wait_for(&["WARN", "cannot list or watch services", "Connection refused"]);
    }
    let _relay = plane.reach_from(&namespace);
    agent.wait_for(&["synced"]);
}

#[test]
fn a_kubeconfig_that_makes_no_sense_is_the_users_mistake() {
    let plane = shared();
    let good = plane.kubeconfig();
    let namespace = Namespace::new().unwrap();
    let no_cluster = changed(&good, "no-cluster", |config| config["clusters"] = json!([]));
    let no_file = changed(&good, "no-file", |config| {
        config["clusters"][0]["cluster"]["certificate-authority"] = json!("/nowhere/ca.crt");
    });
    for kubeconfig in [no_cluster.as_str(), &no_file, "/nowhere/kubeconfig"] {
        let output = run_in(&namespace, &["run", "--node-name", "n", "--kubeconfig", kubeconfig]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{kubeconfig}: {said}");
        assert!(said.contains(kubeconfig), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_node_that_changes_its_address_is_followed_without_a_restart() {
    let plane = shared();
    let with_address = |address: &str| {
        format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: readdressed, labels: \
             {{topology.kubernetes.io/zone: zone-a}}}}, spec: {{podCIDR: 10.244.9.0/24, podCIDRs: \
             [10.244.9.0/24]}}, status: {{addresses: [{{type: InternalIP, address: {address}}}]}}}}"
        )
    };
    plane.apply(&with_address("192.0.2.50"));
    let test_node = &mut TestNode::start(&plane, "readdressed");
    let first = test_node.agent.log.iter().find(|line| line.contains("surroundings")).unwrap();
    assert!(first.contains("addresses=[192.0.2.50]"), "{first}");
    assert!(first.contains("pod_ranges=[10.244.9.0/24]"), "{first}");
    assert!(first.contains("service_ranges=[10.96.0.0/16, fd00:10:96::/112]"), "{first}");
    plane.apply(&with_address("192.0.2.51"));
    test_node.agent.wait_for(&["surroundings", "addresses=[192.0.2.51]"]);
    plane.apply(&service("readdressed", 51));
    test_node.expect("readdressed/api", Some(&[]));
}
