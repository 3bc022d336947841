//! What one transaction changes.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;
use zw_model::Family;

use crate::config::Picker;
use crate::element::{Element, Key};
use crate::ipvs::IpvsChanges;
use crate::ruleset::{Chain, SetDef};
use crate::service::PortRules;
use crate::sets::SetName;

/// Where an element is.
pub type Place = (Family, SetName, Key);

/// The changes of one transaction, for both families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Only families that have any.
    pub tables: BTreeMap<Family, TableChanges>,
    /// Virtual servers and the addresses they are reached at.
    pub ipvs: IpvsChanges,
}

/// The changes to one family's table, in the order they are applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableChanges {
    /// Whatever table is there goes, in the same transaction that makes it anew.
    pub delete_table: bool,
    /// The table is made, with this comment.
    pub add_table: Option<String>,
    /// New sets and maps.
    pub add_sets: Vec<SetDef>,
    /// New affinity maps, by name. They begin empty, even where one of that name was left behind.
    pub add_affinity_maps: Vec<String>,
    /// New chains, with their rules.
    pub add_chains: Vec<Chain>,
    /// Chains whose rules are replaced.
    pub rewrite_chains: Vec<Chain>,
    /// Sets that lose all their elements, before any come.
    pub flush_sets: Vec<SetName>,
    /// Elements that go, as they are.
    pub delete_elements: BTreeMap<SetName, Vec<Element>>,
    /// Elements that come; one that changes goes first.
    pub add_elements: BTreeMap<SetName, Vec<Element>>,
    /// Affinity maps in which only these endpoints may still be remembered.
    pub forget_others: BTreeMap<String, Vec<Key>>,
    /// Chains nobody uses any more.
    pub delete_chains: Vec<String>,
    /// Affinity maps nobody uses any more, and sets of an older version.
    pub delete_sets: Vec<String>,
}

impl Changes {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.ipvs.is_empty() && self.tables.values().all(|table| *table == TableChanges::default())
    }

    /// How many elements are added or deleted.
    pub fn element_operations(&self) -> usize {
        self.tables.values().map(TableChanges::element_operations).sum()
    }

    /// So little that the kernel is done in less time than it takes to wake a thread for it. Chains make
    /// it look at the whole table, and clients that are to be forgotten are looked for among all.
    pub fn is_small(&self) -> bool {
        const FEW: usize = 64;
        let only_elements = |table: &TableChanges| {
            let TableChanges { add_sets, add_affinity_maps, forget_others, delete_sets, .. } =
                table;
            !table.delete_table
                && table.add_table.is_none()
                && add_sets.is_empty()
                && add_affinity_maps.is_empty()
                && table.flush_sets.is_empty()
                && forget_others.is_empty()
                && delete_sets.is_empty()
        };
        self.ipvs.is_empty()
            && self.tables.values().all(only_elements)
            && self.chain_operations() == 0
            && self.element_operations() <= FEW
    }

    /// The elements it is about, each once.
    pub fn places(&self) -> BTreeSet<Place> {
        let mut places = BTreeSet::new();
        for (family, table) in &self.tables {
            for (set, elements) in table.delete_elements.iter().chain(&table.add_elements) {
                places.extend(elements.iter().map(|element| (*family, *set, element.key)));
            }
        }
        places
    }

    /// How many chains are added, rewritten or deleted.
    pub fn chain_operations(&self) -> usize {
        self.tables
            .values()
            .map(|t| t.add_chains.len() + t.rewrite_chains.len() + t.delete_chains.len())
            .sum()
    }

    /// These changes and then others, as one.
    pub fn then(mut self, later: Changes) -> Changes {
        self.ipvs.absorb(later.ipvs);
        for (family, later) in later.tables {
            let both = match self.tables.remove(&family) {
                Some(sooner) => sooner.then(family, later),
                None => later,
            };
            self.tables.insert(family, both);
        }
        self
    }

    pub(crate) fn table(&mut self, family: Family) -> &mut TableChanges {
        self.tables.entry(family).or_default()
    }
}

impl TableChanges {
    fn element_operations(&self) -> usize {
        self.delete_elements.values().map(Vec::len).sum::<usize>()
            + self.add_elements.values().map(Vec::len).sum::<usize>()
    }

