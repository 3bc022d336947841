//! The control plane itself does what the other tests of this tier rely on.

use std::path::Path;

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_tests::binary::eventually;
use zw_tests::control_plane::{ControlPlane, exclusive, shared};

#[test]
fn what_the_admin_writes_can_be_read_back() {
    let plane = shared();
    let applied = plane.apply(
        r#"
apiVersion: v1
kind: Namespace
metadata: {name: written}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: web, namespace: written}
  spec:
    ports: [{name: http, port: 80, protocol: TCP}]
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-1, namespace: written, labels: {kubernetes.io/service-name: web}}
  addressType: IPv6
  ports: [{name: http, port: 8080, protocol: TCP}]
  endpoints: [{addresses: ["fd00:10:244::1"]}]
---
apiVersion: v1
kind: Node
metadata: {name: node-of-the-smoke-test}
status:
  addresses: [{type: InternalIP, address: 192.0.2.10}]
"#,
    );
    assert_eq!(applied.len(), 4);
    let service = plane.get("/api/v1/namespaces/written/services/web");
    assert_eq!(service["spec"]["ports"][0]["port"], 80);
    let slice = "/apis/discovery.k8s.io/v1/namespaces/written/endpointslices/web-1";
    assert_eq!(plane.get(slice)["endpoints"][0]["addresses"], json!(["fd00:10:244::1"]));
    let node = plane.get("/api/v1/nodes/node-of-the-smoke-test");
    assert_eq!(node["status"]["addresses"][0]["address"], "192.0.2.10");

    let patched = plane.patch(slice, &json!({"endpoints": [{"addresses": ["fd00:10:244::2"]}]}));
    assert_eq!(patched["endpoints"][0]["addresses"], json!(["fd00:10:244::2"]));
    plane.delete(slice);
    assert_eq!(plane.admin().get(slice).unwrap().status, 404);
}

#[test]
fn applying_again_replaces_and_keeps_the_address() {
    let plane = shared();
    let apply = |port: u16| {
        let service = format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: again}}, spec: {{ports: [{{port: {port}}}]}}}}"
        );
        plane.apply(&service).remove(0)
    };
    let (first, second) = (apply(80), apply(81));
    assert_eq!(second["spec"]["ports"].as_array().map(Vec::len), Some(1));
    assert_eq!(second["spec"]["ports"][0]["port"], 81);
    assert_eq!(first["spec"]["clusterIP"], second["spec"]["clusterIP"]);
}

#[test]
fn a_service_gets_an_address_of_each_family_when_it_asks() {
    let plane = shared();
    let service = plane.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: both}, spec: {ipFamilyPolicy: \
         RequireDualStack, ports: [{port: 80}]}}",
    );
    let addresses = service[0]["spec"]["clusterIPs"].as_array().unwrap();
    let [v4, v6] = addresses.as_slice() else { panic!("two addresses, not {addresses:?}") };
    assert!(v4.as_str().unwrap().starts_with("10.96."), "{v4}");
    assert!(v6.as_str().unwrap().starts_with("fd00:10:96::"), "{v6}");
}

#[test]
fn a_service_account_may_do_what_rbac_allows_and_nothing_else() {
    let plane = shared();
    let client = plane.client_for_service_account("rights", "reader");
    let status = |path: &str| client.get(path).unwrap().status;
    assert_eq!(status("/api/v1/services"), 403);
    plane.apply(
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: smoke-reader}
rules: [{apiGroups: [""], resources: [services], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: smoke-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: smoke-reader}
subjects: [{kind: ServiceAccount, namespace: rights, name: reader}]
"#,
    );
    // The authorizer learns of roles through watches.
    eventually("the role to count", || status("/api/v1/services") == 200);
    assert_eq!(status("/api/v1/pods"), 403);
}

