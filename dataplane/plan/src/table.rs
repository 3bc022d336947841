//! One family's table in memory, with the kernel's manners: all of a transaction or nothing, no
//! adding elements that are there, no deleting what is not or is still referred to. Stands in for the kernel in
//! tests, carries the walker's packets, and prints as nft text.

mod show;

use std::collections::{BTreeMap, BTreeSet};

use zw_model::Family;

use crate::adopt::{Actual, ActualChain, ActualTable, bring_to};
use crate::base::base_table;
use crate::changes::TableChanges;
use crate::config::PlanConfig;
use crate::desired::Desired;
use crate::element::{Data, Element, Key};
use crate::ruleset::{Chain, Statement};
use crate::sets::SetName;
use crate::shape::Shape;
pub use show::{show_element, show_key};

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its family.
    pub family: Family,
    /// Its chains.
    pub chains: BTreeMap<String, Chain>,
    /// Its sets and their elements.
    pub elements: BTreeMap<SetName, BTreeMap<Key, Element>>,
    /// Its affinity maps: which client is with which endpoint.
    pub affinity_maps: BTreeMap<String, BTreeMap<Key, Key>>,
    /// Its comment; none while it does not exist.
    note: Option<String>,
    /// Chains that were read back and whose rules are not ours to know.
    unknown: BTreeSet<String>,
}

/// What the kernel would have refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyError(pub String);

impl Table {
    /// No table yet.
    pub fn absent(family: Family) -> Self {
        Self {
            family,
            chains: BTreeMap::new(),
            elements: BTreeMap::new(),
            affinity_maps: BTreeMap::new(),
            note: None,
            unknown: BTreeSet::new(),
        }
    }

    /// What a fresh start would make of `desired`.
    pub fn of(desired: &Desired, family: Family) -> Result<Self, ApplyError> {
        let mut table = Self::absent(family);
        let changes = bring_to(desired, &Actual::default());
        if let Some(changes) = changes.tables.get(&family) {
            table.apply(changes)?;
        }
        Ok(table)
    }

    /// Applies a transaction, or leaves the table as it was.
    pub fn apply(&mut self, changes: &TableChanges) -> Result<(), ApplyError> {
        let mut next = self.clone();
        next.apply_in_place(changes)?;
        *self = next;
        Ok(())
    }

    /// As the writer would read it back.
    pub fn read_back(&self) -> ActualTable {
        let chains = self.chains.values().map(|chain| {
            let rules: ActualChain =
                chain.fingerprints(self.family).into_iter().map(Some).collect();
            (chain.name.clone(), rules)
        });
        let sets = self.elements.iter().map(|(set, elements)| {
            (*set, elements.values().map(|element| (element.key, element.clone())).collect())
        });
        let maps = self.affinity_maps.iter().map(|(name, clients)| {
            (name.clone(), clients.iter().map(|(client, with)| (*client, *with)).collect())
        });
        ActualTable {
            note: self.note.clone(),
            chains: chains.collect(),
            sets: sets.collect(),
            affinity_maps: maps.collect(),
            ..ActualTable::default()
        }
    }

    /// What was read back. Rule bodies are not, so a chain has rules only where their fingerprints are
    /// those of the rules this version writes under the settings that the table's comment tells.
    pub fn from_actual(family: Family, actual: &ActualTable) -> Self {
        let note = actual.note.clone().unwrap_or_default();
        let config = &PlanConfig::from_note(family, &note).unwrap_or_default();
        let any_sticky = !actual.affinity_maps.is_empty();
        let base = base_table(family, config, any_sticky);
        let mut unknown = BTreeSet::new();
        let known = |name: &str| {
            let base = base.iter().find(|chain| chain.name == name).cloned();
            base.or_else(|| Some(Shape::parse(name)?.chain(family, config)))
        };
        let chains = actual.chains.iter().map(|(name, fingerprints)| {
            let same = |chain: &Chain| {
                chain
                    .fingerprints(family)
                    .iter()
                    .map(Some)
                    .eq(fingerprints.iter().map(Option::as_ref))
            };
            let unknown = || {
                unknown.insert(name.clone());
                Chain { name: name.clone(), hook: None, rules: Vec::new() }
            };
            (name.clone(), known(name).filter(same).unwrap_or_else(unknown))
        });
        let elements = actual.sets.iter().map(|(set, elements)| {
            (*set, elements.iter().map(|(key, element)| (*key, element.clone())).collect())
        });
        let maps = actual.affinity_maps.iter().map(|(name, clients)| {
            (name.clone(), clients.iter().map(|(client, with)| (*client, *with)).collect())
        });
        let (chains, elements, affinity_maps) =
            (chains.collect(), elements.collect(), maps.collect());
        Self { family, chains, elements, affinity_maps, note: Some(note), unknown }
    }

