//! `local-weighted`: every zone gets exactly what it expects, fractions by routing weight.
//!
//! 1. A zone above expected keeps the whole part of it for itself and offers the whole part of
//!    its surplus; a zone below asks for the whole part of its shortage. Offers meet requests in
//!    name order.
//! 2. An endpoint that a zone needs only in part becomes a group of its own: the zone consumes its
//!    part first. Whole offers nobody asked for become such groups too.
//! 3. Open fractions are filled from those groups in order; the weights of a group add up to 1.
//!
//! All amounts are whole numbers in units of one endpoint divided by all nodes.

use super::local::add_own_groups;
use crate::groups::Groups;
use crate::model::{Counts, Totals};

/// What zones still offer and ask for; reused between runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Buffers {
    /// Whole endpoints on offer by zone.
    pub(super) offers: Vec<u32>,
    /// Open demand by zone, in units.
    pub(super) needs: Vec<u64>,
}

impl Buffers {
    /// Hands out whole offers in name order, to each zone at most the whole part of its need.
    pub(super) fn match_whole(&mut self, unit: u64, groups: &mut Groups) {
        let mut donor = 0;
        for (z, need) in self.needs.iter_mut().enumerate() {
            let mut whole = (*need / unit) as u32;
            while whole > 0 {
                let Some(offer) = self.offers.get_mut(donor) else { return };
                let given = whole.min(*offer);
                *offer -= given;
                whole -= given;
                *need -= u64::from(given) * unit;
                groups.shift(given, donor, donor, z);
                if *offer == 0 {
                    donor += 1;
                }
            }
        }
    }
}

/// Fills `groups`. Works for every input that has nodes and endpoints.
pub(super) fn plan(zones: &[Counts], totals: Totals, open: &mut Buffers, groups: &mut Groups) {
    let unit = totals.nodes;
    add_own_groups(zones, groups);
    open.offers.clear();
    open.needs.clear();
    for &zone in zones {
        let (expected, own) = (totals.expected_scaled(zone), u64::from(zone.endpoints) * unit);
        open.offers.push((own.saturating_sub(expected) / unit) as u32);
        open.needs.push(expected.saturating_sub(own));
    }
    open.match_whole(unit, groups);

    let mut needy = 0;
    for (home, &zone) in zones.iter().enumerate() {
        let (expected, own) = (totals.expected_scaled(zone), u64::from(zone.endpoints) * unit);
        let fraction = own.saturating_sub(expected) % unit;
        if fraction > 0 {
            split(home, fraction, unit, &mut needy, &mut open.needs, groups);
        }
        for _ in 0..open.offers[home] {
            split(home, unit, unit, &mut needy, &mut open.needs, groups);
        }
    }
}

/// Makes one endpoint of `home` a group: `spare` units go to open needs, the rest stays at home.
fn split(
    home: usize,
    mut spare: u64,
    unit: u64,
    needy: &mut usize,
    needs: &mut [u64],
    groups: &mut Groups,
) {
    let (_, weight) = groups.add();
    let part = |amount: u64| amount as f64 / unit as f64;
    weight[home] = part(unit - spare);
    while spare > 0 && *needy < needs.len() {
        let amount = spare.min(needs[*needy]);
        if amount > 0 {
            weight[*needy] += part(amount);
            needs[*needy] -= amount;
            spare -= amount;
        }
        if needs[*needy] == 0 {
            *needy += 1;
        }
    }
    groups.shift(1, home, home, groups.len() - 1);
}
