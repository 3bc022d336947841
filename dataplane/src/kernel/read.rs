//! The table as it is in the kernel, read as [`zw_plan::Actual`] has it: names, fingerprints and
//! elements, never rule bodies.

use std::collections::{BTreeSet, HashMap};

use zw_model::Family;
use zw_netlink::Error;
use zw_netlink::nft::{DumpedElement, SetInfo};
use zw_plan::{
    AFFINITY, Actual, ActualTable, Data, Element, Key, PlanConfig, SetDef, SetName, TABLE,
    base_table, sets,
};

use super::{Kernel, ReadBack, find_ours, retrying};
use crate::error::WriteError;
use crate::nft::decode;
use crate::nft::encode::{affinity_spec, before, chain_spec, set_spec};
use crate::nft::family as netlink_family;

/// How many attempts to read want the whole ruleset to rest meanwhile, and not our table alone.
const STRICT_ATTEMPTS: u32 = 3;

/// A table without its elements, and its sets that are ours.
pub(super) struct Names {
    pub(super) table: ActualTable,
    pub(super) known: Vec<SetName>,
}

impl Kernel {
    /// Reads our tables: names, fingerprints and elements, all of one generation.
    pub fn read_back(&mut self) -> Result<ReadBack, WriteError> {
        let mut attempts = 0;
        let read = retrying("the table zoneward", || {
            attempts += 1;
            self.socket.tolerate_changes(attempts > STRICT_ATTEMPTS);
            self.try_read_back(attempts > STRICT_ATTEMPTS)
        });
        self.socket.tolerate_changes(false);
        read
    }

    fn try_read_back(&mut self, tolerant: bool) -> Result<ReadBack, Error> {
        let generation = self.socket.generation()?;
        let tables = self.socket.tables()?;
        let mut actual = Actual::default();
        for family in Family::BOTH {
            if let Some(info) = find_ours(&tables, family) {
                let note = info.comment.clone();
                let mut table = ActualTable { note, ..self.read_table(family)? };
                // A dormant one looks right and does nothing.
                table.incompatible |= info.flags != 0;
                actual.tables.insert(family, table);
            }
        }
        let unchanged = self.socket.generation()? == generation;
        if !unchanged && !tolerant {
            return Err(Error::Interrupted);
        }
        Ok(ReadBack { actual, generation: unchanged.then_some(generation) })
    }

    fn read_table(&mut self, family: Family) -> Result<ActualTable, Error> {
        let Names { mut table, known } = self.read_names(family)?;
        for (map, clients) in &mut table.affinity_maps {
            *clients = self.read_clients(family, map)?;
        }
        // Elements of a table that is replaced as a whole are of no interest.
        if !table.incompatible {
            for name in known {
                if name.def().counts {
                    table.sets.insert(name, HashMap::new());
                    continue;
                }
                match self.read_elements(family, name)? {
                    Some(elements) => drop(table.sets.insert(name, elements)),
                    None => table.incompatible = true,
                }
            }
        }
        Ok(table)
    }

    /// Everything but elements.
    pub(super) fn read_names(&mut self, family: Family) -> Result<Names, Error> {
        let mut table = ActualTable::default();
        self.read_chains(family, &mut table)?;
        let present = self.socket.sets(netlink_family(family), TABLE)?;
        let mut known = Vec::new();
        for info in present {
            match sets().find(|def| def.name.as_str() == info.name) {
                None if info.name.starts_with(AFFINITY)
                    && same_set(&info, &affinity_spec(family, &info.name)) =>
                {
                    table.affinity_maps.insert(info.name, HashMap::new());
                }
                // One of another type still has the name that is needed.
                None if info.name.starts_with(AFFINITY) => table.incompatible = true,
                None => table.unknown_sets.push(info.name),
                Some(def) => {
                    // Whether it was told a size depends on the kernel.
                    let told = info.size.filter(|_| def.size.is_none());
                    if told.is_some() {
                        self.resizes.get_or_insert(true);
                    }
                    let def = SetDef { size: def.size.or(told), ..def };
                    table.incompatible |= !same_set(&info, &set_spec(family, &def));
                    known.push(def.name);
                }
            }
        }
        Ok(Names { table, known })
    }

    fn read_chains(&mut self, family: Family, table: &mut ActualTable) -> Result<(), Error> {
        let base = base_table(family, &PlanConfig::default(), false);
        let mut rules = self.socket.rules(netlink_family(family), TABLE)?;
        for info in self.socket.chains(netlink_family(family), TABLE)? {
            // A chain that is no base chain of ours must not have a hook, and the other way round.
            let want = base.iter().find(|chain| chain.name == info.name);
            let hook = want.and_then(|chain| chain_spec(chain).hook);
            // A policy that drops is no way of ours, and cannot be seen in any rule.
            table.incompatible |= hook != info.hook || info.drops;
            let fingerprints = rules.remove(&info.name).unwrap_or_default();
            table.chains.insert(info.name, fingerprints);
        }
        Ok(())
    }

    /// `None`: something is in it that cannot be told apart by a key, such as a catch-all element.
    pub(super) fn read_elements(
        &mut self,
        family: Family,
        set: SetName,
    ) -> Result<Option<HashMap<Key, Element>>, Error> {
        let mut elements = HashMap::new();
        let mut odd = false;
        // Where a set has single ranges, their ends are elements too.
        let mut ends: BTreeSet<Key> = BTreeSet::new();
        let single_ranges = set.def().ranges && set.def().key.len() == 1;
        let mut take = |dumped: DumpedElement<'_>| match decode::element(&dumped) {
            None => odd = true,
            Some(end) if dumped.interval_end => drop(ends.insert(end.key)),
            Some(element) => drop(elements.insert(element.key, element)),
        };
        self.socket.elements(netlink_family(family), TABLE, set.as_str(), &mut take)?;
        if single_ranges {
            for element in elements.values_mut() {
                element.data = match ends.range(element.key..).next() {
                    Some(end) => before(end).map_or(Data::Foreign, Data::UpTo),
                    None => Data::UpTo(last(family)),
                };
            }
        }
        Ok((!odd).then_some(elements))
    }
}

/// The last address there is.
fn last(family: Family) -> Key {
    Key::new().addr(match family {
        Family::V4 => std::net::Ipv4Addr::BROADCAST.into(),
        Family::V6 => std::net::Ipv6Addr::from_bits(u128::MAX).into(),
    })
}

fn same_set(info: &SetInfo, spec: &zw_netlink::nft::SetSpec) -> bool {
    info.flags == spec.flags()
        && info.key_len == spec.key_len()
        && info.counter == spec.counter
        && info.userdata == spec.userdata()
}
