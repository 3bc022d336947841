//! Events: what an operator should see on the Node or the Service, and not only in one agent's log.
//!
//! Never in anybody's way: a queue that drops what does not fit, one task that sends. One cause on one
//! object is sent at most once in ten minutes, however often it comes up; and what every node sees the
//! same, such as two Services that claim one address, is written by the first of them alone.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Service};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{ListParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};
use zw_model::ServiceKey;

/// How many may wait to be sent.
const WAITING: usize = 256;

/// How long the same cause on the same object is not told again.
const QUIET: Duration = Duration::from_secs(600);

/// How many causes are remembered.
const REMEMBERED: usize = 10_000;

/// How long one request may take, how often it is tried, and the pause between.
const PATIENCE: Duration = Duration::from_secs(10);
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(2);

/// The API's limits for an Event's text and for who wrote it, and how much of an object's name leaves
/// room for a number.
const LONGEST_NOTE: usize = 1024;
const LONGEST_INSTANCE: usize = 128;
const LONGEST_NAME: usize = 200;

/// What an Event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum About {
    /// This one.
    Node,
    Service(ServiceKey),
}

/// Why there is an Event, in the words that people filter by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reason {
    Starting,
    FailedToStartProxierHealthcheck,
    FailedToStartMetricServer,
    FailedToStartServiceHealthcheck,
    /// Sysctls that the configuration asks for could not be set.
    KernelSettingsRefused,
    /// Two Services claim one address and port.
    AddressInUse,
    /// The kernel does not take what this Service needs.
    RulesRefused,
    /// Somebody else has a virtual server of IPVS at one of its addresses and ports.
    VirtualServerInUse,
    /// The kernel does not have the scheduler it asks for.
    SchedulerMissing,
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "Starting",
            Self::FailedToStartProxierHealthcheck => "FailedToStartProxierHealthcheck",
            Self::FailedToStartMetricServer => "FailedToStartMetricServer",
            Self::FailedToStartServiceHealthcheck => "FailedToStartServiceHealthcheck",
            Self::KernelSettingsRefused => "KernelSettingsRefused",
            Self::AddressInUse => "AddressInUse",
            Self::RulesRefused => "RulesRefused",
            Self::VirtualServerInUse => "VirtualServerInUse",
            Self::SchedulerMissing => "SchedulerMissing",
        }
    }

    fn kind(self) -> &'static str {
        if self == Self::Starting { "Normal" } else { "Warning" }
    }

    /// Whether every node sees it the same.
    fn is_common(self) -> bool {
        self == Self::AddressInUse
    }

    /// What was being done.
    fn action(self) -> &'static str {
        match self {
            Self::Starting
            | Self::FailedToStartProxierHealthcheck
            | Self::FailedToStartMetricServer
            | Self::KernelSettingsRefused => "StartZoneward",
            Self::FailedToStartServiceHealthcheck => "Listen",
            Self::AddressInUse
            | Self::RulesRefused
            | Self::VirtualServerInUse
            | Self::SchedulerMissing => "Program",
        }
    }
}

#[derive(Debug)]
struct Note {
    about: About,
    reason: Reason,
    message: String,
}

/// Takes Events from anywhere, at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events {
    /// None without a cluster.
    queue: Option<mpsc::Sender<Note>>,
}

impl Events {
    /// Starts to send, in the current runtime.
    pub(crate) fn start(client: Client, node_name: &str) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        let sender = Sender { client, node_name: node_name.to_owned(), forbidden: false };
        tokio::spawn(sender.work(waiting));
        Self { queue: Some(queue) }
    }

    /// For tests: nothing is sent. What was told, in order, is taken from the second.
    #[cfg(test)]
    pub(crate) fn kept() -> (Self, impl FnMut() -> Vec<String>) {
        let (queue, mut waiting) = mpsc::channel(WAITING);
        let text = |note: Note| match note.about {
            About::Node => format!("node {}: {}", note.reason.as_str(), note.message),
            About::Service(key) => format!("{key} {}: {}", note.reason.as_str(), note.message),
        };
        let taken = move || std::iter::from_fn(|| waiting.try_recv().ok()).map(text).collect();
        (Self { queue: Some(queue) }, taken)
    }

    /// Tells something about this node.
    pub(crate) fn node(&self, reason: Reason, message: String) {
        self.put(Note { about: About::Node, reason, message });
    }

    /// Tells something about a Service.
    pub(crate) fn service(&self, service: &ServiceKey, reason: Reason, message: String) {
        self.put(Note { about: About::Service(service.clone()), reason, message });
    }

    fn put(&self, note: Note) {
        if let Some(queue) = &self.queue
            && let Err(error) = queue.try_send(note)
        {
            debug!(%error, "an Event is not sent");
        }
    }
}

/// What has been told, and when.
#[derive(Debug, Default)]
struct Told(HashMap<(About, Reason), Instant>);

impl Told {
    /// Whether it is time to tell this; if so, it counts as told.
    fn is_news(&mut self, about: &About, reason: Reason, now: Instant) -> bool {
        let recent = |at: &Instant| now.saturating_duration_since(*at) < QUIET;
        let key = (about.clone(), reason);
        if self.0.get(&key).is_some_and(recent) {
            return false;
        }
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, at| recent(at));
            if self.0.len() >= REMEMBERED {
                self.0.clear();
            }
        }
        self.0.insert(key, now);
        true
    }
}

struct Sender {
    client: Client,
    node_name: String,
    /// The API server said so, and it was told.
    forbidden: bool,
}

impl Sender {
    async fn work(mut self, mut waiting: mpsc::Receiver<Note>) {
        let mut told = Told::default();
        while let Some(note) = waiting.recv().await {
            if told.is_news(&note.about, note.reason, Instant::now()) {
                self.send(&note).await;
            }
        }
    }

