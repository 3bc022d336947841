//! What is typed: who sends what where.

use std::net::{IpAddr, SocketAddr};

use anyhow::bail;
use zw_model::{Family, Protocol};
use zw_plan::{Frontend, Key, Origin, Packet, SetName, Table, decode_frontend};

use super::Ground;
use crate::BadInput;
use crate::cli::TraceArgs;
use crate::inspect::filter::ServiceName;
use crate::inspect::view::split_comment;

/// One packet.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) from: IpAddr,
    /// It begins on the node itself.
    pub(crate) from_node: bool,
    pub(crate) to: SocketAddr,
    pub(crate) protocol: Protocol,
    pub(crate) interface: String,
}

/// Where a packet goes, as typed.
enum Target {
    Socket(SocketAddr),
    Service(ServiceName),
}

impl Question {
    pub(super) fn parse(args: &TraceArgs, ground: &Ground) -> anyhow::Result<Self> {
        let (target, protocol) = target(&args.to)?;
        let node = args.from == "node";
        let from: Option<IpAddr> = match args.from.parse() {
            Ok(addr) => Some(addr),
            Err(_) if node => None,
            Err(_) => bail!(BadInput(format!("{:?} is neither an address nor `node`", args.from))),
        };
        let (to, protocol) = match target {
            Target::Socket(to) => (to, protocol.unwrap_or(Protocol::Tcp)),
            Target::Service(name) => resolve(&name, from.map(Family::of), protocol, ground)?,
        };
        let family = Family::of(to.ip());
        let own = |addr: &&IpAddr| Family::of(**addr) == family && !addr.is_loopback();
        let from = match from {
            Some(from) if Family::of(from) != family => {
                bail!(BadInput(format!("{from} cannot send to {to}: they are of two families")))
            }
            Some(from) => from,
            None => match ground.node.iter().find(own) {
                Some(addr) => *addr,
                None => bail!("this node has no {family} address to send from"),
            },
        };
        Ok(Self {
            from,
            from_node: ground.node.contains(&from),
            to,
            protocol,
            interface: args.interface.clone(),
        })
    }

    pub(super) fn family(&self) -> Family {
        Family::of(self.to.ip())
    }

    pub(super) fn packet(&self) -> Packet {
        Packet {
            origin: if self.from_node {
                Origin::Node
            } else {
                Origin::Elsewhere(self.interface.clone())
            },
            from: self.from,
            to: self.to,
            protocol: self.protocol,
        }
    }
}

fn target(text: &str) -> anyhow::Result<(Target, Option<Protocol>)> {
    let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    let known = |word: &str| protocols.into_iter().find(|p| p.to_string() == word);
    let (place, protocol) = match text.rsplit_once('/') {
        Some((place, word)) if place.contains(':') => match known(&word.to_lowercase()) {
            Some(protocol) => (place, Some(protocol)),
            None => (text, None),
        },
        _ => (text, None),
    };
    if let Ok(to) = place.parse() {
        return Ok((Target::Socket(to), protocol));
    }
    match ServiceName::parse(place) {
        Ok(name) if name.port.is_some() => Ok((Target::Service(name), protocol)),
        _ => bail!(BadInput(format!(
            "{text:?} is not where a packet can go: write ADDRESS:PORT, [ADDRESS]:PORT or \
             NAMESPACE/NAME:PORT, and /udp or /sctp for what is not TCP"
        ))),
    }
}

/// A Service port's address: its cluster IP if it has one of the family.
fn resolve(
    name: &ServiceName,
    family: Option<Family>,
    protocol: Option<Protocol>,
    ground: &Ground,
) -> anyhow::Result<(SocketAddr, Protocol)> {
    let families = Family::BOTH.into_iter().filter(|f| family.is_none_or(|want| want == *f));
    for family in families {
        let Some(table) = ground.tables.get(&family) else { continue };
        let mut places = places(name, protocol, table);
        places.sort();
        if let Some((_, to, protocol)) = places.first() {
            return Ok((*to, *protocol));
        }
    }
    bail!("no Service port {} is programmed", name.text)
}

/// Cluster IPs sort first.
fn places(
    name: &ServiceName,
    protocol: Option<Protocol>,
    table: &Table,
) -> Vec<(bool, SocketAddr, Protocol)> {
    let service = name.key.to_string();
    let elements = |set: SetName| table.elements.get(&set);
    let is_cluster_ip = |addr: IpAddr| {
        elements(SetName::ClusterIps).is_some_and(|all| all.contains_key(&Key::new().addr(addr)))
    };
    let all = elements(SetName::Services).into_iter().flat_map(|all| all.values());
    all.filter_map(|element| {
        let (of, port) = split_comment(element.comment.as_deref()?);
        let frontend = decode_frontend(table.family, SetName::Services, &element.key)?;
        let right = of == service && name.has_port(port, frontend.port);
        let right = right && protocol.is_none_or(|want| want == frontend.protocol);
        let addr = frontend.addr().filter(|_| right)?;
        let to = SocketAddr::new(addr, frontend.port);
        Some((!is_cluster_ip(addr), to, frontend.protocol))
    })
    .collect()
}

/// The Service port that has what is asked for.
pub(super) fn service_at(question: &Question, table: &Table) -> Option<String> {
    let frontend = Frontend::new(question.to.ip(), question.protocol, question.to.port());
    let element = table.elements.get(&SetName::Services)?.get(&frontend.key())?;
    element.comment.as_deref().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_an_address_or_a_service_port() {
        let read = |text: &str| match target(text) {
            Ok((Target::Socket(to), protocol)) => format!("{to} {protocol:?}"),
            Ok((Target::Service(name), protocol)) => format!("{} {protocol:?}", name.text),
            Err(_) => "bad".into(),
        };
        for (text, want) in [
            ("10.96.0.10:53/udp", "10.96.0.10:53 Some(Udp)"),
            ("10.96.0.10:53", "10.96.0.10:53 None"),
            ("[fd00::1]:80/TCP", "[fd00::1]:80 Some(Tcp)"),
            ("web/api:http", "web/api:http None"),
            ("web/api:53/udp", "web/api:53 Some(Udp)"),
            ("web/api", "bad"),
            ("10.96.0.10", "bad"),
            ("10.96.0.10:53/icmp", "bad"),
            ("", "bad"),
        ] {
            assert_eq!(read(text), want, "{text}");
        }
    }
}
