//! The virtual servers of the ipvs mode, from the same rules and claims as the table.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use zw_model::{Family, Scheduler, ServiceKey};

use super::Desired;
use super::shared::Turnover;
use crate::changes::Changes;
use crate::element::{Key, Value, decode};
use crate::frontend::{At, Frontend};
use crate::ipvs::{ServerSettings, VirtualKey, VirtualServer, difference};
use crate::ruleset::Field;
use crate::service::PortRules;
use crate::sets::SetName;
use crate::surroundings::Surroundings;

impl Desired {
    /// IPVS picks endpoints.
    pub fn by_ipvs(&self) -> bool {
        self.config.ipvs.is_some()
    }

    /// How IPVS spreads a port's connections, if it does.
    pub fn scheduler<'a>(&'a self, port: &'a PortRules) -> Option<&'a Scheduler> {
        let default = self.config.ipvs.as_ref()?;
        Some(port.scheduler.as_ref().unwrap_or(default))
    }

    /// Every virtual server there should be; none if the table picks endpoints.
    pub fn virtual_servers(&self) -> BTreeMap<VirtualKey, VirtualServer> {
        if !self.by_ipvs() {
            return BTreeMap::new();
        }
        let frontends = self.claims.frontends();
        let keys = frontends.flat_map(|frontend| places(frontend, &self.surroundings));
        keys.filter_map(|key| Some((key, self.virtual_at(&key)?))).collect()
    }

    /// Whose a virtual server is.
    pub fn server_owner(&self, key: &VirtualKey) -> Option<&ServiceKey> {
        self.owner(&self.frontend_at(key)?)
    }

    /// This address is to be on the interface for Services' addresses.
    pub fn wants_address(&self, addr: IpAddr) -> bool {
        let key = Key::new().addr(addr);
        self.by_ipvs() && self.shared.has_element(Family::of(addr), SetName::ClusterIps, key)
    }

    /// The addresses that packets to virtual servers arrive at, but for the node's own.
    pub fn virtual_addresses(&self) -> BTreeSet<IpAddr> {
        let mut addresses = BTreeSet::new();
        for family in Family::BOTH.into_iter().filter(|_| self.by_ipvs()) {
            let elements = self.shared.elements(family);
            let ours = elements.filter(|(set, _)| **set == SetName::ClusterIps);
            addresses.extend(ours.filter_map(|(_, key)| address(family, key)));
        }
        addresses
    }

    /// What clients of a virtual server connect to. A Service's address counts before a node port.
    pub fn frontend_at(&self, key: &VirtualKey) -> Option<Frontend> {
        let address = Frontend::new(key.addr, key.protocol, key.port);
        if self.active(&address).is_some() {
            return Some(address);
        }
        let node_port = Frontend::node_port(Family::of(key.addr), key.protocol, key.port);
        self.surroundings.node_addresses.contains(&key.addr).then_some(node_port)
    }

    /// The virtual server at one place.
    fn virtual_at(&self, key: &VirtualKey) -> Option<VirtualServer> {
        let port = self.active(&self.frontend_at(key)?)?;
        let settings = ServerSettings {
            scheduler: self.scheduler(port)?.clone(),
            persistence: port.sticky.as_ref().map(|sticky| sticky.timeout),
        };
        let reals = port.answering().clone();
        // Without anybody to answer, the table refuses.
        (!reals.is_empty()).then_some(VirtualServer { settings, reals })
    }

    /// Keeps how the virtual servers of these frontends are before they change.
    pub(super) fn note_servers(&self, touched: &[Frontend], turnover: &mut Turnover) {
        if self.by_ipvs() {
            for key in touched.iter().flat_map(|frontend| places(frontend, &self.surroundings)) {
                turnover.servers.entry(key).or_insert_with(|| self.virtual_at(&key));
            }
        }
    }

    /// The virtual servers of node ports, where the node's addresses change, as they are before that.
    pub(super) fn servers_at(
        &self,
        before: &Surroundings,
        after: &Surroundings,
    ) -> BTreeMap<VirtualKey, Option<VirtualServer>> {
        let moved = before.node_addresses.symmetric_difference(&after.node_addresses);
        let only =
            Surroundings { node_addresses: moved.copied().collect(), ..Surroundings::default() };
        if !self.by_ipvs() || only.node_addresses.is_empty() {
            return BTreeMap::new();
        }
        let node_ports =
            self.claims.frontends().filter(|frontend| matches!(frontend.at, At::Node(_)));
        let keys = node_ports.flat_map(|frontend| places(frontend, &only));
        keys.map(|key| (key, self.virtual_at(&key))).collect()
    }

    /// Says what has become of virtual servers, and of addresses.
    pub(super) fn settle_servers(
        &self,
        before: BTreeMap<VirtualKey, Option<VirtualServer>>,
        changes: &mut Changes,
    ) {
        if !self.by_ipvs() {
            return;
        }
        for (key, before) in before {
            let after = self.virtual_at(&key);
            if before != after {
                difference(key, before.as_ref(), after.as_ref(), &mut changes.ipvs);
            }
        }
        for (family, table) in &changes.tables {
            for (elements, comes) in [(&table.delete_elements, false), (&table.add_elements, true)]
            {
                let ours = elements.get(&SetName::ClusterIps).into_iter().flatten();
                let addresses = ours.filter_map(|element| address(*family, &element.key));
                changes.ipvs.addresses.extend(addresses.map(|addr| (addr, comes)));
            }
        }
    }
}

/// Where a frontend has virtual servers.
fn places(frontend: &Frontend, around: &Surroundings) -> Vec<VirtualKey> {
    let at = |addr: IpAddr| VirtualKey { addr, protocol: frontend.protocol, port: frontend.port };
    match frontend.at {
        At::Address(addr) => vec![at(addr)],
        At::Node(family) => {
            let of_family = |addr: &&IpAddr| Family::of(**addr) == family;
            around.node_addresses.iter().filter(of_family).map(|addr| at(*addr)).collect()
        }
    }
}

fn address(family: Family, key: &Key) -> Option<IpAddr> {
    match decode(family, &[Field::Daddr], key)?.as_slice() {
        [Value::Addr(addr)] => Some(*addr),
        _ => None,
    }
}
