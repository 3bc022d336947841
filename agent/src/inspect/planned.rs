//! What should be in the kernel, from objects: manifests on disk, or those a running agent knows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use ipnet::IpNet;
use tracing::warn;
use zw_model::Family;
use zw_plan::{Desired, Frontend, PlanConfig, Slots, Surroundings, Table, plan_service};

use super::agent::AgentReport;
use crate::BadInput;
use crate::convert::{Body, Object};
use crate::index::Index;
use crate::state::{Event, StateSource};

/// Nodes by name, and the zone of each.
pub(crate) type Nodes = BTreeMap<Arc<str>, Option<Arc<str>>>;

/// Objects and the rules they ask for.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) index: Index,
    pub(crate) desired: Desired,
    /// The Nodes that manifests name, and their zones; an agent sees no Node but its own.
    pub(crate) nodes: Nodes,
    /// What the agent says of itself, if it was asked.
    pub(crate) agent: Option<AgentReport>,
}

/// What rules depend on besides objects.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) plan: PlanConfig,
    /// Where node ports are served; `None`: as an agent without settings would do it.
    pub(crate) node_addresses: Option<BTreeSet<IpAddr>>,
    /// In the ipvs mode, the addresses that the node has by itself.
    pub(crate) own_addresses: BTreeSet<IpAddr>,
    /// `None`: as the objects say.
    pub(crate) service_ranges: Option<Vec<IpNet>>,
}

impl From<PlanConfig> for Settings {
    fn from(plan: PlanConfig) -> Self {
        let own_addresses = BTreeSet::new();
        Self { plan, node_addresses: None, own_addresses, service_ranges: None }
    }
}

impl Planned {
    /// From manifests, for the node of this name. `slots`: who holds which slot already.
    pub(crate) fn from_manifests(
        path: &Path,
        node_name: &str,
        settings: impl Into<Settings>,
        slots: &HashMap<Frontend, Slots>,
    ) -> anyhow::Result<Self> {
        let (index, nodes) = load(path, node_name)?;
        Ok(Self { nodes, ..Self::new(index, settings.into(), slots, None) })
    }

    pub(crate) fn new(
        index: Index,
        settings: Settings,
        slots: &HashMap<Frontend, Slots>,
        agent: Option<AgentReport>,
    ) -> Self {
        let Settings { mut plan, node_addresses, own_addresses, service_ranges } = settings;
        let node_addresses = node_addresses.unwrap_or_else(|| {
            let addresses: BTreeSet<IpAddr> = index.node().addresses.iter().copied().collect();
            // As the agent does by default: on the primary addresses, or on any of a family without.
            // IPVS knows no "any", and of a node that is not here no others are known.
            let lacks = |family: &Family| {
                plan.ipvs.is_none() && !addresses.iter().any(|addr| Family::of(*addr) == *family)
            };
            let any = Family::BOTH.into_iter().filter(lacks).collect();
            plan.any_node_address = any;
            addresses
        });
        let own_addresses = if plan.ipvs.is_some() && own_addresses.is_empty() {
            index.node().addresses.iter().copied().collect()
        } else {
            own_addresses
        };
        let service_ranges = service_ranges.unwrap_or_else(|| index.service_ranges());
        let surroundings = Surroundings { node_addresses, service_ranges, own_addresses };
        let mut desired = Desired::new(plan, surroundings);
        desired.load(index.service_keys().filter_map(|key| {
            let (service, slices) = index.service(key)?;
            let previous = |frontend: &Frontend| slots.get(frontend).cloned().unwrap_or_default();
            Some((key.clone(), Some(plan_service(service, slices, index.node(), previous))))
        }));
        Self { index, desired, nodes: Nodes::new(), agent }
    }

    /// The tables of a fresh start.
    pub(crate) fn tables(&self) -> anyhow::Result<Vec<Table>> {
        Family::BOTH
            .into_iter()
            .map(|family| {
                Table::of(&self.desired, family).map_err(|refused| anyhow::anyhow!(refused.0))
            })
            .collect()
    }
}

/// Reads manifests once.
fn load(path: &Path, node_name: &str) -> anyhow::Result<(Index, Nodes)> {
    let mut source = StateSource::new(path.to_owned());
    let delta = source.poll();
    for complaint in &delta.complaints {
        warn!("{complaint}");
    }
    if !source.has_been_read() {
        bail!(BadInput(format!("nothing in {} could be read", path.display())));
    }
    let mut index = Index::new(node_name);
    let mut nodes = Nodes::new();
    for event in delta.events {
        if let Event::Apply(Object { id, body: Body::Node(node), .. }) = &event {
            nodes.insert(id.name.clone(), node.zone.clone());
        }
        index.accept(event);
    }
    Ok((index, nodes))
}
