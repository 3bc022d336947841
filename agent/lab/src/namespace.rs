//! One network namespace: making it, keeping it, running code inside.
//!
//! A thread is in a namespace, not a process. So code runs inside on a thread that entered it and
//! ends there: a thread never returns to where it was, and none that enters is reused for another.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::{LabError, links};

/// The namespace of the thread that opens it, which `/proc/self` would not be on another thread
/// than the first.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace kept alive by an open file; cheap to clone.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<File>);

impl Namespace {
    /// A new namespace with nothing in it but the loopback interface, up.
    pub fn new() -> Result<Self, LabError> {
        on_thread(|| {
            unshare(UnshareFlags::NEWNET).map_err(|source| LabError::Namespace {
                action: "make a network namespace",
                source,
            })?;
            links::loopback_up()?;
            Self::current()
        })
    }

    /// The namespace the calling thread is in.
    pub fn current() -> Result<Self, LabError> {
        File::open(OWN).map(|file| Self(Arc::new(file))).map_err(|source| LabError::Namespace {
            action: "open the network namespace of this thread",
            source,
        })
    }

    /// Runs `f` on a fresh thread inside the namespace and returns its value. A panic in `f` goes
    /// on in the caller.
    ///
    /// # Panics
    /// If the thread cannot be started, or may no longer enter the namespace because the process
    /// dropped the capabilities it was made with.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        on_thread(|| {
            self.enter();
            f()
        })
    }

    /// Runs `f` on a thread of its own inside the namespace, which stays alive at least until `f`
    /// ends.
    ///
    /// # Panics
    /// If the thread cannot be started. If it cannot enter the namespace the panic is on the
    /// thread, see [`Namespace::run`].
    pub fn spawn<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let namespace = self.clone();
        thread::spawn(move || {
            namespace.enter();
            f()
        })
    }

    fn enter(&self) {
        if let Err(errno) =
            move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))
        {
            panic!("a thread enters a namespace its own process made or opened: {errno}");
        }
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Leaves the namespaces named by `flags` for new ones.
#[allow(unsafe_code)] // rustix has no safe call for the flags it deems harmless.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    assert!(!flags.contains(UnshareFlags::FILES), "see SAFETY");
    // SAFETY: the one hazard is a thread losing sight of file descriptors, and that takes FILES,
    // ruled out above.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

fn on_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let outcome = thread::scope(|scope| scope.spawn(f).join());
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
