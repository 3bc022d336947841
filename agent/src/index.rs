//! What the sources have said so far, and which Services that touches. A plain structure with one
//! owner: no locks, no IO.
//!
//! What says the same again touches nothing: relists, status updates and renewed annotations are most
//! of what a watch brings.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::sync::Arc;
use std::time::SystemTime;

use foldhash::HashMap;
use ipnet::IpNet;
use zw_model::{NodeContext, Service, ServiceKey, Slice, SliceKey};

use crate::convert::{Body, Kind, Node, Object, ObjectId};
use crate::state::Event;

/// The objects, by what planning needs.
#[derive(Debug, Default)]
pub(crate) struct Index {
    services: BTreeMap<ServiceKey, Entry>,
    /// Which Service of its namespace a slice belongs to: a slice may change its mind.
    owners: HashMap<SliceKey, Arc<str>>,
    node: NodeContext,
    /// Whether load balancers may use this node; unknown while there is no Node.
    eligible: Option<bool>,
    /// By ServiceCIDR.
    ranges: BTreeMap<Arc<str>, Vec<IpNet>>,
    changed: Changed,
    /// What triggered a change before this is history.
    since: Option<SystemTime>,
    seen: Seen,
}

/// How many objects came, changed or went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) services: u64,
    pub(crate) slices: u64,
}

/// A Service and its slices; either may come first.
#[derive(Debug, Default)]
struct Entry {
    service: Option<Box<Service>>,
    /// By key. Most Services have one, for which a map would take the room of eleven.
    slices: Vec<Slice>,
}

impl Entry {
    /// Where a slice is, or where it belongs.
    fn find(&self, key: &SliceKey) -> Result<usize, usize> {
        self.slices.binary_search_by(|slice| slice.key.cmp(key))
    }
}

/// A Service that is known, with its slices.
#[derive(Debug, Clone)]
pub(crate) struct Known<'a> {
    pub(crate) key: &'a ServiceKey,
    pub(crate) service: &'a Service,
    pub(crate) slices: slice::Iter<'a, Slice>,
}

impl<'a> Known<'a> {
    fn of((key, entry): (&'a ServiceKey, &'a Entry)) -> Option<Self> {
        let service = entry.service.as_deref()?;
        Some(Self { key, service, slices: entry.slices.iter() })
    }
}

/// What is different since the last time it was asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// The Services to plan anew.
    pub(crate) services: Touched,
    /// The node's addresses, its pod ranges or the ranges of Services are others.
    pub(crate) surroundings: bool,
    /// When the pods of a touched Service changed, as far as its slices say so: the earliest counts.
    pub(crate) triggered: BTreeMap<ServiceKey, SystemTime>,
}

/// Services to plan anew.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    Some(BTreeSet<ServiceKey>),
    /// The node is elsewhere, or nothing was ever planned.
    All,
}

impl Default for Touched {
    fn default() -> Self {
        Touched::Some(BTreeSet::new())
    }
}

impl Index {
    /// An empty index for the node of this name.
    pub(crate) fn new(node_name: &str) -> Self {
        let node = NodeContext { name: node_name.into(), ..NodeContext::default() };
        Self { node, ..Self::default() }
    }

    /// Leaves out of [`Changed::triggered`] what happened before.
    pub(crate) fn ignore_triggers_before(mut self, since: SystemTime) -> Self {
        self.since = Some(since);
        self
    }

    /// Every Service is to be planned, also those that are yet to come: until the changes are taken, nobody
    /// needs to remember which.
    pub(crate) fn touch_all(&mut self) {
        self.changed.services = Touched::All;
    }

    /// Takes in what a source says.
    pub(crate) fn accept(&mut self, event: Event) {
        match event {
            Event::Apply(object) => self.apply(object),
            Event::Delete(id) => self.delete(&id),
        }
    }

    /// Takes in a new or changed object.
    pub(crate) fn apply(&mut self, object: Object) {
        self.count(object.id.kind);
        match object.body {
            Body::Service(service) => self.apply_service(service),
            Body::Slice(slice) => self.apply_slice(slice, object.triggered),
            Body::Node(node) => {
                if object.id.name == self.node.name {
                    self.observe_node(&node);
                    self.move_node(node.zone, node.region);
                }
            }
            Body::ServiceRanges(ranges) => {
                if self.ranges.get(&object.id.name) != Some(&ranges) {
                    self.ranges.insert(object.id.name, ranges);
                    self.changed.surroundings = true;
                }
            }
            Body::Irrelevant => self.remove(&object.id),
        }
    }

    /// Forgets an object.
    pub(crate) fn delete(&mut self, id: &ObjectId) {
        self.count(id.kind);
        self.remove(id);
    }

    fn remove(&mut self, id: &ObjectId) {
        let (namespace, name) = (id.namespace.clone(), id.name.clone());
        match id.kind {
            Kind::Service => {
                let key = ServiceKey { namespace, name };
                if let Some(entry) = self.services.get_mut(&key)
                    && entry.service.take().is_some()
                {
                    self.touch(&key);
                    self.drop_if_empty(&key);
                }
            }
            Kind::EndpointSlice => self.remove_slice(&SliceKey { namespace, name }),
            Kind::Node => {
                if id.name == self.node.name {
                    self.lose_node();
                    self.move_node(None, None);
                }
            }
            Kind::ServiceCidr => {
                self.changed.surroundings |= self.ranges.remove(&id.name).is_some();
            }
        }
    }

