//! One watch: lists, then watches from there, and begins again where that is needed.
//!
//! 1. A list, in one answer or page by page. One that fails is begun anew.
//! 2. A watch from the version of the list, or from what was seen last. The server ends each after some
//!    minutes, and the next goes on where it ended.
//! 3. The server has forgotten that version (410), or says something else that this question will not get
//!    over: back to the list.
//!
//! Whatever fails, or brings nothing, is tried again after a while, longer each time.

use std::time::Duration;

use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use super::decode::WatchPart;
use super::received::Resource;
use super::request::{Failure, Freshness, Selection, Server, WATCH_SECONDS};
use super::wire::number;
use super::{Need, Seen, StreamEvent, StreamId, Wire};

/// How long after a server said that it does not know a resource it is asked again: it may have been
/// upgraded.
const UNKNOWN_RESOURCE: Duration = Duration::from_secs(600);

/// A watch from which nothing came for this long, not even its end, is dead.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);

pub(super) struct Follower {
    pub(super) server: Server,
    pub(super) resource: Resource,
    pub(super) selection: Selection,
    pub(super) need: Need,
    pub(super) id: StreamId,
    pub(super) tell: mpsc::Sender<Seen>,
    /// The version to go on from; without one everything is listed.
    pub(super) version: Option<String>,
    /// Of the next list. What was seen once must not be taken back by a server that is behind another.
    pub(super) freshness: Freshness,
}

/// What one request came to.
enum Outcome {
    /// Something came: the next one may follow at once.
    Fruitful,
    Fruitless,
}

impl Follower {
    /// Goes on for as long as anybody listens.
    pub(super) async fn run(mut self) {
        let kind = self.resource.name();
        let mut backoff = DefaultBackoff::default();
        let mut told_unknown = false;
        loop {
            let watching = self.version.is_some();
            let outcome = if watching { self.watch().await } else { self.list().await };
            match outcome {
                Ok(Outcome::Fruitful) => {
                    backoff.reset();
                    continue;
                }
                Ok(Outcome::Fruitless) => {}
                Err(Failure::Unheard) => return,
                Err(failure) if self.need == Need::IfServed && failure.is_refused_with(404) => {
                    if !told_unknown {
                        info!("the API server does not know {kind}; going on without");
                        told_unknown = true;
                    }
                    // What it does not know it has none of.
                    if self.tell(StreamEvent::Complete(number(None))).await.is_err() {
                        return;
                    }
                    sleep(UNKNOWN_RESOURCE).await;
                    continue;
                }
                Err(failure) if watching && failure.is_refused_with(410) => {
                    info!("{kind}: {failure}; listing again");
                    self.version = None;
                }
                Err(failure) if watching && failure.is_silent_end() => {
                    debug!("a watch of {kind} ended: {failure}");
                }
                Err(failure) => {
                    warn!(error = failure.to_string(), "cannot list or watch {kind}; trying again");
                    if !failure.is_passing() {
                        self.version = None;
                    }
                }
            }
            sleep(backoff.next().unwrap_or_default()).await;
        }
    }

    async fn list(&mut self) -> Result<Outcome, Failure> {
        self.tell(StreamEvent::Begin).await?;
        let mut list = self.server.list(self.resource, &self.selection, self.freshness);
        while let Some(object) = list.next().await? {
            self.tell(StreamEvent::Apply(object.into())).await?;
        }
        let version = list.version()?;
        let complete = StreamEvent::Complete(number(Some(&version)));
        self.version = Some(version);
        self.freshness = Freshness::Newest;
        self.tell(complete).await?;
        Ok(Outcome::Fruitful)
    }

    async fn watch(&mut self) -> Result<Outcome, Failure> {
        let version = self.version.clone().unwrap_or_default();
        let mut events = self.server.watch(self.resource, &self.selection, &version).await?;
        let mut outcome = Outcome::Fruitless;
        loop {
            let part = match timeout(SILENCE, events.next()).await {
                Ok(part) => part?,
                Err(_) => {
                    debug!("nothing came from a watch of {}", self.resource.name());
                    return Ok(outcome);
                }
            };
            let Some(part) = part else { return Ok(outcome) };
            outcome = Outcome::Fruitful;
            let (version, event) = match part {
                WatchPart::Apply(object) => {
                    (object.version.clone(), Some(StreamEvent::Apply(object.into())))
                }
                WatchPart::Delete(object) => {
                    let version = object.version.clone();
                    let number = number(version.as_deref());
                    // An object without a name cannot come from an API server.
                    let id = Wire::from(object).into_id();
                    (version, id.map(|id| StreamEvent::Delete(id, number)))
                }
                WatchPart::Bookmark(version) => {
                    let number = number(version.as_deref());
                    (version, Some(StreamEvent::Told(number)))
                }
                WatchPart::Error(refusal) => return Err(Failure::GivenUp(refusal)),
            };
            if let Some(version) = version.filter(|version| !version.is_empty()) {
                self.version = Some(version);
            }
            if let Some(event) = event {
                self.tell(event).await?;
            }
        }
    }

    async fn tell(&self, event: StreamEvent) -> Result<(), Failure> {
        let seen = Seen { stream: self.id, event };
        self.tell.send(seen).await.map_err(|_| Failure::Unheard)
    }
}
