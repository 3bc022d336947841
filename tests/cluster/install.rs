//! What `deploy/` installs is what an API server takes, sent by kubectl as its users send it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_tests::binary::{run_in, text};
use zw_tests::control_plane::{ControlPlane, kustomize, shared};

/// The pages that tell what to apply.
const PAGES: [&str; 3] = ["README.md", "migrate.md", "kind/README.md"];

pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").canonicalize().unwrap()
}

/// Sends a folder as `kubectl apply` does, without keeping it; returns what would be made.
pub(crate) fn try_apply(plane: &ControlPlane, how: &str, what: &Path) -> Vec<String> {
    let output = plane.kubectl(&["apply", "--dry-run=server", how, what.to_str().unwrap()]);
    let (out, complaints) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {complaints}", what.display());
    // Other tests apply some of this too, and not with kubectl, which tells.
    let warnings = complaints.lines().filter(|line| !line.contains("last-applied-configuration"));
    assert_eq!(warnings.collect::<Vec<_>>(), Vec::<&str>::new(), "{}", what.display());
    let object = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    out.lines().map(object).collect()
}

const EVERYTHING: [&str; 6] = [
    "serviceaccount/zoneward",
    "clusterrole.rbac.authorization.k8s.io/zoneward",
    "clusterrolebinding.rbac.authorization.k8s.io/zoneward",
    "configmap/zoneward-api-server",
    "configmap/zoneward-config",
    "daemonset.apps/zoneward",
];

#[test]
fn the_api_server_takes_base_and_every_overlay() {
    let plane = shared();
    assert_eq!(try_apply(&plane, "-k", &deploy().join("base")), EVERYTHING);
    let overlays: Vec<PathBuf> =
        fs::read_dir(deploy().join("overlays")).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(overlays.len() >= 2, "{overlays:?}");
    for overlay in overlays {
        let pod = &daemon_set(&overlay)["spec"]["template"]["spec"];
        let init = pod["initContainers"].as_array().into_iter().flatten();
        for container in init {
            assert_eq!(container["image"], pod["containers"][0]["image"], "{}", overlay.display());
        }
        let mut applied = try_apply(&plane, "-k", &overlay);
        // Which the overlay with the controller has besides, see install_controller.rs.
        applied.retain(|object| !object.ends_with("/zoneward-controller"));
        assert_eq!(applied, EVERYTHING, "{}", overlay.display());
    }
}

#[test]
fn install_yaml_is_what_base_renders_to() {
    let path = deploy().join("install.yaml");
    let want = format!(
        "# Rendered from deploy/base, kept equal by a test; BLESS=1 writes it anew.\n{}",
        kustomize(&deploy().join("base"))
    );
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &want).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), want, "BLESS=1 rewrites it");
}

#[test]
fn the_pages_name_only_what_the_api_server_takes() {
    let plane = shared();
    for page in PAGES {
        let markdown = fs::read_to_string(deploy().join(page)).unwrap();
        let words: Vec<&str> = markdown.split([' ', '\n', '`']).collect();
        let applied: Vec<(&str, &str)> = words
            .windows(2)
            .filter(|pair| matches!(pair[0], "-k" | "-f") && pair[1].starts_with("deploy/"))
            .map(|pair| (pair[0], pair[1]))
            .collect();
        assert!(!applied.is_empty(), "{page} applies nothing");
        for (how, what) in applied {
            let folder = deploy().join(what.strip_prefix("deploy/").unwrap());
            let mut applied = try_apply(&plane, how, &folder);
            applied.retain(|object| !object.ends_with("/zoneward-controller"));
            assert_eq!(applied, EVERYTHING, "{page}: {how} {what}");
        }
    }
}

/// The DaemonSet that a folder installs.
pub(crate) fn daemon_set(folder: &Path) -> Value {
    let rendered = kustomize(folder);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    documents.into_iter().find(|document| document["kind"] == "DaemonSet").expect("a DaemonSet")
}

#[test]
fn the_agent_gets_net_admin_a_read_only_root_and_nothing_of_the_host_but_its_network() {
    let pod = &daemon_set(&deploy().join("base"))["spec"]["template"]["spec"];
    let [container] = pod["containers"].as_array().unwrap().as_slice() else { panic!("{pod}") };
    let want = json!({
        "runAsUser": 0, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
    });
    assert_eq!(container["securityContext"], want);
    assert_eq!(pod["securityContext"], json!({"seccompProfile": {"type": "RuntimeDefault"}}));
    assert_eq!(pod["initContainers"], Value::Null);
    assert_eq!(container["ports"], Value::Null, "they would reserve the host's");
    let volumes = pod["volumes"].as_array().into_iter().flatten();
    for volume in volumes {
        // None of the host's.
        let own = ["configMap", "emptyDir"].iter().any(|kind| volume.get(kind).is_some());
        assert!(own, "{volume}");
    }
}