    /// Takes in what this node says of itself, except where it is.
    pub(crate) fn observe_node(&mut self, node: &Node) {
        self.eligible = Some(node.eligible);
        if (&self.node.addresses, &self.node.pod_ranges) != (&node.addresses, &node.pod_ranges) {
            if self.node.addresses != node.addresses {
                self.touch_restricted();
            }
            self.node.addresses.clone_from(&node.addresses);
            self.node.pod_ranges.clone_from(&node.pod_ranges);
            self.changed.surroundings = true;
        }
    }

    /// Whom a load balancer's source ranges let in depends on the node's addresses.
    fn touch_restricted(&mut self) {
        let restricted = |entry: &Entry| {
            let external = entry.service.as_ref().and_then(|service| service.external.as_deref());
            external.is_some_and(|external| !external.source_ranges.is_empty())
        };
        let services = self.services.iter().filter(|(_, entry)| restricted(entry));
        for key in services.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.touch(&key);
        }
    }

    /// This node's object is gone. The machine is not, and neither are its addresses and its pods.
    pub(crate) fn lose_node(&mut self) {
        self.eligible = None;
    }

    /// Puts this node into another zone and region.
    pub(crate) fn move_node(&mut self, zone: Option<Arc<str>>, region: Option<Arc<str>>) {
        if (&zone, &region) != (&self.node.zone, &self.node.region) {
            (self.node.zone, self.node.region) = (zone, region);
            self.touch_all();
        }
    }

    /// How much came in since the last call.
    pub(crate) fn take_seen(&mut self) -> Seen {
        std::mem::take(&mut self.seen)
    }

    fn count(&mut self, kind: Kind) {
        match kind {
            Kind::Service => self.seen.services += 1,
            Kind::EndpointSlice => self.seen.slices += 1,
            Kind::Node | Kind::ServiceCidr => {}
        }
    }

    /// Whether anything was touched since the changes were last taken.
    pub(crate) fn is_changed(&self) -> bool {
        self.changed != Changed::default()
    }

    /// What was touched since the last call.
    pub(crate) fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    /// A Service and its slices, if the Service itself is known.
    pub(crate) fn service(
        &self,
        key: &ServiceKey,
    ) -> Option<(&Service, impl Iterator<Item = &Slice> + Clone)> {
        self.known(key).map(|known| (known.service, known.slices))
    }

    /// The same, with its key.
    pub(crate) fn known(&self, key: &ServiceKey) -> Option<Known<'_>> {
        self.services.get_key_value(key).and_then(Known::of)
    }

    /// Every Service that is known, by name.
    pub(crate) fn services(&self) -> impl Iterator<Item = Known<'_>> {
        self.services.iter().filter_map(Known::of)
    }

    /// The same from one on.
    pub(crate) fn services_from(&self, from: ServiceKey) -> impl Iterator<Item = Known<'_>> {
        self.services.range(from..).filter_map(Known::of)
    }

    /// Every Service that is known.
    pub(crate) fn service_keys(&self) -> impl Iterator<Item = &ServiceKey> {
        self.services().map(|known| known.key)
    }

    /// This node.
    pub(crate) fn node(&self) -> &NodeContext {
        &self.node
    }

    /// Whether load balancers may send traffic to this node: it is not about to go away. `None` while
    /// there is no Node.
    pub(crate) fn node_is_eligible(&self) -> Option<bool> {
        self.eligible
    }

    /// Where Services' addresses come from, each range once, in order.
    pub(crate) fn service_ranges(&self) -> Vec<IpNet> {
        let all: BTreeSet<IpNet> = self.ranges.values().flatten().copied().collect();
        all.into_iter().collect()
    }

    fn apply_service(&mut self, service: Service) {
        let entry = self.services.entry(service.key.clone()).or_default();
        if entry.service.as_deref() != Some(&service) {
            let key = service.key.clone();
            entry.service = Some(Box::new(service));
            self.touch(&key);
        }
    }

    fn apply_slice(&mut self, slice: Slice, triggered: Option<SystemTime>) {
        if self.owners.get(&slice.key).is_some_and(|owner| *owner != slice.service.name) {
            self.remove_slice(&slice.key);
        }
        let entry = self.services.entry(slice.service.clone()).or_default();
        let service = slice.service.clone();
        match entry.find(&slice.key) {
            Ok(at) if entry.slices[at] == slice => return,
            Ok(at) => entry.slices[at] = slice,
            Err(at) => {
                self.owners.insert(slice.key.clone(), service.name.clone());
                entry.slices.reserve_exact(1);
                entry.slices.insert(at, slice);
            }
        }
        self.touch(&service);
        if let Some(when) = triggered.filter(|when| self.since.is_none_or(|since| *when >= since)) {
            let earliest = self.changed.triggered.entry(service).or_insert(when);
            *earliest = when.min(*earliest);
        }
    }

    fn touch(&mut self, key: &ServiceKey) {
        if let Touched::Some(keys) = &mut self.changed.services {
            keys.insert(key.clone());
        }
    }

    fn remove_slice(&mut self, key: &SliceKey) {
        let Some(name) = self.owners.remove(key) else { return };
        let owner = ServiceKey { namespace: key.namespace.clone(), name };
        if let Some(entry) = self.services.get_mut(&owner)
            && let Ok(at) = entry.find(key)
        {
            entry.slices.remove(at);
        }
        self.touch(&owner);
        self.drop_if_empty(&owner);
    }

    fn drop_if_empty(&mut self, key: &ServiceKey) {
        let empty = |entry: &Entry| entry.service.is_none() && entry.slices.is_empty();
        if self.services.get(key).is_some_and(empty) {
            self.services.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
