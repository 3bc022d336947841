//! Follows a cluster: watches in, index and holders kept right, a sync whenever something changed.
//!
//! 1. Watch this Node; its first list tells the zone and region (or that they are unknown).
//! 2. Watch Services, and the slices for that place.
//! 3. Nothing is written until every one of these watches has listed once.
//! 4. The node's place changes: the new slice watches start beside the old ones; once they have listed,
//!    the node takes its new place and the old watches end, in one sync.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::convert::{Body, Kind, Object, ObjectId, convert, identity};
use crate::health::NodeState;
use crate::holders::Holders;
use crate::index::Index;
use crate::ready::Blocker;
use crate::status::Status;
use crate::watch::{Place, Seen, StreamEvent, StreamId, Watch, Watches, Wire};

/// How much is taken in before a sync, so that an endless stream of changes cannot put it off.
const MOST_AT_ONCE: usize = 4096;

/// The cluster as this node sees it.
pub(crate) struct Cluster {
    watches: Watches,
    seen: mpsc::Receiver<Seen>,
    holders: Holders,
    node: Watch,
    services: Watch,
    /// The slice watches in force, none before the node's first list.
    slices: Option<Slices>,
    /// Those that will take over once they have listed.
    next: Option<Slices>,
    node_object: Option<Object>,
    status: Arc<Status>,
    /// Complained about in this version already.
    complained: HashSet<(ObjectId, u64)>,
}

struct Slices {
    place: Place,
    watches: Vec<Watch>,
}

impl Cluster {
    pub(crate) fn new(client: kube::Client, node_name: &str, status: Arc<Status>) -> Self {
        let (mut watches, seen) = Watches::new(client);
        let (node, services) = (watches.node(node_name), watches.services());
        Self {
            watches,
            seen,
            holders: Holders::default(),
            node,
            services,
            slices: None,
            next: None,
            node_object: None,
            status,
            complained: HashSet::new(),
        }
    }

    /// Waits for changes and takes them into the index; true once everything has been listed.
    pub(crate) async fn changed(&mut self, index: &mut Index) -> bool {
        let first = match self.holders.next_deadline() {
            None => self.seen.recv().await,
            Some(when) => {
                tokio::time::timeout_at(when.into(), self.seen.recv()).await.unwrap_or_default()
            }
        };
        let (mut next, mut taken) = (first, 0);
        while let Some(seen) = next {
            self.take(seen, index);
            taken += 1;
            // What is not taken out of the channel waits there.
            next = if taken < MOST_AT_ONCE { self.seen.try_recv().ok() } else { None };
        }
        for id in self.holders.expire(Instant::now()) {
            if id.kind == Kind::Node {
                // As with a move: it takes effect when slices for an unknown place have been listed.
                self.node_object = None;
                self.status.node(NodeState::Missing);
                self.watch_slices();
            } else {
                self.status.forget(&id);
                index.delete(&id);
            }
        }
        self.move_if_ready(index);
        self.waiting_for().is_empty()
    }

    /// What has not been listed yet.
    pub(crate) fn waiting_for(&self) -> Vec<Blocker> {
        let listed = |watch: &Watch| self.holders.is_complete(watch.id);
        let slices = self.slices.as_ref();
        let slices = slices.is_some_and(|slices| slices.watches.iter().all(listed));
        let lists = [
            (listed(&self.node), Blocker::Nodes),
            (listed(&self.services), Blocker::Services),
            (slices, Blocker::EndpointSlices),
        ];
        lists.into_iter().filter(|(listed, _)| !listed).map(|(_, blocker)| blocker).collect()
    }

    fn is_running(&self, stream: StreamId) -> bool {
        let slices = self.slices.iter().chain(&self.next).flat_map(|slices| &slices.watches);
        [&self.node, &self.services].into_iter().chain(slices).any(|watch| watch.id == stream)
    }

