//! Every place a Service can be reached at, and every place where it must not be, asked by everyone.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use zw_lab::NODE;
use zw_model::{Family, Protocol};

use crate::cast::{SECOND_ADDRESS, SOURCES, THIS_NODE};
use crate::service::{Port, Service, cluster_ip};

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Frontend {
    ClusterIp,
    ExternalIp,
    LoadBalancerVip,
    /// An address with `ipMode: Proxy`.
    LoadBalancerProxy,
    NodePort,
    /// The node port on an address that the Node object does not name.
    NodePortElsewhere,
    NodePortOnLoopback,
    /// A cluster IP on a port that the Service does not have.
    WrongPort,
    /// An address of the range that no Service has.
    Unallocated,
    HealthCheck,
}

/// One question, asked on both sides.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Question {
    /// The Service's place in the round; none for what belongs to no Service.
    pub(crate) service: Option<usize>,
    /// Which of its ports.
    pub(crate) port: usize,
    pub(crate) frontend: Frontend,
    pub(crate) from: &'static str,
    pub(crate) to: SocketAddr,
    pub(crate) protocol: Protocol,
    /// Who might answer.
    pub(crate) candidates: Vec<(&'static str, u16)>,
    /// Whether a client stays with whom it got first.
    pub(crate) sticky: bool,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frontend, from, to, protocol, .. } = self;
        write!(f, "{from} asks {to}/{protocol} ({frontend:?})")
    }
}

/// Never a port of a generated Service.
const WRONG_PORT: u16 = 4999;
/// Never the number of a generated Service.
const NOBODY: usize = 60_000;

/// All questions about the Services of a round.
pub(crate) fn questions(services: &[Service]) -> Vec<Question> {
    let mut all: Vec<Question> =
        services.iter().enumerate().flat_map(|(i, service)| about(i, service)).collect();
    for family in Family::BOTH {
        for (from, protocol) in everyone_both_ways() {
            let to = SocketAddr::new(cluster_ip(family, NOBODY), 80);
            all.push(plain(None, Frontend::Unallocated, from, to, protocol));
        }
    }
    all
}

fn everyone_both_ways() -> impl Iterator<Item = (&'static str, Protocol)> {
    SOURCES.into_iter().flat_map(|from| [Protocol::Tcp, Protocol::Udp].map(|p| (from, p)))
}

/// A question whose answer has no choice in it.
fn plain(
    service: Option<usize>,
    frontend: Frontend,
    from: &'static str,
    to: SocketAddr,
    protocol: Protocol,
) -> Question {
    let candidates = Vec::new();
    Question { service, port: 0, frontend, from, to, protocol, candidates, sticky: false }
}

fn about(number: usize, service: &Service) -> Vec<Question> {
    let mut all = Vec::new();
    for (i, port) in service.ports.iter().enumerate() {
        for (frontend, to) in places(service, port) {
            let sources: &[&'static str] = match frontend {
                Frontend::NodePortOnLoopback => &[NODE],
                Frontend::NodePortElsewhere => &["local-client", NODE, "outside"],
                _ => &SOURCES,
            };
            for from in sources {
                all.push(Question {
                    service: Some(number),
                    port: i,
                    frontend,
                    from,
                    to,
                    protocol: port.protocol,
                    candidates: service.candidates(port, Family::of(to.ip())),
                    sticky: service.affinity.is_some(),
                });
            }
        }
    }
    for family in &service.families {
        let to = SocketAddr::new(service.cluster_ip(*family), WRONG_PORT);
        let protocol = if number.is_multiple_of(2) { Protocol::Tcp } else { Protocol::Udp };
        let ask = |from| plain(Some(number), Frontend::WrongPort, from, to, protocol);
        all.extend(SOURCES.map(ask));
    }
    if let Some(port) = service.health_check_port() {
        for family in Family::BOTH {
            let to = SocketAddr::new(THIS_NODE.addr(family), port);
            all.push(plain(Some(number), Frontend::HealthCheck, NODE, to, Protocol::Tcp));
        }
    }
    all
}

fn places(service: &Service, port: &Port) -> Vec<(Frontend, SocketAddr)> {
    let mut places: Vec<(Frontend, IpAddr, u16)> = Vec::new();
    for family in &service.families {
        places.push((Frontend::ClusterIp, service.cluster_ip(*family), port.port));
    }
    for ip in &service.external_ips {
        places.push((Frontend::ExternalIp, *ip, port.port));
    }
    for ingress in &service.ingress {
        let frontend = match ingress.mode {
            "Proxy" => Frontend::LoadBalancerProxy,
            _ => Frontend::LoadBalancerVip,
        };
        places.push((frontend, ingress.ip, port.port));
    }
    if let Some(node_port) = port.node_port {
        // Of both families, whatever the Service has.
        for family in Family::BOTH {
            places.push((Frontend::NodePort, THIS_NODE.addr(family), node_port));
            places.push((Frontend::NodePortElsewhere, SECOND_ADDRESS.addr(family), node_port));
        }
        for loopback in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            places.push((Frontend::NodePortOnLoopback, loopback, node_port));
        }
    }
    places.into_iter().map(|(what, ip, port)| (what, SocketAddr::new(ip, port))).collect()
}
