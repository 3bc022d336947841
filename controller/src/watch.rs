//! Watches: what the API server says, as plain types, in one channel.
//!
//! Lists, bookmarks, resumption and relists are `kube`'s watcher. Every object is decoded by itself, so
//! one that cannot be read costs itself and not the list.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tracing::{Instrument, info_span, warn};
use zw_model::ServiceKey;

use crate::input::{Node, Service, Slice};
use crate::mirror::Mirrored;

/// How many objects may wait; a watch that is ahead waits too.
const WAITING: usize = 1024;

/// How many objects a page of a list has.
const PAGE: u32 = 200;

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Services,
    Slices,
    Nodes,
    Endpoints,
}

/// An object's namespace, empty for those without, and name.
pub(crate) type Name = (Arc<str>, Arc<str>);

/// What a watch saw.
#[derive(Debug)]
pub(crate) enum Seen {
    Service(Service, u64),
    Slice(ServiceKey, Slice),
    Node(Node, u64),
    Endpoints(Mirrored, u64),
    /// It is gone, or nothing that matters any more.
    Gone(Kind, Name),
    /// A list is complete, and these are all.
    Listed(Kind, HashSet<Name>),
}

/// One kind of object as something that matters.
trait Watched: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static {
    const KIND: Kind;

    /// `None` if it does not matter.
    fn seen(self) -> Option<Seen>;
}

impl Watched for core::Service {
    const KIND: Kind = Kind::Services;

    fn seen(self) -> Option<Seen> {
        Service::of(self).map(|(service, version)| Seen::Service(service, version))
    }
}

impl Watched for EndpointSlice {
    const KIND: Kind = Kind::Slices;

    fn seen(self) -> Option<Seen> {
        Slice::of(self).map(|(key, slice)| Seen::Slice(key, slice))
    }
}

impl Watched for core::Node {
    const KIND: Kind = Kind::Nodes;

    fn seen(self) -> Option<Seen> {
        Node::of(self).map(|(node, version)| Seen::Node(node, version))
    }
}

impl Watched for core::Endpoints {
    const KIND: Kind = Kind::Endpoints;

    fn seen(self) -> Option<Seen> {
        Mirrored::of(self).map(|(endpoints, version)| Seen::Endpoints(endpoints, version))
    }
}

/// An object that is decoded where it stands; decoding it never fails.
#[derive(Debug, Clone)]
struct Lenient<K> {
    meta: ObjectMeta,
    content: Result<K, String>,
}

impl<K: Resource<DynamicType = ()>> Resource for Lenient<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

impl<'de, K: DeserializeOwned + Resource> Deserialize<'de> for Lenient<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Named {
            metadata: Option<ObjectMeta>,
        }
        let json = <&RawValue>::deserialize(deserializer)?.get();
        let named: Named = serde_json::from_str(json).unwrap_or_default();
        // The watcher needs the version to resume from, we the name.
        let all = named.metadata.unwrap_or_default();
        let meta = ObjectMeta {
            name: all.name,
            namespace: all.namespace,
            resource_version: all.resource_version,
            ..ObjectMeta::default()
        };
        let content =
            serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(json))
                .map_err(|error| error.to_string());
        Ok(Self { meta, content })
    }
}

impl<K> Lenient<K> {
    fn name(&self) -> Name {
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        (text(&self.meta.namespace), text(&self.meta.name))
    }
}

/// Starts the watches in the current runtime; they end with the receiver.
pub(crate) fn start(client: &Client, mirror: bool) -> mpsc::Receiver<Seen> {
    let (tell, seen) = mpsc::channel(WAITING);
    let everything = || watcher::Config::default().page_size(PAGE);
    spawn::<core::Service>(client, everything(), tell.clone());
    // Those of headless Services are never divided. Mirrored ones carry whatever labels their Endpoints
    // have, also this one, and must all be known.
    let slices =
        if mirror { everything() } else { everything().labels("!service.kubernetes.io/headless") };
    spawn::<EndpointSlice>(client, slices, tell.clone());
    spawn::<core::Node>(client, everything(), tell.clone());
    if mirror {
        spawn::<core::Endpoints>(client, everything(), tell);
    }
    seen
}

fn spawn<K: Watched>(client: &Client, config: watcher::Config, tell: mpsc::Sender<Seen>)
where
    K::Scope: 'static,
{
    let plural = K::plural(&()).into_owned();
    let span = info_span!("watch", kind = plural);
    let api = Api::<Lenient<K>>::all(client.clone());
    let work = async move {
        let mut events = watcher(api, config).default_backoff().boxed();
        let mut listed: Option<HashSet<Name>> = None;
        while let Some(event) = events.next().await {
            let seen = match event {
                Ok(watcher::Event::Init) => {
                    listed = Some(HashSet::new());
                    continue;
                }
                Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                    let name = object.name();
                    let seen = match object.content {
                        Ok(content) => content.seen(),
                        Err(error) => {
                            warn!(
                                object = format!("{}/{}", name.0, name.1),
                                "cannot be read: {error}"
                            );
                            None
                        }
                    };
                    let matters = seen.is_some();
                    if let (Some(listed), true) = (&mut listed, matters) {
                        listed.insert(name.clone());
                    }
                    seen.unwrap_or(Seen::Gone(K::KIND, name))
                }
                Ok(watcher::Event::Delete(object)) => Seen::Gone(K::KIND, object.name()),
                Ok(watcher::Event::InitDone) => {
                    Seen::Listed(K::KIND, listed.take().unwrap_or_default())
                }
                Err(error) => {
                    warn!(error = describe(&error), "cannot list or watch {plural}; trying again");
                    continue;
                }
            };
            // Nobody listens only when the controller stops.
            if tell.send(seen).await.is_err() {
                return;
            }
        }
    };
    tokio::spawn(work.instrument(span));
}

/// The API server's own words name the verb and the resource it refused.
fn describe(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => {
            format!("{} ({})", status.message, status.code)
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectList;

    use super::*;

    #[test]
    fn an_odd_object_costs_itself_and_not_the_list() {
        let list = r#"{"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"},
            "items": [
                {"metadata": {"name": "a", "namespace": "web", "resourceVersion": "7"},
                 "spec": {"clusterIP": "10.96.0.1"}},
                {"metadata": {"name": "b", "namespace": "web", "resourceVersion": "8"},
                 "spec": {"ports": "none"}}
            ]}"#;
        let list: ObjectList<Lenient<core::Service>> = serde_json::from_str(list).unwrap();
        let [good, odd] = &list.items[..] else { panic!("two objects") };
        assert!(matches!(good.content.clone().unwrap().seen(), Some(Seen::Service(_, 7))));
        let error = odd.content.clone().unwrap_err();
        assert!(error.starts_with("spec.ports: invalid type: string"), "{error}");
        assert_eq!(odd.name(), ("web".into(), "b".into()));
        assert_eq!(odd.meta.resource_version.as_deref(), Some("8"), "to resume from");
    }
}
