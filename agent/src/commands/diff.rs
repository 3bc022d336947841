//! `zoneward diff`: what should be in the kernel against what is.

use std::io::Write;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use zw_dataplane::{Tables, WithIpvs};

use super::dump_rules::SCHEMA;
use super::run::with_advice;
use crate::AnswerIsNo;
use crate::cli::{DiffArgs, StoryOutput};
use crate::inspect::agent;
use crate::inspect::drift::{Difference, INTERFACE, What, differences, settings_of};
use crate::inspect::filter::ServiceName;
use crate::inspect::node::local_addresses;
use crate::inspect::planned::Planned;
use crate::screen::{Cell, Screen, Tone, cell, count};

/// The JSON form.
#[derive(Serialize)]
struct Json<'a> {
    schema: u32,
    same: bool,
    differences: &'a [Difference],
}

pub(crate) fn run(args: DiffArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let service = args.service.as_deref().map(ServiceName::parse).transpose()?;
    if service.as_ref().is_some_and(|service| service.port.is_some()) {
        bail!(crate::BadInput("a whole Service is compared: leave the port out".into()));
    }
    let screen = Screen::standard(args.color.color);
    let look = || -> anyhow::Result<Vec<Difference>> {
        let mut all = compare(&args)?;
        if let Some(service) = &service {
            let name = service.key.to_string();
            let for_all = |d: &Difference| d.place == "table" || d.place == INTERFACE;
            all.retain(|d| for_all(d) || d.service.split(':').next() == Some(&name));
        }
        Ok(all)
    };
    let mut last = look()?;
    print(&screen, &last, args.output, out)?;
    if let Some(seconds) = args.watch {
        loop {
            out.flush()?;
            thread::sleep(Duration::from_secs(seconds.get().into()));
            let now = look()?;
            if now != last {
                writeln!(out)?;
                print(&screen, &now, args.output, out)?;
                last = now;
            }
        }
    }
    if last.is_empty() { Ok(()) } else { Err(AnswerIsNo.into()) }
}

fn compare(args: &DiffArgs) -> anyhow::Result<Vec<Difference>> {
    // The agent first: what it writes meanwhile is then not taken for a difference of the kernel's.
    let manifests = args.manifests.given();
    let asked = match manifests {
        Some(_) => None,
        None => Some(agent::ask(args.socket.path(), None)?),
    };
    let read = WithIpvs::to_look().and_then(|mut kernel| kernel.read_back());
    let actual = read.map_err(with_advice)?.actual;
    let planned = match (asked, manifests) {
        (Some(planned), _) => planned,
        (None, Some((path, node_name))) => {
            // Which slot an endpoint has is the kernel's choice, and so are the settings.
            let settings = settings_of(&actual, local_addresses()?);
            Planned::from_manifests(path, node_name, settings, &actual.slots())?
        }
        (None, None) => bail!("neither an agent nor manifests to compare with"),
    };
    Ok(differences(&planned.desired, &actual))
}

fn print(
    screen: &Screen,
    differences: &[Difference],
    output: StoryOutput,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if output == StoryOutput::Json {
        let json = Json { schema: SCHEMA, same: differences.is_empty(), differences };
        let json = serde_json::to_string_pretty(&json).context("cannot print JSON")?;
        return Ok(writeln!(out, "{json}")?);
    }
    if differences.is_empty() {
        let same = screen.paint(Tone::Good, "the kernel holds what it should");
        return Ok(writeln!(out, "{same}")?);
    }
    let rows: Vec<Vec<Cell>> = differences.iter().map(row).collect();
    screen.table(out, 0, &rows)?;
    let number = count(differences.len(), "difference");
    writeln!(out, "{}", screen.paint(Tone::Bad, &number))?;
    Ok(())
}

fn row(difference: &Difference) -> Vec<Cell> {
    let (sign, tone) = match difference.what {
        What::Missing => ("-", Tone::Bad),
        What::Extra => ("+", Tone::Doubtful),
        What::Changed => ("~", Tone::Doubtful),
    };
    let text = match (&difference.is, &difference.should_be) {
        (Some(is), Some(should_be)) => format!("{is}, should be {should_be}"),
        (is, should_be) => is.as_ref().or(should_be.as_ref()).cloned().unwrap_or_default(),
    };
    let service = if difference.service.is_empty() { "-" } else { &difference.service };
    vec![
        cell(sign).toned(tone),
        cell(difference.what.to_string()).toned(tone),
        cell(service),
        cell(difference.family.as_str()),
        cell(difference.place.as_str()),
        cell(text),
    ]
}
