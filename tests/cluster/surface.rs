//! What an agent shows of itself: health, readiness, metrics, Events, and a configuration that changes
//! under it.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_tests::binary::{Agent, eventually, run_in, text};
use zw_tests::control_plane::{Client, ControlPlane, Relay, Reply, shared};

use crate::node::{RBAC, TestNode, node, service, slice};

const HEALTH: &str = "http://127.0.0.1:10256";
const METRICS: &str = "http://127.0.0.1:10249";

fn get(namespace: &Namespace, server: &str, path: &str) -> io::Result<Reply> {
    Client::plain(namespace, server).get(path)
}

/// What the health server answers, as JSON.
#[track_caller]
fn answer(namespace: &Namespace, path: &str) -> (u16, Value) {
    let reply = get(namespace, HEALTH, path).unwrap();
    (reply.status, reply.json())
}

fn metrics(namespace: &Namespace) -> String {
    let reply = get(namespace, METRICS, "/metrics").unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.text
}

/// The value of a series.
fn value(metrics: &str, series: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// An agent that is configured by a file.
struct Configured {
    namespace: Namespace,
    agent: Agent,
    _relay: Relay,
}

/// Writes the file as a ConfigMap's changes: another takes its place.
fn write_config(path: &Path, more: &str) {
    let new = path.with_extension("new");
    let text = format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n{more}\n"
    );
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

impl Configured {
    fn start(plane: &ControlPlane, path: &Path) -> Self {
        plane.apply(RBAC);
        let namespace = Namespace::new().unwrap();
        let relay = plane.reach_from(&namespace);
        let mut agent = Agent::start(&namespace, &["--config", path.to_str().unwrap()]);
        agent.wait_for(&["synced"]);
        Self { namespace, agent, _relay: relay }
    }

    fn table(&self) -> String {
        text(&run_in(&self.namespace, &["dump-rules", "-o", "nft"]).stdout)
    }
}

#[test]
fn health_follows_the_node_and_liveness_does_not() {
    let plane = shared();
    plane.apply(&node("healthy", "zone-a"));
    let test_node = TestNode::start(&plane, "healthy");
    let (status, body) = answer(&test_node.namespace, "/healthz");
    assert_eq!(
        (status, &body["nodeEligible"], &body["healthy"]),
        (200, &json!(true), &json!(true))
    );
    assert_eq!(body["lastUpdated"], body["currentTime"]);
    for family in ["IPv4", "IPv6"] {
        assert_eq!(body["status"][family]["healthy"], true, "{body}");
    }
    let (status, body) = answer(&test_node.namespace, "/livez");
    assert_eq!((status, body.get("nodeEligible")), (200, None));

    let taint =
        |taints: Value| plane.patch("/api/v1/nodes/healthy", &json!({"spec": {"taints": taints}}));
    taint(json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]));
    let health = |path: &str| answer(&test_node.namespace, path);
    eventually("the taint to count", || health("/healthz").0 == 503);
    assert_eq!(health("/healthz").1["nodeEligible"], false);
    assert_eq!(health("/livez").0, 200);
    taint(json!([]));
    eventually("the node to count again", || health("/healthz").0 == 200);
    plane.delete("/api/v1/nodes/healthy");
    eventually("the node to be missed", || health("/healthz").0 == 503);
    assert_eq!(health("/livez").0, 200);

    let text = metrics(&test_node.namespace);
    for (series, at_least) in [
        ("kubeproxy_proxy_healthz_total{code=\"200\"}", 2.0),
        ("kubeproxy_proxy_healthz_total{code=\"503\"}", 2.0),
        ("kubeproxy_proxy_livez_total{code=\"200\"}", 3.0),
    ] {
        assert!(value(&text, series) >= Some(at_least), "{series} in\n{text}");
    }
    // Both families, on one address.
    let reply = get(&test_node.namespace, "http://[::1]:10256", "/livez").unwrap();
    assert_eq!(reply.status, 200);
    assert_eq!(get(&test_node.namespace, HEALTH, "/metrics").unwrap().status, 404);
}

