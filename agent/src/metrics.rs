//! What the agent counts and measures, under kube-proxy's names where it has them and as `zoneward_*`
//! where it does not. Others report; nothing here decides anything.
//!
//! Label values come from enums. The one exception are the names of Services in
//! [`connections`], whose number is limited.

pub(crate) mod connections;
mod labels;
mod programming;
mod text;

use std::hash::Hash;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Series;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use zw_model::Family;

use crate::watch::{Received, Resource};
use connections::PortLabels;
pub(crate) use labels::{Code, Policy, Rejected, Stage};
use labels::{CodeLabel, FamilyLabel, PolicyLabel, RejectedLabel, ResourceLabel, StageLabel};
pub(crate) use text::{OPEN_METRICS, PLAIN, plain};

type Seconds = Gauge<f64, AtomicU64>;

/// Every metric. Cheap to report to from any thread.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    sync: Series<FamilyLabel, Histogram>,
    full_sync: Series<FamilyLabel, Histogram>,
    partial_sync: Series<FamilyLabel, Histogram>,
    last_sync: Series<FamilyLabel, Seconds>,
    last_queued: Series<FamilyLabel, Seconds>,
    sync_failures: Series<FamilyLabel, Counter>,
    programming: Series<FamilyLabel, Histogram>,
    endpoint_changes: Counter,
    endpoint_changes_pending: Gauge,
    service_changes: Counter,
    service_changes_pending: Gauge,
    /// Fed where traffic policies are planned.
    no_local_endpoints: Series<PolicyLabel, Gauge>,
    healthz: Series<CodeLabel, Counter>,
    livez: Series<CodeLabel, Counter>,
    /// Fed where connection tracking entries are removed.
    conntrack_duration: Series<FamilyLabel, Histogram>,
    conntrack_deleted: Series<FamilyLabel, Counter>,
    stages: Series<StageLabel, Histogram>,
    batch_elements: Histogram,
    batch_bytes: Histogram,
    watch_bytes: Series<ResourceLabel, Counter>,
    rejected: Series<RejectedLabel, Counter>,
    refused: Counter,
    set_aside: Gauge,
    drift_repairs: Counter,
    start_to_ready: Seconds,
    connections: Series<PortLabels, Counter>,
    hidden_services: Gauge,
}

