//! Objects as they come over the wire, for `kube`'s watcher: each is decoded where it stands in a list or
//! an event, and only what is used of it lives on. Decoding one never fails, so one odd object cannot
//! stop a whole list.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::convert::{Content, Decoded, Kind, ObjectId, decode};

/// An object of any kind.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    pub(crate) content: Content,
    /// The server's version of it. They grow with time, and are compared as numbers.
    pub(crate) version: u64,
}

impl Wire {
    /// Who it is.
    pub(crate) fn into_id(self) -> Option<ObjectId> {
        match self.content {
            Content::Good(object, _) => Some(object.id),
            Content::Bad(id, _) => id,
        }
    }
}

/// A kind for `kube`: which path to ask, and what came.
macro_rules! kind {
    ($name:ident, $kind:expr, $scope:ty, $group:literal, $version:literal, $plural:literal) => {
        #[derive(Debug, Clone)]
        pub(crate) struct $name {
            meta: ObjectMeta,
            content: Content,
        }

        impl Resource for $name {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($name).into()
            }
            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.meta
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.meta
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let json = <&RawValue>::deserialize(deserializer)?;
                let Decoded { version, content } = decode($kind, json.get());
                Ok(Self { meta: metadata(version), content })
            }
        }

        impl From<$name> for Wire {
            fn from(object: $name) -> Wire {
                let $name { meta, content } = object;
                Wire { content, version: number(meta.resource_version.as_deref()) }
            }
        }
    };
}

kind!(Service, Kind::Service, NamespaceResourceScope, "", "v1", "services");
kind!(
    EndpointSlice,
    Kind::EndpointSlice,
    NamespaceResourceScope,
    "discovery.k8s.io",
    "v1",
    "endpointslices"
);
kind!(Node, Kind::Node, ClusterResourceScope, "", "v1", "nodes");
kind!(
    ServiceCidr,
    Kind::ServiceCidr,
    ClusterResourceScope,
    "networking.k8s.io",
    "v1",
    "servicecidrs"
);

/// All the watcher asks for: the version to resume from.
fn metadata(version: Option<String>) -> ObjectMeta {
    ObjectMeta { resource_version: version, ..ObjectMeta::default() }
}

/// A server that does not number its versions gives the last word to whoever speaks last.
fn number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use kube::core::{ObjectList, WatchEvent};

    use super::*;

    /// What came of a list or an event, in a line each.
    fn told(object: Service) -> String {
        let version = object.meta.resource_version.clone().unwrap_or_default();
        match Wire::from(object).content {
            Content::Good(object, problems) => {
                format!("{} {version} {}", object.id, problems.len())
            }
            Content::Bad(Some(id), problem) => format!("{id} {version} bad: {problem}"),
            Content::Bad(None, problem) => format!("nobody {version} bad: {problem}"),
        }
    }

    const GOOD: &str = r#"{"metadata": {"name": "a", "namespace": "web", "resourceVersion": "7",
        "managedFields": [{"fieldsV1": {"f:spec": {}}}]}, "spec": {"clusterIP": "10.96.0.1"}}"#;
    const ODD: &str = r#"{"metadata": {"name": "b", "namespace": "web", "resourceVersion": "8"},
        "spec": {"ports": "none"}}"#;

    #[test]
    fn an_odd_object_costs_itself_and_not_the_list() {
        let list = format!(
            r#"{{"kind": "ServiceList", "apiVersion": "v1", "metadata": {{"resourceVersion": "9"}},
                "items": [{GOOD}, {ODD}, 5, {{}}, {GOOD}]}}"#
        );
        let list: ObjectList<Service> = serde_json::from_str(&list).unwrap();
        let lines: Vec<String> = list.items.into_iter().map(told).collect();
        assert_eq!(lines.len(), 5);
        assert_eq!((&*lines[0], &*lines[4]), ("Service web/a 7 0", "Service web/a 7 0"));
        assert!(
            lines[1].starts_with("Service web/b 8 bad: spec.ports: invalid type: string \"none\""),
            "{}",
            lines[1]
        );
        assert!(lines[2].starts_with("nobody  bad: "), "{}", lines[2]);
        assert_eq!(lines[3], "nobody  bad: metadata.name: missing");
    }

    #[test]
    fn an_odd_object_costs_itself_and_not_the_stream() {
        let event = format!(r#"{{"type": "MODIFIED", "object": {ODD}}}"#);
        let event: WatchEvent<Service> = serde_json::from_str(&event).unwrap();
        let WatchEvent::Modified(object) = event else { panic!("{event:?}") };
        assert_eq!(object.meta.resource_version.as_deref(), Some("8"), "to resume from");
        assert!(told(object).starts_with("Service web/b 8 bad"));
    }

    #[test]
    fn an_error_in_the_stream_is_one() {
        let event = r#"{"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1",
            "metadata": {}, "status": "Failure", "message": "gone", "reason": "Gone", "code": 410}}"#;
        let event: WatchEvent<Service> = serde_json::from_str(event).unwrap();
        let WatchEvent::Error(status) = event else { panic!("{event:?}") };
        assert_eq!(status.code, 410);
    }
}