#[test]
fn an_agent_is_ready_after_its_first_sync_and_says_what_it_waits_for() {
    let plane = shared();
    plane.apply(&node("waits", "zone-a"));
    plane.apply(RBAC);
    let kubeconfig = plane.kubeconfig_for_service_account("kube-system", "zoneward");
    let namespace = Namespace::new().unwrap();
    let relay = plane.reach_from(&namespace);
    relay.cut();
    let args = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--node-name", "waits"];
    let mut agent = Agent::start(&namespace, &args);
    let ready = || get(&namespace, HEALTH, "/readyz");
    eventually("the server to be there", || ready().is_ok());
    let reply = ready().unwrap();
    let blockers = ["nodes", "services", "servicecidrs", "endpointslices"];
    let want: String =
        blockers.iter().map(|what| format!("{what}: first list not complete\n")).collect();
    assert_eq!((reply.status, reply.text.as_str()), (503, want.as_str()));
    // Nothing has been asked of it yet.
    assert_eq!(get(&namespace, HEALTH, "/livez").unwrap().status, 200);
    relay.mend();
    agent.wait_for(&["synced"]);
    eventually("the agent to be ready", || ready().unwrap().status == 200);
    assert_eq!(ready().unwrap().text, "ok\n");
    assert!(value(&metrics(&namespace), "zoneward_start_to_ready_seconds") > Some(0.0));
}

#[test]
fn metrics_have_kube_proxys_names_and_tell_what_happened() {
    let plane = shared();
    plane.apply(&node("measured", "zone-a"));
    plane.apply(&service("measured", 40));
    let test_node = TestNode::start(&plane, "measured");
    let namespace = &test_node.namespace;
    // As the slice controller notes it.
    let trigger = in_a_second();
    let annotated = slice("measured", "api-1", "", &["10.244.1.1"]).replace(
        "name: api-1,",
        &format!(
            "name: api-1, annotations: {{endpoints.kubernetes.io/last-change-trigger-time: \"{trigger}\"}},"
        ),
    );
    plane.apply(&annotated);
    test_node.expect("measured/api", Some(&["10.244.1.1:8080"]));

    eventually("the change to be measured", || {
        let programmed = "kubeproxy_network_programming_duration_seconds_count{ip_family=\"IPv4\"}";
        value(&metrics(namespace), programmed) == Some(1.0)
    });
    let text = metrics(namespace);
    for (series, at_least) in [
        ("kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}", 2.0),
        ("kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"}", 2.0),
        ("kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}", 1.0),
        ("kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}", 1.0),
        ("kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"}", 1e9),
        ("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv4\"}", 1e9),
        ("kubeproxy_sync_proxy_rules_endpoint_changes_total", 1.0),
        ("kubeproxy_sync_proxy_rules_service_changes_total", 2.0),
        ("kubeproxy_sync_proxy_rules_endpoint_changes_pending", 0.0),
        ("kubeproxy_sync_proxy_rules_service_changes_pending", 0.0),
        ("kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"}", 0.0),
        (
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy=\"internal\",ip_family=\"IPv4\"}",
            0.0,
        ),
        ("kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family=\"IPv4\"}", 0.0),
        ("kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv6\"}", 0.0),
        ("zoneward_batch_elements_count", 2.0),
        ("zoneward_batch_bytes_sum", 1.0),
        ("zoneward_stage_duration_seconds_count{stage=\"list\"}", 1.0),
        ("zoneward_stage_duration_seconds_count{stage=\"plan\"}", 2.0),
        ("zoneward_stage_duration_seconds_count{stage=\"commit\"}", 2.0),
        ("zoneward_watch_bytes_total{resource=\"endpointslices\"}", 0.0),
        ("zoneward_objects_rejected_total{kind=\"Service\"}", 0.0),
        ("zoneward_refused_objects_total", 0.0),
        ("zoneward_drift_repairs_total", 0.0),
        (
            "zoneward_service_connections_total{namespace=\"measured\",name=\"api\",port=\"http\",ip_family=\"IPv4\"}",
            0.0,
        ),
        ("zoneward_service_connections_hidden_services", 0.0),
    ] {
        assert!(value(&text, series) >= Some(at_least), "{series} in\n{text}");
    }
    assert!(text.contains("# TYPE kubeproxy_sync_proxy_rules_endpoint_changes_total counter\n"));

    let other = |path: &str| {
        let reply = get(namespace, METRICS, path).unwrap();
        (reply.status, reply.text)
    };
    assert_eq!(other("/proxyMode"), (200, "nftables".into()));
    assert_eq!(other("/healthz"), (200, "ok".into()));
    let config: Value = serde_json::from_str(&other("/configz").1).unwrap();
    let config = &config["kubeproxy.config.k8s.io"];
    assert_eq!(
        (&config["mode"], &config["hostnameOverride"]),
        (&json!("nftables"), &json!("measured"))
    );
}

