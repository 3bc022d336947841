//! One Service: what it needs is planned, told and handed to a writer; what was written is taken in.

use std::pin::Pin;
use std::time::Instant;

use tracing::{debug, info};
use zw_model::ServiceKey;

use super::Controller;
use crate::approach::{Approach, Why};
use crate::events::{About, Note, Reason};
use crate::handover::{ServicePatch, Step};
use crate::input::{Role, Service};
use crate::mirror::{MOST, mirror};
use crate::names;
use crate::objects::group_slice;
use crate::pack::{Content, SliceWrite, Target};
use crate::plan::{Outcome, View, plan};
use crate::write::{Make, WriteError, Written, say};

/// Writes under way for one Service.
pub(super) type Work = Pin<Box<dyn Future<Output = Finished> + Send>>;

/// What became of them.
pub(super) struct Finished {
    pub(super) key: ServiceKey,
    written: Vec<Written>,
    pub(super) outcome: Result<(), WriteError>,
    /// What to tell if all went well.
    note: Option<Note>,
}

impl Controller {
    /// Plans the next step of a Service and starts it.
    pub(super) fn sync(&mut self, key: ServiceKey, now: Instant) {
        if self.config.mirror && self.sync_mirror(&key) {
            return;
        }
        let settled = self.settling.get(&key);
        let settled = settled.filter(|(_, since)| now.duration_since(*since) >= self.config.settle);
        let settled = settled.map(|(what, _)| what.clone());
        let view = View {
            service: self.store.service(&key),
            slices: self.store.slices(&key),
            zones: self.store.zones(),
            nodes: self.store.nodes(),
            settings: &self.config.settings,
            settled: settled.as_deref(),
        };
        let began = Instant::now();
        let outcome = plan(view, &mut self.divider);
        self.metrics.planned(began.elapsed());
        self.count(&key, &outcome);
        self.complain(&key, &outcome);
        match &outcome.step {
            Step::Done => self.rest(&key),
            Step::Await => {
                if self.config.dry_run {
                    say(&format!(
                        "{key}: then, when the default slices are back, delete its groups"
                    ));
                }
                debug!(svc = %key, "waiting for the default slices to come back");
                self.queue.done(&key);
            }
            Step::Settle(what) => self.settle(key, what.clone(), now),
            Step::Service(patch) => self.start_patch(key, &outcome, patch.clone()),
            Step::Slices(writes) => {
                self.metrics.synced(outcome.approach, writes.len(), outcome.reallocated);
                debug!(
                    svc = %key, writes = writes.len(), reallocated = outcome.reallocated,
                    approach = %outcome.approach, "writing slices"
                );
                let make = self.group_maker(&key);
                self.start_slices(key, writes.clone(), make);
            }
        }
    }

    /// Nothing is left to do.
    fn rest(&mut self, key: &ServiceKey) {
        self.settling.remove(key);
        if self.store.service(key).is_none() {
            self.triggers.remove(key);
        }
        self.queue.done(key);
    }

    fn settle(&mut self, key: ServiceKey, what: String, now: Instant) {
        let entry = self.settling.entry(key.clone()).or_insert_with(|| (what.clone(), now));
        if entry.0 != what {
            *entry = (what, now);
        }
        let when = entry.1 + self.config.settle;
        self.queue.done(&key);
        self.queue.add(&key, when.max(now));
    }

    fn start_patch(&mut self, key: ServiceKey, outcome: &Outcome, patch: ServicePatch) {
        let Some(service) = self.store.service(&key).cloned() else { return self.rest(&key) };
        self.settling.remove(&key);
        let note = transition(&service, outcome, &patch);
        info!(
            svc = %key, approach = %outcome.approach, why = %outcome.why,
            endpoints = outcome.size.endpoints, zones = outcome.size.zones, "marking the Service"
        );
        let writer = self.writer.clone();
        self.running.push(Box::pin(async move {
            match writer.service(&service, &patch).await {
                Ok(written) => {
                    Finished { key, written: written.into_iter().collect(), outcome: Ok(()), note }
                }
                Err(error) => {
                    Finished { key, written: Vec::new(), outcome: Err(error), note: None }
                }
            }
        }));
    }

    fn start_slices(&mut self, key: ServiceKey, writes: Vec<SliceWrite>, make: Make) {
        let writer = self.writer.clone();
        self.running.push(Box::pin(async move {
            let (written, outcome) = writer.slices(&key, writes, make).await;
            Finished { key, written, outcome, note: None }
        }));
    }

    /// Makes a group's slices, with the time of what led to them. A time that was written already led
    /// to something else: agents would take it for an endless delay.
    fn group_maker(&mut self, key: &ServiceKey) -> Make {
        let slices = self.store.slices(key);
        let newest =
            slices.iter().filter(|slice| slice.is_source()).filter_map(|s| s.trigger.clone());
        let newest = newest.max();
        let groups = slices.iter().filter(|slice| matches!(slice.role, Role::Group(_)));
        let written = self.triggers.get(key).cloned();
        let written = written.or_else(|| groups.filter_map(|slice| slice.trigger.clone()).max());
        let trigger =
            newest.filter(|newest| written.as_ref().is_none_or(|written| newest > written));
        if let Some(trigger) = &trigger {
            self.triggers.insert(key.clone(), trigger.clone());
        }
        // Only deletes remain for a Service that is gone, and those make nothing.
        let service = self.store.service(key).cloned().unwrap_or_else(|| Service::gone(key));
        Box::new(move |content: &Content, target: Option<&Target>| {
            group_slice(&service, content, trigger.as_deref(), target)
        })
    }

