//! All Services' rules together: who owns which address, what Services share, and what one more
//! change means for the kernel. Cost follows the change: an update touches only the Services it
//! names, and those that compete with them for an address.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use zw_model::{Family, ServiceKey};

use crate::base::{PlanConfig, base_table, shape_chain, shape_name};
use crate::changes::{Changes, Net};
use crate::element::{Element, Key};
use crate::ruleset::{Chain, SetName};
use crate::service::{Frontend, PortRules, ServiceRules};

/// How many unused shape chains stay for the next Service that scales to that size. A busy Service
/// scaling up and down would otherwise make and drop a chain with every endpoint.
const IDLE_SHAPES: usize = 32;

/// The ruleset that should be in the kernel.
#[derive(Debug)]
pub struct Desired {
    config: PlanConfig,
    services: BTreeMap<ServiceKey, ServiceRules>,
    /// Everyone who wants a frontend, in order; the first has it.
    claims: HashMap<Frontend, Vec<ServiceKey>>,
    /// How many Service ports use each shape. Unused ones stay a while, see [`IDLE_SHAPES`].
    shapes: BTreeMap<(Family, u32), usize>,
    idle_shapes: BTreeSet<(Family, u32)>,
    /// How many Service ports have an endpoint with this address on this node.
    hairpins: BTreeMap<IpAddr, usize>,
}

/// A frontend that more than one Service claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contested {
    /// What they claim.
    pub frontend: Frontend,
    /// Who has it.
    pub owner: ServiceKey,
    /// Who does not.
    pub losers: Vec<ServiceKey>,
}

impl Desired {
    /// No Services yet.
    pub fn new(config: PlanConfig) -> Self {
        Self {
            config,
            services: BTreeMap::new(),
            claims: HashMap::new(),
            shapes: BTreeMap::new(),
            idle_shapes: BTreeSet::new(),
            hairpins: BTreeMap::new(),
        }
    }

    /// Replaces the rules of some Services (`None`: the Service is gone) and says what that changes
    /// in the kernel.
    pub fn update(
        &mut self,
        updates: impl IntoIterator<Item = (ServiceKey, Option<ServiceRules>)>,
    ) -> Changes {
        let idle_before = self.idle_shapes.clone();
        let mut net = Net::default();
        let mut new_shapes = BTreeSet::new();
        for (key, rules) in updates {
            self.replace(key, rules, Some(&mut net), &mut new_shapes);
        }
        let mut changes = Changes::default();
        for (family, slots) in new_shapes {
            let chain = shape_chain(family, slots, &self.config);
            changes.table(family).add_chains.push(chain);
        }
        net.settle(&mut changes);
        self.retire_shapes(&idle_before, &mut changes);
        changes
    }

    /// As [`Desired::update`] for a start or a resync, where the kernel is compared as a whole and the
    /// single changes would only cost memory.
    pub fn load(&mut self, updates: impl IntoIterator<Item = (ServiceKey, Option<ServiceRules>)>) {
        for (key, rules) in updates {
            self.replace(key, rules, None, &mut BTreeSet::new());
        }
        self.idle_shapes.clear();
        self.shapes.retain(|_, uses| *uses > 0);
    }

    /// Every Service that has rules.
    pub fn service_keys(&self) -> impl Iterator<Item = &ServiceKey> {
        self.services.keys()
    }

    /// A Service's rules.
    pub fn service(&self, key: &ServiceKey) -> Option<&ServiceRules> {
        self.services.get(key)
    }

    /// The endpoints that hold a frontend's slots, as its Service wants them.
    pub fn slots(&self, key: &ServiceKey, frontend: &Frontend) -> Vec<SocketAddr> {
        let port = self.services.get(key).and_then(|rules| rules.port(frontend));
        port.map(|port| port.backends.iter().map(|b| b.addr).collect()).unwrap_or_default()
    }

    /// A Service's frontends that others claim too.
    pub fn contested(&self, key: &ServiceKey) -> Vec<Contested> {
        let rules = self.services.get(key).into_iter().flat_map(|rules| &rules.ports);
        rules
            .filter_map(|port| match self.claims.get(&port.frontend)?.as_slice() {
                [owner, losers @ ..] if !losers.is_empty() => Some(Contested {
                    frontend: port.frontend,
                    owner: owner.clone(),
                    losers: losers.to_vec(),
                }),
                _ => None,
            })
            .collect()
    }

    /// What the table says of the settings it was made with.
    pub(crate) fn note(&self, family: Family) -> String {
        self.config.note(family)
    }

    /// Every chain of one family's table.
    pub(crate) fn chains(&self, family: Family) -> Vec<Chain> {
        let shapes = self.shapes.keys().filter(|(of, _)| *of == family);
        let shapes = shapes.map(|(family, slots)| shape_chain(*family, *slots, &self.config));
        base_table(&self.config).into_iter().chain(shapes).collect()
    }

    /// Every element of one family's table.
    pub(crate) fn elements(&self, family: Family, each: &mut dyn FnMut(SetName, Element)) {
        for (key, rules) in &self.services {
            for port in rules.ports.iter().filter(|port| port.frontend.family() == family) {
                if self.claims.get(&port.frontend).and_then(|c| c.first()) != Some(key) {
                    continue;
                }
                for (set, element) in port.heads() {
                    each(set, element);
                }
                for element in (0..port.slots()).filter_map(|slot| port.endpoint(slot)) {
                    each(SetName::Endpoints, element);
                }
            }
        }
        for addr in self.hairpins.keys().filter(|addr| Family::of(**addr) == family) {
            each(SetName::Hairpin, hairpin(*addr));
        }
    }

