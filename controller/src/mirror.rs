//! Mirroring: Endpoints that people or programs write become slices, where no kube-controller-manager
//! does that. Off unless asked for.
//!
//! As upstream does it: Endpoints are left alone if they carry `skip-mirror`, are a lock, have no
//! Service, or have one with a selector. At most 1,000 addresses with the same ports are mirrored. Slices
//! are owned by the Endpoints, carry their labels and annotations, and are packed like all others.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::{EndpointConditions, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use zw_model::{Family, ServiceKey};

use crate::input::{Copied, Endpoint, Port, Ports, Role, Service, Slice, version};
use crate::names;
use crate::objects::{owner, slice};
use crate::pack::{Content, Desired, SliceWrite, Target, pack};

/// Most addresses with the same ports, and of one slice.
pub const MOST: usize = 1000;

/// Endpoints as slices will have them.
#[derive(Debug, Clone)]
pub struct Mirrored {
    /// The Service of the same name.
    pub key: ServiceKey,
    /// Which of all that ever had this name.
    pub uid: String,
    /// Nobody shall mirror it.
    skipped: bool,
    copied: Copied,
    wanted: Desired,
    /// Addresses beyond the limit.
    pub too_many: usize,
    /// Addresses that are none.
    pub invalid: usize,
}

impl Mirrored {
    /// What matters of an object.
    pub fn of(object: core::Endpoints) -> Option<(Self, u64)> {
        let metadata = object.metadata;
        let labels = metadata.labels.unwrap_or_default();
        let mut annotations = metadata.annotations.unwrap_or_default();
        let skipped = labels.get(names::SKIP_MIRROR).is_some_and(|value| value == "true")
            || annotations.contains_key(names::LEADER);
        // The time of what led to the Endpoints; whether that also led to the next write nobody says.
        annotations.remove(names::TRIGGER_TIME);
        annotations.remove(names::LAST_APPLIED);
        let mut mirrored = Self {
            key: ServiceKey {
                namespace: metadata.namespace.unwrap_or_else(|| "default".into()).into(),
                name: metadata.name?.into(),
            },
            uid: metadata.uid.unwrap_or_default(),
            skipped,
            copied: Copied { labels, annotations },
            wanted: Desired::new(),
            too_many: 0,
            invalid: 0,
        };
        for (ports, addresses) in by_ports(object.subsets.unwrap_or_default()) {
            mirrored.add(ports, addresses);
        }
        Some((mirrored, version(metadata.resource_version.as_deref())))
    }

    /// Takes up to [`MOST`] of the addresses that have these ports: ready ones first, then by address.
    fn add(&mut self, ports: Ports, addresses: Addresses) {
        let ports = Arc::new(ports);
        let mut valid: Vec<(IpAddr, bool, core::EndpointAddress)> = Vec::new();
        for (text, (ready, address)) in addresses {
            match text.parse::<IpAddr>() {
                Ok(ip) => valid.push((ip, ready, address)),
                Err(_) => self.invalid += 1,
            }
        }
        valid.sort_by_key(|(_, ready, _)| !ready);
        self.too_many += valid.len().saturating_sub(MOST);
        for (ip, ready, address) in valid.into_iter().take(MOST) {
            let endpoint = Endpoint {
                addresses: vec![ip.to_string()],
                conditions: Some(EndpointConditions { ready: Some(ready), ..Default::default() }),
                hostname: address.hostname.filter(|name| !name.is_empty()),
                node_name: address.node_name,
                target_ref: address.target_ref,
                ..Endpoint::default()
            };
            let wanted = self.wanted.entry((None, Family::of(ip))).or_default();
            wanted.by_ports.entry(ports.clone()).or_default().push(Arc::new(endpoint));
        }
    }

    /// Whether a Service of this kind has its Endpoints mirrored.
    pub fn is_for(&self, service: Option<&Service>) -> bool {
        !self.skipped && service.is_some_and(|service| !service.has_selector)
    }

