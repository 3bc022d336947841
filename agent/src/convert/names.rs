//! One copy of what many objects have in common: names of namespaces, Services, ports, nodes and zones, and
//! where endpoints are.
//!
//! Per thread, for all objects are converted on one; what nobody has any more is swept out now and then.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use zw_model::Topology;

/// How many copies are kept at least before sweeping is worth it.
const FEW: usize = 1024;

thread_local! {
    static NAMES: RefCell<Known<str>> = RefCell::new(Known::default());
    static TOPOLOGIES: RefCell<Known<Topology>> = RefCell::new(Known::default());
}

/// The copy of a name that everybody has.
pub(super) fn shared(name: &str) -> Arc<str> {
    NAMES.with_borrow_mut(|known| known.shared(name, |name| name.into()))
}

/// The copy of a topology that all endpoints of a node have, but for hints.
pub(super) fn shared_topology(topology: Topology) -> Arc<Topology> {
    TOPOLOGIES.with_borrow_mut(|known| known.shared(&topology, |new| Arc::new(new.clone())))
}

struct Known<T: ?Sized> {
    copies: HashSet<Arc<T>>,
    sweep_at: usize,
}

impl<T: ?Sized> Default for Known<T> {
    fn default() -> Self {
        Self { copies: HashSet::new(), sweep_at: FEW }
    }
}

impl<T: ?Sized + Eq + Hash> Known<T> {
    fn shared(&mut self, wanted: &T, copy: impl FnOnce(&T) -> Arc<T>) -> Arc<T> {
        if let Some(known) = self.copies.get(wanted) {
            return known.clone();
        }
        if self.copies.len() >= self.sweep_at {
            self.copies.retain(|copy| Arc::strong_count(copy) > 1);
            self.sweep_at = (self.copies.len() * 2).max(FEW);
        }
        let new = copy(wanted);
        self.copies.insert(new.clone());
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

    #[test]
    fn endpoints_at_the_same_place_have_the_same_copy() {
        let at = |node: &str| Topology { node: Some(shared(node)), ..Topology::default() };
        let (one, two) = (shared_topology(at("node-1")), shared_topology(at("node-1")));
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(*shared_topology(at("node-2")), at("node-2"));
    }

    #[test]
    fn names_that_nobody_has_any_more_are_forgotten() {
        let mut known = Known::<str>::default();
        let mut shared = |name: &str| known.shared(name, |name| name.into());
        let kept = shared("kept");
        for i in 0..100 * FEW {
            shared(&i.to_string());
        }
        assert!(Arc::ptr_eq(&kept, &shared("kept")));
        assert!(known.copies.len() <= FEW);
    }
}
