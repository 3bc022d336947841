//! `zoneward simulate`: what the slice-group algorithms would do, and how well.
//!
//! Takes inputs from a built-in dataset, from a CSV file, or from a cluster's manifests; plans and scores them with `zw-topology` on
//! all cores; writes a table, CSV or JSON, and on request a plot. Changes nothing anywhere.

use anyhow::{Context, Result, bail};
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use zw_topology::{Algorithm, Dataset, Options, UnknownAlgorithm};

use crate::BadInput;

mod churn;
mod evaluate;
mod input;
mod parallel;
mod plot;
mod report;
mod services;

use input::NamedInput;

/// Score the ways to divide a Service's endpoints over zones.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("source").required(true).args(["dataset", "input", "state", "cluster", "churn"]))]
pub(crate) struct SimulateArgs {
    /// Inputs of the published evaluation: large (39 million) or small.
    #[arg(long, value_name = "large|small")]
    dataset: Option<Dataset>,

    /// Inputs from a CSV file: header `name,zone1,zone2,...`, cells `nodes endpoints`.
    #[arg(long, value_name = "FILE.csv")]
    input: Option<PathBuf>,

    /// A cluster's Services, from a file or folder of manifests: what each would gain.
    #[arg(long, value_name = "PATH")]
    state: Option<PathBuf>,

    /// The Services of the cluster, through a kubeconfig or as a pod's service account.
    #[arg(long)]
    cluster: bool,

    /// With --cluster: how to reach it.
    #[arg(long, value_name = "FILE", requires = "cluster")]
    kubeconfig: Option<PathBuf>,

    /// Count reallocated endpoints over random walks of one endpoint or one node.
    #[arg(long, conflicts_with = "plot")]
    churn: bool,

    #[command(flatten)]
    with: With,
}

/// What to run and how to show it, whatever the inputs.
#[derive(Debug, clap::Args)]
pub(crate) struct With {
    /// One, several (comma separated) or all of balanced, local, local-shared, local-weighted,
    /// local-opt, fair.
    #[arg(long, value_delimiter = ',', default_value = "all", value_name = "NAME,...")]
    algorithm: Vec<Pick>,

    /// Endpoints per zone below which `local` stays balanced; several to compare them.
    #[arg(long, value_delimiter = ',', default_value = "3", value_name = "N,...")]
    starting_threshold: Vec<u32>,

    /// table: means (and each input of a file); csv: every input; json: means, inputs of a file.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,

    /// Write mean score by algorithm and by size as a picture.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// An algorithm on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pick {
    All,
    One(Algorithm),
}

/// Format of what goes to stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Csv,
    Json,
}

/// An algorithm with its options and the name it has in this run.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Variant {
    label: String,
    algorithm: Algorithm,
    options: Options,
}

impl FromStr for Pick {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if name == "all" { Ok(Self::All) } else { name.parse().map(Self::One) }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.label)
    }
}

impl With {
    /// The picked algorithms, each once, in their usual order; `local` once per threshold.
    fn variants(&self) -> Vec<Variant> {
        let picked = |algorithm: &Algorithm| {
            self.algorithm.iter().any(|&pick| pick == Pick::All || pick == Pick::One(*algorithm))
        };
        let mut thresholds = self.starting_threshold.clone();
        thresholds.sort_unstable();
        thresholds.dedup();
        let mut variants = Vec::new();
        for algorithm in Algorithm::all().filter(picked) {
            let several = algorithm == Algorithm::Local && thresholds.len() > 1;
            for &starting_threshold in if several { &thresholds[..] } else { &thresholds[..1] } {
                let label = match several {
                    true => format!("{algorithm}-{starting_threshold}x"),
                    false => algorithm.to_string(),
                };
                let options = Options { starting_threshold, ..Options::default() };
                variants.push(Variant { label, algorithm, options });
            }
        }
        variants
    }
}

/// Runs the command; results go to `out`, complaints about single rows to stderr.
pub(crate) fn run(args: SimulateArgs, out: &mut dyn Write) -> Result<()> {
    let SimulateArgs { dataset, input, state, cluster, kubeconfig, with, .. } = args;
    match (dataset, input, state) {
        (Some(dataset), ..) => run_dataset(dataset, &with, out),
        (None, Some(path), _) => run_file(&path, &with, out),
        (None, None, Some(path)) => {
            run_services(&path.display().to_string(), services::read(&path)?, &with, out)
        }
        (None, None, None) if cluster => {
            run_services("cluster", services::read_cluster(kubeconfig.as_deref())?, &with, out)
        }
        (None, None, None) => churn::run(&with.variants(), with.output, out),
    }
}

fn run_services(
    source: &str,
    services: services::Services,
    with: &With,
    out: &mut dyn Write,
) -> Result<()> {
    for complaint in &services.complaints {
        writeln!(std::io::stderr(), "{complaint}")?;
    }
    run_named(source, &services.inputs, with, out)
}

fn run_dataset(dataset: Dataset, with: &With, out: &mut dyn Write) -> Result<()> {
    let variants = with.variants();
    let rows: Option<&mut dyn Write> = match with.output {
        Output::Csv => Some(&mut *out),
        Output::Table | Output::Json => None,
    };
    let tallies = evaluate::dataset(dataset, &variants, rows)?;
    let summary = report::Summary::new(&dataset.to_string(), &variants, &tallies);
    match with.output {
        Output::Table => summary.table(out)?,
        Output::Csv => {}
        Output::Json => report::json(&summary, &[], out)?,
    }
    draw(&summary, with)
}

fn run_file(path: &Path, with: &With, out: &mut dyn Write) -> Result<()> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| BadInput(format!("cannot read {name}")))?;
    let file = input::parse(&bytes).with_context(|| BadInput(name.clone()))?;
    for problem in &file.problems {
        writeln!(std::io::stderr(), "{name}: {problem}")?;
    }
    run_named(&name, &file.inputs, with, out)?;
    if !file.problems.is_empty() {
        let (bad, good) = (file.problems.len(), file.inputs.len());
        bail!(BadInput(format!("{name}: {bad} of {} rows could not be used", bad + good)));
    }
    Ok(())
}

/// Scores inputs that have names, such as the Services of a cluster.
fn run_named(source: &str, inputs: &[NamedInput], with: &With, out: &mut dyn Write) -> Result<()> {
    let variants = with.variants();
    let (rows, tallies) = evaluate::named(inputs, &variants)?;
    let summary = report::Summary::new(source, &variants, &tallies);
    match with.output {
        Output::Table => {
            report::rows_table(&rows, out)?;
            writeln!(out)?;
            summary.table(out)?;
        }
        Output::Csv => {
            report::csv_header(out)?;
            rows.iter().try_for_each(|row| row.csv(out))?;
        }
        Output::Json => report::json(&summary, &rows, out)?,
    }
    draw(&summary, with)
}

fn draw(summary: &report::Summary, with: &With) -> Result<()> {
    let Some(path) = &with.plot else { return Ok(()) };
    std::fs::write(path, plot::svg(summary)).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests;
