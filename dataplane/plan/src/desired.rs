//! All Services' rules together: who owns which address, what Services share, and what one more
//! change means for the kernel. Cost follows the change: an update touches only the Services it
//! names, and those that compete with them for an address.

mod shared;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use zw_model::{Family, ServiceKey};

use crate::adopt::{decode_frontend, decode_slot};
use crate::base::{base_table, remember};
use crate::changes::{Changes, Net};
use crate::config::PlanConfig;
use crate::element::{Element, Key};
use crate::frontend::Frontend;
use crate::ruleset::Chain;
use crate::service::{Backend, PortRules, ServiceRules, Slots};
use crate::sets::SetName;
use crate::shape::Shape;
use crate::surroundings::Surroundings;
use shared::{Shared, Turnover};

/// The ruleset that should be in the kernel.
#[derive(Debug)]
pub struct Desired {
    config: PlanConfig,
    surroundings: Surroundings,
    services: BTreeMap<ServiceKey, ServiceRules>,
    /// Everyone who wants a frontend, in order; the first has it.
    claims: HashMap<Frontend, Vec<ServiceKey>>,
    shared: Shared,
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
    pub fn new(config: PlanConfig, surroundings: Surroundings) -> Self {
        Self {
            config,
            surroundings,
            services: BTreeMap::new(),
            claims: HashMap::new(),
            shared: Shared::default(),
        }
    }

    /// Replaces the rules of some Services (`None`: the Service is gone) and says what that changes
    /// in the kernel.
    pub fn update(
        &mut self,
        updates: impl IntoIterator<Item = (ServiceKey, Option<ServiceRules>)>,
    ) -> Changes {
        let before = self.shared.snapshot();
        let mut net = Net::default();
        let mut changes = Changes::default();
        let mut turnover = Turnover::default();
        for (key, rules) in updates {
            self.replace(key, rules, Some((&mut net, &mut changes)), &mut turnover);
        }
        for (family, map) in turnover.new_maps {
            changes.table(family).add_affinity_maps.push(map);
        }
        for (family, shape) in turnover.new_shapes {
            changes.table(family).add_chains.push(shape.chain(family, &self.config));
        }
        for family in Family::BOTH {
            let any_sticky = self.shared.any_sticky(family);
            if any_sticky != before.any_sticky(family) {
                changes.table(family).rewrite_chains.push(remember(any_sticky));
            }
        }
        net.settle(&mut changes);
        self.shared.retire(&before, &mut changes);
        changes
    }

    /// As [`Desired::update`] for a start or a resync, where the kernel is compared as a whole and the
    /// single changes would only cost memory.
    pub fn load(&mut self, updates: impl IntoIterator<Item = (ServiceKey, Option<ServiceRules>)>) {
        for (key, rules) in updates {
            self.replace(key, rules, None, &mut Turnover::default());
        }
        self.shared.forget_idle();
    }

