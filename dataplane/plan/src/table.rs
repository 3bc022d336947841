//! One family's table in memory, with the kernel's manners: all of a transaction or nothing, no
//! adding what is there, no deleting what is not or is still referred to. Stands in for the kernel in
//! tests, carries the walker's packets, and prints as nft text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use zw_model::Family;

use crate::adopt::{Actual, ActualChain, ActualTable, bring_to};
use crate::base::{PlanConfig, SHAPE, TABLE, base_table, sets, shape_chain};
use crate::changes::TableChanges;
use crate::desired::Desired;
use crate::element::{Data, Element, Key, decode};
use crate::ruleset::{Chain, Field, InFamily, SetData, SetDef, SetName, Statement, keyword};

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its family.
    pub family: Family,
    /// Its chains.
    pub chains: BTreeMap<String, Chain>,
    /// Its sets and their elements.
    pub elements: BTreeMap<SetName, BTreeMap<Key, Element>>,
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
        ActualTable {
            note: self.note.clone(),
            chains: chains.collect(),
            sets: sets.collect(),
            ..ActualTable::default()
        }
    }

    /// What was read back. Rule bodies are not, so a chain has rules only where their fingerprints are
    /// those of the rules this version writes under the settings that the table's comment tells.
    pub fn from_actual(family: Family, actual: &ActualTable) -> Self {
        let note = actual.note.clone().unwrap_or_default();
        let config = &PlanConfig::from_note(&note).unwrap_or_default();
        let mut unknown = BTreeSet::new();
        let known = |name: &str| {
            let shape = name.strip_prefix(SHAPE).and_then(|slots| slots.parse().ok());
            let base = || base_table(config).into_iter().find(|chain| chain.name == name);
            shape.map(|slots| shape_chain(family, slots, config)).or_else(base)
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
        let (chains, elements) = (chains.collect(), elements.collect());
        Self { family, chains, elements, note: Some(note), unknown }
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
        for chain in &changes.add_chains {
            if self.chains.insert(chain.name.clone(), chain.clone()).is_some() {
                return refused(format!("chain {} exists", chain.name));
            }
        }
        for chain in &changes.rewrite_chains {
            if self.chains.insert(chain.name.clone(), chain.clone()).is_none() {
                return refused(format!("chain {} does not exist", chain.name));
            }
        }
        for (set, keys) in &changes.delete_elements {
            for key in keys {
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
                    && !self.chains.contains_key(chain)
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
        for name in &changes.delete_chains {
            let goes_there = |element: &Element| element.data == Data::Goto(name.clone());
            if self.elements.values().flat_map(BTreeMap::values).any(goes_there) {
                return refused(format!("chain {name} is in use"));
            }
            if self.chains.remove(name).is_none() {
                return refused(format!("chain {name} does not exist"));
            }
        }
        self.check_references()
    }

    fn check_references(&self) -> Result<(), ApplyError> {
        for statement in self.chains.values().flat_map(|chain| chain.rules.iter().flatten()) {
            let missing = match statement {
                Statement::Jump(chain) | Statement::Goto(chain) => {
                    (!self.chains.contains_key(*chain)).then(|| format!("no chain {chain}"))
                }
                Statement::In(_, set)
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

/// A key as nft writes it.
pub fn show_key(family: Family, set: SetName, key: &Key) -> String {
    let def = sets().into_iter().find(|def| def.name == set);
    def.map(|def| show(family, def.key, key)).unwrap_or_default()
}

fn show(family: Family, fields: &[Field], key: &Key) -> String {
    match decode(family, fields, key) {
        Some(values) => values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" . "),
        None => format!("{key:?}"),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table {} {TABLE} {{", keyword(self.family))?;
        if let Some(note) = &self.note {
            writeln!(f, "\tcomment \"{note}\"")?;
        }
        for def in sets() {
            if let Some(elements) = self.elements.get(&def.name) {
                self.fmt_set(f, &def, elements)?;
            }
        }
        for (i, chain) in self.chains.values().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            writeln!(f, "\tchain {} {{", chain.name)?;
            if let Some(hook) = chain.hook {
                writeln!(f, "\t\t{hook}")?;
            }
            if self.unknown.contains(&chain.name) {
                writeln!(f, "\t\t# rules of other settings or another version")?;
            }
            for rule in &chain.rules {
                writeln!(f, "\t\t{}", InFamily(self.family, rule))?;
            }
            writeln!(f, "\t}}")?;
        }
        writeln!(f, "}}")
    }
}

impl Table {
    fn fmt_set(
        &self,
        f: &mut fmt::Formatter<'_>,
        def: &SetDef,
        elements: &BTreeMap<Key, Element>,
    ) -> fmt::Result {
        let kind = if def.data == SetData::None { "set" } else { "map" };
        writeln!(f, "\t{kind} {} {{", def.name)?;
        write!(f, "\t\ttypeof {}", InFamily(self.family, def.key))?;
        match def.data {
            SetData::None => writeln!(f)?,
            SetData::Verdict => writeln!(f, " : verdict")?,
            SetData::Fields(fields) => writeln!(f, " : {}", InFamily(self.family, fields))?,
        }
        if def.counter {
            writeln!(f, "\t\tcounter")?;
        }
        for (i, element) in elements.values().enumerate() {
            let open = if i == 0 { "\t\telements = { " } else { "\t\t\t     " };
            let close = if i + 1 == elements.len() { " }" } else { "," };
            writeln!(f, "{open}{}{close}", self.show_element(def, element))?;
        }
        writeln!(f, "\t}}\n")
    }

    fn show_element(&self, def: &SetDef, element: &Element) -> String {
        let mut text = show(self.family, def.key, &element.key);
        if let Some(comment) = &element.comment {
            text += &format!(" comment \"{comment}\"");
        }
        match (&element.data, def.data) {
            (Data::Goto(chain), _) => text += &format!(" : goto {chain}"),
            (Data::Value(value), SetData::Fields(fields)) => {
                text += &format!(" : {}", show(self.family, fields, value));
            }
            _ => {}
        }
        text
    }
}
