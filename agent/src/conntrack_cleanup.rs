//! Which tracked flows lead to the wrong place after a sync.
//!
//! A flow is translated when its first packet comes and stays so while packets keep coming: a UDP client
//! that never pauses would send to an endpoint that is gone for ever, or past a Service that was not
//! there yet. A TCP connection breaks by itself, if only when its client gives up; who does not want to
//! wait for that asks for it (`--conntrack-tcp-cleanup`). The next packet then goes to another endpoint,
//! which resets the connection. Which protocols are told of is the caller's choice.
//!
//! Pure: it judges flows. Reading them from the kernel and deleting them is the caller's, after the
//! commit: a flow deleted before it would be translated by the old rules again.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use zw_model::{Family, Protocol};
use zw_plan::Frontend;

/// More addresses than these are cheaper to pick from all flows: the kernel walks its whole table for
/// every question, which takes a quarter of the time that sending all of it takes (20,000 flows).
const ASKED_ONE_BY_ONE: usize = 4;

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

/// Flows to be asked the kernel for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) family: Family,
    pub(crate) protocol: Protocol,
    /// To one address and port only.
    pub(crate) to: Option<SocketAddr>,
}

/// The frontends a sync changed, as they are after it.
///
/// The endpoints of a frontend are all its Service port's *serving* ones, whatever policies, zones and
/// hints say: a flow keeps its endpoint as long as that answers.
#[derive(Debug, Default)]
pub(crate) struct ChangedFlows {
    frontends: BTreeMap<Frontend, State>,
}

#[derive(Debug)]
enum State {
    /// No Service has it any more.
    Gone,
    /// Somebody's, with these endpoints, or none.
    Served(HashSet<SocketAddr>),
}

impl ChangedFlows {
    /// A frontend is there, new or with other endpoints than before.
    pub(crate) fn served(
        &mut self,
        frontend: Frontend,
        endpoints: impl IntoIterator<Item = SocketAddr>,
    ) {
        self.frontends.insert(frontend, State::Served(endpoints.into_iter().collect()));
    }

    /// A Service lost a frontend, or was deleted. Says nothing where another Service took it over,
    /// whichever of the two is told first.
    pub(crate) fn gone(&mut self, frontend: Frontend) {
        self.frontends.entry(frontend).or_insert(State::Gone);
    }

    /// Takes in what changed after this.
    pub(crate) fn absorb(&mut self, later: ChangedFlows) {
        for (frontend, state) in later.frontends {
            self.frontends.insert(frontend, state);
        }
    }

    /// What the kernel is to be asked for, so that all flows to these frontends are among its answers:
    /// a few addresses one by one, else everything of a protocol.
    pub(crate) fn questions(&self) -> Vec<Question> {
        let mut by_protocol: BTreeMap<(Family, Protocol), Vec<Frontend>> = BTreeMap::new();
        for frontend in self.frontends.keys() {
            by_protocol.entry((frontend.family(), frontend.protocol)).or_default().push(*frontend);
        }
        let mut questions = Vec::new();
        for ((family, protocol), frontends) in by_protocol {
            let address = |f: &Frontend| Some(SocketAddr::new(f.addr()?, f.port));
            let addresses: Option<Vec<_>> = frontends.iter().map(address).collect();
            match addresses.filter(|addresses| addresses.len() <= ASKED_ONE_BY_ONE) {
                Some(addresses) => questions.extend(addresses.into_iter().map(|to| Question {
                    family,
                    protocol,
                    to: Some(to),
                })),
                None => questions.push(Question { family, protocol, to: None }),
            }
        }
        questions
    }

    /// Whether there is nothing to look for, so the flows need not be read at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.frontends.is_empty()
    }

    /// Whether a flow has to be deleted. `serves_node_ports` says of an address of the node whether
    /// node ports are served on it: a port number alone would also name flows that only pass through.
    ///
    /// 1. To nothing that changed: it stays.
    /// 2. Its frontend is gone: it goes if it was translated. If not, it is a flow of the node's own, or
    ///    to nowhere.
    /// 3. Its frontend is served: it goes unless it leads to an endpoint. That includes what was never
    ///    translated, because it began before the Service was programmed.
    pub(crate) fn is_stale(&self, flow: &Flow, serves_node_ports: impl Fn(IpAddr) -> bool) -> bool {
        match self.find(flow, serves_node_ports) {
            None => false,
            Some(State::Gone) => flow.is_translated(),
            Some(State::Served(endpoints)) => !endpoints.contains(&flow.reply_source),
        }
    }

    /// An address wins over a node port, as it does in the rules.
    fn find(&self, flow: &Flow, serves_node_ports: impl Fn(IpAddr) -> bool) -> Option<&State> {
        let (to, protocol) = (flow.original_destination, flow.protocol);
        let address = self.frontends.get(&Frontend::new(to.ip(), protocol, to.port()));
        if let Some(State::Served(_)) = address {
            return address;
        }
        let node_port = Frontend::node_port(Family::of(to.ip()), protocol, to.port());
        let node_port = self.frontends.get(&node_port).filter(|_| serves_node_ports(to.ip()));
        node_port.or(address)
    }
}

#[cfg(test)]
mod tests;
