//! What somebody else did to the table, as the kernel told it, and what puts it right.
//!
//! Costs what was touched: elements and rules are put right one by one, from memory, without reading the
//! table. Where more than that was changed (the table is gone, a chain has another policy, a set was
//! made anew) it is replaced as a whole in one transaction, which takes a fraction of the time that
//! reading it would.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use zw_model::Family;

use crate::adopt::make;
use crate::changes::{Changes, Place, TableChanges};
use crate::desired::Desired;
use crate::element::{Element, Key};
use crate::sets::{SetName, sets};

/// How many elements of a table are remembered one by one. Beyond that it is replaced: so that a
/// stranger's tireless script costs neither memory without end nor the time to look at each.
const MOST_ELEMENTS: usize = 1 << 16;

/// What somebody else did, to both families' tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drift {
    /// Only families whose table was touched.
    pub tables: BTreeMap<Family, TableDrift>,
    /// Who did it, as far as the kernel tells: names of processes.
    pub by: BTreeSet<String>,
    /// Some of what happened was not told.
    pub lost: bool,
}

/// What somebody else did to one family's table. What came last counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableDrift {
    /// It is gone, or changed in a way that no element or rule tells.
    altered: bool,
    chains: BTreeMap<String, ChainDrift>,
    /// Sets, and whether they are gone.
    sets: BTreeMap<String, bool>,
    /// Elements as they are now; `None` is gone.
    elements: BTreeMap<SetName, HashMap<Key, Option<Element>>>,
    /// Sets of ranges, whose elements do not come one by one.
    ranges: BTreeSet<SetName>,
    /// Affinity maps that were given clients.
    clients: BTreeSet<String>,
}

/// What happened to a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainDrift {
    /// Rules came, went or changed.
    Rules,
    /// It was made, or changed as a whole.
    Made,
    /// It is gone.
    Gone,
}

impl Drift {
    /// Nothing happened.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty() && !self.lost
    }

    /// One family's part.
    pub fn table(&mut self, family: Family) -> &mut TableDrift {
        self.tables.entry(family).or_default()
    }

    /// Takes in what happened later.
    pub fn absorb(&mut self, later: Drift) {
        self.lost |= later.lost;
        self.by.extend(later.by);
        for (family, drift) in later.tables {
            self.table(family).absorb(drift);
        }
    }
}

impl TableDrift {
    /// It is gone, or changed as a whole.
    pub fn alter(&mut self) {
        *self = Self { altered: true, ..Self::default() };
    }

    /// A chain, or a rule in it.
    pub fn chain(&mut self, name: &str, drift: ChainDrift) {
        match self.chains.get_mut(name) {
            Some(_) if drift == ChainDrift::Rules => {}
            Some(known) => *known = drift,
            None => drop(self.chains.insert(name.to_owned(), drift)),
        }
    }

    /// A set came, or is gone.
    pub fn set(&mut self, name: &str, gone: bool) {
        self.sets.insert(name.to_owned(), gone);
    }

    /// An element is like this now.
    pub fn element(&mut self, set: SetName, key: Key, is: Option<Element>) {
        if set.def().ranges {
            self.ranges.insert(set);
            return;
        }
        let elements = self.elements.entry(set).or_default();
        elements.insert(key, is);
        if elements.len() > MOST_ELEMENTS {
            self.alter();
        }
    }

    /// An affinity map was given a client.
    pub fn client(&mut self, map: &str) {
        self.clients.insert(map.to_owned());
    }

    fn absorb(&mut self, later: Self) {
        if later.altered {
            return self.alter();
        }
        later.chains.iter().for_each(|(name, drift)| self.chain(name, *drift));
        self.sets.extend(later.sets);
        self.ranges.extend(later.ranges);
        self.clients.extend(later.clients);
        for (set, elements) in later.elements {
            for (key, is) in elements {
                self.element(set, key, is);
            }
        }
    }
}

impl Desired {
    /// The changes that put right what somebody else did; none where it made no difference.
    pub fn repair(&self, drift: &Drift) -> Changes {
        let mut changes = Changes::default();
        for (family, drift) in &drift.tables {
            let table = self.repair_table(*family, drift);
            let table = table.unwrap_or_else(|| self.replace_table(*family));
            if table != TableChanges::default() {
                changes.tables.insert(*family, table);
            }
        }
        changes
    }

    /// One family's table anew, whatever is there.
    pub fn replace_table(&self, family: Family) -> TableChanges {
        TableChanges { delete_table: true, ..make(self, family) }
    }

