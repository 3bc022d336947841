//! What several Service ports share: chains of a shape, affinity maps, and elements that stand for an
//! address whatever the port. The first user brings one in, the last one lets it go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use foldhash::HashMap;
use zw_model::Family;

use crate::changes::{Changes, Net, Place};
use crate::config::Picker;
use crate::element::Key;
use crate::ipvs::{VirtualKey, VirtualServer};
use crate::service::PortRules;
use crate::sets::SetName;
use crate::shape::Shape;

/// How many unused shape chains stay for the next Service that scales to that size. A busy Service
/// scaling up and down would otherwise make and drop a chain again and again: in turn with every
/// endpoint, at random around a power of two.
pub(super) const IDLE_SHAPES: usize = 32;

/// How many Service ports use what.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Unused ones stay a while, see [`IDLE_SHAPES`].
    shapes: BTreeMap<(Family, Shape), usize>,
    /// Those, and in which update they were last used.
    idle: BTreeMap<(Family, Shape), u64>,
    /// How many updates there were.
    updates: u64,
    affinity_maps: BTreeMap<(Family, String), usize>,
    /// Those that nobody uses any more.
    emptied: BTreeSet<(Family, String)>,
    elements: HashMap<Place, usize>,
    picker: Picker,
    /// Addresses that are the node's own: as [`SetName::ClusterIps`] they are counted, but not written.
    own: BTreeSet<(Family, Key)>,
}

/// What an update has brought in.
#[derive(Debug, Default)]
pub(super) struct Turnover {
    pub(super) new_shapes: BTreeSet<(Family, Shape)>,
    pub(super) new_maps: BTreeSet<(Family, String)>,
    /// The virtual servers that may change, as they were.
    pub(super) servers: BTreeMap<VirtualKey, Option<VirtualServer>>,
}

impl Shared {
    pub(super) fn new(picker: Picker, own: &BTreeSet<IpAddr>) -> Self {
        Self { picker, own: owned(own), ..Self::default() }
    }

    /// Makes room for so many elements more.
    pub(super) fn reserve(&mut self, elements: usize) {
        self.elements.reserve(elements);
    }

    /// The node has these addresses by itself now.
    pub(super) fn set_own(&mut self, own: &BTreeSet<IpAddr>, net: &mut Net) {
        let (before, after) = (std::mem::replace(&mut self.own, owned(own)), &self.own);
        let set = SetName::ClusterIps;
        for (family, key) in before.symmetric_difference(after) {
            if self.elements.contains_key(&(*family, set, *key)) {
                let hidden = |own: &BTreeSet<(Family, Key)>| own.contains(&(*family, *key));
                net.record_bare((*family, set, *key), !hidden(&before), !hidden(after));
            }
        }
    }

    fn is_hidden(&self, family: Family, set: SetName, key: Key) -> bool {
        set == SetName::ClusterIps && self.own.contains(&(family, key))
    }

    /// An update begins.
    pub(super) fn begin(&mut self) {
        self.updates += 1;
    }

    /// Some Service of this family remembers its clients.
    pub(super) fn any_sticky(&self, family: Family) -> bool {
        self.affinity_maps(family).next().is_some()
    }

    pub(super) fn shapes(&self, family: Family) -> impl Iterator<Item = &Shape> {
        self.shapes.keys().filter(move |(of, _)| *of == family).map(|(_, shape)| shape)
    }

    pub(super) fn affinity_maps(&self, family: Family) -> impl Iterator<Item = &String> {
        let of_family = self.affinity_maps.range((family, String::new())..);
        let of_family = of_family.take_while(move |((of, _), _)| *of == family);
        of_family.filter(|(_, uses)| **uses > 0).map(|((_, name), _)| name)
    }

    pub(super) fn has_shape(&self, family: Family, shape: &Shape) -> bool {
        self.shapes.contains_key(&(family, shape.clone()))
    }

    pub(super) fn has_affinity_map(&self, family: Family, name: &str) -> bool {
        self.affinity_maps.contains_key(&(family, name.to_owned()))
    }

    pub(super) fn has_element(&self, family: Family, set: SetName, key: Key) -> bool {
        self.elements.contains_key(&(family, set, key)) && !self.is_hidden(family, set, key)
    }

    /// In any order.
    pub(super) fn elements(&self, family: Family) -> impl Iterator<Item = (&SetName, &Key)> {
        let of_family = self
            .elements
            .keys()
            .filter(move |(of, set, key)| *of == family && !self.is_hidden(family, *set, *key));
        of_family.map(|(_, set, key)| (set, key))
    }

