//! The Kubernetes source: watches on the API server, each a task of its own that sends what it sees to
//! the one loop that owns the state.
//!
//! Owns the connection, the selections and their retries. Lists, bookmarks, resumption and relists are
//! `kube`'s watcher; which of several watches holds an object is [`crate::holders`]' business.

mod received;
mod wire;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::StreamExt;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::{Instrument, info, info_span, warn};

use crate::BadInput;
use crate::convert::ObjectId;
pub(crate) use received::{Received, Resource};
pub(crate) use wire::Wire;
use wire::{EndpointSlice, Node, Service, ServiceCidr};
use zw_controller::names::ZONE_PREFIX;

/// Neither label, so for everyone; slices of headless Services have nothing to program.
const UNLABELLED: &str = "!endpointslice.kubernetes.io/for-zone,!endpointslice.kubernetes.io/for-region,\
                          !service.kubernetes.io/headless";
const NOT_HEADLESS: &str = "!service.kubernetes.io/headless";

/// How many objects may wait for the loop; a watch that is ahead of it waits too.
const WAITING: usize = 256;

/// How many objects a page of a list has. A slice may have a thousand endpoints, and pages of several
/// lists are in memory at a time.
const PAGE: u32 = 200;

/// How long after a server said that it does not know a resource it is asked again: it may have been
/// upgraded.
const UNKNOWN_RESOURCE: Duration = Duration::from_secs(600);

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
#[expect(clippy::large_enum_variant, reason = "one at a time, and nearly all are the large one")]
pub(crate) enum StreamEvent {
    /// A list begins; what it does not contain is gone.
    Begin,
    Apply(Wire),
    Delete(ObjectId),
    /// The list is complete.
    Complete,
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
    client: Client,
    next: u32,
    tell: mpsc::Sender<Seen>,
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

/// Connects as a kubeconfig says, or as a pod's service account; to another address, if one is given. What
/// is received is counted.
pub(crate) async fn connect(
    kubeconfig: Option<&Path>,
    server: Option<&str>,
) -> anyhow::Result<(Client, Received)> {
    let mut config = match kubeconfig {
        Some(path) => {
            let unusable = || BadInput(format!("cannot use the kubeconfig {}", path.display()));
            let kubeconfig = Kubeconfig::read_from(path).with_context(unusable)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(kubeconfig, &options).await.with_context(unusable)?
        }
        // kube's errors tell their cause themselves.
        None => Config::incluster().map_err(|error| {
            BadInput(format!(
                "not in a cluster ({error}): give --kubeconfig FILE, or --state PATH to follow manifests"
            ))
        })?,
    };
    if let Some(server) = server {
        let wrong = || BadInput(format!("--master {server:?} is not a URL"));
        config.cluster_url = server.parse().with_context(wrong)?;
    }
    let received = Received::default();
    let client = ClientBuilder::try_from(config).context("cannot connect to the API server")?;
    Ok((client.with_layer(&received).build(), received))
}

impl Watches {
    pub(crate) fn new(client: Client) -> (Self, mpsc::Receiver<Seen>) {
        let (tell, seen) = mpsc::channel(WAITING);
        (Self { client, next: 0, tell }, seen)
    }

    /// This node alone.
    pub(crate) fn node(&mut self, name: &str) -> Watch {
        self.start::<Node>(selection().fields(&format!("metadata.name={name}")), Need::Always)
    }

    /// Every Service that has an address and no other proxy.
    pub(crate) fn services(&mut self) -> Watch {
        let config = selection()
            .labels("!service.kubernetes.io/service-proxy-name")
            .fields("spec.clusterIP!=None");
        self.start::<Service>(config, Need::Always)
    }

    /// Where Services' addresses come from. Servers before 1.33 do not know.
    pub(crate) fn service_cidrs(&mut self) -> Watch {
        self.start::<ServiceCidr>(selection(), Need::IfServed)
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
        let start =
            |labels: String| self.start::<EndpointSlice>(selection().labels(&labels), Need::Always);
        selections.into_iter().map(start).collect()
    }

    fn start<K>(&mut self, config: watcher::Config, need: Need) -> Watch
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Send
            + 'static,
        K: Into<Wire>,
    {
        let id = StreamId(self.next);
        self.next += 1;
        let plural = K::plural(&());
        let span = info_span!(
            "watch",
            kind = %plural,
            labels = config.label_selector.as_deref().unwrap_or_default(),
        );
        let api = Api::<K>::all(self.client.clone());
        let (tell, kind) = (self.tell.clone(), plural.into_owned());
        let task = tokio::spawn(
            async move {
                let mut events = watcher(api, config).default_backoff().boxed();
                let mut told_unknown = false;
                while let Some(event) = events.next().await {
                    let event = match event {
                        Ok(watcher::Event::Init) => StreamEvent::Begin,
                        Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                            StreamEvent::Apply(object.into())
                        }
                        Ok(watcher::Event::Delete(object)) => {
                            // An object without a name cannot come from an API server.
                            let wire: Wire = object.into();
                            let Some(id) = wire.into_id() else { continue };
                            StreamEvent::Delete(id)
                        }
                        Ok(watcher::Event::InitDone) => StreamEvent::Complete,
                        Err(error) if need == Need::IfServed && is_unknown(&error) => {
                            if !told_unknown {
                                info!("the API server does not know {kind}; going on without");
                                told_unknown = true;
                            } else {
                                tokio::time::sleep(UNKNOWN_RESOURCE).await;
                                continue;
                            }
                            // What it does not know it has none of.
                            StreamEvent::Complete
                        }
                        Err(error) => {
                            warn!(
                                error = describe(&error),
                                "cannot list or watch {kind}; trying again"
                            );
                            continue;
                        }
                    };
                    // Nobody listens only when the agent stops.
                    if tell.send(Seen { stream: id, event }).await.is_err() {
                        return;
                    }
                }
            }
            .instrument(span),
        );
        Watch { id, task: task.abort_handle() }
    }
}

/// What to ask for: everything.
fn selection() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

fn cause(error: &watcher::Error) -> Option<&kube::Error> {
    match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => Some(cause),
        _ => None,
    }
}

/// Whether the server has no such resource at all.
fn is_unknown(error: &watcher::Error) -> bool {
    matches!(cause(error), Some(kube::Error::Api(status)) if status.code == 404)
}

/// The API server's own words name the verb and the resource it refused.
fn describe(error: &watcher::Error) -> String {
    match cause(error) {
        Some(kube::Error::Api(status)) => format!("{} ({})", status.message, status.code),
        Some(cause) => with_causes(cause),
        None => with_causes(error),
    }
}

/// An error and why, each reason once: some tell their cause themselves, some leave it to be asked for.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.contains(&why) {
            text = format!("{text}: {why}");
        }
        cause = error.source();
    }
    text
}

/// Every object of the kinds that matter, once.
pub(crate) async fn list_all(client: Client) -> anyhow::Result<Vec<Wire>> {
    async fn list<K>(client: &Client) -> anyhow::Result<Vec<Wire>>
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Into<Wire>,
    {
        let listed = Api::<K>::all(client.clone()).list(&Default::default()).await;
        let listed = listed.with_context(|| format!("cannot list {}", K::plural(&())))?;
        Ok(listed.items.into_iter().map(Into::into).collect())
    }
    let mut objects = list::<Node>(&client).await?;
    objects.extend(list::<Service>(&client).await?);
    objects.extend(list::<EndpointSlice>(&client).await?);
    Ok(objects)
}

#[cfg(test)]
mod tests;
