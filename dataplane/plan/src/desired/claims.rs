//! Who has which frontend. Where two Services claim one, the first by name has it, and the other gets it
//! when that one goes.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;
use zw_model::ServiceKey;

use crate::frontend::Frontend;

#[derive(Debug, Default)]
pub(super) struct Claims {
    owners: HashMap<Frontend, ServiceKey>,
    /// Those who claim it in vain, which hardly ever happens.
    losers: BTreeMap<Frontend, BTreeSet<ServiceKey>>,
}

impl Claims {
    /// Makes room for so many frontends more.
    pub(super) fn reserve(&mut self, frontends: usize) {
        self.owners.reserve(frontends);
    }

    pub(super) fn owner(&self, frontend: &Frontend) -> Option<&ServiceKey> {
        self.owners.get(frontend)
    }

    /// Whoever claims it besides its owner.
    pub(super) fn losers(&self, frontend: &Frontend) -> Option<&BTreeSet<ServiceKey>> {
        self.losers.get(frontend)
    }

    pub(super) fn are_contested(&self) -> bool {
        !self.losers.is_empty()
    }

    /// Every frontend that somebody claims, in any order.
    pub(super) fn frontends(&self) -> impl Iterator<Item = &Frontend> {
        self.owners.keys()
    }

    pub(super) fn claim(&mut self, frontend: Frontend, key: &ServiceKey) {
        let owner = self.owners.entry(frontend).or_insert_with(|| key.clone());
        if owner == key {
            return;
        }
        let loser = if key < owner { std::mem::replace(owner, key.clone()) } else { key.clone() };
        self.losers.entry(frontend).or_default().insert(loser);
    }

    pub(super) fn release(&mut self, frontend: &Frontend, key: &ServiceKey) {
        let owned = self.owners.get(frontend) == Some(key);
        let Some(losers) = self.losers.get_mut(frontend) else {
            if owned {
                self.owners.remove(frontend);
            }
            return;
        };
        if !owned {
            losers.remove(key);
        } else if let Some(next) = losers.pop_first() {
            self.owners.insert(*frontend, next);
        }
        if losers.is_empty() {
            self.losers.remove(frontend);
        }
    }
}
