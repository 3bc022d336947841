//! A story as text.

use std::io::{self, Write};

use super::{Group, PortStory, Story, zones};
use crate::screen::{Cell, Screen, Tone, cell, count};

/// How many endpoints of one fate are named.
const NAMED: usize = 10;

pub(crate) fn print(screen: &Screen, story: &Story, out: &mut dyn Write) -> io::Result<()> {
    let place = [
        Some(format!("node {}", story.node)),
        story.zone.as_ref().map(|zone| format!("zone {zone}")),
        story.region.as_ref().map(|region| format!("region {region}")),
    ];
    let place = place.into_iter().flatten().collect::<Vec<_>>().join(", ");
    writeln!(out, "{}  seen from {place}", screen.paint(Tone::Title, &story.service))?;
    for port in &story.ports {
        writeln!(out)?;
        print_port(screen, port, out)?;
    }
    if let Some(zones) = &story.zones {
        writeln!(out)?;
        zones::print(screen, zones, out)?;
    }
    writeln!(out)?;
    print_slices(screen, story, out)?;
    if !story.warnings.is_empty() {
        writeln!(out)?;
        for warning in &story.warnings {
            let row = [vec![cell("note:").toned(Tone::Doubtful), cell(warning.as_str())]];
            screen.table(out, 0, &row)?;
        }
    }
    if let Some(kernel) = &story.kernel {
        writeln!(out)?;
        let tone = if kernel.agrees { Tone::Good } else { Tone::Bad };
        let row = [vec![cell("kernel:").toned(tone), cell(kernel.text.as_str())]];
        screen.table(out, 0, &row)?;
    }
    Ok(())
}

fn print_port(screen: &Screen, port: &PortStory, out: &mut dyn Write) -> io::Result<()> {
    let header = format!("{}  {} {}", port.title, port.family, port.protocol);
    writeln!(out, "{}", screen.paint(Tone::Title, &header))?;
    let addresses: Vec<String> = port
        .addresses
        .iter()
        .map(|address| match address.address.strip_prefix("node port ") {
            Some(_) => address.address.clone(),
            None => format!("{} ({})", address.address, address.kind.words()),
        })
        .collect();
    screen.paragraph(out, 2, Tone::Plain, &addresses.join(", "))?;
    let verdicts: Vec<Vec<Cell>> = port
        .verdicts
        .iter()
        .map(|verdict| {
            let (mark, tone) = if verdict.good { ("ok", Tone::Good) } else { ("!!", Tone::Bad) };
            vec![cell(mark).toned(tone), cell(verdict.text.as_str()).toned(tone)]
        })
        .collect();
    screen.table(out, 2, &verdicts)?;
    port.groups.iter().try_for_each(|group| print_group(screen, group, out))
}

fn print_group(screen: &Screen, group: &Group, out: &mut dyn Write) -> io::Result<()> {
    let (word, tone) = if group.used { ("in", Tone::Good) } else { ("out", Tone::Faint) };
    let until = group.until.as_ref().map(|until| format!(" ({until})")).unwrap_or_default();
    let head = format!("{} {}{until}", count(group.endpoints.len(), "endpoint"), group.reason);
    screen.table(out, 2, &[vec![cell(format!("{word:<3}")).toned(tone), cell(head)]])?;
    let text = |text: &Option<String>| cell(text.as_deref().unwrap_or_default());
    let rows: Vec<Vec<Cell>> = group
        .endpoints
        .iter()
        .take(NAMED)
        .map(|e| vec![cell(e.address.as_str()), text(&e.node), text(&e.zone)])
        .collect();
    screen.table(out, 7, &rows)?;
    let more = group.endpoints.len() - rows.len();
    if more > 0 {
        writeln!(out, "       and {more} more")?;
    }
    Ok(())
}

fn print_slices(screen: &Screen, story: &Story, out: &mut dyn Write) -> io::Result<()> {
    if story.slices.is_empty() {
        return writeln!(out, "{}", screen.paint(Tone::Bad, "no slices seen"));
    }
    writeln!(
        out,
        "{}",
        screen.paint(Tone::Title, &(count(story.slices.len(), "slice") + " seen"))
    )?;
    let rows: Vec<Vec<Cell>> = story
        .slices
        .iter()
        .map(|slice| {
            vec![
                cell(slice.name.as_str()),
                cell(slice.family.as_str()),
                cell(slice.scope.as_str()),
                cell(format!("{} of {} ready", slice.ready, slice.endpoints)),
                cell(slice.ports.as_str()),
                cell(match &slice.managed_by {
                    Some(by) => format!("by {by}"),
                    None => "by hand".into(),
                }),
            ]
        })
        .collect();
    screen.table(out, 2, &rows)
}
