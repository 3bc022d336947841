//! The results as tables that people read.

use std::fmt::Write as _;

use crate::results::{Connections, Kind, Report, Run, ShapeReport, Sustained, Ways};
use crate::statistics::{Spread, percentile, spread};

/// What is asked of a measure.
const NONE: &str = "";

/// All tables.
pub fn markdown(report: &Report) -> String {
    let conditions = &report.conditions;
    let mut text = format!(
        "{} x {}, Linux {}; load average {:.1} before and {:.1} after.\n",
        conditions.processors,
        conditions.processor,
        conditions.kernel,
        conditions.load_before,
        conditions.load_after
    );
    report.main_shapes().for_each(|shape| shape_table(shape, &mut text));
    if report.shapes.len() > 1 {
        growth_table(report, &mut text);
    }
    if !report.connections.is_empty() {
        connection_table(&report.connections, &mut text);
    }
    text
}

/// The rows of one table: kube-proxy, Zoneward, and how many times as much the first is.
struct Table<'a> {
    shape: &'a ShapeReport,
    text: &'a mut String,
}

fn shape_table(shape: &ShapeReport, text: &mut String) {
    let (services, endpoints) = (shape.services, shape.endpoints);
    line(text, &format!("\n### {}: {services} Services, {endpoints} endpoints\n", shape.name));
    line(text, "| measure | kube-proxy | Zoneward | ratio | target |");
    line(text, "|---|---|---|---|---|");
    let mut table = Table { shape, text };
    table.spread("(a) start until 50 Services answer, s", "6", |run| Some(run.cold_start_seconds));
    table.spread("(b) everything listed until committed, s", "20", |run| {
        Some(run.programming_seconds)
    });
    table.bare();
    table.percentiles("(c) one change, own share", ["100", "50"], |change| change.own_ms);
    table.percentiles("(c) one change, from the request", ["20", NONE], |change| change.commit_ms);
    for kind in [Kind::Replaced, Kind::Removed, Kind::Added] {
        let own = |runs: &[Run]| {
            let changes = runs.iter().flat_map(|run| &run.changes);
            percentile(changes.filter(|c| c.kind == kind).map(|c| c.own_ms), 50)
        };
        let label = format!("(c) own share of an endpoint {kind:?}, p50, ms").to_lowercase();
        table.values(&label, NONE, own);
    }
    table.values("(c) until a bare watcher has the event, p50, ms", NONE, |runs| {
        percentile(runs.iter().flat_map(|run| &run.changes).map(|change| change.event_ms), 50)
    });
    table.spread("(d) CPU of 1,000 changes at 20 a second, s", "50", |run| {
        run.sustained.map(|s| s.cpu_seconds * 1e3 / s.changes.max(1) as f64)
    });
    table.spread("(e) resident, MiB", "8", |run| Some(run.resident_kb as f64 / 1024.0));
    table.spread("(e) resident at most, MiB", "5", |run| Some(run.peak_kb as f64 / 1024.0));
    table.spread("(f) restart with nothing changed, s", NONE, |run| Some(run.restart_seconds));
    table.spread("(f) transactions written by that", "0 written", |run| {
        Some(run.restart_commits.into())
    });
    table.spread("(h) received until Services answer, MB", NONE, |run| {
        Some(run.start_bytes as f64 / 1e6)
    });
    table.spread("(h) received per change, kB", NONE, |run| run.sustained.map(per_change_kb));
    if let Some(zoned) = &shape.zoned {
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / 1e6);
        let start = (bytes(zoned.kube_proxy_start_bytes), bytes(zoned.zoneward_start_bytes));
        table.pair("(h) the same with slices for three zones, MB", NONE, start);
        let kb = |bytes: Option<f64>| bytes.map(|bytes| bytes / 1e3);
        let change = (kb(zoned.kube_proxy_change_bytes), kb(zoned.zoneward_change_bytes));
        table.pair("(h) per change with slices for three zones, kB", NONE, change);
    }
}

fn per_change_kb(sustained: Sustained) -> f64 {
    sustained.received_bytes as f64 / 1e3 / sustained.changes.max(1) as f64
}

