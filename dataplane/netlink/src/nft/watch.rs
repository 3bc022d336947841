//! A [`Monitor`] that tokio waits on.
//!
//! Owns the registration with the runtime's reactor, which takes a promise the compiler cannot
//! check: that the descriptor stays open. Reads nothing itself.

use std::io;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::{Monitor, Notice};
use crate::Error;

/// Datagrams read before other tasks get their turn.
const AT_A_TIME: usize = 64;

/// A subscription that is awaited.
pub struct Watch {
    fd: AsyncFd<Monitor>,
}

impl Watch {
    /// Registers the subscription with the runtime of the calling task, which needs IO enabled.
    pub fn new(monitor: Monitor) -> Result<Self, Error> {
        // Outside of a runtime the registration would panic.
        Handle::try_current().map_err(|e| error(io::Error::other(e)))?;
        // SAFETY: a Monitor owns its descriptor, opens it once and closes it when dropped; AsRawFd
        // always returns that one.
        #[allow(unsafe_code)]
        let fd = unsafe { AsyncFd::register_with_interest(monitor, Interest::READABLE) };
        Ok(Self { fd: fd.map_err(|e| error(e.into()))? })
    }

    /// The subscription itself, to pause and resume it.
    pub fn monitor(&self) -> &Monitor {
        self.fd.get_ref()
    }

    /// Waits until something was committed and gives what is known of it to `each`, some datagrams
    /// at a time. Errors are those of [`Monitor::read`], and the next call goes on after them.
    ///
    /// Dropped while waiting, it has lost nothing.
    pub async fn read(&mut self, each: &mut (dyn FnMut(Notice<'_>) + Send)) -> Result<(), Error> {
        loop {
            let mut ready = self.fd.readable_mut().await.map_err(error)?;
            let mut read = 0;
            while read < AT_A_TIME && ready.get_inner_mut().read(each)? {
                read += 1;
            }
            if read < AT_A_TIME {
                ready.clear_ready();
            }
            // Readable but empty: what was there had been read before.
            if read > 0 {
                return Ok(());
            }
        }
    }
}

fn error(source: io::Error) -> Error {
    Error::Socket { action: "wait for", source }
}