/// A time after the agent's start, as Kubernetes writes it.
fn in_a_second() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let args = ["-u", "-d", &format!("@{}", now + 1), "+%Y-%m-%dT%H:%M:%SZ"];
    text(&Command::new("date").args(args).output().unwrap().stdout).trim().to_owned()
}

/// The agents' Events about an object. The API server has some of its own: it notices an address that
/// nobody has allocated.
fn events(plane: &ControlPlane, namespace: &str, kind: &str, name: &str) -> Vec<Value> {
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let list = plane.get(&path);
    let about = |event: &&Value| {
        let regarding = &event["regarding"];
        event["reportingController"] == "zoneward"
            && (&regarding["kind"], &regarding["name"]) == (&json!(kind), &json!(name))
    };
    list["items"].as_array().unwrap().iter().filter(about).cloned().collect()
}

#[test]
fn events_tell_of_the_start_and_of_services_that_claim_one_address() {
    let plane = shared();
    plane.apply(&node("tells", "zone-a"));
    plane.apply(&service("tells", 41));
    let mut test_node = TestNode::start(&plane, "tells");
    eventually("an Event on the Node", || !events(&plane, "default", "Node", "tells").is_empty());
    let event = &events(&plane, "default", "Node", "tells")[0];
    assert_eq!((&event["reason"], &event["type"]), (&json!("Starting"), &json!("Normal")));
    let uid = &plane.get("/api/v1/nodes/tells")["metadata"]["uid"];
    assert_eq!(&event["regarding"]["uid"], uid, "or kubectl describe would not show it");

    // The API server gives an address to one Service only, unless it forgets whose it is.
    plane.delete("/apis/networking.k8s.io/v1/ipaddresses/10.96.7.41");
    plane.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: copy, namespace: tells}, spec: {clusterIP: \
         10.96.7.41, ports: [{name: http, port: 80}]}}",
    );
    test_node.agent.wait_for(&["WARN", "tells/copy", "another Service has this address"]);
    eventually("an Event on the Service", || {
        !events(&plane, "tells", "Service", "copy").is_empty()
    });
    // Another change of the same Service is the same cause.
    let copy = "/api/v1/namespaces/tells/services/copy";
    plane.patch(copy, &json!({"spec": {"internalTrafficPolicy": "Local"}}));
    test_node.agent.wait_for(&["WARN", "tells/copy", "another Service has this address"]);
    plane.apply(&slice("tells", "api-1", "", &["10.244.1.1"]));
    test_node.expect("tells/api", Some(&["10.244.1.1:8080"]));
    // Every agent of this tier sees it, so there may be one more if ten minutes end just now.
    let told = events(&plane, "tells", "Service", "copy");
    assert!(told.len() <= 2, "{told:#?}");
    assert_eq!((&told[0]["reason"], &told[0]["type"]), (&json!("AddressInUse"), &json!("Warning")));
    assert_eq!(
        told[0]["note"],
        "not programmed, another Service has it: 10.96.7.41:80/tcp is tells/api's"
    );
    assert_eq!(told[0]["regarding"]["uid"], plane.get(copy)["metadata"]["uid"]);
    assert!(events(&plane, "tells", "Service", "api").is_empty(), "it has the address");
}

#[test]
fn without_the_right_to_write_events_it_is_told_once_and_all_else_works() {
    let plane = shared();
    plane.apply(&node("silent", "zone-a"));
    plane.apply(&RBAC.replace("name: zoneward", "name: silent").replace("events]", "nothings]"));
    let kubeconfig = plane.kubeconfig_for_service_account("kube-system", "silent");
    let namespace = Namespace::new().unwrap();
    let _relay = plane.reach_from(&namespace);
    // An address that is taken is one more cause for an Event.
    let _taken = namespace.run(|| std::net::TcpListener::bind("127.0.0.1:10249")).unwrap();
    let args = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--node-name", "silent"];
    let mut agent = Agent::start(&namespace, &args);
    agent.wait_for(&["Events cannot be written", "cannot create resource"]);
    eventually("the agent to be ready", || {
        get(&namespace, HEALTH, "/readyz").is_ok_and(|reply| reply.status == 200)
    });
    assert_eq!(events(&plane, "default", "Node", "silent"), [Value::Null; 0]);
}

