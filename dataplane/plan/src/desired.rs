//! All Services' rules together: who owns which address, what Services share, and what one more
//! change means for the kernel. Cost follows the change: an update touches only the Services it
//! names, and those that compete with them for an address.

mod claims;
mod lookup;
mod replace;
mod servers;
mod shared;

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;
use zw_model::{Family, ServiceKey};

use crate::adopt::Actual;
use crate::base::{base_table, remember};
use crate::changes::{Changes, Net};
use crate::config::{Picker, PlanConfig};
use crate::digest::SetDigest;
use crate::element::{Element, Key};
use crate::expected::Expected;
use crate::frontend::Frontend;
use crate::ruleset::{Chain, SetDef};
use crate::service::{PortRules, ServiceRules, Slots};
use crate::sets::{SetName, sets};
use crate::shape::Shape;
use crate::surroundings::Surroundings;
use claims::Claims;
use replace::Told;
use shared::{Shared, Turnover};

/// The ruleset that should be in the kernel.
#[derive(Debug)]
pub struct Desired {
    config: PlanConfig,
    surroundings: Surroundings,
    services: HashMap<ServiceKey, ServiceRules>,
    claims: Claims,
    shared: Shared,
    /// How large sets are made, should they have to be.
    expected: Expected,
    /// Of every set that ever had an element.
    digests: BTreeMap<(Family, SetName), SetDigest>,
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
        let shared = Shared::new(config.picker(), &surroundings.own_addresses);
        let mut desired = Self {
            config,
            surroundings,
            services: HashMap::default(),
            claims: Claims::default(),
            shared,
            expected: Expected::default(),
            digests: BTreeMap::new(),
        };
        desired.digest_all();
        desired
    }

    /// So much is to come. Sets that are made from now on are made for so many elements.
    pub fn expect(&mut self, expected: Expected) {
        self.services.reserve(expected.services);
        let (frontends, cluster_ips) = expected.both();
        self.claims.reserve(frontends);
        self.shared.reserve(cluster_ips);
        self.expected = expected;
    }

    /// All sets of a family's table, as they would be made now.
    pub(crate) fn sets(&self, family: Family) -> impl Iterator<Item = SetDef> {
        sets().map(move |def| {
            let size = def.size.or_else(|| self.expected.size(family, def.name));
            SetDef { size, ..def }
        })
    }

    /// Replaces the rules of some Services (`None`: the Service is gone), each once, and says what that
    /// changes in the kernel.
    pub fn update(
        &mut self,
        updates: impl IntoIterator<Item = (ServiceKey, Option<ServiceRules>)>,
    ) -> Changes {
        self.shared.begin();
        let were_sticky = Family::BOTH.map(|family| self.shared.any_sticky(family));
        let mut told = Told::default();
        let mut turnover = Turnover::default();
        let mut unknown = Vec::new();
        for (key, rules) in updates {
            if rules.is_some() && !self.services.contains_key(&key) {
                unknown.push((key, rules));
            } else {
                self.replace(key, rules, Some(&mut told), &mut turnover);
            }
        }
        // Last and by name, so that nobody takes anything away again from one of these.
        unknown.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (key, rules) in unknown {
            self.replace(key, rules, Some(&mut told), &mut turnover);
        }
        let Told { net, mut changes, fresh, .. } = told;
        for (family, map) in turnover.new_maps {
            changes.table(family).add_affinity_maps.push(map);
        }
        for (family, shape) in turnover.new_shapes {
            changes.table(family).add_chains.push(shape.chain(family, &self.config));
        }
        for (family, was_sticky) in Family::BOTH.into_iter().zip(were_sticky) {
            let any_sticky = self.shared.any_sticky(family);
            if any_sticky != was_sticky {
                changes.table(family).rewrite_chains.push(remember(any_sticky));
            }
        }
        net.settle(&mut changes);
        self.write_fresh(&fresh, &mut changes);
        self.digest_changes(&changes);
        self.shared.retire(&mut changes);
        self.settle_servers(turnover.servers, &mut changes);
        changes
    }

    /// As [`Desired::update`] for a start or a resync, where the kernel is compared as a whole and the
    /// single changes would only cost memory.
    pub fn load(&mut self, updates: impl IntoIterator<Item = (ServiceKey, Option<ServiceRules>)>) {
        for (key, rules) in updates {
            self.replace(key, rules, None, &mut Turnover::default());
        }
        self.shared.forget_idle();
        self.digest_all();
    }

    /// Takes over shape chains that the kernel has and nobody uses at present, as updates leave them: so a
    /// restart with nothing changed writes nothing, and the next Service of that size finds its chain.
    pub fn keep_idle(&mut self, actual: &Actual) {
        for (&family, table) in &actual.tables {
            if table.incompatible || table.note.as_ref() != Some(&self.note(family)) {
                continue;
            }
            for (name, is) in &table.chains {
                let shape = Shape::parse(name).filter(|shape| !shape.is_sticky());
                let Some(shape) = shape else { continue };
                let chain = shape.chain(family, &self.config);
                if *is == chain.fingerprints(family).into_iter().map(Some).collect::<Vec<_>>() {
                    self.shared.keep_idle(family, shape);
                }
            }
        }
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
        let servers = self.servers_at(&self.surroundings, &surroundings);
        self.shared.set_own(&surroundings.own_addresses, &mut net);
        self.surroundings = surroundings;
        let mut changes = Changes::default();
        net.settle(&mut changes);
        self.settle_servers(servers, &mut changes);
        self.digest_changes(&changes);
        changes
    }

    /// One set's elements in short.
    pub(crate) fn digest(&self, family: Family, set: SetName) -> SetDigest {
        self.digests.get(&(family, set)).copied().unwrap_or_default()
    }

    fn digest_changes(&mut self, changes: &Changes) {
        for (family, table) in &changes.tables {
            for (set, elements) in &table.delete_elements {
                let digest = self.digests.entry((*family, *set)).or_default();
                elements.iter().for_each(|element| digest.remove(element));
            }
            for (set, elements) in &table.add_elements {
                let digest = self.digests.entry((*family, *set)).or_default();
                elements.iter().for_each(|element| digest.add(element));
            }
        }
    }

    fn digest_all(&mut self) {
        let mut digests: BTreeMap<(Family, SetName), SetDigest> = BTreeMap::new();
        for family in Family::BOTH {
            self.elements(family, &mut |set, element| {
                digests.entry((family, set)).or_default().add(&element);
            });
        }
        self.digests = digests;
    }

    /// Forgets the chain of a shape that nobody uses, and that is not in the kernel either.
    pub(crate) fn drop_idle(&mut self, family: Family, name: &str) {
        if let Some(shape) = Shape::parse(name) {
            self.shared.drop_idle(family, shape);
        }
    }

    /// Every Service that has rules, in any order.
    pub fn service_keys(&self) -> impl Iterator<Item = &ServiceKey> {
        self.services.keys()
    }

    /// Every Service's rules, in any order.
    pub fn services(&self) -> impl Iterator<Item = (&ServiceKey, &ServiceRules)> {
        self.services.iter()
    }

    /// A Service's rules.
    pub fn service(&self, key: &ServiceKey) -> Option<&ServiceRules> {
        self.services.get(key)
    }

    /// The endpoints that hold a frontend's slots, as its Service wants them.
    pub fn slots(&self, key: &ServiceKey, frontend: &Frontend) -> Slots {
        self.services.get(key).map(|rules| rules.slots(frontend)).unwrap_or_default()
    }

    /// A Service's frontends that others claim too.
    pub fn contested(&self, key: &ServiceKey) -> Vec<Contested> {
        if !self.claims.are_contested() {
            return Vec::new();
        }
        let rules = self.services.get(key).into_iter().flat_map(|rules| &rules.ports);
        rules
            .filter_map(|port| {
                Some(Contested {
                    frontend: port.frontend,
                    losers: self.claims.losers(&port.frontend)?.iter().cloned().collect(),
                    owner: self.owner(&port.frontend)?.clone(),
                })
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

    pub(crate) fn picker(&self) -> Picker {
        self.config.picker()
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
        let picker = self.picker();
        self.in_force(family).flat_map(|port| port.remembered(picker)).collect()
    }

    /// Every element of one family's table.
    pub(crate) fn elements(&self, family: Family, each: &mut dyn FnMut(SetName, Element)) {
        let picker = self.picker();
        for port in self.in_force(family) {
            port.each(picker, &mut *each);
        }
        let mut shared: Vec<(&SetName, &Key)> = self.shared.elements(family).collect();
        shared.sort_unstable();
        for (set, key) in shared {
            each(*set, Element::bare(*key));
        }
        for (set, element) in self.surroundings.elements(family) {
            each(set, element);
        }
    }

    /// The rules of the frontends of one family that their Services really have, by name.
    fn in_force(&self, family: Family) -> impl Iterator<Item = &PortRules> {
        let of_family = move |port: &&PortRules| port.frontend.family() == family;
        let mut services: Vec<(&ServiceKey, &ServiceRules)> = self.services.iter().collect();
        services.sort_unstable_by_key(|(key, _)| *key);
        services.into_iter().flat_map(move |(key, rules)| {
            let owned = move |port: &&PortRules| self.claims.owner(&port.frontend) == Some(key);
            rules.ports.iter().filter(of_family).filter(owned)
        })
    }

    /// Who has a frontend.
    pub fn owner(&self, frontend: &Frontend) -> Option<&ServiceKey> {
        self.claims.owner(frontend)
    }

    /// The rules in force for a frontend.
    fn active(&self, frontend: &Frontend) -> Option<&PortRules> {
        self.services.get(self.owner(frontend)?)?.port(frontend)
    }
}

#[cfg(test)]
mod tests;
