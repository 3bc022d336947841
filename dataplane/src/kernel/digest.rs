//! The table in a few numbers: read as a whole, but not kept.

use zw_model::Family;
use zw_netlink::Error;
use zw_plan::{Digest, SetDigest, SetName, TABLE, TableDigest};

use super::read::Names;
use super::{Kernel, find_ours, retrying};
use crate::error::WriteError;
use crate::nft::{decode, family as netlink_family};

impl Kernel {
    /// Reads our tables, and keeps of their elements only what it takes to compare. Others may change
    /// theirs meanwhile; whoever changes ours makes the result worthless, and has to tell.
    pub fn digest(&mut self) -> Result<Digest, WriteError> {
        self.socket.tolerate_changes(true);
        let read = retrying("the table zoneward", || self.try_digest());
        self.socket.tolerate_changes(false);
        read
    }

    fn try_digest(&mut self) -> Result<Digest, Error> {
        let tables = self.socket.tables()?;
        let mut digest = Digest::default();
        for family in Family::BOTH {
            let Some(info) = find_ours(&tables, family) else { continue };
            let Names { table, known } = self.read_names(family)?;
            let mut short = TableDigest {
                incompatible: table.incompatible || info.flags != 0,
                note: info.comment.clone(),
                chains: table.chains,
                affinity_maps: table.affinity_maps.into_keys().collect(),
                unknown_sets: table.unknown_sets,
                ..TableDigest::default()
            };
            if !short.incompatible {
                for set in known {
                    match self.digest_set(family, set)? {
                        Some(of_set) => drop(short.sets.insert(set, of_set)),
                        None => short.incompatible = true,
                    }
                }
            }
            digest.tables.insert(family, short);
        }
        Ok(digest)
    }

    fn digest_set(&mut self, family: Family, set: SetName) -> Result<Option<SetDigest>, Error> {
        let mut digest = SetDigest::default();
        if set.def().counts {
            // What packets put there is as it should be.
            return Ok(Some(digest));
        }
        if set.def().ranges {
            let elements = self.read_elements(family, set)?;
            let elements = elements.inspect(|elements| {
                elements.values().for_each(|element| digest.add(element));
            });
            return Ok(elements.map(|_| digest));
        }
        let mut odd = false;
        let set = set.as_str();
        self.socket.elements(netlink_family(family), TABLE, set, &mut |dumped| {
            match decode::element(&dumped) {
                Some(element) => digest.add(&element),
                None => odd = true,
            }
        })?;
        Ok((!odd).then_some(digest))
    }
}
