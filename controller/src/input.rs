//! Kubernetes objects as the rest of the controller sees them: only what decides something, and what is
//! carried over from one slice to another. The only file that knows their field quirks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
pub use k8s_openapi::api::discovery::v1::Endpoint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use zw_model::{Family, ServiceKey};

use crate::handover::ServicePatch;
use crate::names;

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Who it is.
    pub key: ServiceKey,
    /// Which of all that ever had this name.
    pub uid: String,
    /// The annotations that matter.
    annotations: BTreeMap<String, String>,
    /// The zones it is labelled for: default slices stay off their nodes.
    pub zones: LabelledZones,
    /// Why it is not divided whatever is asked for.
    pub obstacle: Option<Obstacle>,
    /// Its selector is not for us, so Endpoints for it may be mirrored.
    pub has_selector: bool,
}

/// What keeps a Service from being divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// It has no address of its own.
    NoAddress,
    /// Another proxy serves it.
    OtherProxy,
    /// A traffic policy of `Local` needs each node's own endpoints.
    LocalPolicy,
    /// `PreferSameNode` does too.
    SameNode,
}

impl Obstacle {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::NoAddress => "the Service has no cluster IP",
            Self::OtherProxy => {
                "service.kubernetes.io/service-proxy-name gives it to another proxy"
            }
            Self::LocalPolicy => "a traffic policy of Local needs each node's own endpoints",
            Self::SameNode => "trafficDistribution PreferSameNode needs each node's own endpoints",
        }
    }
}

const OURS: [&str; 7] = [
    names::SAME_ZONE,
    names::ALGORITHM,
    names::OVERLOAD,
    names::STARTING,
    names::PADDING,
    names::APPROACH,
    names::REASON,
];

impl Service {
    /// What matters of an object.
    pub fn of(object: core::Service) -> Option<(Self, u64)> {
        let ObjectMeta { name, namespace, uid, resource_version, annotations, labels, .. } =
            object.metadata;
        let key = ServiceKey {
            namespace: namespace.unwrap_or_else(|| "default".into()).into(),
            name: name?.into(),
        };
        let labels = labels.unwrap_or_default();
        let spec = object.spec.unwrap_or_default();
        let is = |field: &Option<String>, value: &str| field.as_deref() == Some(value);
        let has_address = spec.cluster_ip.as_deref().is_some_and(|ip| !matches!(ip, "None" | ""));
        let obstacle = if !has_address {
            Some(Obstacle::NoAddress)
        } else if labels.contains_key(names::OTHER_PROXY) {
            Some(Obstacle::OtherProxy)
        } else if is(&spec.internal_traffic_policy, "Local")
            || is(&spec.external_traffic_policy, "Local")
        {
            Some(Obstacle::LocalPolicy)
        } else if is(&spec.traffic_distribution, "PreferSameNode") {
            Some(Obstacle::SameNode)
        } else {
            None
        };
        let mut annotations = annotations.unwrap_or_default();
        annotations.retain(|name, _| OURS.contains(&name.as_str()));
        let service = Self {
            key,
            uid: uid.unwrap_or_default(),
            annotations,
            zones: labelled_zones(&labels),
            obstacle,
            has_selector: spec.selector.is_some(),
        };
        Some((service, version(resource_version.as_deref())))
    }

    /// One that is gone: a name.
    pub(crate) fn gone(key: &ServiceKey) -> Self {
        Self {
            key: key.clone(),
            uid: String::new(),
            annotations: BTreeMap::new(),
            zones: LabelledZones::new(),
            obstacle: None,
            has_selector: false,
        }
    }

    /// One of the annotations that matter.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }

    /// The same Service after a patch.
    pub(crate) fn patched(&self, patch: &ServicePatch) -> Self {
        let mut service = self.clone();
        for (zone, labelled) in &patch.zones {
            if *labelled {
                service.zones.insert(zone.clone());
            } else {
                service.zones.remove(zone);
            }
        }
        for (name, value) in &patch.annotations {
            service.set_annotation(name, value.as_deref());
        }
        service
    }

    pub(crate) fn set_annotation(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.annotations.insert(name.into(), value.into()),
            None => self.annotations.remove(name),
        };
    }
}

/// Zones that an object is labelled for.
pub type LabelledZones = BTreeSet<Arc<str>>;

fn labelled_zones(labels: &BTreeMap<String, String>) -> LabelledZones {
    let zones = labels.keys().filter_map(|name| name.strip_prefix(names::ZONE_PREFIX));
    zones.map(Arc::from).collect()
}

/// The ports that all endpoints of a slice have, in name order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ports(pub Vec<Port>);

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Port {
    /// The Service port's name.
    pub name: Option<String>,
    /// TCP, UDP or SCTP.
    pub protocol: Option<String>,
    /// The number.
    pub port: Option<i32>,
    /// A hint for others.
    pub app_protocol: Option<String>,
}

impl Ports {
    /// Of a slice.
    pub fn of(ports: Option<Vec<discovery::EndpointPort>>) -> Self {
        let port = |port: discovery::EndpointPort| Port {
            name: port.name,
            protocol: port.protocol,
            port: port.port,
            app_protocol: port.app_protocol,
        };
        let mut ports: Vec<Port> = ports.unwrap_or_default().into_iter().map(port).collect();
        ports.sort();
        Self(ports)
    }

