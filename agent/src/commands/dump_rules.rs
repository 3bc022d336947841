//! `zoneward dump-rules`: what is programmed, per Service, from the kernel, from a running agent or from
//! manifests.

mod ruleset;

use std::collections::HashMap;
use std::io::Write;
use std::net::IpAddr;
use std::panic::resume_unwind;
use std::thread;

use anyhow::{Context, bail};
use nftables::schema::NfListObject;
use serde::Serialize;
use tracing::{debug, warn};
use zw_dataplane::{Tables, WithIpvs};
use zw_model::ServiceKey;
use zw_plan::Table;

use super::run::with_advice;
use crate::BadInput;
use crate::cli::{DumpRulesArgs, From, Output};
use crate::inspect::agent::{self, AgentReport, SetAside};
use crate::inspect::filter::{Filter, ServiceName};
use crate::inspect::planned::Planned;
use crate::inspect::text;
use crate::inspect::tracked;
use crate::inspect::view::{IpvsView, PortView, from_kernel, from_planned};
use crate::screen::{Screen, Tone, count};

/// What `-o json` says of itself; raised if a field ever changes its meaning.
pub(crate) const SCHEMA: u32 = 1;

/// How many lines of one kind the agent's report takes, before what was asked for.
const MOST_TOLD: usize = 10;

pub(crate) fn run(args: DumpRulesArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let filter = Filter {
        service: args.service.as_deref().map(ServiceName::parse).transpose()?,
        namespace: args.namespace.clone(),
        address: args.address,
        endpoint: args.endpoint,
    };
    if !filter.is_empty() && args.output == Output::Nft {
        bail!(BadInput("-o nft prints whole tables: leave the Service out".into()));
    }
    let screen = Screen::standard(args.color.color);
    let dump = match (args.manifests.given(), args.from) {
        (Some((path, node_name)), _) => {
            let plan = args.plan.config();
            let planned = Planned::from_manifests(path, node_name, plan, &HashMap::new())?;
            Dump::planned(planned, args.output)?
        }
        (None, From::Agent) => {
            let only = filter.service.as_ref().map(|service| &service.key);
            // The kernel is read while the agent answers: each takes its time.
            let held = thread::spawn(|| Dump::held(Output::Text));
            let mut dump = Dump::planned(agent::ask(args.socket.path(), only)?, args.output)?;
            match held.join() {
                Ok(Ok(held)) => dump.count_connections(&held),
                Ok(Err(error)) => debug!("no counters: {error:#}"),
                Err(panic) => resume_unwind(panic),
            }
            dump
        }
        _ => Dump::held(args.output)?,
    };
    dump.print(&screen, &filter, args.output, out)
}

struct Dump {
    ports: Vec<PortView>,
    /// Where the form shows them.
    tables: Vec<Table>,
    ipvs: Option<IpvsView>,
    agent: Option<AgentReport>,
}

/// The JSON form.
#[derive(Serialize)]
struct Json<'a> {
    schema: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a AgentReport>,
    services: Vec<&'a PortView>,
    /// Only without a filter, which the ruleset knows nothing of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nftables: Vec<NfListObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipvs: Option<&'a IpvsView>,
}

impl Dump {
    fn planned(planned: Planned, output: Output) -> anyhow::Result<Self> {
        let tables = if output == Output::Text { Vec::new() } else { planned.tables()? };
        let ipvs = IpvsView::wanted(&planned.desired);
        Ok(Self { ports: from_planned(&planned), tables, ipvs, agent: planned.agent })
    }

    /// What the kernel holds.
    fn held(output: Output) -> anyhow::Result<Self> {
        let mut kernel = WithIpvs::to_look().map_err(with_advice)?;
        let read = kernel.read_back().map_err(with_advice)?;
        if read.actual.tables.is_empty() && output == Output::Text {
            bail!("Zoneward has programmed nothing here: there is no table zoneward");
        }
        for (family, _) in read.actual.tables.iter().filter(|(_, table)| table.incompatible) {
            warn!("the {family} table is of another version, or was meddled with: not shown");
        }
        let mut ports = from_kernel(kernel.table(), &read.actual).map_err(with_advice)?;
        tracked::count(&mut ports);
        let tables = read.actual.tables.iter().filter(|_| output != Output::Text);
        let tables = tables.map(|(family, table)| Table::from_actual(*family, table)).collect();
        Ok(Self { ports, tables, ipvs: IpvsView::held(&read.actual), agent: None })
    }

    /// Takes the kernel's counters over.
    fn count_connections(&mut self, held: &Self) {
        type Place = (Option<IpAddr>, String, String, u16);
        let place = |port: &PortView| -> Place {
            (port.address, port.family.clone(), port.protocol.clone(), port.port)
        };
        let counts: HashMap<Place, Option<u64>> =
            held.ports.iter().map(|port| (place(port), port.connections)).collect();
        for port in self.ports.iter_mut().filter(|port| port.taken_by.is_none()) {
            port.connections = counts.get(&place(port)).copied().flatten();
        }
        tracked::count(&mut self.ports);
    }