    fn take(&mut self, Seen { stream, event }: Seen, index: &mut Index) {
        if !self.is_running(stream) {
            // Sent before its watch was ended.
            return;
        }
        match event {
            StreamEvent::Begin => self.holders.begin(stream),
            StreamEvent::Complete => {
                self.holders.complete(stream, Instant::now());
                if stream == self.node.id && self.slices.is_none() && self.next.is_none() {
                    self.watch_slices();
                }
            }
            StreamEvent::Apply(wire) => self.apply(stream, wire, index),
            StreamEvent::Delete(wire) => {
                if let Some(id) = identity(&wire.value) {
                    self.holders.delete(stream, &id, Instant::now());
                }
            }
        }
    }

    fn apply(&mut self, stream: StreamId, wire: Wire, index: &mut Index) {
        let Wire { value, version } = wire;
        // An object without a name cannot come from an API server.
        let Some(id) = identity(&value) else { return };
        if !self.holders.apply(stream, &id, version) {
            return;
        }
        match id.kind {
            Kind::EndpointSlice => self.status.saw_slice(&id, &value),
            Kind::Node => self.status.node(NodeState::of(&value)),
            Kind::Service | Kind::ServiceCidr => {}
        }
        let started = Instant::now();
        let converted = convert(value);
        self.status.decoded(started.elapsed());
        match converted {
            Ok((object, problems)) => {
                if !problems.is_empty() {
                    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                    self.complain(&id, version, &problems.join("; "));
                }
                if matches!(object.body, Body::Node { .. }) {
                    // Takes effect when the slices for its place have been listed.
                    self.node_object = Some(object);
                    if self.slices.is_some() {
                        self.watch_slices();
                    }
                } else {
                    index.apply(object);
                }
            }
            Err(problem) => self.complain(&id, version, &problem.to_string()),
        }
    }

    /// Starts slice watches for where the node is now, unless those in force or about to be are right.
    fn watch_slices(&mut self) {
        let place = match self.node_object.as_ref().map(|node| &node.body) {
            Some(Body::Node { zone, region }) => {
                Place { zone: zone.clone(), region: region.clone() }
            }
            _ => Place::default(),
        };
        if self.next.as_ref().or(self.slices.as_ref()).is_some_and(|slices| slices.place == place) {
            return;
        }
        self.end(|cluster| cluster.next.take());
        if self.slices.as_ref().is_some_and(|slices| slices.place == place) {
            return;
        }
        info!(
            zone = place.zone.as_deref().unwrap_or("unknown"),
            region = place.region.as_deref().unwrap_or("unknown"),
            "watching the slices for this place"
        );
        let watches = self.watches.slices(&place);
        self.next = Some(Slices { place, watches });
    }

    /// Lets the next slice watches take over once they have listed everything.
    fn move_if_ready(&mut self, index: &mut Index) {
        let listed =
            |slices: &Slices| slices.watches.iter().all(|watch| self.holders.is_complete(watch.id));
        if !self.next.as_ref().is_some_and(listed) {
            return;
        }
        self.end(|cluster| cluster.slices.take());
        self.slices = self.next.take();
        let place = self.slices.as_ref().map(|slices| slices.place.clone()).unwrap_or_default();
        index.move_node(place.zone, place.region);
    }

    fn end(&mut self, which: impl FnOnce(&mut Self) -> Option<Slices>) {
        for watch in which(self).into_iter().flat_map(|slices| slices.watches) {
            self.holders.end(watch.id, Instant::now());
        }
    }

    /// Once per version of an object.
    fn complain(&mut self, id: &ObjectId, version: u64, what: &str) {
        const REMEMBERED: usize = 10_000;
        if self.complained.len() >= REMEMBERED {
            self.complained.clear();
        }
        if self.complained.insert((id.clone(), version)) {
            warn!(object = %id, "{what}");
            self.status.rejected(id.kind);
        }
    }
}
