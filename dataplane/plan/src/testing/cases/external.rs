//! Services as they are reached from outside: node ports, external IPs, load balancers, and the policies
//! that decide who answers.

use std::net::{IpAddr, SocketAddr};

use zw_model::Protocol::{Tcp, Udp};
use zw_model::{External, Family, Service, TrafficPolicy};

use super::{AT_5353, AT_8080, DNS, HTTP, Rows, by, by_as_node};
use crate::testing::fixtures::{SliceSpec, World};
use crate::testing::{Case, NODE, Want, second_address};

const NODE_PORT: u16 = 30_080;
const UDP_NODE_PORT: u16 = 30_053;

/// An address outside the cluster that is routed to the node.
fn public(family: Family, last: u8) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([198, 51, 100, last]),
        Family::V6 => IpAddr::from([0x2001, 0xdb8, 0x100, 0, 0, 0, 0, u16::from(last)]),
    }
}

/// Where the Service of these cases is reached.
#[derive(Clone, Copy)]
enum Via {
    NodePort,
    ExternalIp,
    LoadBalancer,
}

impl Via {
    const ALL: [Via; 3] = [Via::NodePort, Via::ExternalIp, Via::LoadBalancer];

    fn to(self, family: Family, udp: bool) -> SocketAddr {
        let service_port = if udp { DNS.2 } else { HTTP.2 };
        match self {
            Via::NodePort => {
                SocketAddr::new(NODE.addr(family), if udp { UDP_NODE_PORT } else { NODE_PORT })
            }
            Via::ExternalIp => SocketAddr::new(public(family, 7), service_port),
            Via::LoadBalancer => SocketAddr::new(public(family, 8), service_port),
        }
    }

