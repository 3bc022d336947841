//! The kernel's side of the table: read it back, change it, remove it. Blocking; see
//! [`crate::Writer`] for the thread it runs on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::thread;
use std::time::Duration;

use zw_model::Family;
use zw_netlink::Error;
use zw_netlink::nft::{Batch, DumpedElement, ElementData, SetInfo, Socket, TableInfo};
use zw_plan::{
    AFFINITY, Actual, ActualTable, Changes, Data, Element, Key, PlanConfig, SetName, TABLE,
    base_table, sets,
};

use crate::error::WriteError;
use crate::nft::encode::{
    affinity_spec, before, chain_spec, describe, encode, encode_sweep, set_spec,
};
use crate::nft::family as netlink_family;

/// How often a read that was torn by somebody's change is begun again.
const READ_ATTEMPTS: u32 = 10;

/// How many of these want the whole ruleset to rest meanwhile, and not our table alone.
const STRICT_ATTEMPTS: u32 = 3;

/// After a large insert the kernel rearranges a map in the background, and reading it meanwhile is
/// torn without end: the first pause before the next attempt, doubling.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// How often clients of an endpoint that is gone are looked for.
const FORGET_ATTEMPTS: u32 = 3;

const ENOENT: i32 = 2;

/// What a kernel without nf_tables answers.
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// A connection to nf_tables in the network namespace it was opened in.
pub struct Kernel {
    socket: Socket,
}

/// The tables at one generation of the ruleset.
#[derive(Debug)]
pub struct ReadBack {
    /// What is there.
    pub actual: Actual,
    /// The ruleset's generation; a commit that expects it fails if anybody was faster. `None`: others
    /// change theirs so often that no two moments had the same. Then the commit relies on the kernel to
    /// refuse elements that are not as they were read.
    pub generation: Option<u32>,
}

/// What a commit sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Committed {
    /// Netlink bytes; 0 if there was nothing to do.
    pub bytes: usize,
}

impl Kernel {
    /// Connects, in the calling thread's network namespace.
    pub fn open() -> Result<Self, WriteError> {
        let mut socket = Socket::open().map_err(|error| reading("a netlink socket", error))?;
        match socket.generation() {
            Err(Error::Refused { errno: EINVAL | EOPNOTSUPP, .. }) => Err(WriteError::NoNfTables),
            Err(error) => Err(reading("nf_tables", error)),
            Ok(_) => Ok(Self { socket }),
        }
    }

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

    /// Applies changes, all or nothing. `generation`: only if the ruleset is still that one. A change
    /// computed from a full read needs it; a small one need not, because the elements it names refuse
    /// it if they are not as we thought, and other tables' changes also raise the generation.
    pub fn commit(
        &mut self,
        changes: &Changes,
        generation: Option<u32>,
    ) -> Result<Committed, WriteError> {
        if changes.is_empty() {
            return Ok(Committed::default());
        }
        let mut batch = encode(changes);
        self.forget(changes, &mut batch);
        if let Some(generation) = generation {
            batch.expect_generation(generation);
        }
        let mut outcome = self.socket.commit(&mut batch);
        if forgets(changes) && matches!(outcome, Err(Error::Refused { errno: ENOENT, .. })) {
            // A client was forgotten by the kernel itself meanwhile. The rest must not wait for that.
            let mut batch = encode(changes);
            if let Some(generation) = generation {
                batch.expect_generation(generation);
            }
            outcome = self.socket.commit(&mut batch);
        }
        match outcome {
            Ok(committed) => {
                self.forget_latecomers(changes);
                self.sweep(changes);
                Ok(Committed { bytes: committed.bytes })
            }
            Err(Error::StaleGeneration) => Err(WriteError::Overtaken),
            Err(Error::Refused { op, errno, message }) => Err(WriteError::Refused {
                object: op.map_or_else(|| "the transaction".into(), |op| describe(changes, op)),
                message,
                source: io::Error::from_raw_os_error(errno),
            }),
            Err(error) => Err(WriteError::Socket(error)),
        }
    }

