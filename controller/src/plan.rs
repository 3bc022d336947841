//! From a Service and its slices to the next step for it: the rooms beside this one in their order.
//!
//! input → approach → groups → pack → handover. Pure, and all that a sync of one Service decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use zw_model::Family;

use crate::approach::{Approach, Size, Why, decide};
use crate::groups::{Divider, Offer, Placement, hold};
use crate::handover::{Goal, Present, Step, delete_all, next};
use crate::input::{LabelledZones, Role, Service, Slice};
use crate::pack::{Desired, Wanted};
use crate::settings::{Ignored, Settings};
use crate::zones::{ZoneNodes, Zones};

/// What is known about a Service and around it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The Service; `None` once it is gone.
    pub service: Option<&'a Service>,
    /// All its slices, of whatever role.
    pub slices: &'a [Slice],
    /// Where Nodes are.
    pub zones: &'a Zones,
    /// How many of them count, which does not change between Services.
    pub nodes: &'a ZoneNodes,
    /// The cluster's settings.
    pub settings: &'a Settings,
    /// What agents have had time to see, see [`Step::Settle`].
    pub settled: Option<&'a str>,
}

/// What to do for a Service, and what to tell about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The approach that was decided on.
    pub approach: Approach,
    /// Why.
    pub why: Why,
    /// What that is based on.
    pub size: Size,
    /// The next step.
    pub step: Step,
    /// Ready endpoints that change zones by it.
    pub reallocated: usize,
    /// All endpoints in default slices, ready or not.
    pub endpoints: usize,
    /// Annotations without effect.
    pub ignored: Vec<Ignored>,
}

/// Decides the next step for a Service.
pub fn plan(view: View<'_>, divider: &mut Divider) -> Outcome {
    let groups: Vec<&Slice> =
        view.slices.iter().filter(|slice| matches!(slice.role, Role::Group(_))).collect();
    let Some(service) = view.service else { return gone(&groups) };
    let (settings, mut ignored) = view.settings.for_service(service);
    if Approach::asked_by(service) == Approach::Balanced && groups.is_empty() {
        // Nearly all Services: nothing to look at.
        ignored.clear();
        let hidden = LabelledZones::new();
        let present = Present { service, groups: &[], hidden: &hidden, settled: None };
        let goal = Goal::Undivided { why: None, holding: Desired::new() };
        let step = next(&goal, &present, settings.slice_capacity);
        let size = Size { endpoints: 0, zones: view.nodes.len() };
        return Outcome { step, ignored, ..still(Why::Asked, size) };
    }

    let offer = |family| Some((family, Offer::collect(view.slices.iter(), family, view.zones)?));
    let offers: BTreeMap<Family, Offer> = Family::BOTH.into_iter().filter_map(offer).collect();
    let ready = offers.values().map(Offer::ready).filter(|&ready| ready > 0);
    let size = Size { endpoints: ready.min().unwrap_or(0), zones: view.nodes.len() };
    let (mut approach, mut why) = decide(service, size, &settings);
    let mut divided = None;
    if approach != Approach::Balanced {
        divided = divide(view, approach, &offers, &settings, divider);
        if divided.is_none() {
            approach = Approach::Balanced;
            why = Why::Overload { percent: settings.overload_percent };
        }
    }
    let mut reallocated = 0;
    let goal = match divided {
        Some(placements) => {
            reallocated = placements.values().map(|placement| placement.reallocated).sum();
            let groups = desired(placements, &offers);
            Goal::Divided { approach, why, groups, zones: view.nodes.keys().cloned().collect() }
        }
        None => {
            let asked = Approach::asked_by(service) != Approach::Balanced;
            let holding = holding(view, &groups, &offers);
            Goal::Undivided { why: asked.then_some(why), holding }
        }
    };
    let hidden: LabelledZones =
        view.slices.iter().filter_map(Slice::hidden).flatten().cloned().collect();
    let present = Present { service, groups: &groups, hidden: &hidden, settled: view.settled };
    let step = next(&goal, &present, settings.slice_capacity);
    let endpoints = view.slices.iter().filter(|slice| slice.is_source());
    let endpoints = endpoints.map(|slice| slice.endpoints.len()).sum();
    Outcome { approach, why, size, step, reallocated, endpoints, ignored }
}

fn still(why: Why, size: Size) -> Outcome {
    Outcome {
        approach: Approach::Balanced,
        why,
        size,
        step: Step::Done,
        reallocated: 0,
        endpoints: 0,
        ignored: Vec::new(),
    }
}

/// The garbage collector deletes the groups of a Service that is gone; where none runs, this does.
fn gone(groups: &[&Slice]) -> Outcome {
    let writes = delete_all(groups);
    let step = if writes.is_empty() { Step::Done } else { Step::Slices(writes) };
    Outcome { step, ..still(Why::Asked, Size { endpoints: 0, zones: 0 }) }
}

/// Every family's groups; `None` if one of them has to stay balanced.
fn divide(
    view: View<'_>,
    approach: Approach,
    offers: &BTreeMap<Family, Offer>,
    settings: &Settings,
    divider: &mut Divider,
) -> Option<BTreeMap<Family, Placement>> {
    let mut placements = BTreeMap::new();
    for (&family, offer) in offers {
        // A family without a ready endpoint has nothing to balance, and must not stop the other.
        let approach = if offer.ready() == 0 { Approach::Require } else { approach };
        let placement =
            divider.divide(approach, offer, view.slices, family, view.nodes, settings)?;
        placements.insert(family, placement);
    }
    (!placements.is_empty()).then_some(placements)
}

/// What groups hold that are to go: for zones that have one.
fn holding(view: View<'_>, groups: &[&Slice], offers: &BTreeMap<Family, Offer>) -> Desired {
    let mut placements = BTreeMap::new();
    for (&family, offer) in offers {
        let has_group = |zone: &Arc<str>| {
            groups.iter().any(|slice| {
                slice.family == family && slice.role == Role::Group(Some(zone.clone()))
            })
        };
        let zones: ZoneNodes = view
            .nodes
            .iter()
            .filter(|(zone, _)| has_group(zone))
            .map(|(zone, nodes)| (zone.clone(), *nodes))
            .collect();
        if !zones.is_empty() {
            placements.insert(family, hold(offer, view.slices, family, &zones));
        }
    }
    desired(placements, offers)
}

fn desired(placements: BTreeMap<Family, Placement>, offers: &BTreeMap<Family, Offer>) -> Desired {
    let mut desired = Desired::new();
    for (family, placement) in placements {
        for (zone, entries) in placement.groups {
            let placeholder = offers.get(&family).map(|offer| offer.any_ports.clone());
            let mut wanted = Wanted { placeholder, ..Wanted::default() };
            for entry in entries {
                wanted.by_ports.entry(entry.ports).or_default().push(entry.endpoint);
            }
            desired.insert((Some(zone), family), wanted);
        }
    }
    desired
}
