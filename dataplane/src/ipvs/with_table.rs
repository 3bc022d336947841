//! The table and IPVS together, as the sync loop sees them.

use std::time::Duration;

use zw_plan::{Changes, Element, Place};

use super::Ipvs;
use crate::error::WriteError;
use crate::kernel::{Committed, Kernel, ReadBack};
use crate::nft::encode::Encoded;
use crate::writer::Tables;

/// Both sides of the kernel. In the nftables mode too: what the other mode left is removed.
pub struct WithIpvs {
    table: Kernel,
    ipvs: Ipvs,
}

impl WithIpvs {
    /// Puts them together.
    pub fn new(table: Kernel, ipvs: Ipvs) -> Self {
        Self { table, ipvs }
    }

    /// To look only: nothing that is read here is ever written.
    pub fn to_look() -> Result<Self, WriteError> {
        Ok(Self::new(Kernel::open()?.only_looking(), Ipvs::open(Duration::ZERO)?))
    }

    /// The table's side.
    pub fn table(&mut self) -> &mut Kernel {
        &mut self.table
    }

    /// IPVS' side.
    pub fn ipvs(&mut self) -> &mut Ipvs {
        &mut self.ipvs
    }
}

impl Tables for WithIpvs {
    fn read_back(&mut self) -> Result<ReadBack, WriteError> {
        let mut read = Tables::read_back(&mut self.table)?;
        read.actual.ipvs = self.ipvs.read()?;
        Ok(read)
    }

    /// IPVS numbers no generations, but is read in no time.
    fn is_still(&mut self, read: &ReadBack) -> bool {
        self.table.is_still(read) && self.ipvs.read().is_ok_and(|ipvs| ipvs == read.actual.ipvs)
    }

    /// IPVS changes in part before the table and in part after it; see [`zw_plan::Drains`]. If the table
    /// refuses, what came before stays, which serves nobody or as before, until the next commit.
    fn commit(
        &mut self,
        changes: &Changes,
        generation: Option<u32>,
    ) -> Result<Committed, WriteError> {
        let anew = changes.tables.values().any(|table| table.delete_table);
        let before = self.ipvs.requests;
        self.ipvs.refused.clear();
        self.ipvs.refused_addresses.clear();
        self.ipvs.refused_reals.clear();
        let todo = self.ipvs.plan(&changes.ipvs, anew)?;
        self.ipvs.carry_out(&todo.before)?;
        let mut committed = if changes.tables.is_empty() {
            Committed::default()
        } else {
            self.table.commit(changes, generation)?
        };
        self.ipvs.carry_out(&todo.after)?;
        if changes.ipvs.link == Some(false) {
            self.ipvs.set_link(false)?;
        }
        committed.requests = self.ipvs.requests - before;
        committed.unserved = std::mem::take(&mut self.ipvs.refused);
        committed.refused_addresses = std::mem::take(&mut self.ipvs.refused_addresses);
        committed.refused_reals = std::mem::take(&mut self.ipvs.refused_reals);
        Ok(committed)
    }

    fn commit_encoded(
        &mut self,
        changes: &Changes,
        encoded: Encoded,
    ) -> Result<Committed, WriteError> {
        if changes.ipvs.is_empty() {
            self.table.commit_encoded(changes, encoded)
        } else {
            self.commit(changes, None)
        }
    }

    fn elements(&mut self, at: &[Place]) -> Result<Vec<Option<Element>>, WriteError> {
        self.table.elements(at)
    }

    fn drain(&mut self) -> Result<bool, WriteError> {
        self.ipvs.drain()
    }
}

impl Ipvs {
    /// What these changes mean; makes the interface if it is missing.
    fn plan(
        &mut self,
        changes: &zw_plan::IpvsChanges,
        anew: bool,
    ) -> Result<zw_plan::Operations, WriteError> {
        if changes.link == Some(true) {
            self.set_link(true)?;
        }
        Ok(self.drains.carry_out(changes, anew, self.since.elapsed()))
    }
}