#[test]
fn an_address_that_is_taken_is_told_and_tried_again_or_fatal() {
    let plane = shared();
    plane.apply(&node("taken", "zone-a"));
    plane.apply(RBAC);
    let kubeconfig = plane.kubeconfig_for_service_account("kube-system", "zoneward");
    let namespace = Namespace::new().unwrap();
    let _relay = plane.reach_from(&namespace);
    let taken = namespace.run(|| std::net::TcpListener::bind("127.0.0.1:10249")).unwrap();
    let args = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--node-name", "taken"];
    let mut agent = Agent::start(&namespace, &args);
    agent.wait_for(&["ERROR", "cannot serve metrics", "127.0.0.1:10249"]);
    eventually("an Event on the Node", || {
        let told = events(&plane, "default", "Node", "taken");
        told.iter().any(|event| event["reason"] == "FailedToStartMetricServer")
    });
    drop(taken);
    agent.wait_for(&["serving metrics"]);
    drop(agent);

    let _taken = namespace.run(|| std::net::TcpListener::bind("127.0.0.1:10249")).unwrap();
    let output = run_in(&namespace, &[&["run", "--bind-address-hard-fail"], &args[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let want =
        "error: cannot serve metrics on 127.0.0.1:10249: Address already in use (os error 98)";
    assert!(said.lines().any(|line| line == want), "{said}");
}

#[test]
fn a_taint_goes_once_the_node_is_ready() {
    let plane = shared();
    plane.apply(&node("tainted", "zone-a"));
    let taints = json!([
        {"key": "zoneward/starting", "effect": "NoSchedule"},
        {"key": "zoneward/starting", "effect": "NoExecute"},
        {"key": "other", "effect": "NoSchedule"},
    ]);
    plane.patch("/api/v1/nodes/tainted", &json!({"spec": {"taints": taints}}));
    let namespace = Namespace::new().unwrap();
    let _relay = plane.reach_from(&namespace);
    let kubeconfig = plane.kubeconfig();
    let args = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--node-name", "tainted"];
    let mut agent =
        Agent::start(&namespace, &[&args[..], &["--remove-taint", "zoneward/starting"]].concat());
    agent.wait_for(&["taint removed"]);
    let left = &plane.get("/api/v1/nodes/tainted")["spec"]["taints"];
    let left: Vec<&Value> = left.as_array().unwrap().iter().map(|taint| &taint["key"]).collect();
    assert_eq!(left, ["other"]);
}

#[test]
fn a_changed_configuration_takes_effect_without_a_restart() {
    let plane = shared();
    plane.apply(&node("configured", "zone-a"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let kubeconfig = plane.kubeconfig_for_service_account("kube-system", "zoneward");
    let base = format!(
        "hostnameOverride: Configured\nclientConnection: {{kubeconfig: {}}}\n",
        kubeconfig.display()
    );
    let write = |more: &str| write_config(&path, &format!("{base}{more}"));
    write("clusterCIDR: 10.244.0.0/16\nportRange: 1-2\n");
    let mut node = Configured::start(&plane, &path);
    assert!(node.agent.log.iter().any(|line| line.ends_with("WARN ignored: portRange")));
    assert!(node.table().contains("pods 10.244.0.0/16"), "{}", node.table());
    let process = node.agent.id();

    write("clusterCIDR: 10.200.0.0/16\nmetricsBindAddress: 127.0.0.1:10248\n");
    eventually("the table to follow", || node.table().contains("pods 10.200.0.0/16"));
    let moved = "http://127.0.0.1:10248";
    eventually("the server to move", || get(&node.namespace, moved, "/configz").is_ok());
    assert!(get(&node.namespace, METRICS, "/configz").is_err(), "it left the old address");
    let config = get(&node.namespace, moved, "/configz").unwrap().json();
    assert_eq!(config["kubeproxy.config.k8s.io"]["clusterCIDR"], "10.200.0.0/16");

    write("clusterCIDR: 10.201.0.0/16\nnftables: {masqueradeBits: 3}\n");
    let told = node.agent.wait_for(&["ERROR", "the one before stays in force"]);
    assert!(told.contains("nftables.masqueradeBits: unknown field, did you mean `masqueradeBit`?"));
    assert!(node.table().contains("pods 10.200.0.0/16"));

    write("clusterCIDR: 10.202.0.0/16\nmode: nftables\n");
    eventually("the table to follow again", || node.table().contains("pods 10.202.0.0/16"));
    write_config(&path, "clusterCIDR: 10.202.0.0/16\nhostnameOverride: another\n");
    node.agent.wait_for(&[
        "WARN",
        "takes effect after a restart: clientConnection.kubeconfig, hostnameOverride",
    ]);
    assert_eq!(node.agent.id(), process);
    assert_eq!(answer(&node.namespace, "/healthz").0, 200, "it still follows its own Node");
}
