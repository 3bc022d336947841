//! The way to the kernel. A commit blocks inside one system call for as long as the kernel takes, a
//! quarter of a second for 100,000 elements, so there is a thread on which nothing else waits. A handful
//! of elements takes less time than to wake that thread: such a job may be done on the spot.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;

use zw_plan::{Changes, Element, Place};

use crate::error::WriteError;
use crate::kernel::{Committed, ReadBack};
use crate::nft::encode::Encoded;

/// How many jobs may wait. The sync loop sends one and waits for it, so this never fills.
const WAITING: usize = 4;

/// What the sync loop asks of the kernel: [`Kernel`](crate::Kernel), or in tests something that fails
/// when told to.
pub trait Tables {
    /// Reads our tables: names, fingerprints and elements, all of one generation.
    fn read_back(&mut self) -> Result<ReadBack, WriteError>;

    /// Nobody has committed anything, to whatever table, since this was read.
    fn is_still(&mut self, read: &ReadBack) -> bool;

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

    /// The same with changes that were encoded beforehand, and have not changed since.
    fn commit_encoded(&mut self, changes: &Changes, _: Encoded) -> Result<Committed, WriteError> {
        self.commit(changes, None)
    }

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
    tables: Arc<Mutex<dyn Tables + Send>>,
}

impl Writer {
    /// Starts the thread.
    pub fn start(tables: impl Tables + Send + 'static) -> Result<Self, WriteError> {
        let (jobs, waiting) = sync_channel::<Job>(WAITING);
        let tables: Arc<Mutex<dyn Tables + Send>> = Arc::new(Mutex::new(tables));
        let shared = tables.clone();
        let work = move || {
            for job in waiting {
                // Who panicked with it left no transaction half done: the kernel takes them whole.
                job(&mut *shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
            }
        };
        thread::Builder::new()
            .name("kernel-writer".into())
            .spawn(work)
            .map_err(|_| WriteError::WriterGone)?;
        Ok(Self { jobs, tables })
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

    /// Runs a job that takes the kernel microseconds on the calling thread. Nothing, if the writer's
    /// thread is at work: the job is to be submitted then.
    pub fn at_once<T>(&self, job: impl FnOnce(&mut dyn Tables) -> T) -> Option<T> {
        match self.tables.try_lock() {
            Ok(mut tables) => Some(job(&mut *tables)),
            Err(TryLockError::Poisoned(poisoned)) => Some(job(&mut *poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::testing::Memory;

    #[test]
    fn a_job_is_done_on_the_spot_unless_the_thread_is_at_work() {
        let writer = Writer::start(Memory::default()).unwrap();
        let here = thread::current().id();
        assert_eq!(writer.at_once(|_| thread::current().id()), Some(here));

        let ((started, starts), (end, ended)) = (channel(), channel::<()>());
        let (tell, told) = channel();
        let long = move |_: &mut dyn Tables| {
            started.send(()).unwrap();
            ended.recv().unwrap();
            thread::current().id()
        };
        writer.submit(long, move |on| tell.send(on).unwrap()).unwrap();
        starts.recv().unwrap();
        assert_eq!(writer.at_once(|_| ()), None);
        end.send(()).unwrap();
        assert_ne!(told.recv().unwrap(), here);
        // The thread lets go of the tables a moment after it has told; on a busy machine that is when it
        // runs again.
        let deadline = Instant::now() + Duration::from_secs(30);
        while writer.at_once(|_| ()).is_none() {
            assert!(Instant::now() < deadline, "the tables are still held");
            thread::yield_now();
        }
    }
}
