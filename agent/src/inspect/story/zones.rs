//! A Service that the zone-slice controller looks after: which approach is in force and why, and what
//! each zone was given. Only what was received is told: an agent's watch brings its own zone's slices.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;
use zw_controller::names::MANAGER;
use zw_model::{Division, Family, Scope, Service, Slice, SliceEndpoint};

use crate::inspect::planned::{Nodes, Planned};
use crate::screen::{Cell, Screen, Tone, cell, count};

/// Where an annotation is cut; the controller's own are shorter.
const LONGEST: usize = 200;

/// What the controller made of a Service.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ZonesStory {
    /// Which approach is in force; none before the Service says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    approach: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The groups that were received, one for each zone and family.
    groups: Vec<ZoneGroup>,
    /// Off the nodes of these zones the Service's labels keep the default slices.
    default_slices_kept_off: Vec<String>,
    /// Whether the slices of other zones than this node's would be here if there are any.
    other_zones_received: bool,
}

/// What one zone was given.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ZoneGroup {
    zone: String,
    family: String,
    /// Its Nodes, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<usize>,
    endpoints: usize,
    ready: usize,
    /// Of all its endpoints, those that are in another zone.
    from_other_zones: usize,
    /// And those of which nobody says where they are.
    from_unknown_zones: usize,
}

/// `None` for a Service that the controller has nothing to do with.
pub(super) fn tell(planned: &Planned, service: &Service, slices: &[&Slice]) -> Option<ZonesStory> {
    let mut members: BTreeMap<(&Arc<str>, Family), BTreeMap<IpAddr, &SliceEndpoint>> =
        BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.managed_by.as_deref() == Some(MANAGER)) {
        if let Scope::Zone(zone) = &slice.scope {
            // One endpoint is in several slices if it has several sets of ports.
            let group = members.entry((zone, slice.family)).or_default();
            group.extend(slice.endpoints.iter().map(|endpoint| (endpoint.addr, endpoint)));
        }
    }
    if members.is_empty() && service.division.is_none() {
        return None;
    }
    let own = planned.index.node().zone.as_ref();
    let others_seen = members.keys().any(|(zone, _)| Some(*zone) != own);
    let groups = members.into_iter().map(|((zone, family), endpoints)| {
        let known = planned.nodes.values().flatten().filter(|of| *of == zone).count();
        let homes: Vec<Option<&Arc<str>>> =
            endpoints.values().map(|endpoint| home(endpoint, &planned.nodes)).collect();
        ZoneGroup {
            zone: zone.to_string(),
            family: family.to_string(),
            nodes: (!planned.nodes.is_empty()).then_some(known),
            endpoints: endpoints.len(),
            ready: endpoints.values().filter(|endpoint| endpoint.conditions.ready).count(),
            from_other_zones: homes.iter().flatten().filter(|home| **home != zone).count(),
            from_unknown_zones: homes.iter().filter(|home| home.is_none()).count(),
        }
    });
    let nothing = Division::default();
    let division = service.division.as_deref().unwrap_or(&nothing);
    Some(ZonesStory {
        approach: division.approach.as_deref().map(plain),
        reason: division.reason.as_deref().map(plain),
        groups: groups.collect(),
        default_slices_kept_off: division.zones.iter().map(ToString::to_string).collect(),
        other_zones_received: planned.agent.is_none() || own.is_none() || others_seen,
    })
}

/// An annotation may hold anything; what is shown must not break out of its line.
fn plain(text: &str) -> String {
    text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// As the controller sees it: a Node knows best where it is.
fn home<'a>(endpoint: &'a SliceEndpoint, nodes: &'a Nodes) -> Option<&'a Arc<str>> {
    let node = endpoint.node.as_ref().and_then(|name| nodes.get(name)?.as_ref());
    node.or(endpoint.zone.as_ref())
}

impl ZonesStory {
    fn headline(&self) -> String {
        match (&self.approach, &self.reason) {
            (Some(approach), Some(reason)) => format!("{approach} is in force: {reason}"),
            (Some(approach), None) => format!("{approach} is in force"),
            (None, _) if self.groups.is_empty() => "no approach is in force yet".into(),
            (None, _) => {
                "groups are there, and the Service does not say yet that they are complete".into()
            }
        }
    }

    /// Who receives the slices that are for everyone.
    fn default_slices(&self) -> Option<String> {
        let kept_off = &self.default_slices_kept_off;
        let mut without: Vec<&str> = self.groups.iter().map(|group| group.zone.as_str()).collect();
        without.retain(|zone| !kept_off.iter().any(|kept| kept == zone));
        without.dedup();
        match (kept_off.is_empty(), without.is_empty()) {
            (true, true) => None,
            (true, false) => Some(
                "default slices go to every node: no label of the Service keeps them off".into(),
            ),
            (false, true) => Some(format!(
                "labels of the Service keep the default slices off the nodes of {}",
                kept_off.join(", ")
            )),
            (false, false) => Some(format!(
                "labels of the Service keep the default slices off the nodes of {}; those of {} \
                 receive them",
                kept_off.join(", "),
                without.join(", ")
            )),
        }
    }
}

impl ZoneGroup {
    fn words(&self) -> String {
        if self.endpoints == 0 {
            return "no endpoint: its nodes refuse connections".into();
        }
        let mut words = count(self.endpoints, "endpoint");
        match self.ready {
            ready if ready == self.endpoints => {}
            0 => words += ", none ready",
            ready => words += &format!(", {ready} ready"),
        }
        match (self.from_other_zones, self.from_unknown_zones) {
            (0, 0) if self.endpoints == 1 => words += ", of this zone",
            (0, 0) => words += ", all of this zone",
            (0, _) => {}
            (1, _) => words += ", 1 from another zone",
            (some, _) => words += &format!(", {some} from other zones"),
        }
        if self.from_unknown_zones > 0 {
            words += &format!(", {} whose zone is not known", self.from_unknown_zones);
        }
        words
    }
}

pub(super) fn print(screen: &Screen, zones: &ZonesStory, out: &mut dyn Write) -> io::Result<()> {
    screen.table(out, 0, &[vec![cell("zones").toned(Tone::Title), cell(zones.headline())]])?;
    let row = |group: &ZoneGroup| -> Vec<Cell> {
        let nodes = group.nodes.map(|nodes| count(nodes, "node")).unwrap_or_default();
        let tone = if group.ready == 0 { Tone::Bad } else { Tone::Plain };
        vec![
            cell(group.zone.as_str()),
            cell(group.family.as_str()),
            cell(nodes),
            cell(group.words()).toned(tone),
        ]
    };
    screen.table(out, 2, &zones.groups.iter().map(row).collect::<Vec<_>>())?;
    if let Some(text) = zones.default_slices() {
        screen.paragraph(out, 2, Tone::Plain, &text)?;
    }
    if !zones.other_zones_received {
        let text = "other zones' slices are not received by this node";
        screen.paragraph(out, 2, Tone::Faint, text)?;
    }
    Ok(())
}
