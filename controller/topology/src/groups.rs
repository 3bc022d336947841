//! Slice groups: which endpoints they hold and which zones consume them.
//!
//! One flat table that is cleared and refilled, because an evaluation fills millions of them:
//! row `g` lists for each zone the endpoints at home there (`composition`) and the routing weight
//! with which that zone consumes the group (`weight`, 0 = not at all).

/// The division of one Service's endpoints.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Groups {
    zones: usize,
    composition: Vec<u32>,
    weight: Vec<f64>,
    balanced: bool,
}

impl Groups {
    /// Forgets all groups and gets ready for `zones` zones. Keeps its buffers.
    pub fn clear(&mut self, zones: usize) {
        self.zones = zones;
        self.balanced = false;
        self.composition.clear();
        self.weight.clear();
    }

    /// Adds an empty group nobody consumes and returns its composition and weights to fill in.
    pub fn add(&mut self) -> (&mut [u32], &mut [f64]) {
        let start = self.composition.len();
        let end = start + self.zones;
        self.composition.resize(end, 0);
        self.weight.resize(end, 0.0);
        (&mut self.composition[start..], &mut self.weight[start..])
    }

    /// Number of zones the groups were made for.
    pub fn zones(&self) -> usize {
        self.zones
    }

    /// Number of groups, empty ones included.
    pub fn len(&self) -> usize {
        self.composition.len().checked_div(self.zones).unwrap_or(0)
    }

    /// True when there is no group at all.
    pub fn is_empty(&self) -> bool {
        self.composition.is_empty()
    }

    /// True when the algorithm left the Service undivided: one group for every zone.
    pub fn is_balanced(&self) -> bool {
        self.balanced
    }

    /// Endpoints of group `g` by home zone.
    pub fn composition(&self, g: usize) -> &[u32] {
        &self.composition[g * self.zones..(g + 1) * self.zones]
    }

    /// Routing weight of group `g` by consuming zone.
    pub fn weight(&self, g: usize) -> &[f64] {
        &self.weight[g * self.zones..(g + 1) * self.zones]
    }

    /// Endpoints in group `g`.
    pub fn size(&self, g: usize) -> u32 {
        self.composition(g).iter().sum()
    }

    /// True when there is exactly one group for each zone, in the order of the zones, and no other
    /// zone consumes it.
    pub fn is_one_for_each_zone(&self) -> bool {
        let alone = |(g, weight): (usize, &[f64])| {
            weight.iter().enumerate().all(|(z, &weight)| (weight > 0.0) == (z == g))
        };
        !self.balanced
            && self.len() == self.zones
            && self.iter().map(|(_, weight)| weight).enumerate().all(alone)
    }

    /// Composition and weights of each group in turn.
    pub fn iter(&self) -> impl Iterator<Item = (&[u32], &[f64])> {
        // `max(1)`: chunks of nothing are not allowed, and without zones there is no row anyway.
        let zones = self.zones.max(1);
        self.composition.chunks_exact(zones).zip(self.weight.chunks_exact(zones))
    }

    /// Removes one endpoint of home zone `home`, the `nth` counted over all groups in order.
    pub fn remove(&mut self, home: usize, mut nth: u32) {
        for held in self.composition.iter_mut().skip(home).step_by(self.zones.max(1)) {
            if nth < *held {
                *held -= 1;
                return;
            }
            nth -= *held;
        }
    }

    /// Moves endpoints of home zone `home` from group `from` to group `to`.
    pub(crate) fn shift(&mut self, count: u32, home: usize, from: usize, to: usize) {
        self.composition[from * self.zones + home] -= count;
        self.composition[to * self.zones + home] += count;
    }

    /// Empties group `from` into group `to` and lets zone `from` consume that one instead.
    pub(crate) fn redirect(&mut self, from: usize, to: usize) {
        for z in 0..self.zones {
            let held = std::mem::take(&mut self.composition[from * self.zones + z]);
            self.composition[to * self.zones + z] += held;
        }
        self.weight[from * self.zones + from] = 0.0;
        self.weight[to * self.zones + from] = 1.0;
    }

    pub(crate) fn set_balanced(&mut self) {
        self.balanced = true;
    }
}
