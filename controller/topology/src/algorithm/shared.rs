//! `local-shared`: as local, but zones that cannot stand alone share a group.
//!
//! 1. Zones without any endpoint share one merged group.
//! 2. One endpoint at a time from the best donor: first to the merged group, then to each zone
//!    for the whole part of its shortage. Donors run out: balanced.
//! 3. Zones still at or above the threshold are urgent. They get one endpoint each from zones with
//!    a whole one to spare (one per such zone); if those are too few, the urgent zones share one
//!    group, filled up from any donor until it is below the threshold. That fails: balanced.
//! 4. Round 2 of local among the zones that stand alone. Nobody is a whole endpoint short after
//!    step 2, so here any shortage counts: with that the published figures come out, without it
//!    the step would do nothing and overload stays 0.3 below them.

use super::ledger::Ledger;
use super::local::{add_own_groups, home_given_by, round_two, transfer};
use crate::groups::Groups;
use crate::model::Counts;

/// Fills `groups`; false means the Service stays balanced.
pub(super) fn plan(zones: &[Counts], ledger: &mut Ledger, groups: &mut Groups) -> bool {
    let endpoints: u64 = zones.iter().map(|z| u64::from(z.endpoints)).sum();
    if endpoints < zones.len() as u64 {
        return false;
    }
    add_own_groups(zones, groups);
    merge_empty_zones(zones, ledger, groups)
        && serve_whole_shortages(zones.len(), ledger, groups)
        && relieve_urgent_zones(zones.len(), ledger, groups)
        && {
            round_two(false, ledger, groups);
            true
        }
}

/// Step 1 and the merged group's part of step 2.
fn merge_empty_zones(zones: &[Counts], ledger: &mut Ledger, groups: &mut Groups) -> bool {
    let is_empty = |zone: &Counts| zone.endpoints == 0 && zone.nodes > 0;
    if !zones.iter().any(is_empty) {
        return true;
    }
    let (_, weight) = groups.add();
    let mut expected = 0;
    for (z, _) in zones.iter().enumerate().filter(|(_, zone)| is_empty(zone)) {
        weight[z] = 1.0;
        expected += ledger.expected_scaled(z);
        ledger.retire(z);
    }
    // Rounded half up on whole numbers, so there is no x.4999998 to beware of.
    let unit = ledger.unit();
    let asked = ((2 * expected + unit) / (2 * unit)).max(1);
    (0..asked).all(|_| give_to_group(ledger, groups))
}

/// The zones' part of step 2.
fn serve_whole_shortages(zones: usize, ledger: &mut Ledger, groups: &mut Groups) -> bool {
    for z in 0..zones {
        let held = ledger.held(z) * ledger.unit();
        let shortage = ledger.expected_scaled(z).saturating_sub(held) / ledger.unit();
        if !ledger.is_alone(z) {
            continue;
        }
        for _ in 0..shortage {
            let Some(from) = ledger.donor() else { return false };
            transfer(from, z, ledger, groups);
        }
    }
    true
}

/// Step 3.
fn relieve_urgent_zones(zones: usize, ledger: &mut Ledger, groups: &mut Groups) -> bool {
    let count = |wanted: &dyn Fn(usize) -> bool| (0..zones).filter(|&z| wanted(z)).count();
    let urgent = count(&|z| ledger.is_urgent(z));
    if urgent == 0 {
        return true;
    }
    if count(&|z| ledger.has_spare(z)) >= urgent {
        // A zone with one to spare is below the threshold, so the two sets do not meet.
        let mut donor = 0;
        for z in 0..zones {
            if ledger.is_urgent(z) {
                while !ledger.has_spare(donor) {
                    donor += 1;
                }
                transfer(donor, z, ledger, groups);
                donor += 1;
            }
        }
        return true;
    }
    share_among_urgent(zones, ledger, groups)
}

/// The last resort of step 3: one group for all urgent zones.
fn share_among_urgent(zones: usize, ledger: &mut Ledger, groups: &mut Groups) -> bool {
    groups.add();
    let shared = groups.len() - 1;
    let (mut expected, mut size) = (0, 0);
    for z in 0..zones {
        if ledger.is_urgent(z) {
            expected += ledger.expected_scaled(z);
            size += ledger.retire(z);
            groups.redirect(z, shared);
        }
    }
    for z in 0..zones {
        if ledger.has_spare(z) {
            ledger.give(z);
            groups.shift(1, home_given_by(z, groups), z, shared);
            size += 1;
        }
    }
    while ledger.above(expected, size) {
        if !give_to_group(ledger, groups) {
            return false;
        }
        size += 1;
    }
    true
}

/// Moves one endpoint from the best donor to the newest group.
fn give_to_group(ledger: &mut Ledger, groups: &mut Groups) -> bool {
    let Some(from) = ledger.donor() else { return false };
    ledger.give(from);
    groups.shift(1, home_given_by(from, groups), from, groups.len() - 1);
    true
}
