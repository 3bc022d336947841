//! `local`: one group per zone, endpoints moved one at a time.
//!
//! 1. Every zone starts with its own endpoints.
//! 2. Round 1: from the donor least loaded after giving to the receiver most loaded, until no
//!    zone is at or above the overload threshold. Donors run out first: balanced.
//! 3. Round 2: while the best donor has a whole endpoint to spare, to the most loaded zone that is
//!    a whole endpoint short.

use super::ledger::Ledger;
use crate::groups::Groups;
use crate::model::Counts;

/// Fills `groups`; false means the threshold cannot be kept and the Service stays balanced.
pub(super) fn plan(zones: &[Counts], ledger: &mut Ledger, groups: &mut Groups) -> bool {
    add_own_groups(zones, groups);
    while let Some(to) = ledger.receiver() {
        let Some(from) = ledger.donor() else { return false };
        transfer(from, to, ledger, groups);
    }
    round_two(true, ledger, groups);
    true
}

/// One group per zone with the zone's own endpoints, consumed by that zone alone.
pub(super) fn add_own_groups(zones: &[Counts], groups: &mut Groups) {
    for (z, zone) in zones.iter().enumerate() {
        let (composition, weight) = groups.add();
        composition[z] = zone.endpoints;
        weight[z] = 1.0;
    }
}

/// Evens out while a donor can spare a whole endpoint and a zone is short (`whole`: of a whole
/// one).
pub(super) fn round_two(whole: bool, ledger: &mut Ledger, groups: &mut Groups) {
    while let Some(from) = ledger.donor().filter(|&z| ledger.has_spare(z)) {
        let Some(to) = ledger.neediest(whole) else { return };
        transfer(from, to, ledger, groups);
    }
}

/// Moves one endpoint between the groups of two zones.
pub(super) fn transfer(from: usize, to: usize, ledger: &mut Ledger, groups: &mut Groups) {
    ledger.give(from);
    ledger.take(to);
    groups.shift(1, home_given_by(from, groups), from, to);
}

/// Home of the endpoint a zone gives away: its own as long as it has one.
pub(super) fn home_given_by(from: usize, groups: &Groups) -> usize {
    let held = groups.composition(from);
    if held[from] > 0 { from } else { held.iter().position(|&n| n > 0).unwrap_or(from) }
}
