//! Tables that fail when told to: in memory, or around the kernel's own. For tests only.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zw_model::Family;
use zw_plan::{
    Actual, ActualIpvs, ActualServer, Changes, Element, IpvsChanges, Link, Part, Place, Table,
    TableChanges, WEIGHT,
};

use crate::error::WriteError;
use crate::ipvs::{RefusedReal, Unserved, WhyUnserved};
use crate::kernel::{Committed, ReadBack};
use crate::nft::encode::Encoded;
use crate::writer::Tables;

const EEXIST: i32 = 17;

/// A way for one commit to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Refused with this error number; nothing lands.
    Refused(i32),
    /// The answer is lost. It landed or not.
    Lost {
        /// Whether it did.
        landed: bool,
    },
    /// Somebody else was faster; nothing lands.
    Overtaken,
}

/// What is asked of tables, and how they are to fail.
#[derive(Debug, Default)]
pub struct Script {
    /// The next commits fail like this, in order; those after them do not.
    pub faults: VecDeque<Fault>,
    /// A part of the table that is refused whenever it is written, and the error number.
    pub refused: Option<(Part, i32)>,
    /// How many commits there were.
    pub commits: usize,
    /// How many elements each commit that landed changed.
    pub landed: Vec<usize>,
    /// How often the tables were read as a whole.
    pub reads: usize,
    /// How often elements were looked up.
    pub look_ups: usize,
}

/// Tables that do as others do, but for what a script says.
pub struct Faulty<T> {
    tables: T,
    script: Arc<Mutex<Script>>,
}

impl<T> Faulty<T> {
    /// The script may be changed at any time.
    pub fn new(tables: T, script: Arc<Mutex<Script>>) -> Self {
        Self { tables, script }
    }
}

impl<T: Tables> Tables for Faulty<T> {
    fn read_back(&mut self) -> Result<ReadBack, WriteError> {
        lock(&self.script).reads += 1;
        self.tables.read_back()
    }

    fn is_still(&mut self, read: &ReadBack) -> bool {
        self.tables.is_still(read)
    }

    fn elements(&mut self, at: &[Place]) -> Result<Vec<Option<Element>>, WriteError> {
        lock(&self.script).look_ups += 1;
        self.tables.elements(at)
    }

    fn commit(
        &mut self,
        changes: &Changes,
        generation: Option<u32>,
    ) -> Result<Committed, WriteError> {
        let (fault, refused) = {
            let mut script = lock(&self.script);
            script.commits += 1;
            let refused = script.refused.clone().filter(|(part, _)| writes(changes, part));
            (script.faults.pop_front(), refused)
        };
        let lost = || {
            let source = io::ErrorKind::WouldBlock.into();
            WriteError::Socket(zw_netlink::Error::Socket { action: "find the answer", source })
        };
        match (fault, refused) {
            (Some(Fault::Refused(errno)), _) => return Err(refusal("a fault", None, errno)),
            (Some(Fault::Overtaken), _) => return Err(WriteError::Overtaken),
            (Some(Fault::Lost { landed: false }), _) => return Err(lost()),
            (_, Some((part, errno))) => return Err(refusal("a part", Some(part), errno)),
            _ => {}
        }
        let committed = self.tables.commit(changes, generation)?;
        lock(&self.script).landed.push(changes.element_operations());
        if fault == Some(Fault::Lost { landed: true }) { Err(lost()) } else { Ok(committed) }
    }

    fn commit_encoded(
        &mut self,
        changes: &Changes,
        encoded: Encoded,
    ) -> Result<Committed, WriteError> {
        assert!(Encoded::of(changes) == Some(encoded), "these are others than were encoded");
        self.commit(changes, None)
    }
}

fn refusal(object: &str, part: Option<Part>, errno: i32) -> WriteError {
    let source = io::Error::from_raw_os_error(errno);
    WriteError::Refused { object: object.into(), part, message: None, source }
}

fn writes(changes: &Changes, part: &Part) -> bool {
    let table = |family: &Family| changes.tables.get(family);
    match part {
        Part::Element(family, set, key) => {
            let added = table(family).and_then(|table| table.add_elements.get(set));
            added.is_some_and(|added| added.iter().any(|element| element.key == *key))
        }
        Part::Chain(family, name) => table(family).is_some_and(|table| {
            table.add_chains.iter().chain(&table.rewrite_chains).any(|chain| chain.name == *name)
        }),
        Part::AffinityMap(family, name) => {
            table(family).is_some_and(|table| table.add_affinity_maps.contains(name))
        }
    }
}

