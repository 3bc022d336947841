//! One Service, told: what it has, who answers and who does not, why, and what would change it.
//!
//! Pure: from objects and the rules planned for them. [`cause`] finds the one thing to say first.

mod cause;
mod tell;
mod zones;

pub(crate) use tell::print;

use serde::Serialize;
use zw_model::{
    Family, NodeContext, Scope, Service, ServiceKey, ServicePort, Slice, TrafficPolicy,
};
use zw_plan::{Candidate, Selection, Verdict, Why, WhyNot, select};

use super::planned::Planned;
use super::view::{EndpointView, FrontendKind, endpoint, kind_of, port_of};
use crate::screen::count;
use zones::ZonesStory;

/// All there is to say.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Story {
    pub(crate) service: String,
    pub(crate) node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<String>,
    pub(crate) ports: Vec<PortStory>,
    /// What the zone-slice controller made of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zones: Option<ZonesStory>,
    pub(crate) slices: Vec<SliceStory>,
    pub(crate) warnings: Vec<String>,
    /// Whether the kernel agrees; filled in by whoever can read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kernel: Option<KernelStory>,
}

/// One port in one family.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PortStory {
    /// `namespace/name:port`
    pub(crate) title: String,
    pub(crate) family: String,
    pub(crate) protocol: String,
    pub(crate) addresses: Vec<AddressStory>,
    pub(crate) verdicts: Vec<VerdictStory>,
    pub(crate) groups: Vec<Group>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AddressStory {
    pub(crate) address: String,
    pub(crate) kind: FrontendKind,
}

/// What becomes of clients.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VerdictStory {
    /// They are answered.
    pub(crate) good: bool,
    pub(crate) text: String,
}

/// Endpoints of the same fate.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Group {
    pub(crate) used: bool,
    pub(crate) reason: String,
    pub(crate) endpoints: Vec<EndpointView>,
    /// What would change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<String>,
}

/// A slice that was seen.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SliceStory {
    pub(crate) name: String,
    pub(crate) family: String,
    /// Whom it is for.
    pub(crate) scope: String,
    pub(crate) endpoints: usize,
    pub(crate) ready: usize,
    pub(crate) ports: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) managed_by: Option<String>,
}

/// What the kernel holds of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KernelStory {
    pub(crate) agrees: bool,
    pub(crate) text: String,
}

/// Tells of one Service, or of one port of it; `None` if there is no such Service.
pub(crate) fn tell(
    planned: &Planned,
    key: &ServiceKey,
    wanted: impl Fn(&ServicePort) -> bool,
) -> Option<Story> {
    let (service, slices) = planned.index.service(key)?;
    let slices: Vec<&Slice> = slices.collect();
    let node = planned.index.node();
    let mut ports = Vec::new();
    for family in Family::BOTH.into_iter().filter(|family| service.cluster_ip(*family).is_some()) {
        for port in service.ports.iter().filter(|port| wanted(port)) {
            ports.push(tell_port(planned, service, port, family, &slices));
        }
    }
    let text = |name: &Option<std::sync::Arc<str>>| name.as_deref().map(str::to_owned);
    Some(Story {
        service: key.to_string(),
        node: node.name.to_string(),
        zone: text(&node.zone),
        region: text(&node.region),
        warnings: warnings(service, &slices, node, &wanted),
        zones: zones::tell(planned, service, &slices),
        ports,
        slices: slices.iter().map(|slice| tell_slice(slice)).collect(),
        kernel: None,
    })
}

fn tell_port(
    planned: &Planned,
    service: &Service,
    port: &ServicePort,
    family: Family,
    slices: &[&Slice],
) -> PortStory {
    let node = planned.index.node();
    let selection = select(port, family, slices.iter().copied(), node);
    let rules = planned.desired.service(&service.key).into_iter().flat_map(|rules| &rules.ports);
    let rules = rules.filter(|rules| {
        rules.frontend.family() == family
            && port_of(service, &rules.frontend).is_some_and(|of| of == port)
    });
    let mut addresses: Vec<AddressStory> = rules
        .map(|rules| AddressStory {
            address: match rules.frontend.addr() {
                Some(addr) => std::net::SocketAddr::new(addr, rules.frontend.port).to_string(),
                None => format!("node port {}", rules.frontend.port),
            },
            kind: kind_of(service, &rules.frontend),
        })
        .collect();
    addresses.sort_by_key(|address| address.kind);
    let contested = planned.desired.contested(&service.key);
    let lost = contested.iter().filter(|contested| {
        contested.owner != service.key
            && contested.frontend.family() == family
            && port_of(service, &contested.frontend).is_some_and(|of| of == port)
    });
    let mut verdicts: Vec<VerdictStory> = lost
        .map(|contested| VerdictStory {
            good: false,
            text: format!(
                "{} is not programmed: {} has it, the first by name",
                contested.frontend, contested.owner
            ),
        })
        .collect();
    // Who answers does not matter where it has no address at all.
    if addresses.is_empty() || verdicts.len() < addresses.len() {
        let seen = cause::Seen { service, port, family, slices, selection: &selection, node };
        verdicts.extend(seen.verdicts());
    }
    let name = if port.name.is_empty() { String::new() } else { format!(":{}", port.name) };
    PortStory {
        title: format!("{}{name}", service.key),
        family: family.to_string(),
        protocol: port.protocol.to_string(),
        addresses,
        verdicts,
        groups: groups(&selection, node),
    }
}

