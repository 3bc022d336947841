//! What the sources have said so far, and which Services that touches. A plain structure with one
//! owner: no locks, no IO.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use zw_model::{NodeContext, Service, ServiceKey, Slice, SliceKey};

use crate::convert::{Body, Kind, Object, ObjectId};
use crate::state::Event;

/// The objects, by what planning needs.
#[derive(Debug, Default)]
pub(crate) struct Index {
    services: BTreeMap<ServiceKey, Entry>,
    /// Which Service a slice belongs to: a slice may change its mind.
    owners: HashMap<SliceKey, ServiceKey>,
    node: NodeContext,
    changed: Changed,
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
    service: Option<Service>,
    slices: BTreeMap<SliceKey, Slice>,
}

/// The Services to plan anew.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    Some(BTreeSet<ServiceKey>),
    /// The node itself changed.
    All,
}

impl Default for Changed {
    fn default() -> Self {
        Changed::Some(BTreeSet::new())
    }
}

impl Index {
    /// An empty index for the node of this name.
    pub(crate) fn new(node_name: &str) -> Self {
        let node = NodeContext { name: node_name.into(), ..NodeContext::default() };
        Self { node, ..Self::default() }
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
            Body::Service(service) => {
                let key = service.key.clone();
                self.touch(&key);
                self.services.entry(key).or_default().service = Some(service);
            }
            Body::Slice(slice) => {
                if self.owners.get(&slice.key).is_some_and(|owner| *owner != slice.service) {
                    self.remove_slice(&slice.key);
                }
                self.touch(&slice.service);
                self.owners.insert(slice.key.clone(), slice.service.clone());
                let entry = self.services.entry(slice.service.clone()).or_default();
                entry.slices.insert(slice.key.clone(), slice);
            }
            Body::Node { zone, region } => self.set_topology(&object.id.name, zone, region),
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
            Kind::Node => self.set_topology(&id.name, None, None),
            Kind::ServiceCidr => {}
        }
    }

    /// Puts this node into another zone and region.
    pub(crate) fn move_node(&mut self, zone: Option<Arc<str>>, region: Option<Arc<str>>) {
        let name = self.node.name.clone();
        self.set_topology(&name, zone, region);
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

    /// Whether any Service was touched since the changes were last taken.
    pub(crate) fn is_changed(&self) -> bool {
        self.changed != Changed::default()
    }

    /// The Services touched since the last call.
    pub(crate) fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    /// A Service and its slices, if the Service itself is known.
    pub(crate) fn service(
        &self,
        key: &ServiceKey,
    ) -> Option<(&Service, impl Iterator<Item = &Slice> + Clone)> {
        let entry = self.services.get(key)?;
        Some((entry.service.as_ref()?, entry.slices.values()))
    }

    /// Every Service that is known.
    pub(crate) fn service_keys(&self) -> impl Iterator<Item = &ServiceKey> {
        self.services.iter().filter(|(_, entry)| entry.service.is_some()).map(|(key, _)| key)
    }

    /// This node.
    pub(crate) fn node(&self) -> &NodeContext {
        &self.node
    }

    fn touch(&mut self, key: &ServiceKey) {
        if let Changed::Some(keys) = &mut self.changed {
            keys.insert(key.clone());
        }
    }

    fn remove_slice(&mut self, key: &SliceKey) {
        let Some(owner) = self.owners.remove(key) else { return };
        if let Some(entry) = self.services.get_mut(&owner) {
            entry.slices.remove(key);
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

    fn set_topology(&mut self, name: &str, zone: Option<Arc<str>>, region: Option<Arc<str>>) {
        if *name != *self.node.name || (&zone, &region) == (&self.node.zone, &self.node.region) {
            return;
        }
        (self.node.zone, self.node.region) = (zone, region);
        self.changed = Changed::All;
    }
}

#[cfg(test)]
mod tests;
