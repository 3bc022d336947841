//! Which endpoint goes into which zone's group.
//!
//! Addresses in, zones out: how many of which home go where is the planner's business, which ones is
//! decided here, so that as few as possible change their group. Pure. Where an address was before comes
//! from the slices that are there, so any leader continues where another stopped.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use zw_model::Family;
use zw_topology::{Counts, Groups, Planner};

use crate::approach::Approach;
use crate::input::{Endpoint, Ports, Slice, address, is_ready};
use crate::settings::Settings;
use crate::zones::{ZoneNodes, Zones};

/// One endpoint with one set of ports, as it is in a slice.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The ports of its slice.
    pub ports: Arc<Ports>,
    /// All that is carried over.
    pub endpoint: Arc<Endpoint>,
}

/// What a Service's default slices say, of one family. An address with several sets of ports is one
/// endpoint with several entries.
#[derive(Debug, Default)]
pub struct Offer {
    addresses: BTreeMap<Arc<str>, Address>,
    /// Some ports, for slices without endpoints.
    pub any_ports: Arc<Ports>,
}

#[derive(Debug)]
struct Address {
    home: Option<Arc<str>>,
    ready: bool,
    entries: Vec<Entry>,
}

impl Offer {
    /// Collects a family's endpoints. Where an endpoint is, its Node says better than the slice does:
    /// the stock controller does not follow a Node that moves.
    pub fn collect<'a>(
        slices: impl Iterator<Item = &'a Slice>,
        family: Family,
        zones: &Zones,
    ) -> Option<Self> {
        let mut offer: Option<Self> = None;
        for slice in slices.filter(|slice| slice.is_source() && slice.family == family) {
            let ports = Arc::new(slice.ports.clone());
            let offer = offer.get_or_insert_default();
            offer.any_ports = ports.clone();
            for endpoint in &slice.endpoints {
                offer.add(endpoint, &ports, zones);
            }
        }
        offer
    }

    fn add(&mut self, endpoint: &Arc<Endpoint>, ports: &Arc<Ports>, zones: &Zones) {
        let ready = is_ready(endpoint);
        let entry = Entry { ports: ports.clone(), endpoint: endpoint.clone() };
        let by_node = endpoint.node_name.as_deref().and_then(|node| zones.of_node(node)).cloned();
        let home = by_node.or_else(|| endpoint.zone.as_deref().map(Arc::from));
        let known = self.addresses.entry(address(endpoint).into());
        let known = known.or_insert_with(|| Address { home, ready, entries: Vec::new() });
        known.ready |= ready;
        match known.entries.iter_mut().find(|known| known.ports == *ports) {
            // While the stock controller moves an endpoint between slices it is in two of them.
            Some(twice) if ready && !is_ready(&twice.endpoint) => *twice = entry,
            Some(_) => {}
            None => known.entries.push(entry),
        }
    }

    /// How many addresses are ready.
    pub fn ready(&self) -> usize {
        self.addresses.values().filter(|address| address.ready).count()
    }
}

/// The zones an address serves, by position in name order. More than one only if groups are shared, or
/// while an endpoint is on its way from one group to another.
type Serves = Vec<usize>;

/// The endpoints of every zone's group, of one family.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    /// A zone without endpoints has an empty list.
    pub groups: BTreeMap<Arc<str>, Vec<Entry>>,
    /// How many ready endpoints serve other zones than before; new ones do not count.
    pub reallocated: usize,
}

/// Divides endpoints, with the buffers that takes.
#[derive(Debug, Default)]
pub struct Divider {
    planner: Planner,
}

/// What there is to divide, and between whom.
struct Work<'a> {
    /// Zones with Nodes first, then those that only endpoints name; each part in name order.
    names: Vec<Arc<str>>,
    /// How many of them have Nodes.
    consuming: usize,
    counts: Vec<Counts>,
    addresses: Vec<Item<'a>>,
}

struct Item<'a> {
    address: &'a Address,
    home: usize,
    before: Option<Serves>,
}

