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
    /// In the ipvs mode, all addresses the node has by itself: they stay what they are, also where a
    /// Service claims one.
    pub own_addresses: BTreeSet<IpAddr>,
}

impl Surroundings {
    /// The elements of one family's table.
    pub(crate) fn elements(&self, family: Family) -> Vec<(SetName, Element)> {
        let addresses = self.node_addresses.iter().filter(|addr| Family::of(**addr) == family);
        let mut elements: Vec<(SetName, Element)> = addresses
            .map(|addr| (SetName::NodeAddresses, Element::bare(Key::new().addr(*addr))))
            .collect();
        elements.extend(merge(&self.service_ranges, family).into_iter().map(|(first, last)| {
            let data = Data::UpTo(Key::new().addr(last));
            let key = Key::new().addr(first);
            (SetName::ServiceRanges, Element { data, ..Element::bare(key) })
        }));
        elements
    }
}

/// Ranges by their first and last address, neither overlapping nor touching: the kernel wants it so.
fn merge(ranges: &[IpNet], family: Family) -> Vec<(IpAddr, IpAddr)> {
    let mut nets = IpNet::aggregate(
        &ranges.iter().filter(|net| Family::of(net.addr()) == family).copied().collect(),
    );
    nets.sort();
    let mut merged: Vec<(IpAddr, IpAddr)> = Vec::new();
    for net in nets {
        match merged.last_mut() {
            Some((_, last)) if next(*last) == Some(net.network()) => *last = net.broadcast(),
            _ => merged.push((net.network(), net.broadcast())),
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
            let merged = merge(&ranges, Family::V4).into_iter();
            merged.map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>()
        };
        assert_eq!(merged(&["10.96.0.0/16"]), ["10.96.0.0-10.96.255.255"]);
        assert_eq!(merged(&["10.0.2.0/23", "10.0.1.0/24"]), ["10.0.1.0-10.0.3.255"]);
        assert_eq!(
            merged(&["10.0.0.0/8", "10.96.0.0/16", "fd00::/64"]),
            ["10.0.0.0-10.255.255.255"]
        );
        assert_eq!(
            merged(&["10.0.0.0/24", "10.0.2.0/24"]),
            ["10.0.0.0-10.0.0.255", "10.0.2.0-10.0.2.255"]
        );
        assert_eq!(merged(&["255.0.0.0/8"]), ["255.0.0.0-255.255.255.255"]);
    }
}
