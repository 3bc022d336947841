//! How many endpoints change group when a cluster changes a little.
//!
//! A [`Walk`] is a series of single changes: one endpoint or one node more or less in one zone.
//! After each, the algorithm plans again, from scratch or from its previous plan, and the
//! endpoints that were there before and after but whose group has other consumers now are counted
//! as reallocated. Endpoints of one zone are interchangeable, so they are matched to change as
//! little as possible. A change of weight alone is not counted.
//!
//! Walks come from a small generator of their own: the same seed is the same walk on every
//! machine and for every algorithm.

use crate::algorithm::{Algorithm, Options, Planner};
use crate::groups::Groups;
use crate::model::Counts;
use crate::score::Scorer;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// What kind of random walks to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// Zones in the cluster.
    pub zones: usize,
    /// Nodes a zone may have.
    pub nodes: RangeInclusive<u32>,
    /// Endpoints a zone may have.
    pub endpoints: RangeInclusive<u32>,
    /// Independent walks.
    pub walks: u32,
    /// Changes in each walk.
    pub steps: u32,
    /// Where the generator starts.
    pub seed: u64,
}

impl Walk {
    /// The walks of the published churn table: a small Service, one as in the large dataset, one
    /// in a cluster with many nodes, and one over more zones.
    pub fn standard() -> [Self; 4] {
        let walk = |zones, nodes, endpoints| Self {
            zones,
            nodes,
            endpoints,
            walks: 100,
            steps: 1000,
            seed: 1,
        };
        [
            walk(3, 1..=10, 0..=20),
            walk(3, 1..=10, 0..=100),
            walk(3, 10..=50, 0..=300),
            walk(5, 1..=10, 0..=40),
        ]
    }
}

/// What kind of change a step made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// One endpoint more or less in one zone.
    Endpoint,
    /// One node more or less in one zone.
    Node,
}

/// What one kind of step cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Steps taken.
    pub steps: u64,
    /// Endpoints reallocated over all of them.
    pub moved: u64,
    /// Steps that reallocated nothing.
    pub quiet: u64,
    /// Most endpoints reallocated by one step.
    pub largest: u64,
}

impl Cost {
    fn add(&mut self, moved: u64) {
        self.steps += 1;
        self.moved += moved;
        self.quiet += u64::from(moved == 0);
        self.largest = self.largest.max(moved);
    }

    /// Endpoints reallocated per step.
    pub fn mean(&self) -> f64 {
        self.moved as f64 / self.steps.max(1) as f64
    }

    /// Part of the steps that reallocated nothing.
    pub fn quiet_share(&self) -> f64 {
        self.quiet as f64 / self.steps.max(1) as f64
    }
}

/// What an algorithm did over all walks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Churn {
    /// Steps of one endpoint.
    pub endpoint: Cost,
    /// Steps of one node.
    pub node: Cost,
    /// Steps that went from balanced to divided or back.
    pub switches: u64,
    /// Mean total score over all steps.
    pub score: f64,
}

/// What plans a walk is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Every plan starts from scratch.
    None,
    /// Every plan starts from the one before.
    Previous,
    /// The plan before stays until a zone reaches the threshold.
    Lazy,
}

/// Takes the walks and counts what `algorithm` reallocates.
pub fn measure(walk: &Walk, algorithm: Algorithm, options: &Options, memory: Memory) -> Churn {
    let (mut planner, mut scorer) = (Planner::default(), Scorer::default());
    let mut random = Random(walk.seed);
    // A generator of its own: which endpoint goes must not change where the walk goes.
    let mut fate = Random(!walk.seed);
    let mut churn = Churn::default();
    for _ in 0..walk.walks {
        let mut zones = random.start(walk);
        let mut groups = planner.plan(&zones, algorithm, options).clone();
        for _ in 0..walk.steps {
            let before = Placement::of(&groups);
            let was = zones.clone();
            let (change, z) = random.step(walk, &mut zones);
            if zones[z].endpoints < was[z].endpoints {
                groups.remove(z, fate.below(u64::from(was[z].endpoints)) as u32);
            }
            let plan = match memory {
                Memory::None => planner.plan(&zones, algorithm, options),
                Memory::Previous => planner.plan_from(&zones, Some(&groups), algorithm, options),
                Memory::Lazy => planner.plan_lazily(&zones, Some(&groups), algorithm, options),
            };
            groups = plan.clone();

            let after = Placement::of(&groups);
            match change {
                Change::Endpoint => churn.endpoint.add(after.moved_since(&before)),
                Change::Node => churn.node.add(after.moved_since(&before)),
            }
            churn.switches += u64::from(before.balanced != after.balanced);
            churn.score += scorer.score(&zones, &groups).map_or(0.0, |score| score.total);
        }
    }
    churn.score /= (churn.endpoint.steps + churn.node.steps).max(1) as f64;
    churn
}

