//! Results as text: tables for people, CSV and JSON for programs.

use super::Variant;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};
use zw_topology::{Counts, Groups, Score, Tally, Unscored};

/// One input as one algorithm divides it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    name: String,
    algorithm: String,
    nodes: u32,
    endpoints: u32,
    #[serde(flatten)]
    score: Option<Parts>,
    groups: String,
    /// Why there is no score.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// A score under the names used in every format.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Parts {
    pub(super) total: f64,
    in_zone: f64,
    overload: f64,
    slices: f64,
    max_overload: f64,
    mean_overload: f64,
}

impl From<Score> for Parts {
    fn from(score: Score) -> Self {
        let Score { total, in_zone, overload, slices, max_overload, mean_overload } = score;
        Self { total, in_zone, overload, slices, max_overload, mean_overload }
    }
}

impl Row {
    /// Without a name the input is called by its numbers: `nodes/endpoints` of each zone.
    pub(super) fn new(
        name: Option<&str>,
        variant: &Variant,
        (zone_names, zones): (&[String], &[Counts]),
        groups: &Groups,
        result: Result<Score, Unscored>,
    ) -> Self {
        let numbers = || {
            let zones = zones.iter().map(|zone| format!("{}/{}", zone.nodes, zone.endpoints));
            zones.collect::<Vec<_>>().join(" ")
        };
        Self {
            name: name.map_or_else(numbers, String::from),
            algorithm: variant.label.clone(),
            nodes: zones.iter().map(|zone| zone.nodes).sum(),
            endpoints: zones.iter().map(|zone| zone.endpoints).sum(),
            score: result.ok().map(Parts::from),
            groups: describe(groups, zone_names),
            note: result.err().map(|why| why.to_string()),
        }
    }

    /// One line; the columns of [`csv_header`].
    pub(super) fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { name, algorithm, nodes, endpoints, groups, .. } = self;
        write!(out, "{},{algorithm},{nodes},{endpoints},", quoted(name))?;
        match &self.score {
            Some(s) => write!(
                out,
                "{:.4},{:.4},{:.4},{:.4},{:.6},{:.6},",
                s.total, s.in_zone, s.overload, s.slices, s.max_overload, s.mean_overload
            )?,
            None => write!(out, ",,,,,,")?,
        }
        writeln!(out, "{},{}", quoted(groups), self.note.as_deref().unwrap_or(""))
    }
}

pub(super) fn csv_header(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "name,algorithm,nodes,endpoints,total,in_zone,overload,slices,max_overload,mean_overload,\
         groups,note"
    )
}

fn quoted(cell: &str) -> Cow<'_, str> {
    if !cell.contains([',', '"', '\n', '\r']) {
        return cell.into();
    }
    format!("\"{}\"", cell.replace('"', "\"\"")).into()
}

/// `balanced`, or for each group who consumes it and what is in it: `a[a:3 b:1] b+c@0.5[c:1]`.
fn describe(groups: &Groups, names: &[String]) -> String {
    if groups.is_balanced() {
        return "balanced".into();
    }
    let mut text = String::new();
    for (composition, weight) in groups.iter().filter(|(held, _)| held.iter().any(|&n| n > 0)) {
        let separator = if text.is_empty() { "" } else { " " };
        text.push_str(separator);
        let consumers = names.iter().zip(weight).filter(|(_, weight)| **weight > 0.0);
        for (index, (name, weight)) in consumers.enumerate() {
            text.push_str(if index > 0 { "+" } else { "" });
            text.push_str(name);
            if *weight < 1.0 {
                // Writing to a string does not fail.
                let _ = write!(text, "@{weight:.3}");
            }
        }
        let held = names.iter().zip(composition).filter(|(_, held)| **held > 0);
        let held: Vec<String> = held.map(|(name, held)| format!("{name}:{held}")).collect();
        let _ = write!(text, "[{}]", held.join(" "));
    }
    text
}

/// Means by algorithm.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Summary {
    pub(super) source: String,
    pub(super) algorithms: Vec<Mean>,
}

