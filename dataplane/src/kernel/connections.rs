//! How many connections Service ports have had, as the kernel counts them. Packets make the counters; a
//! Service that goes takes its own along.

use std::collections::{BTreeMap, HashMap, HashSet};

use zw_model::Family;
use zw_netlink::nft::Batch;
use zw_plan::{Changes, Element, Key, SetName, TABLE};

use super::{Kernel, retrying};
use crate::error::WriteError;
use crate::nft::family as netlink_family;

/// Sets of Service ports, and of their counters.
const COUNTED: [(SetName, SetName); 2] =
    [(SetName::Services, SetName::Connections), (SetName::NodePorts, SetName::NodePortConnections)];

impl Kernel {
    /// How many connections Service ports have had, by their keys in the set: [`SetName::Connections`]
    /// or [`SetName::NodePortConnections`]. Who has had none is not there.
    pub fn connections(
        &mut self,
        family: Family,
        set: SetName,
    ) -> Result<HashMap<Key, u64>, WriteError> {
        let set = set.as_str();
        retrying("the connection counters", || {
            let mut counts = HashMap::new();
            self.socket.elements(netlink_family(family), TABLE, set, &mut |element| {
                if let (Some(key), Some((packets, _))) =
                    (Key::from_bytes(element.key), element.counter)
                {
                    counts.insert(key, packets);
                }
            })?;
            Ok(counts)
        })
    }

    /// The same for all Service ports, by the names that stand beside their keys: `namespace/name:port`.
    pub fn named_connections(
        &mut self,
        family: Family,
    ) -> Result<BTreeMap<String, u64>, WriteError> {
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        for (services, counters) in COUNTED {
            let counts = self.connections(family, counters)?;
            let of_set = retrying("the names of Services", || {
                let mut named: BTreeMap<String, u64> = BTreeMap::new();
                let services = services.as_str();
                self.socket.elements(netlink_family(family), TABLE, services, &mut |element| {
                    if let (Some(key), Some(name)) = (Key::from_bytes(element.key), element.comment)
                    {
                        let count = counts.get(&key).copied().unwrap_or_default();
                        *named.entry(name.to_owned()).or_default() += count;
                    }
                })?;
                Ok(named)
            })?;
            for (name, count) in of_set {
                *all.entry(name).or_default() += count;
            }
        }
        Ok(all)
    }

    /// Adds to a batch that the counters of Service ports go which are gone, or are another Service's
    /// now. One that a packet makes between this and the commit is left behind, and begins with that packet
    /// should its address be used again.
    pub(super) fn forget_counts<'a>(&mut self, changes: &'a Changes, batch: &mut Batch) {
        for (family, table) in &changes.tables {
            for (services, counters) in COUNTED {
                let Some(gone) = table.delete_elements.get(&services) else { continue };
                let comes = table.add_elements.get(&services).into_iter().flatten();
                let whose = |element: &'a Element| (element.key, element.comment.as_deref());
                let stays: HashSet<(Key, Option<&str>)> = comes.map(whose).collect();
                for (key, _) in gone.iter().map(whose).filter(|whose| !stays.contains(whose)) {
                    let (family, set) = (netlink_family(*family), counters.as_str());
                    let found = self.socket.element(family, TABLE, set, key.as_bytes(), |_| ());
                    if matches!(found, Ok(Some(()))) {
                        batch.delete_element(family, TABLE, set, key.as_bytes());
                    }
                }
            }
        }
    }
}
