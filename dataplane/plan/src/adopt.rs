//! From whatever the kernel holds to what it should hold, in one transaction: nothing when they are
//! equal, the smallest set of changes when they are not, leftovers of a predecessor included.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;

use zw_model::{Family, Protocol};

use crate::base::sets;
use crate::changes::{Changes, TableChanges};
use crate::desired::Desired;
use crate::element::{Data, Element, Key, Value, decode};
use crate::ruleset::{FRONTEND, Field, SetName};
use crate::service::Frontend;

/// What the kernel holds.
#[derive(Debug, Default)]
pub struct Actual {
    /// Only families whose table exists.
    pub tables: BTreeMap<Family, ActualTable>,
}

/// One family's table as read back: names, elements and fingerprints, never rule bodies.
#[derive(Debug, Default)]
pub struct ActualTable {
    /// Something in it cannot be changed in place, such as a set of another type or a base chain at
    /// another hook: the table is replaced as a whole.
    pub incompatible: bool,
    /// The table's comment, which holds [`crate::PlanConfig::note`].
    pub note: Option<String>,
    /// The sets that are there, with their elements.
    pub sets: BTreeMap<SetName, HashMap<Key, Element>>,
    /// Sets of another version.
    pub unknown_sets: Vec<String>,
    /// The chains that are there.
    pub chains: BTreeMap<String, ActualChain>,
}

/// A chain as read back: what each of its rules has for a fingerprint, in order.
pub type ActualChain = Vec<Option<String>>;

impl Actual {
    /// Who holds which slot, for every frontend: the memory that makes a restart move nobody.
    pub fn slots(&self) -> HashMap<Frontend, Vec<SocketAddr>> {
        let mut numbered: HashMap<Frontend, Vec<(u32, SocketAddr)>> = HashMap::new();
        for (family, table) in &self.tables {
            for element in table.sets.get(&SetName::Endpoints).into_iter().flat_map(HashMap::values)
            {
                if let Some((frontend, slot, backend)) = decode_endpoint(*family, element) {
                    numbered.entry(frontend).or_default().push((slot, backend));
                }
            }
        }
        let in_order = |mut slots: Vec<(u32, SocketAddr)>| {
            slots.sort_unstable();
            slots.into_iter().map(|(_, backend)| backend).collect()
        };
        numbered.into_iter().map(|(frontend, slots)| (frontend, in_order(slots))).collect()
    }
}

/// An element of the `endpoints` map: frontend, slot, endpoint.
fn decode_endpoint(family: Family, element: &Element) -> Option<(Frontend, u32, SocketAddr)> {
    let frontend = decode_frontend(family, &element.key)?;
    let key = [FRONTEND, &[Field::Pick(0)]].concat();
    let slot = match decode(family, &key, &element.key)?.last()? {
        Value::Slot(slot) => *slot,
        _ => return None,
    };
    let Data::Value(data) = &element.data else { return None };
    match decode(family, &[Field::Daddr, Field::Dport], data)?.as_slice() {
        [Value::Addr(addr), Value::Port(port)] => {
            Some((frontend, slot, SocketAddr::new(*addr, *port)))
        }
        _ => None,
    }
}

/// The frontend a key begins with.
pub fn decode_frontend(family: Family, key: &Key) -> Option<Frontend> {
    match decode(family, FRONTEND, key)?.as_slice() {
        [Value::Addr(addr), Value::Protocol(protocol), Value::Port(port)] => {
            let protocol = Protocol::from_number(*protocol)?;
            Some(Frontend { addr: *addr, protocol, port: *port })
        }
        _ => None,
    }
}

/// The changes that bring the kernel to `desired`.
pub fn bring_to(desired: &Desired, actual: &Actual) -> Changes {
    let mut changes = Changes::default();
    for family in Family::BOTH {
        let table = match actual.tables.get(&family) {
            None => make(desired, family),
            Some(table)
                if table.incompatible || table.note.as_ref() != Some(&desired.note(family)) =>
            {
                TableChanges { delete_table: true, ..make(desired, family) }
            }
            Some(table) => adjust(desired, family, table),
        };
        if table != TableChanges::default() {
            changes.tables.insert(family, table);
        }
    }
    changes
}

fn make(desired: &Desired, family: Family) -> TableChanges {
    TableChanges {
        add_table: Some(desired.note(family)),
        ..adjust(desired, family, &ActualTable::default())
    }
}

fn adjust(desired: &Desired, family: Family, actual: &ActualTable) -> TableChanges {
    let mut changes = TableChanges {
        add_sets: sets().into_iter().filter(|set| !actual.sets.contains_key(&set.name)).collect(),
        delete_sets: actual.unknown_sets.clone(),
        ..TableChanges::default()
    };

    let mut leftover_chains = actual.chains.clone();
    for chain in desired.chains(family) {
        let want: ActualChain = chain.fingerprints(family).into_iter().map(Some).collect();
        match leftover_chains.remove(&chain.name) {
            None => changes.add_chains.push(chain),
            Some(is) if is == want => {}
            Some(_) => changes.rewrite_chains.push(chain),
        }
    }
    changes.delete_chains = leftover_chains.into_keys().collect();

    let mut matched = 0usize;
    desired.elements(family, &mut |set, element| match actual
        .sets
        .get(&set)
        .and_then(|elements| elements.get(&element.key))
    {
        Some(is) if *is == element => matched += 1,
        Some(_) => {
            matched += 1;
            changes.delete(set, element.key);
            changes.add(set, element);
        }
        None => changes.add(set, element),
    });
    if matched < actual.sets.values().map(HashMap::len).sum::<usize>() {
        delete_leftovers(desired, family, actual, &mut changes);
    }
    changes
}

/// Elements that nothing wants. A second pass, so that the usual start, which finds none, need not
/// keep track of every key it has seen.
fn delete_leftovers(
    desired: &Desired,
    family: Family,
    actual: &ActualTable,
    changes: &mut TableChanges,
) {
    let mut leftovers: BTreeMap<SetName, BTreeSet<Key>> = actual
        .sets
        .iter()
        .map(|(set, elements)| (*set, elements.keys().copied().collect()))
        .collect();
    desired.elements(family, &mut |set, element| {
        if let Some(keys) = leftovers.get_mut(&set) {
            keys.remove(&element.key);
        }
    });
    for (set, keys) in leftovers {
        for key in keys {
            changes.delete(set, key);
        }
    }
}