    /// A slice as it is written.
    pub fn slice(&self, content: &Content, target: Option<&Target>) -> EndpointSlice {
        let mut labels = self.copied.labels.clone();
        labels.insert(names::SERVICE_NAME.to_owned(), self.key.name.to_string());
        labels.insert(names::MANAGED_BY.to_owned(), names::MIRROR_MANAGER.to_owned());
        let annotations = &self.copied.annotations;
        let metadata = ObjectMeta {
            namespace: Some(self.key.namespace.to_string()),
            labels: Some(labels),
            annotations: (!annotations.is_empty()).then(|| annotations.clone()),
            owner_references: Some(vec![owner("Endpoints", &self.key.name, &self.uid)]),
            ..ObjectMeta::default()
        };
        slice(metadata, &self.key.name, content, None, target)
    }
}

/// Addresses as they are spelt, and whether they are ready.
type Addresses = BTreeMap<String, (bool, core::EndpointAddress)>;

/// Subsets of the same ports are one. An address that is both ready and not ready there is not, as upstream
/// has it. (Upstream also joins ports of different subsets that have the same addresses. Their endpoints
/// are the same in slices of their own.)
fn by_ports(subsets: Vec<core::EndpointSubset>) -> BTreeMap<Ports, Addresses> {
    let port = |port: core::EndpointPort| Port {
        name: Some(port.name.unwrap_or_default()),
        protocol: Some(port.protocol.unwrap_or_else(|| "TCP".into())),
        port: Some(port.port),
        app_protocol: port.app_protocol,
    };
    let mut all: BTreeMap<Ports, Addresses> = BTreeMap::new();
    for subset in subsets {
        let mut ports: Vec<Port> = subset.ports.unwrap_or_default().into_iter().map(port).collect();
        ports.sort();
        let addresses = all.entry(Ports(ports)).or_default();
        for address in subset.addresses.unwrap_or_default() {
            addresses.entry(address.ip.clone()).or_insert((true, address));
        }
        for address in subset.not_ready_addresses.unwrap_or_default() {
            addresses.insert(address.ip.clone(), (false, address));
        }
    }
    all
}

/// The writes that make the mirrored slices what they should be. Without Endpoints to mirror they go.
pub fn mirror(
    endpoints: Option<&Mirrored>,
    service: Option<&Service>,
    slices: &[Slice],
) -> Vec<SliceWrite> {
    let existing: Vec<&Slice> =
        slices.iter().filter(|slice| matches!(slice.role, Role::Mirror { .. })).collect();
    let Some(endpoints) = endpoints.filter(|endpoints| endpoints.is_for(service)) else {
        return pack(&Desired::new(), &existing, MOST);
    };
    let mut writes = pack(&endpoints.wanted, &existing, MOST);
    // Labels and annotations are part of the mirror.
    for slice in existing {
        let written = |write: &SliceWrite| match write {
            SliceWrite::Create(_) => false,
            SliceWrite::Update(target, _) | SliceWrite::Delete(target, _) => {
                target.name == slice.name
            }
        };
        let differs = slice.copied.as_deref().is_none_or(|copied| !same(copied, &endpoints.copied));
        if differs && !writes.iter().any(written) {
            let content = Content {
                audience: None,
                family: slice.family,
                ports: Arc::new(slice.ports.clone()),
                endpoints: slice.endpoints.clone(),
            };
            let target = Target {
                name: slice.name.clone(),
                uid: slice.uid.clone(),
                version: slice.version.clone(),
            };
            writes.push(SliceWrite::Update(target, content));
        }
    }
    writes
}

/// Whether labels and annotations are the same, but for those that every mirrored slice has.
fn same(slice: &Copied, endpoints: &Copied) -> bool {
    let own = |labels: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        let foreign = |(name, _): &(&String, &String)| {
            ![names::SERVICE_NAME, names::MANAGED_BY].contains(&name.as_str())
        };
        labels.iter().filter(foreign).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    own(&slice.labels) == own(&endpoints.labels) && slice.annotations == endpoints.annotations
}

#[cfg(test)]
mod tests;
