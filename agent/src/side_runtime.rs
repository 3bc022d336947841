//! A thread with a runtime of its own, for what must not wait for a large sync: on the agent's one
//! thread, planning every Service anew would hold up each datagram that is being relayed.

use std::io;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Runs tasks until it is dropped, which ends them and waits for that.
#[derive(Debug)]
pub(crate) struct SideRuntime {
    handle: Handle,
    /// None only while being dropped: closing the channel is what ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SideRuntime {
    /// A thread of this name, at most 15 bytes of which the kernel shows.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Nothing is ever sent: the end is the sender being dropped.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Where tasks are spawned.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for SideRuntime {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic on it was printed when it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn tasks_run_on_a_thread_of_that_name_and_end_with_it() {
        let side = SideRuntime::start("relay").unwrap();
        let (tell, told) = oneshot::channel();
        let held = Arc::new(());
        let kept = held.clone();
        side.handle().spawn(async move {
            tell.send(thread::current().name().map(str::to_owned)).unwrap();
            pending::<()>().await;
            drop(kept);
        });
        assert_eq!(told.blocking_recv().unwrap().as_deref(), Some("relay"));
        drop(side);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
