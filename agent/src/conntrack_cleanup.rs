//! Which tracked flows lead to the wrong place after a sync.
//!
//! A flow is translated when its first packet comes and stays so while packets keep coming: a UDP client
//! that never pauses would send to an endpoint that is gone for ever, or past a Service that was not
//! there yet. A TCP connection breaks by itself, if only when its client gives up; who does not want to
//! wait for that asks for it (`--conntrack-tcp-cleanup`). The next packet then goes to another endpoint,
//! which resets the connection. Which protocols are told of is the caller's choice.
//!
//! Only one that began before there were any rules is deleted for its own good: its client still asks
//! for an answer, a packet a second and then less often, and is heard as soon as it is forgotten. Left
//! alone, it would stand in the way for two minutes, also of the next client that has the same port.
//!
//! Pure: it judges flows. Reading them from the kernel and deleting them is the caller's, after the
//! commit: a flow deleted before it would be translated by the old rules again.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use zw_dataplane::{FlowFilter, TrackedFlow};
use zw_model::{Family, Protocol};
use zw_plan::Frontend;

/// More addresses than these are cheaper to pick from all flows: the kernel walks its whole table for
/// every question, which takes a quarter of the time that sending all of it takes (20,000 flows).
const ASKED_ONE_BY_ONE: usize = 4;

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
    /// Somebody's, and was nobody's. Only what nobody answered is judged.
    Begun,
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

    /// Connections to a frontend are translated from now on, as none was before.
    pub(crate) fn begun(&mut self, frontend: Frontend) {
        self.frontends.insert(frontend, State::Begun);
    }

    /// Takes in what changed after this.
    pub(crate) fn absorb(&mut self, later: ChangedFlows) {
        for (frontend, state) in later.frontends {
            self.frontends.insert(frontend, state);
        }
    }

    /// What the kernel is to be asked for, so that all flows to these frontends are among its answers:
    /// a few addresses one by one, else everything of a protocol.
    pub(crate) fn questions(&self) -> Vec<FlowFilter> {
        let mut by_kind: BTreeMap<FlowFilter, Vec<Frontend>> = BTreeMap::new();
        for (frontend, state) in &self.frontends {
            let (family, protocol) = (frontend.family(), frontend.protocol);
            let unanswered = matches!(state, State::Begun);
            let all = FlowFilter { family, protocol, unanswered, to: None };
            by_kind.entry(all).or_default().push(*frontend);
        }
        let mut questions = Vec::new();
        for (all, frontends) in by_kind {
            let address = |f: &Frontend| Some(SocketAddr::new(f.addr()?, f.port));
            let addresses: Option<Vec<_>> = frontends.iter().map(address).collect();
            match addresses.filter(|addresses| addresses.len() <= ASKED_ONE_BY_ONE) {
                Some(addresses) => {
                    let one = |to| FlowFilter { to: Some(to), ..all };
                    questions.extend(addresses.into_iter().map(one));
                }
                None => questions.push(all),
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
    /// 4. Its frontend has just begun to be: it goes if it was not translated and nobody answered it.
    pub(crate) fn is_stale(
        &self,
        protocol: Protocol,
        flow: &TrackedFlow,
        serves_node_ports: impl Fn(IpAddr) -> bool,
    ) -> bool {
        let is_translated = flow.answered_by != flow.to;
        match self.find(protocol, flow.to, serves_node_ports) {
            None => false,
            Some(State::Gone) => is_translated,
            Some(State::Served(endpoints)) => !endpoints.contains(&flow.answered_by),
            Some(State::Begun) => !is_translated && !flow.is_answered,
        }
    }

    /// An address wins over a node port, as it does in the rules.
    fn find(
        &self,
        protocol: Protocol,
        to: SocketAddr,
        serves_node_ports: impl Fn(IpAddr) -> bool,
    ) -> Option<&State> {
        let address = self.frontends.get(&Frontend::new(to.ip(), protocol, to.port()));
        if let Some(State::Served(_) | State::Begun) = address {
            return address;
        }
        let node_port = Frontend::node_port(Family::of(to.ip()), protocol, to.port());
        let node_port = self.frontends.get(&node_port).filter(|_| serves_node_ports(to.ip()));
        node_port.or(address)
    }
}

#[cfg(test)]
mod tests;
