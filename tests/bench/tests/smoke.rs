//! The whole benchmark on a tiny cluster: what it measures has to be there and to make sense. How long
//! anything takes is never judged here.

use clap::Parser as _;
use zw_bench::{Args, Proxy, Report, Run, markdown, run, svg};

/// As many of each kind of change.
const CHANGES: usize = 6;
const SUSTAINED: usize = 30;

#[test]
fn a_tiny_cluster_gives_every_measure_of_both_proxies() {
    let args = Args::parse_from([
        "zw-bench",
        "--shapes=tiny",
        "--growth=5x2",
        "--rounds=1",
        &format!("--changes={CHANGES}"),
        &format!("--sustained={SUSTAINED}"),
        "--connections=3",
        "--connects=200",
    ]);
    let report = run(&args);
    println!("{}", markdown(&report));

    let [tiny, growth] = &*report.shapes else { panic!("two shapes were asked for") };
    assert_eq!((tiny.services, tiny.endpoints, growth.growth), (30, 90, true));
    for (proxy, runs) in [(Proxy::KubeProxy, &tiny.kube_proxy), (Proxy::Zoneward, &tiny.zoneward)] {
        let [run] = &**runs else { panic!("one round was asked for") };
        check(proxy, run);
    }
    assert_eq!(tiny.zoneward[0].restart_commits, 0, "an unchanged restart writes nothing");

    // Every endpoint and every Service is at least an element.
    let [bare] = &*tiny.bare else { panic!("one round was asked for") };
    assert!(bare.elements >= tiny.services + tiny.endpoints, "{bare:?}");
    assert!(bare.seconds > 0.0);

    let zoned = tiny.zoned.expect("more endpoints than zones");
    let bytes = [zoned.kube_proxy_start_bytes, zoned.zoneward_start_bytes];
    assert!(bytes.iter().all(|bytes| bytes.is_some_and(|bytes| bytes > 1_000)), "{zoned:?}");

    let [ways] = &*report.connections else { panic!("one number of Services was asked for") };
    for connections in [ways.kube_proxy.as_ref(), ways.zoneward.as_ref(), Some(&ways.direct)] {
        let connections = connections.expect("all ways were asked for");
        assert_eq!(connections.latency_us.len(), 200);
        assert!(connections.per_second.iter().all(|rate| *rate > 0.0));
    }
    check_output(&report);
}

fn check(proxy: Proxy, run: &Run) {
    let name = proxy.name();
    assert!(run.cold_start_seconds >= run.programming_seconds, "{name}: {run:?}");
    assert!(run.programming_seconds > 0.0 && run.restart_seconds > 0.0, "{name}: {run:?}");
    assert_eq!(run.changes.len(), CHANGES, "{name}");
    for change in &run.changes {
        // Nobody commits before the request is sent, and the parts make the whole.
        assert!(change.commit_ms > 0.0 && change.event_ms > 0.0, "{name}: {change:?}");
        let sum = change.event_ms + change.own_ms;
        assert!((sum - change.commit_ms).abs() < 0.01, "{name}: {change:?}");
    }
    let sustained = run.sustained.expect("asked for");
    assert_eq!(sustained.changes, SUSTAINED, "{name}");
    let commits = sustained.commits as usize;
    assert!((1..=3 * SUSTAINED).contains(&commits), "{name}: {sustained:?}");
    // An event is hardly smaller than the slice's name and an address.
    assert!(sustained.received_bytes > 50 * SUSTAINED as u64, "{name}: {sustained:?}");
    assert!(run.peak_kb >= run.resident_kb && run.resident_kb > 1_000, "{name}: {run:?}");
    assert!(run.start_bytes > 1_000, "{name}: {run:?}");
}

fn check_output(report: &Report) {
    let table = markdown(report);
    for measure in ["(a)", "(b)", "(c)", "(d)", "(e)", "(f)", "(g)", "(h)"] {
        assert!(table.contains(measure), "{measure} is missing in\n{table}");
    }
    // Both have a figure. There is no ratio where one commits before the bare watcher has the event.
    for line in table.lines().filter(|line| line.contains("own share")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        assert!(!cells[2].is_empty() && !cells[3].is_empty(), "{line}\n{table}");
    }
    let plot = svg(report);
    assert!(plot.starts_with("<svg") && plot.trim_end().ends_with("</svg>"));
    // Two shapes of two proxies in four panels, and the bare loop in one.
    assert!(plot.matches("<circle").count() >= 14, "{plot}");
    serde_json::to_string(report).expect("results are JSON");
}
