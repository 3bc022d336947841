//! One proxy on one node, from its start to its end: everything but connections.

use crate::bare::Copied;
use crate::calm::calm;
use crate::changes::{single, sustained};
use crate::cluster::Cluster;
use crate::kernel::rest;
use crate::node::Node;
use crate::progress::Progress;
use crate::proxy::Proxy;
use crate::results::{Bare, Run, Sustained};

/// How many Services must answer after a start.
const SAMPLE: usize = 50;

/// How much of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Single changes.
    pub(crate) changes: usize,
    /// Changes without a pause; 0 leaves that out.
    pub(crate) sustained: usize,
}

/// Measures a proxy; for Zoneward also the bare loop with the elements of its table.
pub(crate) fn measure(
    proxy: Proxy,
    cluster: &mut Cluster,
    extent: Extent,
    progress: &Progress,
) -> (Run, Option<Bare>) {
    let who = format!("{} of {}", proxy.name(), cluster.shape.name);
    let sample = cluster.shape.sample(SAMPLE);
    let node = Node::new(Some(cluster));

    progress.step(&format!("{who}, start"));
    calm(cluster);
    let mut running = proxy.start(cluster, &node);
    node.wait_for_answers(&sample, || running.program.assert_runs());
    let cold_start_seconds = running.started.elapsed().as_secs_f64();
    let start_bytes = node.received();
    let programming_seconds = running.first_sync().took;
    rest(node.namespace());
    progress.tell(&format!(
        "{who}: answers after {cold_start_seconds:.2} s, programmed in {programming_seconds:.3} s"
    ));
    let copied = (proxy == Proxy::Zoneward).then(|| Copied::read(node.namespace(), proxy.table()));

    progress.step(&format!("{who}, single changes"));
    let changes = single(cluster, &node, proxy, extent.changes, progress);
    let sustained = (extent.sustained > 0).then(|| {
        progress.step(&format!("{who}, sustained changes"));
        sustained(cluster, &node, &running, extent.sustained)
    });
    if let Some(Sustained { cpu_seconds, changes, .. }) = sustained {
        progress.tell(&format!("{who}: {changes} changes cost {cpu_seconds:.2} s of CPU"));
    }
    let memory = running.memory();
    running.program.assert_runs();
    drop(running);
    // While anybody on the machine listens, in whatever namespace, the kernel tells of every element. An
    // agent does not listen to what it writes itself; it must not make the loop wait either.
    let bare = copied.map(|copied| copied.insert());
    if let Some(Bare { elements, seconds }) = bare {
        progress
            .tell(&format!("a bare loop inserts the same {elements} elements in {seconds:.3} s"));
    }

    progress.step(&format!("{who}, restart"));
    calm(cluster);
    let before = rest(node.namespace());
    let mut running = proxy.start(cluster, &node);
    let restart_seconds = running.first_sync().after_start;
    let restart_commits = rest(node.namespace()).wrapping_sub(before);
    progress
        .tell(&format!("{who}: restarted in {restart_seconds:.2} s, {restart_commits} commits"));
    let run = Run {
        cold_start_seconds,
        programming_seconds,
        changes,
        sustained,
        resident_kb: memory.resident,
        peak_kb: memory.peak,
        restart_seconds,
        restart_commits,
        start_bytes,
    };
    (run, bare)
}

/// What the API server sends to a proxy: until the cluster IPs answer, and per change.
pub(crate) fn received(
    proxy: Proxy,
    cluster: &mut Cluster,
    changes: usize,
    progress: &Progress,
) -> (u64, f64) {
    progress.step(&format!("{} of {} in three zones", proxy.name(), cluster.shape.name));
    let node = Node::new(Some(cluster));
    let mut running = proxy.start(cluster, &node);
    let sample = cluster.shape.sample(SAMPLE);
    node.wait_for_answers(&sample, || running.program.assert_runs());
    running.first_sync();
    let start = node.received();
    let Sustained { received_bytes, .. } = sustained(cluster, &node, &running, changes);
    (start, received_bytes as f64 / changes.max(1) as f64)
}
