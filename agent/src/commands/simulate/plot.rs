//! The means as a picture: total by algorithm on the left, total by size on the right.
//!
//! SVG written by hand: two axes and a few lines need no drawing library.

use super::report::{Mean, Size, Summary};
use std::fmt::Write;

/// Told apart by people who see colours differently, and by dash pattern on paper.
const COLORS: [&str; 6] = ["#777777", "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00"];
const DASHES: [&str; 6] = ["2 3", "6 3", "none", "8 3 2 3", "4 2", "none"];

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 460.0;
/// Both panels, from top to bottom.
const TOP: f64 = 56.0;
const BOTTOM: f64 = 360.0;

/// A value axis from `low` to `high` points, both multiples of five.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn around(values: impl Iterator<Item = f64> + Clone) -> Self {
        let low = values.clone().fold(95.0, f64::min);
        let high = values.fold(low, f64::max);
        Self { low: ((low - 1.0) / 5.0).floor() * 5.0, high: ((high + 1.0) / 5.0).ceil() * 5.0 }
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - (value - self.low) / (self.high - self.low) * (BOTTOM - TOP)
    }

    /// Grid lines with numbers between `left` and `right`.
    fn draw(&self, left: f64, right: f64, svg: &mut String) {
        let step = if self.high - self.low > 40.0 { 10.0 } else { 5.0 };
        let mut value = self.low;
        while value <= self.high {
            let (y, x) = (self.y(value), left - 8.0);
            push(svg, format_args!(r##"<path d="M{left} {y:.1}H{right}" stroke="#ddd"/>"##));
            label(svg, x, y + 4.0, "end", &format!("{value}"));
            value += step;
        }
        let (x, y, low) = (left - 40.0, (TOP + BOTTOM) / 2.0, self.low);
        push(
            svg,
            format_args!(
                r#"<text transform="translate({x} {y}) rotate(-90)" text-anchor="middle">mean total score (axis from {low})</text>"#
            ),
        );
    }
}

/// The whole picture. Without any score it has axes and nothing in them.
pub(super) fn svg(summary: &Summary) -> String {
    let mut svg = String::new();
    push(
        &mut svg,
        format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">"#
        ),
    );
    push(&mut svg, format_args!(r#"<rect width="100%" height="100%" fill="white"/>"#));
    let inputs = summary.algorithms.first().map_or(0, |mean| mean.inputs);
    let title = format!("{}: {inputs} inputs", summary.source);
    push(
        &mut svg,
        format_args!(r#"<text x="20" y="28" font-size="16">{}</text>"#, escaped(&title)),
    );
    by_algorithm(&summary.algorithms, &mut svg);
    by_size(&summary.algorithms, &mut svg);
    push(&mut svg, format_args!("</svg>"));
    svg
}

fn by_algorithm(means: &[Mean], svg: &mut String) {
    let (left, right) = (70.0, 420.0);
    let totals = means.iter().filter_map(|mean| mean.score.map(|score| score.total));
    let scale = Scale::around(totals);
    scale.draw(left, right, svg);
    let slot = (right - left) / means.len().max(1) as f64;
    for (index, mean) in means.iter().enumerate() {
        let (x, width) = (left + slot * (index as f64 + 0.15), slot * 0.7);
        let middle = x + width / 2.0;
        if let Some(total) = mean.score.map(|score| score.total) {
            let y = scale.y(total);
            let (height, color) = (BOTTOM - y, COLORS[index % COLORS.len()]);
            push(
                svg,
                format_args!(
                    r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{color}"/>"#
                ),
            );
            label(svg, middle, y - 5.0, "middle", &format!("{total:.2}"));
        }
        slanted(svg, middle, &mean.algorithm);
    }
    label(svg, (left + right) / 2.0, HEIGHT - 12.0, "middle", "algorithm");
}

fn by_size(means: &[Mean], svg: &mut String) {
    let (left, right) = (510.0, 840.0);
    let sizes = means.iter().flat_map(|mean| &mean.by_endpoints);
    let scale = Scale::around(sizes.map(|size| size.total));
    scale.draw(left, right, svg);
    let classes = means.iter().map(|mean| &mean.by_endpoints).max_by_key(|sizes| sizes.len());
    let classes: &[Size] = classes.map_or(&[], |sizes| sizes);
    let slot = (right - left) / classes.len().max(1) as f64;
    let x_of = |from: u32| {
        let index = classes.iter().position(|class| class.from == from).unwrap_or(0);
        left + slot * (index as f64 + 0.5)
    };
    for class in classes {
        let text = match class.to {
            u32::MAX => format!("{}+", class.from),
            to => format!("{}-{to}", class.from),
        };
        slanted(svg, x_of(class.from), &text);
    }
    for (index, mean) in means.iter().enumerate() {
        let (color, dash) = (COLORS[index % COLORS.len()], DASHES[index % DASHES.len()]);
        let points = mean.by_endpoints.iter();
        let points: Vec<String> = points
            .map(|size| format!("{:.1},{:.1}", x_of(size.from), scale.y(size.total)))
            .collect();
        let style = format!(r#"fill="none" stroke="{color}" stroke-width="2""#);
        push(
            svg,
            format_args!(
                r#"<polyline points="{}" {style} stroke-dasharray="{dash}"/>"#,
                points.join(" ")
            ),
        );
        let (x, y) = (right + 14.0, TOP + 22.0 * index as f64 + 8.0);
        push(svg, format_args!(r#"<path d="M{x} {y}h26" {style} stroke-dasharray="{dash}"/>"#));
        label(svg, x + 32.0, y + 4.0, "start", &mean.algorithm);
    }
    label(svg, (left + right) / 2.0, HEIGHT - 12.0, "middle", "endpoints of the Service");
}

/// Text under the axis, slanted so that neighbours do not touch.
fn slanted(svg: &mut String, x: f64, text: &str) {
    let y = BOTTOM + 16.0;
    push(
        svg,
        format_args!(
            r#"<text transform="translate({x:.1} {y}) rotate(-40)" text-anchor="end">{}</text>"#,
            escaped(text)
        ),
    );
}

fn label(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = escaped(text);
    push(svg, format_args!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#));
}

fn push(svg: &mut String, element: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(svg, "{element}");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
