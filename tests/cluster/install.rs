//! What `deploy/base` installs is what an API server takes, and allows no more than the agent needs.

use serde_json::json;
use zw_tests::control_plane::shared;

const FILES: [(&str, &str); 3] = [
    ("rbac.yaml", include_str!("../../deploy/base/rbac.yaml")),
    ("api-server.yaml", include_str!("../../deploy/base/api-server.yaml")),
    ("daemonset.yaml", include_str!("../../deploy/base/daemonset.yaml")),
];
const KUSTOMIZATION: &str = include_str!("../../deploy/base/kustomization.yaml");

#[test]
fn the_api_server_takes_every_file_that_kustomize_would_send() {
    let plane = shared();
    for (name, text) in FILES {
        assert!(
            KUSTOMIZATION.contains(&format!("- {name}\n")),
            "{name} is not in the kustomization"
        );
        assert!(!plane.apply(text).is_empty(), "{name}");
    }
    let listed = KUSTOMIZATION.lines().filter(|line| line.ends_with(".yaml")).count();
    assert_eq!(listed, FILES.len(), "every listed file is tried");

    let path = "/apis/apps/v1/namespaces/kube-system/daemonsets/zoneward";
    let pod = &plane.get(path)["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let capabilities = &container["securityContext"]["capabilities"];
    assert_eq!(capabilities, &json!({"drop": ["ALL"], "add": ["NET_ADMIN"]}));
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(pod["hostNetwork"], true);
}

#[test]
fn the_service_account_may_read_what_it_needs_write_events_and_nothing_else() {
    let plane = shared();
    plane.apply(FILES[0].1);
    let agent = plane.client_for_service_account("kube-system", "zoneward");
    for (path, status) in [
        ("/api/v1/services", 200),
        ("/api/v1/nodes", 200),
        ("/apis/discovery.k8s.io/v1/endpointslices", 200),
        ("/api/v1/secrets", 403),
        ("/api/v1/pods", 403),
        ("/api/v1/namespaces/default/services/kubernetes", 403),
    ] {
        assert_eq!(agent.get(path).unwrap().status, status, "{path}");
    }
    let deleted = agent.delete("/api/v1/namespaces/default/services/kubernetes").unwrap();
    assert_eq!(deleted.status, 403);
    let taints = json!({"spec": {"taints": []}});
    assert_eq!(agent.patch("/api/v1/nodes/any", &taints).unwrap().status, 403);

    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "of-the-install-test"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "zoneward",
        "reportingInstance": "node-1", "action": "Test", "reason": "Test", "type": "Normal",
        "regarding": {"kind": "Node", "name": "node-1"},
    });
    let created = agent.post(events, &event).unwrap();
    assert_eq!(created.status, 201, "{}", created.text);
    let one = format!("{events}/of-the-install-test");
    for status in [
        agent.get(events).unwrap().status,
        agent.patch(&one, &json!({"reason": "Other"})).unwrap().status,
        agent.delete(&one).unwrap().status,
        agent.post("/api/v1/namespaces/default/events", &json!({})).unwrap().status,
    ] {
        assert_eq!(status, 403, "it writes Events and nothing else");
    }
}
