//! The whole table in a few numbers: what is compared in the background, without keeping a second copy
//! of every element and without looking at each on the way of an update.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use zw_model::Family;

use crate::adopt::ActualChain;
use crate::desired::Desired;
use crate::element::Element;
use crate::ipvs::ActualIpvs;
use crate::sets::SetName;

/// A set's elements in two numbers, in whatever order they come and go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetDigest {
    elements: u64,
    sum: u64,
}

impl SetDigest {
    /// An element more.
    pub fn add(&mut self, element: &Element) {
        self.elements = self.elements.wrapping_add(1);
        self.sum = self.sum.wrapping_add(hash(element));
    }

    /// An element less.
    pub fn remove(&mut self, element: &Element) {
        self.elements = self.elements.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(hash(element));
    }
}

fn hash(element: &Element) -> u64 {
    FixedState::default().hash_one(element)
}

/// What the kernel holds, in short.
#[derive(Debug, Default)]
pub struct Digest {
    /// Only families whose table exists.
    pub tables: BTreeMap<Family, TableDigest>,
    /// What of IPVS there is, where that matters; see [`Desired::ipvs_differences`].
    pub ipvs: Option<ActualIpvs>,
}

/// One family's table as read back, in short.
#[derive(Debug, Default)]
pub struct TableDigest {
    /// See [`ActualTable`](crate::ActualTable).
    pub incompatible: bool,
    /// The table's comment.
    pub note: Option<String>,
    /// The chains that are there.
    pub chains: BTreeMap<String, ActualChain>,
    /// The names of the affinity maps that are there.
    pub affinity_maps: BTreeSet<String>,
    /// Sets of another version.
    pub unknown_sets: Vec<String>,
    /// The sets that are there.
    pub sets: BTreeMap<SetName, SetDigest>,
}

impl Desired {
    /// What is not as it should be, in words; nothing if all of it is.
    pub fn differences(&self, digest: &Digest) -> Vec<String> {
        let mut all = Vec::new();
        for family in Family::BOTH {
            let table = digest.tables.get(&family).filter(|table| {
                !table.incompatible && table.note.as_ref() == Some(&self.note(family))
            });
            let Some(table) = table else {
                all.push(format!("the {family} table"));
                continue;
            };
            let mut chains = table.chains.clone();
            for chain in self.chains(family) {
                let want: ActualChain = chain.fingerprints(family).into_iter().map(Some).collect();
                if chains.remove(&chain.name) != Some(want) {
                    all.push(format!("{family} chain {}", chain.name));
                }
            }
            all.extend(chains.into_keys().map(|name| format!("{family} chain {name}")));
            let maps = self.affinity_maps(family);
            let unlike = maps.symmetric_difference(&table.affinity_maps);
            all.extend(unlike.map(|name| format!("{family} map {name}")));
            all.extend(table.unknown_sets.iter().map(|name| format!("{family} set {name}")));
            for set in SetName::ALL {
                if table.sets.get(&set).copied() != Some(self.digest(family, set)) {
                    all.push(format!("{family} elements of {set}"));
                }
            }
        }
        all
    }
}
