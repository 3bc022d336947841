//! The fields of Kubernetes objects that are used, and no others. Optional wherever the API has them
//! optional; numbers are wide, so that an impossible one is reported by [`super`] and not by serde.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) labels: Option<BTreeMap<String, String>>,
}

impl Metadata {
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(String::as_str)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Service {
    pub(super) metadata: Metadata,
    pub(super) spec: ServiceSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ServiceSpec {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    #[serde(rename = "clusterIP")]
    pub(super) cluster_ip: Option<String>,
    #[serde(rename = "clusterIPs")]
    pub(super) cluster_ips: Option<Vec<String>>,
    pub(super) ports: Option<Vec<Port>>,
}

/// A port of a Service or of a slice.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Port {
    pub(super) name: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) port: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct EndpointSlice {
    pub(super) metadata: Metadata,
    pub(super) address_type: Option<String>,
    pub(super) endpoints: Option<Vec<Endpoint>>,
    pub(super) ports: Option<Vec<Port>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Endpoint {
    pub(super) addresses: Option<Vec<String>>,
    pub(super) conditions: Option<Conditions>,
    pub(super) node_name: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) hints: Option<Hints>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Conditions {
    pub(super) ready: Option<bool>,
    pub(super) serving: Option<bool>,
    pub(super) terminating: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Hints {
    pub(super) for_zones: Option<Vec<Named>>,
    pub(super) for_nodes: Option<Vec<Named>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    pub(super) name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub(super) metadata: Metadata,
}