#[test]
fn an_update_never_takes_an_agent_away_before_the_next_one_is_there() {
    let spec = &daemon_set(&deploy().join("base"))["spec"];
    let want =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    assert_eq!(spec["updateStrategy"], want);
}

#[test]
fn probes_ask_the_health_server_and_at_first_the_agent_itself() {
    let pod = &daemon_set(&deploy().join("base"))["spec"]["template"]["spec"];
    let asks = |probe: &str| pod["containers"][0][probe]["httpGet"].clone();
    assert_eq!(asks("readinessProbe"), json!({"path": "/readyz", "port": 10256}));
    assert_eq!(asks("livenessProbe"), json!({"path": "/livez", "port": 10256}));
    let own = &pod["containers"][0]["startupProbe"]["exec"]["command"];
    assert_eq!(own, &json!(["zoneward", "ready"]));
}

#[test]
fn the_configuration_that_is_installed_is_one_the_agent_takes() {
    let rendered = kustomize(&deploy().join("base"));
    let documents: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    let installed = documents.iter().find_map(|document| document["data"]["config.yaml"].as_str());
    let folder = tempfile::tempdir().unwrap();
    let (config, state) = (folder.path().join("config.yaml"), folder.path().join("state.yaml"));
    fs::write(&config, installed.expect("a ConfigMap has it")).unwrap();
    fs::write(&state, "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n").unwrap();
    let (config, state) = (config.to_str().unwrap(), state.to_str().unwrap());
    let namespace = Namespace::new().unwrap();
    let args = ["run", "--once", "--node-name", "node-1", "--state", state, "--config", config];
    let output = run_in(&namespace, &args);
    let said = text(&output.stderr);
    assert!(output.status.success() && !said.contains("WARN"), "{said}");
}

/// A kustomization of someone who uses a part of ours; paths in it are relative.
fn somebodys(kustomization: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let up = "../".repeat(folder.path().canonicalize().unwrap().components().count() - 1);
    let deploy = format!("{up}{}", deploy().display().to_string().trim_start_matches('/'));
    let text = kustomization.replace("DEPLOY", &deploy);
    fs::write(folder.path().join("kustomization.yaml"), text).unwrap();
    folder
}

#[test]
fn sysctls_are_set_by_an_init_container_and_the_agent_stays_as_it_is() {
    let folder = somebodys(
        "resources: [DEPLOY/base]\ncomponents: [DEPLOY/components/sysctls]\nimages: [{name: zoneward, \
         newName: registry.example.test/zoneward, newTag: '1'}]\n",
    );
    assert_eq!(try_apply(&shared(), "-k", folder.path()), EVERYTHING);
    let with = daemon_set(folder.path());
    let pod = &with["spec"]["template"]["spec"];
    let [init] = pod["initContainers"].as_array().unwrap().as_slice() else { panic!("{pod}") };
    assert_eq!(init["securityContext"]["privileged"], true);
    assert_eq!(init["args"][1], "--init-only");
    assert_eq!(init["image"], pod["containers"][0]["image"]);
    let without = daemon_set(&deploy().join("base"));
    let agent = &without["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(pod["containers"][0]["securityContext"], agent["securityContext"]);
}

#[test]
fn the_taint_comes_off_by_a_flag_and_a_right_of_its_own() {
    let folder = somebodys("resources: [DEPLOY/base]\ncomponents: [DEPLOY/components/taint]\n");
    assert_eq!(try_apply(&shared(), "-k", folder.path()), EVERYTHING);
    let documents =
        |folder: &Path| -> Vec<Value> { serde_saphyr::from_multiple(&kustomize(folder)).unwrap() };
    let rules = |documents: &[Value]| -> Vec<Value> {
        let role = documents.iter().find(|document| document["kind"] == "ClusterRole");
        role.expect("a role")["rules"].as_array().unwrap().clone()
    };
    let with = documents(folder.path());
    let mut want = rules(&documents(&deploy().join("base")));
    want.push(json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}));
    assert_eq!(rules(&with), want);
    let args = &daemon_set(folder.path())["spec"]["template"]["spec"]["containers"][0]["args"];
    let args = args.as_array().unwrap();
    assert_eq!(args.last().unwrap(), "--remove-taint=zoneward/starting");
}
