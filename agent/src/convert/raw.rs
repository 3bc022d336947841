//! The fields of Kubernetes objects that are used, and no others: whatever else an object holds is
//! skipped, not stored. Optional wherever the API has them optional; numbers are wide, so that an
//! impossible one is reported by [`super`] and not by serde. Texts are borrowed from the input.
//!
//! This is how JSON becomes these fields; [`super::protobuf`] fills in the same ones.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A string, borrowed from the input unless that has it escaped. (A `Cow` borrows only where it is not
/// inside of an `Option` or a `Vec`.)
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Text<'a>(Cow<'a, str>);

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyText;

        impl<'de> Visitor<'de> for AnyText {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(AnyText)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    pub(super) namespace: Option<Text<'a>>,
    pub(super) resource_version: Option<Text<'a>>,
    /// Only whether there is one matters.
    pub(super) deletion_timestamp: Option<IgnoredAny>,
    pub(super) labels: Option<Labels<'a>>,
    pub(super) annotations: Option<Annotations<'a>>,
}

impl<'a> Metadata<'a> {
    pub(super) fn version(&self) -> Option<String> {
        self.resource_version.as_deref().map(str::to_owned)
    }

    /// A label, absent if empty.
    pub(super) fn label(
        &self,
        which: impl for<'l> FnOnce(&'l Labels<'a>) -> &'l Option<Text<'a>>,
    ) -> Option<&str> {
        which(self.labels.as_ref()?).as_deref().filter(|value| !value.is_empty())
    }
}

/// The start of a label's name that ends in a zone: the zone-slice controller's, on Services.
pub(super) const ZONE_PREFIX: &str = "zones.zoneward/";

/// The labels of any kind that mean something here.
#[derive(Debug, Default)]
pub(super) struct Labels<'a> {
    pub(super) service_name: Option<Text<'a>>,
    pub(super) service_proxy_name: Option<Text<'a>>,
    pub(super) headless: Option<Text<'a>>,
    pub(super) for_zone: Option<Text<'a>>,
    pub(super) for_region: Option<Text<'a>>,
    pub(super) managed_by: Option<Text<'a>>,
    pub(super) zone: Option<Text<'a>>,
    pub(super) region: Option<Text<'a>>,
    /// What follows [`ZONE_PREFIX`]; the value says nothing.
    pub(super) grouped_zones: Vec<Arc<str>>,
}

impl<'a> Labels<'a> {
    /// Where the value of a label belongs; none for those that mean nothing. A zone's name is kept at once.
    pub(super) fn slot(&mut self, name: &str) -> Option<&mut Option<Text<'a>>> {
        Some(match name {
            "kubernetes.io/service-name" => &mut self.service_name,
            "service.kubernetes.io/service-proxy-name" => &mut self.service_proxy_name,
            "service.kubernetes.io/headless" => &mut self.headless,
            "endpointslice.kubernetes.io/for-zone" => &mut self.for_zone,
            "endpointslice.kubernetes.io/for-region" => &mut self.for_region,
            "endpointslice.kubernetes.io/managed-by" => &mut self.managed_by,
            "topology.kubernetes.io/zone" => &mut self.zone,
            "topology.kubernetes.io/region" => &mut self.region,
            other => {
                let zone = other.strip_prefix(ZONE_PREFIX).filter(|zone| !zone.is_empty());
                self.grouped_zones.extend(zone.map(Arc::from));
                return None;
            }
        })
    }
}

/// Not derived: a derived one knows only whole names.
impl<'de: 'a, 'a> Deserialize<'de> for Labels<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyLabels;

        impl<'de> Visitor<'de> for AnyLabels {
            type Value = Labels<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of labels")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels<'de>, A::Error> {
                let mut labels = Labels::default();
                while let Some(name) = map.next_key::<Text<'de>>()? {
                    match labels.slot(&name) {
                        Some(slot) => *slot = map.next_value()?,
                        None => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(labels)
            }
        }
        deserializer.deserialize_map(AnyLabels)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Annotations<'a> {
    #[serde(borrow, rename = "endpoints.kubernetes.io/last-change-trigger-time")]
    pub(super) last_change_trigger_time: Option<Text<'a>>,
    #[serde(rename = "zoneward/ipvs-scheduler")]
    pub(super) ipvs_scheduler: Option<Text<'a>>,
    #[serde(rename = "zoneward/approach")]
    pub(super) approach: Option<Text<'a>>,
    #[serde(rename = "zoneward/reason")]
    pub(super) reason: Option<Text<'a>>,
}

