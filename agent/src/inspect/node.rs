//! The node this runs on, as its kernel has it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::Context;

use crate::addresses::Addresses;

/// All addresses that are the node's own. Blocking.
pub(crate) fn local_addresses() -> anyhow::Result<BTreeSet<IpAddr>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    runtime.block_on(async { Ok(Addresses::follow().await?.local()) })
}
