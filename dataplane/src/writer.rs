//! The thread that talks to the kernel. A commit blocks inside one system call for as long as the
//! kernel takes, a quarter of a second for 100,000 elements: nothing else may wait on that thread.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use crate::error::WriteError;
use crate::kernel::Kernel;

/// How many jobs may wait. The sync loop sends one and waits for it, so this never fills.
const WAITING: usize = 4;

type Job = Box<dyn FnOnce(&mut Kernel) + Send>;

/// A handle to the thread; it ends when the last handle is dropped.
#[derive(Clone)]
pub struct Writer {
    jobs: SyncSender<Job>,
}

impl Writer {
    /// Starts the thread, in the caller's network namespace.
    pub fn start() -> Result<Self, WriteError> {
        let mut kernel = Kernel::open()?;
        let (jobs, waiting) = sync_channel::<Job>(WAITING);
        thread::Builder::new()
            .name("kernel-writer".into())
            .spawn(move || waiting.into_iter().for_each(|job| job(&mut kernel)))
            .map_err(|_| WriteError::WriterGone)?;
        Ok(Self { jobs })
    }

    /// Runs a job on the thread; `done` gets its value there and must not block.
    pub fn submit<T: 'static>(
        &self,
        job: impl FnOnce(&mut Kernel) -> T + Send + 'static,
        done: impl FnOnce(T) + Send + 'static,
    ) -> Result<(), WriteError> {
        let job: Job = Box::new(move |kernel| done(job(kernel)));
        self.jobs.send(job).map_err(|_| WriteError::WriterGone)
    }
}