/// Tables in memory, and an IPVS in which nobody has connections. Clones are the same tables: one for the
/// writer, one for the test.
#[derive(Clone)]
pub struct Memory {
    state: Arc<Mutex<(Vec<Table>, u32)>>,
    ipvs: Arc<Mutex<ActualIpvs>>,
    refused_addresses: Arc<Mutex<Vec<IpAddr>>>,
    refused_reals: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Default for Memory {
    fn default() -> Self {
        let tables = Family::BOTH.map(Table::absent).to_vec();
        let state = Arc::new(Mutex::new((tables, 1)));
        Self {
            state,
            ipvs: Arc::default(),
            refused_addresses: Arc::default(),
            refused_reals: Arc::default(),
        }
    }
}

impl Memory {
    /// One family's table as it is now.
    pub fn table(&self, family: Family) -> Table {
        let state = lock(&self.state);
        let table = state.0.iter().find(|table| table.family == family);
        table.expect("both families").clone()
    }

    /// Does something to a table that nobody is told of.
    pub fn meddle(&self, family: Family, meddle: impl FnOnce(&mut Table)) {
        let mut state = lock(&self.state);
        state.1 += 1;
        let table = state.0.iter_mut().find(|table| table.family == family);
        meddle(table.expect("both families"));
    }

    /// Does not take this address from now on.
    pub fn refuse_address(&self, addr: IpAddr) {
        lock(&self.refused_addresses).push(addr);
    }

    /// Does not take this endpoint in IPVS from now on.
    pub fn refuse_real(&self, real: SocketAddr) {
        lock(&self.refused_reals).push(real);
    }

    /// IPVS as it is now, to look at or to meddle with.
    pub fn ipvs(&self) -> MutexGuard<'_, ActualIpvs> {
        lock(&self.ipvs)
    }
}

impl Tables for Memory {
    fn read_back(&mut self) -> Result<ReadBack, WriteError> {
        let state = lock(&self.state);
        let there = state.0.iter().filter(|table| table.exists());
        let tables = there.map(|table| (table.family, table.read_back())).collect();
        let ipvs = lock(&self.ipvs).clone();
        Ok(ReadBack { actual: Actual { tables, ipvs }, generation: Some(state.1) })
    }

    fn is_still(&mut self, read: &ReadBack) -> bool {
        read.generation == Some(lock(&self.state).1)
    }

    fn elements(&mut self, at: &[Place]) -> Result<Vec<Option<Element>>, WriteError> {
        let element =
            |(family, set, key): &Place| self.table(*family).elements.get(set)?.get(key).cloned();
        Ok(at.iter().map(element).collect())
    }

    fn commit(
        &mut self,
        changes: &Changes,
        generation: Option<u32>,
    ) -> Result<Committed, WriteError> {
        let mut state = lock(&self.state);
        if generation.is_some_and(|expected| expected != state.1) {
            return Err(WriteError::Overtaken);
        }
        let mut tables = state.0.clone();
        for table in &mut tables {
            let none = TableChanges::default();
            let changes = changes.tables.get(&table.family).unwrap_or(&none);
            table.apply(changes).map_err(|error| refusal(&error.0, None, EEXIST))?;
        }
        *state = (tables, state.1 + 1);
        let refused_addresses = lock(&self.refused_addresses).clone();
        let mut ipvs = lock(&self.ipvs);
        let unserved = take(&mut ipvs, &changes.ipvs);
        ipvs.addresses.retain(|addr| !refused_addresses.contains(addr));
        let refused = lock(&self.refused_reals).clone();
        ipvs.servers.values_mut().for_each(|server| {
            server.reals.retain(|real, _| !refused.contains(real));
        });
        let asked = changes.ipvs.reals.iter().filter(|(_, comes)| **comes).map(|(key, _)| *key);
        let refused_reals = asked
            .filter(|(_, real)| refused.contains(real))
            .map(|(server, real)| RefusedReal { server, real, why: "Invalid argument".into() })
            .collect();
        let requests = changes.ipvs.operations();
        Ok(Committed {
            bytes: 1,
            requests,
            unserved,
            refused_addresses,
            refused_reals,
            ..Committed::default()
        })
    }
}

/// Changes to IPVS; says which virtual servers have no place.
fn take(ipvs: &mut ActualIpvs, changes: &IpvsChanges) -> Vec<Unserved> {
    let mut unserved = Vec::new();
    if let Some(there) = changes.link {
        ipvs.link = if there { Link::Up } else { Link::Missing };
    }
    for (key, settings) in &changes.servers {
        match settings {
            Some(_) if ipvs.foreign.contains(key) => {
                unserved.push(Unserved { server: *key, why: WhyUnserved::Foreign });
            }
            Some(settings) => {
                let reals = ipvs.servers.remove(key).map(|is| is.reals).unwrap_or_default();
                let is = ActualServer { settings: Some(settings.clone()), reals };
                ipvs.servers.insert(*key, is);
            }
            None => drop(ipvs.servers.remove(key)),
        }
    }
    for ((key, real), comes) in &changes.reals {
        if let Some(server) = ipvs.servers.get_mut(key) {
            match comes {
                true => server.reals.insert(*real, Some(WEIGHT)),
                false => server.reals.remove(real),
            };
        }
    }
    for (addr, comes) in &changes.addresses {
        match comes {
            true => ipvs.addresses.insert(*addr),
            false => ipvs.addresses.remove(addr),
        };
    }
    unserved
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
