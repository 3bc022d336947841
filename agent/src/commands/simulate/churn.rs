//! `--churn`: how many endpoints change group when a cluster changes a little.

use super::parallel::in_order;
use super::{Output, Variant};
use anyhow::Result;
use serde::Serialize;
use std::io::Write;
use zw_topology::Algorithm;
use zw_topology::churn::{Churn, Memory, Walk, measure};

/// One algorithm on one kind of walk.
#[derive(Debug, Serialize)]
struct Line {
    walk: String,
    algorithm: String,
    steps: u64,
    moved_per_endpoint_step: f64,
    quiet_endpoint_steps: f64,
    moved_per_node_step: f64,
    quiet_node_steps: f64,
    largest: u64,
    switches: u64,
    mean_total: f64,
}

impl Line {
    fn new(walk: &Walk, algorithm: String, churn: &Churn) -> Self {
        let Churn { endpoint, node, switches, score } = churn;
        Self {
            walk: format!(
                "{} zones, {}-{} nodes, {}-{} endpoints each",
                walk.zones,
                walk.nodes.start(),
                walk.nodes.end(),
                walk.endpoints.start(),
                walk.endpoints.end()
            ),
            algorithm,
            steps: endpoint.steps + node.steps,
            moved_per_endpoint_step: endpoint.mean(),
            quiet_endpoint_steps: endpoint.quiet_share(),
            moved_per_node_step: node.mean(),
            quiet_node_steps: node.quiet_share(),
            largest: endpoint.largest.max(node.largest),
            switches: *switches,
            mean_total: *score,
        }
    }
}

/// Measures every variant on every kind of walk.
pub(super) fn run(variants: &[Variant], output: Output, out: &mut dyn Write) -> Result<()> {
    let walks = Walk::standard();
    let mut jobs = Vec::new();
    for walk in &walks {
        for variant in variants {
            jobs.push((walk, variant, Memory::None));
            // Only fair looks at the previous plan; for the others the line would be the same.
            if variant.algorithm == Algorithm::Fair {
                jobs.push((walk, variant, Memory::Previous));
            }
            if matches!(variant.algorithm, Algorithm::Local | Algorithm::Fair) {
                jobs.push((walk, variant, Memory::Lazy));
            }
        }
    }
    let work = |(): &mut (), job: usize| {
        let (walk, variant, memory) = jobs[job];
        let label = match memory {
            Memory::None => variant.label.clone(),
            Memory::Previous => format!("{variant}, previous"),
            Memory::Lazy => format!("{variant}, lazy"),
        };
        Line::new(walk, label, &measure(walk, variant.algorithm, &variant.options, memory))
    };
    let mut lines = Vec::new();
    in_order(
        jobs.len(),
        || (),
        work,
        |line| {
            lines.push(line);
            Ok(())
        },
    )?;
    match output {
        Output::Table => table(&lines, out)?,
        Output::Csv => csv(&lines, out)?,
        Output::Json => {
            serde_json::to_writer_pretty(&mut *out, &lines)?;
            writeln!(out)?;
        }
    }
    Ok(())
}

fn table(lines: &[Line], out: &mut dyn Write) -> std::io::Result<()> {
    for (index, line) in lines.iter().enumerate() {
        if index == 0 || lines[index - 1].walk != line.walk {
            let gap = if index == 0 { "" } else { "\n" };
            writeln!(
                out,
                "{gap}reallocated endpoints per step: {}, {} steps",
                line.walk, line.steps
            )?;
            writeln!(
                out,
                "{:<16}{:>12}{:>8}{:>10}{:>8}{:>9}{:>10}{:>8}",
                "algorithm",
                "+-endpoint",
                "quiet",
                "+-node",
                "quiet",
                "largest",
                "switches",
                "total"
            )?;
        }
        writeln!(
            out,
            "{:<16}{:>12.3}{:>7.1}%{:>10.3}{:>7.1}%{:>9}{:>10}{:>8.2}",
            line.algorithm,
            line.moved_per_endpoint_step,
            100.0 * line.quiet_endpoint_steps,
            line.moved_per_node_step,
            100.0 * line.quiet_node_steps,
            line.largest,
            line.switches,
            line.mean_total
        )?;
    }
    Ok(())
}

fn csv(lines: &[Line], out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(
        out,
        "walk,algorithm,steps,moved_per_endpoint_step,quiet_endpoint_steps,moved_per_node_step,\
         quiet_node_steps,largest,switches,mean_total"
    )?;
    for line in lines {
        writeln!(
            out,
            "\"{}\",\"{}\",{},{:.4},{:.4},{:.4},{:.4},{},{},{:.4}",
            line.walk,
            line.algorithm,
            line.steps,
            line.moved_per_endpoint_step,
            line.quiet_endpoint_steps,
            line.moved_per_node_step,
            line.quiet_node_steps,
            line.largest,
            line.switches,
            line.mean_total
        )?;
    }
    Ok(())
}