    /// A chain that was read back and whose rules are not those this version writes.
    pub fn is_unknown(&self, chain: &str) -> bool {
        self.unknown.contains(chain)
    }

    /// All of these.
    pub fn unknown_chains(&self) -> impl Iterator<Item = &str> {
        self.unknown.iter().map(String::as_str)
    }

    /// The table is there.
    pub fn exists(&self) -> bool {
        self.note.is_some()
    }

    fn apply_in_place(&mut self, changes: &TableChanges) -> Result<(), ApplyError> {
        let refused = |what: String| Err(ApplyError(what));
        if changes.delete_table {
            *self = Self::absent(self.family);
        }
        if let Some(note) = &changes.add_table {
            self.note = Some(note.clone());
        }
        if self.note.is_none() && *changes != TableChanges::default() {
            return refused("the table does not exist".into());
        }
        for set in &changes.add_sets {
            if self.elements.insert(set.name, BTreeMap::new()).is_some() {
                return refused(format!("set {} exists", set.name));
            }
        }
        // Maps and chains that are there stay; a map loses its clients, a chain its rules to the new ones.
        for map in &changes.add_affinity_maps {
            self.affinity_maps.insert(map.clone(), BTreeMap::new());
        }
        for chain in &changes.add_chains {
            self.chains.insert(chain.name.clone(), chain.clone());
        }
        for chain in &changes.rewrite_chains {
            if self.chains.insert(chain.name.clone(), chain.clone()).is_none() {
                return refused(format!("chain {} does not exist", chain.name));
            }
        }
        for set in &changes.flush_sets {
            let Some(elements) = self.elements.get_mut(set) else {
                return refused(format!("no set {set}"));
            };
            elements.clear();
        }
        for (set, elements) in &changes.delete_elements {
            for Element { key, .. } in elements {
                if self.elements.get_mut(set).and_then(|e| e.remove(key)).is_none() {
                    return refused(format!(
                        "no element {} in {set}",
                        show_key(self.family, *set, key)
                    ));
                }
            }
        }
        for (set, added) in &changes.add_elements {
            for element in added {
                if let Data::Goto(chain) = &element.data
                    && !self.chains.contains_key(&**chain)
                {
                    return refused(format!("no chain {chain}"));
                }
                let Some(elements) = self.elements.get_mut(set) else {
                    return refused(format!("no set {set}"));
                };
                if elements.insert(element.key, element.clone()).is_some() {
                    let key = show_key(self.family, *set, &element.key);
                    return refused(format!("element {key} of {set} exists"));
                }
            }
        }
        for (map, endpoints) in &changes.forget_others {
            let Some(clients) = self.affinity_maps.get_mut(map) else {
                return refused(format!("no map {map}"));
            };
            clients.retain(|_, with| endpoints.contains(with));
        }
        for name in &changes.delete_chains {
            let goes_there =
                |element: &Element| matches!(&element.data, Data::Goto(to) if to == name);
            if self.elements.values().flat_map(BTreeMap::values).any(goes_there) {
                return refused(format!("chain {name} is in use"));
            }
            if self.chains.remove(name).is_none() {
                return refused(format!("chain {name} does not exist"));
            }
        }
        for set in &changes.delete_sets {
            self.affinity_maps.remove(set);
        }
        self.check_references()
    }

    fn lacks_chain(&self, name: &str) -> Option<String> {
        (!self.chains.contains_key(name)).then(|| format!("no chain {name}"))
    }

    fn check_references(&self) -> Result<(), ApplyError> {
        for statement in self.chains.values().flat_map(|chain| chain.rules.iter().flatten()) {
            let missing = match statement {
                Statement::Jump(chain) => self.lacks_chain(chain),
                Statement::Goto(chain) => self.lacks_chain(chain),
                Statement::DnatAsBefore(map) | Statement::Remember { map, .. } => {
                    (!self.affinity_maps.contains_key(map)).then(|| format!("no map {map}"))
                }
                Statement::In(_, set)
                | Statement::NotIn(_, set)
                | Statement::Count(_, set)
                | Statement::Dispatch(_, set)
                | Statement::Dnat { map: set, .. } => {
                    (!self.elements.contains_key(set)).then(|| format!("no set {set}"))
                }
                _ => None,
            };
            if let Some(what) = missing {
                return Err(ApplyError(what));
            }
        }
        Ok(())
    }
}
