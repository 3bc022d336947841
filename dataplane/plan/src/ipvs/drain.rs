//! How real servers leave, and in which order things are done.
//!
//! IPVS cuts the connections of a real server that is deleted. One that is wanted no longer therefore
//! gets the weight 0 first: it keeps the connections it has and gets no new ones. It goes when it has none
//! left, or after a while in any case. UDP knows no connections that could end: there it goes at once, and
//! its clients move on.
//!
//! Nothing is kept but in the kernel: after a restart, a real server with the weight 0 that nobody wants
//! is one that leaves, and one that is wanted gets its weight back.
//!
//! The order, so that no moment is worse than before or after:
//!
//! 1. Virtual servers come, then their real servers.
//! 2. The table changes, all at once.
//! 3. Addresses come; what is to go goes, addresses last.
//!
//! Where the table is made anew, addresses come before it: a node that changes its mode would otherwise
//! have neither the old rules nor the new addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use zw_model::Protocol;

use super::changes::WEIGHT;
use super::{ActualIpvs, IpvsChanges, ServerSettings, VirtualKey};

/// One thing to do. All may be done twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A virtual server comes, or gets these settings.
    Server(VirtualKey, ServerSettings),
    /// A real server comes, or gets this weight.
    Real(VirtualKey, SocketAddr, u32),
    /// A real server goes.
    RemoveReal(VirtualKey, SocketAddr),
    /// A virtual server goes.
    RemoveServer(VirtualKey),
    /// An address comes.
    Address(IpAddr),
    /// An address goes.
    RemoveAddress(IpAddr),
}

/// What to do, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Operations {
    /// Before the table changes.
    pub before: Vec<Operation>,
    /// After that.
    pub after: Vec<Operation>,
}

/// A real server on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Draining {
    /// Whose it is.
    pub server: VirtualKey,
    /// The real server.
    pub real: SocketAddr,
}

/// Who is on his way out. Times are since any fixed moment.
#[derive(Debug)]
pub struct Drains {
    /// How long a real server may keep its connections.
    bound: Duration,
    leaving: BTreeMap<Draining, Duration>,
    /// Virtual servers that go with their last real server.
    servers: BTreeSet<VirtualKey>,
    /// Addresses that go with the last virtual server that is leaving.
    addresses: BTreeSet<IpAddr>,
}

impl Drains {
    /// Nobody leaves; who will may take this long.
    pub fn new(bound: Duration) -> Self {
        Self {
            bound,
            leaving: BTreeMap::new(),
            servers: BTreeSet::new(),
            addresses: BTreeSet::new(),
        }
    }

    /// The kernel was read: who has the weight 0 there is leaving, and nobody else.
    pub fn adopt(&mut self, actual: &ActualIpvs, now: Duration) {
        let known = std::mem::take(&mut self.leaving);
        self.servers.clear();
        self.addresses.clear();
        for (server, is) in actual.servers.iter().filter(|(key, _)| drains(key.protocol)) {
            for (real, _) in is.reals.iter().filter(|(_, weight)| **weight == Some(0)) {
                let draining = Draining { server: *server, real: *real };
                let until = known.get(&draining).copied().unwrap_or(now + self.bound);
                self.leaving.insert(draining, until);
            }
        }
    }

    /// What has to be done for these changes. `anew`: so is the table.
    pub fn carry_out(&mut self, changes: &IpvsChanges, anew: bool, now: Duration) -> Operations {
        let mut todo = Operations::default();
        for (key, settings) in &changes.servers {
            if let Some(settings) = settings {
                self.servers.remove(key);
                todo.before.push(Operation::Server(*key, settings.clone()));
            }
        }
        for ((server, real), _) in changes.reals.iter().filter(|(_, comes)| **comes) {
            self.leaving.remove(&Draining { server: *server, real: *real });
            todo.before.push(Operation::Real(*server, *real, WEIGHT));
        }
        for (addr, _) in changes.addresses.iter().filter(|(_, comes)| **comes) {
            self.addresses.remove(addr);
            let todo = if anew { &mut todo.before } else { &mut todo.after };
            todo.push(Operation::Address(*addr));
        }
        // Without the interface no packet gets to IPVS: nobody has connections to keep.
        let at_once = changes.link == Some(false);
        for ((server, real), _) in changes.reals.iter().filter(|(_, comes)| !**comes) {
            let draining = Draining { server: *server, real: *real };
            if drains(server.protocol) && !at_once {
                // Who is leaving already has no more time than before.
                self.leaving.entry(draining).or_insert(now + self.bound);
                todo.after.push(Operation::Real(*server, *real, 0));
            } else if changes.servers.get(server) != Some(&None) {
                todo.after.push(Operation::RemoveReal(*server, *real));
            }
        }
        for (key, _) in changes.servers.iter().filter(|(_, settings)| settings.is_none()) {
            if self.drains_from(key).next().is_some() && !at_once {
                self.servers.insert(*key);
            } else {
                self.forget(key);
                todo.after.push(Operation::RemoveServer(*key));
            }
        }
        for (addr, _) in changes.addresses.iter().filter(|(_, comes)| !**comes) {
            if self.servers.iter().any(|server| server.addr == *addr) {
                self.addresses.insert(*addr);
            } else {
                todo.after.push(Operation::RemoveAddress(*addr));
            }
        }
        todo
    }

    /// Everybody who is leaving, to be asked for their connections.
    pub fn leaving(&self) -> impl Iterator<Item = &Draining> {
        self.leaving.keys()
    }

    /// Nobody is leaving.
    pub fn is_empty(&self) -> bool {
        self.leaving.is_empty()
    }

    /// What has to be done now that `idle` have no connections any more.
    pub fn release(&mut self, idle: &BTreeSet<Draining>, now: Duration) -> Vec<Operation> {
        let gone: Vec<Draining> = self
            .leaving
            .iter()
            .filter(|(draining, until)| **until <= now || idle.contains(*draining))
            .map(|(draining, _)| *draining)
            .collect();
        let mut todo = Vec::new();
        for draining in &gone {
            self.leaving.remove(draining);
            todo.push(Operation::RemoveReal(draining.server, draining.real));
        }
        for server in gone.iter().map(|gone| gone.server).collect::<BTreeSet<_>>() {
            if self.drains_from(&server).next().is_some() || !self.servers.remove(&server) {
                continue;
            }
            // Its last real servers go with it.
            todo.retain(|op| !matches!(op, Operation::RemoveReal(of, _) if *of == server));
            todo.push(Operation::RemoveServer(server));
            let others = self.servers.iter().any(|other| other.addr == server.addr);
            if !others && self.addresses.remove(&server.addr) {
                todo.push(Operation::RemoveAddress(server.addr));
            }
        }
        todo
    }

    fn drains_from(&self, server: &VirtualKey) -> impl Iterator<Item = &Draining> {
        let lowest = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
        let first = Draining { server: *server, real: lowest };
        let (keys, server) = (self.leaving.range(first..), *server);
        keys.map(|(draining, _)| draining).take_while(move |draining| draining.server == server)
    }

    fn forget(&mut self, server: &VirtualKey) {
        let gone: Vec<Draining> = self.drains_from(server).copied().collect();
        for draining in &gone {
            self.leaving.remove(draining);
        }
        self.servers.remove(server);
    }
}

/// Whether there are connections that end.
pub(super) fn drains(protocol: Protocol) -> bool {
    protocol != Protocol::Udp
}

#[cfg(test)]
mod tests;