/// Endpoints by verdict, the used ones first.
fn groups(selection: &Selection<'_>, node: &NodeContext) -> Vec<Group> {
    let mut verdicts: Vec<Verdict> = Vec::new();
    for candidate in &selection.candidates {
        if !verdicts.contains(&candidate.verdict) {
            verdicts.push(candidate.verdict);
        }
    }
    verdicts.sort_by_key(|verdict| matches!(verdict, Verdict::Unused(_)));
    verdicts
        .into_iter()
        .map(|verdict| {
            let of_it: Vec<&Candidate<'_>> =
                selection.candidates.iter().filter(|c| c.verdict == verdict).collect();
            Group {
                used: matches!(verdict, Verdict::Used(_)),
                reason: verdict.to_string(),
                until: until(verdict, &of_it, node),
                endpoints: of_it.into_iter().map(endpoint).collect(),
            }
        })
        .collect()
}

/// What would change a verdict.
fn until(verdict: Verdict, of_it: &[&Candidate<'_>], node: &NodeContext) -> Option<String> {
    let zone = node.zone.as_deref().unwrap_or("unknown");
    let text = match verdict {
        Verdict::Used(Why::LastResort) => "until one of its endpoints is ready".into(),
        Verdict::Used(Why::RegionSlice) => {
            format!("until a slice for zone {zone} has a ready endpoint")
        }
        Verdict::Used(_) | Verdict::Unused(WhyNot::Duplicate) => return None,
        Verdict::Unused(WhyNot::NotReady) => {
            "until its pod is ready; kubectl describe pod tells why it is not".into()
        }
        Verdict::Unused(WhyNot::Terminating) => "used again only if nothing else is ready".into(),
        Verdict::Unused(WhyNot::HintedElsewhere) => {
            let zones =
                distinct(of_it.iter().flat_map(|c| c.endpoint.hints.iter()).flat_map(|hints| {
                    hints.zones.iter().chain(&hints.nodes).map(|name| name.to_string())
                }));
            format!("hints name {zones}; until they name {zone}, or a ready endpoint has none")
        }
        Verdict::Unused(WhyNot::OtherZone) => {
            let scopes = distinct(of_it.iter().map(|c| scope_words(&c.slice.scope)));
            format!("their slices are {scopes}; this node is in zone {zone}")
        }
        Verdict::Unused(WhyNot::Unlabelled) => {
            "until no slice is labelled for this zone or region".into()
        }
        Verdict::Unused(WhyNot::ZoneFirst) => "until the zone has none of its own".into(),
    };
    Some(text)
}

fn distinct(names: impl Iterator<Item = String>) -> String {
    let names: std::collections::BTreeSet<String> = names.collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

fn scope_words(scope: &Scope) -> String {
    match scope {
        Scope::Everyone => "for everyone".into(),
        Scope::Zone(zone) => format!("for zone {zone}"),
        Scope::Region(region) => format!("for region {region}"),
    }
}

fn tell_slice(slice: &Slice) -> SliceStory {
    let ports = slice.ports.iter().map(|port| port_words(&port.name, port.port, port.protocol));
    SliceStory {
        name: slice.key.to_string(),
        family: slice.family.to_string(),
        scope: scope_words(&slice.scope),
        endpoints: slice.endpoints.len(),
        ready: slice.endpoints.iter().filter(|endpoint| endpoint.conditions.ready).count(),
        ports: ports.collect::<Vec<_>>().join(", "),
        managed_by: slice.managed_by.as_deref().map(str::to_owned),
    }
}

fn port_words(name: &str, port: u16, protocol: zw_model::Protocol) -> String {
    if name.is_empty() {
        format!("{port}/{protocol} without a name")
    } else {
        format!("\"{name}\" {port}/{protocol}")
    }
}

fn warnings(
    service: &Service,
    slices: &[&Slice],
    node: &NodeContext,
    wanted: &impl Fn(&ServicePort) -> bool,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let labelled = slices.iter().filter(|slice| slice.scope != Scope::Everyone).count();
    let local = [
        (service.internal_policy, "internalTrafficPolicy"),
        (service.external_policy, "externalTrafficPolicy"),
    ];
    for (_, name) in local.iter().filter(|(policy, _)| *policy == TrafficPolicy::Local) {
        if labelled > 0 {
            warnings.push(format!(
                "{name} is Local, and {} labelled for a zone or region: those may not hold this \
                 node's endpoints",
                if labelled == 1 { "a slice is".into() } else { count(labelled, "slice") + " are" }
            ));
        }
    }
    if labelled > 0 && node.zone.is_none() {
        warnings.push(
            "this node has no label topology.kubernetes.io/zone, so slices of all zones count"
                .into(),
        );
    }
    for family in Family::BOTH {
        for port in service.ports.iter().filter(|port| wanted(port)) {
            if service.cluster_ip(family).is_some() {
                let selection = select(port, family, slices.iter().copied(), node);
                warnings.extend(cause::ignored_hints(&selection, node));
                let seen =
                    cause::Seen { service, port, family, slices, selection: &selection, node };
                warnings.extend(seen.mismatched_slices());
            }
        }
    }
    if let Some(external) = service.external.as_deref()
        && !external.source_ranges.is_empty()
    {
        let ranges: Vec<String> = external.source_ranges.iter().map(ToString::to_string).collect();
        warnings.push(format!(
            "its load balancer addresses answer only clients in {} (loadBalancerSourceRanges); \
             others are dropped",
            ranges.join(", ")
        ));
    }
    if !service.has_selector {
        warnings.push("it has no selector: somebody else must keep its slices up to date".into());
    }
    warnings.dedup();
    warnings
}