    /// `None`: it takes a new table.
    fn repair_table(&self, family: Family, drift: &TableDrift) -> Option<TableChanges> {
        let mut changes = TableChanges::default();
        if drift.altered {
            return None;
        }
        for (name, gone) in &drift.sets {
            if sets().any(|set| set.name.as_str() == name) || self.has_affinity_map(family, name) {
                return None;
            }
            if !gone {
                changes.delete_sets.push(name.clone());
            }
        }
        for (name, drift) in &drift.chains {
            match (self.chain(family, name), drift) {
                (Some(_), ChainDrift::Made) => return None,
                (Some(chain), ChainDrift::Rules) => changes.rewrite_chains.push(chain),
                (Some(chain), ChainDrift::Gone) => changes.add_chains.push(chain),
                (None, ChainDrift::Gone) => {}
                (None, _) => changes.delete_chains.push(name.clone()),
            }
        }
        for (set, elements) in &drift.elements {
            for (key, is) in elements {
                let want = self.element(family, *set, key);
                if want == *is {
                    continue;
                }
                is.iter().for_each(|is| changes.delete(*set, is.clone()));
                want.into_iter().for_each(|want| changes.add(*set, want));
            }
        }
        if !drift.ranges.is_empty() {
            changes.flush_sets = drift.ranges.iter().copied().collect();
            self.elements(family, &mut |set, element| {
                if drift.ranges.contains(&set) {
                    changes.add(set, element);
                }
            });
        }
        if !drift.clients.is_empty() {
            let touched = |(map, _): &(String, Vec<Key>)| drift.clients.contains(map);
            changes.forget_others = self.remembered(family).into_iter().filter(touched).collect();
        }
        Some(changes)
    }
}

impl Desired {
    /// What is left to be done of changes that may have landed or not, or that were refused because the
    /// table is not what it was thought to be. `found` is what is now at their [`Changes::places`].
    pub fn resume(
        &self,
        changes: Changes,
        found: impl IntoIterator<Item = (Place, Option<Element>)>,
    ) -> Changes {
        let mut drift = Drift::default();
        for (family, table) in &changes.tables {
            let drift = drift.table(*family);
            if table.delete_table || table.add_table.is_some() || !table.add_sets.is_empty() {
                drift.alter();
                continue;
            }
            for chain in table.add_chains.iter().chain(&table.rewrite_chains) {
                // One that is there is kept, and gets the same rules.
                drift.chain(&chain.name, ChainDrift::Gone);
            }
            drift.ranges.extend(&table.flush_sets);
        }
        for ((family, set, key), is) in found {
            let drift = drift.table(family);
            if !drift.altered {
                drift.element(set, key, is);
            }
        }
        let mut left = self.repair(&drift);
        // Good to be done twice.
        left.ipvs = changes.ipvs;
        for (family, mut table) in changes.tables {
            let left = left.table(family);
            if !left.delete_table {
                left.add_affinity_maps = table.add_affinity_maps;
                left.forget_others.append(&mut table.forget_others);
                left.delete_chains = table.delete_chains;
                left.delete_sets = table.delete_sets;
            }
        }
        left
    }
}

impl fmt::Display for Drift {
    /// What was touched, for people: `IPv4: 2 elements of services, chain cluster-2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.tables.iter().map(|(family, drift)| format!("{family}: {drift}"));
        let lost = self.lost.then(|| "something that was not told".to_owned());
        f.write_str(&tables.chain(lost).collect::<Vec<_>>().join("; "))
    }
}

impl fmt::Display for TableDrift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST_NAMES: usize = 8;
        if self.altered {
            return f.write_str("the table");
        }
        let elements = self.elements.iter().map(|(set, elements)| match elements.len() {
            1 => format!("an element of {set}"),
            count => format!("{count} elements of {set}"),
        });
        let ranges = self.ranges.iter().map(|set| format!("elements of {set}"));
        let clients = self.clients.iter().map(|map| format!("elements of {map}"));
        let chains = self.chains.keys().map(|name| format!("chain {name}"));
        let sets = self.sets.keys().map(|name| format!("set {name}"));
        let mut all: Vec<String> =
            elements.chain(ranges).chain(clients).chain(chains).chain(sets).collect();
        if all.len() > MOST_NAMES {
            let more = all.len() - MOST_NAMES;
            all.truncate(MOST_NAMES);
            all.push(format!("and {more} more"));
        }
        f.write_str(&all.join(", "))
    }
}

#[cfg(test)]
mod tests;
