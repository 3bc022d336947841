//! Which tracked UDP flows lead to the wrong place after a sync.
//!
//! A UDP flow is translated when its first packet comes and stays so while packets keep coming: a
//! client that never pauses would send to an endpoint that is gone for ever, or past a Service that was
//! not there yet. TCP needs no help, its connections break by themselves; SCTP likewise.
//!
//! Pure: it judges flows. Reading them from the kernel and deleting them is the caller's, after the
//! commit: a flow deleted before it would be translated by the old rules again.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};

use zw_model::{Family, Protocol};

/// What matters of a tracked flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) protocol: Protocol,
    /// Where the client sent its first packet.
    pub(crate) original_destination: SocketAddr,
    /// Who is expected to answer: the endpoint, or `original_destination` if nothing was translated.
    pub(crate) reply_source: SocketAddr,
}

impl Flow {
    fn is_translated(&self) -> bool {
        self.reply_source != self.original_destination
    }
}

/// What clients of a UDP Service port send to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UdpFrontend {
    /// A cluster IP, external IP or load balancer IP, and the Service's port.
    Address(SocketAddr),
    /// A port on those addresses of the node that serve node ports.
    NodePort(Family, u16),
}

impl UdpFrontend {
    fn family(&self) -> Family {
        match self {
            UdpFrontend::Address(at) => Family::of(at.ip()),
            UdpFrontend::NodePort(family, _) => *family,
        }
    }
}

/// The UDP frontends a sync changed, as they are after it.
///
/// The endpoints of a frontend are all its Service port's *serving* ones, whatever policies, zones and
/// hints say: a flow keeps its endpoint as long as that answers, as a TCP connection would.
#[derive(Debug, Default)]
pub(crate) struct ChangedUdp {
    frontends: BTreeMap<UdpFrontend, State>,
}

#[derive(Debug)]
enum State {
    /// No Service has it any more.
    Gone,
    /// Somebody's, with these endpoints, or none.
    Served(HashSet<SocketAddr>),
}

impl ChangedUdp {
    /// A frontend is there, new or with other endpoints than before.
    pub(crate) fn served(
        &mut self,
        frontend: UdpFrontend,
        endpoints: impl IntoIterator<Item = SocketAddr>,
    ) {
        self.frontends.insert(frontend, State::Served(endpoints.into_iter().collect()));
    }

    /// A Service lost a frontend, or was deleted. Says nothing where another Service took it over,
    /// whichever of the two is told first.
    pub(crate) fn gone(&mut self, frontend: UdpFrontend) {
        self.frontends.entry(frontend).or_insert(State::Gone);
    }

    /// Takes in what changed after this.
    pub(crate) fn absorb(&mut self, later: ChangedUdp) {
        for (frontend, state) in later.frontends {
            self.frontends.insert(frontend, state);
        }
    }

    /// The address that is the only frontend of its family.
    pub(crate) fn only_address(&self, family: Family) -> Option<SocketAddr> {
        let mut of_family = self.frontends.keys().filter(|frontend| frontend.family() == family);
        match (of_family.next(), of_family.next()) {
            (Some(UdpFrontend::Address(at)), None) => Some(*at),
            _ => None,
        }
    }

    /// Whether there is nothing to look for, so the flows need not be read at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.frontends.is_empty()
    }

    /// The families there is something to look for in.
    pub(crate) fn families(&self) -> BTreeSet<Family> {
        self.frontends.keys().map(UdpFrontend::family).collect()
    }

    /// Whether a flow has to be deleted. `serves_node_ports` says of an address of the node whether
    /// node ports are served on it: a port number alone would also name flows that only pass through.
    ///
    /// 1. Not UDP, or to nothing that changed: it stays.
    /// 2. Its frontend is gone: it goes if it was translated. If not, it is a flow of the node's own, or
    ///    to nowhere.
    /// 3. Its frontend is served: it goes unless it leads to an endpoint. That includes what was never
    ///    translated, because it began before the Service was programmed.
    pub(crate) fn is_stale(&self, flow: &Flow, serves_node_ports: impl Fn(IpAddr) -> bool) -> bool {
        if flow.protocol != Protocol::Udp {
            return false;
        }
        match self.find(flow.original_destination, serves_node_ports) {
            None => false,
            Some(State::Gone) => flow.is_translated(),
            Some(State::Served(endpoints)) => !endpoints.contains(&flow.reply_source),
        }
    }

    /// An address wins over a node port, as it does in the rules.
    fn find(&self, to: SocketAddr, serves_node_ports: impl Fn(IpAddr) -> bool) -> Option<&State> {
        let address = self.frontends.get(&UdpFrontend::Address(to));
        if let Some(State::Served(_)) = address {
            return address;
        }
        let node_port = UdpFrontend::NodePort(Family::of(to.ip()), to.port());
        let node_port = self.frontends.get(&node_port).filter(|_| serves_node_ports(to.ip()));
        node_port.or(address)
    }
}

#[cfg(test)]
mod tests;