    /// Mirrors Endpoints; false if there is nothing to write.
    fn sync_mirror(&mut self, key: &ServiceKey) -> bool {
        let (endpoints, service) = (self.store.endpoints(key), self.store.service(key));
        let writes = mirror(endpoints, service, self.store.slices(key));
        if writes.is_empty() {
            return false;
        }
        let Some(endpoints) = endpoints.cloned() else {
            // Nothing but deletes.
            let make = self.group_maker(key);
            self.start_slices(key.clone(), writes, make);
            return true;
        };
        let about = About { kind: "Endpoints", key: key.clone(), uid: endpoints.uid.clone() };
        if endpoints.invalid > 0 {
            let text = format!(
                "Skipped {} invalid IP addresses when mirroring to EndpointSlices",
                endpoints.invalid
            );
            self.events.put(Note { about: about.clone(), reason: Reason::InvalidIPAddress, text });
        }
        if endpoints.too_many > 0 {
            let text = format!(
                "A max of {MOST} addresses can be mirrored to EndpointSlices per Endpoints subset. {} \
                 addresses were skipped",
                endpoints.too_many
            );
            self.events.put(Note { about, reason: Reason::TooManyAddressesToMirror, text });
        }
        let make: Make = Box::new(move |content, target| endpoints.slice(content, target));
        self.start_slices(key.clone(), writes, make);
        true
    }

    /// Takes in what was written, before the watches say it.
    pub(super) fn record(&mut self, finished: &Finished) {
        for written in &finished.written {
            match written {
                Written::Slice(key, slice) => {
                    self.store.apply_slice(key.clone(), slice.clone());
                }
                Written::Gone(name) => {
                    self.store.delete_slice(&finished.key.namespace, name);
                }
                Written::Service(service, version) => {
                    self.store.apply_service((**service).clone(), *version);
                }
            }
        }
        if let Some(note) = &finished.note {
            info!(svc = %finished.key, "{}", note.text);
            self.events.put(note.clone());
        }
    }

    fn complain(&mut self, key: &ServiceKey, outcome: &Outcome) {
        let Some(service) = self.store.service(key) else { return };
        for ignored in &outcome.ignored {
            let text = format!(
                "{} is ignored and the default holds: {}",
                ignored.annotation, ignored.message
            );
            let note = Note { about: about(service), reason: Reason::InvalidAnnotation, text };
            self.events.put(note);
        }
    }

    /// Keeps the sums over all Services by what changed of this one.
    fn count(&mut self, key: &ServiceKey, outcome: &Outcome) {
        let asks = |service: &Service| Approach::asked_by(service) != Approach::Balanced;
        let now = self
            .store
            .service(key)
            .filter(|service| asks(service))
            .map(|service| (Approach::in_force(service), outcome.endpoints as i64));
        let before = match now {
            Some(now) => self.counted.insert(key.clone(), now),
            None => self.counted.remove(key),
        };
        if let Some((approach, endpoints)) = before {
            self.metrics.counts(approach, -1);
            self.metrics.endpoints(-endpoints);
        }
        if let Some((approach, endpoints)) = now {
            self.metrics.counts(approach, 1);
            self.metrics.endpoints(endpoints);
        }
    }
}

fn about(service: &Service) -> About {
    About { kind: "Service", key: service.key.clone(), uid: service.uid.clone() }
}

/// The Event for an approach that starts, stops or has to give way; none if it only gets a new reason.
fn transition(service: &Service, outcome: &Outcome, patch: &ServicePatch) -> Option<Note> {
    let was = Approach::in_force(service);
    let asked = Approach::asked_by(service);
    let size =
        format!("{} ready endpoints in {} zones", outcome.size.endpoints, outcome.size.zones);
    let note = |reason, text| Some(Note { about: about(service), reason, text });
    match (was, outcome.approach) {
        _ if !patch.annotations.contains_key(names::APPROACH) => None,
        (Approach::Balanced, Approach::Balanced) => None,
        (_, Approach::Balanced) if asked == Approach::Balanced => {
            note(Reason::ApproachStopped, format!("{was} stops: no longer asked for; {size}"))
        }
        (_, Approach::Balanced) => {
            let text = format!("{was} gives way to Balanced: {}; {size}", outcome.why);
            let reason = match outcome.why {
                Why::TooFew { .. } => Reason::ApproachStopped,
                _ => Reason::ApproachDowngraded,
            };
            note(reason, text)
        }
        (_, now) => note(Reason::ApproachStarted, format!("{now} starts: {size}")),
    }
}