impl<'a> Work<'a> {
    fn new(offer: &'a Offer, existing: &'a [Slice], family: Family, zones: &ZoneNodes) -> Self {
        // The planner visits zones in name order, and knows nothing of names: zones without Nodes
        // come last, where they decide nothing between the others.
        let mut names: Vec<Arc<str>> = zones.keys().cloned().collect();
        let consuming = names.len();
        let mut position: HashMap<Arc<str>, usize> =
            names.iter().cloned().enumerate().map(|(i, name)| (name, i)).collect();
        let before = serving(existing, family, &position);
        let nowhere: Arc<str> = "".into();
        let mut addresses = Vec::with_capacity(offer.addresses.len());
        for (key, address) in &offer.addresses {
            let home = address.home.as_ref().unwrap_or(&nowhere);
            let home = *position.entry(home.clone()).or_insert_with(|| {
                names.push(home.clone());
                names.len() - 1
            });
            addresses.push(Item { address, home, before: before.get(&**key).cloned() });
        }
        let mut counts: Vec<Counts> = names
            .iter()
            .map(|name| Counts { nodes: zones.get(name).copied().unwrap_or(0), endpoints: 0 })
            .collect();
        for item in addresses.iter().filter(|item| item.address.ready) {
            counts[item.home].endpoints += 1;
        }
        Self { names, consuming, counts, addresses }
    }

    /// Ends in a placement: who serves what, in the order of the addresses.
    fn place(&self, serves: impl Iterator<Item = Serves>) -> Placement {
        let mut placement = Placement::default();
        let names = &self.names[..self.consuming];
        placement.groups.extend(names.iter().map(|name| (name.clone(), Vec::new())));
        let mut lists: Vec<Vec<Entry>> = vec![Vec::new(); self.consuming];
        for (item, serves) in self.addresses.iter().zip(serves) {
            if item.address.ready && item.before.as_ref().is_some_and(|before| *before != serves) {
                placement.reallocated += 1;
            }
            for zone in serves {
                lists[zone].extend(item.address.entries.iter().cloned());
            }
        }
        for (list, group) in lists.into_iter().zip(placement.groups.values_mut()) {
            *group = list;
        }
        placement
    }

    /// Where an endpoint goes that nobody counts: home if it is there or nowhere yet, else where it is.
    fn aside(&self, item: &Item<'_>) -> Serves {
        let home = (item.home < self.consuming).then_some(item.home);
        match item.before.as_deref().unwrap_or_default() {
            [] => vec![home.unwrap_or(0)],
            before => vec![home.filter(|home| before.contains(home)).unwrap_or(before[0])],
        }
    }
}

/// The zones each address serves now.
fn serving<'a>(
    existing: &'a [Slice],
    family: Family,
    position: &HashMap<Arc<str>, usize>,
) -> HashMap<&'a str, Serves> {
    let mut serving: HashMap<&str, Serves> = HashMap::new();
    for slice in existing.iter().filter(|slice| slice.family == family) {
        let crate::input::Role::Group(Some(zone)) = &slice.role else { continue };
        // The group of a zone that lost its last Node serves nobody.
        let Some(&zone) = position.get(zone) else { continue };
        for endpoint in &slice.endpoints {
            let serves = serving.entry(address(endpoint)).or_default();
            if let Err(place) = serves.binary_search(&zone) {
                serves.insert(place, zone);
            }
        }
    }
    serving
}

impl Divider {
    /// The groups for an approach; `None` if that is or has to be balanced.
    pub fn divide(
        &mut self,
        approach: Approach,
        offer: &Offer,
        existing: &[Slice],
        family: Family,
        zones: &ZoneNodes,
        settings: &Settings,
    ) -> Option<Placement> {
        if zones.is_empty() {
            return None;
        }
        let work = Work::new(offer, existing, family, zones);
        match approach {
            Approach::Balanced => None,
            Approach::Require => Some(require(&work)),
            Approach::Prefer => self.prefer(&work, settings),
        }
    }

    fn prefer(&mut self, work: &Work<'_>, settings: &Settings) -> Option<Placement> {
        let (previous, options) = (previous(work), settings.options());
        // What is there stays until a zone reaches the threshold.
        let plan =
            self.planner.plan_lazily(&work.counts, previous.as_ref(), settings.algorithm, &options);
        if plan.is_balanced() {
            return None;
        }
        Some(assign(work, plan))
    }
}

