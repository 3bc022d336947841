use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;
use zw_model::{Family, Protocol};

use super::*;

/// Addresses of one family; every test runs with both.
struct Net {
    family: Family,
    vip: SocketAddr,
    node: IpAddr,
    elsewhere: IpAddr,
    endpoints: [SocketAddr; 2],
}

const NODE_PORT: u16 = 30053;

fn nets() -> [Net; 2] {
    let at = |text: &str| text.parse().unwrap();
    [
        Net {
            family: Family::V4,
            vip: at("10.96.0.10:53"),
            node: "192.0.2.1".parse().unwrap(),
            elsewhere: "203.0.113.9".parse().unwrap(),
            endpoints: [at("10.1.0.1:5353"), at("10.1.0.2:5353")],
        },
        Net {
            family: Family::V6,
            vip: at("[fd00:96::10]:53"),
            node: "2001:db8::1".parse().unwrap(),
            elsewhere: "2001:db8:9::9".parse().unwrap(),
            endpoints: [at("[fd00:1::1]:5353"), at("[fd00:1::2]:5353")],
        },
    ]
}

impl Net {
    fn node_port(&self) -> Frontend {
        Frontend::node_port(self.family, Protocol::Udp, NODE_PORT)
    }

    fn on_node(&self) -> SocketAddr {
        SocketAddr::new(self.node, NODE_PORT)
    }

    fn stale(&self, changed: &ChangedFlows, to: SocketAddr, from: SocketAddr) -> bool {
        changed.is_stale(Protocol::Udp, &flow(to, from), |addr| addr == self.node)
    }
}

fn address(at: SocketAddr) -> Frontend {
    Frontend::new(at.ip(), Protocol::Udp, at.port())
}

fn flow(to: SocketAddr, from: SocketAddr) -> TrackedFlow {
    TrackedFlow { to, answered_by: from, is_answered: true }
}

fn served(frontend: Frontend, endpoints: &[SocketAddr]) -> ChangedFlows {
    let mut changed = ChangedFlows::default();
    changed.served(frontend, endpoints.iter().copied());
    changed
}

fn gone(frontend: Frontend) -> ChangedFlows {
    let mut changed = ChangedFlows::default();
    changed.gone(frontend);
    changed
}

#[test]
fn a_flow_goes_when_its_endpoint_went_and_stays_when_another_did() {
    for net in nets() {
        let [a, b] = net.endpoints;
        let changed = served(address(net.vip), &[a]);
        assert!(net.stale(&changed, net.vip, b));
        assert!(!net.stale(&changed, net.vip, a));
        let other_port = SocketAddr::new(a.ip(), 9999);
        assert!(net.stale(&changed, net.vip, other_port), "an endpoint is an address and a port");
    }
}

#[test]
fn every_flow_goes_when_the_last_endpoint_went() {
    for net in nets() {
        let changed = served(address(net.vip), &[]);
        assert!(net.stale(&changed, net.vip, net.endpoints[0]));
        assert!(net.stale(&changed, net.vip, net.vip), "so that it is refused, not lost");
        let changed = served(net.node_port(), &[]);
        assert!(net.stale(&changed, net.on_node(), net.endpoints[0]));
    }
}

#[test]
fn translated_flows_go_with_their_frontend() {
    for net in nets() {
        let [a, _] = net.endpoints;
        assert!(net.stale(&gone(address(net.vip)), net.vip, a));
        assert!(net.stale(&gone(net.node_port()), net.on_node(), a));
    }
}

#[test]
fn a_port_the_node_serves_itself_keeps_its_flows_when_a_service_gives_it_up() {
    for net in nets() {
        let to = net.on_node();
        assert!(!net.stale(&gone(net.node_port()), to, to));
        assert!(!net.stale(&gone(address(to)), to, to), "an external IP");
    }
}

#[test]
fn a_flow_from_before_the_service_was_programmed_goes() {
    for net in nets() {
        let endpoints = net.endpoints;
        assert!(net.stale(&served(address(net.vip), &endpoints), net.vip, net.vip));
        let changed = served(net.node_port(), &endpoints);
        assert!(net.stale(&changed, net.on_node(), net.on_node()));
    }
}

#[test]
fn a_flow_through_the_node_to_the_same_port_elsewhere_stays() {
    for net in nets() {
        let changed = served(net.node_port(), &net.endpoints);
        let to = SocketAddr::new(net.elsewhere, NODE_PORT);
        assert!(!net.stale(&changed, to, to));
        assert!(!net.stale(&gone(net.node_port()), to, net.endpoints[0]));
    }
}

#[test]
fn an_endpoint_at_the_very_address_of_its_frontend_keeps_its_flows() {
    for net in nets() {
        let to = net.on_node();
        assert!(!net.stale(&served(net.node_port(), &[to]), to, to), "a pod on the host's network");
    }
}

