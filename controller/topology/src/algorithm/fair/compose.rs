//! Which endpoints make up the groups of `fair`, once their sizes are known.
//!
//! A table of group by home zone, filled from what is there already: a zone's own endpoints come
//! home as far as its group has room, foreign ones stay where they are as long as the group needs
//! them, and only the rest is handed out anew.

use crate::groups::Groups;
use crate::model::Counts;

/// The table; row = zone that consumes, column = home zone.
#[derive(Debug, Clone, Default)]
pub(super) struct Buffers {
    table: Vec<u32>,
    /// Per home zone: endpoints not in any group at the moment.
    loose: Vec<u32>,
    zones: usize,
}

impl Buffers {
    /// Starts with every endpoint at home.
    pub(super) fn start(&mut self, zones: &[Counts]) {
        self.zones = zones.len();
        self.table.clear();
        self.table.resize(zones.len() * zones.len(), 0);
        for (z, zone) in zones.iter().enumerate() {
            self.table[z * zones.len() + z] = zone.endpoints;
        }
    }

    /// Starts with a previous division; endpoints it does not know join their home zone's group.
    pub(super) fn keep(&mut self, zones: &[Counts], previous: &Groups) {
        self.start(zones);
        for (g, (composition, _)) in previous.iter().enumerate().take(zones.len()) {
            for (home, &held) in composition.iter().enumerate().filter(|&(home, _)| home != g) {
                // A caller that lists endpoints which are gone must not make the table overflow.
                let held = held.min(self.table[home * self.zones + home]);
                self.table[home * self.zones + home] -= held;
                self.table[g * self.zones + home] = held;
            }
        }
    }

    /// Size of a zone's group.
    pub(super) fn held(&self, zone: usize) -> u32 {
        self.table[zone * self.zones..(zone + 1) * self.zones].iter().sum()
    }

    /// Changes the groups to the given sizes, `(zone, size)` in the order that decides who gives
    /// to whom. The sizes must add up to all endpoints.
    pub(super) fn resize(
        &mut self,
        zones: &[Counts],
        sizes: impl Iterator<Item = (usize, u32)> + Clone,
    ) {
        let n = self.zones;
        self.loose.clear();
        self.loose.resize(n, 0);
        for (group, size) in sizes.clone() {
            let own = size.min(zones[group].endpoints);
            let mut room = size - own;
            for home in (0..n).filter(|&home| home != group) {
                let held = &mut self.table[group * n + home];
                *held = room.min(*held);
                room -= *held;
            }
        }
        for (home, size) in sizes.clone() {
            let own = size.min(zones[home].endpoints);
            let elsewhere = zones[home].endpoints - own;
            self.recall(home, self.abroad(home).saturating_sub(elsewhere));
            self.table[home * n + home] = own;
            self.loose[home] = elsewhere - self.abroad(home);
        }
        let mut donors = sizes.clone().map(|(zone, _)| zone);
        let mut donor = donors.next();
        for (group, size) in sizes {
            let mut room = size - self.held(group);
            while room > 0 {
                let Some(home) = donor else { return };
                let moved = room.min(self.loose[home]);
                self.table[group * n + home] += moved;
                self.loose[home] -= moved;
                room -= moved;
                if self.loose[home] == 0 {
                    donor = donors.next();
                }
            }
        }
    }

    /// Endpoints of a zone in the groups of others.
    fn abroad(&self, home: usize) -> u32 {
        let groups = (0..self.zones).filter(|&group| group != home);
        groups.map(|group| self.table[group * self.zones + home]).sum()
    }

    /// Brings `count` endpoints of a zone back from the groups of others.
    fn recall(&mut self, home: usize, mut count: u32) {
        for group in (0..self.zones).filter(|&group| group != home) {
            let held = &mut self.table[group * self.zones + home];
            let back = count.min(*held);
            *held -= back;
            count -= back;
        }
    }

    /// Adds one group per zone, consumed by that zone alone.
    pub(super) fn write(&self, zones: usize, groups: &mut Groups) {
        for z in 0..zones {
            let (composition, weight) = groups.add();
            composition.copy_from_slice(&self.table[z * zones..(z + 1) * zones]);
            weight[z] = 1.0;
        }
    }
}