    fn then(mut self, family: Family, later: Self) -> Self {
        if later.delete_table {
            return later;
        }
        self.add_table = self.add_table.or(later.add_table);
        self.add_sets.extend(later.add_sets);
        for map in later.add_affinity_maps {
            // Not deleted yet, because that comes after everything else; emptied it is all the same.
            remove(&mut self.delete_sets, &map);
            if !self.add_affinity_maps.contains(&map) {
                self.add_affinity_maps.push(map);
            }
        }
        for chain in later.add_chains {
            if let Some(chain) = self.write(chain) {
                self.add_chains.push(chain);
            }
        }
        for chain in later.rewrite_chains {
            if let Some(chain) = self.write(chain) {
                self.rewrite_chains.push(chain);
            }
        }
        for set in later.flush_sets {
            self.delete_elements.remove(&set);
            self.add_elements.remove(&set);
            if !self.flush_sets.contains(&set) {
                self.flush_sets.push(set);
            }
        }
        let mut net = Net::default();
        for (deleted, added) in [
            (std::mem::take(&mut self.delete_elements), std::mem::take(&mut self.add_elements)),
            (later.delete_elements, later.add_elements),
        ] {
            for (set, element) in each(deleted) {
                net.record(family, set, element.key, Some(element), None);
            }
            for (set, element) in each(added) {
                net.record(family, set, element.key, None, Some(element));
            }
        }
        net.settle_table(&mut self);
        self.forget_others.extend(later.forget_others);
        self.forget_others.retain(|map, _| !later.delete_sets.contains(map));
        self.delete_chains.extend(later.delete_chains);
        self.delete_sets.extend(later.delete_sets);
        self
    }

    /// Gives a chain that was to be changed already these rules; gives any other back.
    fn write(&mut self, chain: Chain) -> Option<Chain> {
        // Not deleted yet: that comes after everything else.
        let is_there = remove(&mut self.delete_chains, &chain.name);
        let is_it = |known: &&mut Chain| known.name == chain.name;
        let mut known = self.add_chains.iter_mut().chain(&mut self.rewrite_chains);
        if let Some(known) = known.find(is_it) {
            *known = chain;
            return None;
        }
        if is_there {
            self.rewrite_chains.push(chain);
            return None;
        }
        Some(chain)
    }

    /// Everything that is a frontend's own.
    pub(crate) fn add_all(&mut self, port: &PortRules, picker: Picker) {
        port.each(picker, &mut |set, element| self.add(set, element));
    }

    pub(crate) fn add(&mut self, set: SetName, element: Element) {
        self.add_elements.entry(set).or_default().push(element);
    }

    fn replace(&mut self, set: SetName, before: Option<Element>, after: Option<Element>) {
        before.into_iter().for_each(|element| self.delete(set, element));
        after.into_iter().for_each(|element| self.add(set, element));
    }

    pub(crate) fn delete(&mut self, set: SetName, element: Element) {
        self.delete_elements.entry(set).or_default().push(element);
    }
}

/// The net effect of several changes on the same elements: a Service that takes an address over from
/// another within one transaction must not be deleted after it was added.
#[derive(Debug, Default)]
pub(crate) struct Net {
    elements: BTreeMap<Place, BeforeAndAfter>,
    /// Whether elements that map to nothing and say nothing were there and are now. Apart, because at a
    /// start there is one for each Service.
    bare: HashMap<Place, (bool, bool)>,
    /// In the order they were recorded.
    bare_order: Vec<Place>,
}

type BeforeAndAfter = (Option<Element>, Option<Element>);

impl Net {
    /// One element's change; what it was before counts the first time only.
    pub(crate) fn record(
        &mut self,
        family: Family,
        set: SetName,
        key: Key,
        before: Option<Element>,
        after: Option<Element>,
    ) {
        self.elements
            .entry((family, set, key))
            .and_modify(|(_, latest)| *latest = after.clone())
            .or_insert((before, after));
    }

    /// The same for an element that is [bare](Element::bare): it is there now, or it is not. An element is
    /// recorded either way, never both.
    pub(crate) fn record_bare(&mut self, at: Place, before: bool, after: bool) {
        let (_, latest) = self.bare.entry(at).or_insert_with(|| {
            self.bare_order.push(at);
            (before, after)
        });
        *latest = after;
    }

    /// Whether such a change of this element was recorded.
    pub(crate) fn knows(&self, at: &Place) -> bool {
        self.bare.contains_key(at)
    }

    /// Adds what really changes to `changes`.
    pub(crate) fn settle(self, changes: &mut Changes) {
        for (family, set, key) in self.bare_order {
            let (before, after) = self.bare[&(family, set, key)];
            if before != after {
                let element = |is: bool| is.then(|| Element::bare(key));
                changes.table(family).replace(set, element(before), element(after));
            }
        }
        for ((family, set, _), (before, after)) in self.elements {
            if before != after {
                changes.table(family).replace(set, before, after);
            }
        }
    }

    /// As [`Net::settle`], where all of it is of one family.
    fn settle_table(self, table: &mut TableChanges) {
        for ((_, set, _), (before, after)) in self.elements {
            if before != after {
                table.replace(set, before, after);
            }
        }
    }
}

/// Takes a name out of a list; says whether it was there.
fn remove(names: &mut Vec<String>, name: &str) -> bool {
    let at = names.iter().position(|known| known == name);
    at.map(|at| names.remove(at)).is_some()
}

fn each(elements: BTreeMap<SetName, Vec<Element>>) -> impl Iterator<Item = (SetName, Element)> {
    elements
        .into_iter()
        .flat_map(|(set, elements)| elements.into_iter().map(move |element| (set, element)))
}
