//! What this kernel and these permissions allow, one answer per capability.
//!
//! Tried in a table of its own, which is made and removed in one transaction: nothing of it is ever
//! visible.

use std::fs;
use std::path::Path;

use zw_model::Family;
use zw_netlink::Error;
use zw_netlink::nft::{Batch, Socket};
use zw_plan::{PlanConfig, Pods, Shape, base_table, sets};

use crate::nft::encode::{affinity_spec, chain_spec, set_spec};
use crate::nft::{family as netlink_family, rules};

/// One line of `zoneward check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    /// What it is.
    pub name: String,
    /// Why it is missing and how to get it; `None`: it is there.
    pub missing: Option<String>,
    /// Without it nothing can be programmed.
    pub required: bool,
}

/// Tries everything Zoneward needs.
pub fn probe() -> Vec<Capability> {
    let mut found = Vec::new();
    let mut socket = match Socket::open() {
        Ok(socket) => socket,
        Err(error) => {
            let why =
                format!("{error}; the kernel needs CONFIG_NETFILTER_NETLINK (module nfnetlink)");
            return vec![Capability { name: "netlink".into(), missing: Some(why), required: true }];
        }
    };
    let readable = socket.generation().err().map(|error| explain(&error));
    found.push(Capability { name: "nf_tables".into(), missing: readable, required: true });
    for family in Family::BOTH {
        let missing = try_ruleset(&mut socket, family).err().map(|error| explain(&error));
        let name = format!("{family} ruleset");
        found.push(Capability { name, missing, required: true });
    }
    for (name, path) in [
        ("IPv4 forwarding", "/proc/sys/net/ipv4/ip_forward"),
        ("IPv6 forwarding", "/proc/sys/net/ipv6/conf/all/forwarding"),
    ] {
        found.push(Capability { name: name.into(), missing: switched_off(path), required: false });
    }
    found
}

/// The whole ruleset for one Service, under another name, taken back in the same transaction.
fn try_ruleset(socket: &mut Socket, of: Family) -> Result<(), Error> {
    // No other table has this name: it would be deleted.
    let trial = format!("zoneward-check-{}", std::process::id());
    let family = netlink_family(of);
    let everywhere = ["0.0.0.0/1", "8000::/1"].map(|range| range.parse().ok());
    let pod_ranges = everywhere.into_iter().flatten().collect();
    let config = PlanConfig { pods: Pods::Ranges(pod_ranges), ..PlanConfig::default() };
    let mut batch = Batch::new();
    batch.add_table(family, &trial, None);
    for set in sets() {
        batch.add_set(family, &trial, &set_spec(of, &set));
    }
    let mut chains = base_table(of, &config, true);
    // One of every kind, a sticky Service's among them.
    let sticky = "10800s-tcp-0000000000000000-web/api";
    let shapes = ["cluster-2", "external-2", "external-local-2", "shortcut-2", "node-port-2"];
    let names = shapes
        .map(String::from)
        .into_iter()
        .chain([format!("cluster-2-sticky-{sticky}"), format!("remember-{sticky}")]);
    chains.extend(names.filter_map(|name| Some(Shape::parse(&name)?.chain(of, &config))));
    batch.add_set(family, &trial, &affinity_spec(of, "affinity-0000000000000000-web/api"));
    for chain in &chains {
        batch.add_chain(family, &trial, &chain_spec(chain));
    }
    for chain in &chains {
        for rule in &chain.rules {
            batch.add_rule(family, &trial, &chain.name, &rules::encode(of, rule), None);
        }
    }
    batch.delete_table(family, &trial);
    socket.commit(&mut batch).map(|_| ())
}

fn explain(error: &Error) -> String {
    const EPERM: i32 = 1;
    const ENOENT: i32 = 2;
    const EINVAL: i32 = 22;
    const EOPNOTSUPP: i32 = 95;
    match error {
        Error::Refused { errno: EPERM, .. } => {
            "not permitted; run as root, or give the container the capability NET_ADMIN".into()
        }
        Error::Refused { errno: ENOENT | EINVAL | EOPNOTSUPP, .. } => format!(
            "{error}; the kernel needs CONFIG_NF_TABLES with NAT, masquerade and reject \
             (modules nf_tables, nft_chain_nat, nft_masq, nft_reject, nft_numgen, nft_ct); Linux 6.1 has them all"
        ),
        error => error.to_string(),
    }
}

fn switched_off(path: &str) -> Option<String> {
    match fs::read_to_string(Path::new(path)) {
        Ok(value) if value.trim() == "1" => None,
        Ok(_) => Some(format!("off, so pods' packets are not routed; write 1 to {path}")),
        Err(error) => Some(format!("{path}: {error}")),
    }
}