impl Table<'_> {
    /// A value of every round: the middle and the ends.
    fn spread(&mut self, label: &str, target: &str, of: impl Fn(&Run) -> Option<f64>) {
        let values = |runs: &[Run]| spread(runs.iter().filter_map(&of));
        let (theirs, ours) = (values(&self.shape.kube_proxy), values(&self.shape.zoneward));
        let ratio = ratio(theirs.map(|s| s.median), ours.map(|s| s.median));
        self.row(label, &shown(theirs), &shown(ours), &ratio, target);
    }

    fn percentiles(
        &mut self,
        label: &str,
        targets: [&str; 2],
        of: impl Fn(&crate::results::Change) -> f64,
    ) {
        for (hundredth, target) in [50, 99].into_iter().zip(targets) {
            self.values(&format!("{label}, p{hundredth}, ms"), target, |runs| {
                percentile(runs.iter().flat_map(|run| &run.changes).map(&of), hundredth)
            });
        }
    }

    fn values(&mut self, label: &str, target: &str, of: impl Fn(&[Run]) -> Option<f64>) {
        self.pair(label, target, (of(&self.shape.kube_proxy), of(&self.shape.zoneward)));
    }

    fn pair(&mut self, label: &str, target: &str, (theirs, ours): (Option<f64>, Option<f64>)) {
        let show = |value: Option<f64>| value.map_or_else(String::new, number);
        self.row(label, &show(theirs), &show(ours), &ratio(theirs, ours), target);
    }

    /// What the kernel itself takes for the same elements.
    fn bare(&mut self) {
        let bare = spread(self.shape.bare.iter().map(|bare| bare.seconds));
        let ours = spread(self.shape.zoneward.iter().map(|run| run.programming_seconds));
        let Some((bare, ours)) = bare.zip(ours) else { return };
        let elements = self.shape.bare.first().map_or(0, |bare| bare.elements);
        let label = format!("(b) bare loop with the same {elements} elements, s");
        let times = format!("Zoneward takes {:.2} times as long", ours.median / bare.median);
        self.row(&label, "", &shown(Some(bare)), &times, "at most 1.5");
    }

    fn row(&mut self, label: &str, theirs: &str, ours: &str, ratio: &str, target: &str) {
        let target = match target.parse::<u32>() {
            Ok(times) => format!("at least {times}"),
            Err(_) => target.to_owned(),
        };
        line(self.text, &format!("| {label} | {theirs} | {ours} | {ratio} | {target} |"));
    }
}

fn growth_table(report: &Report, text: &mut String) {
    line(text, "\n### Cost against size\n");
    line(
        text,
        "| Services x endpoints | (b) kube-proxy, s | (b) Zoneward, s | (c) own share p50 kube-proxy, ms | \
         (c) own share p50 Zoneward, ms | (c) request to commit p50 Zoneward, ms |",
    );
    line(text, "|---|---|---|---|---|---|");
    let mut shapes: Vec<&ShapeReport> = report.shapes.iter().collect();
    shapes.sort_by_key(|shape| shape.endpoints);
    for shape in shapes {
        let programming = |runs: &[Run]| shown(spread(runs.iter().map(|r| r.programming_seconds)));
        let p50 = |runs: &[Run], of: fn(&crate::results::Change) -> f64| {
            let value = percentile(runs.iter().flat_map(|run| &run.changes).map(of), 50);
            value.map_or_else(String::new, number)
        };
        line(
            text,
            &format!(
                "| {} ({} endpoints) | {} | {} | {} | {} | {} |",
                shape.name,
                shape.endpoints,
                programming(&shape.kube_proxy),
                programming(&shape.zoneward),
                p50(&shape.kube_proxy, |change| change.own_ms),
                p50(&shape.zoneward, |change| change.own_ms),
                p50(&shape.zoneward, |change| change.commit_ms),
            ),
        );
    }
}

fn connection_table(ways: &[Ways], text: &mut String) {
    line(text, "\n### (g) New connections through a cluster IP\n");
    line(text, "| Services | way | connect p50, us | p99, us | connections per second |");
    line(text, "|---|---|---|---|---|");
    for at in ways {
        let rows = [
            ("direct", Some(&at.direct)),
            ("kube-proxy", at.kube_proxy.as_ref()),
            ("Zoneward", at.zoneward.as_ref()),
        ];
        for (name, connections) in rows {
            let Some(Connections { latency_us, per_second }) = connections else { continue };
            let latency = |hundredth| {
                percentile(latency_us.iter().copied(), hundredth).map_or_else(String::new, number)
            };
            let rate = shown(spread(per_second.iter().copied()));
            let (p50, p99) = (latency(50), latency(99));
            line(text, &format!("| {} | {name} | {p50} | {p99} | {rate} |", at.services));
        }
    }
}

/// How many times as much the first is.
fn ratio(theirs: Option<f64>, ours: Option<f64>) -> String {
    match theirs.zip(ours) {
        Some((theirs, ours)) if ours > 0.0 => number(theirs / ours),
        _ => String::new(),
    }
}

fn shown(value: Option<Spread>) -> String {
    match value {
        None => String::new(),
        Some(Spread { median, least, most }) if least == most => number(median),
        Some(Spread { median, least, most }) => {
            format!("{} ({} to {})", number(median), number(least), number(most))
        }
    }
}

/// Three digits that count.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a String takes all");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let shown = [1234.5, 12.345, 1.2345, 0.123456, 0.0, 3.0, -0.5].map(number);
        assert_eq!(shown, ["1234", "12.3", "1.23", "0.123", "0", "3", "-0.500"]);
    }

    #[test]
    fn nothing_is_so_many_times_nothing() {
        assert_eq!(ratio(Some(4.0), Some(0.0)), "");
        assert_eq!(ratio(Some(4.0), Some(0.5)), "8");
        assert_eq!(ratio(None, Some(0.5)), "");
    }
}
