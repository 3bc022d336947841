//! Sets that were told their size: whether this kernel can be told another one later, and doing so.

use zw_netlink::Error;
use zw_netlink::nft::{Batch, Element, Family as NetlinkFamily, SetData, SetSpec, Socket, TypeOf};
use zw_plan::{Changes, SetDef, TABLE, sets};

use super::Kernel;
use crate::nft::encode::{SELDOM, set_spec};
use crate::nft::family as netlink_family;

impl Kernel {
    /// Whether new sets may be told a size, which must not be their last. Tried once, in a table that
    /// nobody else knows, but never where only the generation of a moment ago will do.
    pub(super) fn sizes(&mut self, may_try: bool) -> bool {
        if self.resizes.is_none() && may_try {
            self.resizes = Some(try_resizing(&mut self.socket).unwrap_or(false));
        }
        self.resizes.unwrap_or(false)
    }

    /// Gives sets that changes add to twice the size they have now, those that have one.
    pub(super) fn grow(&mut self, changes: &Changes) -> Result<(), Error> {
        let mut batch = Batch::new();
        for (of, table) in &changes.tables {
            let family = netlink_family(*of);
            for info in self.socket.sets(family, TABLE)? {
                let Some(def) = sets().find(|def| def.name.as_str() == info.name) else { continue };
                let added = table.add_elements.get(&def.name).map_or(0, Vec::len);
                if let Some(size) = info.size.filter(|_| added > 0) {
                    let more = u32::try_from(added).unwrap_or(u32::MAX);
                    let size = Some(size.saturating_add(more).saturating_mul(2));
                    batch.add_set(family, TABLE, &set_spec(*of, &SetDef { size, ..def }));
                }
            }
        }
        self.send(&mut batch).map(|_| ())
    }
}

/// Makes a set of one element two elements large and fills it.
fn try_resizing(socket: &mut Socket) -> Result<bool, Error> {
    let (family, table) = (NetlinkFamily::Ip, format!("zoneward-check-{}", std::process::id()));
    let spec = |size| SetSpec {
        name: "sizes".into(),
        key: vec![TypeOf::IpDaddr],
        data: SetData::None,
        counter: false,
        timeout: None,
        gc_interval: Some(SELDOM),
        dynamic: false,
        interval: false,
        size: Some(size),
        comment: None,
    };
    let mut made = Batch::new();
    // It goes with the socket, should we.
    made.add_owned_table(family, &table);
    made.add_set(family, &table, &spec(1));
    socket.commit(&mut made)?;
    let mut resized = Batch::new();
    resized.add_set(family, &table, &spec(2));
    let mut tried = Batch::new();
    for key in [[192, 0, 2, 1], [192, 0, 2, 2]] {
        let element =
            Element { key: &key, key_end: None, data: None, timeout: None, comment: None };
        tried.add_element(family, &table, &spec(2).name, &element);
    }
    tried.delete_table(family, &table);
    let outcome = socket.commit(&mut resized).and_then(|_| socket.commit(&mut tried));
    if outcome.is_ok() {
        return Ok(true);
    }
    let mut gone = Batch::new();
    gone.delete_table(family, &table);
    socket.commit(&mut gone)?;
    Ok(false)
}
