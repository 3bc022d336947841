//! The order of steps between balanced and divided, so that no zone is without endpoints in between.
//!
//! Up: write every zone's group; wait until agents have surely seen them; then label the Service for
//! those zones, which takes the default slices off their nodes. Down: take the labels off; wait until no
//! default slice carries one and agents have surely seen them; then delete the groups. All the while
//! groups are kept right. A single zone that comes or goes takes the same way.
//!
//! Pure: from what is there to the next safe step. A controller that dies after any write leaves a state
//! from which this continues, and one that has forgotten how long it waited waits again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::approach::{Approach, Why};
use crate::input::{LabelledZones, Service, Slice};
use crate::names;
use crate::pack::{Desired, SliceWrite, pack};

/// Where a Service is to go.
#[derive(Debug)]
pub enum Goal {
    /// Groups for these zones, by an approach that divides.
    Divided {
        /// Which one.
        approach: Approach,
        /// Why.
        why: Why,
        /// Its groups.
        groups: Desired,
        /// The zones that have one.
        zones: BTreeSet<Arc<str>>,
    },
    /// No groups.
    Undivided {
        /// What to tell on the Service; nothing if nobody asked for more.
        why: Option<Why>,
        /// What the groups that are still there hold until they go.
        holding: Desired,
    },
}

/// Fields of a Service to set, or to remove where the value is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServicePatch {
    /// Zones to label it for, or no longer.
    pub zones: BTreeMap<Arc<str>, bool>,
    /// Annotations.
    pub annotations: BTreeMap<&'static str, Option<String>>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// These writes, in this order.
    Slices(Vec<SliceWrite>),
    /// This patch.
    Service(ServicePatch),
    /// Nothing for a while, so that agents see what was written: for this, which must not change
    /// meanwhile.
    Settle(String),
    /// Nothing until the stock controller has taken labels off the default slices.
    Await,
    /// Nothing.
    Done,
}

/// What is there.
#[derive(Debug)]
pub struct Present<'a> {
    /// The Service.
    pub service: &'a Service,
    /// Our slices of it.
    pub groups: &'a [&'a Slice],
    /// The zones off whose nodes default slices are kept.
    pub hidden: &'a LabelledZones,
    /// What agents have had time to see.
    pub settled: Option<&'a str>,
}

/// The next step towards a goal.
pub fn next(goal: &Goal, present: &Present<'_>, capacity: usize) -> Step {
    match goal {
        Goal::Divided { approach, why, groups, zones } => {
            up(present, (*approach, *why), groups, zones, capacity)
        }
        Goal::Undivided { why, holding } => down(present, *why, holding, capacity),
    }
}

fn up(
    present: &Present<'_>,
    (approach, why): (Approach, Why),
    groups: &Desired,
    zones: &BTreeSet<Arc<str>>,
    capacity: usize,
) -> Step {
    let relied_on = &present.service.zones;
    // The last slice of a zone goes only when no agent there relies on it.
    let is_last = |write: &SliceWrite| {
        let zone = write.audience().as_ref();
        write.is_delete()
            && zone.is_some_and(|zone| !zones.contains(zone))
            && zone.is_some_and(|zone| relied_on.contains(zone) || present.hidden.contains(zone))
    };
    let writes = pack(groups, present.groups, capacity);
    let (late, now): (Vec<_>, Vec<_>) = writes.into_iter().partition(is_last);
    if !now.is_empty() {
        return Step::Slices(now);
    }
    let marks = [
        (names::APPROACH, Some(approach.name().to_owned())),
        (names::REASON, Some(why.to_string())),
    ];
    let patch = patch(present.service, zones, marks);
    if patch != ServicePatch::default() {
        // Agents rely on groups from here on.
        let new: Vec<&str> = zones.difference(relied_on).map(|zone| &**zone).collect();
        let what = new.join(",");
        if !new.is_empty() && present.settled != Some(&*what) {
            return Step::Settle(what);
        }
        return Step::Service(patch);
    }
    if late.is_empty() { Step::Done } else { Step::Await }
}

fn down(present: &Present<'_>, why: Option<Why>, holding: &Desired, capacity: usize) -> Step {
    /// No zone has this name.
    const AWAY: &str = "/";
    let writes = pack(holding, present.groups, capacity);
    let kept: Vec<SliceWrite> = writes.into_iter().filter(|write| !write.is_delete()).collect();
    if !kept.is_empty() {
        return Step::Slices(kept);
    }
    let marks = [
        (names::APPROACH, why.map(|_| Approach::Balanced.name().to_owned())),
        (names::REASON, why.map(|why| why.to_string())),
    ];
    let patch = patch(present.service, &BTreeSet::new(), marks);
    if patch != ServicePatch::default() {
        return Step::Service(patch);
    }
    if present.groups.is_empty() {
        return Step::Done;
    }
    if !present.hidden.is_empty() {
        return Step::Await;
    }
    if present.settled != Some(AWAY) {
        return Step::Settle(AWAY.to_owned());
    }
    Step::Slices(delete_all(present.groups))
}

/// All groups go, as those of a Service that is gone.
pub fn delete_all(groups: &[&Slice]) -> Vec<SliceWrite> {
    pack(&Desired::new(), groups, 1)
}

fn patch(
    service: &Service,
    zones: &BTreeSet<Arc<str>>,
    marks: [(&'static str, Option<String>); 2],
) -> ServicePatch {
    let labels = zones.symmetric_difference(&service.zones);
    let differs = |(name, value): &(&'static str, Option<String>)| {
        service.annotation(name) != value.as_deref()
    };
    ServicePatch {
        zones: labels.map(|zone| (zone.clone(), zones.contains(zone))).collect(),
        annotations: marks.into_iter().filter(differs).collect(),
    }
}

#[cfg(test)]
mod tests;
