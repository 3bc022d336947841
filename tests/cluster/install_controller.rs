//! What the overlay with the controller installs beside the agents, and what that may do.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use zw_tests::binary::eventually;
use zw_tests::control_plane::{kustomize, shared};

use crate::install::{deploy, try_apply};
use crate::install_profile::violations;
use crate::install_rights::{VERBS, may, resources};

fn rendered() -> Vec<Value> {
    rendered_from("overlays/zones")
}

fn rendered_from(folder: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&kustomize(&deploy().join(folder))).unwrap()
}

fn deployment() -> Value {
    let is_it = |document: &Value| document["kind"] == "Deployment";
    rendered().into_iter().find(is_it).expect("a Deployment")
}

#[test]
fn the_overlay_adds_the_controller_and_nothing_else() {
    let applied = try_apply(&shared(), "-k", &deploy().join("overlays/zones"));
    let added: BTreeSet<&str> =
        applied.iter().filter_map(|object| object.strip_suffix("/zoneward-controller")).collect();
    let want = [
        "clusterrole.rbac.authorization.k8s.io",
        "clusterrolebinding.rbac.authorization.k8s.io",
        "deployment.apps",
        "poddisruptionbudget.policy",
        "role.rbac.authorization.k8s.io",
        "rolebinding.rbac.authorization.k8s.io",
        "serviceaccount",
    ];
    assert_eq!(added, want.into());
}

#[test]
fn two_controllers_of_which_one_at_a_time_may_be_taken_away() {
    let deployment = deployment();
    assert_eq!(deployment["spec"]["replicas"], 2);
    let budget = rendered().into_iter().find(|d| d["kind"] == "PodDisruptionBudget").unwrap();
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&budget["spec"]["selector"]["matchLabels"], labels);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "zoneward:0.1.0", "the one of the agents");
}

#[test]
fn the_controllers_pod_keeps_to_the_restricted_profile() {
    let template = deployment()["spec"]["template"].take();
    assert_eq!(violations(&shared(), &template), BTreeSet::new());
}

#[test]
fn of_everything_the_api_has_the_controller_may_do_just_these_things() {
    let plane = shared();
    plane.apply(&kustomize(&deploy().join("overlays/zones")));
    let account = "zoneward-controller";
    eventually("the role to count", || may(&plane, account, "list", "", "services"));
    let mut allowed = BTreeSet::new();
    for (group, resource) in &resources(&plane) {
        for verb in VERBS {
            if may(&plane, account, verb, group, resource)
                && !may(&plane, "nobody", verb, group, resource)
            {
                allowed.insert(format!("{verb} {resource}.{group}"));
            }
        }
    }
    let want = [
        "create endpointslices.discovery.k8s.io",
        "create events.events.k8s.io",
        "delete endpointslices.discovery.k8s.io",
        "list endpointslices.discovery.k8s.io",
        "list nodes.",
        "list services.",
        "patch services.",
        "update endpointslices.discovery.k8s.io",
        "watch endpointslices.discovery.k8s.io",
        "watch nodes.",
        "watch services.",
    ];
    assert_eq!(allowed, want.map(String::from).into());

    // And in its own namespace one Lease, under one name.
    let client = plane.client_for_service_account("kube-system", account);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let one = format!("{leases}/zoneward-controller");
    eventually("the Lease may be asked for", || {
        matches!(client.get(&one).unwrap().status, 200 | 404)
    });
    assert_eq!(client.get(&format!("{leases}/another")).unwrap().status, 403);
    assert_eq!(client.get(leases).unwrap().status, 403);
    assert_eq!(client.delete(&one).unwrap().status, 403);
    let elsewhere = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x"}});
    assert_eq!(client.post(elsewhere, &lease).unwrap().status, 403);
}

#[test]
fn mirroring_takes_one_right_and_one_flag_more() {
    let mut want = rendered();
    for document in &mut want {
        match (document["kind"].as_str(), document["metadata"]["name"].as_str()) {
            (Some("ClusterRole"), Some("zoneward-controller")) => {
                let right = json!({"apiGroups": [""], "resources": ["endpoints"], "verbs": ["list", "watch"]});
                document["rules"].as_array_mut().unwrap().push(right);
            }
            (Some("Deployment"), _) => {
                let container = &mut document["spec"]["template"]["spec"]["containers"][0];
                container["args"] = json!(["controller", "--mirror-endpoints"]);
            }
            _ => {}
        }
    }
    assert_eq!(rendered_from("overlays/mirror"), want);
}
