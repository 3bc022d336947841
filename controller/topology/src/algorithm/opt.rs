//! `local-opt`: no zone keeps more than it expects, what is left serves everyone.
//!
//! 1. A zone above expected keeps the whole part of it and offers the rest; a zone below asks for
//!    the whole part of its shortage. Offers meet requests in name order.
//! 2. Offers nobody asked for form one global group that every zone consumes with weight 1/zones.

use super::local::add_own_groups;
use super::weighted::Buffers;
use crate::groups::Groups;
use crate::model::{Counts, Totals};

/// Fills `groups`. Works for every input that has nodes and endpoints.
pub(super) fn plan(zones: &[Counts], totals: Totals, open: &mut Buffers, groups: &mut Groups) {
    let unit = totals.nodes;
    add_own_groups(zones, groups);
    open.offers.clear();
    open.needs.clear();
    for &zone in zones {
        let (expected, own) = (totals.expected_scaled(zone), u64::from(zone.endpoints) * unit);
        open.offers.push(own.saturating_sub(expected).div_ceil(unit) as u32);
        open.needs.push(expected.saturating_sub(own));
    }
    open.match_whole(unit, groups);

    if open.offers.iter().all(|&offer| offer == 0) {
        return;
    }
    let (_, weight) = groups.add();
    weight.fill(1.0 / zones.len() as f64);
    let global = groups.len() - 1;
    for (home, &offer) in open.offers.iter().enumerate() {
        groups.shift(offer, home, home, global);
    }
}
