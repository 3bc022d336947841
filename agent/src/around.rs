//! What the rules depend on besides Services: the configuration, the node's addresses and pods, and the
//! ranges of cluster IPs. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use zw_model::{Family, NodeContext};
use zw_plan::{PlanConfig, Pods, Surroundings};

use crate::addresses::NodePorts;
use crate::config::{Config, DetectLocal, Mode};

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Around {
    /// A change of this makes the table anew.
    pub(crate) plan: PlanConfig,
    /// A change of this costs a few elements.
    pub(crate) surroundings: Surroundings,
}

impl Around {
    pub(crate) fn new(
        config: &Config,
        node: &NodeContext,
        local: &BTreeSet<IpAddr>,
        service_ranges: Vec<IpNet>,
    ) -> Self {
        let pods = match &config.detect_local {
            DetectLocal::ClusterCidr => Pods::Ranges(config.cluster_cidrs.clone()),
            DetectLocal::NodeCidr => Pods::Ranges(node.pod_ranges.clone()),
            DetectLocal::BridgeInterface(name) => Pods::Bridge(name.clone()),
            DetectLocal::InterfaceNamePrefix(name) => Pods::InterfacePrefix(name.clone()),
        };
        let primary = primary(config, node);
        let by_ipvs = config.mode == Mode::Ipvs;
        let (mut any_node_address, mut node_addresses) = (Vec::new(), BTreeSet::new());
        for family in Family::BOTH {
            let of_family = local.iter().copied().filter(|addr| Family::of(*addr) == family);
            let all = of_family.clone().filter(|addr| !addr.is_loopback());
            match config.node_port_addresses.serving(family, of_family, &primary) {
                // IPVS knows no "any": there is a virtual server for every address.
                NodePorts::Any if by_ipvs => node_addresses.extend(all),
                NodePorts::Any => any_node_address.push(family),
                NodePorts::Only(addresses) => node_addresses.extend(addresses),
            }
        }
        let plan = PlanConfig {
            pods,
            masquerade_mark: 1 << config.masquerade_bit,
            masquerade_all: config.masquerade_all,
            any_node_address,
            balance: config.balance,
            ipvs: by_ipvs.then(|| config.ipvs.scheduler()),
        };
        let own_addresses = if by_ipvs { local.clone() } else { BTreeSet::new() };
        Self { plan, surroundings: Surroundings { node_addresses, service_ranges, own_addresses } }
    }

    /// Where ports on this node are opened: its addresses, or a family's unspecified one for all.
    pub(crate) fn listening(&self) -> BTreeSet<IpAddr> {
        let any = self.plan.any_node_address.iter().map(|family| match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        });
        self.surroundings.node_addresses.iter().copied().chain(any).collect()
    }
}

/// The node's primary addresses: the operator's word counts before the Node object's.
fn primary(config: &Config, node: &NodeContext) -> Vec<IpAddr> {
    let known = config.node_address.filter(|addr| !addr.is_unspecified());
    let others = node.addresses.iter().copied();
    let others = others.filter(|addr| known.is_none_or(|k| Family::of(k) != Family::of(*addr)));
    known.into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodePortAddresses;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn node_ports_are_served_on_the_primary_addresses_by_default() {
        let config = Config::for_test();
        let node = NodeContext {
            addresses: addresses(&["192.0.2.1", "2001:db8::1"]),
            ..NodeContext::default()
        };
        let local = ["127.0.0.1", "192.0.2.1", "192.0.2.2", "2001:db8::1", "::1"];
        let local: BTreeSet<IpAddr> = addresses(&local).into_iter().collect();
        let around = |config: &Config| Around::new(config, &node, &local, Vec::new());
        let got = around(&config);
        let want: BTreeSet<IpAddr> = addresses(&["192.0.2.1", "2001:db8::1"]).into_iter().collect();
        assert_eq!((&got.surroundings.node_addresses, got.listening()), (&want, want.clone()));
        assert_eq!(got.plan.any_node_address, []);

        let bound = Config { node_address: Some([192, 0, 2, 2].into()), ..config.clone() };
        let want: BTreeSet<IpAddr> = addresses(&["192.0.2.2", "2001:db8::1"]).into_iter().collect();
        assert_eq!(around(&bound).surroundings.node_addresses, want);

        let all = NodePortAddresses { all: true, ..NodePortAddresses::default() };
        let got = around(&Config { node_port_addresses: all, ..config });
        assert_eq!(got.plan.any_node_address, Family::BOTH);
        assert_eq!(got.listening(), addresses(&["0.0.0.0", "::"]).into_iter().collect());
    }

    #[test]
    fn in_the_ipvs_mode_node_ports_are_served_on_each_address_by_itself() {
        let all = NodePortAddresses { all: true, ..NodePortAddresses::default() };
        let config = Config { mode: Mode::Ipvs, node_port_addresses: all, ..Config::for_test() };
        let local = addresses(&["127.0.0.1", "192.0.2.1", "192.0.2.2", "2001:db8::1", "::1"]);
        let local: BTreeSet<IpAddr> = local.into_iter().collect();
        let got = Around::new(&config, &NodeContext::default(), &local, Vec::new());
        let want = addresses(&["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
        assert_eq!(got.surroundings.node_addresses, want.into_iter().collect());
        assert_eq!((got.plan.any_node_address, got.surroundings.own_addresses), (vec![], local));
    }

    #[test]
    fn the_nodes_own_pod_ranges_count_where_asked_for() {
        let ranges: Vec<IpNet> = vec!["10.244.1.0/24".parse().unwrap()];
        let node = NodeContext { pod_ranges: ranges.clone(), ..NodeContext::default() };
        let config = Config { detect_local: DetectLocal::NodeCidr, ..Config::for_test() };
        let around = Around::new(&config, &node, &BTreeSet::new(), Vec::new());
        assert_eq!(around.plan.pods, Pods::Ranges(ranges));
    }
}
