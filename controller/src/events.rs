//! Events on Services: what its owner should see, with the numbers.
//!
//! Never in anybody's way: a queue that drops what does not fit, one task that sends. The same words
//! about the same object are sent once in ten minutes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{debug, warn};
use zw_model::ServiceKey;

/// How many may wait to be sent, and how many are remembered.
const WAITING: usize = 256;
const REMEMBERED: usize = 10_000;

/// How long the same is not told again, and how long one request may take.
const QUIET: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(10);

/// The API's limit for an Event's text.
const LONGEST_NOTE: usize = 1024;

/// Why there is an Event, in the words that people filter by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    ApproachStarted,
    ApproachStopped,
    ApproachDowngraded,
    InvalidAnnotation,
    TooManyAddressesToMirror,
    InvalidIPAddress,
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Self::ApproachStarted => "ApproachStarted",
            Self::ApproachStopped => "ApproachStopped",
            Self::ApproachDowngraded => "ApproachDowngraded",
            Self::InvalidAnnotation => "InvalidAnnotation",
            Self::TooManyAddressesToMirror => "TooManyAddressesToMirror",
            Self::InvalidIPAddress => "InvalidIPAddress",
        }
    }

    fn is_warning(self) -> bool {
        !matches!(self, Self::ApproachStarted | Self::ApproachStopped)
    }

    fn action(self) -> &'static str {
        match self {
            Self::TooManyAddressesToMirror | Self::InvalidIPAddress => "Mirror",
            _ => "Divide",
        }
    }
}

/// What an Event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct About {
    pub(crate) kind: &'static str,
    pub(crate) key: ServiceKey,
    pub(crate) uid: String,
}

/// One Event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Note {
    pub(crate) about: About,
    pub(crate) reason: Reason,
    pub(crate) text: String,
}

/// Takes Events from anywhere, at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events {
    /// None where nothing is to be written.
    queue: Option<mpsc::Sender<Note>>,
}

impl Events {
    /// Starts to send, in the current runtime.
    pub(crate) fn start(client: Client, identity: &str) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        tokio::spawn(work(client, identity.to_owned(), waiting));
        Self { queue: Some(queue) }
    }

    pub(crate) fn put(&self, note: Note) {
        if let Some(queue) = &self.queue
            && let Err(error) = queue.try_send(note)
        {
            debug!(%error, "an Event is not sent");
        }
    }
}

async fn work(client: Client, identity: String, mut waiting: mpsc::Receiver<Note>) {
    let mut told = Told::default();
    while let Some(note) = waiting.recv().await {
        if !told.is_news(&note, Instant::now()) {
            continue;
        }
        let event = event(&note, &identity, Timestamp::now());
        let events: Api<Event> = Api::namespaced(client.clone(), &note.about.key.namespace);
        match timeout(PATIENCE, events.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => warn!(%error, svc = %note.about.key, "an Event was not written"),
            Err(_) => warn!(svc = %note.about.key, "an Event was not written in time"),
        }
    }
}

/// What has been told, and when.
#[derive(Debug, Default)]
struct Told(HashMap<Note, Instant>);

impl Told {
    /// Whether it is time to tell this; if so, it counts as told.
    fn is_news(&mut self, note: &Note, now: Instant) -> bool {
        let recent = |at: &Instant| now.saturating_duration_since(*at) < QUIET;
        if self.0.get(note).is_some_and(recent) {
            return false;
        }
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, at| recent(at));
            if self.0.len() >= REMEMBERED {
                self.0.clear();
            }
        }
        self.0.insert(note.clone(), now);
        true
    }
}

fn event(note: &Note, identity: &str, now: Timestamp) -> Event {
    let About { kind, key, uid } = &note.about;
    let mut hash = DefaultHasher::new();
    (note, identity, now.as_nanosecond()).hash(&mut hash);
    let text = &note.text;
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:016x}", key.name, hash.finish())),
            namespace: Some(key.namespace.to_string()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some(if note.reason.is_warning() { "Warning" } else { "Normal" }.into()),
        reason: Some(note.reason.name().into()),
        action: Some(note.reason.action().into()),
        note: Some(text[..text.floor_char_boundary(LONGEST_NOTE)].to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some("v1".into()),
            kind: Some((*kind).into()),
            name: Some(key.name.to_string()),
            namespace: Some(key.namespace.to_string()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        }),
        reporting_controller: Some("zoneward-controller".into()),
        reporting_instance: Some(identity[..identity.floor_char_boundary(128)].to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &str) -> Note {
        let key = ServiceKey { namespace: "web".into(), name: "api".into() };
        let about = About { kind: "Service", key, uid: "u".into() };
        Note { about, reason: Reason::ApproachStarted, text: text.into() }
    }

    #[test]
    fn the_same_is_told_once_in_ten_minutes() {
        let (mut told, start) = (Told::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(told.is_news(&note("12 endpoints"), at(0)));
        assert!(!told.is_news(&note("12 endpoints"), at(599)));
        assert!(told.is_news(&note("13 endpoints"), at(1)));
        assert!(told.is_news(&note("12 endpoints"), at(600)));
        for i in 0..2 * REMEMBERED {
            told.is_news(&note(&i.to_string()), start);
            assert!(told.0.len() <= REMEMBERED);
        }
    }

    #[test]
    fn an_event_is_one_that_kubectl_describe_shows() {
        let event = event(&note(&"x".repeat(2000)), "host-1", Timestamp::UNIX_EPOCH);
        let regarding = event.regarding.unwrap();
        assert_eq!(regarding.uid.as_deref(), Some("u"));
        assert_eq!(event.note.map(|note| note.len()), Some(LONGEST_NOTE));
        assert_eq!(event.type_.as_deref(), Some("Normal"));
    }
}
