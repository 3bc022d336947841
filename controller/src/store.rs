//! The cluster as the controller sees it, by Service. Kept by changes; whatever comes late is left out.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use zw_model::ServiceKey;

use crate::approach::Approach;
use crate::input::{Node, Role, Service, Slice, version};
use crate::mirror::Mirrored;
use crate::zones::{ZoneNodes, Zones};

/// A slice's name, with its namespace.
type SliceName = (Arc<str>, Arc<str>);

/// What there is.
#[derive(Debug, Default)]
pub(crate) struct Store {
    services: HashMap<ServiceKey, (Service, u64)>,
    slices: HashMap<ServiceKey, Vec<Slice>>,
    endpoints: HashMap<ServiceKey, (Mirrored, u64)>,
    /// Whose slice it is; a label may change.
    owners: HashMap<SliceName, ServiceKey>,
    zones: Zones,
    nodes: ZoneNodes,
    /// Services that are or are to be divided: those that a Node concerns.
    divided: BTreeSet<ServiceKey>,
}

impl Store {
    pub(crate) fn service(&self, key: &ServiceKey) -> Option<&Service> {
        self.services.get(key).map(|(service, _)| service)
    }

    pub(crate) fn slices(&self, key: &ServiceKey) -> &[Slice] {
        self.slices.get(key).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn endpoints(&self, key: &ServiceKey) -> Option<&Mirrored> {
        self.endpoints.get(key).map(|(endpoints, _)| endpoints)
    }

    pub(crate) fn zones(&self) -> &Zones {
        &self.zones
    }

    pub(crate) fn nodes(&self) -> &ZoneNodes {
        &self.nodes
    }

    pub(crate) fn divided(&self) -> &BTreeSet<ServiceKey> {
        &self.divided
    }

    /// Takes in a Service; true if that is news.
    pub(crate) fn apply_service(&mut self, service: Service, version: u64) -> bool {
        let key = service.key.clone();
        if let Some((old, known)) = self.services.get_mut(&key) {
            if *known > version {
                return false;
            }
            *known = version;
            if *old == service {
                return false;
            }
            *old = service;
        } else {
            self.services.insert(key.clone(), (service, version));
        }
        self.note(&key);
        true
    }

    /// Takes in a slice; returns the Services it concerns.
    pub(crate) fn apply_slice(&mut self, key: ServiceKey, slice: Slice) -> Vec<ServiceKey> {
        let name = (key.namespace.clone(), slice.name.clone());
        let mut changed = Vec::new();
        match self.owners.insert(name, key.clone()) {
            Some(old) if old != key => {
                self.remove(&old, &slice.name);
                changed.push(old);
            }
            _ => {}
        }
        let slices = self.slices.entry(key.clone()).or_default();
        match slices.iter_mut().find(|known| known.name == slice.name) {
            Some(known) if version(Some(&known.version)) > version(Some(&slice.version)) => {
                return changed;
            }
            Some(known) if known.version == slice.version => return changed,
            Some(known) => *known = slice,
            None => slices.push(slice),
        }
        self.note(&key);
        changed.push(key);
        changed
    }

    /// A slice is gone, or belongs to no Service any more; returns whose it was.
    pub(crate) fn delete_slice(&mut self, namespace: &str, name: &str) -> Option<ServiceKey> {
        let key = self.owners.remove(&(namespace.into(), name.into()))?;
        self.remove(&key, name);
        Some(key)
    }

    pub(crate) fn delete_service(&mut self, key: &ServiceKey) -> bool {
        let was = self.services.remove(key).is_some();
        self.note(key);
        was
    }

    pub(crate) fn apply_endpoints(&mut self, endpoints: Mirrored, version: u64) -> bool {
        let key = endpoints.key.clone();
        if self.endpoints.get(&key).is_some_and(|(_, known)| *known > version) {
            return false;
        }
        self.endpoints.insert(key, (endpoints, version));
        true
    }

    pub(crate) fn delete_endpoints(&mut self, key: &ServiceKey) -> bool {
        self.endpoints.remove(key).is_some()
    }

    /// Takes in a Node; true if groups may have to change.
    pub(crate) fn apply_node(&mut self, node: Node, version: u64) -> bool {
        let changed = self.zones.apply(node, version);
        if changed {
            self.nodes = self.zones.nodes();
        }
        changed
    }

    pub(crate) fn delete_node(&mut self, name: &str) -> bool {
        let changed = self.zones.delete(name);
        if changed {
            self.nodes = self.zones.nodes();
        }
        changed
    }

    /// After a list: Services that are not in it are gone. Returns those that were.
    pub(crate) fn keep_services(&mut self, listed: &HashSet<SliceName>) -> Vec<ServiceKey> {
        let missing =
            |key: &&ServiceKey| !listed.contains(&(key.namespace.clone(), key.name.clone()));
        let gone: Vec<ServiceKey> = self.services.keys().filter(missing).cloned().collect();
        gone.iter().for_each(|key| {
            self.delete_service(key);
        });
        gone
    }

    /// After a list: the same with slices.
    pub(crate) fn keep_slices(&mut self, listed: &HashSet<SliceName>) -> Vec<ServiceKey> {
        let gone: Vec<SliceName> =
            self.owners.keys().filter(|name| !listed.contains(name)).cloned().collect();
        gone.iter().filter_map(|(namespace, name)| self.delete_slice(namespace, name)).collect()
    }

    /// After a list: the same with Endpoints.
    pub(crate) fn keep_endpoints(&mut self, listed: &HashSet<SliceName>) -> Vec<ServiceKey> {
        let missing =
            |key: &&ServiceKey| !listed.contains(&(key.namespace.clone(), key.name.clone()));
        let gone: Vec<ServiceKey> = self.endpoints.keys().filter(missing).cloned().collect();
        gone.iter().for_each(|key| {
            self.delete_endpoints(key);
        });
        gone
    }

    /// After a list: the same with Nodes; true if there was one.
    pub(crate) fn keep_nodes(&mut self, listed: &HashSet<SliceName>) -> bool {
        let nowhere: Arc<str> = "".into();
        let changed = self.zones.retain(|name| listed.contains(&(nowhere.clone(), name.into())));
        if changed {
            self.nodes = self.zones.nodes();
        }
        changed
    }

    /// Every Service there may be something to do for.
    pub(crate) fn keys(&self) -> BTreeSet<ServiceKey> {
        let mirrored = self.endpoints.keys();
        self.services.keys().chain(self.slices.keys()).chain(mirrored).cloned().collect()
    }

    fn remove(&mut self, key: &ServiceKey, name: &str) {
        if let Some(slices) = self.slices.get_mut(key) {
            slices.retain(|slice| &*slice.name != name);
            if slices.is_empty() {
                self.slices.remove(key);
            }
        }
        self.note(key);
    }

    /// Keeps the list of those that Nodes concern.
    fn note(&mut self, key: &ServiceKey) {
        let asked = |service: &Service| Approach::asked_by(service) != Approach::Balanced;
        let is_group = |slice: &Slice| matches!(slice.role, Role::Group(_));
        if self.service(key).is_some_and(asked) || self.slices(key).iter().any(is_group) {
            self.divided.insert(key.clone());
        } else {
            self.divided.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;
    use crate::testing::{endpoint, service, slice};

    fn key(name: &str) -> ServiceKey {
        ServiceKey { namespace: "web".into(), name: name.into() }
    }

    fn at(version: &str, address: &str) -> Slice {
        let mut made = slice("x", None, &[endpoint(address, "a", true)]);
        made.version = version.into();
        made
    }

    #[test]
    fn what_is_older_or_the_same_is_no_news() {
        let mut store = Store::default();
        assert_eq!(store.apply_slice(key("api"), at("9", "10.0.0.1")), [key("api")]);
        assert_eq!(store.apply_slice(key("api"), at("10", "10.0.0.2")), [key("api")]);
        assert_eq!(store.apply_slice(key("api"), at("10", "10.0.0.2")), []);
        assert_eq!(store.apply_slice(key("api"), at("9", "10.0.0.1")), [], "as numbers");
        assert_eq!(store.slices(&key("api"))[0].endpoints[0].addresses, ["10.0.0.2"]);
        assert!(store.apply_service(service(&[]), 5));
        assert!(!store.apply_service(service(&[(names::SAME_ZONE, "Prefer")]), 4));
        assert!(!store.apply_service(service(&[]), 6));
        assert!(store.apply_service(service(&[(names::SAME_ZONE, "Prefer")]), 7));
    }

    #[test]
    fn a_slice_that_changes_its_service_concerns_both() {
        let mut store = Store::default();
        store.apply_slice(key("api"), at("1", "10.0.0.1"));
        assert_eq!(store.apply_slice(key("web"), at("2", "10.0.0.1")), [key("api"), key("web")]);
        assert!(store.slices(&key("api")).is_empty());
        assert_eq!(store.delete_slice("web", "x"), Some(key("web")));
        assert_eq!(store.delete_slice("web", "x"), None);
    }

    #[test]
    fn nodes_concern_services_that_ask_or_have_groups() {
        let mut store = Store::default();
        store.apply_service(service(&[]), 1);
        assert!(store.divided().is_empty());
        store.apply_service(service(&[(names::SAME_ZONE, "Prefer")]), 2);
        assert_eq!(store.divided().len(), 1);
        store.apply_service(service(&[]), 3);
        assert!(store.divided().is_empty());
        store.apply_slice(key("api"), slice("g", Some("a"), &[]));
        assert_eq!(store.divided().len(), 1);
        store.delete_slice("web", "g");
        assert!(store.divided().is_empty());
    }

    #[test]
    fn what_a_new_list_does_not_name_is_gone() {
        let mut store = Store::default();
        store.apply_service(service(&[]), 1);
        store.apply_slice(key("api"), at("1", "10.0.0.1"));
        let listed = HashSet::from([(Arc::from("web"), Arc::from("x"))]);
        assert_eq!(store.keep_slices(&listed), []);
        assert_eq!(store.keep_services(&listed), [key("api")]);
        assert_eq!(store.keep_slices(&HashSet::new()), [key("api")]);
    }
}