    fn replace(
        &mut self,
        key: ServiceKey,
        rules: Option<ServiceRules>,
        mut net: Option<&mut Net>,
        new_shapes: &mut BTreeSet<(Family, u32)>,
    ) {
        let frontends = |rules: Option<&ServiceRules>| -> BTreeSet<Frontend> {
            rules.into_iter().flat_map(|r| &r.ports).map(|port| port.frontend).collect()
        };
        let released = frontends(self.services.get(&key));
        let claimed = frontends(rules.as_ref());
        let touched: Vec<Frontend> = released.union(&claimed).copied().collect();
        let before: Vec<Option<PortRules>> =
            touched.iter().map(|frontend| self.active(frontend).cloned()).collect();

        for frontend in released.difference(&claimed) {
            self.release(frontend, &key);
        }
        for frontend in claimed.difference(&released) {
            self.claim(*frontend, &key);
        }
        match rules {
            Some(rules) => self.services.insert(key, rules),
            None => self.services.remove(&key),
        };

        for (frontend, before) in touched.iter().zip(before) {
            let after = self.active(frontend).cloned();
            if before == after {
                continue;
            }
            self.count_shared(before.as_ref(), after.as_ref(), &mut net, new_shapes);
            if let Some(net) = &mut net {
                record(frontend.family(), before.as_ref(), after.as_ref(), net);
            }
        }
    }

    /// The rules in force for a frontend.
    fn active(&self, frontend: &Frontend) -> Option<&PortRules> {
        let owner = self.claims.get(frontend)?.first()?;
        self.services.get(owner)?.port(frontend)
    }

    fn claim(&mut self, frontend: Frontend, key: &ServiceKey) {
        let claimants = self.claims.entry(frontend).or_default();
        if let Err(at) = claimants.binary_search(key) {
            claimants.insert(at, key.clone());
        }
    }

    fn release(&mut self, frontend: &Frontend, key: &ServiceKey) {
        if let Some(claimants) = self.claims.get_mut(frontend) {
            claimants.retain(|claimant| claimant != key);
            if claimants.is_empty() {
                self.claims.remove(frontend);
            }
        }
    }

    /// Counts who uses shapes and hairpin addresses; the first user brings one in, the last one lets
    /// it go.
    fn count_shared(
        &mut self,
        before: Option<&PortRules>,
        after: Option<&PortRules>,
        net: &mut Option<&mut Net>,
        new_shapes: &mut BTreeSet<(Family, u32)>,
    ) {
        let shape = |port: &PortRules| (port.frontend.family(), port.slots());
        if let Some(shape) = after.map(shape).filter(|(_, slots)| *slots > 0) {
            let uses = self.shapes.entry(shape).or_insert_with(|| {
                new_shapes.insert(shape);
                0
            });
            *uses += 1;
            self.idle_shapes.remove(&shape);
        }
        if let Some(shape) = before.map(shape).filter(|(_, slots)| *slots > 0)
            && let Some(uses) = self.shapes.get_mut(&shape)
        {
            *uses -= 1;
            if *uses == 0 {
                self.idle_shapes.insert(shape);
            }
        }

        let mut recorded = |addr: IpAddr, is: bool| {
            if let Some(net) = net {
                let element = hairpin(addr);
                let (key, family) = (element.key, Family::of(addr));
                let (before, after) =
                    if is { (None, Some(element)) } else { (Some(element), None) };
                net.record(family, SetName::Hairpin, key, before, after);
            }
        };
        for addr in after.into_iter().flat_map(PortRules::local_addresses) {
            let uses = self.hairpins.entry(addr).or_default();
            *uses += 1;
            if *uses == 1 {
                recorded(addr, true);
            }
        }
        for addr in before.into_iter().flat_map(PortRules::local_addresses) {
            let Some(uses) = self.hairpins.get_mut(&addr) else { continue };
            *uses -= 1;
            if *uses == 0 {
                self.hairpins.remove(&addr);
                recorded(addr, false);
            }
        }
    }

    /// Drops shape chains once too many lie idle. Only those that were idle before this transaction:
    /// kernels before 6.2 refuse to delete a chain whose last reference has only just gone.
    fn retire_shapes(&mut self, idle_before: &BTreeSet<(Family, u32)>, changes: &mut Changes) {
        if self.idle_shapes.len() <= IDLE_SHAPES {
            return;
        }
        let retired: Vec<(Family, u32)> =
            self.idle_shapes.intersection(idle_before).copied().collect();
        for shape in retired {
            self.idle_shapes.remove(&shape);
            self.shapes.remove(&shape);
            changes.table(shape.0).delete_chains.push(shape_name(shape.1));
        }
    }
}

/// The elements that differ between two states of one frontend.
fn record(family: Family, before: Option<&PortRules>, after: Option<&PortRules>, net: &mut Net) {
    for (set, element) in before.into_iter().flat_map(PortRules::heads) {
        net.record(family, set, element.key, Some(element), None);
    }
    for (set, element) in after.into_iter().flat_map(PortRules::heads) {
        net.record(family, set, element.key, None, Some(element));
    }
    let slots = |port: Option<&PortRules>| port.map_or(0, PortRules::slots);
    for slot in 0..slots(before).max(slots(after)) {
        let backend = |port: Option<&PortRules>| Some(port?.backends.get(slot as usize)?.addr);
        if backend(before) != backend(after) {
            let element = |port: Option<&PortRules>| port.and_then(|port| port.endpoint(slot));
            let (before, after) = (element(before), element(after));
            if let Some(key) = before.as_ref().or(after.as_ref()).map(|element| element.key) {
                net.record(family, SetName::Endpoints, key, before, after);
            }
        }
    }
}

fn hairpin(addr: IpAddr) -> Element {
    Element::bare(Key::new().addr(addr).addr(addr))
}

#[cfg(test)]
mod tests;
