//! Everything that was asked for, in turn.

use std::fs;
use std::thread;

use crate::args::Args;
use crate::cluster::Cluster;
use crate::connections;
use crate::measure::{Extent, measure, received};
use crate::progress::Progress;
use crate::proxy::Proxy;
use crate::results::{Conditions, Report, ShapeReport, Zoned};
use crate::shape::{Shape, ZONES};

/// Shapes of the plot get so much less.
const LESS: usize = 4;
/// Changes of which the bytes are counted in a cluster of zones; as many for each zone.
const ZONED_CHANGES: usize = 90;

/// Measures.
pub fn run(args: &Args) -> Report {
    let load_before = load();
    let progress = Progress::new(steps(args));
    let mut shapes = Vec::new();
    for (shape, growth) in
        args.shapes.iter().map(|s| (s, false)).chain(args.growth.iter().map(|s| (s, true)))
    {
        shapes.push(shape_report(args, shape, growth, &progress));
    }
    let connections = args.connections.iter().map(|services| {
        progress.step(&format!("connections among {services} Services"));
        connections::measure(args, *services, &progress)
    });
    let connections = connections.collect();
    progress.finish();
    Report { conditions: conditions(load_before), shapes, connections }
}

fn shape_report(args: &Args, shape: &Shape, growth: bool, progress: &Progress) -> ShapeReport {
    progress.step(&format!("load {}", shape.name));
    let (mut cluster, took) = Cluster::load(shape, progress);
    progress.tell(&format!(
        "{}: {} Services with {} endpoints written in {:.1} s",
        shape.name,
        shape.services(),
        shape.endpoints(),
        took.as_secs_f64()
    ));
    let mut report = ShapeReport {
        name: shape.name.clone(),
        services: shape.services(),
        endpoints: shape.endpoints(),
        load_seconds: took.as_secs_f64(),
        growth,
        kube_proxy: Vec::new(),
        zoneward: Vec::new(),
        bare: Vec::new(),
        zoned: None,
    };
    for round in 0..rounds(args, growth) {
        for proxy in args.proxies(round) {
            let (run, bare) = measure(proxy, &mut cluster, extent(args, growth), progress);
            match proxy {
                Proxy::KubeProxy => report.kube_proxy.push(run),
                Proxy::Zoneward => report.zoneward.push(run),
            }
            report.bare.extend(bare);
        }
    }
    if is_zoned(shape, growth) {
        progress.step(&format!("write the zones of {}", shape.name));
        cluster.zone(progress);
        let mut of = |proxy| {
            let asked = args.only.is_none_or(|only| only == proxy);
            asked.then(|| received(proxy, &mut cluster, ZONED_CHANGES, progress))
        };
        let (kube_proxy, zoneward) = (of(Proxy::KubeProxy), of(Proxy::Zoneward));
        report.zoned = Some(Zoned {
            kube_proxy_start_bytes: kube_proxy.map(|(start, _)| start),
            zoneward_start_bytes: zoneward.map(|(start, _)| start),
            kube_proxy_change_bytes: kube_proxy.map(|(_, change)| change),
            zoneward_change_bytes: zoneward.map(|(_, change)| change),
        });
    }
    report
}

fn rounds(args: &Args, growth: bool) -> usize {
    if growth { 1 } else { args.rounds }
}

/// What one proxy does in one round.
fn extent(args: &Args, growth: bool) -> Extent {
    if growth {
        return Extent { changes: whole(args.changes.div_ceil(LESS)), sustained: 0 };
    }
    let of_a_round = |all: usize| whole(all.div_ceil(args.rounds.max(1)));
    Extent { changes: of_a_round(args.changes), sustained: of_a_round(args.sustained) }
}

/// Changes come in threes: the last of them brings the endpoint back that the second took away, so that
/// every Service answers at the next start.
fn whole(changes: usize) -> usize {
    changes.next_multiple_of(3)
}

/// One endpoint cannot be divided.
fn is_zoned(shape: &Shape, growth: bool) -> bool {
    !growth && shape.endpoints() >= ZONES.len() * shape.services()
}

fn steps(args: &Args) -> usize {
    let proxies = args.proxies(0).len();
    let of = |shape: &Shape, growth: bool| {
        let each = 3 + usize::from(extent(args, growth).sustained > 0);
        let zoned = if is_zoned(shape, growth) { 1 + proxies } else { 0 };
        1 + rounds(args, growth) * proxies * each + zoned
    };
    let main: usize = args.shapes.iter().map(|shape| of(shape, false)).sum();
    let growth: usize = args.growth.iter().map(|shape| of(shape, true)).sum();
    main + growth + args.connections.len()
}

fn conditions(load_before: f64) -> Conditions {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    Conditions {
        processor: model.unwrap_or_default().trim_start_matches(['\t', ' ', ':']).to_owned(),
        processors: thread::available_parallelism().map_or(1, usize::from),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        load_before,
        load_after: load(),
    }
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}
