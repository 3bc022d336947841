//! The kernel's side of the table: read it back, change it, remove it. Blocking; see
//! [`crate::Writer`] for the thread it runs on.

mod clients;
mod connections;
mod digest;
mod kube_proxy;
mod read;
mod sizes;

use std::io;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use zw_model::Family;
use zw_netlink::Error;
use zw_netlink::nft::{Batch, Monitor, Socket, Subscription, TableInfo};
use zw_plan::{Actual, Changes, Data, Element, Place, TABLE};

use crate::error::WriteError;
use crate::ipvs::{RefusedReal, Unserved};
use crate::nft::decode;
use crate::nft::encode::{Encoded, describe, encode, encode_sweep, makes_sets};
use crate::nft::family as netlink_family;
use crate::writer::Tables;
pub use kube_proxy::KubeProxyLeftovers;

/// How often a read that was torn by somebody's change is begun again.
const READ_ATTEMPTS: u32 = 10;

/// After a large insert the kernel rearranges a map in the background, and reading it meanwhile is
/// torn without end: the first pause before the next attempt, doubling.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// Transactions of this many elements are worth ending the watch for their time: being watched costs
/// the kernel a few microseconds and a page for each.
const LARGE: usize = 4096;

const ENOENT: i32 = 2;

/// What a set answers that has as many elements as its size allows.
const ENFILE: i32 = 23;

/// What a kernel without nf_tables answers.
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// A connection to nf_tables in the network namespace it was opened in.
pub struct Kernel {
    socket: Socket,
    /// How many transactions it has committed.
    commits: u32,
    /// The watch that is paused for large transactions.
    watched: Option<Subscription>,
    /// Whether the kernel lets sets have another size than they were made with, once that is known.
    resizes: Option<bool>,
    /// See [`Committed::overlooked`]: since the last commit that landed.
    overlooked: bool,
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Committed {
    /// Netlink bytes; 0 if there was nothing to do.
    pub bytes: usize,
    /// Somebody else committed something, to whatever table, while the watch was paused.
    pub overlooked: bool,
    /// Clients of endpoints that are gone could not be forgotten: to be committed again, later.
    pub left: Changes,
    /// How many changes to IPVS and its interface the kernel was asked for.
    pub requests: usize,
    /// Virtual servers that the kernel did not take.
    pub unserved: Vec<Unserved>,
    /// Services' addresses that the kernel did not take.
    pub refused_addresses: Vec<IpAddr>,
    /// Endpoints that IPVS did not take.
    pub refused_reals: Vec<RefusedReal>,
}

impl Kernel {
    /// Connects, in the calling thread's network namespace.
    pub fn open() -> Result<Self, WriteError> {
        let mut socket = Socket::open().map_err(|error| reading("a netlink socket", error))?;
        match socket.generation() {
            Err(Error::Refused { errno: EINVAL | EOPNOTSUPP, .. }) => Err(WriteError::NoNfTables),
            Err(error) => Err(reading("nf_tables", error)),
            Ok(_) => {
                Ok(Self { socket, commits: 0, watched: None, resizes: None, overlooked: false })
            }
        }
    }

    /// Never tries what the kernel can do, which takes writing.
    pub(crate) fn only_looking(self) -> Self {
        Self { resizes: Some(false), ..self }
    }

    /// A subscription to what others do to our tables, which lasts as long as this connection. It is
    /// paused while a large transaction of ours is committed.
    pub(crate) fn watch(&mut self) -> Result<Monitor, WriteError> {
        let failed = |error| reading("the notifications of nf_tables", error);
        let monitor = Monitor::open(TABLE, Some(self.socket.port())).map_err(failed)?;
        self.watched = Some(monitor.subscription().map_err(failed)?);
        Ok(monitor)
    }

