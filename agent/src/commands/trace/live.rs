//! The way of a real packet, in the form of a walked one.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::bail;
use zw_dataplane::{LiveTrace, TraceEvent, TraceKind, TraceVerdict};
use zw_plan::{TABLE, Table, VirtualKey};

use super::question::Question;
use super::{Ground, ShownEndpoint, ShownStep, Way};
use crate::commands::run::with_advice;

/// Waits for one.
pub(super) fn watch(question: &Question, ground: &Ground, seconds: u32) -> anyhow::Result<Way> {
    let mut live =
        LiveTrace::start(question.from, question.to, question.protocol).map_err(with_advice)?;
    tracing::info!(
        "waiting up to {seconds} s for a new connection of {} to {}/{}",
        question.from,
        question.to,
        question.protocol
    );
    let met = live.packet(Duration::from_secs(seconds.into())).map_err(with_advice)?;
    if met.is_empty() {
        bail!(
            "no new connection of {} to {}/{} came by within {seconds} s",
            question.from,
            question.to,
            question.protocol
        );
    }
    Ok(told(question, ground, &live, &met))
}

fn told(question: &Question, ground: &Ground, live: &LiveTrace, met: &[TraceEvent]) -> Way {
    let table = ground.tables.get(&question.family());
    let mut steps: Vec<ShownStep> = Vec::new();
    let mut hook = String::new();
    let mut destination = question.to;
    for event in met {
        if let Some(to) = event.headers.as_ref().and_then(|(n, t)| read_destination(n, t)) {
            destination = to;
        }
        // The end of a chain is told too, as a rule without a number.
        let is_rule = event.kind == TraceKind::Rule && event.handle.is_some();
        if !is_rule && event.verdict != TraceVerdict::Drop {
            continue;
        }
        if event.table.starts_with("zoneward-trace-") {
            continue;
        }
        let step = step(event, table, live);
        if !step.hook.is_empty() {
            hook.clone_from(&step.hook);
        }
        steps.push(ShownStep { hook: hook.clone(), ..step });
    }
    let dropped = met.iter().find(|event| event.verdict == TraceVerdict::Drop);
    let last = steps.last().map(|step| step.rule.clone()).unwrap_or_default();
    let (addr, port) = (question.to.ip(), question.to.port());
    let server = VirtualKey { addr, protocol: question.protocol, port };
    // Nobody tells which one it picks.
    let by_ipvs = ground.ipvs.shown(&server);
    let as_node = steps.iter().any(|step| step.rule.contains("masquerade"));
    let (fate, because) = match dropped {
        Some(event) if event.table != TABLE => {
            ("dropped", format!("by {}, which is not Zoneward's", place(event)))
        }
        Some(_) if last.contains("reject") => {
            ("refused", format!("by chain {}", last_chain(&steps)))
        }
        Some(_) => ("dropped", format!("by chain {}", last_chain(&steps))),
        None if destination != question.to => ("reaches", destination.to_string()),
        None => match &by_ipvs {
            Some(server) => ("reaches", format!("one of its endpoints{}", server.words())),
            None => ("untouched", "no rule of Zoneward's rewrote it".to_owned()),
        },
    };
    let endpoint = |address: SocketAddr, probability, weight| ShownEndpoint {
        address: address.to_string(),
        probability,
        weight,
        as_node,
        steps: Vec::new(),
    };
    let endpoints = match &by_ipvs {
        _ if fate != "reaches" => Vec::new(),
        Some(_) if destination == question.to => {
            let reals = ground.ipvs.reals(&server);
            reals.map(|(real, weight)| endpoint(real, None, weight)).collect()
        }
        _ => vec![endpoint(destination, Some(1.0), None)],
    };
    Way {
        from: question.from.to_string(),
        to: question.to.to_string(),
        protocol: question.protocol.to_string(),
        service: table.and_then(|table| super::question::service_at(question, table)),
        fate,
        because,
        steps,
        ipvs: by_ipvs,
        endpoints,
    }
}

fn step(event: &TraceEvent, table: Option<&Table>, live: &LiveTrace) -> ShownStep {
    let chain = table.filter(|_| event.table == TABLE).and_then(|t| t.chains.get(&event.chain));
    let hook = chain.and_then(|chain| chain.hook).map(|hook| hook.point.to_string());
    let rule = live.rule(event).and_then(|(name, at)| {
        let table = table?;
        table.chains.get(name)?.texts(table.family).get(at).cloned()
    });
    let unknown = || match event.kind {
        TraceKind::Policy => format!("policy {}", word(&event.verdict)),
        _ => {
            let handle = event.handle.map(|handle| handle.to_string()).unwrap_or_default();
            format!("rule with handle {handle}: {}", word(&event.verdict))
        }
    };
    ShownStep {
        hook: hook.unwrap_or_default(),
        chain: if event.table == TABLE { event.chain.clone() } else { place(event) },
        rule: rule.unwrap_or_else(unknown),
        found: Vec::new(),
    }
}

/// A chain of somebody else, as nft names it.
fn place(event: &TraceEvent) -> String {
    let family = match event.nfproto {
        1 => "inet",
        2 => "ip",
        3 => "arp",
        5 => "netdev",
        7 => "bridge",
        10 => "ip6",
        _ => "?",
    };
    format!("{family} {} {}", event.table, event.chain)
}

fn word(verdict: &TraceVerdict) -> String {
    match verdict {
        TraceVerdict::Continue => "continue".into(),
        TraceVerdict::Accept => "accept".into(),
        TraceVerdict::Drop => "drop".into(),
        TraceVerdict::To(chain) => format!("to {chain}"),
        TraceVerdict::Other(number) => format!("verdict {number}"),
    }
}

fn last_chain(steps: &[ShownStep]) -> &str {
    steps.last().map(|step| step.chain.as_str()).unwrap_or_default()
}

/// Where the packet is going by now.
fn read_destination(network: &[u8], transport: &[u8]) -> Option<SocketAddr> {
    let addr: IpAddr = match network.first()? >> 4 {
        4 => IpAddr::from(<[u8; 4]>::try_from(network.get(16..20)?).ok()?),
        6 => IpAddr::from(<[u8; 16]>::try_from(network.get(24..40)?).ok()?),
        _ => return None,
    };
    let port = u16::from_be_bytes(transport.get(2..4)?.try_into().ok()?);
    Some(SocketAddr::new(addr, port))
}
