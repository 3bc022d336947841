//! The network both proxies work in: built twice, with the same addresses.

use std::fs;
use std::net::IpAddr;

use zw_lab::{Lab, NODE};
use zw_model::Family;

/// The ports every possible endpoint serves, TCP and UDP.
pub(crate) const SERVED: [u16; 3] = [8080, 8081, 5353];
/// Where pods live.
pub(crate) const CLUSTER_CIDR: &str = "10.244.0.0/16,fd00:10:244::/48";
/// The node under test, as the API knows it.
pub(crate) const NODE_NAME: &str = "node-1";

/// Somebody who asks or answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: &'static str,
    v4: &'static str,
    v6: &'static str,
    /// The node it runs on.
    pub(crate) node: Option<&'static str>,
}

impl Host {
    pub(crate) fn addr(&self, family: Family) -> IpAddr {
        let text = if family == Family::V4 { self.v4 } else { self.v6 };
        text.parse().expect("the cast's addresses are well formed")
    }
}

/// The node under test, by its first addresses; these are in its Node object.
pub(crate) const THIS_NODE: Host = host(NODE, "192.0.2.1", "2001:db8::1", Some(NODE_NAME));
/// Addresses of the same node that its Node object does not name.
pub(crate) const SECOND_ADDRESS: Host = host(NODE, "192.0.2.2", "2001:db8::2", Some(NODE_NAME));

/// Everyone else. The clients are nobody's endpoints.
const HOSTS: [Host; 9] = [
    host("local-1", "10.244.1.11", "fd00:10:244:1::11", Some(NODE_NAME)),
    host("local-2", "10.244.1.12", "fd00:10:244:1::12", Some(NODE_NAME)),
    host("remote-2", "10.244.2.21", "fd00:10:244:2::21", Some("node-2")),
    host("remote-3", "10.244.3.31", "fd00:10:244:3::31", Some("node-3")),
    host("remote-4", "10.244.4.41", "fd00:10:244:4::41", Some("node-4")),
    // A pod in the network of its node.
    host("host-2", "192.0.2.20", "2001:db8::20", Some("node-2")),
    host("local-client", "10.244.1.100", "fd00:10:244:1::100", Some(NODE_NAME)),
    host("remote-client", "10.244.2.100", "fd00:10:244:2::100", Some("node-2")),
    host("outside", "203.0.113.7", "2001:db8:ffff::7", None),
];

/// Who may be an endpoint. The node itself is one: pods in its network are.
pub(crate) const ENDPOINTS: [&str; 7] =
    ["local-1", "local-2", "remote-2", "remote-3", "remote-4", "host-2", NODE];

/// Who asks.
pub(crate) const SOURCES: [&str; 5] = ["local-client", "local-1", "remote-client", NODE, "outside"];

const fn host(
    name: &'static str,
    v4: &'static str,
    v6: &'static str,
    node: Option<&'static str>,
) -> Host {
    Host { name, v4, v6, node }
}

/// One of the cast by name.
pub(crate) fn member(name: &str) -> Host {
    let all = [THIS_NODE].into_iter().chain(HOSTS);
    all.into_iter().find(|host| host.name == name).expect("one of the cast")
}

/// Tens of thousands of connections a round: what is over must not fill the table. Seconds.
const CONNTRACK: [(&str, &str); 7] = [
    ("nf_conntrack_udp_timeout", "5"),
    ("nf_conntrack_tcp_timeout_syn_sent", "5"),
    ("nf_conntrack_tcp_timeout_syn_recv", "5"),
    ("nf_conntrack_tcp_timeout_close", "2"),
    ("nf_conntrack_tcp_timeout_time_wait", "2"),
    ("nf_conntrack_tcp_timeout_fin_wait", "5"),
    ("nf_conntrack_tcp_timeout_last_ack", "5"),
];

/// The whole network, serving.
pub(crate) fn build() -> Lab {
    let both = |host: Host| Family::BOTH.map(|family| host.addr(family));
    let node: Vec<IpAddr> = [both(THIS_NODE), both(SECOND_ADDRESS)].concat();
    let mut lab = Lab::new(&node).expect("a node namespace, which takes root");
    for host in HOSTS {
        lab.add_host(host.name, &both(host)).expect("a host namespace");
    }
    for name in ENDPOINTS {
        lab.serve(name, &SERVED).expect("servers");
    }
    lab.node().run(|| {
        for (name, value) in CONNTRACK {
            let path = format!("/proc/sys/net/netfilter/{name}");
            fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    });
    lab
}