#[test]
fn a_frontend_that_moved_between_services_is_judged_by_its_new_owner() {
    for net in nets() {
        let [a, b] = net.endpoints;
        let frontend = address(net.vip);
        let mut told_last = served(frontend, &[b]);
        told_last.gone(frontend);
        let mut told_first = gone(frontend);
        told_first.served(frontend, [b]);
        for changed in [told_last, told_first] {
            assert!(net.stale(&changed, net.vip, a));
            assert!(!net.stale(&changed, net.vip, b));
        }
    }
}

#[test]
fn an_external_address_wins_over_a_node_port_of_the_same_number() {
    for net in nets() {
        let [a, b] = net.endpoints;
        let external = address(net.on_node());
        let mut changed = served(net.node_port(), &[a]);
        changed.served(external, [b]);
        assert!(net.stale(&changed, net.on_node(), a));
        assert!(!net.stale(&changed, net.on_node(), b));

        let mut changed = served(net.node_port(), &[a]);
        changed.gone(external);
        assert!(!net.stale(&changed, net.on_node(), a), "the node port has it now");
        assert!(net.stale(&changed, net.on_node(), b));
    }
}

#[test]
fn the_other_family_has_node_ports_of_its_own() {
    let [v4, v6] = nets();
    let changed = served(v4.node_port(), &[]);
    assert!(!v6.stale(&changed, v6.on_node(), v6.endpoints[0]));
}

#[test]
fn tcp_and_udp_frontends_of_one_number_are_told_apart() {
    for net in nets() {
        let tcp = Frontend::new(net.vip.ip(), Protocol::Tcp, net.vip.port());
        let changed = served(tcp, &[]);
        assert!(!net.stale(&changed, net.vip, net.endpoints[0]));
        assert!(changed.is_stale(Protocol::Tcp, &flow(net.vip, net.endpoints[0]), |_| false));
    }
}

#[test]
fn a_few_addresses_are_asked_for_one_by_one_and_many_or_node_ports_all_at_once() {
    for net in nets() {
        let protocol = Protocol::Udp;
        let all = FlowFilter { family: net.family, protocol, unanswered: false, to: None };
        let mut changed = ChangedFlows::default();
        let mut each = Vec::new();
        for port in 0..4 {
            let to = SocketAddr::new(net.vip.ip(), 53 + port);
            changed.gone(address(to));
            each.push(FlowFilter { to: Some(to), ..all });
            assert_eq!(changed.questions(), each);
        }
        changed.gone(address(SocketAddr::new(net.vip.ip(), 99)));
        assert_eq!(changed.questions(), [all]);
        let of_node = gone(net.node_port());
        assert_eq!(of_node.questions(), [all]);
    }
}

#[test]
fn of_a_frontend_that_has_just_begun_only_what_went_past_it_unanswered_goes() {
    for net in nets() {
        let [a, _] = net.endpoints;
        let tcp = |at: SocketAddr| Frontend::new(at.ip(), Protocol::Tcp, at.port());
        let mut changed = ChangedFlows::default();
        changed.begun(tcp(net.vip));
        let stale = |flow: TrackedFlow| changed.is_stale(Protocol::Tcp, &flow, |_| true);
        let unanswered = |to, from| TrackedFlow { is_answered: false, ..flow(to, from) };
        assert!(stale(unanswered(net.vip, net.vip)));
        assert!(!stale(flow(net.vip, net.vip)), "somebody has that address");
        assert!(!stale(unanswered(net.vip, a)), "translated a moment ago");
        assert!(!stale(unanswered(net.on_node(), net.on_node())));

        // Both kinds of question, side by side.
        let (family, protocol) = (net.family, Protocol::Tcp);
        let one = FlowFilter { family, protocol, unanswered: true, to: Some(net.vip) };
        assert_eq!(changed.questions(), [one]);
        changed.gone(tcp(net.on_node()));
        let other = FlowFilter { unanswered: false, to: Some(net.on_node()), ..one };
        assert_eq!(changed.questions(), [other, one]);
    }
}

#[test]
fn nothing_changed_means_nothing_to_look_for() {
    assert!(ChangedFlows::default().is_empty());
    assert!(!gone(nets()[0].node_port()).is_empty());
}

proptest! {
    /// Tiny domains: two addresses, two ports, so that hits are common.
    #[test]
    fn only_flows_to_changed_frontends_of_their_protocol_ever_go(
        frontends in prop::collection::vec((0..4u8, prop::option::of(0..3u8)), 0..4),
        to in 0..4u8, from in 0..4u8, protocol in 0..3usize,
    ) {
        let at = |n: u8| SocketAddr::new([10, 0, 0, n / 2].into(), 53 + u16::from(n % 2));
        let mut changed = ChangedFlows::default();
        for (frontend, endpoint) in &frontends {
            let frontend = address(at(*frontend));
            match endpoint {
                Some(endpoint) => changed.served(frontend, [at(*endpoint)]),
                None => changed.gone(frontend),
            }
        }
        let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp][protocol];
        if changed.is_stale(protocol, &flow(at(to), at(from)), |_| true) {
            prop_assert_eq!(protocol, Protocol::Udp);
            prop_assert!(frontends.iter().any(|(frontend, _)| *frontend == to));
        }
    }
}