    /// One frontend's rules change from `before` to `after`. Tells of elements that come, and that go.
    pub(super) fn turn(
        &mut self,
        family: Family,
        before: Option<&PortRules>,
        after: Option<&PortRules>,
        tell: &mut impl FnMut(Place, bool),
        turnover: &mut Turnover,
    ) {
        let picker = self.picker;
        for shape in after.into_iter().flat_map(|port| port.shapes(picker)) {
            self.take(family, shape, turnover);
        }
        for shape in before.into_iter().flat_map(|port| port.shapes(picker)) {
            self.let_go(family, shape);
        }
        for (set, key) in after.into_iter().flat_map(|port| port.shared(picker)) {
            let uses = self.elements.entry((family, set, key)).or_default();
            *uses += 1;
            if *uses == 1 && !self.is_hidden(family, set, key) {
                tell((family, set, key), true);
            }
        }
        for (set, key) in before.into_iter().flat_map(|port| port.shared(picker)) {
            let Some(uses) = self.elements.get_mut(&(family, set, key)) else { continue };
            *uses -= 1;
            if *uses == 0 {
                self.elements.remove(&(family, set, key));
                if !self.is_hidden(family, set, key) {
                    tell((family, set, key), false);
                }
            }
        }
    }

    /// Drops what lies idle. Of shape chains only when there are too many, and only those that were idle
    /// before this transaction: kernels before 6.2 refuse to delete a chain whose last reference has only
    /// just gone. What belongs to one sticky Service port goes at once, because nobody else can use it.
    pub(super) fn retire(&mut self, changes: &mut Changes) {
        let too_many =
            self.idle.keys().filter(|(_, shape)| !shape.is_sticky()).count() > IDLE_SHAPES;
        let goes = |(_, shape): &(Family, Shape), since: u64| {
            shape.is_sticky() || (too_many && since < self.updates)
        };
        let retired = self.idle.iter().filter(|(key, since)| goes(key, **since));
        let retired: Vec<(Family, Shape)> = retired.map(|(key, _)| key.clone()).collect();
        // What hands packets on goes before what it hands them to.
        for key in retired.into_iter().rev() {
            self.idle.remove(&key);
            self.shapes.remove(&key);
            changes.table(key.0).delete_chains.push(key.1.to_string());
        }
        for (family, map) in std::mem::take(&mut self.emptied) {
            changes.table(family).delete_sets.push(map.clone());
            self.affinity_maps.remove(&(family, map));
        }
    }

    /// Forgets one shape, if nobody uses it.
    pub(super) fn drop_idle(&mut self, family: Family, shape: Shape) {
        let key = (family, shape);
        if self.idle.remove(&key).is_some() {
            self.shapes.remove(&key);
        }
    }

    /// Nothing lies idle after a fresh start.
    pub(super) fn forget_idle(&mut self) {
        self.idle.clear();
        self.shapes.retain(|_, uses| *uses > 0);
        for key in std::mem::take(&mut self.emptied) {
            self.affinity_maps.remove(&key);
        }
    }

    /// There is a chain of this shape; if nobody uses it, it lies idle.
    pub(super) fn keep_idle(&mut self, family: Family, shape: Shape) {
        let key = (family, shape);
        if self.idle.len() < IDLE_SHAPES && !self.shapes.contains_key(&key) {
            self.shapes.insert(key.clone(), 0);
            self.idle.insert(key, self.updates);
        }
    }

    fn take(&mut self, family: Family, shape: Shape, turnover: &mut Turnover) {
        if let Some(map) = shape.affinity_map() {
            let key = (family, map);
            self.emptied.remove(&key);
            *self.affinity_maps.entry(key.clone()).or_insert_with(|| {
                turnover.new_maps.insert(key);
                0
            }) += 1;
        }
        let key = (family, shape);
        self.idle.remove(&key);
        if let Some(uses) = self.shapes.get_mut(&key) {
            *uses += 1;
            return;
        }
        turnover.new_shapes.insert(key.clone());
        self.shapes.insert(key, 1);
    }

    fn let_go(&mut self, family: Family, shape: Shape) {
        if let Some(map) = shape.affinity_map() {
            let key = (family, map);
            if let Some(uses) = self.affinity_maps.get_mut(&key) {
                *uses -= 1;
                if *uses == 0 {
                    self.emptied.insert(key);
                }
            }
        }
        let key = (family, shape);
        if let Some(uses) = self.shapes.get_mut(&key) {
            *uses -= 1;
            if *uses == 0 {
                self.idle.insert(key, self.updates);
            }
        }
    }
}

fn owned(addresses: &BTreeSet<IpAddr>) -> BTreeSet<(Family, Key)> {
    addresses.iter().map(|addr| (Family::of(*addr), Key::new().addr(*addr))).collect()
}