    /// Removes our tables; says which were there.
    pub fn remove(&mut self) -> Result<Vec<Family>, WriteError> {
        let present = self.present()?;
        let mut batch = Batch::new();
        for family in &present {
            batch.delete_table(netlink_family(*family), TABLE);
        }
        self.send(&mut batch).map_err(|error| reading("the table zoneward", error))?;
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

    /// See [`Tables::commit`].
    pub fn commit(
        &mut self,
        changes: &Changes,
        generation: Option<u32>,
    ) -> Result<Committed, WriteError> {
        self.commit_as(changes, None, generation)
    }

    fn commit_as(
        &mut self,
        changes: &Changes,
        encoded: Option<Encoded>,
        generation: Option<u32>,
    ) -> Result<Committed, WriteError> {
        if changes.is_empty() {
            return Ok(Committed::default());
        }
        let large = self.watched.is_some() && changes.element_operations() >= LARGE;
        let paused = if large { self.pause() } else { None };
        let outcome = self.try_commit(changes, encoded, generation);
        if let Some(before) = paused {
            self.overlooked |= self.resume(before)?;
        }
        let committed = outcome?;
        Ok(Committed { overlooked: std::mem::take(&mut self.overlooked), ..committed })
    }

    fn try_commit(
        &mut self,
        changes: &Changes,
        encoded: Option<Encoded>,
        generation: Option<u32>,
    ) -> Result<Committed, WriteError> {
        let sizes = makes_sets(changes) && self.sizes(generation.is_none());
        let mut batch = encoded.map_or_else(|| encode(changes, sizes), |Encoded(batch)| batch);
        self.forget_counts(changes, &mut batch);
        let mut left = self.forget(changes, &mut batch).unread;
        if let Some(generation) = generation {
            batch.expect_generation(generation);
        }
        let mut outcome = self.send(&mut batch);
        if matches!(outcome, Err(Error::Refused { errno: ENFILE, .. })) {
            self.grow(changes).map_err(|error| reading("the sizes of sets", error))?;
            outcome = self.send(&mut batch);
        }
        if forgets(changes) && matches!(outcome, Err(Error::Refused { errno: ENOENT, .. })) {
            // A client was forgotten by the kernel itself meanwhile. The rest must not wait for that.
            let mut batch = encode(changes, sizes);
            if let Some(generation) = generation {
                batch.expect_generation(generation);
            }
            outcome = self.send(&mut batch);
        }
        match outcome {
            Ok(bytes) => {
                left = left.then(self.forget_latecomers(changes));
                self.sweep(changes);
                Ok(Committed { bytes, left, ..Committed::default() })
            }
            Err(Error::StaleGeneration) => Err(WriteError::Overtaken),
            Err(Error::Refused { op, errno, message }) => {
                let nothing = || ("the transaction".to_owned(), None);
                let (object, part) = op.map_or_else(nothing, |op| describe(changes, op));
                let source = io::Error::from_raw_os_error(errno);
                Err(WriteError::Refused { object, part, message, source })
            }
            Err(error) => Err(WriteError::Socket(error)),
        }
    }

    /// Commits a batch and counts it; says how many bytes it took.
    fn send(&mut self, batch: &mut Batch) -> Result<usize, Error> {
        let bytes = self.socket.commit(batch)?.bytes;
        self.commits = self.commits.wrapping_add(u32::from(bytes > 0));
        Ok(bytes)
    }

    /// Deletes what nothing refers to any more. If the kernel is not ready for it, the next full sync
    /// finds and deletes it; packets cannot tell.
    fn sweep(&mut self, changes: &Changes) {
        if let Err(error) = self.send(&mut encode_sweep(changes)) {
            tracing::debug!(error = &error as &dyn std::error::Error, "unused chains stay for now");
        }
    }

    /// Ends the watch for a while; gives the generation before, and how much was committed by then.
    fn pause(&mut self) -> Option<(u32, u32)> {
        let before = self.socket.generation().ok()?;
        self.watched.as_ref()?.pause().ok()?;
        Some((before, self.commits))
    }

    /// Watches again; true if others committed something in between.
    fn resume(&mut self, (before, commits): (u32, u32)) -> Result<bool, WriteError> {
        if let Some(watched) = &self.watched {
            watched.resume().map_err(WriteError::Socket)?;
        }
        let ours = self.commits.wrapping_sub(commits);
        Ok(self.generation()?.wrapping_sub(before) != ours)
    }
}

impl Tables for Kernel {
    fn read_back(&mut self) -> Result<ReadBack, WriteError> {
        let read = self.read_back()?;
        // Before anything is made of what was read: trying something changes the generation.
        let makes = Family::BOTH
            .iter()
            .any(|family| read.actual.tables.get(family).is_none_or(|table| table.incompatible));
        if self.resizes.is_none() && makes {
            self.sizes(true);
            return self.read_back();
        }
        Ok(read)
    }

    fn is_still(&mut self, read: &ReadBack) -> bool {
        read.generation.is_some() && self.generation().ok() == read.generation
    }

    fn elements(&mut self, at: &[Place]) -> Result<Vec<Option<Element>>, WriteError> {
        at.iter()
            .map(|(family, set, key)| {
                let (family, set) = (netlink_family(*family), set.as_str());
                let found = self.socket.element(family, TABLE, set, key.as_bytes(), |found| {
                    let foreign = || Element { data: Data::Foreign, ..Element::bare(*key) };
                    decode::element(found).unwrap_or_else(foreign)
                });
                found.map_err(|error| reading("an element", error))
            })
            .collect()
    }

    fn commit(
        &mut self,
        changes: &Changes,
        generation: Option<u32>,
    ) -> Result<Committed, WriteError> {
        self.commit(changes, generation)
    }

    fn commit_encoded(
        &mut self,
        changes: &Changes,
        encoded: Encoded,
    ) -> Result<Committed, WriteError> {
        self.commit_as(changes, Some(encoded), None)
    }
}

fn find_ours(tables: &[TableInfo], family: Family) -> Option<&TableInfo> {
    let family = Some(netlink_family(family));
    tables.iter().find(|table| table.family == family && table.name == TABLE)
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

pub(crate) fn reading(what: &str, error: Error) -> WriteError {
    match error {
        Error::Refused { errno, message, .. } => WriteError::Refused {
            object: format!("access to {what}"),
            part: None,
            message,
            source: io::Error::from_raw_os_error(errno),
        },
        error => WriteError::Socket(error),
    }
}