    /// As a slice has them.
    pub fn to_object(&self) -> Vec<discovery::EndpointPort> {
        let port = |port: &Port| discovery::EndpointPort {
            name: port.name.clone(),
            protocol: port.protocol.clone(),
            port: port.port,
            app_protocol: port.app_protocol.clone(),
        };
        self.0.iter().map(port).collect()
    }
}

/// Who keeps a slice, and for whom it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Role {
    /// For everyone, kept by somebody else: where endpoints come from.
    Default {
        /// The zones whose nodes it stays off.
        hidden: LabelledZones,
    },
    /// One of our groups'; without a zone if somebody took its label away.
    Group(Option<Arc<str>>),
    /// Mirrors Endpoints, and is for everyone.
    Mirror {
        /// The zones whose nodes it stays off.
        hidden: LabelledZones,
    },
    /// For a zone or region, and not ours: never read, never touched.
    Foreign,
}

/// An EndpointSlice.
#[derive(Debug, Clone)]
pub struct Slice {
    /// Its name.
    pub name: Arc<str>,
    /// Which of all that ever had this name.
    pub uid: String,
    /// The server's version of it, as the server spells it.
    pub version: String,
    /// Who keeps it, and for whom.
    pub role: Role,
    /// Its address type.
    pub family: Family,
    /// Its ports.
    pub ports: Ports,
    /// Its endpoints.
    pub endpoints: Vec<Arc<Endpoint>>,
    /// When what led to its content happened.
    pub trigger: Option<String>,
    /// Labels and annotations of a mirrored one, which are the Endpoints'.
    pub copied: Option<Box<Copied>>,
}

/// Labels and annotations that mirroring copies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// Labels of our own left out.
    pub labels: BTreeMap<String, String>,
    /// The trigger time and what kubectl remembers left out.
    pub annotations: BTreeMap<String, String>,
}

impl Slice {
    /// What matters of an object, and whose it is; `None` for what belongs to no Service or has no
    /// addresses.
    pub fn of(object: discovery::EndpointSlice) -> Option<(ServiceKey, Self)> {
        let metadata = object.metadata;
        let mut labels = metadata.labels.unwrap_or_default();
        let key = ServiceKey {
            namespace: metadata.namespace.unwrap_or_else(|| "default".into()).into(),
            name: labels.remove(names::SERVICE_NAME)?.into(),
        };
        let family = match object.address_type.as_str() {
            "IPv4" => Family::V4,
            "IPv6" => Family::V6,
            _ => return None,
        };
        let mut annotations = metadata.annotations.unwrap_or_default();
        let trigger = annotations.remove(names::TRIGGER_TIME);
        let hidden = labelled_zones(&labels);
        let manager = labels.remove(names::MANAGED_BY);
        let role = match manager.as_deref() {
            Some(names::MANAGER) => {
                Role::Group(labels.get(names::FOR_ZONE).map(|z| z.as_str().into()))
            }
            // Whatever labels its Endpoints have: one that was not known again would be made again.
            Some(names::MIRROR_MANAGER) => Role::Mirror { hidden },
            _ if labels.contains_key(names::FOR_ZONE) || labels.contains_key(names::FOR_REGION) => {
                Role::Foreign
            }
            _ => Role::Default { hidden },
        };
        let copied =
            matches!(role, Role::Mirror { .. }).then(|| Box::new(Copied { labels, annotations }));
        let slice = Self {
            name: metadata.name?.into(),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            role,
            family,
            ports: Ports::of(object.ports),
            endpoints: object
                .endpoints
                .into_iter()
                .filter(|endpoint| !endpoint.addresses.is_empty())
                .map(Arc::new)
                .collect(),
            trigger,
            copied,
        };
        Some((key, slice))
    }

    /// Whether endpoints are taken from it.
    pub fn is_source(&self) -> bool {
        matches!(self.role, Role::Default { .. } | Role::Mirror { .. })
    }

    /// The zones whose agents leave it out of their watch.
    pub fn hidden(&self) -> Option<&LabelledZones> {
        match &self.role {
            Role::Default { hidden } | Role::Mirror { hidden } => Some(hidden),
            Role::Group(_) | Role::Foreign => None,
        }
    }
}

/// What an endpoint is known by. Consumers use the first address only.
pub fn address(endpoint: &Endpoint) -> &str {
    endpoint.addresses.first().map_or("", String::as_str)
}

/// Whether it takes new connections; unknown counts as yes.
pub fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Where it is.
    pub zone: Option<Arc<str>>,
    /// Ready and not cordoned: traffic is expected to start there.
    pub counts: bool,
}

impl Node {
    /// What matters of an object.
    pub fn of(object: core::Node) -> Option<(Self, u64)> {
        let labels = object.metadata.labels.unwrap_or_default();
        let conditions = object.status.and_then(|status| status.conditions).unwrap_or_default();
        // Without a word about it a node counts as ready, as a node without a kubelet is in tests.
        let ready = conditions
            .iter()
            .find(|condition| condition.type_ == "Ready")
            .is_none_or(|condition| condition.status == "True");
        let cordoned = object.spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
        let node = Self {
            name: object.metadata.name?.into(),
            zone: labels
                .get(names::NODE_ZONE)
                .filter(|zone| !zone.is_empty())
                .map(|z| z.as_str().into()),
            counts: ready && !cordoned,
        };
        Some((node, version(object.metadata.resource_version.as_deref())))
    }
}

/// Versions grow with time. A server that does not number them gives the last word to whoever speaks
/// last.
pub fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
