//! One zone on the walk of `fair`, with everything that changes when an endpoint comes or goes.

use crate::model::{Counts, Totals};

/// A zone, its group's size, and what follows from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    /// Position in name order.
    pub(super) zone: usize,
    /// Endpoints at home in the zone.
    pub(super) own: u32,
    /// Size of the zone's group.
    pub(super) held: u32,
    /// Smallest size that stays below the threshold; 0 only for a zone without nodes.
    pub(super) least: u32,
    /// Size at which endpoints carry the ideal load.
    pub(super) expected: f64,
    /// Load of the group's endpoints, 1 = ideal.
    pub(super) load: f64,
    /// Load after giving one away; infinite when the zone must not give.
    pub(super) load_after: f64,
    /// In-zone traffic, counted in endpoints at ideal load.
    pub(super) in_zone: f64,
}

impl Seat {
    /// The zone's starting point: its own endpoints, or as many as it needs at least.
    pub(super) fn new(zone: usize, counts: Counts, totals: Totals, overload_percent: u32) -> Self {
        let expected = totals.expected_scaled(counts);
        // Smallest h with expected / h < 1 + p/100, on whole numbers.
        let limit = 100 + u64::from(overload_percent);
        let least = match counts.nodes {
            0 => 0,
            _ => (100 * expected / (limit * totals.nodes) + 1) as u32,
        };
        let held = if counts.nodes == 0 { 0 } else { counts.endpoints.max(least) };
        let seat = Self {
            zone,
            own: counts.endpoints,
            held,
            least,
            expected: expected as f64 / totals.nodes as f64,
            load: 0.0,
            load_after: f64::INFINITY,
            in_zone: 0.0,
        };
        seat.holding(held)
    }

    /// The same zone with a group of another size.
    pub(super) fn holding(mut self, held: u32) -> Self {
        self.held = held;
        // A zone without nodes is at load 0 whatever it holds, one without endpoints is beyond any.
        self.load = match (self.least, held) {
            (0, _) => 0.0,
            (_, 0) => f64::INFINITY,
            _ => self.expected / f64::from(held),
        };
        self.load_after = self.look_ahead();
        self.in_zone = self.at_home();
        self
    }

    /// Below the threshold, and nothing held that nobody would use.
    pub(super) fn is_sound(&self) -> bool {
        self.held >= self.least && (self.least > 0 || self.held == 0)
    }

    /// One endpoint less. Only for a seat whose `load_after` is finite.
    #[inline(always)]
    pub(super) fn give(&mut self) {
        self.held -= 1;
        self.load = self.load_after;
        self.load_after = self.look_ahead();
        self.in_zone = self.at_home();
    }

    /// One endpoint more.
    #[inline(always)]
    pub(super) fn take(&mut self) {
        self.held += 1;
        // A seat is never below `least`, so giving the new one back is always possible.
        self.load_after = self.load;
        self.load = self.expected / f64::from(self.held);
        self.in_zone = self.at_home();
    }

    #[inline(always)]
    fn look_ahead(&self) -> f64 {
        // `least` is at least 1 for a zone with nodes, so the divisor is too.
        let can_give = self.held > self.least && self.least > 0;
        if can_give { self.expected / f64::from(self.held - 1) } else { f64::INFINITY }
    }

    /// With foreign endpoints in the group only the own part of the traffic stays at home.
    #[inline(always)]
    fn at_home(&self) -> f64 {
        if self.held > self.own { self.load * f64::from(self.own) } else { self.expected }
    }
}
