//! What one transaction changes.

use std::collections::BTreeMap;

use zw_model::Family;

use crate::element::{Element, Key};
use crate::ruleset::{Chain, SetDef};
use crate::sets::SetName;

/// The changes of one transaction, for both families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Only families that have any.
    pub tables: BTreeMap<Family, TableChanges>,
}

/// The changes to one family's table, in the order they are applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableChanges {
    /// The table is there but unusable: it goes, in the same transaction that makes it anew.
    pub delete_table: bool,
    /// The table is made, with this comment.
    pub add_table: Option<String>,
    /// New sets and maps.
    pub add_sets: Vec<SetDef>,
    /// New affinity maps, by name.
    pub add_affinity_maps: Vec<String>,
    /// New chains, with their rules.
    pub add_chains: Vec<Chain>,
    /// Chains whose rules are replaced.
    pub rewrite_chains: Vec<Chain>,
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
        self.tables.values().all(|table| *table == TableChanges::default())
    }

    /// How many elements are added or deleted.
    pub fn element_operations(&self) -> usize {
        self.tables.values().map(TableChanges::element_operations).sum()
    }

    /// How many chains are added, rewritten or deleted.
    pub fn chain_operations(&self) -> usize {
        self.tables
            .values()
            .map(|t| t.add_chains.len() + t.rewrite_chains.len() + t.delete_chains.len())
            .sum()
    }

    /// Takes in changes to other elements than its own.
    pub fn absorb(&mut self, other: Changes) {
        for (family, others) in other.tables {
            let table = self.table(family);
            for (set, elements) in others.delete_elements {
                table.delete_elements.entry(set).or_default().extend(elements);
            }
            for (set, elements) in others.add_elements {
                table.add_elements.entry(set).or_default().extend(elements);
            }
        }
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

    pub(crate) fn add(&mut self, set: SetName, element: Element) {
        self.add_elements.entry(set).or_default().push(element);
    }

    pub(crate) fn delete(&mut self, set: SetName, element: Element) {
        self.delete_elements.entry(set).or_default().push(element);
    }
}

/// The net effect of several changes on the same elements: a Service that takes an address over from
/// another within one transaction must not be deleted after it was added.
#[derive(Debug, Default)]
pub(crate) struct Net {
    elements: BTreeMap<(Family, SetName, Key), BeforeAndAfter>,
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

    /// Adds what really changes to `changes`.
    pub(crate) fn settle(self, changes: &mut Changes) {
        for ((family, set, _), (before, after)) in self.elements {
            if before == after {
                continue;
            }
            let table = changes.table(family);
            if let Some(element) = before {
                table.delete(set, element);
            }
            if let Some(element) = after {
                table.add(set, element);
            }
        }
    }
}
