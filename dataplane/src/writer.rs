//! The thread that talks to the kernel. A commit blocks inside one system call for as long as the
//! kernel takes, a quarter of a second for 100,000 elements: nothing else may wait on that thread.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use zw_plan::{Changes, Element, Place};

use crate::error::WriteError;
use crate::kernel::{Committed, ReadBack};

/// How many jobs may wait. The sync loop sends one and waits for it, so this never fills.
const WAITING: usize = 4;

/// What the sync loop asks of the kernel: [`Kernel`](crate::Kernel), or in tests something that fails
/// when told to.
pub trait Tables {
    /// Reads our tables: names, fingerprints and elements, all of one generation.
    fn read_back(&mut self) -> Result<ReadBack, WriteError>;

    /// Single elements as they are, in this order. Not of sets of ranges, which have none by a key.
    fn elements(&mut self, at: &[Place]) -> Result<Vec<Option<Element>>, WriteError>;

    /// Applies changes, all or nothing. `generation`: only if the ruleset is still that one. A change
    /// computed from a full read needs it; a small one need not, because the elements it names refuse
    /// it if they are not as we thought, and other tables' changes also raise the generation.
    fn commit(
        &mut self,
        changes: &Changes,
        generation: Option<u32>,
    ) -> Result<Committed, WriteError>;

    /// Lets real servers of IPVS go that have no connections left; says whether any are still leaving.
    fn drain(&mut self) -> Result<bool, WriteError> {
        Ok(false)
    }
}

type Job = Box<dyn FnOnce(&mut dyn Tables) + Send>;

/// A handle to the thread; it ends when the last handle is dropped.
#[derive(Clone)]
pub struct Writer {
    jobs: SyncSender<Job>,
}

impl Writer {
    /// Starts the thread.
    pub fn start(mut tables: impl Tables + Send + 'static) -> Result<Self, WriteError> {
        let (jobs, waiting) = sync_channel::<Job>(WAITING);
        thread::Builder::new()
            .name("kernel-writer".into())
            .spawn(move || waiting.into_iter().for_each(|job| job(&mut tables)))
            .map_err(|_| WriteError::WriterGone)?;
        Ok(Self { jobs })
    }

    /// Runs a job on the thread; `done` gets its value there and must not block.
    pub fn submit<T: 'static>(
        &self,
        job: impl FnOnce(&mut dyn Tables) -> T + Send + 'static,
        done: impl FnOnce(T) + Send + 'static,
    ) -> Result<(), WriteError> {
        let job: Job = Box::new(move |tables| done(job(tables)));
        self.jobs.send(job).map_err(|_| WriteError::WriterGone)
    }
}
