//! Follows a cluster: watches in, index and holders kept right, a sync whenever something changed.
//!
//! 1. Watch this Node; its first list tells the zone and region (or that they are unknown).
//! 2. Watch Services, ServiceCIDRs, and the slices for that place.
//! 3. Nothing is written until every one of these watches has listed once.
//! 4. The node's place changes: the new slice watches start beside the old ones; once they have listed,
//!    the node takes its new place and the old watches end, in one sync.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::convert::{Body, Content, Kind, Node, Object, ObjectId, Problem};
use crate::few::first_few;
use crate::holders::Holders;
use crate::index::Index;
use crate::ready::Blocker;
use crate::status::Status;
use crate::watch::{Place, Received, Seen, Server, StreamEvent, StreamId, Watch, Watches, Wire};

/// How much is taken in before a sync, so that an endless stream of changes cannot put it off.
const MOST_AT_ONCE: usize = 4096;

/// The cluster as this node sees it.
pub(crate) struct Cluster {
    watches: Watches,
    seen: mpsc::Receiver<Seen>,
    holders: Holders,
    node: Watch,
    services: Watch,
    service_cidrs: Watch,
    /// The slice watches in force, none before the node's first list.
    slices: Option<Slices>,
    /// Those that will take over once they have listed.
    next: Option<Slices>,
    node_object: Option<Box<Node>>,
    status: Arc<Status>,
    /// Complained about in this version already.
    complained: HashSet<(ObjectId, u64)>,
    received: Received,
    /// Everything had been listed at the last look.
    complete: bool,
}

struct Slices {
    place: Place,
    watches: Vec<Watch>,
}

impl Cluster {
    pub(crate) fn new(
        server: Server,
        received: Received,
        node_name: &str,
        status: Arc<Status>,
    ) -> Self {
        let (mut watches, seen) = Watches::new(server);
        let (node, services) = (watches.node(node_name), watches.services());
        let service_cidrs = watches.service_cidrs();
        let mut holders = Holders::default();
        holders.start(node.id, Kind::Node);
        holders.start(services.id, Kind::Service);
        holders.start(service_cidrs.id, Kind::ServiceCidr);
        Self {
            watches,
            seen,
            holders,
            node,
            services,
            service_cidrs,
            slices: None,
            next: None,
            node_object: None,
            status,
            complained: HashSet::new(),
            received,
            complete: false,
        }
    }

    /// How much the API server has sent.
    pub(crate) fn received(&self) -> &Received {
        &self.received
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
                index.lose_node();
                self.node_object = None;
                self.watch_slices();
            } else {
                index.delete(&id);
            }
        }
        self.move_if_ready(index);
        let complete = self.waiting_for().is_empty();
        if complete && !self.complete {
            info!(received_bytes = %self.received(), "everything is listed");
        } else {
            debug!(received_bytes = %self.received(), "took in changes");
        }
        self.complete = complete;
        complete
    }

    /// What has not been listed yet.
    pub(crate) fn waiting_for(&self) -> Vec<Blocker> {
        let listed = |watch: &Watch| self.holders.is_complete(watch.id);
        let slices = self.slices.as_ref();
        let slices = slices.is_some_and(|slices| slices.watches.iter().all(listed));
        let lists = [
            (listed(&self.node), Blocker::Nodes),
            (listed(&self.services), Blocker::Services),
            (listed(&self.service_cidrs), Blocker::ServiceCidrs),
            (slices, Blocker::EndpointSlices),
        ];
        lists.into_iter().filter(|(listed, _)| !listed).map(|(_, blocker)| blocker).collect()
    }

    fn is_running(&self, stream: StreamId) -> bool {
        let slices = self.slices.iter().chain(&self.next).flat_map(|slices| &slices.watches);
        [&self.node, &self.services, &self.service_cidrs]
            .into_iter()
            .chain(slices)
            .any(|watch| watch.id == stream)
    }

    fn take(&mut self, Seen { stream, event }: Seen, index: &mut Index) {
        if !self.is_running(stream) {
            // Sent before its watch was ended.
            return;
        }
        match event {
            StreamEvent::Begin => self.holders.begin(stream),
            StreamEvent::Complete(version) => {
                self.holders.complete(stream, version, Instant::now());
                if stream == self.node.id && self.slices.is_none() && self.next.is_none() {
                    self.watch_slices();
                }
            }
            StreamEvent::Apply(wire) => self.apply(stream, wire, index),
            StreamEvent::Delete(id, version) => {
                self.holders.delete(stream, &id, version, Instant::now());
            }
            StreamEvent::Told(version) => self.holders.told(stream, version),
        }
    }

    fn apply(&mut self, stream: StreamId, Wire { content, version }: Wire, index: &mut Index) {
        match content {
            Content::Good(object, problems) => {
                if self.holders.apply(stream, &object.id, version) {
                    self.complain(&object.id, version, &problems);
                    self.take_in(object, index);
                }
            }
            Content::Bad(Some(id), problem) => {
                if self.holders.apply(stream, &id, version) {
                    self.complain(&id, version, &[problem]);
                }
            }
            // An object without a name cannot come from an API server.
            Content::Bad(None, problem) => warn!("an object without a name: {problem}"),
        }
    }

    fn take_in(&mut self, object: Object, index: &mut Index) {
        let Body::Node(node) = object.body else { return index.apply(object) };
        index.observe_node(&node);
        // Where it is takes effect when the slices for that place have been listed.
        self.node_object = Some(node);
        if self.slices.is_some() || self.next.is_some() {
            self.watch_slices();
        }
    }

    /// Starts slice watches for where the node is now, unless those in force or about to be are right.
    fn watch_slices(&mut self) {
        let place = match &self.node_object {
            Some(node) => Place { zone: node.zone.clone(), region: node.region.clone() },
            None => Place::default(),
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
        for watch in &watches {
            self.holders.start(watch.id, Kind::EndpointSlice);
        }
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

    /// Once per version of an object, in one line.
    fn complain(&mut self, id: &ObjectId, version: u64, problems: &[Problem]) {
        const REMEMBERED: usize = 10_000;
        if problems.is_empty() {
            return;
        }
        if self.complained.len() >= REMEMBERED {
            self.complained.clear();
        }
        if self.complained.insert((id.clone(), version)) {
            // A slice may have a thousand endpoints that make no sense.
            let named = first_few(problems);
            warn!(object = %id, "{named}");
            self.status.recent.complain(format!("{id}: {named}"));
            self.status.rejected(id.kind);
        }
    }
}
