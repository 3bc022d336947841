//! Nodes and ServiceCIDRs: what surrounds the Services.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use zw_model::Family;

use super::address::{parse_address, parse_range};
use super::raw;
use super::{Body, Kind, Object, Problem, Problems, identify};

/// The cluster autoscaler sets it on a node that it is about to remove.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// What a Node says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) zone: Option<Arc<str>>,
    pub(crate) region: Option<Arc<str>>,
    /// At most one of each family.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) pod_ranges: Vec<IpNet>,
    /// It is not going away, so load balancers may send it traffic.
    pub(crate) eligible: bool,
}

pub(super) fn convert(raw: raw::Node<'_>, problems: &mut Problems) -> Result<Object, Problem> {
    let id = identify(Kind::Node, &raw.metadata)?;
    let spec = raw.spec.unwrap_or_default();
    let addresses = raw.status.unwrap_or_default().addresses.unwrap_or_default();
    let taints = spec.taints.unwrap_or_default();
    let tainted = taints.iter().any(|taint| taint.key.as_deref() == Some(TO_BE_DELETED));
    let (pod_ranges, field) = match (spec.pod_cidrs, spec.pod_cidr) {
        (Some(all), _) if !all.is_empty() => (all, "spec.podCIDRs"),
        (_, one) => (one.into_iter().filter(|one| !one.is_empty()).collect(), "spec.podCIDR"),
    };
    let node = Node {
        zone: raw.metadata.label(|labels| &labels.zone).map(Arc::from),
        region: raw.metadata.label(|labels| &labels.region).map(Arc::from),
        addresses: node_addresses(&addresses, problems),
        pod_ranges: ranges(&pod_ranges, field, problems),
        eligible: raw.metadata.deletion_timestamp.is_none() && !tainted,
    };
    Ok(Object::new(id, Body::Node(Box::new(node))))
}

/// Internal addresses come before external ones; the first counts, and the first of the other family.
fn node_addresses(raw: &[raw::NodeAddress<'_>], problems: &mut Problems) -> Vec<IpAddr> {
    let mut chosen: Vec<IpAddr> = Vec::new();
    for wanted in ["InternalIP", "ExternalIP"] {
        for (i, address) in raw.iter().enumerate() {
            if address.kind.as_deref() != Some(wanted) {
                continue;
            }
            match parse_address(address.address.as_deref().unwrap_or_default()) {
                Ok(ip) if chosen.iter().all(|other| Family::of(*other) != Family::of(ip)) => {
                    chosen.push(ip);
                }
                Ok(_) => {}
                Err(message) => problems.add(format!("status.addresses[{i}].address"), message),
            }
        }
    }
    chosen
}

pub(super) fn convert_service_cidr(
    raw: raw::ServiceCidr<'_>,
    problems: &mut Problems,
) -> Result<Object, Problem> {
    let id = identify(Kind::ServiceCidr, &raw.metadata)?;
    let cidrs = raw.spec.unwrap_or_default().cidrs.unwrap_or_default();
    Ok(Object::new(id, Body::ServiceRanges(ranges(&cidrs, "spec.cidrs", problems))))
}

fn ranges(raw: &[raw::Text<'_>], field: &str, problems: &mut Problems) -> Vec<IpNet> {
    let mut ranges: Vec<IpNet> = Vec::new();
    for (i, text) in raw.iter().enumerate() {
        match parse_range(text.trim()) {
            Ok(range) if ranges.contains(&range) => {}
            Ok(range) => ranges.push(range),
            Err(message) => problems.add(format!("{field}[{i}]"), message),
        }
    }
    ranges
}