    fn print(
        self,
        screen: &Screen,
        filter: &Filter,
        output: Output,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let shown: Vec<&PortView> = self.ports.iter().filter(|port| filter.matches(port)).collect();
        if !filter.is_empty() && shown.is_empty() {
            bail!("no Service port {} is programmed", filter.describe());
        }
        match output {
            Output::Text => {
                if let Some(agent) = &self.agent {
                    let only = filter.service.as_ref().map(|service| &service.key);
                    print_agent(screen, agent, filter.is_empty(), only, out)?;
                }
                if let Some(ipvs) = self.ipvs.as_ref().filter(|_| filter.is_empty()) {
                    let tone = if ipvs.state == "up" { Tone::Plain } else { Tone::Bad };
                    screen.paragraph(out, 0, tone, &ipvs.words())?;
                    writeln!(out)?;
                }
                text::print(screen, &shown, out)?;
            }
            Output::Json => {
                let tables = self.tables.iter().filter(|_| filter.is_empty());
                let nftables = tables.flat_map(ruleset::objects).collect();
                let agent = self.agent.as_ref();
                let ipvs = self.ipvs.as_ref().filter(|_| filter.is_empty());
                let json = Json { schema: SCHEMA, agent, services: shown, nftables, ipvs };
                let json = serde_json::to_string_pretty(&json).context("cannot print JSON")?;
                writeln!(out, "{json}")?;
            }
            Output::Nft => {
                for table in &self.tables {
                    write!(out, "{table}")?;
                }
            }
        }
        Ok(())
    }
}

/// How the agent is; what is wrong with it, whatever was asked for; which Services are set aside, of
/// all, or whether the only one is that was asked for.
pub(crate) fn print_agent(
    screen: &Screen,
    agent: &AgentReport,
    all: bool,
    only: Option<&ServiceKey>,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let recent = &agent.recent;
    if all {
        let last = match &recent.last_sync {
            Some(last) => format!(
                "last sync {:.0} s ago, {} in {:.1} ms",
                last.seconds_ago,
                count(last.elements, "element"),
                last.took_ms
            ),
            None => "no sync yet".into(),
        };
        let text = format!(
            "agent {} on {}: {last}; {} syncs, {} failed, {} drift repairs",
            agent.version, agent.node, recent.syncs, recent.failed_syncs, recent.drift_repairs
        );
        screen.paragraph(out, 0, Tone::Plain, &text)?;
    }
    for line in &agent.waiting_for {
        screen.paragraph(out, 0, Tone::Doubtful, &format!("waiting: {line}"))?;
    }
    if let Some(error) = &recent.error {
        let text = format!("error {:.0} s ago: {}", error.seconds_ago, error.text);
        screen.paragraph(out, 0, Tone::Bad, &text)?;
    }
    let only = only.map(ToString::to_string);
    let concerns = |aside: &&SetAside| only.as_ref().is_none_or(|only| *only == aside.service);
    let mut set_aside = agent.set_aside.iter().filter(concerns);
    for SetAside { service, why } in set_aside.by_ref().take(MOST_TOLD) {
        let text = format!("set aside: {service} has no rules until it changes: {why}");
        screen.paragraph(out, 0, Tone::Bad, &text)?;
    }
    let more = set_aside.count();
    if more > 0 {
        let text = format!("set aside: {} more, see -o json", count(more, "Service"));
        screen.paragraph(out, 0, Tone::Bad, &text)?;
    }
    if all {
        for complaint in recent.complaints.iter().rev().take(MOST_TOLD) {
            let text = format!("not used: {}", complaint.text);
            screen.paragraph(out, 0, Tone::Doubtful, &text)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::recent::Told;

    fn report(set_aside: usize) -> AgentReport {
        let aside = |i| SetAside { service: format!("web/s{i}"), why: "too many".into() };
        AgentReport {
            version: "1".into(),
            node: "node-1".into(),
            waiting_for: Vec::new(),
            set_aside: (0..set_aside).map(aside).collect(),
            recent: Told::default(),
        }
    }

    fn printed(report: &AgentReport, only: Option<ServiceKey>) -> Vec<String> {
        let mut out = Vec::new();
        print_agent(&Screen { width: None, colour: false }, report, false, only.as_ref(), &mut out)
            .unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn services_that_are_set_aside_are_named_with_the_reason() {
        let line = "set aside: web/s1 has no rules until it changes: too many";
        assert_eq!(printed(&report(2), None).last().map(String::as_str), Some(line));
        assert_eq!(printed(&report(2), Some(ServiceKey::new("web", "s1"))), [line]);
        assert!(printed(&report(2), Some(ServiceKey::new("web", "other"))).is_empty());
        let many = printed(&report(12), None);
        assert_eq!(many.len(), 11);
        assert_eq!(many[10], "set aside: 2 Services more, see -o json");
    }
}
