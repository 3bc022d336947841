//! `zoneward dump-rules`: what is programmed, per Service, from the kernel or from manifests.

mod ruleset;
mod text;
mod view;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use nftables::schema::NfListObject;
use serde::Serialize;
use tracing::warn;
use zw_dataplane::{Ipvs, Kernel, Tables, WithIpvs};
use zw_model::Family;
use zw_plan::{Desired, PlanConfig, Slots, Surroundings, Table, plan_service};

use super::run::with_advice;
use crate::BadInput;
use crate::cli::{DumpRulesArgs, Output};
use crate::index::Index;
use crate::state::StateSource;
use view::{PortView, from_index, from_kernel};

pub(crate) fn run(args: DumpRulesArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let filter = args.service.as_deref().map(Filter::parse).transpose()?;
    if filter.is_some() && args.output == Output::Nft {
        bail!(BadInput("-o nft prints whole tables: leave the Service out".into()));
    }
    let dump = match (&args.state, &args.node_name) {
        (Some(path), Some(node_name)) => {
            let index = load(StateSource::new(path.clone()), node_name)?;
            let desired = plan(&index, &args);
            Dump { ports: from_index(&index, &desired), tables: tables_of(&desired)? }
        }
        _ => {
            let ipvs = Ipvs::open(Duration::ZERO).map_err(with_advice)?;
            let mut kernel = WithIpvs::new(Kernel::open().map_err(with_advice)?, ipvs);
            let read = kernel.read_back().map_err(with_advice)?;
            if read.actual.tables.is_empty() && args.output == Output::Text {
                bail!("Zoneward has programmed nothing here: there is no table zoneward");
            }
            for (family, _) in read.actual.tables.iter().filter(|(_, table)| table.incompatible) {
                warn!("the {family} table is of another version, or was meddled with: not shown");
            }
            let ports = from_kernel(kernel.table(), &read.actual).map_err(with_advice)?;
            let tables = Family::BOTH
                .into_iter()
                .filter_map(|family| {
                    Some(Table::from_actual(family, read.actual.tables.get(&family)?))
                })
                .collect();
            Dump { ports, tables }
        }
    };
    dump.print(filter, args.output, out)
}

struct Dump {
    ports: Vec<PortView>,
    tables: Vec<Table>,
}

/// The JSON form.
#[derive(Serialize)]
struct Json<'a> {
    services: Vec<&'a PortView>,
    /// Only without a filter, which the ruleset knows nothing of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nftables: Vec<NfListObject<'a>>,
}

impl Dump {
    fn print(
        self,
        filter: Option<Filter>,
        output: Output,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let shown: Vec<&PortView> = self
            .ports
            .iter()
            .filter(|port| filter.as_ref().is_none_or(|f| f.matches(port)))
            .collect();
        if let Some(filter) = filter.as_ref().filter(|_| shown.is_empty()) {
            bail!("no Service port {} is programmed", filter.text);
        }
        match output {
            Output::Text => text::print(&shown, out)?,
            Output::Json => {
                let tables = self.tables.iter().filter(|_| filter.is_none());
                let nftables = tables.flat_map(ruleset::objects).collect();
                let json = serde_json::to_string_pretty(&Json { services: shown, nftables });
                writeln!(out, "{}", json.context("cannot print JSON")?)?;
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

/// `namespace/name[:port]`
struct Filter {
    text: String,
    service: String,
    port: Option<String>,
}

impl Filter {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let (service, port) = match text.split_once(':') {
            Some((service, port)) => (service, Some(port.to_owned())),
            None => (text, None),
        };
        let parts: Vec<&str> = service.split('/').collect();
        if parts.len() != 2 || parts.contains(&"") || port.as_deref() == Some("") {
            bail!(BadInput(format!(
                "{text:?} is not a Service: write namespace/name or namespace/name:port"
            )));
        }
        Ok(Self { text: text.into(), service: service.into(), port })
    }

    fn matches(&self, port: &PortView) -> bool {
        let right_port = |want: &String| port.name == *want || port.port.to_string() == *want;
        port.service == self.service && self.port.as_ref().is_none_or(right_port)
    }
}

/// Reads manifests once.
fn load(mut source: StateSource, node_name: &str) -> anyhow::Result<Index> {
    let delta = source.poll();
    for complaint in &delta.complaints {
        warn!("{complaint}");
    }
    if !source.has_been_read() {
        bail!(BadInput(format!("nothing in {} could be read", source.path().display())));
    }
    let mut index = Index::new(node_name);
    delta.events.into_iter().for_each(|event| index.accept(event));
    Ok(index)
}

fn plan(index: &Index, args: &DumpRulesArgs) -> Desired {
    let surroundings = Surroundings {
        node_addresses: index.node().addresses.iter().copied().collect(),
        service_ranges: index.service_ranges(),
        ..Surroundings::default()
    };
    // As the agent does by default: on the primary addresses, or on any of a family that has none.
    let lacks = |family: &Family| {
        !surroundings.node_addresses.iter().any(|addr| Family::of(*addr) == *family)
    };
    let any_node_address = Family::BOTH.into_iter().filter(lacks).collect();
    let config = PlanConfig { any_node_address, ..args.plan.config() };
    let mut desired = Desired::new(config, surroundings);
    desired.load(index.service_keys().filter_map(|key| {
        let (service, slices) = index.service(key)?;
        Some((key.clone(), Some(plan_service(service, slices, index.node(), |_| Slots::default()))))
    }));
    desired
}

fn tables_of(desired: &Desired) -> anyhow::Result<Vec<Table>> {
    Family::BOTH
        .into_iter()
        .map(|family| Table::of(desired, family).map_err(|refused| anyhow::anyhow!(refused.0)))
        .collect()
}