/// Of any kind: who it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Anything<'a> {
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Service<'a> {
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
    pub(super) spec: ServiceSpec<'a>,
    pub(super) status: Option<ServiceStatus<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ServiceSpec<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(rename = "clusterIP")]
    pub(super) cluster_ip: Option<Text<'a>>,
    #[serde(rename = "clusterIPs")]
    pub(super) cluster_ips: Option<Vec<Text<'a>>>,
    pub(super) ports: Option<Vec<Port<'a>>>,
    #[serde(rename = "externalIPs")]
    pub(super) external_ips: Option<Vec<Text<'a>>>,
    pub(super) load_balancer_source_ranges: Option<Vec<Text<'a>>>,
    pub(super) internal_traffic_policy: Option<Text<'a>>,
    pub(super) external_traffic_policy: Option<Text<'a>>,
    pub(super) health_check_node_port: Option<i64>,
    pub(super) session_affinity: Option<Text<'a>>,
    pub(super) session_affinity_config: Option<SessionAffinityConfig>,
    /// Only whether there is one matters.
    pub(super) selector: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SessionAffinityConfig {
    #[serde(rename = "clientIP")]
    pub(super) client_ip: Option<ClientIpConfig>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClientIpConfig {
    pub(super) timeout_seconds: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ServiceStatus<'a> {
    #[serde(borrow)]
    pub(super) load_balancer: Option<LoadBalancer<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LoadBalancer<'a> {
    #[serde(borrow)]
    pub(super) ingress: Option<Vec<Ingress<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Ingress<'a> {
    #[serde(borrow)]
    pub(super) ip: Option<Text<'a>>,
    pub(super) ip_mode: Option<Text<'a>>,
}

/// A port of a Service or of a slice.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Port<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    pub(super) protocol: Option<Text<'a>>,
    pub(super) port: Option<i64>,
    pub(super) node_port: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct EndpointSlice<'a> {
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
    pub(super) address_type: Option<Text<'a>>,
    pub(super) endpoints: Option<Vec<Endpoint<'a>>>,
    pub(super) ports: Option<Vec<Port<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Endpoint<'a> {
    #[serde(borrow)]
    pub(super) addresses: Option<Addresses<'a>>,
    pub(super) conditions: Option<Conditions>,
    pub(super) node_name: Option<Text<'a>>,
    pub(super) zone: Option<Text<'a>>,
    pub(super) hints: Option<Hints<'a>>,
}

/// An endpoint's addresses, of which consumers use the first only; all of them mean the same endpoint.
#[derive(Debug, Default)]
pub(super) struct Addresses<'a> {
    pub(super) first: Option<Text<'a>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Addresses<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct First;

        impl<'de> Visitor<'de> for First {
            type Value = Addresses<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Addresses<'de>, A::Error> {
                let first = list.next_element()?;
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Addresses { first })
            }
        }
        deserializer.deserialize_seq(First)
    }
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
pub(super) struct Hints<'a> {
    #[serde(borrow)]
    pub(super) for_zones: Option<Vec<Named<'a>>>,
    pub(super) for_nodes: Option<Vec<Named<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Named<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node<'a> {
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
    pub(super) spec: Option<NodeSpec<'a>>,
    pub(super) status: Option<NodeStatus<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeSpec<'a> {
    #[serde(borrow, rename = "podCIDR")]
    pub(super) pod_cidr: Option<Text<'a>>,
    #[serde(rename = "podCIDRs")]
    pub(super) pod_cidrs: Option<Vec<Text<'a>>>,
    pub(super) taints: Option<Vec<Taint<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Taint<'a> {
    #[serde(borrow)]
    pub(super) key: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeStatus<'a> {
    #[serde(borrow)]
    pub(super) addresses: Option<Vec<NodeAddress<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeAddress<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    pub(super) address: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ServiceCidr<'a> {
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
    pub(super) spec: Option<ServiceCidrSpec<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ServiceCidrSpec<'a> {
    #[serde(borrow)]
    pub(super) cidrs: Option<Vec<Text<'a>>>,
}
