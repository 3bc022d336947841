//! `zoneward top`: the busiest Services, as they are now.

use std::io::{IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use zw_dataplane::{Tables, WithIpvs};

use super::run::with_advice;
use crate::cli::TopArgs;
use crate::inspect::agent;
use crate::inspect::load::{Directory, Load, Sample, between};
use crate::screen::{Cell, Screen, Tone, cell};

/// How long a picture of the rules is good enough.
const STALE: Duration = Duration::from_secs(10);

pub(crate) fn run(args: TopArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let screen = Screen::standard(args.color.color);
    let terminal = std::io::stdout().is_terminal();
    let mut before = Sample::take()?;
    let mut directory = look(&args)?;
    let mut looked = Instant::now();
    let mut round = 0;
    loop {
        thread::sleep(Duration::from_secs(args.every.into()));
        if looked.elapsed() > STALE {
            directory = look(&args)?;
            looked = Instant::now();
        }
        let after = Sample::take()?;
        let mut load = between(&before, &after, &directory);
        load.agent = agent::report(args.socket.path()).ok();
        before = after;
        round += 1;
        if terminal {
            // To the top left, and nothing below.
            write!(out, "\u{1b}[H\u{1b}[2J")?;
        } else if round > 1 {
            writeln!(out)?;
        }
        print(&screen, &load, args.services, out)?;
        out.flush()?;
        if args.rounds.is_some_and(|rounds| round >= rounds) {
            return Ok(());
        }
    }
}

/// The agent knows zones; the kernel knows the rest.
fn look(args: &TopArgs) -> anyhow::Result<Directory> {
    if let Ok(planned) = agent::ask(args.socket.path(), None) {
        return Ok(Directory::of_planned(&planned));
    }
    let read = WithIpvs::to_look().and_then(|mut kernel| kernel.read_back());
    Ok(Directory::of_kernel(&read.map_err(with_advice)?.actual))
}

fn print(screen: &Screen, load: &Load, most: usize, out: &mut dyn Write) -> anyhow::Result<()> {
    let place = [load.node.clone(), load.zone.as_ref().map(|zone| format!("zone {zone}"))];
    let place: Vec<String> = place.into_iter().flatten().collect();
    let agent = match &load.agent {
        None => "no agent answers".to_owned(),
        Some(agent) => {
            let recent = &agent.recent;
            let ms = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
            format!(
                "{} syncs, median {}, slowest {}, {} failed, {} drift repairs",
                recent.syncs,
                ms(recent.median_sync_ms),
                ms(recent.slowest_sync_ms),
                recent.failed_syncs,
                recent.drift_repairs
            )
        }
    };
    let tone = if load.agent.as_ref().is_some_and(|agent| agent.recent.error.is_none()) {
        Tone::Plain
    } else {
        Tone::Doubtful
    };
    let place = if place.is_empty() { String::new() } else { place.join(", ") + ": " };
    screen.paragraph(out, 0, tone, &format!("{place}{agent}"))?;
    let zone = load.in_zone.map(|share| format!(", {} in this zone", percent(share)));
    let total = format!(
        "{:.1} new connections/s to {} Service ports{}",
        load.per_second,
        load.services.len(),
        zone.unwrap_or_default()
    );
    writeln!(out, "{}\n", screen.paint(Tone::Title, &total))?;
    let head = ["NEW/S", "TOTAL", "TRACKED", "ENDPOINTS", "BUSIEST", "IN ZONE", "SERVICE"];
    let mut rows: Vec<Vec<Cell>> = vec![head.map(|word| cell(word).toned(Tone::Title)).to_vec()];
    rows.extend(load.services.iter().take(most).map(|service| {
        let dash = || "-".to_owned();
        // A busy Service whose busiest endpoint has twice its share is worth a look.
        let uneven = service.tracked >= 20 && service.busiest.is_some_and(|x| x >= 2.0);
        let tone = if uneven { Tone::Doubtful } else { Tone::Plain };
        vec![
            cell(format!("{:.1}", service.per_second)),
            cell(service.connections.to_string()),
            cell(service.tracked.to_string()),
            cell(service.endpoints.to_string()),
            cell(service.busiest.map_or_else(dash, |x| format!("{x:.1}x fair"))).toned(tone),
            cell(service.in_zone.map_or_else(dash, percent)),
            cell(service.name.as_str()),
        ]
    }));
    Ok(screen.table(out, 0, &rows)?)
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}