    /// Adds to a batch that clients of endpoints that are gone are forgotten.
    fn forget(&mut self, changes: &Changes, batch: &mut Batch) -> usize {
        let mut forgotten = 0;
        for (family, table) in &changes.tables {
            for (map, stay) in &table.forget_others {
                let clients = self.clients(*family, map).unwrap_or_default();
                for (client, _) in clients.iter().filter(|(_, with)| !stay.contains(with)) {
                    let family = netlink_family(*family);
                    batch.delete_element(family, TABLE, map, client.as_bytes());
                    forgotten += 1;
                }
            }
        }
        forgotten
    }

    /// Clients that were given an endpoint while it was being removed. Tried a few times: one of them
    /// may go by itself just then.
    fn forget_latecomers(&mut self, changes: &Changes) {
        for _ in 0..FORGET_ATTEMPTS {
            let mut batch = Batch::new();
            if self.forget(changes, &mut batch) == 0 || self.socket.commit(&mut batch).is_ok() {
                return;
            }
        }
        tracing::warn!("some clients are still remembered for an endpoint that is gone");
    }

    fn clients(&mut self, family: Family, map: &str) -> Result<HashMap<Key, Key>, WriteError> {
        retrying("the clients of a sticky Service", || self.read_clients(family, map))
    }

    fn read_clients(&mut self, family: Family, map: &str) -> Result<HashMap<Key, Key>, Error> {
        let mut clients = HashMap::new();
        self.socket.elements(netlink_family(family), TABLE, map, &mut |element| {
            if let (Some(client), Some(ElementData::Value(with))) =
                (Key::from_bytes(element.key), element.data)
                && let Some(with) = Key::from_bytes(with)
            {
                clients.insert(client, with);
            }
        })?;
        Ok(clients)
    }

    /// Deletes what nothing refers to any more. If the kernel is not ready for it, the next full sync
    /// finds and deletes it; packets cannot tell.
    fn sweep(&mut self, changes: &Changes) {
        if let Err(error) = self.socket.commit(&mut encode_sweep(changes)) {
            tracing::debug!(error = &error as &dyn std::error::Error, "unused chains stay for now");
        }
    }

    /// Removes our tables; says which were there.
    pub fn remove(&mut self) -> Result<Vec<Family>, WriteError> {
        let present = self.present()?;
        let mut batch = Batch::new();
        for family in &present {
            batch.delete_table(netlink_family(*family), TABLE);
        }
        self.socket.commit(&mut batch).map_err(|error| reading("the table zoneward", error))?;
        Ok(present)
    }

    /// The families in which our table exists.
    pub fn present(&mut self) -> Result<Vec<Family>, WriteError> {
        let tables = self.socket.tables().map_err(|error| reading("the list of tables", error))?;
        let ours = |family: &Family| find_ours(&tables, *family).is_some();
        Ok(Family::BOTH.into_iter().filter(ours).collect())
    }

    /// The ruleset's generation.
    pub fn generation(&mut self) -> Result<u32, WriteError> {
        self.socket.generation().map_err(|error| reading("the ruleset's generation", error))
    }

    /// How many connections each Service port has had, by its key in the set: [`SetName::Connections`]
    /// or [`SetName::NodePortConnections`].
    pub fn connections(
        &mut self,
        family: Family,
        set: SetName,
    ) -> Result<HashMap<Key, u64>, WriteError> {
        self.count_connections(family, set, |counts: &mut HashMap<_, _>, element, count| {
            counts.extend(Key::from_bytes(element.key).map(|key| (key, count)));
        })
    }

    /// The same by the names that stand beside the keys, `namespace/name:port`.
    pub fn named_connections(
        &mut self,
        family: Family,
    ) -> Result<BTreeMap<String, u64>, WriteError> {
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        for set in [SetName::Connections, SetName::NodePortConnections] {
            let of_set = self.count_connections(
                family,
                set,
                |counts: &mut BTreeMap<String, u64>, element, count| {
                    if let Some(name) = element.comment {
                        *counts.entry(name.to_owned()).or_default() += count;
                    }
                },
            )?;
            for (name, count) in of_set {
                *all.entry(name).or_default() += count;
            }
        }
        Ok(all)
    }