#[test]
fn a_kubeconfig_names_everything_a_client_needs() {
    let plane = shared();
    for path in [plane.kubeconfig(), plane.kubeconfig_for_service_account("files", "someone")] {
        let config: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let cluster = &config["clusters"][0]["cluster"];
        assert_eq!(cluster["server"], "https://127.0.0.1:6443");
        assert!(Path::new(cluster["certificate-authority"].as_str().unwrap()).is_absolute());
        assert!(!config["users"][0]["user"]["token"].as_str().unwrap().is_empty());
    }
}

#[test]
fn another_namespace_reaches_the_api_until_it_is_cut_off() {
    let plane = shared();
    let node = Namespace::new().unwrap();
    let client = plane.admin().from(&node);
    let works = || client.get("/version").is_ok_and(|reply| reply.ok());
    assert!(!works(), "no way before there is a relay");
    let relay = plane.reach_from(&node);
    assert!(works());
    relay.cut();
    assert!(!works());
    relay.mend();
    assert!(works());
    drop(relay);
    assert!(!works());
}

#[test]
fn data_survives_a_restart_of_the_api_server() {
    let mut plane = exclusive();
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: survivor}, data: {a: b}}";
    let before = plane.apply(object).remove(0);
    plane.stop_api_server();
    assert!(plane.admin().get("/readyz").is_err());
    plane.start_api_server();
    assert_eq!(plane.get("/api/v1/namespaces/default/configmaps/survivor"), before);
}

#[test]
fn a_watch_from_before_a_compaction_is_gone() {
    let mut plane = exclusive();
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: old}, data: {a: b}}";
    let applied = plane.apply(object).remove(0);
    let version = applied["metadata"]["resourceVersion"].as_str().unwrap();
    let path = |resource: &str| {
        format!("/api/v1/{resource}?watch=1&timeoutSeconds=1&resourceVersion={version}")
    };
    plane.patch("/api/v1/namespaces/default/configmaps/old", &json!({"data": {"a": "c"}}));
    let events = plane.admin().get(&path("configmaps")).unwrap().events();
    assert!(events.iter().any(|event| event["type"] == "MODIFIED"), "{events:?}");

    plane.forget_history();
    for resource in ["configmaps", "services"] {
        let events = plane.admin().get(&path(resource)).unwrap().events();
        let codes: Vec<&Value> = events.iter().map(|event| &event["object"]["code"]).collect();
        assert_eq!(codes, [410], "{resource}: {events:?}");
    }
}

#[test]
fn controllers_run_when_asked_for() {
    let mut plane = exclusive();
    plane.start_controller_manager("endpointslice-controller");
    // The controller leaves out Pods whose Node it does not know.
    plane.apply(
        r#"
apiVersion: v1
kind: Node
metadata: {name: node-1}
---
apiVersion: v1
kind: Service
metadata: {name: controlled}
spec: {selector: {app: controlled}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: controlled, labels: {app: controlled}}
spec: {nodeName: node-1, containers: [{name: a, image: none}]}
status:
  phase: Running
  podIP: 10.244.0.5
  podIPs: [{ip: 10.244.0.5}]
  conditions: [{type: Ready, status: "True"}]
"#,
    );
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                  ?labelSelector=kubernetes.io/service-name%3Dcontrolled";
    eventually("the controller to write the slice", || {
        plane.get(slices)["items"][0]["endpoints"][0]["addresses"] == json!(["10.244.0.5"])
    });
}

#[test]
fn a_control_plane_leaves_nothing_behind() {
    let namespace = Namespace::new().unwrap();
    let plane = ControlPlane::start(&namespace);
    let (processes, kubeconfig) = (plane.processes(), plane.kubeconfig());
    assert_eq!(processes.len(), 2);
    assert!(plane.logs_tail().contains("kube-apiserver.log"));
    drop(plane);
    for process in processes {
        assert!(!Path::new(&format!("/proc/{process}")).exists(), "{process} still runs");
    }
    assert!(!kubeconfig.parent().unwrap().exists());
}
