//! The agent's pod against the `restricted` Pod Security profile, judged by a real API server: what it
//! takes beyond that is what `deploy/README.md` lists and explains.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use zw_tests::control_plane::{ControlPlane, shared};

use crate::install::{daemon_set, deploy};

/// What the profile has against a pod, as the API server names it.
pub(crate) fn violations(plane: &ControlPlane, template: &Value) -> BTreeSet<String> {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "restricted", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    });
    plane.apply(&namespace.to_string());
    let mut pod = template.clone();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = "judged".into();
    let path = "/api/v1/namespaces/restricted/pods?dryRun=All";
    let reply = plane.admin().post(path, &pod).unwrap();
    if reply.ok() {
        return BTreeSet::new();
    }
    let message = reply.json()["message"].as_str().unwrap().to_owned();
    let (_, list) = message
        .split_once("violates PodSecurity \"restricted:latest\": ")
        .unwrap_or_else(|| panic!("refused for another reason: {message}"));
    // A list of `what (where)`, and there are commas inside the parentheses.
    let mut depth = 0;
    let top_level = list.split(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    let name = |item: &str| item.split(" (").next().unwrap_or_default().trim().to_owned();
    top_level.map(name).collect()
}

/// The first column of the table under this heading, without its head.
fn listed(page: &str, heading: &str) -> BTreeSet<String> {
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("the heading is there");
    section
        .lines()
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_pod_breaks_the_restricted_profile_only_where_the_readme_says_so() {
    let plane = shared();
    let template = daemon_set(&deploy().join("base"))["spec"]["template"].take();
    let readme = fs::read_to_string(deploy().join("README.md")).unwrap();
    let explained = listed(&readme, "Beyond the restricted profile");
    assert_eq!(violations(&plane, &template), explained);
}

#[test]
fn the_profile_would_tell_if_the_pod_took_more() {
    let plane = shared();
    let mut template = daemon_set(&deploy().join("base"))["spec"]["template"].take();
    let before = violations(&plane, &template);
    template["spec"]["hostPID"] = true.into();
    template["spec"]["containers"][0]["securityContext"]["privileged"] = true.into();
    template["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = true.into();
    let more = violations(&plane, &template);
    let new: Vec<&String> = more.difference(&before).collect();
    assert_eq!(new, ["allowPrivilegeEscalation != false", "privileged"]);
}