    async fn send(&mut self, note: &Note) {
        for attempt in 1..=TRIES {
            let outcome = timeout(PATIENCE, self.publish(note)).await;
            let error = match outcome {
                Ok(Ok(())) => return,
                Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                    if !std::mem::replace(&mut self.forbidden, true) {
                        warn!(error = status.message, "Events cannot be written");
                    }
                    return;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            if attempt == TRIES {
                warn!(error, reason = note.reason.as_str(), "an Event was not written");
            } else {
                sleep(PAUSE).await;
            }
        }
    }

    async fn publish(&self, note: &Note) -> Result<(), kube::Error> {
        let regarding = self.reference(&note.about).await?;
        let now = Timestamp::now();
        let name = regarding.name.as_deref().unwrap_or_default();
        let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".into());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(event_name(name, note, &self.node_name, now)),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(note.reason.kind().into()),
            reason: Some(note.reason.as_str().into()),
            action: Some(note.reason.action().into()),
            note: Some(cut(&note.message, LONGEST_NOTE).to_owned()),
            regarding: Some(regarding),
            reporting_controller: Some("zoneward".into()),
            reporting_instance: Some(cut(&self.node_name, LONGEST_INSTANCE).to_owned()),
            ..Event::default()
        };
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        match events.create(&PostParams::default(), &event).await {
            // Another node was first.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// With the object's uid, without which `kubectl describe` does not show the Event.
    async fn reference(&self, about: &About) -> Result<ObjectReference, kube::Error> {
        let named = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
        let (kind, namespace, name, found) = match about {
            About::Node => {
                let nodes: Api<PartialObjectMeta<Node>> = Api::all(self.client.clone());
                let found = nodes.list_metadata(&named(&self.node_name)).await?;
                let found = found.items.into_iter().next().map(|node| node.metadata);
                ("Node", None, self.node_name.as_str(), found)
            }
            About::Service(key) => {
                let services: Api<PartialObjectMeta<Service>> =
                    Api::namespaced(self.client.clone(), &key.namespace);
                let found = services.list_metadata(&named(&key.name)).await?;
                let found = found.items.into_iter().next().map(|service| service.metadata);
                ("Service", Some(key.namespace.to_string()), &*key.name, found)
            }
        };
        let ObjectMeta { uid, .. } = found.unwrap_or_default();
        Ok(ObjectReference {
            api_version: Some("v1".into()),
            kind: Some(kind.into()),
            name: Some(name.to_owned()),
            namespace,
            uid,
            ..ObjectReference::default()
        })
    }
}

/// The same on every node within ten minutes for what is common to all, and unlike any other's else.
fn event_name(object: &str, note: &Note, node_name: &str, now: Timestamp) -> String {
    let mut hash = DefaultHasher::new();
    (note.reason, &note.message).hash(&mut hash);
    if note.reason.is_common() {
        (now.as_second() / QUIET.as_secs().cast_signed()).hash(&mut hash);
    } else {
        (node_name, now.as_nanosecond()).hash(&mut hash);
    }
    format!("{}.{:016x}", cut(object, LONGEST_NAME), hash.finish())
}

fn cut(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use zw_model::ServiceKey;

    use super::{About, Events, Note, REMEMBERED, Reason, Told, event_name};

    fn service(name: &str) -> About {
        About::Service(ServiceKey { namespace: "web".into(), name: name.into() })
    }

    #[test]
    fn one_cause_on_one_object_is_told_once_in_ten_minutes() {
        let (mut told, start) = (Told::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(told.is_news(&service("api"), Reason::AddressInUse, at(0)));
        assert!(!told.is_news(&service("api"), Reason::AddressInUse, at(599)));
        assert!(told.is_news(&service("api"), Reason::RulesRefused, at(1)));
        assert!(told.is_news(&service("other"), Reason::AddressInUse, at(1)));
        assert!(told.is_news(&service("api"), Reason::AddressInUse, at(600)));
        assert!(!told.is_news(&service("api"), Reason::AddressInUse, at(1199)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut told, start) = (Told::default(), Instant::now());
        for i in 0..3 * REMEMBERED {
            assert!(told.is_news(&service(&i.to_string()), Reason::AddressInUse, start));
            assert!(told.0.len() <= REMEMBERED);
        }
    }

    #[test]
    fn what_every_node_sees_has_one_name_and_everything_else_its_own() {
        let at = |seconds: i64| jiff::Timestamp::from_second(seconds).unwrap();
        let name = |reason, message: &str, node: &str, seconds| {
            let note = Note { about: service("api"), reason, message: message.into() };
            event_name("api", &note, node, at(seconds))
        };
        let first = name(Reason::AddressInUse, "x", "node-1", 1200);
        assert_eq!(name(Reason::AddressInUse, "x", "node-2", 1799), first);
        assert_ne!(name(Reason::AddressInUse, "x", "node-1", 1800), first);
        assert_ne!(name(Reason::AddressInUse, "y", "node-1", 1200), first);
        let refused = name(Reason::RulesRefused, "x", "node-1", 1200);
        assert_ne!(name(Reason::RulesRefused, "x", "node-2", 1200), refused);
        assert_ne!(name(Reason::RulesRefused, "x", "node-1", 1201), refused);
        assert!(
            event_name(
                &"a".repeat(253),
                &Note { about: About::Node, reason: Reason::Starting, message: String::new() },
                "n",
                at(0)
            )
            .len()
                <= 253
        );
    }

    #[test]
    fn without_a_cluster_nothing_is_sent_and_nothing_fails() {
        Events::default().node(Reason::Starting, String::new());
    }
}
