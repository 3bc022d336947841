//! Objects as they come over the wire: enough metadata for `kube`'s watcher, and the rest as JSON for
//! [`crate::convert`]. Decoding one never fails, so one odd object cannot stop a whole list.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::convert::Kind;

/// An object of any kind.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    /// The whole object, its `kind` and `apiVersion` filled in.
    pub(crate) value: Value,
    /// The server's version of it. They grow with time, and are compared as numbers.
    pub(crate) version: u64,
}

/// A kind for `kube`: which path to ask, and what came.
macro_rules! kind {
    ($name:ident, $kind:expr, $scope:ty, $group:literal, $version:literal, $plural:literal) => {
        #[derive(Debug, Clone)]
        pub(crate) struct $name {
            meta: ObjectMeta,
            value: Value,
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
                let value = Value::deserialize(deserializer)?;
                Ok(Self { meta: metadata(&value), value })
            }
        }

        impl From<$name> for Wire {
            fn from(object: $name) -> Wire {
                wire($kind, object.meta, object.value)
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

/// What the watcher asks for: names, and the version to resume from.
fn metadata(value: &Value) -> ObjectMeta {
    let text = |field: &str| {
        value.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_str).map(str::to_owned)
    };
    ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        resource_version: text("resourceVersion"),
        uid: text("uid"),
        ..ObjectMeta::default()
    }
}

fn wire(kind: Kind, meta: ObjectMeta, mut value: Value) -> Wire {
    if let Some(object) = value.as_object_mut() {
        let (version, name) = kind.header();
        object.insert("apiVersion".into(), version.into());
        object.insert("kind".into(), name.into());
    }
    // A server that does not number its versions gives the last word to whoever speaks last.
    let version =
        meta.resource_version.and_then(|version| version.parse().ok()).unwrap_or(u64::MAX);
    Wire { value, version }
}
