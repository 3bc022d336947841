//! Packet cases: who sends what to which Service, and who must answer. Written once; run on the
//! walker in this crate and on real kernels by the netns and vm tiers, in both families.
//!
//! The cast is fixed, so that one network of namespaces serves every case.

mod cases;
mod fixtures;

pub use cases::{by_ipvs, cases, sctp_cases};
pub use fixtures::{Conditions, Port, SliceSpec, World};

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use zw_model::{Family, Protocol};

use crate::walk::{Fate, Origin, Outcome, Packet};

/// The ports every pod of the cast serves, TCP and UDP, and SCTP where the kernel has it.
pub const SERVED: [u16; 3] = [8080, 8081, 5353];

/// Somebody who sends or answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// What cases call it.
    pub name: &'static str,
    v4: &'static str,
    v6: &'static str,
    /// The node it runs on.
    pub node: Option<&'static str>,
    /// The zone that node is in.
    pub zone: Option<&'static str>,
}

impl Host {
    /// Its address in one family.
    pub fn addr(&self, family: Family) -> IpAddr {
        let text = if family == Family::V4 { self.v4 } else { self.v6 };
        text.parse().expect("the cast's addresses are well formed")
    }

    /// All of the node's addresses in one family, the loopback one among them.
    pub fn addresses(&self, family: Family) -> [IpAddr; 3] {
        let loopback = match family {
            Family::V4 => IpAddr::from([127, 0, 0, 1]),
            Family::V6 => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        [self.addr(family), second_address(family), loopback]
    }
}

/// The node whose rules are tested: `node-1` in `zone-a`.
pub const NODE: Host = Host {
    name: "node",
    v4: "192.0.2.1",
    v6: "2001:db8::1",
    node: Some("node-1"),
    zone: Some("zone-a"),
};

/// The node's other address, which is not its primary one.
pub fn second_address(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([192, 0, 2, 2]),
        Family::V6 => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 2]),
    }
}

/// Everyone else.
pub const HOSTS: [Host; 7] = [
    pod("local-1", "10.244.1.11", "fd00:10:244:1::11", "node-1", "zone-a"),
    pod("local-2", "10.244.1.12", "fd00:10:244:1::12", "node-1", "zone-a"),
    pod("same-zone", "10.244.2.21", "fd00:10:244:2::21", "node-2", "zone-a"),
    pod("zone-b", "10.244.3.31", "fd00:10:244:3::31", "node-3", "zone-b"),
    pod("zone-c", "10.244.4.41", "fd00:10:244:4::41", "node-4", "zone-c"),
    // A pod of this node that is nobody's endpoint.
    pod("client", "10.244.1.100", "fd00:10:244:1::100", "node-1", "zone-a"),
    Host { name: "outside", v4: "203.0.113.7", v6: "2001:db8:ffff::7", node: None, zone: None },
];

const fn pod(
    name: &'static str,
    v4: &'static str,
    v6: &'static str,
    node: &'static str,
    zone: &'static str,
) -> Host {
    Host { name, v4, v6, node: Some(node), zone: Some(zone) }
}

/// One of the cast by name.
pub fn host(name: &str) -> Host {
    let all = [NODE].into_iter().chain(HOSTS);
    all.into_iter().find(|host| host.name == name).expect("a case names one of the cast")
}

/// A set of Services and the packets sent to them.
#[derive(Debug)]
pub struct Case {
    /// What it shows.
    pub name: &'static str,
    /// The objects.
    pub world: World,
    /// The packets.
    pub rows: Vec<Row>,
}

/// One packet and its expected fate.
#[derive(Debug, Clone)]
pub struct Row {
    /// What it shows.
    pub name: &'static str,
    /// Who sends it.
    pub from: &'static str,
    /// Where to.
    pub to: SocketAddr,
    /// Over what.
    pub protocol: Protocol,
    /// What must happen.
    pub want: Want,
}

/// What must happen to a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// Every one of these answers sometimes, and nobody else ever.
    Reaches(Vec<Answerer>),
    /// Refused at once.
    Refused,
    /// Lost without a word.
    Dropped,
    /// Nobody in the lab has the address, and no rule speaks of it.
    Untouched,
}

/// Somebody who must answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answerer {
    /// Who.
    pub host: &'static str,
    /// On which port.
    pub port: u16,
    /// Seeing the node's address instead of the client's.
    pub as_node: bool,
}

impl Row {
    /// The packet, as the walker wants it.
    pub fn packet(&self, family: Family) -> Packet {
        let origin = match HOSTS.iter().position(|host| host.name == self.from) {
            // As the lab names the node's links, in the order of the cast.
            Some(at) => Origin::Elsewhere(format!("h{}", at + 1)),
            None => Origin::Node,
        };
        Packet { origin, from: host(self.from).addr(family), to: self.to, protocol: self.protocol }
    }

    /// The fate, as the walker tells it.
    pub fn fate(&self, family: Family) -> Fate {
        match &self.want {
            Want::Refused => Fate::Rejected,
            Want::Dropped => Fate::Dropped,
            Want::Untouched => Fate::Untouched,
            Want::Reaches(answerers) => {
                let outcome = |answerer: &Answerer| Outcome {
                    to: SocketAddr::new(host(answerer.host).addr(family), answerer.port),
                    masqueraded: answerer.as_node,
                };
                Fate::Redirected(answerers.iter().map(outcome).collect::<BTreeSet<_>>())
            }
        }
    }
}
