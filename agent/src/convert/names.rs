//! One copy of what many objects have in common: names of namespaces, Services, ports, nodes and zones, and
//! where endpoints are.
//!
//! Per thread, for all objects are converted on one; what nobody has any more is swept out now and then.

use std::cell::RefCell;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use zw_model::{Hints, Topology};

use super::raw;

/// How many copies are kept at least before sweeping is worth it.
const FEW: usize = 1024;

/// How many places at one node are told apart: with and without hints, and for whom. Each is looked at in
/// turn, so whoever invents thousands gets a copy for each endpoint.
const MOST_AT_A_NODE: usize = 32;

thread_local! {
    static NAMES: RefCell<Names> = RefCell::new(Names::default());
    static PLACES: RefCell<Places> = RefCell::new(Places::default());
}

/// The copy of a name that everybody has.
pub(super) fn shared(name: &str) -> Arc<str> {
    NAMES.with_borrow_mut(|known| known.shared(name))
}

/// The copy of a place that all endpoints of a node have, but for hints.
pub(super) fn shared_place(place: &Place<'_>) -> Arc<Topology> {
    PLACES.with_borrow_mut(|known| known.shared(place))
}

/// Where an endpoint is, as its slice says it.
#[derive(Debug, Default)]
pub(super) struct Place<'a> {
    pub(super) node: Option<&'a str>,
    pub(super) zone: Option<&'a str>,
    pub(super) hints: Option<&'a raw::Hints<'a>>,
}

impl Place<'_> {
    fn is(&self, known: &Topology) -> bool {
        let listed = |list: &Option<Vec<raw::Named<'_>>>, known: &[Arc<str>]| {
            let list = list.as_deref().unwrap_or_default();
            list.iter().map(|item| &*item.name).eq(known.iter().map(|name| &**name))
        };
        let hinted = match (self.hints, &known.hints) {
            (None, None) => true,
            (Some(raw), Some(known)) => {
                listed(&raw.for_zones, &known.zones) && listed(&raw.for_nodes, &known.nodes)
            }
            _ => false,
        };
        self.node == known.node.as_deref() && self.zone == known.zone.as_deref() && hinted
    }

    fn copy(&self) -> Arc<Topology> {
        let listed = |list: &Option<Vec<raw::Named<'_>>>| -> Vec<Arc<str>> {
            list.iter().flatten().map(|item| shared(&item.name)).collect()
        };
        let hints = |hints: &raw::Hints<'_>| Hints {
            zones: listed(&hints.for_zones),
            nodes: listed(&hints.for_nodes),
        };
        Arc::new(Topology {
            node: self.node.map(shared),
            zone: self.zone.map(shared),
            hints: self.hints.map(hints),
        })
    }
}

struct Names {
    copies: HashSet<Arc<str>>,
    sweep_at: usize,
}

impl Default for Names {
    fn default() -> Self {
        Self { copies: HashSet::default(), sweep_at: FEW }
    }
}

impl Names {
    fn shared(&mut self, wanted: &str) -> Arc<str> {
        if let Some(known) = self.copies.get(wanted) {
            return known.clone();
        }
        if self.copies.len() >= self.sweep_at {
            self.copies.retain(|copy| Arc::strong_count(copy) > 1);
            self.sweep_at = (self.copies.len() * 2).max(FEW);
        }
        let new: Arc<str> = wanted.into();
        self.copies.insert(new.clone());
        new
    }
}

/// By node, so that an endpoint costs one look and not one for each of its names.
struct Places {
    at: HashMap<Arc<str>, Vec<Arc<Topology>>>,
    sweep_at: usize,
}

impl Default for Places {
    fn default() -> Self {
        Self { at: HashMap::default(), sweep_at: FEW }
    }
}

impl Places {
    fn shared(&mut self, place: &Place<'_>) -> Arc<Topology> {
        let node = place.node.unwrap_or_default();
        if let Some(known) = self.at.get_mut(node) {
            if let Some(same) = known.iter().find(|known| place.is(known)) {
                return same.clone();
            }
            known.retain(|copy| Arc::strong_count(copy) > 1);
            let new = place.copy();
            if known.len() < MOST_AT_A_NODE {
                known.push(new.clone());
            }
            return new;
        }
        if self.at.len() >= self.sweep_at {
            self.at.retain(|_, known| known.iter().any(|copy| Arc::strong_count(copy) > 1));
            self.sweep_at = (self.at.len() * 2).max(FEW);
        }
        let new = place.copy();
        self.at.insert(shared(node), vec![new.clone()]);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_is_the_same_copy() {
        let (one, two) = (shared("zone-a"), shared("zone-a"));
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(&*shared("zone-b"), "zone-b");
    }

    fn at(node: &'static str) -> Place<'static> {
        Place { node: Some(node), zone: Some("zone-a"), hints: None }
    }

    fn for_zone(zone: &str) -> raw::Hints<'_> {
        let for_zones = Some(vec![raw::Named { name: zone.into() }]);
        raw::Hints { for_zones, for_nodes: None }
    }

    fn hinted<'a>(hints: &'a raw::Hints<'a>) -> Place<'a> {
        Place { hints: Some(hints), ..at("node-1") }
    }

    #[test]
    fn endpoints_at_the_same_place_have_the_same_copy() {
        let place =
            Topology { node: Some("node-1".into()), zone: Some("zone-a".into()), hints: None };
        assert_eq!(*shared_place(&at("node-1")), place);
        assert!(Arc::ptr_eq(&shared_place(&at("node-1")), &shared_place(&at("node-1"))));
        assert_eq!(shared_place(&at("node-2")).node.as_deref(), Some("node-2"));
        let hints = Hints { zones: vec!["zone-b".into()], nodes: vec![] };
        let for_b = for_zone("zone-b");
        let elsewhere = shared_place(&hinted(&for_b));
        assert_eq!(*elsewhere, Topology { hints: Some(hints), ..place });
        assert!(Arc::ptr_eq(&elsewhere, &shared_place(&hinted(&for_b))));
        assert_eq!(*shared_place(&Place::default()), Topology::default());
    }

    #[test]
    fn a_node_with_endless_hints_costs_copies_and_no_endless_search() {
        let mut known = Places::default();
        let zones: Vec<String> = (0..100 * MOST_AT_A_NODE).map(|i| i.to_string()).collect();
        let kept: Vec<_> =
            zones.iter().map(|zone| known.shared(&hinted(&for_zone(zone)))).collect();
        assert_eq!(known.at["node-1"].len(), MOST_AT_A_NODE);
        drop(kept);
        let for_c = for_zone("zone-c");
        let one = known.shared(&hinted(&for_c));
        assert!(Arc::ptr_eq(&one, &known.shared(&hinted(&for_c))));
    }

    #[test]
    fn names_and_nodes_that_nobody_has_any_more_are_forgotten() {
        let (mut names, mut places) = (Names::default(), Places::default());
        let kept = (names.shared("kept"), places.shared(&at("kept")));
        for i in (0..100 * FEW).map(|i| i.to_string()) {
            names.shared(&i);
            places.shared(&Place { node: Some(&i), ..Place::default() });
        }
        assert!(Arc::ptr_eq(&kept.0, &names.shared("kept")));
        assert!(Arc::ptr_eq(&kept.1, &places.shared(&at("kept"))));
        assert!(names.copies.len() <= FEW && places.at.len() <= FEW);
    }
}
