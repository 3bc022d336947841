//! What the kernel tells of its ruleset: commits as they happen, and how many there were.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zw_lab::Namespace;
use zw_netlink::nft::{Monitor, Notice, Socket};

/// How long nothing is committed before all counts as written: longer than kube-proxy rests between syncs.
const REST: Duration = Duration::from_millis(1_500);
/// How long that may take to come.
const PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(50);

/// Notes the moments at which a table was changed, until dropped.
pub(crate) struct Commits {
    pub(crate) moments: Receiver<Instant>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Commits {
    /// Begins with the next commit.
    pub(crate) fn watch(namespace: &Namespace, table: &'static str) -> Self {
        let (tell, moments) = channel();
        let (ready, started) = channel();
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let thread = namespace.spawn(move || {
            let mut monitor = Monitor::open(table, None).expect("a subscription, which takes root");
            ready.send(()).expect("waited for below");
            let mut changed = false;
            while !end.load(Ordering::Relaxed) {
                let timeout = Timespec::try_from(POLL).expect("a short time");
                let mut ready = [PollFd::new(&monitor, PollFlags::IN)];
                if poll(&mut ready, Some(&timeout)).unwrap_or(0) == 0 {
                    continue;
                }
                let mut each = |notice: Notice<'_>| match notice {
                    Notice::Change(_) => changed = true,
                    Notice::Generation(_) => {
                        if std::mem::take(&mut changed) {
                            // Nobody listens any more when the watch is about to end.
                            let _ = tell.send(Instant::now());
                        }
                    }
                };
                while monitor.read(&mut each).expect("notifications of small commits are not lost")
                {
                }
            }
        });
        started.recv().expect("the subscription stands");
        Self { moments, ended, thread: Some(thread) }
    }
}

impl Drop for Commits {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// The number of the ruleset's generation: one more with every commit.
pub(crate) fn generation(namespace: &Namespace) -> u32 {
    namespace.run(|| {
        let mut socket = Socket::open().expect("a netlink socket, which takes root");
        socket.generation().expect("the kernel has nf_tables")
    })
}

/// Waits until nobody commits any more.
pub(crate) fn rest(namespace: &Namespace) -> u32 {
    let end = Instant::now() + PATIENCE;
    let (mut last, mut since) = (generation(namespace), Instant::now());
    while since.elapsed() < REST {
        assert!(Instant::now() < end, "the ruleset never rests");
        thread::sleep(POLL);
        let now = generation(namespace);
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}
