//! The service account of `deploy/base` may do what the agent needs, and nothing else.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use zw_tests::binary::eventually;
use zw_tests::control_plane::{ControlPlane, kustomize, shared};

use crate::install::deploy;

pub(crate) const VERBS: [&str; 8] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

#[test]
fn the_service_account_is_answered_where_it_asks_and_refused_elsewhere() {
    let plane = shared();
    plane.apply(&kustomize(&deploy().join("base")));
    let agent = plane.client_for_service_account("kube-system", "zoneward");
    // The authorizer learns of roles through watches.
    eventually("the role to count", || agent.get("/api/v1/services").unwrap().status == 200);
    for (path, status) in [
        ("/api/v1/nodes", 200),
        ("/apis/discovery.k8s.io/v1/endpointslices", 200),
        ("/apis/networking.k8s.io/v1/servicecidrs", 200),
        ("/apis/networking.k8s.io/v1/servicecidrs?watch=1&timeoutSeconds=1", 200),
        ("/api/v1/secrets", 403),
        ("/api/v1/pods", 403),
        ("/api/v1/events", 403),
        ("/api/v1/namespaces/default/services/kubernetes", 403),
    ] {
        assert_eq!(agent.get(path).unwrap().status, status, "{path}");
    }
    let about = json!({"apiVersion": "v1", "kind": "Service", "name": "kubernetes", "namespace": "default"});
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "told-by-the-agent", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "Told", "action": "Tell",
        "reportingController": "zoneward", "reportingInstance": "node-1", "regarding": about,
    });
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let told = agent.post(events, &event).unwrap();
    assert!(told.ok() || told.status == 409, "{}", told.text);
    let one = format!("{events}/told-by-the-agent");
    let again = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    assert_eq!(agent.patch(&one, &again).unwrap().status, 403, "it never comes back to one");
    assert_eq!(agent.delete(&one).unwrap().status, 403, "it writes nothing else");
}

/// Every resource the API server has, as its group and name.
pub(crate) fn resources(plane: &ControlPlane) -> BTreeSet<(String, String)> {
    let names = |list: Value, group: &str| -> Vec<(String, String)> {
        let resources = list["resources"].as_array().cloned().unwrap_or_default();
        let name = |resource: &Value| resource["name"].as_str().unwrap().to_owned();
        resources.iter().map(|resource| (group.to_owned(), name(resource))).collect()
    };
    let mut all: BTreeSet<_> = names(plane.get("/api/v1"), "").into_iter().collect();
    for group in plane.get("/apis")["groups"].as_array().unwrap() {
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap();
        let group = group["name"].as_str().unwrap();
        all.extend(names(plane.get(&format!("/apis/{version}")), group));
    }
    all
}

/// Whether RBAC lets a service account of kube-system do something in any namespace.
pub(crate) fn may(
    plane: &ControlPlane,
    account: &str,
    verb: &str,
    group: &str,
    resource: &str,
) -> bool {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:kube-system:{account}"),
            "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
            "resourceAttributes":
                {"verb": verb, "group": group, "resource": resource, "subresource": subresource},
        },
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    plane.create(path, &review)["status"]["allowed"] == true
}

#[test]
fn of_everything_the_api_has_it_may_do_just_these_things() {
    let plane = shared();
    plane.apply(&kustomize(&deploy().join("base")));
    eventually("the role to count", || may(&plane, "zoneward", "list", "", "services"));
    let all = resources(&plane);
    assert!(all.len() > 100, "the API server has more than {}", all.len());
    let mut allowed = BTreeSet::new();
    for (group, resource) in &all {
        for verb in VERBS {
            // What anyone may do, as asking for one's own rights, is not the role's.
            if may(&plane, "zoneward", verb, group, resource)
                && !may(&plane, "nobody", verb, group, resource)
            {
                allowed.insert(format!("{verb} {resource}.{group}"));
            }
        }
    }
    let want = [
        "create events.events.k8s.io",
        "list endpointslices.discovery.k8s.io",
        "list nodes.",
        "list servicecidrs.networking.k8s.io",
        "list services.",
        "watch endpointslices.discovery.k8s.io",
        "watch nodes.",
        "watch servicecidrs.networking.k8s.io",
        "watch services.",
    ];
    assert_eq!(allowed, want.map(String::from).into());
}
