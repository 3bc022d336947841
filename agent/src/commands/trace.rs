//! `zoneward trace`: the way of one packet through the rules, walked or watched.

mod live;
mod question;
mod servers;
mod show;

use std::collections::HashMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use serde::Serialize;
use zw_dataplane::{Tables, WithIpvs};
use zw_model::Family;
use zw_plan::{Fate, PlanConfig, Step, Table, Walk, show_element, walk_with};

use super::run::with_advice;
use crate::cli::{StoryOutput, TraceArgs};
use crate::inspect::node::local_addresses;
use crate::inspect::planned::Planned;
use crate::screen::Screen;
use question::Question;
use servers::Servers;

/// A packet's way, whoever told it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Way {
    from: String,
    to: String,
    protocol: String,
    /// The Service port it met.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    /// `reaches`, `refused`, `dropped`, `untouched` or `unknown`
    fate: &'static str,
    because: String,
    steps: Vec<ShownStep>,
    /// What picks one of the endpoints, in the ipvs mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    ipvs: Option<ShownServer>,
    endpoints: Vec<ShownEndpoint>,
}

/// The virtual server that a packet gets to.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownServer {
    server: String,
    scheduler: String,
    /// How long a client stays with its endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    affinity_seconds: Option<u32>,
}

/// A rule that matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownStep {
    hook: String,
    chain: String,
    rule: String,
    /// The elements it found, as `@set element`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    found: Vec<String>,
}

/// Where it may end.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownEndpoint {
    address: String,
    /// From 0 to 1; not told where IPVS picks, whose schedulers look at more than chance.
    #[serde(skip_serializing_if = "Option::is_none")]
    probability: Option<f64>,
    /// As a real server of IPVS.
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
    /// It sees the node's address as the client's.
    as_node: bool,
    steps: Vec<ShownStep>,
}

/// The rules to walk through, and the addresses of the node that has them.
struct Ground {
    tables: HashMap<Family, Table>,
    node: Vec<IpAddr>,
    ipvs: Servers,
}

pub(crate) fn run(args: TraceArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let screen = Screen::standard(args.color.color);
    let ground = match args.manifests.given() {
        Some((path, node_name)) => planned(path, node_name, args.plan.config())?,
        None => held()?,
    };
    let question = Question::parse(&args, &ground)?;
    let way = if args.live {
        live::watch(&question, &ground, args.wait)?
    } else {
        let table = ground
            .tables
            .get(&question.family())
            .ok_or_else(|| anyhow!("there is no {} table zoneward here", question.family()))?;
        let walk = walk_with(table, &ground.ipvs.servers, &ground.node, question.packet());
        walked(&question, table, &ground.ipvs, &walk)
    };
    match args.output {
        StoryOutput::Json => {
            let json = serde_json::to_string_pretty(&way).context("cannot print JSON")?;
            writeln!(out, "{json}")?;
        }
        StoryOutput::Text => show::print(&screen, &way, out)?,
    }
    Ok(())
}

fn planned(path: &Path, node_name: &str, config: PlanConfig) -> anyhow::Result<Ground> {
    let planned = Planned::from_manifests(path, node_name, config, &HashMap::new())?;
    let node = planned.index.node().addresses.iter().copied().chain(loopback()).collect();
    let tables = planned.tables()?.into_iter().map(|table| (table.family, table)).collect();
    Ok(Ground { tables, node, ipvs: Servers::wanted(&planned.desired) })
}

/// The kernel's tables: elements as they are, rules where their fingerprints are those of ours.
fn held() -> anyhow::Result<Ground> {
    let read = WithIpvs::to_look().and_then(|mut kernel| kernel.read_back());
    let actual = read.map_err(with_advice)?.actual;
    if actual.tables.is_empty() {
        bail!("Zoneward has programmed nothing here: there is no table zoneward");
    }
    let tables = actual.tables.iter();
    let tables = tables.map(|(family, table)| (*family, Table::from_actual(*family, table)));
    let node: Vec<IpAddr> = local_addresses()?.into_iter().chain(loopback()).collect();
    let ipvs = Servers::held(&actual.ipvs, &node);
    Ok(Ground { tables: tables.collect(), node, ipvs })
}

fn loopback() -> [IpAddr; 2] {
    [IpAddr::from([127, 0, 0, 1]), std::net::Ipv6Addr::LOCALHOST.into()]
}

fn walked(question: &Question, table: &Table, ipvs: &Servers, walk: &Walk) -> Way {
    let slots: u32 = walk.ways.iter().map(|way| way.slots).sum();
    let steps = |steps: &[Step]| steps.iter().map(|step| shown(table.family, step)).collect();
    let fate = match &walk.fate {
        Fate::Redirected(_) => "reaches",
        Fate::Rejected => "refused",
        Fate::Dropped => "dropped",
        Fate::Untouched => "untouched",
        Fate::Unknown { .. } => "unknown",
    };
    let because = show::because(question, table, ipvs, walk);
    let (fate, because) = match ipvs.obstacle(question, walk) {
        Some(obstacle) => ("unknown", obstacle),
        None => (fate, because),
    };
    Way {
        from: question.from.to_string(),
        to: question.to.to_string(),
        protocol: question.protocol.to_string(),
        service: walk.service().map(str::to_owned),
        fate,
        because,
        steps: steps(&walk.steps),
        ipvs: walk.server.and_then(|server| ipvs.shown(&server)),
        endpoints: walk
            .ways
            .iter()
            .map(|way| ShownEndpoint {
                address: way.outcome.to.to_string(),
                probability: walk
                    .server
                    .is_none()
                    .then(|| f64::from(way.slots) / f64::from(slots.max(1))),
                weight: walk.server.and_then(|server| ipvs.weight(&server, way.outcome.to)),
                as_node: way.outcome.masqueraded,
                steps: steps(&way.steps),
            })
            .collect(),
    }
}

fn shown(family: Family, step: &Step) -> ShownStep {
    // A lookup in each slot finds them all; they are told as endpoints.
    let found = step.found.iter().filter(|(set, _)| !set.as_str().ends_with("endpoints"));
    let found = found.map(|(set, e)| format!("@{set} {}", show_element(family, *set, e)));
    ShownStep {
        hook: step.hook.to_string(),
        chain: step.chain.clone(),
        rule: step.rule.clone(),
        found: found.collect(),
    }
}