    fn count_connections<T: Default>(
        &mut self,
        family: Family,
        set: SetName,
        take: impl Fn(&mut T, &DumpedElement<'_>, u64),
    ) -> Result<T, WriteError> {
        let set = set.as_str();
        retrying("the connection counters", || {
            let mut counts = T::default();
            self.socket.elements(netlink_family(family), TABLE, set, &mut |element| {
                if let Some((packets, _)) = element.counter {
                    take(&mut counts, &element, packets);
                }
            })?;
            Ok(counts)
        })
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
        let mut table = ActualTable::default();
        self.read_chains(family, &mut table)?;
        let present = self.socket.sets(netlink_family(family), TABLE)?;
        let mut known = Vec::new();
        for info in present {
            match sets().find(|def| def.name.as_str() == info.name) {
                None if info.name.starts_with(AFFINITY)
                    && same_set(&info, &affinity_spec(family, &info.name)) =>
                {
                    let clients = self.read_clients(family, &info.name)?;
                    table.affinity_maps.insert(info.name, clients);
                }
                // One of another type still has the name that is needed.
                None if info.name.starts_with(AFFINITY) => table.incompatible = true,
                None => table.unknown_sets.push(info.name),
                Some(def) => {
                    table.incompatible |= !same_set(&info, &set_spec(family, &def));
                    known.push(def.name);
                }
            }
        }
        // Elements of a table that is replaced as a whole are of no interest.
        if !table.incompatible {
            for name in known {
                match self.read_elements(family, name)? {
                    Some(elements) => drop(table.sets.insert(name, elements)),
                    None => table.incompatible = true,
                }
            }
        }
        Ok(table)
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
    fn read_elements(
        &mut self,
        family: Family,
        set: SetName,
    ) -> Result<Option<HashMap<Key, Element>>, Error> {
        let mut elements = HashMap::new();
        let mut odd = false;
        // Where a set has single ranges, their ends are elements too.
        let mut ends: BTreeSet<Key> = BTreeSet::new();
        let single_ranges = set.def().ranges && set.def().key.len() == 1;
        let mut take = |dumped: DumpedElement<'_>| {
            let Some(key) = Key::from_bytes(dumped.key).filter(|_| !dumped.key.is_empty()) else {
                odd = true;
                return;
            };
            if dumped.interval_end {
                ends.insert(key);
                return;
            }
            let data = match dumped.data {
                None if dumped.key_end.is_some() => {
                    dumped.key_end.and_then(Key::from_bytes).map_or(Data::Foreign, Data::UpTo)
                }
                None => Data::Nothing,
                Some(ElementData::Goto(chain)) => Data::Goto(chain.into()),
                Some(ElementData::Value(bytes)) => {
                    Key::from_bytes(bytes).map_or(Data::Foreign, Data::Value)
                }
                Some(_) => Data::Foreign,
            };
            elements.insert(key, Element { key, data, comment: dumped.comment.map(Into::into) });
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

fn find_ours(tables: &[TableInfo], family: Family) -> Option<&TableInfo> {
    let family = Some(netlink_family(family));
    tables.iter().find(|table| table.family == family && table.name == TABLE)
}

/// The last address there is.
fn last(family: Family) -> Key {
    Key::new().addr(match family {
        Family::V4 => std::net::Ipv4Addr::BROADCAST.into(),
        Family::V6 => std::net::Ipv6Addr::from_bits(u128::MAX).into(),
    })
}

fn forgets(changes: &Changes) -> bool {
    changes.tables.values().any(|table| !table.forget_others.is_empty())
}

/// Reads again what was torn by somebody's change, or went away while it was read.
fn retrying<T>(what: &str, mut read: impl FnMut() -> Result<T, Error>) -> Result<T, WriteError> {
    let mut attempt = 0;
    loop {
        match read() {
            Err(Error::Interrupted | Error::Refused { errno: ENOENT, .. })
                if attempt + 1 < READ_ATTEMPTS =>
            {
                thread::sleep(FIRST_PAUSE * 2u32.pow(attempt));
                attempt += 1;
            }
            outcome => return outcome.map_err(|error| reading(what, error)),
        }
    }
}

fn same_set(info: &SetInfo, spec: &zw_netlink::nft::SetSpec) -> bool {
    info.flags == spec.flags()
        && info.key_len == spec.key_len()
        && info.counter == spec.counter
        && info.userdata == spec.userdata()
}

pub(crate) fn reading(what: &str, error: Error) -> WriteError {
    match error {
        Error::Refused { errno, message, .. } => WriteError::Refused {
            object: format!("access to {what}"),
            message,
            source: io::Error::from_raw_os_error(errno),
        },
        error => WriteError::Socket(error),
    }
}
