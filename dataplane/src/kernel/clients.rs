//! The clients that sticky Services remember: packets put them there, and an endpoint that goes takes
//! its own along.

use std::collections::{BTreeMap, HashMap, HashSet};

use zw_model::Family;
use zw_netlink::Error;
use zw_netlink::nft::{Batch, ElementData};
use zw_plan::{Changes, Key, TABLE, TableChanges};

use super::{ENOENT, Kernel, retrying};
use crate::error::WriteError;
use crate::nft::family as netlink_family;

/// How often clients of an endpoint that is gone are looked for.
const FORGET_ATTEMPTS: u32 = 3;

/// What [`Kernel::forget`] found.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    /// How many clients go.
    clients: usize,
    /// The maps that could not be read, and whose clients may stay with whom: to be tried again.
    pub(super) unread: Changes,
}

impl Kernel {
    /// Adds to a batch that clients of endpoints that are gone are forgotten.
    pub(super) fn forget(&mut self, changes: &Changes, batch: &mut Batch) -> Forgetting {
        let mut forgetting = Forgetting::default();
        for (family, table) in &changes.tables {
            for (map, stay) in &table.forget_others {
                let clients = match self.clients(*family, map) {
                    Ok(clients) => clients,
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(%family, map, error, "cannot read a sticky Service's clients");
                        let again = BTreeMap::from([(map.clone(), stay.clone())]);
                        let again =
                            TableChanges { forget_others: again, ..TableChanges::default() };
                        let tables = BTreeMap::from([(*family, again)]);
                        let again = Changes { tables, ..Changes::default() };
                        forgetting.unread = std::mem::take(&mut forgetting.unread).then(again);
                        continue;
                    }
                };
                let stay: HashSet<&Key> = stay.iter().collect();
                for (client, _) in clients.iter().filter(|(_, with)| !stay.contains(with)) {
                    let family = netlink_family(*family);
                    batch.delete_element(family, TABLE, map, client.as_bytes());
                    forgetting.clients += 1;
                }
            }
        }
        forgetting
    }

    /// Clients that were given an endpoint while it was being removed. Tried a few times: one of them
    /// may go by itself just then. Gives back what is to be tried again.
    pub(super) fn forget_latecomers(&mut self, changes: &Changes) -> Changes {
        for _ in 0..FORGET_ATTEMPTS {
            let mut batch = Batch::new();
            let forgetting = self.forget(changes, &mut batch);
            if forgetting.clients == 0 || self.send(&mut batch).is_ok() {
                return forgetting.unread;
            }
        }
        tracing::warn!("some clients are still remembered for an endpoint that is gone");
        let mut again = Changes::default();
        for (family, table) in &changes.tables {
            let forget_others = table.forget_others.clone();
            let table = TableChanges { forget_others, ..TableChanges::default() };
            again.tables.insert(*family, table);
        }
        again
    }

    /// None, if there is no such map.
    fn clients(&mut self, family: Family, map: &str) -> Result<HashMap<Key, Key>, WriteError> {
        retrying("the clients of a sticky Service", || match self.read_clients(family, map) {
            Err(Error::Refused { errno: ENOENT, .. }) => Ok(HashMap::new()),
            read => read,
        })
    }

    pub(super) fn read_clients(
        &mut self,
        family: Family,
        map: &str,
    ) -> Result<HashMap<Key, Key>, Error> {
        let mut clients = HashMap::new();
        self.socket.elements(netlink_family(family), TABLE, map, &mut |element| {
            if let (Some(client), Some(ElementData::Value(with))) =
                (Key::from_bytes(element.key), element.data)
                && let Some(with) = Key::from_bytes(with)
            {
                clients.insert(client, with);
            }
        })?;
        Ok(clients)
    }
}
