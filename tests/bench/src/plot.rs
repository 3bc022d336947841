//! Cost against size as a picture: four panels, both axes logarithmic.
//!
//! SVG written by hand: a few lines and circles need no drawing library.

use std::fmt::Write as _;

use crate::results::{Report, Run, ShapeReport};
use crate::statistics::{percentile, spread};

const WIDTH: f64 = 980.0;
const HEIGHT: f64 = 720.0;
/// A panel without its labels.
const PANEL: (f64, f64) = (370.0, 230.0);
const LEFT: [f64; 2] = [80.0, 570.0];
const TOP: [f64; 2] = [70.0, 410.0];
/// Told apart by people who see colours differently, and by their dashes on paper.
const STYLES: [(&str, &str, &str); 3] = [
    ("kube-proxy", "#d55e00", "6 3"),
    ("Zoneward", "#0072b2", "none"),
    ("bare loop", "#777777", "2 3"),
];

/// A value at a number of endpoints.
type Point = (f64, f64);

/// What one panel shows, in the order of the styles.
struct Panel {
    title: &'static str,
    lines: [Vec<Point>; 3],
}

/// The whole picture.
pub fn svg(report: &Report) -> String {
    let mut shapes: Vec<&ShapeReport> = report.shapes.iter().collect();
    shapes.sort_by_key(|shape| shape.endpoints);
    let runs = |of: fn(&[Run]) -> Option<f64>| {
        let points = |runs: fn(&ShapeReport) -> &Vec<Run>| points(&shapes, |shape| of(runs(shape)));
        [points(|shape| &shape.kube_proxy), points(|shape| &shape.zoneward), Vec::new()]
    };
    let mut programming = runs(|runs| median(runs, |run| run.programming_seconds));
    programming[2] =
        points(&shapes, |shape| spread(shape.bare.iter().map(|b| b.seconds)).map(|s| s.median));
    let panels = [
        Panel {
            title: "(a) start until Services answer, s",
            lines: runs(|runs| median(runs, |run| run.cold_start_seconds)),
        },
        Panel { title: "(b) everything listed until committed, s", lines: programming },
        Panel {
            title: "(c) one endpoint changed, own share p50, ms",
            lines: runs(|runs| {
                percentile(runs.iter().flat_map(|run| &run.changes).map(|c| c.own_ms), 50)
            }),
        },
        Panel {
            title: "(e) resident memory, MiB",
            lines: runs(|runs| median(runs, |run| run.resident_kb as f64 / 1024.0)),
        },
    ];
    let mut svg = String::new();
    push(
        &mut svg,
        &format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"#
        ),
    );
    push(&mut svg, r#"<rect width="100%" height="100%" fill="white"/>"#);
    legend(&mut svg);
    for (i, panel) in panels.iter().enumerate() {
        panel.draw(LEFT[i % 2], TOP[i / 2], &mut svg);
    }
    push(&mut svg, "</svg>");
    svg
}

fn points(shapes: &[&ShapeReport], of: impl Fn(&ShapeReport) -> Option<f64>) -> Vec<Point> {
    let point = |shape: &&ShapeReport| Some((shape.endpoints as f64, of(shape)?));
    // A logarithm wants more than nothing.
    shapes.iter().filter_map(point).filter(|(x, y)| *x > 0.0 && *y > 0.0).collect()
}

fn median(runs: &[Run], of: impl Fn(&Run) -> f64) -> Option<f64> {
    spread(runs.iter().map(of)).map(|spread| spread.median)
}

/// Whole powers of ten around values.
struct Axis {
    low: i32,
    high: i32,
}

impl Axis {
    fn around(values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (i32::MAX, i32::MIN);
        for exponent in values.map(f64::log10) {
            (low, high) = (low.min(exponent.floor() as i32), high.max(exponent.ceil() as i32));
        }
        if low > high {
            return Self { low: 0, high: 1 };
        }
        Self { low, high: high.max(low + 1) }
    }

    /// From 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low)
    }
}

impl Panel {
    fn draw(&self, left: f64, top: f64, svg: &mut String) {
        let all = || self.lines.iter().flatten();
        let (xs, ys) = (Axis::around(all().map(|p| p.0)), Axis::around(all().map(|p| p.1)));
        let (width, height) = PANEL;
        let x = |value: f64| left + xs.place(value) * width;
        let y = |value: f64| top + height - ys.place(value) * height;
        label(svg, left, top - 12.0, "start", self.title);
        for exponent in ys.low..=ys.high {
            let at = y(10f64.powi(exponent));
            push(svg, &format!(r##"<path d="M{left:.1} {at:.1}h{width}" stroke="#ddd"/>"##));
            label(svg, left - 8.0, at + 4.0, "end", &power(exponent));
        }
        for exponent in xs.low..=xs.high {
            let at = x(10f64.powi(exponent));
            push(svg, &format!(r##"<path d="M{at:.1} {top:.1}v{height}" stroke="#ddd"/>"##));
            label(svg, at, top + height + 18.0, "middle", &power(exponent));
        }
        label(svg, left + width / 2.0, top + height + 38.0, "middle", "endpoints in the cluster");
        for (points, (_, color, dash)) in self.lines.iter().zip(STYLES) {
            let places: Vec<String> =
                points.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
            push(
                svg,
                &format!(
                    r#"<polyline points="{}" fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>"#,
                    places.join(" ")
                ),
            );
            for p in points {
                let (cx, cy) = (x(p.0), y(p.1));
                push(
                    svg,
                    &format!(r#"<circle cx="{cx:.1}" cy="{cy:.1}" r="3.5" fill="{color}"/>"#),
                );
            }
        }
    }
}

fn legend(svg: &mut String) {
    for (i, (name, color, dash)) in STYLES.into_iter().enumerate() {
        let x = LEFT[0] + 130.0 * i as f64;
        push(
            svg,
            &format!(
                r#"<path d="M{x} 24h30" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>"#
            ),
        );
        label(svg, x + 38.0, 28.0, "start", name);
    }
}

fn power(exponent: i32) -> String {
    match exponent {
        0..=6 => 10u32.pow(exponent.unsigned_abs()).to_string(),
        -3..0 => format!("{}", 10f64.powi(exponent)),
        _ => format!("1e{exponent}"),
    }
}

fn label(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    push(svg, &format!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#));
}

fn push(svg: &mut String, element: &str) {
    writeln!(svg, "{element}").expect("a String takes all");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_holds_all_values_between_powers_of_ten() {
        let axis = Axis::around([0.3, 20.0, 100.0].into_iter());
        assert_eq!((axis.low, axis.high), (-1, 2));
        assert_eq!((axis.place(0.1), axis.place(100.0)), (0.0, 1.0));
        let axis = Axis::around([10.0].into_iter());
        assert_eq!((axis.low, axis.high), (1, 2));
        let axis = Axis::around(std::iter::empty());
        assert_eq!((axis.low, axis.high), (0, 1));
    }
}
