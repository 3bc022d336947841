//! How many connections Service ports have had, as the kernel counts them.

use std::collections::{BTreeMap, HashMap};

use zw_model::Family;
use zw_netlink::nft::DumpedElement;
use zw_plan::{Key, SetName, TABLE};

use super::{Kernel, retrying};
use crate::error::WriteError;
use crate::nft::family as netlink_family;

impl Kernel {
    /// How many connections each Service port has had, by its key in the set: [`SetName::Connections`]
    /// or [`SetName::NodePortConnections`].
    pub fn connections(
        &mut self,
        family: Family,
        set: SetName,
    ) -> Result<HashMap<Key, u64>, WriteError> {
        self.count_connections(family, set, |counts: &mut HashMap<_, _>, element, count| {
            counts.extend(Key::from_bytes(element.key).map(|key| (key, count)));
        })
    }

    /// The same by the names that stand beside the keys, `namespace/name:port`.
    pub fn named_connections(
        &mut self,
        family: Family,
    ) -> Result<BTreeMap<String, u64>, WriteError> {
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        for set in [SetName::Connections, SetName::NodePortConnections] {
            let of_set = self.count_connections(
                family,
                set,
                |counts: &mut BTreeMap<String, u64>, element, count| {
                    if let Some(name) = element.comment {
                        *counts.entry(name.to_owned()).or_default() += count;
                    }
                },
            )?;
            for (name, count) in of_set {
                *all.entry(name).or_default() += count;
            }
        }
        Ok(all)
    }

    fn count_connections<T: Default>(
        &mut self,
        family: Family,
        set: SetName,
        take: impl Fn(&mut T, &DumpedElement<'_>, u64),
    ) -> Result<T, WriteError> {
        let set = set.as_str();
        retrying("the connection counters", || {
            let mut counts = T::default();
            self.socket.elements(netlink_family(family), TABLE, set, &mut |element| {
                if let Some((packets, _)) = element.counter {
                    take(&mut counts, &element, packets);
                }
            })?;
            Ok(counts)
        })
    }
}
