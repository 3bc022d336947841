//! Plans and scores inputs with every variant, on all cores.

use super::Variant;
use super::input::NamedInput;
use super::parallel::in_order;
use super::report::{self, Row};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use zw_topology::{Block, Counts, Dataset, Planner, Scorer, Tally};

/// One worker's tools, kept from input to input.
#[derive(Default)]
struct Tools {
    planner: Planner,
    scorer: Scorer,
}

/// Inputs of a file that one worker takes at a time.
const CHUNK: usize = 64;

/// Scores a dataset; with `rows`, writes a CSV line for every input and variant.
pub(super) fn dataset(
    dataset: Dataset,
    variants: &[Variant],
    mut rows: Option<&mut dyn Write>,
) -> Result<Vec<Tally>> {
    let blocks: Vec<Block> = dataset.blocks().collect();
    let names = ["zone1", "zone2", "zone3"].map(String::from);
    let with_rows = rows.is_some();
    if let Some(out) = &mut rows {
        report::csv_header(*out)?;
    }
    let bar = progress(dataset.size());
    let mut tallies = vec![Tally::default(); variants.len()];
    let work = |tools: &mut Tools, unit: usize| {
        let block = blocks[unit];
        let mut tallies = vec![Tally::default(); variants.len()];
        let mut text = Vec::new();
        for zones in block.inputs() {
            for (variant, tally) in variants.iter().zip(&mut tallies) {
                let row = score(tools, &zones, variant, tally, with_rows.then_some((&names, None)));
                // Writing to memory does not fail.
                let _ = row.map(|row| row.csv(&mut text));
            }
        }
        (block.size(), tallies, text)
    };
    in_order(blocks.len(), Tools::default, work, |(inputs, block, text)| {
        tallies.iter_mut().zip(&block).for_each(|(all, block)| all.merge(block));
        bar.inc(inputs);
        rows.as_mut().map_or(Ok(()), |out| out.write_all(&text))
    })?;
    bar.finish_and_clear();
    Ok(tallies)
}

/// Scores named inputs and keeps a row for each of them and each variant.
pub(super) fn named(inputs: &[NamedInput], variants: &[Variant]) -> Result<(Vec<Row>, Vec<Tally>)> {
    let chunks: Vec<&[NamedInput]> = inputs.chunks(CHUNK).collect();
    let (mut rows, mut tallies) = (Vec::new(), vec![Tally::default(); variants.len()]);
    let work = |tools: &mut Tools, unit: usize| {
        let mut tallies = vec![Tally::default(); variants.len()];
        let mut rows = Vec::new();
        for input in chunks[unit] {
            for (variant, tally) in variants.iter().zip(&mut tallies) {
                let names = Some((input.zones.names(), Some(input.name.as_str())));
                rows.extend(score(tools, input.zones.counts(), variant, tally, names));
            }
        }
        (rows, tallies)
    };
    in_order(chunks.len(), Tools::default, work, |(chunk_rows, chunk)| {
        rows.extend(chunk_rows);
        tallies.iter_mut().zip(&chunk).for_each(|(all, chunk)| all.merge(chunk));
        Ok(())
    })?;
    Ok((rows, tallies))
}

/// Plans and scores one input. `names` (of the zones, and of the input) ask for a row.
fn score(
    tools: &mut Tools,
    zones: &[Counts],
    variant: &Variant,
    tally: &mut Tally,
    names: Option<(&[String], Option<&str>)>,
) -> Option<Row> {
    let groups = tools.planner.plan(zones, variant.algorithm, &variant.options);
    let result = tools.scorer.score(zones, groups);
    tally.add(zones.iter().map(|zone| zone.endpoints).sum(), groups.is_balanced(), &result);
    names.map(|(zone_names, name)| Row::new(name, variant, (zone_names, zones), groups, result))
}

/// A bar on a terminal, nothing elsewhere.
fn progress(inputs: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "{bar:40} {percent:>3} %  {human_pos} of {human_len}, {eta} left",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(inputs).with_style(style)
}