/// Means of one algorithm.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Mean {
    pub(super) algorithm: String,
    pub(super) inputs: u64,
    /// Inputs without a score.
    unscored: u64,
    /// Inputs left undivided.
    balanced: u64,
    #[serde(flatten)]
    pub(super) score: Option<Parts>,
    /// Largest max overload of any input.
    worst_overload: f64,
    pub(super) by_endpoints: Vec<Size>,
}

/// Mean total of the inputs in one size class.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Size {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) total: f64,
}

impl Summary {
    pub(super) fn new(source: &str, variants: &[Variant], tallies: &[Tally]) -> Self {
        let mean = |(variant, tally): (&Variant, &Tally)| Mean {
            algorithm: variant.label.clone(),
            inputs: tally.scored() + tally.unscored(),
            unscored: tally.unscored(),
            balanced: tally.balanced(),
            score: tally.mean().map(Parts::from),
            worst_overload: tally.worst_overload(),
            by_endpoints: tally
                .by_size()
                .map(|(class, total)| Size { from: class.from, to: class.to, total })
                .collect(),
        };
        let algorithms = variants.iter().zip(tallies).map(mean).collect();
        Self { source: source.into(), algorithms }
    }

    pub(super) fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let inputs = self.algorithms.first().map_or(0, |mean| mean.inputs);
        writeln!(out, "means over {inputs} inputs ({})", self.source)?;
        writeln!(
            out,
            "{:<16}{:>8}{:>9}{:>10}{:>8}{:>10}{:>11}{:>11}{:>11}{:>10}",
            "algorithm",
            "total",
            "in-zone",
            "overload",
            "slices",
            "max over",
            "mean over",
            "worst over",
            "balanced",
            "no score"
        )?;
        for mean in &self.algorithms {
            write!(out, "{:<16}", mean.algorithm)?;
            match &mean.score {
                // Three decimals: starting thresholds differ in the third.
                Some(s) => write!(
                    out,
                    "{:>8.3}{:>9.2}{:>10.2}{:>8.2}{:>9.2}%{:>10.2}%",
                    s.total,
                    s.in_zone,
                    s.overload,
                    s.slices,
                    100.0 * s.max_overload,
                    100.0 * s.mean_overload
                )?,
                None => {
                    write!(out, "{:>8}{:>9}{:>10}{:>8}{:>10}{:>11}", "-", "-", "-", "-", "-", "-")?
                }
            }
            let worst = 100.0 * mean.worst_overload;
            writeln!(out, "{worst:>10.2}%{:>11}{:>10}", mean.balanced, mean.unscored)?;
        }
        Ok(())
    }
}

/// Every input of a file, for people.
pub(super) fn rows_table(rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(4) + 2;
    let (name, algorithm) = ("name", "algorithm");
    writeln!(
        out,
        "{name:<width$}{algorithm:<16}{:>8}{:>9}{:>10}{:>8}{:>10}{:>11}  groups",
        "total", "in-zone", "overload", "slices", "max over", "mean over"
    )?;
    for row in rows {
        write!(out, "{:<width$}{:<16}", row.name, row.algorithm)?;
        match (&row.score, &row.note) {
            (Some(s), _) => write!(
                out,
                "{:>8.2}{:>9.2}{:>10.2}{:>8.2}{:>9.2}%{:>10.2}%  ",
                s.total,
                s.in_zone,
                s.overload,
                s.slices,
                100.0 * s.max_overload,
                100.0 * s.mean_overload
            )?,
            (None, note) => write!(out, "{:>56}  ", note.as_deref().unwrap_or("no score"))?,
        }
        writeln!(out, "{}", row.groups)?;
    }
    Ok(())
}

/// The means, and the rows if there are any, as one object.
pub(super) fn json(summary: &Summary, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Everything<'a> {
        #[serde(flatten)]
        summary: &'a Summary,
        #[serde(skip_serializing_if = "<[Row]>::is_empty")]
        inputs: &'a [Row],
    }
    serde_json::to_writer_pretty(&mut *out, &Everything { summary, inputs: rows })?;
    writeln!(out)
}