/// What one sync did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SyncReport {
    /// Everything was compared with the kernel, rather than some Services planned.
    pub(crate) full: bool,
    /// It followed a failure and found something to put right.
    pub(crate) repaired: bool,
    pub(crate) elements: usize,
    pub(crate) bytes: usize,
    pub(crate) read: Duration,
    pub(crate) plan: Duration,
    pub(crate) commit: Duration,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut all = Registration::default();
        let metrics = Self {
            sync: all.histograms(
                "kubeproxy_sync_proxy_rules_duration",
                "SyncProxyRules latency in seconds",
            ),
            full_sync: all.histograms(
                "kubeproxy_sync_full_proxy_rules_duration",
                "SyncProxyRules latency in seconds for full resyncs",
            ),
            partial_sync: all.histograms(
                "kubeproxy_sync_partial_proxy_rules_duration",
                "SyncProxyRules latency in seconds for partial resyncs",
            ),
            last_sync: all.add(
                "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
                "The last time proxy rules were successfully synced",
            ),
            last_queued: all.add(
                "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
                "The last time a sync of proxy rules was queued",
            ),
            sync_failures: all.add(
                "kubeproxy_sync_proxy_rules_nftables_sync_failures",
                "Cumulative proxy nftables sync failures",
            ),
            programming: all.seconds(
                "kubeproxy_network_programming_duration",
                "In Cluster Network Programming Latency in seconds",
                Series::new_with_constructor(|| Histogram::new(programming::buckets())),
            ),
            endpoint_changes: all.add(
                "kubeproxy_sync_proxy_rules_endpoint_changes",
                "Cumulative proxy rules Endpoint changes",
            ),
            endpoint_changes_pending: all.add(
                "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
                "Pending proxy rules Endpoint changes",
            ),
            service_changes: all.add(
                "kubeproxy_sync_proxy_rules_service_changes",
                "Cumulative proxy rules Service changes",
            ),
            service_changes_pending: all.add(
                "kubeproxy_sync_proxy_rules_service_changes_pending",
                "Pending proxy rules Service changes",
            ),
            no_local_endpoints: all.add(
                "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
                "Number of services with a Local traffic policy and no endpoints",
            ),
            healthz: all.add("kubeproxy_proxy_healthz", "Cumulative proxy healthz HTTP status"),
            livez: all.add("kubeproxy_proxy_livez", "Cumulative proxy livez HTTP status"),
            conntrack_duration: all.histograms(
                "kubeproxy_conntrack_reconciler_sync_duration",
                "ReconcileConntrackFlowsLatency latency in seconds",
            ),
            conntrack_deleted: all.add(
                "kubeproxy_conntrack_reconciler_deleted_entries",
                "Cumulative conntrack flows deleted by conntrack reconciler",
            ),
            stages: all.seconds(
                "zoneward_stage_duration",
                "How long each part of the way from the API server to the kernel took",
                Series::new_with_constructor(|| {
                    Histogram::new(exponential_buckets(0.000_01, 4.0, 12))
                }),
            ),
            batch_elements: all.value(
                "zoneward_batch_elements",
                "Map elements changed by one transaction",
                Histogram::new(exponential_buckets(1.0, 4.0, 10)),
            ),
            batch_bytes: all.value(
                "zoneward_batch_bytes",
                "Netlink bytes of one transaction",
                Histogram::new(exponential_buckets(256.0, 4.0, 10)),
            ),
            watch_bytes: all.add("zoneward_watch_bytes", "Bytes received from the API server"),
            rejected: all.add(
                "zoneward_objects_rejected",
                "Objects of which at least a part could not be used",
            ),
            refused: all
                .add("zoneward_refused_objects", "Transactions the kernel refused for an object"),
            set_aside: all.add(
                "zoneward_services_set_aside",
                "Services without rules, because the kernel refuses a part of them",
            ),
            drift_repairs: all.add(
                "zoneward_drift_repairs",
                "Times the kernel's table was not as it was left and was put right",
            ),
            start_to_ready: all.add(
                "zoneward_start_to_ready_seconds",
                "From the start of the process to its first sync; 0 before that",
            ),
            connections: all.add(
                "zoneward_service_connections",
                "Connections to a Service port, as the kernel counts them",
            ),
            hidden_services: all.add(
                "zoneward_service_connections_hidden_services",
                "Services left out of zoneward_service_connections_total for the limit",
            ),
            registry: all.0,
        };
        metrics.begin();
        metrics
    }

    /// Shows every series whose labels are known beforehand, at 0.
    fn begin(&self) {
        for label in FamilyLabel::all() {
            show(&self.sync, &label);
            show(&self.full_sync, &label);
            show(&self.partial_sync, &label);
            show(&self.programming, &label);
            show(&self.conntrack_duration, &label);
            show(&self.last_sync, &label);
            show(&self.last_queued, &label);
            show(&self.sync_failures, &label);
            show(&self.conntrack_deleted, &label);
        }
        PolicyLabel::all().for_each(|label| show(&self.no_local_endpoints, &label));
        for code in Code::ALL {
            show(&self.healthz, &CodeLabel { code });
            show(&self.livez, &CodeLabel { code });
        }
        for stage in Stage::ALL {
            show(&self.stages, &StageLabel { stage });
        }
        for resource in Resource::ALL {
            show(&self.watch_bytes, &ResourceLabel { resource });
        }
        for kind in Rejected::ALL {
            show(&self.rejected, &RejectedLabel { kind });
        }
    }

    /// All of it, in the OpenMetrics text format.
    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("a String takes all");
        text
    }

    /// A sync waits for its turn.
    pub(crate) fn queued(&self, now: SystemTime) {
        for family in Family::BOTH {
            self.last_queued.get_or_create(&FamilyLabel::of(family)).set(seconds(now));
        }
    }

    /// A sync of both families is in the kernel.
    pub(crate) fn synced(&self, report: &SyncReport, now: SystemTime) {
        let total = (report.read + report.plan + report.commit).as_secs_f64();
        for family in Family::BOTH {
            let label = FamilyLabel::of(family);
            let kind = if report.full { &self.full_sync } else { &self.partial_sync };
            kind.get_or_create(&label).observe(total);
            self.sync.get_or_create(&label).observe(total);
            self.last_sync.get_or_create(&label).set(seconds(now));
        }
        if report.full {
            self.stage(Stage::Read, report.read);
        }
        self.stage(Stage::Plan, report.plan);
        self.stage(Stage::Commit, report.commit);
        self.batch_elements.observe(report.elements as f64);
        self.batch_bytes.observe(report.bytes as f64);
        self.drift_repairs.inc_by(report.repaired.into());
        self.endpoint_changes_pending.set(0);
        self.service_changes_pending.set(0);
    }

    /// A sync failed; `refused`: for an object that the kernel does not take.
    pub(crate) fn sync_failed(&self, refused: bool) {
        for family in Family::BOTH {
            self.sync_failures.get_or_create(&FamilyLabel::of(family)).inc();
        }
        self.refused.inc_by(refused.into());
    }

    /// This many Services have no rules because the kernel refuses a part of them.
    pub(crate) fn set_aside(&self, services: usize) {
        self.set_aside.set(i64::try_from(services).unwrap_or(i64::MAX));
    }

    /// Changes came in.
    pub(crate) fn changed(&self, services: u64, slices: u64) {
        self.service_changes.inc_by(services);
        self.service_changes_pending.inc_by(i64::try_from(services).unwrap_or(i64::MAX));
        self.endpoint_changes.inc_by(slices);
        self.endpoint_changes_pending.inc_by(i64::try_from(slices).unwrap_or(i64::MAX));
    }

    /// A change reached the kernel this long after the cluster made it.
    pub(crate) fn programmed(&self, family: Family, took: Duration) {
        self.programming.get_or_create(&FamilyLabel::of(family)).observe(took.as_secs_f64());
    }

    pub(crate) fn stage(&self, stage: Stage, took: Duration) {
        self.stages.get_or_create(&StageLabel { stage }).observe(took.as_secs_f64());
    }

    pub(crate) fn rejected(&self, kind: Rejected) {
        self.rejected.get_or_create(&RejectedLabel { kind }).inc();
    }

    /// How much the watches have received by now.
    pub(crate) fn received(&self, received: &Received) {
        for resource in Resource::ALL {
            let counter = self.watch_bytes.get_or_create(&ResourceLabel { resource });
            counter.inc_by(received.bytes(resource).saturating_sub(counter.get()));
        }
    }

    /// How many Services with a Local policy have no endpoint here.
    pub(crate) fn no_local_endpoints(&self, policy: Policy, family: Family, services: i64) {
        let label = PolicyLabel::of(policy, family);
        self.no_local_endpoints.get_or_create(&label).set(services);
    }

    /// One round of removing connection tracking entries.
    pub(crate) fn conntrack_reconciled(&self, family: Family, took: Duration, deleted: u64) {
        let label = FamilyLabel::of(family);
        self.conntrack_duration.get_or_create(&label).observe(took.as_secs_f64());
        self.conntrack_deleted.get_or_create(&label).inc_by(deleted);
    }

    pub(crate) fn ready_after(&self, took: Duration) {
        self.start_to_ready.set(took.as_secs_f64());
    }

    pub(crate) fn healthz(&self, code: Code) {
        self.healthz.get_or_create(&CodeLabel { code }).inc();
    }

    pub(crate) fn livez(&self, code: Code) {
        self.livez.get_or_create(&CodeLabel { code }).inc();
    }
}