    /// The node or the cluster's ranges have changed; says what that changes in the kernel.
    pub fn surround(&mut self, surroundings: Surroundings) -> Changes {
        let mut net = Net::default();
        for family in Family::BOTH {
            for (set, element) in self.surroundings.elements(family) {
                net.record(family, set, element.key, Some(element), None);
            }
            for (set, element) in surroundings.elements(family) {
                net.record(family, set, element.key, None, Some(element));
            }
        }
        self.surroundings = surroundings;
        let mut changes = Changes::default();
        net.settle(&mut changes);
        changes
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
    pub fn slots(&self, key: &ServiceKey, frontend: &Frontend) -> Slots {
        let addresses = |backends: &[Backend]| backends.iter().map(|b| b.addr).collect();
        let port = self.services.get(key).and_then(|rules| rules.port(frontend));
        port.map(|port| Slots { all: addresses(&port.backends), local: addresses(port.local()) })
            .unwrap_or_default()
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
        let base = base_table(family, &self.config, self.shared.any_sticky(family));
        let shapes = self.shared.shapes(family).map(|shape| shape.chain(family, &self.config));
        base.into_iter().chain(shapes).collect()
    }

    /// The chain of this name.
    pub(crate) fn chain(&self, family: Family, name: &str) -> Option<Chain> {
        let base = base_table(family, &self.config, self.shared.any_sticky(family));
        let shape = || Shape::parse(name).filter(|shape| self.shared.has_shape(family, shape));
        let base = base.into_iter().find(|chain| chain.name == name);
        base.or_else(|| Some(shape()?.chain(family, &self.config)))
    }

    /// There is an affinity map of this name.
    pub(crate) fn has_affinity_map(&self, family: Family, name: &str) -> bool {
        self.shared.has_affinity_map(family, name)
    }

    /// The element of a set with this key. Sets of ranges have none that a key tells.
    pub(crate) fn element(&self, family: Family, set: SetName, key: &Key) -> Option<Element> {
        match set {
            SetName::ClusterIps | SetName::Hairpin => {
                self.shared.has_element(family, set, *key).then(|| Element::bare(*key))
            }
            SetName::NodeAddresses | SetName::ServiceRanges => {
                let elements = self.surroundings.elements(family).into_iter();
                let mut of_set = elements.filter(|(of, element)| *of == set && element.key == *key);
                of_set.next().map(|(_, element)| element)
            }
            SetName::Endpoints
            | SetName::LocalEndpoints
            | SetName::NodePortEndpoints
            | SetName::NodePortLocalEndpoints => {
                let (frontend, slot) = decode_slot(family, set, key)?;
                let port = self.active(&frontend)?;
                let (_, backends) = port.lists().into_iter().find(|(of, _)| *of == set)?;
                Some(port.endpoint(slot, backends.get(usize::try_from(slot).ok()?)?))
            }
            _ => {
                let port = self.active(&decode_frontend(family, set, key)?)?;
                let mut heads = port.heads().into_iter();
                heads.find(|(of, head)| *of == set && head.key == *key).map(|(_, head)| head)
            }
        }
    }

    /// The names of one family's affinity maps.
    pub(crate) fn affinity_maps(&self, family: Family) -> BTreeSet<String> {
        self.shared.affinity_maps(family).cloned().collect()
    }

    /// For every affinity map, whom its clients may be with.
    pub(crate) fn remembered(&self, family: Family) -> BTreeMap<String, Vec<Key>> {
        if !self.shared.any_sticky(family) {
            return BTreeMap::new();
        }
        self.in_force(family).flat_map(PortRules::remembered).collect()
    }

    /// Every element of one family's table.
    pub(crate) fn elements(&self, family: Family, each: &mut dyn FnMut(SetName, Element)) {
        for port in self.in_force(family) {
            for (set, element) in port.heads() {
                each(set, element);
            }
            for (set, backends) in port.lists() {
                for (slot, backend) in (0..).zip(backends) {
                    each(set, port.endpoint(slot, backend));
                }
            }
        }
        for (set, key) in self.shared.elements(family) {
            each(*set, Element::bare(*key));
        }
        for (set, element) in self.surroundings.elements(family) {
            each(set, element);
        }
    }

    /// The rules of the frontends of one family that their Services really have.
    fn in_force(&self, family: Family) -> impl Iterator<Item = &PortRules> {
        let of_family = move |port: &&PortRules| port.frontend.family() == family;
        self.services.iter().flat_map(move |(key, rules)| {
            let owned = move |port: &&PortRules| {
                self.claims.get(&port.frontend).and_then(|c| c.first()) == Some(key)
            };
            rules.ports.iter().filter(of_family).filter(owned)
        })
    }

    fn replace(
        &mut self,
        key: ServiceKey,
        rules: Option<ServiceRules>,
        mut told: Option<(&mut Net, &mut Changes)>,
        turnover: &mut Turnover,
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
            let family = frontend.family();
            let net = told.as_mut().map(|(net, _)| &mut **net);
            self.shared.turn(family, before.as_ref(), after.as_ref(), net, turnover);
            if let Some((net, changes)) = &mut told {
                record(family, before.as_ref(), after.as_ref(), net);
                forget(family, before.as_ref(), after.as_ref(), changes);
            }
        }
    }

    /// The rules in force for a frontend.
    fn active(&self, frontend: &Frontend) -> Option<&PortRules> {
        let owner = self.claims.get(frontend)?.first()?;
        self.services.get(owner)?.port(frontend)
    }

    fn claim(&mut self, frontend: Frontend, key: &ServiceKey) {
        // Hardly ever more than one: room for four would cost more than the rules themselves.
        let claimants = self.claims.entry(frontend).or_insert_with(|| Vec::with_capacity(1));
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
}

/// The elements that differ between two states of one frontend.
fn record(family: Family, before: Option<&PortRules>, after: Option<&PortRules>, net: &mut Net) {
    for (set, element) in before.into_iter().flat_map(PortRules::heads) {
        net.record(family, set, element.key, Some(element), None);
    }
    for (set, element) in after.into_iter().flat_map(PortRules::heads) {
        net.record(family, set, element.key, None, Some(element));
    }
    let lists =
        |port: Option<&PortRules>| port.map(|port| port.lists().map(|(_, list)| list.len()));
    let lengths = lists(before).into_iter().chain(lists(after));
    let longest = lengths.fold([0, 0], |[a, b], [c, d]| [a.max(c), b.max(d)]);
    for (list, longest) in longest.into_iter().enumerate() {
        for (slot, at) in (0..).zip(0..longest) {
            let backend = |port: Option<&PortRules>| Some(port?.lists()[list].1.get(at)?.addr);
            if backend(before) == backend(after) {
                continue;
            }
            let element = |port: Option<&PortRules>| {
                let (set, backends) = port?.lists()[list];
                Some((set, port?.endpoint(slot, backends.get(at)?)))
            };
            let (before, after) = (element(before), element(after));
            if let Some((set, key)) = before.as_ref().or(after.as_ref()).map(|(s, e)| (*s, e.key)) {
                let bare = |pair: Option<(SetName, Element)>| pair.map(|(_, element)| element);
                net.record(family, set, key, bare(before), bare(after));
            }
        }
    }
}

/// Clients of an endpoint that is gone are forgotten with it.
fn forget(
    family: Family,
    before: Option<&PortRules>,
    after: Option<&PortRules>,
    changes: &mut Changes,
) {
    let maps = |port: Option<&PortRules>| -> BTreeMap<String, Vec<Key>> {
        port.into_iter().flat_map(PortRules::remembered).collect()
    };
    let after = maps(after);
    for (map, were) in maps(before) {
        if let Some(are) = after.get(&map)
            && were.iter().any(|endpoint| !are.contains(endpoint))
        {
            changes.table(family).forget_others.insert(map, are.clone());
        }
    }
}

#[cfg(test)]
mod tests;
