//! What kube-proxy leaves in the kernel when it ends: found, and removed where it is a table of its own.
//!
//! In nftables mode that is all of it. The rules of its iptables mode stand in tables that others use
//! too, between rules that are nobody else's business, and the addresses and virtual servers of its ipvs
//! mode belong to other subsystems: these are only told. Never touches anything that is not kube-proxy's.

use std::path::Path;

use zw_model::Family;
use zw_netlink::nft::Batch;

use super::{Kernel, reading};
use crate::error::WriteError;
use crate::nft::family as netlink_family;

/// The table of its nftables mode, in `ip` and in `ip6`.
const TABLE: &str = "kube-proxy";
/// The tables that its iptables mode uses, as iptables-nft makes them.
const IPTABLES: [&str; 3] = ["nat", "filter", "mangle"];
/// The chain that all of its rules hang from in iptables mode.
const IPTABLES_CHAIN: &str = "KUBE-SERVICES";
/// The interface that holds the addresses of Services in ipvs mode.
const IPVS_INTERFACE: &str = "/sys/class/net/kube-ipvs0";

/// What was there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KubeProxyLeftovers {
    /// The families whose table `kube-proxy` was removed.
    pub removed: Vec<Family>,
    /// What is still there, in words.
    pub left: Vec<String>,
}

impl Kernel {
    /// Removes kube-proxy's own tables, in one transaction, and looks for the rest of it.
    pub fn remove_kube_proxy(&mut self) -> Result<KubeProxyLeftovers, WriteError> {
        let tables = self.socket.tables().map_err(|error| reading("the list of tables", error))?;
        let there = |family: Family, name: &str| {
            let family = Some(netlink_family(family));
            tables.iter().any(|table| table.family == family && table.name == name)
        };
        let mut found = KubeProxyLeftovers::default();
        let mut batch = Batch::new();
        for family in Family::BOTH.into_iter().filter(|family| there(*family, TABLE)) {
            batch.delete_table(netlink_family(family), TABLE);
            found.removed.push(family);
        }
        self.socket.commit(&mut batch).map_err(|error| reading("the table kube-proxy", error))?;
        for family in Family::BOTH {
            for name in IPTABLES.into_iter().filter(|name| there(family, name)) {
                let chains = self.socket.chains(netlink_family(family), name);
                let chains = chains.map_err(|error| reading("the chains of iptables", error))?;
                if chains.iter().any(|chain| chain.name == IPTABLES_CHAIN) {
                    found.left.push(format!(
                        "rules of its iptables mode in the {family} table {name}: run kube-proxy --cleanup"
                    ));
                }
            }
        }
        if Path::new(IPVS_INTERFACE).exists() {
            found.left.push(
                "virtual servers of its ipvs mode, and the interface kube-ipvs0: run kube-proxy --cleanup"
                    .into(),
            );
        }
        Ok(found)
    }
}
