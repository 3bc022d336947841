//! One change at a time, and many without a pause.
//!
//! A single change is observed at three places: where the request is sent; at a bare watcher beside the
//! proxy, which has the event when it could have it at the earliest; and in the kernel's notification of
//! the commit. What lies between the last two is the proxy's own share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, SLICES};
use crate::kernel::{Commits, rest};
use crate::node::Node;
use crate::progress::Progress;
use crate::proxy::{Proxy, Running};
use crate::results::{Change, Sustained};

/// The idle time before a single change: longer than kube-proxy's shortest time between two syncs, so that
/// nobody waits for that.
const IDLE: Duration = Duration::from_millis(1_100);
/// How long a change may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many changes a second are made without a pause.
const RATE: f64 = 20.0;

/// Makes single changes and times each.
pub(crate) fn single(
    cluster: &mut Cluster,
    node: &Node,
    proxy: Proxy,
    count: usize,
    progress: &Progress,
) -> Vec<Change> {
    let events = Events::watch(cluster, node);
    let commits = Commits::watch(node.namespace(), proxy.table());
    let client = cluster.plane.admin().clone();
    let mut changes = Vec::with_capacity(count);
    for number in 0..count {
        let change = cluster.next_change();
        thread::sleep(IDLE);
        // What a proxy cleaned up after the last one.
        while commits.moments.try_recv().is_ok() {}
        while events.moments.try_recv().is_ok() {}
        let sent = Instant::now();
        change.make(&client);
        let answered = sent.elapsed();
        let moment = |of: &Receiver<Instant>, what: &str| {
            of.recv_timeout(PATIENCE)
                .unwrap_or_else(|_| panic!("{}: no {what} of {:?}", proxy.name(), change.kind))
        };
        let event = moment(&events.moments, "event");
        let committed = moment(&commits.moments, "commit");
        changes.push(Change {
            kind: change.kind,
            answer_ms: milliseconds(answered),
            event_ms: milliseconds(event - sent),
            commit_ms: milliseconds(committed - sent),
            // Negative where the proxy was faster than the bare watcher.
            own_ms: if committed >= event {
                milliseconds(committed - event)
            } else {
                -milliseconds(event - committed)
            },
        });
        progress.part(number, count);
    }
    changes
}

/// Makes changes at a fixed rate and sums up what they cost the proxy.
pub(crate) fn sustained(
    cluster: &mut Cluster,
    node: &Node,
    running: &Running,
    count: usize,
) -> Sustained {
    let client = cluster.plane.admin().clone();
    let before = rest(node.namespace());
    let (cpu, received, started) = (running.cpu(), node.received(), Instant::now());
    for number in 0..count {
        let due = Duration::from_secs_f64(number as f64 / RATE);
        thread::sleep(due.saturating_sub(started.elapsed()));
        cluster.next_change().make(&client);
    }
    let took = started.elapsed();
    let after = rest(node.namespace());
    Sustained {
        changes: count,
        seconds: took.as_secs_f64(),
        cpu_seconds: running.cpu() - cpu,
        commits: after.wrapping_sub(before),
        received_bytes: node.received() - received,
    }
}

/// A bare watcher: notes when events of slices arrive, and reads nothing of them.
struct Events {
    moments: Receiver<Instant>,
    ended: Arc<AtomicBool>,
}

impl Events {
    fn watch(cluster: &Cluster, node: &Node) -> Self {
        let (tell, moments) = channel();
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let client = cluster.plane.admin().from(node.namespace());
        let version = cluster.slices_version();
        let path = format!("{SLICES}?watch=1&resourceVersion={version}");
        // Ends with the first event after it was dropped, or with the connection.
        thread::spawn(move || {
            let _ = client.follow(&path, |_| {
                tell.send(Instant::now()).is_ok() && !end.load(Ordering::Relaxed)
            });
        });
        Self { moments, ended }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
