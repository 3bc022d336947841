//! From whatever the kernel holds to what it should hold, in one transaction: nothing when they are
//! equal, the smallest set of changes when they are not, leftovers of a predecessor included.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;

use zw_model::{Family, Protocol};

use crate::changes::{Changes, TableChanges};
use crate::desired::Desired;
use crate::element::{Data, Element, Key, Value, decode};
use crate::frontend::{At, Frontend, Space};
use crate::ipvs::{ActualIpvs, ActualServer, VirtualKey, bring_servers_to};
use crate::ruleset::Field;
use crate::service::Slots;
use crate::sets::{ENDPOINT, SetName};
use crate::shape::Shape;

/// What the kernel holds.
#[derive(Debug, Default)]
pub struct Actual {
    /// Only families whose table exists.
    pub tables: BTreeMap<Family, ActualTable>,
    /// What of IPVS there is.
    pub ipvs: ActualIpvs,
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
    /// The affinity maps that are there: which client is with which endpoint.
    pub affinity_maps: BTreeMap<String, HashMap<Key, Key>>,
    /// Sets of another version.
    pub unknown_sets: Vec<String>,
    /// The chains that are there.
    pub chains: BTreeMap<String, ActualChain>,
}

/// A chain as read back: what each of its rules has for a fingerprint, in order.
pub type ActualChain = Vec<Option<String>>;

impl Actual {
    /// Who holds which slot, for every frontend: the memory that makes a restart move nobody.
    pub fn slots(&self) -> HashMap<Frontend, Slots> {
        let mut slots: HashMap<Frontend, Slots> = HashMap::new();
        for space in Space::BOTH {
            for (frontend, held) in self.numbered(space, space.endpoints()) {
                slots.entry(frontend).or_default().all = held;
            }
            for (frontend, held) in self.numbered(space, space.local_endpoints()) {
                slots.entry(frontend).or_default().local = held;
            }
        }
        // What the table redirects in the ipvs mode are shortcuts past the policy that IPVS keeps.
        let bound: HashSet<Frontend> = slots.keys().copied().collect();
        for (key, server) in &self.ipvs.servers {
            let reals = server.reals.iter().filter(|(_, weight)| **weight != Some(0));
            let reals = reals.map(|(real, _)| *real).collect();
            let frontend = self.frontend_of(key);
            let held = slots.entry(frontend).or_default();
            *(if bound.contains(&frontend) { &mut held.local } else { &mut held.all }) = reals;
        }
        slots
    }

    /// Our virtual servers by what clients connect to; of a node port's one.
    pub fn servers_by_frontend(&self) -> HashMap<Frontend, &ActualServer> {
        let servers = self.ipvs.servers.iter();
        servers.map(|(key, server)| (self.frontend_of(key), server)).collect()
    }

    /// What clients of a virtual server connect to: a Service's address, else a node port.
    pub fn frontend_of(&self, key: &VirtualKey) -> Frontend {
        let frontend = Frontend::new(key.addr, key.protocol, key.port);
        let services = self.tables.get(&frontend.family()).and_then(|table| {
            table.sets.get(&SetName::Services).filter(|set| !set.contains_key(&frontend.key()))
        });
        match services {
            Some(_) => Frontend::node_port(frontend.family(), key.protocol, key.port),
            None => frontend,
        }
    }

