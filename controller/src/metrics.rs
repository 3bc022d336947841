//! What the controller counts, under the names of the topology document where it has them and as
//! `zoneward_controller_*` where it does not. Nothing here decides anything.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::approach::Approach;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApproachLabel {
    approach: Approach,
}

impl EncodeLabelValue for Approach {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.name().encode(encoder)
    }
}

/// What a write does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Create,
    Update,
    Delete,
    PatchService,
}

impl EncodeLabelValue for Verb {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        let name = match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::PatchService => "patch-service",
        };
        name.encode(encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabel {
    verb: Verb,
}

type Histograms = Family<ApproachLabel, Histogram, fn() -> Histogram>;

/// Every metric. Cheap to report to from anywhere.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    changes: Histograms,
    reallocated: Histogram,
    total_endpoints: Gauge,
    services: Family<ApproachLabel, Gauge>,
    queue: Gauge,
    syncs: Histogram,
    failures: Counter,
    writes: Family<VerbLabel, Counter>,
    write_seconds: Histogram,
    leader: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at 0.
    pub fn new() -> Self {
        let few = || Histogram::new(exponential_buckets(1.0, 2.0, 10));
        let metrics = Self {
            registry: Registry::default(),
            changes: Family::new_with_constructor(
                (|| Histogram::new(exponential_buckets(1.0, 2.0, 10))) as fn() -> Histogram,
            ),
            reallocated: few(),
            total_endpoints: Gauge::default(),
            services: Family::default(),
            queue: Gauge::default(),
            syncs: Histogram::new(exponential_buckets(0.000_1, 4.0, 10)),
            failures: Counter::default(),
            writes: Family::default(),
            write_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            leader: Gauge::default(),
        };
        metrics.registered()
    }

    fn registered(mut self) -> Self {
        let all = &mut self.registry;
        all.register(
            "endpoint_slice_controller_changes_endpointslices_per_sync",
            "Number of EndpointSlices be changed on each Service sync",
            self.changes.clone(),
        );
        all.register(
            "endpoint_slice_controller_reallocated_endpoints_per_sync",
            "Number of endpoints being reallocated to other zones on each Service sync",
            self.reallocated.clone(),
        );
        all.register(
            "endpoint_slice_controller_total_endpoints",
            "Number of endpoints of the Services that ask for an approach",
            self.total_endpoints.clone(),
        );
        all.register(
            "zoneward_controller_services",
            "Services that ask for an approach, by the one in force",
            self.services.clone(),
        );
        all.register(
            "zoneward_controller_queue_depth",
            "Services that wait for a sync or are in one",
            self.queue.clone(),
        );
        all.register_with_unit(
            "zoneward_controller_plan",
            "How long it took to decide what a Service needs",
            Unit::Seconds,
            self.syncs.clone(),
        );
        all.register(
            "zoneward_controller_sync_failures",
            "Syncs of a Service that failed and are tried again",
            self.failures.clone(),
        );
        all.register(
            "zoneward_controller_writes",
            "Writes to the API server that succeeded",
            self.writes.clone(),
        );
        all.register_with_unit(
            "zoneward_controller_write",
            "How long one write took, without the wait for its turn",
            Unit::Seconds,
            self.write_seconds.clone(),
        );
        all.register(
            "zoneward_controller_leader",
            "1 on the controller that works",
            self.leader.clone(),
        );
        for approach in Approach::ALL {
            drop(self.changes.get_or_create(&ApproachLabel { approach }));
            drop(self.services.get_or_create(&ApproachLabel { approach }));
        }
        for verb in [Verb::Create, Verb::Update, Verb::Delete, Verb::PatchService] {
            drop(self.writes.get_or_create(&VerbLabel { verb }));
        }
        self
    }

    /// All of it, in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("a String takes all");
        text
    }

    pub(crate) fn planned(&self, took: Duration) {
        self.syncs.observe(took.as_secs_f64());
    }

    /// A sync wrote so many slices.
    pub(crate) fn synced(&self, approach: Approach, slices: usize, reallocated: usize) {
        self.changes.get_or_create(&ApproachLabel { approach }).observe(slices as f64);
        self.reallocated.observe(reallocated as f64);
    }

    pub(crate) fn wrote(&self, verb: Verb, took: Duration) {
        self.writes.get_or_create(&VerbLabel { verb }).inc();
        self.write_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn failed(&self) {
        self.failures.inc();
    }

    pub(crate) fn queued(&self, depth: usize) {
        self.queue.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// How many Services have an approach now, and how many endpoints all of them together.
    pub(crate) fn counts(&self, approach: Approach, services: i64) {
        self.services.get_or_create(&ApproachLabel { approach }).inc_by(services);
    }

    pub(crate) fn endpoints(&self, more: i64) {
        self.total_endpoints.inc_by(more);
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(leads.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_metrics_are_there_under_their_names() {
        let metrics = Metrics::new();
        metrics.synced(Approach::Prefer, 2, 1);
        metrics.endpoints(12);
        metrics.counts(Approach::Prefer, 1);
        metrics.wrote(Verb::Create, Duration::from_millis(3));
        let text = metrics.encode();
        for line in [
            "endpoint_slice_controller_changes_endpointslices_per_sync_sum{approach=\"Prefer\"} 2.0",
            "endpoint_slice_controller_changes_endpointslices_per_sync_count{approach=\"Require\"} 0",
            "endpoint_slice_controller_reallocated_endpoints_per_sync_sum 1.0",
            "endpoint_slice_controller_total_endpoints 12",
            "zoneward_controller_services{approach=\"Prefer\"} 1",
            "zoneward_controller_writes_total{verb=\"create\"} 1",
            "zoneward_controller_writes_total{verb=\"patch-service\"} 0",
            "zoneward_controller_write_seconds_count 1",
        ] {
            assert!(text.lines().any(|l| l == line), "no {line:?} in\n{text}");
        }
    }
}
