//! Writes, one after the other at a bounded rate; or, on a dry run, what would be written, in words.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use tokio::time::{sleep, timeout};
use zw_model::ServiceKey;

use crate::handover::ServicePatch;
use crate::input::{Service, Slice};
use crate::metrics::{Metrics, Verb};
use crate::objects::service_patch;
use crate::pack::{Content, SliceWrite, Target};
use crate::queue::Limiter;

/// How long one write may take: less than what is left to a leader that cannot renew.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of a write.
#[derive(Debug)]
pub(crate) enum Written {
    Slice(ServiceKey, Slice),
    Gone(Arc<str>),
    Service(Box<Service>, u64),
}

/// Why a write failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// Somebody else was faster; what the watches bring next tells more.
    #[error("cannot {verb} {what}: changed or gone meanwhile")]
    Outdated { verb: &'static str, what: String },
    #[error("cannot {verb} {what}: {message}")]
    Refused { verb: &'static str, what: String, message: String },
    #[error("cannot {verb} {what}: no answer in time")]
    Late { verb: &'static str, what: String },
}

/// Makes the object that is written from its content.
pub(crate) type Make = Box<dyn Fn(&Content, Option<&Target>) -> EndpointSlice + Send + Sync>;

/// Writes to the API server, or nowhere.
#[derive(Clone)]
pub(crate) struct Writer {
    client: Option<Client>,
    limiter: Arc<Mutex<Limiter>>,
    metrics: Arc<Metrics>,
}

impl Writer {
    pub(crate) fn new(client: Client, limiter: Limiter, metrics: Arc<Metrics>) -> Self {
        Self { client: Some(client), limiter: Arc::new(Mutex::new(limiter)), metrics }
    }

    /// One that only says what it would do.
    pub(crate) fn dry(metrics: Arc<Metrics>) -> Self {
        let limiter = Arc::new(Mutex::new(Limiter::new(u32::MAX, 1)));
        Self { client: None, limiter, metrics }
    }

    /// Writes slices in their order until one fails.
    pub(crate) async fn slices(
        &self,
        key: &ServiceKey,
        writes: Vec<SliceWrite>,
        make: Make,
    ) -> (Vec<Written>, Result<(), WriteError>) {
        let mut written = Vec::with_capacity(writes.len());
        for write in writes {
            match self.slice(key, write, &make).await {
                Ok(one) => written.extend(one),
                Err(error) => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }

    async fn slice(
        &self,
        key: &ServiceKey,
        write: SliceWrite,
        make: &Make,
    ) -> Result<Option<Written>, WriteError> {
        let Some(client) = &self.client else {
            say(&format!("{key}: {}", describe(&write)));
            return Ok(imagine(key, &write, make));
        };
        self.turn().await;
        let api: Api<EndpointSlice> = Api::namespaced(client.clone(), &key.namespace);
        let (name, post) = (|target: &Target| target.name.to_string(), PostParams::default());
        match write {
            SliceWrite::Create(content) => {
                let object = make(&content, None);
                let what = format!("a slice of {key}");
                let made = self.timed(Verb::Create, "create", &what, api.create(&post, &object));
                Ok(Slice::of(made.await?).map(|(key, slice)| Written::Slice(key, slice)))
            }
            SliceWrite::Update(target, content) => {
                let object = make(&content, Some(&target));
                let what = format!("slice {}/{}", key.namespace, target.name);
                let name = name(&target);
                let written = api.replace(&name, &post, &object);
                let made = self.timed(Verb::Update, "update", &what, written).await?;
                Ok(Slice::of(made).map(|(key, slice)| Written::Slice(key, slice)))
            }
            SliceWrite::Delete(target, _) => {
                let what = format!("slice {}/{}", key.namespace, target.name);
                let preconditions = Preconditions {
                    uid: Some(target.uid.clone()),
                    resource_version: Some(target.version.clone()),
                };
                let params =
                    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                let name = name(&target);
                let gone = self.timed(Verb::Delete, "delete", &what, api.delete(&name, &params));
                match gone.await {
                    Ok(_) => Ok(Some(Written::Gone(target.name))),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Patches a Service.
    pub(crate) async fn service(
        &self,
        service: &Service,
        patch: &ServicePatch,
    ) -> Result<Option<Written>, WriteError> {
        let Some(client) = &self.client else {
            say(&format!("{}: patch the Service: {}", service.key, marks(patch)));
            return Ok(Some(Written::Service(Box::new(service.patched(patch)), u64::MAX)));
        };
        self.turn().await;
        let api: Api<core::Service> = Api::namespaced(client.clone(), &service.key.namespace);
        let body = service_patch(service, patch);
        let (name, params) = (service.key.name.to_string(), PatchParams::default());
        let body = Patch::Merge(&body);
        let patched = api.patch(&name, &params, &body);
        let what = format!("Service {}", service.key);
        let made = self.timed(Verb::PatchService, "patch", &what, patched).await?;
        Ok(Service::of(made).map(|(service, version)| Written::Service(Box::new(service), version)))
    }

    /// Waits for this write's turn.
    async fn turn(&self) {
        let wait = self.limiter.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }

    async fn timed<T>(
        &self,
        kind: Verb,
        verb: &'static str,
        what: &str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, WriteError> {
        let began = Instant::now();
        let what = what.to_owned();
        match timeout(PATIENCE, request).await {
            Ok(Ok(done)) => {
                self.metrics.wrote(kind, began.elapsed());
                Ok(done)
            }
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                Err(WriteError::Outdated { verb, what })
            }
            Ok(Err(kube::Error::Api(status))) => {
                let message = format!("{} ({})", status.message, status.code);
                Err(WriteError::Refused { verb, what, message })
            }
            Ok(Err(error)) => Err(WriteError::Refused { verb, what, message: error.to_string() }),
            Err(_) => Err(WriteError::Late { verb, what }),
        }
    }
}

/// A line of the dry run. A closed pipe is the reader's wish.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// A write in words.
fn describe(write: &SliceWrite) -> String {
    let content = |content: &Content| {
        let zone = content
            .audience
            .as_deref()
            .map_or_else(|| "everyone".to_owned(), |z| format!("zone {z}"));
        format!("for {zone}, {}, {} endpoints", content.family, content.endpoints.len())
    };
    match write {
        SliceWrite::Create(new) => format!("create a slice {}", content(new)),
        SliceWrite::Update(target, new) => format!("update slice {} {}", target.name, content(new)),
        SliceWrite::Delete(target, _) => format!("delete slice {}", target.name),
    }
}

/// A patch in words.
fn marks(patch: &ServicePatch) -> String {
    let label = |(zone, labelled): (&Arc<str>, &bool)| {
        (format!("{}{zone}", crate::names::ZONE_PREFIX), labelled.then(|| "true".to_owned()))
    };
    let labels = patch.zones.iter().map(label);
    let annotations = patch.annotations.iter();
    let annotations = annotations.map(|(name, value)| ((*name).to_owned(), value.clone()));
    let mark = |(name, value): (String, Option<String>)| match value {
        Some(value) => format!("{name}={value:?}"),
        None => format!("no {name}"),
    };
    labels.chain(annotations).map(mark).collect::<Vec<_>>().join(", ")
}

/// What the API server would make of a write.
fn imagine(key: &ServiceKey, write: &SliceWrite, make: &Make) -> Option<Written> {
    let (content, target) = match write {
        SliceWrite::Create(content) => (content, None),
        SliceWrite::Update(target, content) => (content, Some(target)),
        SliceWrite::Delete(target, _) => return Some(Written::Gone(target.name.clone())),
    };
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut object = make(content, target);
    object.metadata.name.get_or_insert_with(|| format!("{}-new-{number}", key.name));
    // Later than anything the API server has said.
    object.metadata.resource_version = Some((u64::MAX / 2 + number).to_string());
    Slice::of(object).map(|(key, slice)| Written::Slice(key, slice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    #[test]
    fn a_dry_run_says_what_would_be_written() {
        let target = Target { name: "api-x".into(), uid: "u".into(), version: "1".into() };
        let content = Content {
            audience: Some("a".into()),
            family: zw_model::Family::V4,
            ports: crate::testing::http(),
            endpoints: Vec::new(),
        };
        assert_eq!(
            describe(&SliceWrite::Create(content.clone())),
            "create a slice for zone a, IPv4, 0 endpoints"
        );
        assert_eq!(
            describe(&SliceWrite::Update(target.clone(), content)),
            "update slice api-x for zone a, IPv4, 0 endpoints"
        );
        assert_eq!(describe(&SliceWrite::Delete(target, None)), "delete slice api-x");
        let patch = ServicePatch {
            zones: [("a".into(), true), ("b".into(), false)].into(),
            annotations: [(names::APPROACH, Some("Prefer".into()))].into(),
        };
        assert_eq!(
            marks(&patch),
            "zones.zoneward/a=\"true\", no zones.zoneward/b, zoneward/approach=\"Prefer\""
        );
    }
}
