//! What the rules depend on besides Services: the node's addresses and the ranges of cluster IPs.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use zw_model::Family;

use crate::element::{Data, Element, Key};
use crate::sets::SetName;

/// Changes at any time, and costs a handful of elements when it does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The node's addresses that node ports are served on.
    pub node_addresses: BTreeSet<IpAddr>,
    /// The ranges cluster IPs are taken from: what is sent there and belongs to no Service is dropped.
    pub service_ranges: Vec<IpNet>,
}

impl Surroundings {
    /// The elements of one family's table.
    pub(crate) fn elements(&self, family: Family) -> Vec<(SetName, Element)> {
        let addresses = self.node_addresses.iter().filter(|addr| Family::of(**addr) == family);
        let mut elements: Vec<(SetName, Element)> = addresses
            .map(|addr| (SetName::NodeAddresses, Element::bare(Key::new().addr(*addr))))
            .collect();
        for (first, after) in merge(&self.service_ranges, family) {
            elements.push((SetName::ServiceRanges, Element::bare(Key::new().addr(first))));
            elements.extend(after.map(|addr| {
                let key = Key::new().addr(addr);
                (SetName::ServiceRanges, Element { data: Data::End, ..Element::bare(key) })
            }));
        }
        elements
    }
}

/// Ranges as (first address, first address after it), neither overlapping nor touching; no end where a
/// range reaches the last address.
fn merge(ranges: &[IpNet], family: Family) -> Vec<(IpAddr, Option<IpAddr>)> {
    let mut nets = IpNet::aggregate(
        &ranges.iter().filter(|net| Family::of(net.addr()) == family).copied().collect(),
    );
    nets.sort();
    let mut merged: Vec<(IpAddr, Option<IpAddr>)> = Vec::new();
    for net in nets {
        let after = next(net.broadcast());
        match merged.last_mut() {
            Some((_, end)) if *end == Some(net.network()) => *end = after,
            _ => merged.push((net.network(), after)),
        }
    }
    merged
}

fn next(addr: IpAddr) -> Option<IpAddr> {
    match addr {
        IpAddr::V4(v4) => v4.to_bits().checked_add(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(v6) => v6.to_bits().checked_add(1).map(|bits| IpAddr::V6(bits.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_or_overlap_become_one() {
        let merged = |ranges: &[&str]| {
            let ranges: Vec<IpNet> = ranges.iter().map(|net| net.parse().unwrap()).collect();
            let shown = merge(&ranges, Family::V4).into_iter();
            shown
                .map(|(first, after)| {
                    format!("{first}-{}", after.map_or("".into(), |a| a.to_string()))
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(merged(&["10.96.0.0/16"]), ["10.96.0.0-10.97.0.0"]);
        assert_eq!(merged(&["10.0.2.0/23", "10.0.1.0/24"]), ["10.0.1.0-10.0.4.0"]);
        assert_eq!(merged(&["10.0.0.0/8", "10.96.0.0/16", "fd00::/64"]), ["10.0.0.0-11.0.0.0"]);
        assert_eq!(
            merged(&["10.0.0.0/24", "10.0.2.0/24"]),
            ["10.0.0.0-10.0.1.0", "10.0.2.0-10.0.3.0"]
        );
        assert_eq!(merged(&["255.0.0.0/8"]), ["255.0.0.0-"]);
    }
}
