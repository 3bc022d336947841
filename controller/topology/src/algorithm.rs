//! The algorithms by name, and the planner that runs them.
//!
//! One file each under `algorithm/`. All of them do whole-number arithmetic where a comparison
//! decides something, so a threshold met exactly is met on every machine and scaling all node
//! counts by the same factor changes nothing.

use crate::groups::Groups;
use crate::model::{Counts, Totals};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

mod fair;
mod ledger;
mod local;
mod opt;
mod shared;
mod weighted;

/// A way to divide endpoints over zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// One group with everything, consumed by every zone.
    Balanced,
    /// Own endpoints first, then whole ones moved until every zone is near what it expects.
    Local,
    /// As local, but zones that fall short may share a group.
    LocalShared,
    /// Exactly the expected share for every zone, by groups consumed with weights.
    LocalWeighted,
    /// At most the expected share for every zone, the rest in one group for all.
    LocalOpt,
    /// Own endpoints first, then the most loaded zone is relieved as long as the score says so.
    Fair,
}

/// A name that is no [`Algorithm`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown algorithm {0:?}, expected one of {list}", list = Algorithm::ALL.map(Algorithm::name).join(", "))]
pub struct UnknownAlgorithm(String);

impl Algorithm {
    /// Every algorithm, the published ones first.
    pub const ALL: [Self; 6] = [
        Self::Balanced,
        Self::Local,
        Self::LocalShared,
        Self::LocalWeighted,
        Self::LocalOpt,
        Self::Fair,
    ];

    /// Every algorithm, the published ones first.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter()
    }

    /// The name used on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::Local => "local",
            Self::LocalShared => "local-shared",
            Self::LocalWeighted => "local-weighted",
            Self::LocalOpt => "local-opt",
            Self::Fair => "fair",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::all().find(|a| a.name() == name).ok_or_else(|| UnknownAlgorithm(name.into()))
    }
}

/// What can be set about an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `local` stays balanced below this many endpoints for each zone.
    pub starting_threshold: u32,
    /// Overload no endpoint may reach, in percent of the ideal load. The algorithms with weights
    /// need no threshold.
    pub overload_percent: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { starting_threshold: 3, overload_percent: 50 }
    }
}

/// Runs algorithms. Keeps every buffer between runs, so planning allocates nothing once warm.
#[derive(Debug, Clone, Default)]
pub struct Planner {
    groups: Groups,
    ledger: ledger::Ledger,
    weighted: weighted::Buffers,
    fair: fair::Fair,
}

impl Planner {
    /// Divides the endpoints of `zones`, given in name order, and returns the groups.
    ///
    /// Without endpoints or without nodes there is nothing to decide: the result is balanced.
    pub fn plan(&mut self, zones: &[Counts], algorithm: Algorithm, options: &Options) -> &Groups {
        self.plan_from(zones, None, algorithm, options)
    }

    /// As [`Self::plan`], starting from what is left of an earlier plan for the same zones.
    ///
    /// `previous` lists those endpoints of the earlier plan that still exist. Only `fair` looks at
    /// it; every other algorithm starts from scratch each time.
    pub fn plan_from(
        &mut self,
        zones: &[Counts],
        previous: Option<&Groups>,
        algorithm: Algorithm,
        options: &Options,
    ) -> &Groups {
        let totals = Totals::of(zones);
        let groups = &mut self.groups;
        groups.clear(zones.len());
        let divided = totals.nodes > 0
            && totals.endpoints > 0
            && match algorithm {
                Algorithm::Balanced => false,
                Algorithm::Local => {
                    let start = u64::from(options.starting_threshold) * zones.len() as u64;
                    totals.endpoints >= start && {
                        self.ledger.open(zones, options.overload_percent);
                        local::plan(zones, &mut self.ledger, groups)
                    }
                }
                Algorithm::LocalShared => {
                    self.ledger.open(zones, options.overload_percent);
                    shared::plan(zones, &mut self.ledger, groups)
                }
                Algorithm::LocalWeighted => {
                    weighted::plan(zones, totals, &mut self.weighted, groups);
                    true
                }
                Algorithm::LocalOpt => {
                    opt::plan(zones, totals, &mut self.weighted, groups);
                    true
                }
                Algorithm::Fair => {
                    let limit = options.overload_percent;
                    self.fair.plan(zones, totals, previous, limit, groups)
                }
            };
        if !divided {
            balance(zones, groups);
        }
        groups
    }

    /// As [`Self::plan_from`], but `previous` stays as long as no zone reaches the threshold: new
    /// endpoints join their home zone's group, and nothing else moves.
    ///
    /// Only a plan with one group for each zone can stay; after any other, or after none, this
    /// plans anew.
    pub fn plan_lazily(
        &mut self,
        zones: &[Counts],
        previous: Option<&Groups>,
        algorithm: Algorithm,
        options: &Options,
    ) -> &Groups {
        let totals = Totals::of(zones);
        self.groups.clear(zones.len());
        let stays = algorithm != Algorithm::Balanced
            && totals.nodes > 0
            && totals.endpoints > 0
            && previous.filter(|previous| previous.is_one_for_each_zone()).is_some_and(
                |previous| {
                    let limit = options.overload_percent;
                    self.fair.keep(zones, totals, previous, limit, &mut self.groups)
                },
            );
        if stays { &self.groups } else { self.plan_from(zones, previous, algorithm, options) }
    }
}

/// One group with everything, weight 1 for every zone.
fn balance(zones: &[Counts], groups: &mut Groups) {
    groups.clear(zones.len());
    groups.set_balanced();
    if zones.is_empty() {
        return;
    }
    let (composition, weight) = groups.add();
    weight.fill(1.0);
    for (held, zone) in composition.iter_mut().zip(zones) {
        *held = zone.endpoints;
    }
}

#[cfg(test)]
mod tests;