/// Makes a series, if it is not there.
fn show<S: Clone + Hash + Eq, M>(series: &Series<S, M>, label: &S) {
    drop(series.get_or_create(label));
}

/// Registers what it hands out.
#[derive(Default)]
struct Registration(Registry);

impl Registration {
    /// Counters get `_total` appended when they are written.
    fn add<M: Default + Clone + prometheus_client::registry::Metric>(
        &mut self,
        name: &str,
        help: &str,
    ) -> M {
        self.value(name, help, M::default())
    }

    fn value<M: Clone + prometheus_client::registry::Metric>(
        &mut self,
        name: &str,
        help: &str,
        metric: M,
    ) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }

    /// In seconds, which is appended to the name.
    fn seconds<M: Clone + prometheus_client::registry::Metric>(
        &mut self,
        name: &str,
        help: &str,
        metric: M,
    ) -> M {
        self.0.register_with_unit(name, help, Unit::Seconds, metric.clone());
        metric
    }

    /// kube-proxy's own buckets for syncs.
    fn histograms(&mut self, name: &str, help: &str) -> Series<FamilyLabel, Histogram> {
        let histograms = Series::new_with_constructor(
            (|| Histogram::new(exponential_buckets(0.001, 2.0, 15))) as fn() -> Histogram,
        );
        self.seconds(name, help, histograms)
    }
}

fn seconds(at: SystemTime) -> f64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests;
