//! What an algorithm sees of a cluster: zones, each with a node count and an endpoint count.
//!
//! [`Input`] is the checked form with names, [`Counts`] the bare numbers the hot loops work on.

use thiserror::Error;

/// Largest sum of nodes, or of endpoints, in one input.
///
/// Several times the largest supported cluster. It keeps every product of a node and an endpoint
/// sum exact in both `u64` and `f64`, so the arithmetic needs no overflow checks.
pub const MAX_TOTAL: u32 = 1_000_000;

/// One zone of a cluster as seen by one Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Value of the zone label.
    pub name: String,
    /// Nodes in the zone: how much traffic is expected to start there.
    pub nodes: u32,
    /// Endpoints of the Service whose home is the zone.
    pub endpoints: u32,
}

/// The numbers of one zone, without its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counts {
    /// Nodes in the zone.
    pub nodes: u32,
    /// Endpoints whose home is the zone.
    pub endpoints: u32,
}

/// A checked list of zones in name order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    names: Vec<String>,
    counts: Vec<Counts>,
}

/// Why a list of zones cannot be an [`Input`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InputError {
    /// Two zones carry the same name.
    #[error("zone {0:?} is listed twice")]
    DuplicateZone(String),
    /// More nodes than [`MAX_TOTAL`].
    #[error("more than {MAX_TOTAL} nodes in all zones together")]
    TooManyNodes,
    /// More endpoints than [`MAX_TOTAL`].
    #[error("more than {MAX_TOTAL} endpoints in all zones together")]
    TooManyEndpoints,
}

impl Input {
    /// Checks the zones and puts them in name order, the order every algorithm visits them in.
    pub fn new(mut zones: Vec<Zone>) -> Result<Self, InputError> {
        let sum = |count: fn(&Zone) -> u32| zones.iter().map(|z| u64::from(count(z))).sum::<u64>();
        if sum(|z| z.nodes) > u64::from(MAX_TOTAL) {
            return Err(InputError::TooManyNodes);
        }
        if sum(|z| z.endpoints) > u64::from(MAX_TOTAL) {
            return Err(InputError::TooManyEndpoints);
        }
        zones.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(pair) = zones.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(InputError::DuplicateZone(pair[0].name.clone()));
        }
        let counts = zones.iter().map(|z| Counts { nodes: z.nodes, endpoints: z.endpoints });
        Ok(Self { counts: counts.collect(), names: zones.into_iter().map(|z| z.name).collect() })
    }

    /// Zone names, in the order of [`Self::counts`].
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Node and endpoint counts in name order.
    pub fn counts(&self) -> &[Counts] {
        &self.counts
    }
}

/// The sums every algorithm needs, widened so that products of two counts fit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Totals {
    pub(crate) nodes: u64,
    pub(crate) endpoints: u64,
}

impl Totals {
    pub(crate) fn of(zones: &[Counts]) -> Self {
        let mut totals = Self { nodes: 0, endpoints: 0 };
        for zone in zones {
            totals.nodes += u64::from(zone.nodes);
            totals.endpoints += u64::from(zone.endpoints);
        }
        totals
    }

    /// `expected(z)` times all nodes: the whole number behind the fraction.
    pub(crate) fn expected_scaled(&self, zone: Counts) -> u64 {
        self.endpoints * u64::from(zone.nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str, nodes: u32, endpoints: u32) -> Zone {
        Zone { name: name.into(), nodes, endpoints }
    }

    #[test]
    fn zones_come_out_in_name_order() {
        let input = Input::new(vec![zone("b", 1, 2), zone("a", 3, 4)]).unwrap();
        assert_eq!(input.names(), ["a", "b"]);
        assert_eq!(
            input.counts(),
            [Counts { nodes: 3, endpoints: 4 }, Counts { nodes: 1, endpoints: 2 }]
        );
    }

    #[test]
    fn a_zone_listed_twice_is_refused() {
        let twice = Input::new(vec![zone("a", 1, 2), zone("b", 1, 1), zone("a", 3, 4)]);
        assert_eq!(twice, Err(InputError::DuplicateZone("a".into())));
    }

    #[test]
    fn sums_beyond_the_exact_range_are_refused() {
        let half = MAX_TOTAL / 2 + 1;
        let nodes = Input::new(vec![zone("a", half, 1), zone("b", half, 1)]);
        assert_eq!(nodes, Err(InputError::TooManyNodes));
        let endpoints = Input::new(vec![zone("a", 1, u32::MAX), zone("b", 1, u32::MAX)]);
        assert_eq!(endpoints, Err(InputError::TooManyEndpoints));
    }
}
