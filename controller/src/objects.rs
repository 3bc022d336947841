//! Plain types as Kubernetes objects again: what is written to the API server, byte for byte.

use std::collections::BTreeMap;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use crate::handover::ServicePatch;
use crate::input::Service;
use crate::names;
use crate::pack::{Content, Target};

/// A slice of a Service's group.
pub fn group_slice(
    service: &Service,
    content: &Content,
    trigger: Option<&str>,
    target: Option<&Target>,
) -> EndpointSlice {
    let mut labels = BTreeMap::from([
        (names::MANAGED_BY.to_owned(), names::MANAGER.to_owned()),
        (names::SERVICE_NAME.to_owned(), service.key.name.to_string()),
    ]);
    if let Some(zone) = &content.audience {
        labels.insert(names::FOR_ZONE.to_owned(), zone.to_string());
    }
    let metadata = ObjectMeta {
        namespace: Some(service.key.namespace.to_string()),
        labels: Some(labels),
        owner_references: Some(vec![owner("Service", &service.key.name, &service.uid)]),
        ..ObjectMeta::default()
    };
    slice(metadata, &service.key.name, content, trigger, target)
}

/// `metadata` with what every slice has: a name or where it comes from, the trigger time, the content.
pub(crate) fn slice(
    mut metadata: ObjectMeta,
    service: &str,
    content: &Content,
    trigger: Option<&str>,
    target: Option<&Target>,
) -> EndpointSlice {
    match target {
        Some(target) => {
            metadata.name = Some(target.name.to_string());
            metadata.uid = Some(target.uid.clone());
            // Somebody else's write in between is noticed.
            metadata.resource_version = Some(target.version.clone());
        }
        None => metadata.generate_name = Some(format!("{service}-")),
    }
    if let Some(trigger) = trigger {
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(names::TRIGGER_TIME.to_owned(), trigger.to_owned());
    }
    EndpointSlice {
        metadata,
        address_type: content.family.to_string(),
        endpoints: content.endpoints.iter().map(|endpoint| (**endpoint).clone()).collect(),
        ports: Some(content.ports.to_object()),
    }
}

/// No `blockOwnerDeletion`: it would take a right on the owner's finalizers.
pub(crate) fn owner(kind: &str, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: kind.into(),
        name: name.into(),
        uid: uid.into(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// A patch as the merge that the API server takes. The uid makes it fail on another Service that got
/// the same name meanwhile.
pub fn service_patch(service: &Service, patch: &ServicePatch) -> Value {
    let mut metadata = json!({"uid": service.uid});
    for (zone, labelled) in &patch.zones {
        let name = format!("{}{zone}", names::ZONE_PREFIX);
        metadata["labels"][name] = if *labelled { json!("true") } else { Value::Null };
    }
    if !patch.annotations.is_empty() {
        metadata["annotations"] = json!(patch.annotations);
    }
    json!({"metadata": metadata})
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use zw_model::Family;

    use super::*;
    use crate::testing::{endpoint, http, service};

    #[test]
    fn a_groups_slice_says_whose_it_is_and_for_whom() {
        let content = Content {
            audience: Some("zone-a".into()),
            family: Family::V6,
            ports: http(),
            endpoints: vec![Arc::new(endpoint("fd00::1", "zone-a", true))],
        };
        let made = group_slice(&service(&[]), &content, Some("2026-01-01T00:00:00Z"), None);
        let want = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv6",
            "metadata": {
                "generateName": "api-", "namespace": "web",
                "labels": {
                    "endpointslice.kubernetes.io/for-zone": "zone-a",
                    "endpointslice.kubernetes.io/managed-by": "zoneward-controller",
                    "kubernetes.io/service-name": "api",
                },
                "annotations":
                    {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "api",
                    "uid": "service-uid", "controller": true}],
            },
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["fd00::1"], "conditions": {"ready": true}, "zone": "zone-a"}],
        });
        assert_eq!(serde_json::to_value(&made).unwrap(), want);

        let target = Target { name: "api-x".into(), uid: "slice-uid".into(), version: "7".into() };
        let made = group_slice(&service(&[]), &content, None, Some(&target)).metadata;
        assert_eq!(made.name.as_deref(), Some("api-x"));
        assert_eq!(made.resource_version.as_deref(), Some("7"));
        assert_eq!((made.generate_name, made.annotations), (None, None));
    }

    #[test]
    fn a_patch_sets_and_removes_and_leaves_the_rest_alone() {
        let patch = ServicePatch {
            zones: [("a".into(), true), ("b".into(), false)].into(),
            annotations: [(names::APPROACH, Some("Balanced".to_owned())), (names::REASON, None)]
                .into(),
        };
        let want = json!({"metadata": {
            "uid": "service-uid",
            "labels": {"zones.zoneward/a": "true", "zones.zoneward/b": null},
            "annotations": {"zoneward/approach": "Balanced", "zoneward/reason": null},
        }});
        assert_eq!(service_patch(&service(&[]), &patch), want);
    }
}
