use std::time::{Duration, SystemTime};

use zw_model::Family;

use crate::watch::{Received, Resource};

use super::{Code, Metrics, Policy, Rejected, Stage, SyncReport, plain};

/// The value of a series.
#[track_caller]
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
}

#[test]
fn every_series_is_there_from_the_start_under_kube_proxys_name() {
    let text = Metrics::new().encode();
    for series in [
        "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}",
        "kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"}",
        "kubeproxy_sync_partial_proxy_rules_duration_seconds_sum{ip_family=\"IPv4\"}",
        "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"}",
        "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv6\"}",
        "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
        "kubeproxy_sync_proxy_rules_endpoint_changes_total",
        "kubeproxy_sync_proxy_rules_service_changes_pending",
        "kubeproxy_sync_proxy_rules_service_changes_total",
        "kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy=\"internal\",ip_family=\"IPv4\"}",
        "kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"}",
        "kubeproxy_network_programming_duration_seconds_count{ip_family=\"IPv6\"}",
        "kubeproxy_proxy_healthz_total{code=\"200\"}",
        "kubeproxy_proxy_livez_total{code=\"503\"}",
        "kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family=\"IPv4\"}",
        "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv4\"}",
        "zoneward_stage_duration_seconds_count{stage=\"read\"}",
        "zoneward_batch_elements_count",
        "zoneward_batch_bytes_count",
        "zoneward_watch_bytes_total{resource=\"endpointslices\"}",
        "zoneward_objects_rejected_total{kind=\"ServiceCIDR\"}",
        "zoneward_refused_objects_total",
        "zoneward_drift_repairs_total",
        "zoneward_start_to_ready_seconds",
        "zoneward_service_connections_hidden_services",
    ] {
        assert_eq!(value(&text, series), 0.0, "{series}");
    }
    assert!(!text.contains("_total_total"), "{text}");
    let plain = plain(&text);
    assert!(plain.contains("# TYPE kubeproxy_proxy_healthz_total counter\n"), "{plain}");
    assert!(!plain.contains("EOF"), "{plain}");
}

#[test]
fn buckets_are_kube_proxys() {
    let text = Metrics::new().encode();
    let buckets = |name: &str| -> Vec<f64> {
        let start = format!("{name}_bucket{{le=\"");
        let lines = text.lines().filter_map(|line| line.strip_prefix(&start));
        lines
            .filter(|line| line.contains("IPv4"))
            .map(|line| line.split('"').next().unwrap().parse().unwrap())
            .collect()
    };
    let sync = buckets("kubeproxy_sync_proxy_rules_duration_seconds");
    assert_eq!((sync.len(), sync[0], sync[14], sync[15]), (16, 0.001, 16.384, f64::INFINITY));
    let programming = buckets("kubeproxy_network_programming_duration_seconds");
    assert_eq!(programming.len(), 81);
    assert_eq!(programming[..4], [0.25, 0.5, 1.0, 2.0]);
    assert_eq!(programming[60..63], [59.0, 60.0, 65.0]);
    assert_eq!(
        programming[72..],
        [115.0, 120.0, 150.0, 180.0, 210.0, 240.0, 270.0, 300.0, f64::INFINITY]
    );
}

#[test]
fn what_is_reported_is_counted() {
    let metrics = Metrics::new();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
    metrics.changed(2, 3);
    metrics.queued(now);
    let text = metrics.encode();
    assert_eq!(value(&text, "kubeproxy_sync_proxy_rules_service_changes_pending"), 2.0);
    assert_eq!(value(&text, "kubeproxy_sync_proxy_rules_endpoint_changes_pending"), 3.0);
    let report = SyncReport {
        full: true,
        repaired: true,
        elements: 5,
        bytes: 600,
        read: Duration::from_millis(10),
        plan: Duration::from_millis(20),
        commit: Duration::from_millis(30),
    };
    metrics.synced(&report, now);
    metrics.synced(&SyncReport::default(), now);
    metrics.sync_failed(true);
    metrics.programmed(Family::V6, Duration::from_secs(1));
    metrics.stage(Stage::List, Duration::from_secs(1));
    metrics.rejected(Rejected::Manifest);
    metrics.received(&Received::of(Resource::Nodes, 10));
    metrics.received(&Received::of(Resource::Nodes, 10));
    metrics.no_local_endpoints(Policy::External, Family::V6, 4);
    metrics.conntrack_reconciled(Family::V4, Duration::from_secs(1), 9);
    metrics.ready_after(Duration::from_millis(1500));
    metrics.healthz(Code::Unavailable);
    metrics.livez(Code::Ok);
    let text = metrics.encode();
    for (series, want) in [
        ("kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"}", 2.0),
        ("kubeproxy_sync_full_proxy_rules_duration_seconds_sum{ip_family=\"IPv4\"}", 0.06),
        ("kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}", 1.0),
        ("kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"}", 7.0),
        ("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv4\"}", 7.0),
        ("kubeproxy_sync_proxy_rules_service_changes_pending", 0.0),
        ("kubeproxy_sync_proxy_rules_service_changes_total", 2.0),
        ("kubeproxy_sync_proxy_rules_endpoint_changes_pending", 0.0),
        ("kubeproxy_sync_proxy_rules_endpoint_changes_total", 3.0),
        ("kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv6\"}", 1.0),
        ("kubeproxy_network_programming_duration_seconds_count{ip_family=\"IPv6\"}", 1.0),
        (
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy=\"external\",ip_family=\"IPv6\"}",
            4.0,
        ),
        ("kubeproxy_proxy_healthz_total{code=\"503\"}", 1.0),
        ("kubeproxy_proxy_livez_total{code=\"200\"}", 1.0),
        ("kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv4\"}", 9.0),
        ("zoneward_stage_duration_seconds_count{stage=\"list\"}", 1.0),
        ("zoneward_stage_duration_seconds_count{stage=\"plan\"}", 2.0),
        ("zoneward_batch_elements_sum", 5.0),
        ("zoneward_batch_bytes_sum", 600.0),
        ("zoneward_watch_bytes_total{resource=\"nodes\"}", 10.0),
        ("zoneward_objects_rejected_total{kind=\"manifest\"}", 1.0),
        ("zoneward_refused_objects_total", 1.0),
        ("zoneward_drift_repairs_total", 1.0),
        ("zoneward_start_to_ready_seconds", 1.5),
    ] {
        assert_eq!(value(&text, series), want, "{series}");
    }
}
