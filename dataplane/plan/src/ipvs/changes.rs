//! What has to change in IPVS, by what is to be there and what is not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::{
    ActualIpvs, ActualServer, Link, ServerSettings, VirtualKey, VirtualServer, is_leaving,
};
use crate::desired::Desired;

/// Of what is wanted, whether it is there already does not matter to who carries it out: there are no
/// transactions, so everything must be good to be done twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpvsChanges {
    /// The interface for Services' addresses comes, or goes with all addresses.
    pub link: Option<bool>,
    /// Virtual servers that come or get these settings; `None`: that go.
    pub servers: BTreeMap<VirtualKey, Option<ServerSettings>>,
    /// Real servers that come, or go.
    pub reals: BTreeMap<(VirtualKey, SocketAddr), bool>,
    /// Addresses that come, or go.
    pub addresses: BTreeMap<IpAddr, bool>,
}

impl IpvsChanges {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes in changes that come later, which count where both speak of the same.
    pub fn absorb(&mut self, later: Self) {
        self.link = later.link.or(self.link);
        self.servers.extend(later.servers);
        self.reals.extend(later.reals);
        self.addresses.extend(later.addresses);
    }

    /// How many things come or go.
    pub fn operations(&self) -> usize {
        self.servers.len() + self.reals.len() + self.addresses.len()
    }

    /// Leaves virtual servers alone, with all that is theirs.
    pub fn leave_out(&mut self, which: impl Fn(&VirtualKey) -> bool) {
        self.servers.retain(|key, _| !which(key));
        self.reals.retain(|(key, _), _| !which(key));
    }

    fn remove(&mut self, key: VirtualKey, reals: impl Iterator<Item = SocketAddr>) {
        self.servers.insert(key, None);
        self.reals.extend(reals.map(|real| ((key, real), false)));
    }
}

/// From one virtual server to another at the same place.
pub(crate) fn difference(
    key: VirtualKey,
    before: Option<&VirtualServer>,
    after: Option<&VirtualServer>,
    changes: &mut IpvsChanges,
) {
    let reals = |server: Option<&VirtualServer>| -> BTreeSet<SocketAddr> {
        server.into_iter().flat_map(|server| server.reals.iter()).map(|real| real.addr).collect()
    };
    let Some(server) = after else {
        changes.remove(key, reals(before).into_iter());
        return;
    };
    if before.map(|before| &before.settings) != Some(&server.settings) {
        changes.servers.insert(key, Some(server.settings.clone()));
    }
    let (before, after) = (reals(before), reals(after));
    for real in before.symmetric_difference(&after) {
        changes.reals.insert((key, *real), after.contains(real));
    }
}

/// The changes that bring the kernel to `desired`; those of a node that is not in the ipvs mode leave
/// nothing.
pub(crate) fn bring_servers_to(desired: &Desired, actual: &ActualIpvs) -> IpvsChanges {
    let mut changes = IpvsChanges::default();
    let wanted = desired.virtual_servers();
    for (key, is) in actual.servers.iter().filter(|(key, _)| !wanted.contains_key(*key)) {
        let stays = is.reals.iter().filter(|(_, weight)| !is_leaving(key, **weight));
        changes.remove(*key, stays.map(|(real, _)| *real));
    }
    for (key, server) in &wanted {
        match actual.servers.get(key) {
            None => difference(*key, None, Some(server), &mut changes),
            Some(is) => adjust(*key, is, server, &mut changes),
        }
    }
    if !desired.by_ipvs() {
        changes.link = (actual.link != Link::Missing).then_some(false);
        return changes;
    }
    changes.link = (actual.link != Link::Up).then_some(true);
    let wanted = desired.virtual_addresses();
    for addr in wanted.symmetric_difference(&actual.addresses) {
        changes.addresses.insert(*addr, wanted.contains(addr));
    }
    changes
}

impl Desired {
    /// What of IPVS is not as it should be, as the changes that put it right. What is on its way out
    /// already is as it should be.
    pub fn ipvs_differences(&self, actual: &ActualIpvs) -> IpvsChanges {
        let mut changes = bring_servers_to(self, actual);
        if changes.link == Some(false) {
            // Nobody is waited for.
            return changes;
        }
        let leaving: BTreeSet<VirtualKey> = changes
            .servers
            .iter()
            .filter(|(key, settings)| {
                let is = actual.servers.get(*key);
                settings.is_none() && is.is_some_and(|is| is.is_leaving(key))
            })
            .map(|(key, _)| *key)
            .collect();
        changes.leave_out(|key| leaving.contains(key));
        changes
            .addresses
            .retain(|addr, comes| *comes || !leaving.iter().any(|server| server.addr == *addr));
        changes
    }
}

fn adjust(key: VirtualKey, is: &ActualServer, server: &VirtualServer, changes: &mut IpvsChanges) {
    if is.settings.as_ref() != Some(&server.settings) {
        changes.servers.insert(key, Some(server.settings.clone()));
    }
    let wanted: BTreeSet<SocketAddr> = server.reals.iter().map(|real| real.addr).collect();
    for (real, weight) in is.reals.iter().filter(|(real, _)| !wanted.contains(*real)) {
        if !is_leaving(&key, *weight) {
            changes.reals.insert((key, *real), false);
        }
    }
    for real in wanted {
        // One that is on its way out is wanted again.
        if is.reals.get(&real) != Some(&Some(WEIGHT)) {
            changes.reals.insert((key, real), true);
        }
    }
}

/// What every real server has that is not on its way out.
pub const WEIGHT: u32 = 1;