    fn numbered(&self, space: Space, set: SetName) -> HashMap<Frontend, Vec<SocketAddr>> {
        let mut numbered: HashMap<Frontend, Vec<(u32, SocketAddr)>> = HashMap::new();
        for (family, table) in &self.tables {
            for element in table.sets.get(&set).into_iter().flat_map(HashMap::values) {
                if let Some((frontend, slot, backend)) = decode_endpoint(*family, space, element) {
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

/// An element of a map of endpoints: frontend, slot, endpoint.
fn decode_endpoint(
    family: Family,
    space: Space,
    element: &Element,
) -> Option<(Frontend, u32, SocketAddr)> {
    let frontend = decode_in(family, space, &element.key)?;
    let key = [space.key(), &[Field::Pick(0)]].concat();
    let slot = match decode(family, &key, &element.key)?.last()? {
        Value::Slot(slot) => *slot,
        _ => return None,
    };
    let Data::Value(data) = &element.data else { return None };
    match decode(family, ENDPOINT, data)?.as_slice() {
        [Value::Addr(addr), Value::Port(port)] => {
            Some((frontend, slot, SocketAddr::new(*addr, *port)))
        }
        _ => None,
    }
}

/// The frontend that an element of this set is about, if it is about one.
pub fn decode_frontend(family: Family, set: SetName, key: &Key) -> Option<Frontend> {
    let node_port = set.def().key.first() == Some(&Field::Protocol);
    decode_in(family, if node_port { Space::NodePort } else { Space::Address }, key)
}

/// The frontend and the slot that an element of a map of endpoints is about.
pub(crate) fn decode_slot(family: Family, set: SetName, key: &Key) -> Option<(Frontend, u32)> {
    let frontend = decode_frontend(family, set, key)?;
    match decode(family, set.def().key, key)?.last()? {
        Value::Slot(slot) => Some((frontend, *slot)),
        _ => None,
    }
}

fn decode_in(family: Family, space: Space, key: &Key) -> Option<Frontend> {
    let (at, protocol, port) = match decode(family, space.key(), key)?.as_slice() {
        [Value::Addr(addr), Value::Protocol(protocol), Value::Port(port)] => {
            (At::Address(*addr), *protocol, *port)
        }
        [Value::Protocol(protocol), Value::Port(port)] => (At::Node(family), *protocol, *port),
        _ => return None,
    };
    Some(Frontend { at, protocol: Protocol::from_number(protocol)?, port })
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
    changes.ipvs = bring_servers_to(desired, &actual.ipvs);
    changes
}

/// A table that is not there.
pub(crate) fn make(desired: &Desired, family: Family) -> TableChanges {
    TableChanges {
        add_table: Some(desired.note(family)),
        ..adjust(desired, family, &ActualTable::default())
    }
}

fn adjust(desired: &Desired, family: Family, actual: &ActualTable) -> TableChanges {
    let mut changes = TableChanges {
        add_sets: desired.sets(family).filter(|set| !actual.sets.contains_key(&set.name)).collect(),
        delete_sets: actual.unknown_sets.clone(),
        ..TableChanges::default()
    };

    let maps = desired.affinity_maps(family);
    let (there, leftover): (Vec<_>, Vec<_>) =
        actual.affinity_maps.keys().partition(|map| maps.contains(*map));
    changes.add_affinity_maps = maps.iter().filter(|map| !there.contains(map)).cloned().collect();
    changes.delete_sets.extend(leftover.into_iter().cloned());
    for (map, endpoints) in desired.remembered(family) {
        let mut clients = actual.affinity_maps.get(&map).into_iter().flat_map(HashMap::values);
        let stay: HashSet<&Key> = endpoints.iter().collect();
        if clients.any(|endpoint| !stay.contains(endpoint)) {
            changes.forget_others.insert(map, endpoints);
        }
    }

    let mut leftover_chains = actual.chains.clone();
    for chain in desired.chains(family) {
        let want: ActualChain = chain.fingerprints(family).into_iter().map(Some).collect();
        match leftover_chains.remove(&chain.name) {
            None => changes.add_chains.push(chain),
            Some(is) if is == want => {}
            Some(_) => changes.rewrite_chains.push(chain),
        }
    }
    // What hands packets on goes before what it hands them to: chains of a shape before those that a table
    // always has, and among themselves as names sort.
    changes.delete_chains = leftover_chains.into_keys().rev().collect();
    changes.delete_chains.sort_by_key(|name| Shape::parse(name).is_none());

    let mut matched = 0usize;
    desired.elements(family, &mut |set, element| match actual
        .sets
        .get(&set)
        .and_then(|elements| elements.get(&element.key))
    {
        Some(is) if *is == element => matched += 1,
        Some(is) => {
            matched += 1;
            changes.delete(set, is.clone());
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
        for element in keys.iter().filter_map(|key| actual.sets.get(&set)?.get(key)) {
            changes.delete(set, element.clone());
        }
    }
}
