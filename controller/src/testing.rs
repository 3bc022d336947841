//! Fixtures with valid defaults: a test states only what it is about.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointConditions;
use serde_json::{Value, json};
use zw_model::Family;

use crate::input::{Endpoint, Node, Port, Ports, Role, Service, Slice};
use crate::zones::Zones;

/// A Service `web/api` with these annotations.
pub(crate) fn service(annotations: &[(&str, &str)]) -> Service {
    let annotations: Value =
        annotations.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    service_of(json!({"annotations": annotations}), json!({}))
}

/// A Service with these fields besides.
pub(crate) fn service_of(metadata: Value, spec: Value) -> Service {
    let mut object = json!({
        "metadata": {"name": "api", "namespace": "web", "uid": "service-uid", "resourceVersion": "1"},
        "spec": {"clusterIP": "10.96.0.9", "selector": {"app": "api"}},
    });
    for (part, fields) in [("metadata", metadata), ("spec", spec)] {
        for (name, value) in fields.as_object().unwrap() {
            object[part][name] = value.clone();
        }
    }
    let object: core::Service = serde_json::from_value(object).unwrap();
    Service::of(object).unwrap().0
}

pub(crate) fn http() -> Arc<Ports> {
    ports(8080)
}

pub(crate) fn ports(port: i32) -> Arc<Ports> {
    Arc::new(Ports(vec![Port {
        name: Some("http".into()),
        protocol: Some("TCP".into()),
        port: Some(port),
        app_protocol: None,
    }]))
}

pub(crate) fn endpoint(address: &str, zone: &str, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.into()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..Default::default() }),
        zone: (!zone.is_empty()).then(|| zone.into()),
        ..Endpoint::default()
    }
}

/// A slice for everyone, or for a zone.
pub(crate) fn slice(name: &str, zone: Option<&str>, endpoints: &[Endpoint]) -> Slice {
    Slice {
        name: name.into(),
        uid: format!("{name}-uid"),
        version: "1".into(),
        role: match zone {
            Some(zone) => Role::Group(Some(zone.into())),
            None => Role::Default { hidden: Default::default() },
        },
        family: Family::V4,
        ports: (*http()).clone(),
        endpoints: endpoints.iter().cloned().map(Arc::new).collect(),
        trigger: None,
        copied: None,
    }
}

/// A cluster with this many Nodes in each zone, called `<zone>-<number>`.
pub(crate) fn zones(nodes: &[(&str, u32)]) -> Zones {
    let mut zones = Zones::default();
    for (zone, count) in nodes {
        for i in 0..*count {
            let name = format!("{zone}-{i}").into();
            zones.apply(Node { name, zone: Some((*zone).into()), counts: true }, 1);
        }
    }
    zones
}

/// SplitMix64: the same numbers on every machine.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}
