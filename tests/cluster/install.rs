//! What `deploy/base` installs is what an API server takes, and allows no more than the agent needs.

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
    assert_eq!(capabilities, &serde_json::json!({"drop": ["ALL"], "add": ["NET_ADMIN"]}));
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(pod["hostNetwork"], true);
}

#[test]
fn the_service_account_may_read_what_it_needs_and_nothing_else() {
    let plane = shared();
    plane.apply(FILES[0].1);
    let agent = plane.client_for_service_account("kube-system", "zoneward");
    for (path, status) in [
        ("/api/v1/services", 200),
        ("/api/v1/nodes", 200),
        ("/apis/discovery.k8s.io/v1/endpointslices", 200),
        ("/apis/networking.k8s.io/v1/servicecidrs", 200),
        ("/api/v1/secrets", 403),
        ("/api/v1/pods", 403),
        ("/api/v1/namespaces/default/services/kubernetes", 403),
    ] {
        assert_eq!(agent.get(path).unwrap().status, status, "{path}");
    }
    let deleted = agent.delete("/api/v1/namespaces/default/services/kubernetes").unwrap();
    assert_eq!(deleted.status, 403, "it writes nothing");
}
