//! The Kubernetes source: watches on the API server, each a task of its own that sends what it sees to
//! the one loop that owns the state.
//!
//! Owns the connection, the selections, lists, watches and their retries. The connection itself is `kube`'s,
//! with its credentials; lists and watches are our own, because protocol buffers cost a tenth of JSON and
//! `kube` knows only that. Which of several watches holds an object is [`crate::holders`]' business.
//!
//! [`follow`] asks through [`request`], which reads answers through [`decode`].

mod connect;
mod decode;
mod follow;
mod received;
mod request;
mod wire;

use std::sync::Arc;

use anyhow::Context;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::{Instrument, info_span};

use crate::convert::ObjectId;
pub(crate) use connect::{connect, kubeconfig};
use follow::Follower;
pub(crate) use received::{Received, Resource};
pub(crate) use request::Server;
use request::{Freshness, Selection};
pub(crate) use wire::Wire;
use zw_controller::names::ZONE_PREFIX;

/// Neither label, so for everyone; slices of headless Services have nothing to program.
const UNLABELLED: &str = "!endpointslice.kubernetes.io/for-zone,!endpointslice.kubernetes.io/for-region,\
                          !service.kubernetes.io/headless";
const NOT_HEADLESS: &str = "!service.kubernetes.io/headless";

/// How many objects may wait for the loop; a watch that is ahead of it waits too.
const WAITING: usize = 256;

/// One watch among those of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamId(pub(crate) u32);

/// What a watch saw.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) stream: StreamId,
    pub(crate) event: StreamEvent,
}

#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// A list begins; what it does not contain is gone.
    Begin,
    Apply(Wire),
    /// It is gone since this version.
    Delete(ObjectId, u64),
    /// The list of this version is complete.
    Complete(u64),
    /// There is nothing to tell up to this version.
    Told(u64),
}

/// What it means that the server says "not found".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Something is wrong between here and the server.
    Always,
    /// It is a server without this resource, so there are no such objects.
    IfServed,
}

/// Where a node is, as slices may be labelled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) zone: Option<Arc<str>>,
    pub(crate) region: Option<Arc<str>>,
}

/// Starts watches and hands out what they see.
pub(crate) struct Watches {
    server: Server,
    next: u32,
    tell: mpsc::Sender<Seen>,
    /// Slices were asked for already. Those for another place then must not be older than what is known.
    has_slices: bool,
}

/// A running watch; ends when dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) id: StreamId,
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watches {
    pub(crate) fn new(server: Server) -> (Self, mpsc::Receiver<Seen>) {
        let (tell, seen) = mpsc::channel(WAITING);
        (Self { server, next: 0, tell, has_slices: false }, seen)
    }

    /// This node alone.
    pub(crate) fn node(&mut self, name: &str) -> Watch {
        let fields = Some(format!("metadata.name={name}"));
        self.start(Resource::Nodes, Selection { labels: None, fields }, Need::Always)
    }

    /// Every Service that has an address and no other proxy.
    pub(crate) fn services(&mut self) -> Watch {
        let selection = Selection {
            labels: Some("!service.kubernetes.io/service-proxy-name".into()),
            fields: Some("spec.clusterIP!=None".into()),
        };
        self.start(Resource::Services, selection, Need::Always)
    }

    /// Where Services' addresses come from. Servers before 1.33 do not know.
    pub(crate) fn service_cidrs(&mut self) -> Watch {
        self.start(Resource::ServiceCidrs, Selection::default(), Need::IfServed)
    }

    /// The slices that are for a node at this place: unlabelled ones, its zone's and its region's.
    /// Selectors know no "or", so these are separate watches. A place unknown means one watch for all.
    pub(crate) fn slices(&mut self, place: &Place) -> Vec<Watch> {
        let selections = match place {
            Place { zone: None, .. } => vec![NOT_HEADLESS.to_owned()],
            Place { zone: Some(zone), region } => {
                let label = "endpointslice.kubernetes.io";
                let region = match region {
                    Some(region) => format!("{label}/for-region={region}"),
                    // Any region's: better than nothing.
                    None => format!("{label}/for-region"),
                };
                vec![
                    // Nor those of Services that have a group for this zone.
                    format!("{UNLABELLED},!{ZONE_PREFIX}{zone}"),
                    format!("{label}/for-zone={zone},{NOT_HEADLESS}"),
                    format!("{region},!{label}/for-zone,{NOT_HEADLESS}"),
                ]
            }
        };
        let moves = std::mem::replace(&mut self.has_slices, true);
        let freshness = if moves { Freshness::Newest } else { Freshness::Cached };
        let start = |labels: String| {
            let selection = Selection { labels: Some(labels), fields: None };
            self.start_from(freshness, Resource::EndpointSlices, selection, Need::Always)
        };
        selections.into_iter().map(start).collect()
    }

    fn start(&mut self, resource: Resource, selection: Selection, need: Need) -> Watch {
        self.start_from(Freshness::Cached, resource, selection, need)
    }

    fn start_from(
        &mut self,
        freshness: Freshness,
        resource: Resource,
        selection: Selection,
        need: Need,
    ) -> Watch {
        let id = StreamId(self.next);
        self.next += 1;
        let span = info_span!(
            "watch",
            kind = resource.name(),
            labels = selection.labels.as_deref().unwrap_or_default(),
        );
        let (server, tell) = (self.server.clone(), self.tell.clone());
        let version = None;
        let follower = Follower { server, resource, selection, need, id, tell, version, freshness };
        let task = tokio::spawn(follower.run().instrument(span));
        Watch { id, task: task.abort_handle() }
    }
}

/// Every object of the kinds that matter, once.
pub(crate) async fn list_all(server: &Server) -> anyhow::Result<Vec<Wire>> {
    let everything = Selection::default();
    let mut objects: Vec<Wire> = Vec::new();
    for resource in [Resource::Nodes, Resource::Services, Resource::EndpointSlices] {
        let mut list = server.list(resource, &everything, Freshness::Newest);
        let failed = || format!("cannot list {}", resource.name());
        while let Some(object) = list.next().await.with_context(failed)? {
            objects.push(object.into());
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests;