    fn pick(self, names: [&'static str; 3]) -> &'static str {
        match self {
            Via::NodePort => names[0],
            Via::ExternalIp => names[1],
            Via::LoadBalancer => names[2],
        }
    }
}

/// A Service with every kind of address.
fn everywhere(family: Family) -> impl FnOnce(&mut Service) {
    move |service| {
        service.ports[0].node_port = NODE_PORT.try_into().ok();
        service.ports[1].node_port = UDP_NODE_PORT.try_into().ok();
        service.external = Some(Box::new(External {
            ips: vec![public(family, 7)],
            load_balancer_ips: vec![public(family, 8)],
            ..External::default()
        }));
    }
}

fn world(family: Family) -> World {
    World::new(family).service("web/api", 10, &[HTTP, DNS]).offered(everywhere(family))
}

fn on(world: World, endpoints: impl FnOnce(SliceSpec) -> SliceSpec) -> World {
    world.slice("web/api", &[AT_8080, AT_5353], endpoints)
}

pub(super) fn cases(family: Family) -> Vec<Case> {
    let mut cases = Vec::new();
    for via in Via::ALL {
        cases.extend(cluster_policy(family, via));
        cases.extend(local_policy(family, via));
    }
    cases.extend(internal_policy(family));
    cases.extend(source_ranges(family));
    cases.extend(node_ports(family));
    cases.extend(claims(family));
    cases
}

fn cluster_policy(family: Family, via: Via) -> Vec<Case> {
    let (tcp, udp) = (via.to(family, false), via.to(family, true));
    let both = ["local-2", "zone-b"];
    let rows = || Rows(family, Vec::new());
    let world = || world(family);
    vec![
        Case {
            name: via.pick(["a node port", "an external IP", "a load balancer"]),
            world: on(world(), |s| s.ready(&both)),
            rows: rows()
                .to("an outsider", "outside", tcp, Tcp, by_as_node(&both, 8080))
                .to("over UDP", "outside", udp, Udp, by_as_node(&both, 5353))
                .to("a local pod", "client", tcp, Tcp, by_as_node(&both, 8080))
                .to("over UDP", "client", udp, Udp, by_as_node(&both, 5353))
                .to("a remote pod", "zone-c", tcp, Tcp, by_as_node(&both, 8080))
                .to("an endpoint", "local-2", tcp, Tcp, by_as_node(&both, 8080))
                .to("the node", "node", tcp, Tcp, by_as_node(&both, 8080))
                .to("over UDP", "node", udp, Udp, by_as_node(&both, 5353))
                .1,
        },
        Case {
            name: via.pick([
                "a node port without endpoints",
                "an external IP without endpoints",
                "a load balancer without endpoints",
            ]),
            world: on(world(), |s| s.not_ready(&both)),
            rows: rows()
                .to("an outsider is refused", "outside", tcp, Tcp, Want::Refused)
                .to("over UDP", "outside", udp, Udp, Want::Refused)
                .to("a pod is refused", "client", tcp, Tcp, Want::Refused)
                .to("the node is refused", "node", tcp, Tcp, Want::Refused)
                .to("over UDP", "node", udp, Udp, Want::Refused)
                .1,
        },
    ]
}

fn local_policy(family: Family, via: Via) -> Vec<Case> {
    let (tcp, udp) = (via.to(family, false), via.to(family, true));
    let all = ["local-1", "local-2", "zone-b"];
    let local = ["local-1", "local-2"];
    let rows = || Rows(family, Vec::new());
    let world = || world(family).offered(|service| service.external_policy = TrafficPolicy::Local);
    vec![
        Case {
            name: via.pick([
                "a node port, local policy",
                "an external IP, local policy",
                "a load balancer, local policy",
            ]),
            world: on(world(), |s| s.ready(&all)),
            rows: rows()
                .to("outsiders keep their address", "outside", tcp, Tcp, by(&local, 8080))
                .to("over UDP", "outside", udp, Udp, by(&local, 5353))
                .to("a pod takes the shortcut", "client", tcp, Tcp, by(&all, 8080))
                .to("over UDP", "client", udp, Udp, by(&all, 5353))
                .to("a remote pod too", "zone-c", tcp, Tcp, by(&all, 8080))
                .to("the node too, as itself", "node", tcp, Tcp, by_as_node(&all, 8080))
                .to("over UDP", "node", udp, Udp, by_as_node(&all, 5353))
                .tcp("the cluster IP is not bound by it", "client", (10, 80), by(&all, 8080))
                .1,
        },
        Case {
            name: via.pick([
                "a node port, local policy, no endpoint here",
                "an external IP, local policy, no endpoint here",
                "a load balancer, local policy, no endpoint here",
            ]),
            world: on(world(), |s| s.ready(&["zone-b"]).not_ready(&["local-1"])),
            rows: rows()
                .to("outsiders are ignored", "outside", tcp, Tcp, Want::Dropped)
                .to("over UDP", "outside", udp, Udp, Want::Dropped)
                .to("a pod is served", "client", tcp, Tcp, by(&["zone-b"], 8080))
                .to("the node is served", "node", tcp, Tcp, by_as_node(&["zone-b"], 8080))
                .1,
        },
        Case {
            name: via.pick([
                "a node port, local policy, only terminating ones here",
                "an external IP, local policy, only terminating ones here",
                "a load balancer, local policy, only terminating ones here",
            ]),
            world: on(world(), |s| s.ready(&["zone-b"]).terminating(&["local-1"])),
            rows: rows()
                .to("they serve outsiders", "outside", tcp, Tcp, by(&["local-1"], 8080))
                .to("and nobody else", "client", tcp, Tcp, by(&["zone-b"], 8080))
                .1,
        },
        Case {
            name: via.pick([
                "a node port, local policy, no endpoint anywhere",
                "an external IP, local policy, no endpoint anywhere",
                "a load balancer, local policy, no endpoint anywhere",
            ]),
            world: world(),
            rows: rows()
                .to("outsiders are refused", "outside", tcp, Tcp, Want::Refused)
                .to("a pod is refused", "client", tcp, Tcp, Want::Refused)
                .to("the node is refused", "node", tcp, Tcp, Want::Refused)
                .1,
        },
        Case {
            name: via.pick([
                "a node port, local policy, one here that our zone's slice lacks",
                "an external IP, local policy, one here that our zone's slice lacks",
                "a load balancer, local policy, one here that our zone's slice lacks",
            ]),
            world: on(on(world(), |s| s.for_zone("zone-a")), |s| s.ready(&["local-1"])),
            rows: rows()
                .to("it serves outsiders", "outside", tcp, Tcp, by(&["local-1"], 8080))
                .to("and pods", "client", tcp, Tcp, by(&["local-1"], 8080))
                .to("and the node", "node", tcp, Tcp, by_as_node(&["local-1"], 8080))
                .1,
        },
    ]
}

fn internal_policy(family: Family) -> Vec<Case> {
    let rows = || Rows(family, Vec::new());
    let world = || world(family).offered(|service| service.internal_policy = TrafficPolicy::Local);
    vec![
        Case {
            name: "internal policy local",
            world: on(world(), |s| s.ready(&["local-1", "zone-b"])),
            rows: rows()
                .tcp("a pod", "client", (10, 80), by(&["local-1"], 8080))
                .udp("over UDP", "client", (10, 53), by(&["local-1"], 5353))
                .tcp("the node", "node", (10, 80), by_as_node(&["local-1"], 8080))
                .tcp("an outsider", "outside", (10, 80), by_as_node(&["local-1"], 8080))
                .tcp("itself", "local-1", (10, 80), by_as_node(&["local-1"], 8080))
                .to(
                    "the node port is not bound by it",
                    "outside",
                    Via::NodePort.to(family, false),
                    Tcp,
                    by_as_node(&["local-1", "zone-b"], 8080),
                )
                .1,
        },
        Case {
            name: "internal policy local, no endpoint here",
            world: on(world(), |s| s.ready(&["zone-b"])),
            rows: rows()
                .tcp("a pod is ignored", "client", (10, 80), Want::Dropped)
                .udp("over UDP", "client", (10, 53), Want::Dropped)
                .tcp("the node is ignored", "node", (10, 80), Want::Dropped)
                .1,
        },
        Case {
            name: "internal policy local, no endpoint anywhere",
            world: world(),
            rows: rows().tcp("a pod is refused", "client", (10, 80), Want::Refused).1,
        },
        Case {
            name: "internal policy local ignores hints",
            world: World::new(family)
                .service("web/api", 10, &[HTTP])
                .offered(|service| service.internal_policy = TrafficPolicy::Local)
                .slice("web/api", &[AT_8080], |s| {
                    s.ready(&["local-1"])
                        .hint_zones(&["zone-c"])
                        .ready(&["same-zone"])
                        .hint_zones(&["zone-a"])
                }),
            rows: rows().tcp("a pod", "client", (10, 80), by(&["local-1"], 8080)).1,
        },
    ]
}

fn source_ranges(family: Family) -> Vec<Case> {
    let rows = || Rows(family, Vec::new());
    let to = |via: Via| via.to(family, false);
    let (outside, pods, node) = match family {
        Family::V4 => ("203.0.113.0/24", "10.244.1.0/24", "192.0.2.0/24"),
        Family::V6 => ("2001:db8:ffff::/48", "fd00:10:244:1::/64", "2001:db8::/64"),
    };
    let only = |ranges: &[&str]| {
        let ranges = ranges.iter().map(|net| net.parse().expect("a range")).collect();
        let world = world(family).offered(|service| {
            service.external.get_or_insert_default().source_ranges = ranges;
        });
        on(world, |s| s.ready(&["zone-b"]))
    };
    let other_family = match family {
        Family::V4 => "2001:db8:1::/48",
        Family::V6 => "192.0.2.0/24",
    };
    vec![
        Case {
            name: "source ranges with the outsider",
            world: only(&[outside]),
            rows: rows()
                .to("he may", "outside", to(Via::LoadBalancer), Tcp, by_as_node(&["zone-b"], 8080))
                .to(
                    "over UDP",
                    "outside",
                    Via::LoadBalancer.to(family, true),
                    Udp,
                    by_as_node(&["zone-b"], 5353),
                )
                .to("a pod may not", "client", to(Via::LoadBalancer), Tcp, Want::Dropped)
                .to("over UDP", "client", Via::LoadBalancer.to(family, true), Udp, Want::Dropped)
                .to("nor the node", "node", to(Via::LoadBalancer), Tcp, Want::Dropped)
                .to(
                    "node ports are open",
                    "client",
                    to(Via::NodePort),
                    Tcp,
                    by_as_node(&["zone-b"], 8080),
                )
                .to(
                    "external IPs are open",
                    "client",
                    to(Via::ExternalIp),
                    Tcp,
                    by_as_node(&["zone-b"], 8080),
                )
                .tcp("cluster IPs are open", "client", (10, 80), by(&["zone-b"], 8080))
                .1,
        },
        Case {
            name: "several source ranges, one within the other",
            world: only(&[
                pods,
                node,
                pods,
                if family == Family::V4 { "10.244.0.0/16" } else { "fd00:10:244::/48" },
            ]),
            rows: rows()
                .to(
                    "a pod may",
                    "client",
                    to(Via::LoadBalancer),
                    Tcp,
                    by_as_node(&["zone-b"], 8080),
                )
                .to(
                    "a remote pod may",
                    "zone-c",
                    to(Via::LoadBalancer),
                    Tcp,
                    by_as_node(&["zone-b"], 8080),
                )
                .to(
                    "the node may",
                    "node",
                    to(Via::LoadBalancer),
                    Tcp,
                    by_as_node(&["zone-b"], 8080),
                )
                .to("an outsider may not", "outside", to(Via::LoadBalancer), Tcp, Want::Dropped)
                .1,
        },
        Case {
            name: "source ranges of the other family only",
            world: only(&[other_family]),
            rows: rows()
                .to(
                    "this one is open",
                    "outside",
                    to(Via::LoadBalancer),
                    Tcp,
                    by_as_node(&["zone-b"], 8080),
                )
                .1,
        },
    ]
}

fn node_ports(family: Family) -> Vec<Case> {
    let second = SocketAddr::new(second_address(family), NODE_PORT);
    let served = || by_as_node(&["zone-b"], 8080);
    let rows = || Rows(family, Vec::new());
    let first = Via::NodePort.to(family, false);
    let world = || on(world(family), |s| s.ready(&["zone-b"]));
    vec![
        Case {
            name: "node ports on the primary address only",
            world: world(),
            rows: rows()
                .to("there it is", "outside", first, Tcp, served())
                // Nobody listens there.
                .to("here it is not", "outside", second, Tcp, Want::Untouched)
                .1,
        },
        Case {
            name: "node ports on both addresses",
            world: world().surrounded(|around| {
                around.node_addresses.insert(second_address(family));
            }),
            rows: rows()
                .to("the first", "outside", first, Tcp, served())
                .to("the second", "outside", second, Tcp, served())
                .to("a pod", "client", second, Tcp, served())
                .1,
        },
        Case {
            name: "node ports on any address",
            world: world()
                .configured(|config| config.any_node_address = vec![family])
                .surrounded(|around| around.node_addresses.clear()),
            rows: rows()
                .to("the first", "outside", first, Tcp, served())
                .to("the second", "client", second, Tcp, served())
                .to("the node itself", "node", second, Tcp, served())
                .to(
                    "over UDP",
                    "outside",
                    Via::NodePort.to(family, true),
                    Udp,
                    by_as_node(&["zone-b"], 5353),
                )
                .1,
        },
        Case {
            name: "node ports on any address, without endpoints",
            world: World::new(family)
                .service("web/api", 10, &[HTTP, DNS])
                .offered(everywhere(family))
                .configured(|config| config.any_node_address = vec![family]),
            rows: rows().to("refused", "outside", second, Tcp, Want::Refused).1,
        },
    ]
}

fn claims(family: Family) -> Vec<Case> {
    let rows = || Rows(family, Vec::new());
    vec![Case {
        name: "two Services claim one external IP, load balancer address and node port",
        world: World::new(family)
            .service("web/second", 11, &[HTTP, DNS])
            .offered(everywhere(family))
            .service("web/first", 10, &[HTTP, DNS])
            .offered(everywhere(family))
            .slice("web/second", &[AT_8080], |s| s.ready(&["zone-b"]))
            .slice("web/first", &[AT_8080], |s| s.ready(&["zone-c"])),
        rows: Via::ALL
            .into_iter()
            .fold(rows(), |rows, via| {
                let first = by_as_node(&["zone-c"], 8080);
                rows.to("the first by name has it", "outside", via.to(family, false), Tcp, first)
            })
            .tcp("cluster IPs are apart", "client", (11, 80), by(&["zone-b"], 8080))
            .1,
    }]
}