/// Every endpoint in its own zone's group; those of no zone serve nobody.
fn require(work: &Work<'_>) -> Placement {
    let own = |item: &Item<'_>| match item.home < work.consuming {
        true => vec![item.home],
        false => Vec::new(),
    };
    work.place(work.addresses.iter().map(own))
}

/// What is left of the groups that are there, if they are one for each zone.
fn previous(work: &Work<'_>) -> Option<Groups> {
    let mut known = false;
    let zones = work.names.len();
    let mut rows = vec![vec![0; zones]; zones];
    for item in work.addresses.iter().filter(|item| item.address.ready) {
        // One that serves several zones is half way between two groups, or shared: it counts as new.
        if let Some([zone]) = item.before.as_deref() {
            rows[*zone][item.home] += 1;
            known = true;
        }
    }
    if !known {
        return None;
    }
    let mut groups = Groups::default();
    groups.clear(zones);
    for (z, row) in rows.iter().enumerate() {
        let (composition, weight) = groups.add();
        composition.copy_from_slice(row);
        weight[z] = 1.0;
    }
    Some(groups)
}

/// Gives each address a group with room for its home: the one it is in, else the first one, own zone's
/// before others.
fn assign(work: &Work<'_>, plan: &Groups) -> Placement {
    let consumers: Vec<Serves> = plan
        .iter()
        .map(|(_, weight)| {
            let consumes = |&z: &usize| weight[z] > 0.0 && z < work.consuming;
            (0..work.names.len()).filter(consumes).collect()
        })
        .collect();
    let mut room: Vec<Vec<u32>> =
        plan.iter().map(|(composition, _)| composition.to_vec()).collect();
    let mut chosen: Vec<Option<usize>> = vec![None; work.addresses.len()];
    let ready = || work.addresses.iter().enumerate().filter(|(_, item)| item.address.ready);
    // First those that stay.
    for (i, item) in ready() {
        let Some(before) = item.before.as_ref().filter(|before| !before.is_empty()) else {
            continue;
        };
        let stays = |&g: &usize| consumers[g] == *before && room[g][item.home] > 0;
        if let Some(group) = (0..consumers.len()).find(stays) {
            room[group][item.home] -= 1;
            chosen[i] = Some(group);
        }
    }
    let mut spare = 0;
    for (i, item) in ready() {
        if chosen[i].is_some() {
            continue;
        }
        let own = consumers.iter().position(|zones| *zones == [item.home]);
        let group = own.filter(|&g| room[g][item.home] > 0);
        let group = group.or_else(|| room.iter().position(|room| room[item.home] > 0));
        if let Some(group) = group {
            room[group][item.home] -= 1;
        }
        chosen[i] = group;
    }
    work.place(work.addresses.iter().zip(chosen).map(|(item, group)| {
        let zones = group.map(|group| consumers[group].clone()).unwrap_or_default();
        if !item.address.ready {
            return work.aside(item);
        }
        if zones.is_empty() {
            // In the group of a zone without Nodes: the others get it, in turn.
            spare += 1;
            return vec![(spare - 1) % work.consuming];
        }
        zones
    }))
}

/// What groups hold while they are given up: every endpoint stays, new ones go home, and a zone left
/// without any gets some of the others.
pub fn hold(offer: &Offer, existing: &[Slice], family: Family, zones: &ZoneNodes) -> Placement {
    /// Enough for a moment.
    const LENT: usize = 100;
    let work = Work::new(offer, existing, family, zones);
    let stays = |item: &Item<'_>| match &item.before {
        Some(before) if !before.is_empty() => before.clone(),
        _ => work.aside(item),
    };
    let mut serves: Vec<Serves> = work.addresses.iter().map(stays).collect();
    for zone in 0..work.consuming {
        let is_ready = |i: &usize| work.addresses[*i].address.ready;
        let served = (0..serves.len()).filter(is_ready).any(|i| serves[i].contains(&zone));
        if !served {
            let lent: Vec<usize> = (0..serves.len()).filter(is_ready).take(LENT).collect();
            for i in lent {
                serves[i].push(zone);
                serves[i].sort_unstable();
            }
        }
    }
    work.place(serves.into_iter())
}

#[cfg(test)]
mod tests;
