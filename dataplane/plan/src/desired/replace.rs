//! One Service's rules replaced by others, and what that says about the kernel.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashSet};

use foldhash::HashMap;
use zw_model::{Family, ServiceKey};

use super::Desired;
use super::shared::Turnover;
use crate::changes::{Changes, Net, Place};
use crate::config::Picker;
use crate::element::{Element, Key};
use crate::frontend::Frontend;
use crate::service::{PortRules, ServiceRules};
use crate::sets::SetName;

impl Desired {
    /// Everything of frontends that had nothing before, with nothing to compare it with.
    pub(super) fn write_fresh(&self, fresh: &[Frontend], changes: &mut Changes) {
        for port in fresh.iter().filter_map(|frontend| self.active(frontend)) {
            changes.table(port.frontend.family()).add_all(port, self.picker());
        }
    }

    /// Nobody has known this Service, nor has anybody had its frontends: so it is with all of them at a
    /// start.
    fn are_news(&self, key: &ServiceKey, rules: &ServiceRules, told: Option<&Told>) -> bool {
        let is_free = |port: &PortRules| {
            let touched = told.is_some_and(|told| told.frontends.contains_key(&port.frontend));
            !touched && self.owner(&port.frontend).is_none()
        };
        !self.by_ipvs() && !self.services.contains_key(key) && rules.ports.iter().all(is_free)
    }

    /// As [`Desired::replace`], where there is nothing to compare with, and where what it brings stays for
    /// as long as this update lasts.
    fn bring_in(
        &mut self,
        key: ServiceKey,
        rules: ServiceRules,
        mut told: Option<&mut Told>,
        turnover: &mut Turnover,
    ) {
        let picker = self.picker();
        for port in &rules.ports {
            let family = port.frontend.family();
            self.claims.claim(port.frontend, &key);
            let mut tell = |at: Place, is: bool| {
                let Some(told) = &mut told else { return };
                if told.net.knows(&at) {
                    told.net.record_bare(at, !is, is);
                } else {
                    let (_, set, key) = at;
                    told.changes.table(family).add(set, Element::bare(key));
                }
            };
            self.shared.turn(family, None, Some(port), &mut tell, turnover);
            if let Some(told) = &mut told {
                told.changes.table(family).add_all(port, picker);
            }
        }
        self.services.insert(key, rules);
    }

    pub(super) fn replace(
        &mut self,
        key: ServiceKey,
        rules: Option<ServiceRules>,
        mut told: Option<&mut Told>,
        turnover: &mut Turnover,
    ) {
        let rules = match rules {
            Some(rules) if self.are_news(&key, &rules, told.as_deref()) => {
                return self.bring_in(key, rules, told, turnover);
            }
            rules => rules,
        };
        let frontends = |rules: Option<&ServiceRules>| -> Vec<Frontend> {
            rules.into_iter().flat_map(|r| &r.ports).map(|port| port.frontend).collect()
        };
        let released = frontends(self.services.get(&key));
        let claimed = frontends(rules.as_ref());
        let mut touched = [released.as_slice(), &claimed].concat();
        touched.sort_unstable();
        touched.dedup();
        let before: Vec<Option<PortRules>> =
            touched.iter().map(|frontend| self.active(frontend).cloned()).collect();

        if told.is_some() {
            self.note_servers(&touched, turnover);
        }
        for frontend in released.iter().filter(|f| claimed.binary_search(f).is_err()) {
            self.claims.release(frontend, &key);
        }
        for frontend in claimed.iter().filter(|f| released.binary_search(f).is_err()) {
            self.claims.claim(*frontend, &key);
        }

        for (frontend, before) in touched.iter().zip(before) {
            let after = match self.owner(frontend) {
                // Its rules of before are still in their place.
                Some(owner) if *owner == key => rules.as_ref().and_then(|new| new.port(frontend)),
                _ => self.active(frontend),
            };
            let after = after.cloned();
            if before == after {
                continue;
            }
            let family = frontend.family();
            let mut tell = |at, is: bool| {
                if let Some(told) = &mut told {
                    told.net.record_bare(at, !is, is);
                }
            };
            self.shared.turn(family, before.as_ref(), after.as_ref(), &mut tell, turnover);
            let Some(told) = &mut told else { continue };
            match told.frontends.entry(*frontend) {
                Entry::Vacant(first) if before.is_none() => {
                    first.insert(Had::Nothing);
                    told.fresh.push(*frontend);
                }
                Entry::Occupied(had) if *had.get() == Had::Nothing => {}
                entry => {
                    entry.or_insert(Had::Rules);
                    let picker = self.picker();
                    record(family, picker, before.as_ref(), after.as_ref(), &mut told.net);
                    forget(family, picker, before.as_ref(), after.as_ref(), &mut told.changes);
                }
            }
        }
        match rules {
            Some(rules) => self.services.insert(key, rules),
            None => self.services.remove(&key),
        };
    }
}

/// What an update says about the kernel.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) net: Net,
    pub(super) changes: Changes,
    /// The frontends it touches.
    frontends: HashMap<Frontend, Had>,
    /// Those that had nothing before, as they came: they are written at the end, with the rules they have
    /// then, if any. What becomes of the others is in `net`.
    pub(super) fresh: Vec<Frontend>,
}

/// What a frontend had before an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Had {
    Nothing,
    Rules,
}

/// The elements that differ between two states of one frontend.
fn record(
    family: Family,
    picker: Picker,
    before: Option<&PortRules>,
    after: Option<&PortRules>,
    net: &mut Net,
) {
    // Most changes are of endpoints alone.
    if !before.zip(after).is_some_and(|(before, after)| before.has_heads_of(after, picker)) {
        for (set, element) in before.into_iter().flat_map(|port| port.heads(picker)) {
            net.record(family, set, element.key, Some(element), None);
        }
        for (set, element) in after.into_iter().flat_map(|port| port.heads(picker)) {
            net.record(family, set, element.key, None, Some(element));
        }
    }
    let lists =
        |port: Option<&PortRules>| port.map(|port| port.lists(picker).map(|(_, list)| list.len()));
    let lengths = lists(before).into_iter().chain(lists(after));
    let longest = lengths.fold([0, 0], |[a, b], [c, d]| [a.max(c), b.max(d)]);
    for (list, longest) in longest.into_iter().enumerate() {
        for (slot, at) in (0..).zip(0..longest) {
            let backend =
                |port: Option<&PortRules>| Some(port?.lists(picker)[list].1.get(at)?.addr);
            if backend(before) == backend(after) {
                continue;
            }
            let element = |port: Option<&PortRules>| {
                let (set, backends) = port?.lists(picker)[list];
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
    picker: Picker,
    before: Option<&PortRules>,
    after: Option<&PortRules>,
    changes: &mut Changes,
) {
    let maps = |port: Option<&PortRules>| -> BTreeMap<String, Vec<Key>> {
        port.into_iter().flat_map(|port| port.remembered(picker)).collect()
    };
    let after = maps(after);
    for (map, were) in maps(before) {
        let Some(are) = after.get(&map) else { continue };
        let stay: HashSet<&Key> = are.iter().collect();
        if were.iter().any(|endpoint| !stay.contains(endpoint)) {
            changes.table(family).forget_others.insert(map, are.clone());
        }
    }
}
