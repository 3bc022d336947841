//! Who holds how many endpoints while they are moved one by one.
//!
//! Shared by `local` and `local-shared`. Comparisons are cross-multiplied whole numbers: `over >=
//! p/100` is `100 T n >= (100 + p) N held`, and one zone is more loaded than another when `n1 held2 > n2
//! held1`. Strict comparisons everywhere: ties keep the zone that comes first by name.

use crate::model::{Counts, Totals};

/// Holdings of the zones that keep a group of their own.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    zones: Vec<Seat>,
    nodes: u64,
    /// Load at the threshold, in percent of the ideal one.
    limit: u64,
}

/// One zone's line in the ledger.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    nodes: u64,
    pub(super) held: u64,
    /// Expected endpoints times all nodes.
    expected: u64,
    /// False for a zone whose demand is met by a shared group: it neither gives nor takes.
    alone: bool,
}

impl Ledger {
    /// Starts over: every zone holds its own endpoints.
    pub(super) fn open(&mut self, zones: &[Counts], overload_percent: u32) {
        self.limit = 100 + u64::from(overload_percent);
        let totals = Totals::of(zones);
        self.nodes = totals.nodes;
        self.zones.clear();
        self.zones.extend(zones.iter().map(|&zone| Seat {
            nodes: u64::from(zone.nodes),
            held: u64::from(zone.endpoints),
            expected: totals.expected_scaled(zone),
            alone: true,
        }));
    }

    /// Takes a zone out of the trade and returns what it held.
    pub(super) fn retire(&mut self, z: usize) -> u64 {
        self.zones[z].alone = false;
        std::mem::take(&mut self.zones[z].held)
    }

    pub(super) fn is_alone(&self, z: usize) -> bool {
        self.zones[z].alone
    }

    pub(super) fn held(&self, z: usize) -> u64 {
        self.zones[z].held
    }

    /// Expected endpoints of a zone times all nodes.
    pub(super) fn expected_scaled(&self, z: usize) -> u64 {
        self.zones[z].expected
    }

    /// All nodes: the unit of [`Self::expected_scaled`].
    pub(super) fn unit(&self) -> u64 {
        self.nodes
    }

    /// The zone that is least loaded after giving one, among those that can give one.
    pub(super) fn donor(&self) -> Option<usize> {
        self.best(
            |seat| seat.alone && seat.held > 1 && !self.above(seat.expected, seat.held - 1),
            |seat, best| seat.nodes * (best.held - 1) < best.nodes * (seat.held - 1),
        )
    }

    /// The most loaded zone at or above the overload threshold.
    pub(super) fn receiver(&self) -> Option<usize> {
        self.most_loaded(|seat| self.above(seat.expected, seat.held))
    }

    /// The most loaded zone that is short of what it expects: at least by one endpoint if `whole`.
    pub(super) fn neediest(&self, whole: bool) -> Option<usize> {
        let least = if whole { self.nodes } else { 1 };
        self.most_loaded(|seat| seat.held * self.nodes + least <= seat.expected)
    }

    #[inline(always)]
    fn most_loaded(&self, wanted: impl Fn(&Seat) -> bool) -> Option<usize> {
        self.best(
            |seat| seat.alone && wanted(seat),
            |seat, best| seat.nodes * best.held > best.nodes * seat.held,
        )
    }

    /// The first wanted zone that no other wanted one is better than.
    #[inline(always)]
    fn best(
        &self,
        wanted: impl Fn(&Seat) -> bool,
        better: impl Fn(&Seat, &Seat) -> bool,
    ) -> Option<usize> {
        let mut best: Option<usize> = None;
        for (z, seat) in self.zones.iter().enumerate() {
            if wanted(seat) && best.is_none_or(|b| better(seat, &self.zones[b])) {
                best = Some(z);
            }
        }
        best
    }

    /// Whether a zone holds at least one endpoint more than it expects.
    pub(super) fn has_spare(&self, z: usize) -> bool {
        let seat = &self.zones[z];
        seat.alone && seat.held * self.nodes >= seat.expected + self.nodes
    }

    /// Whether a zone is at or above the overload threshold.
    pub(super) fn is_urgent(&self, z: usize) -> bool {
        let seat = &self.zones[z];
        seat.alone && self.above(seat.expected, seat.held)
    }

    /// `expected / held` is at the limit or above; a zone that expects nothing is never above.
    #[inline(always)]
    pub(super) fn above(&self, expected: u64, held: u64) -> bool {
        expected > 0 && 100 * expected >= self.limit * self.nodes * held
    }

    pub(super) fn give(&mut self, from: usize) {
        self.zones[from].held -= 1;
    }

    pub(super) fn take(&mut self, to: usize) {
        self.zones[to].held += 1;
    }
}
