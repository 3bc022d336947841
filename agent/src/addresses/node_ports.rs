//! Which of the node's addresses serve node ports, from `nodePortAddresses`. Pure.
//!
//! The rules are kube-proxy's in nftables mode: a list of CIDRs and of the keywords `primary`,
//! `localhost` and `all`, in any mixture; `primary` alone where nothing is configured. A family for
//! which the list has nothing is served on every address.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use zw_model::Family;

use crate::config::NodePortAddresses;

impl NodePortAddresses {
    /// The addresses of one family on which node ports are served, given the node's own and the ones
    /// its Node object gives first.
    ///
    /// 1. Keywords become ranges. A node known only by a loopback address has no primary one.
    /// 2. No range of the family, or one that takes in everything: every address.
    /// 3. Otherwise the node's own addresses in the ranges, without loopback ones: a packet to those
    ///    must not be translated, its answer would come from an address that may not leave the node.
    pub(crate) fn serving(
        &self,
        family: Family,
        local: impl IntoIterator<Item = IpAddr>,
        primary: &[IpAddr],
    ) -> NodePorts {
        let ranges = self.ranges(family, primary);
        if ranges.is_empty() || ranges.iter().any(|range| range.prefix_len() == 0) {
            return NodePorts::Any;
        }
        let serves =
            |addr: &IpAddr| !addr.is_loopback() && ranges.iter().any(|range| range.contains(addr));
        NodePorts::Only(local.into_iter().filter(serves).collect())
    }

    /// Whether node ports are asked for on the family's loopback address: by a range that holds it and
    /// nothing but loopback addresses. A range that only happens to hold it, such as everything, does
    /// not ask.
    pub(crate) fn wants_localhost(&self, family: Family) -> bool {
        let loopback = loopback_range(family);
        let localhost = localhost(family);
        self.ranges(family, &[])
            .iter()
            .any(|range| loopback.contains(range) && range.contains(&localhost))
    }

    fn ranges(&self, family: Family, primary: &[IpAddr]) -> Vec<IpNet> {
        let all = match family {
            Family::V4 => IpNet::from(Ipv4Net::default()),
            Family::V6 => IpNet::from(Ipv6Net::default()),
        };
        let primary = primary.iter().filter(|addr| self.primary && !addr.is_loopback());
        let mut ranges: Vec<IpNet> = primary.map(|addr| IpNet::from(*addr)).collect();
        ranges.extend(self.localhost.then(|| loopback_range(family)));
        ranges.extend(self.all.then_some(all));
        ranges.extend(&self.cidrs);
        ranges.retain(|range| Family::of(range.addr()) == family);
        ranges
    }
}

/// Where node ports of one family are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodePorts {
    /// On every address of the node that is not a loopback one.
    Any,
    /// On these, none of them a loopback one.
    Only(BTreeSet<IpAddr>),
}

/// The address localhost node ports listen on.
pub(crate) fn localhost(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    }
}

fn loopback_range(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::from(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
        Family::V6 => IpNet::from(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIMARY: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
    const LOCAL: [&str; 8] = [
        "127.0.0.1",
        "192.0.2.1",
        "192.0.2.2",
        "198.51.100.7",
        "::1",
        "2001:db8::1",
        "2001:db8::2",
        "fd00::7",
    ];

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn config(list: &[&str]) -> NodePortAddresses {
        let cidrs = list.iter().filter_map(|word| word.parse().ok());
        let has = |word: &str| list.contains(&word);
        NodePortAddresses {
            cidrs: cidrs.collect(),
            primary: has("primary") || list.is_empty(),
            localhost: has("localhost"),
            all: has("all"),
        }
    }

    fn only(addresses: &[&str]) -> NodePorts {
        NodePorts::Only(addresses.iter().map(|text| ip(text)).collect())
    }

    fn serving(list: &[&str], primary: &[&str]) -> [NodePorts; 2] {
        let primary: Vec<IpAddr> = primary.iter().map(|text| ip(text)).collect();
        Family::BOTH.map(|family| config(list).serving(family, LOCAL.map(ip), &primary))
    }

    #[test]
    fn each_list_serves_the_addresses_kube_proxy_would_serve() {
        use NodePorts::Any;
        let rows: &[(&str, &[&str], [NodePorts; 2])] = &[
            ("nothing configured", &[], [only(&["192.0.2.1"]), only(&["2001:db8::1"])]),
            ("primary", &["primary"], [only(&["192.0.2.1"]), only(&["2001:db8::1"])]),
            ("all", &["all"], [Any, Any]),
            ("all beats the rest", &["primary", "all"], [Any, Any]),
            ("everything of IPv4", &["0.0.0.0/0", "fd00::/8"], [Any, only(&["fd00::7"])]),
            (
                "everything of IPv6",
                &["192.0.2.0/24", "::/0"],
                [only(&["192.0.2.1", "192.0.2.2"]), Any],
            ),
            (
                "a family without a range",
                &["192.0.2.0/24"],
                [only(&["192.0.2.1", "192.0.2.2"]), Any],
            ),
            (
                "host bits do not matter",
                &["192.0.2.9/24", "2001:db8::9/64"],
                [only(&["192.0.2.1", "192.0.2.2"]), only(&["2001:db8::1", "2001:db8::2"])],
            ),
            (
                "a range the node has nothing in",
                &["203.0.113.0/24", "2001:db8:1::/64"],
                [only(&[]), only(&[])],
            ),
            ("localhost is served elsewhere", &["localhost"], [only(&[]), only(&[])]),
            (
                "keywords and ranges add up",
                &["primary", "localhost", "198.51.100.0/24"],
                [only(&["192.0.2.1", "198.51.100.7"]), only(&["2001:db8::1"])],
            ),
            (
                "a range around the loopback addresses",
                &["64.0.0.0/2", "::/1"],
                [only(&[]), only(&["2001:db8::1", "2001:db8::2"])],
            ),
        ];
        for (name, list, want) in rows {
            assert_eq!(serving(list, &PRIMARY), *want, "{name}");
        }
    }

    #[test]
    fn a_node_without_a_primary_address_of_a_family_serves_it_everywhere() {
        assert_eq!(
            serving(&["primary"], &["192.0.2.1"]),
            [only(&["192.0.2.1"]), NodePorts::Any],
            "no IPv6 address at all"
        );
        assert_eq!(
            serving(&["primary"], &["127.0.0.1", "::1"]),
            [NodePorts::Any, NodePorts::Any],
            "only loopback ones"
        );
    }

    #[test]
    fn a_primary_address_the_node_does_not_have_serves_nothing() {
        assert_eq!(serving(&["primary"], &["203.0.113.9", "2001:db8::9"]), [only(&[]), only(&[])]);
    }

    #[test]
    fn localhost_is_wanted_only_where_it_is_named() {
        let rows: &[(&[&str], [bool; 2])] = &[
            (&[], [false, false]),
            (&["primary"], [false, false]),
            (&["all"], [false, false]),
            (&["0.0.0.0/0", "::/0"], [false, false]),
            (&["64.0.0.0/2", "::/64"], [false, false]),
            (&["localhost"], [true, true]),
            (&["all", "localhost"], [true, true]),
            (&["127.0.0.0/8"], [true, false]),
            (&["127.0.0.1/32"], [true, false]),
            (&["127.0.0.2/32"], [false, false]),
            (&["primary", "::1/128"], [false, true]),
        ];
        for (list, want) in rows {
            assert_eq!(Family::BOTH.map(|f| config(list).wants_localhost(f)), *want, "{list:?}");
        }
    }
}
