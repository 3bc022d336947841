//! A packet's way as text: its fate first, then hook by hook.

use std::collections::BTreeSet;
use std::io::{self, Write};

use zw_plan::{Fate, SetName, Table, Walk, decode_frontend, show_element};

use super::question::Question;
use super::servers::Servers;
use super::{ShownEndpoint, ShownStep, Way};
use crate::screen::{Cell, Screen, Tone, cell, count};

/// Longer names of chains get a line of their own.
const LONGEST_CHAIN: usize = 24;

pub(super) fn print(screen: &Screen, way: &Way, out: &mut dyn Write) -> io::Result<()> {
    let tone = match way.fate {
        "reaches" => Tone::Good,
        "untouched" | "unknown" => Tone::Doubtful,
        _ => Tone::Bad,
    };
    let service = way.service.as_ref().map(|name| format!("  {name}")).unwrap_or_default();
    let packet = format!("{} -> {}/{}{service}", way.from, way.to, way.protocol);
    writeln!(out, "{}", screen.paint(Tone::Title, &packet))?;
    let said = [vec![cell(format!("{}:", way.fate)).toned(tone), cell(way.because.as_str())]];
    screen.table(out, 2, &said)?;
    writeln!(out)?;
    let mut rows = rows(&way.steps);
    // One block for all endpoints that meet the same rules.
    let mut told: Vec<&[ShownStep]> = Vec::new();
    for endpoint in &way.endpoints {
        if !told.contains(&&endpoint.steps[..]) {
            told.push(&endpoint.steps);
        }
    }
    if let [steps] = told[..] {
        rows.extend(self::rows(steps));
    }
    screen.table(out, 2, &rows)?;
    if !way.endpoints.is_empty() {
        writeln!(out)?;
        screen.table(out, 2, &endpoints(&way.endpoints))?;
    }
    if told.len() > 1 {
        for steps in told {
            let whose: Vec<&str> = way
                .endpoints
                .iter()
                .filter(|endpoint| endpoint.steps == steps)
                .map(|endpoint| endpoint.address.as_str())
                .collect();
            writeln!(out)?;
            screen.paragraph(out, 2, Tone::Plain, &format!("to {}", whose.join(", ")))?;
            screen.table(out, 2, &self::rows(steps))?;
        }
    }
    Ok(())
}

fn rows(steps: &[ShownStep]) -> Vec<Vec<Cell>> {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut last = "";
    for step in steps {
        let hook = if step.hook == last { "" } else { &step.hook };
        last = &step.hook;
        if step.chain.len() <= LONGEST_CHAIN {
            rows.push(vec![cell(hook), cell(step.chain.as_str()), cell(step.rule.as_str())]);
        } else {
            // A sticky Service's: it would take the whole width from every line.
            rows.push(vec![cell(hook), cell(""), cell(format!("{}:", step.chain))]);
            rows.push(vec![cell(""), cell(""), cell(step.rule.as_str())]);
        }
        for found in &step.found {
            rows.push(vec![cell(""), cell(""), cell(found.as_str()).toned(Tone::Faint)]);
        }
    }
    rows
}

fn endpoints(endpoints: &[ShownEndpoint]) -> Vec<Vec<Cell>> {
    endpoints
        .iter()
        .map(|endpoint| {
            let sees = if endpoint.as_node { "sees the node's address" } else { "sees the client" };
            let share = match (endpoint.probability, endpoint.weight) {
                (Some(share), _) => format!("{:>5.1}%", share * 100.0),
                (None, Some(weight)) => format!("weight {weight}"),
                (None, None) => String::new(),
            };
            vec![cell(share), cell(endpoint.address.as_str()).toned(Tone::Good), cell(sees)]
        })
        .collect()
}

/// Why a walk ended as it did, in words.
pub(super) fn because(question: &Question, table: &Table, ipvs: &Servers, walk: &Walk) -> String {
    let service = walk.service().unwrap_or("a Service");
    let last = walk.steps.last().map(|step| step.chain.as_str()).unwrap_or_default();
    let addr = question.to.ip();
    match (&walk.fate, last) {
        (Fate::Redirected(outcomes), _) => {
            let remembered = walk.steps.iter().any(|step| step.rule.contains("map @affinity-"));
            let why = if remembered { ", where this client went before" } else { "" };
            let picks = walk.server.and_then(|server| ipvs.shown(&server));
            let picks = picks.map(|server| server.words()).unwrap_or_default();
            format!("{} of {service}{why}{picks}", count(outcomes.len(), "endpoint"))
        }
        (Fate::Dropped, "firewall") => format!(
            "{} is in none of the source ranges of {service} (loadBalancerSourceRanges): {}",
            question.from,
            ranges(question, table)
        ),
        (Fate::Rejected, "refuse" | "refuse-node-ports") => {
            format!("{service} has no usable endpoint (`zoneward explain` tells why)")
        }
        (Fate::Dropped, "ignore") => format!(
            "{service} has endpoints, but none on this node, and its traffic policy is Local \
             (`zoneward explain` tells more)"
        ),
        (Fate::Rejected, "stray") => {
            format!(
                "{addr} is a cluster IP, but serves no {}; it serves {}",
                wanted(question),
                served(question, table)
            )
        }
        (Fate::Dropped, "stray") => {
            format!("{addr} is in the range of cluster IPs, and no Service has it")
        }
        (Fate::Unknown { chain }, _) => format!(
            "chain {chain} has rules of other settings or another version, or was meddled with \
             (`nft list chain {} zoneward {chain}` shows them)",
            if question.from.is_ipv4() { "ip" } else { "ip6" }
        ),
        (Fate::Untouched, _) => {
            format!(
                "no Service has {}: it goes where it was sent, as if Zoneward were not there; {addr} serves {}",
                question.to,
                served(question, table)
            )
        }
        (Fate::Dropped, chain) => {
            format!("chain {chain} found the rules of {service} in the middle of a change")
        }
        (Fate::Rejected, chain) => format!("by chain {chain}"),
    }
}

fn wanted(question: &Question) -> String {
    format!("{}/{}", question.to.port(), question.protocol)
}

/// What else an address serves.
fn served(question: &Question, table: &Table) -> String {
    let elements = table.elements.get(&SetName::Services).into_iter().flat_map(|e| e.values());
    let of_address = elements.filter_map(|element| {
        let frontend = decode_frontend(table.family, SetName::Services, &element.key)?;
        let it = frontend.addr() == Some(question.to.ip());
        it.then(|| format!("{}/{}", frontend.port, frontend.protocol))
    });
    let ports: BTreeSet<String> = of_address.collect();
    if ports.is_empty() {
        "nothing".into()
    } else {
        ports.into_iter().collect::<Vec<_>>().join(", ")
    }
}

/// The source ranges of what the packet is sent to.
fn ranges(question: &Question, table: &Table) -> String {
    let elements = table.elements.get(&SetName::Allowed).into_iter().flat_map(|e| e.values());
    let of_it = elements.filter(|element| {
        let frontend = decode_frontend(table.family, SetName::Allowed, &element.key);
        frontend.is_some_and(|frontend| {
            frontend.addr() == Some(question.to.ip())
                && frontend.port == question.to.port()
                && frontend.protocol == question.protocol
        })
    });
    let shown = of_it.filter_map(|element| {
        let text = show_element(table.family, SetName::Allowed, element);
        text.rsplit(" . ").next().map(str::to_owned)
    });
    let ranges: Vec<String> = shown.collect();
    if ranges.is_empty() { "there are none".into() } else { ranges.join(", ") }
}
