//! What the rest of the agent reports of itself, and the servers tell: one handle for health, readiness,
//! metrics and events. Here the clock is read; the rules are in the modules it joins.

pub(crate) mod recent;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;
use zw_dataplane::WriteError;
use zw_model::{Family, ServiceKey};

use crate::config::Config;
use crate::convert::Kind;
use crate::events::{Events, Reason};
use crate::health::{Health, NodeState, Now};
use crate::metrics::{Code, Metrics, Rejected, Stage, SyncReport};
use crate::ready::{Blocker, Ready};
use recent::Recent;

/// The handle; shared by the sync loop, the sources and the servers.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) metrics: Metrics,
    pub(crate) events: Events,
    pub(crate) recent: Recent,
    started: Instant,
    health: Mutex<Health>,
    ready: Mutex<Ready>,
    config: Mutex<Value>,
    refused: Mutex<BTreeMap<ServiceKey, String>>,
}

impl Status {
    pub(crate) fn new(config: &Config, events: Events) -> Self {
        Self {
            metrics: Metrics::new(),
            events,
            recent: Recent::default(),
            started: Instant::now(),
            health: Mutex::new(Health::new(config.sync_period)),
            ready: Mutex::default(),
            config: Mutex::new(config.show()),
            refused: Mutex::default(),
        }
    }

    /// Another configuration is in force.
    pub(crate) fn configured(&self, config: &Config) {
        lock(&self.health).sync_period = config.sync_period;
        *lock(&self.config) = config.show();
    }

    /// What the Node object says.
    pub(crate) fn node(&self, state: NodeState) {
        lock(&self.health).node = state;
    }

    /// The sources have not said everything yet.
    pub(crate) fn wait_for(&self, blockers: Vec<Blocker>) {
        lock(&self.ready).wait_for(blockers);
    }

    /// The sources have said everything for the first time.
    pub(crate) fn listed(&self) {
        self.wait_for(Vec::new());
        self.metrics.stage(Stage::List, self.started.elapsed());
    }

    /// This many objects came, changed or went.
    pub(crate) fn changed(&self, services: u64, slices: u64) {
        self.metrics.changed(services, slices);
    }

    /// Something waits to be written.
    pub(crate) fn queued(&self) {
        let now = Now::read();
        for family in Family::BOTH {
            lock(&self.health).queued(family, now);
        }
        self.metrics.queued(now.wall);
    }

    /// Everything that waited is in the kernel.
    pub(crate) fn synced(&self, report: &SyncReport) {
        let now = Now::read();
        for family in Family::BOTH {
            lock(&self.health).written(family, now);
        }
        self.metrics.synced(report, now.wall);
        self.recent.synced(report);
        if lock(&self.ready).synced() {
            self.metrics.ready_after(self.started.elapsed());
        }
    }

    /// A sync failed.
    pub(crate) fn sync_failed(&self, error: &WriteError) {
        let refused = matches!(error, WriteError::Refused { .. }) && !error.is_permission();
        self.metrics.sync_failed(refused);
        self.recent.failed(chain(error));
        lock(&self.ready).failed(chain(error));
    }

    /// The kernel refuses a part of this Service's rules, so it has none until it changes.
    pub(crate) fn set_aside(&self, service: &ServiceKey, error: &WriteError) {
        let message = format!("not programmed on this node: {}", chain(error));
        self.events.service(service, Reason::RulesRefused, message);
        self.recent.complain(format!("{service}: {}", chain(error)));
        let mut refused = lock(&self.refused);
        refused.insert(service.clone(), chain(error));
        self.metrics.set_aside(refused.len());
    }

    /// Whether the kernel refuses a part of this Service's rules.
    pub(crate) fn is_set_aside(&self, service: &ServiceKey) -> bool {
        lock(&self.refused).contains_key(service)
    }

    /// This Service is no longer set aside.
    pub(crate) fn taken_up(&self, service: &ServiceKey) {
        let mut refused = lock(&self.refused);
        if refused.remove(service).is_some() {
            self.metrics.set_aside(refused.len());
        }
    }

    /// The Services whose rules the kernel refuses, and why.
    pub(crate) fn refused(&self) -> BTreeMap<ServiceKey, String> {
        lock(&self.refused).clone()
    }

    /// The kernel was asked, or has answered. If it does not for long, the agent is not healthy.
    pub(crate) fn kernel_asked(&self, asked: bool) {
        lock(&self.health).asked = asked.then(Instant::now);
    }

    /// What waited turned out to change nothing.
    pub(crate) fn settled(&self) {
        let now = Now::read();
        for family in Family::BOTH {
            lock(&self.health).written(family, now);
        }
    }

    /// Whether changes reach the kernel in time.
    pub(crate) fn is_live(&self) -> bool {
        lock(&self.health).is_live(Now::read())
    }

    /// At least a part of an object could not be used.
    pub(crate) fn rejected(&self, kind: Kind) {
        self.metrics.rejected(match kind {
            Kind::Service => Rejected::Service,
            Kind::EndpointSlice => Rejected::EndpointSlice,
            Kind::Node => Rejected::Node,
            Kind::ServiceCidr => Rejected::ServiceCidr,
        });
    }

    /// `/healthz`: whether all is well, and the body.
    pub(crate) fn healthz(&self) -> (bool, String) {
        let (healthy, answer) = lock(&self.health).healthz(Now::read());
        self.metrics.healthz(code(healthy));
        (healthy, serde_json::to_string(&answer).unwrap_or_default())
    }

    /// `/livez`.
    pub(crate) fn livez(&self) -> (bool, String) {
        let (healthy, answer) = lock(&self.health).livez(Now::read());
        self.metrics.livez(code(healthy));
        (healthy, serde_json::to_string(&answer).unwrap_or_default())
    }

    /// What stands in the way of being ready, one line each.
    pub(crate) fn blockers(&self) -> Vec<String> {
        lock(&self.ready).blockers()
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Value {
        lock(&self.config).clone()
    }
}

fn code(healthy: bool) -> Code {
    if healthy { Code::Ok } else { Code::Unavailable }
}

/// Nobody leaves these half changed, so a panic elsewhere is no reason to stop answering.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error with its causes, on one line.
fn chain(error: &WriteError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
