//! Service ports in the form for people: one block for each port and family, its addresses first, then
//! its endpoints in slot order, then those left out.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::view::{EndpointView, Policy, PortView, Refusal};
use crate::screen::{Cell, Screen, Tone, cell, count};

/// Prints views that are sorted.
pub(crate) fn print(screen: &Screen, ports: &[&PortView], out: &mut dyn Write) -> io::Result<()> {
    let same = |a: &&PortView, b: &&PortView| {
        (&a.service, &a.name, &a.protocol, &a.family)
            == (&b.service, &b.name, &b.protocol, &b.family)
    };
    for (i, block) in ports.chunk_by(same).enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        print_block(screen, block, out)?;
    }
    Ok(())
}

fn print_block(screen: &Screen, block: &[&PortView], out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = block.first() else { return Ok(()) };
    let mut header = screen.paint(Tone::Title, &title(first));
    header += &format!("  {} {}", first.family, first.protocol);
    let schedulers = block.iter().filter_map(|port| port.scheduler.as_deref());
    let schedulers: BTreeSet<&str> = schedulers.collect();
    if !schedulers.is_empty() {
        let schedulers: Vec<&str> = schedulers.into_iter().collect();
        header += &format!("  ipvs {}", schedulers.join("/"));
    }
    if let Some(seconds) = first.affinity_seconds {
        header += &format!("  sticky {}", period(seconds));
    }
    writeln!(out, "{header}")?;
    let addresses: Vec<Vec<Cell>> = block.iter().map(|port| address(port)).collect();
    screen.table(out, 2, &addresses)?;
    // What differs by address is only who of the endpoints may be used; each list is told once.
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut told: Vec<Vec<&str>> = Vec::new();
    for port in block {
        let lists = [("", Some(&port.endpoints)), ("o", port.endpoints_for_outsiders.as_ref())];
        for (mark, list) in lists {
            let Some(list) = list else { continue };
            let addresses: Vec<&str> = list.iter().map(|e| e.address.as_str()).collect();
            let repeated = mark.is_empty() && told.contains(&addresses);
            if repeated || (mark == "o" && rows.iter().any(|row| is_marked(row, mark))) {
                continue;
            }
            if mark.is_empty() {
                told.push(addresses);
            }
            let slots = list.iter().enumerate();
            rows.extend(slots.map(|(slot, e)| row(format!("{mark}{slot}"), e, Tone::Good)));
        }
    }
    let used: Vec<&str> = told.into_iter().flatten().collect();
    let mut out_of_use: Vec<&EndpointView> = Vec::new();
    for endpoint in block.iter().flat_map(|port| &port.left_out) {
        let known =
            |e: &&EndpointView| (&e.address, &e.reason) == (&endpoint.address, &endpoint.reason);
        let twice = endpoint.reason.as_deref() == Some("listed twice");
        if !out_of_use.iter().any(known) && (twice || !used.contains(&endpoint.address.as_str())) {
            out_of_use.push(endpoint);
        }
    }
    rows.extend(out_of_use.into_iter().map(|e| row("-".into(), e, Tone::Faint)));
    screen.table(out, 4, &rows)
}

fn is_marked(row: &[Cell], mark: &str) -> bool {
    row.first().is_some_and(|cell| cell.text().trim_start().starts_with(mark))
}

/// `web/api:http`
pub(crate) fn title(port: &PortView) -> String {
    if port.name.is_empty() {
        port.service.clone()
    } else {
        format!("{}:{}", port.service, port.name)
    }
}

fn address(port: &PortView) -> Vec<Cell> {
    let (answers, tone) = answers(port);
    let mut notes = Vec::new();
    if port.policy == Policy::Local {
        notes.push("policy Local".to_owned());
    }
    match port.source_ranges.as_deref() {
        Some([]) => notes.push("from nowhere".to_owned()),
        Some(ranges) => notes.push(format!("only from {}", ranges.join(", "))),
        None => {}
    }
    let connections = port
        .connections
        .map(|number| format!("{number} connection{}", if number == 1 { "" } else { "s" }));
    vec![
        cell(port.frontend_text()),
        cell(port.kind.words()),
        cell(answers).toned(tone),
        cell(connections.unwrap_or_default()),
        cell(notes.join(", ")),
    ]
}

/// What becomes of a client.
fn answers(port: &PortView) -> (String, Tone) {
    if let Some(owner) = &port.taken_by {
        return (format!("not programmed: {owner} has it"), Tone::Bad);
    }
    let all = count(port.endpoints.len(), "endpoint");
    match (&port.endpoints_for_outsiders, port.without_endpoints) {
        (_, Some(Refusal::Refused)) => ("no endpoint: refused".into(), Tone::Bad),
        (None, Some(Refusal::Ignored)) => ("no endpoint on this node: ignored".into(), Tone::Bad),
        (Some(_), Some(Refusal::Ignored)) => {
            (format!("{all}, none on this node: outsiders ignored"), Tone::Bad)
        }
        (Some(local), None) => (format!("{all}, for outsiders {}", local.len()), Tone::Good),
        // Its virtual server is gone, say.
        (None, None) if port.endpoints.is_empty() => ("nobody answers".into(), Tone::Bad),
        (None, None) => (all, Tone::Good),
    }
}

fn row(mark: String, endpoint: &EndpointView, tone: Tone) -> Vec<Cell> {
    let text = |text: &Option<String>| cell(text.as_deref().unwrap_or_default());
    let connections = endpoint.connections.map(|n| format!("{n} tracked")).unwrap_or_default();
    vec![
        cell(format!("{mark:>3}")).toned(tone),
        cell(endpoint.address.as_str()),
        text(&endpoint.node),
        text(&endpoint.zone),
        cell(connections),
        text(&endpoint.reason).toned(tone),
    ]
}

/// Seconds as people say them.
pub(crate) fn period(seconds: u32) -> String {
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let parts = parts.into_iter().filter(|(n, _)| *n > 0);
    let text: String = parts.map(|(n, unit)| format!("{n}{unit}")).collect();
    if text.is_empty() { "0s".into() } else { text }
}
