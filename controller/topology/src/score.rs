//! How well a set of slice groups serves its zones.
//!
//! Traffic: zone z sends its share of all nodes, split over groups by `size * weight`, evenly
//! within a group. Deviation of an endpoint: its load over the ideal `1/T`, minus one.

use crate::groups::Groups;
use crate::model::Counts;
use thiserror::Error;

/// Endpoints that fit in one EndpointSlice.
pub const SLICE_CAPACITY: u32 = 100;

/// Parts of the total, and the two overloads behind the overload credits.
pub(crate) const IN_ZONE_WEIGHT: f64 = 0.45;
pub(crate) const OVERLOAD_WEIGHT: f64 = 0.40;
pub(crate) const SLICE_WEIGHT: f64 = 0.15;

/// Credits from 0 to 100 (overload credits can fall below 0), and the overloads as fractions.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Score {
    /// Weighted sum of the three parts.
    pub total: f64,
    /// Traffic that ends on an endpoint of the zone it started in.
    pub in_zone: f64,
    /// 100 minus the mean of max and mean overload.
    pub overload: f64,
    /// Fewest possible EndpointSlices over those needed.
    pub slices: f64,
    /// Largest positive deviation of any endpoint.
    pub max_overload: f64,
    /// Mean absolute deviation over all endpoints.
    pub mean_overload: f64,
}

/// Why an input has no score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unscored {
    /// There is nothing to route to.
    #[error("no endpoints")]
    NoEndpoints,
    /// There is nothing to route from.
    #[error("no nodes")]
    NoNodes,
    /// A zone with nodes consumes no endpoint.
    #[error("a zone with nodes reaches no endpoint")]
    Unreachable,
}

/// Scores groups; keeps a buffer so that scoring allocates nothing.
#[derive(Debug, Clone, Default)]
pub struct Scorer {
    /// Per zone: its traffic per endpoint reached at weight 1.
    rate: Vec<f64>,
}

impl Scorer {
    /// Scores `groups`, which must have been made for `zones`.
    pub fn score(&mut self, zones: &[Counts], groups: &Groups) -> Result<Score, Unscored> {
        let nodes: u32 = zones.iter().map(|z| z.nodes).sum();
        let (mut endpoints, mut slices) = (0, 0);
        self.rate.clear();
        self.rate.resize(zones.len(), 0.0);
        for (composition, weight) in groups.iter() {
            let size: u32 = composition.iter().sum();
            endpoints += size;
            slices += size.div_ceil(SLICE_CAPACITY);
            for (reach, weight) in self.rate.iter_mut().zip(weight) {
                *reach += f64::from(size) * weight;
            }
        }
        if endpoints == 0 {
            return Err(Unscored::NoEndpoints);
        }
        if nodes == 0 {
            return Err(Unscored::NoNodes);
        }
        for (rate, zone) in self.rate.iter_mut().zip(zones) {
            // A zone without nodes sends nothing, so it does not matter what it reaches.
            let share = f64::from(zone.nodes) / f64::from(nodes);
            *rate = match (zone.nodes, *rate) {
                (0, _) => 0.0,
                (_, reach) if reach <= 0.0 => return Err(Unscored::Unreachable),
                (_, reach) => share / reach,
            };
        }

        let all = f64::from(endpoints);
        let (mut in_zone, mut max_overload, mut deviation) = (0.0, 0.0_f64, 0.0);
        for (composition, weight) in groups.iter() {
            let (mut load, mut size) = (0.0, 0);
            for ((&held, weight), rate) in composition.iter().zip(weight).zip(&self.rate) {
                let from_zone = rate * weight;
                load += from_zone;
                in_zone += from_zone * f64::from(held);
                size += held;
            }
            if size > 0 {
                let over = load * all - 1.0;
                max_overload = max_overload.max(over);
                deviation += over.abs() * f64::from(size);
            }
        }
        Ok(Score::from_parts(in_zone, max_overload, deviation / all, {
            f64::from(endpoints.div_ceil(SLICE_CAPACITY)) / f64::from(slices)
        }))
    }
}

impl Score {
    /// Credits from the four measured fractions.
    fn from_parts(in_zone: f64, max_overload: f64, mean_overload: f64, slices: f64) -> Self {
        let overload = 100.0 - 50.0 * (max_overload + mean_overload);
        let (in_zone, slices) = (100.0 * in_zone, 100.0 * slices);
        let total = IN_ZONE_WEIGHT * in_zone + OVERLOAD_WEIGHT * overload + SLICE_WEIGHT * slices;
        Self { total, in_zone, overload, slices, max_overload, mean_overload }
    }
}

#[cfg(test)]
mod tests;
