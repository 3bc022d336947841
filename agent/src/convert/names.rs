//! One copy of names that many objects have in common: namespaces, Services, ports, nodes, zones.
//!
//! Per thread, for all objects are converted on one; what nobody has any more is swept out now and then.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

/// How many names are kept at least before sweeping is worth it.
const FEW: usize = 1024;

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::new(Known { names: HashSet::new(), sweep_at: FEW });
}

struct Known {
    names: HashSet<Arc<str>>,
    sweep_at: usize,
}

/// The copy that everybody has.
pub(super) fn shared(name: &str) -> Arc<str> {
    KNOWN.with_borrow_mut(|known| known.shared(name))
}

impl Known {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        if self.names.len() >= self.sweep_at {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.sweep_at = (self.names.len() * 2).max(FEW);
        }
        let name: Arc<str> = name.into();
        self.names.insert(name.clone());
        name
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
    fn names_that_nobody_has_any_more_are_forgotten() {
        let mut known = Known { names: HashSet::new(), sweep_at: FEW };
        let kept = known.shared("kept");
        for i in 0..100 * FEW {
            known.shared(&i.to_string());
            assert!(known.names.len() <= FEW);
        }
        assert!(Arc::ptr_eq(&kept, &known.shared("kept")));
    }
}