/// Endpoints of one zone by the set of zones that consume them.
type Consumed = BTreeMap<Vec<bool>, u64>;

/// Endpoints by home zone and by who consumes them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Placement {
    balanced: bool,
    homes: Vec<Consumed>,
}

impl Placement {
    fn of(groups: &Groups) -> Self {
        let mut homes = Vec::new();
        for (composition, weight) in groups.iter() {
            homes.resize_with(composition.len(), BTreeMap::new);
            let consumers: Vec<bool> = weight.iter().map(|&w| w > 0.0).collect();
            for (home, &held) in homes.iter_mut().zip(composition) {
                if held > 0 {
                    *home.entry(consumers.clone()).or_insert(0) += u64::from(held);
                }
            }
        }
        Self { balanced: groups.is_balanced(), homes }
    }

    /// Endpoints present in both placements that cannot have stayed where they were.
    fn moved_since(&self, before: &Self) -> u64 {
        let of_zone = |(now, then): (&Consumed, &Consumed)| {
            let survivors = now.values().sum::<u64>().min(then.values().sum());
            let kept: u64 = now
                .iter()
                .map(|(consumers, &held)| held.min(then.get(consumers).copied().unwrap_or(0)))
                .sum();
            survivors.saturating_sub(kept)
        };
        self.homes.iter().zip(&before.homes).map(of_zone).sum()
    }
}

/// SplitMix64: eight lines, any seed is a good seed, and plenty for drawing test inputs.
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn within(&mut self, range: &RangeInclusive<u32>) -> u32 {
        let span = range.end().saturating_sub(*range.start());
        range.start() + self.below(u64::from(span) + 1) as u32
    }

    fn start(&mut self, walk: &Walk) -> Vec<Counts> {
        (0..walk.zones)
            .map(|_| Counts {
                nodes: self.within(&walk.nodes),
                endpoints: self.within(&walk.endpoints),
            })
            .collect()
    }

    /// Changes one zone by one; a change that would leave the ranges goes the other way.
    fn step(&mut self, walk: &Walk, zones: &mut [Counts]) -> (Change, usize) {
        let z = self.below(zones.len() as u64) as usize;
        let up = self.below(2) == 0;
        let (change, value, range) = match self.below(2) {
            0 => (Change::Endpoint, &mut zones[z].endpoints, &walk.endpoints),
            _ => (Change::Node, &mut zones[z].nodes, &walk.nodes),
        };
        let up = (up && *value < *range.end()) || *value <= *range.start();
        *value = if up { *value + 1 } else { *value - 1 };
        (change, z)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(rows: &[(&[u32], &[f64])]) -> Placement {
        let mut groups = Groups::default();
        groups.clear(rows[0].0.len());
        for (held, weights) in rows {
            let (composition, weight) = groups.add();
            composition.copy_from_slice(held);
            weight.copy_from_slice(weights);
        }
        Placement::of(&groups)
    }

    #[test]
    fn only_endpoints_that_changed_consumers_count() {
        let before = placement(&[(&[4, 0], &[1.0, 0.0]), (&[1, 3], &[0.0, 1.0])]);
        let after = placement(&[(&[3, 0], &[1.0, 0.0]), (&[2, 3], &[0.0, 1.0])]);
        assert_eq!(after.moved_since(&before), 1);
        assert_eq!(before.moved_since(&before), 0);
    }

    #[test]
    fn endpoints_that_came_or_went_do_not_count() {
        let few = placement(&[(&[4, 0], &[1.0, 0.0]), (&[0, 3], &[0.0, 1.0])]);
        let more = placement(&[(&[6, 0], &[1.0, 0.0]), (&[0, 3], &[0.0, 1.0])]);
        assert_eq!(more.moved_since(&few), 0);
        assert_eq!(few.moved_since(&more), 0);
    }

    #[test]
    fn leaving_balanced_moves_everything() {
        let balanced = placement(&[(&[4, 3], &[1.0, 1.0])]);
        let divided = placement(&[(&[4, 0], &[1.0, 0.0]), (&[0, 3], &[0.0, 1.0])]);
        assert_eq!(divided.moved_since(&balanced), 7);
    }

    #[test]
    fn a_walk_is_the_same_for_every_algorithm_and_stays_in_range() {
        let walk = &Walk::standard()[0];
        let (mut a, mut b) = (Random(7), Random(7));
        let (mut here, mut there) = (a.start(walk), b.start(walk));
        for _ in 0..1000 {
            let before = here.clone();
            let (_, z) = a.step(walk, &mut here);
            b.step(walk, &mut there);
            assert_eq!(here, there);
            let distance = here[z].nodes.abs_diff(before[z].nodes)
                + here[z].endpoints.abs_diff(before[z].endpoints);
            assert_eq!(distance, 1);
            assert!(here.iter().all(|zone| {
                walk.nodes.contains(&zone.nodes) && walk.endpoints.contains(&zone.endpoints)
            }));
        }
    }
}
