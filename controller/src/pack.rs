//! Endpoints into slices with as few writes as possible.
//!
//! For each group, that is endpoints of one zone, family and set of ports:
//!
//! 1. What is no longer wanted leaves its slice; what changed is changed in place.
//! 2. Slices that change anyway are filled up with what is new.
//! 3. What is left goes into one unchanged slice if it fits there as a whole, else into new ones: one
//!    create is better than several updates.
//! 4. If less than a quarter of a group's room is used, its slices are merged.
//!
//! A slice nobody needs is deleted, or used again where another of the same zone and family would be
//! made. Unchanged slices are never written. Pure; the order of the result is part of it: applied one
//! after the other, no zone is ever without the ready endpoints that it has before and after.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use zw_model::Family;

use crate::input::{Endpoint, Ports, Role, Slice, address, is_ready};

/// Whom slices are for: a zone, or everyone.
pub type Audience = Option<Arc<str>>;

/// The endpoints of a family that go to a zone.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// By ports, in the order of addresses.
    pub by_ports: BTreeMap<Arc<Ports>, Vec<Arc<Endpoint>>>,
    /// Without endpoints there is a slice all the same, with these ports.
    pub placeholder: Option<Arc<Ports>>,
}

/// All slices a Service is to have.
pub type Desired = BTreeMap<(Audience, Family), Wanted>;

/// What a slice is to hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// Whom it is for.
    pub audience: Audience,
    /// Its address type.
    pub family: Family,
    /// Its ports.
    pub ports: Arc<Ports>,
    /// Its endpoints.
    pub endpoints: Vec<Arc<Endpoint>>,
}

/// A slice that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub name: Arc<str>,
    /// Which of all that ever had this name.
    pub uid: String,
    /// In which version it was seen.
    pub version: String,
}

impl Target {
    fn of(slice: &Slice) -> Self {
        Self { name: slice.name.clone(), uid: slice.uid.clone(), version: slice.version.clone() }
    }
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum SliceWrite {
    /// A new slice.
    Create(Content),
    /// Another content for one that is there.
    Update(Target, Content),
    /// One goes.
    Delete(Target, Audience),
}

impl SliceWrite {
    /// Whom the slice is for.
    pub fn audience(&self) -> &Audience {
        match self {
            Self::Create(content) | Self::Update(_, content) => &content.audience,
            Self::Delete(_, audience) => audience,
        }
    }

    /// Whether it only takes away.
    pub fn is_delete(&self) -> bool {
        matches!(self, Self::Delete(..))
    }
}

/// When a write's turn comes.
type Rank = (u8, usize);

/// The writes that lead from the slices that are there to those that are wanted.
pub fn pack(desired: &Desired, existing: &[&Slice], capacity: usize) -> Vec<SliceWrite> {
    let capacity = capacity.max(1);
    let mut there: BTreeMap<(Audience, Family), Vec<&Slice>> = BTreeMap::new();
    for &slice in existing {
        there.entry((audience(slice), slice.family)).or_default().push(slice);
    }
    let mut ranked: Vec<(Rank, SliceWrite)> = Vec::new();
    let none = Wanted::default();
    let keys: BTreeSet<_> = desired.keys().chain(there.keys()).collect();
    for key in keys {
        let wanted = desired.get(key).unwrap_or(&none);
        let slices = there.get(key).map_or(&[][..], Vec::as_slice);
        pack_zone(key, wanted, slices, capacity, &mut ranked);
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, write)| write).collect()
}

fn audience(slice: &Slice) -> Audience {
    match &slice.role {
        Role::Group(zone) => zone.clone(),
        _ => None,
    }
}

/// One slice on its way from what it is to what it will be.
struct Draft<'a> {
    old: Option<&'a Slice>,
    endpoints: Vec<Arc<Endpoint>>,
    changed: bool,
}

fn pack_zone(
    key: &(Audience, Family),
    wanted: &Wanted,
    slices: &[&Slice],
    capacity: usize,
    ranked: &mut Vec<(Rank, SliceWrite)>,
) {
    let content = |ports: &Arc<Ports>, endpoints| Content {
        audience: key.0.clone(),
        family: key.1,
        ports: ports.clone(),
        endpoints,
    };
    let (mut unused, mut creates) = (Vec::new(), Vec::new());
    let by_ports = wanted.by_ports.iter().filter(|(_, endpoints)| !endpoints.is_empty());
    let mut of_ports: HashMap<&Ports, Vec<&Slice>> = HashMap::new();
    for &slice in slices {
        of_ports.entry(&slice.ports).or_default().push(slice);
    }
    for (ports, endpoints) in by_ports {
        let mut slices = of_ports.remove(&**ports).unwrap_or_default();
        slices.sort_by(|a, b| a.name.cmp(&b.name));
        for draft in pack_ports(&slices, endpoints, capacity) {
            match draft.old {
                None if draft.endpoints.is_empty() => {}
                None => creates.push(content(ports, draft.endpoints)),
                Some(old) if draft.endpoints.is_empty() => unused.push(old),
                Some(old) if draft.changed => {
                    ranked.push(update(old, content(ports, draft.endpoints)));
                }
                Some(_) => {}
            }
        }
    }
    unused.extend(of_ports.into_values().flatten());
    // An empty one can stay as it is, so those come last, where a placeholder is taken from.
    unused
        .sort_by(|a, b| (a.endpoints.is_empty(), &a.name).cmp(&(b.endpoints.is_empty(), &b.name)));
    let nothing = wanted.by_ports.values().all(Vec::is_empty);
    if let Some(ports) = wanted.placeholder.as_ref().filter(|_| nothing) {
        match unused.pop() {
            None => creates.push(content(ports, Vec::new())),
            Some(old) if old.endpoints.is_empty() => {}
            Some(old) => {
                ranked.push(update(old, content(&Arc::new(old.ports.clone()), Vec::new())));
            }
        }
    }
    for content in creates {
        match unused.pop() {
            Some(old) => ranked.push(update(old, content)),
            None => ranked.push(create(content)),
        }
    }
    ranked.extend(unused.into_iter().map(|old| {
        // The other way round, for the same reason.
        let ready = old.endpoints.iter().filter(|endpoint| is_ready(endpoint)).count();
        ((4, ready), SliceWrite::Delete(Target::of(old), key.0.clone()))
    }));
}

/// Of a zone that gets its first slices, those with ready endpoints first: an agent with nothing but
/// others would have nothing, one without any has the default slices.
fn create(content: Content) -> (Rank, SliceWrite) {
    let ready = content.endpoints.iter().filter(|endpoint| is_ready(endpoint)).count();
    ((0, usize::MAX - ready), SliceWrite::Create(content))
}

/// Those that only add come first, then those that replace, then those that only take away.
fn update(old: &Slice, content: Content) -> (Rank, SliceWrite) {
    let ready = |endpoints: &[Arc<Endpoint>]| -> BTreeSet<String> {
        let ready = endpoints.iter().filter(|endpoint| is_ready(endpoint));
        ready.map(|endpoint| address(endpoint).to_owned()).collect()
    };
    let (before, after) = (ready(&old.endpoints), ready(&content.endpoints));
    let rank = match (after.is_subset(&before), before.is_subset(&after)) {
        (_, true) => 1,
        (false, false) => 2,
        (true, false) => 3,
    };
    ((rank, 0), SliceWrite::Update(Target::of(old), content))
}

fn pack_ports<'a>(
    slices: &[&'a Slice],
    endpoints: &[Arc<Endpoint>],
    capacity: usize,
) -> Vec<Draft<'a>> {
    let mut wanted: HashMap<&str, &Arc<Endpoint>> =
        endpoints.iter().map(|endpoint| (address(endpoint), endpoint)).collect();
    // Step 1.
    let mut drafts: Vec<Draft<'a>> = Vec::with_capacity(slices.len());
    for slice in slices {
        let mut draft = Draft { old: Some(slice), endpoints: Vec::new(), changed: false };
        for endpoint in &slice.endpoints {
            let full = draft.endpoints.len() == capacity;
            match wanted.remove(address(endpoint)).filter(|_| !full) {
                Some(wanted) => {
                    draft.changed |= wanted != endpoint;
                    draft.endpoints.push(wanted.clone());
                }
                None => draft.changed = true,
            }
        }
        drafts.push(draft);
    }
    // What a slice had no room for was taken out of `wanted` and is in no draft: not to be lost.
    let placed: std::collections::HashSet<&str> = drafts
        .iter()
        .flat_map(|draft| &draft.endpoints)
        .map(|endpoint| address(endpoint))
        .collect();
    let fresh: Vec<Arc<Endpoint>> =
        endpoints.iter().filter(|endpoint| !placed.contains(address(endpoint))).cloned().collect();
    let mut fresh = fresh.into_iter().peekable();

    // Step 2, the fullest first: one that was emptied may then be deleted.
    let mut changed: Vec<usize> = (0..drafts.len()).filter(|&i| drafts[i].changed).collect();
    changed.sort_by_key(|&i| std::cmp::Reverse(drafts[i].endpoints.len()));
    for i in changed {
        let room = capacity - drafts[i].endpoints.len();
        drafts[i].endpoints.extend(fresh.by_ref().take(room));
    }
    // Step 3.
    let mut left: Vec<Arc<Endpoint>> = fresh.collect();
    while left.len() >= capacity {
        let rest = left.split_off(capacity);
        drafts.push(Draft {
            old: None,
            endpoints: std::mem::replace(&mut left, rest),
            changed: true,
        });
    }
    if !left.is_empty() {
        let fits = |draft: &&mut Draft<'_>| {
            draft.old.is_some() && draft.endpoints.len() + left.len() <= capacity
        };
        match drafts.iter_mut().filter(fits).max_by_key(|draft| draft.endpoints.len()) {
            Some(draft) => {
                draft.endpoints.append(&mut left);
                draft.changed = true;
            }
            None => drafts.push(Draft { old: None, endpoints: left, changed: true }),
        }
    }
    merge(&mut drafts, endpoints.len(), capacity);
    drafts
}

/// Step 4: the emptiest slices move into the fullest.
fn merge(drafts: &mut [Draft<'_>], endpoints: usize, capacity: usize) {
    let used = drafts.iter().filter(|draft| !draft.endpoints.is_empty()).count();
    let needed = endpoints.div_ceil(capacity);
    if used <= needed || endpoints * 4 >= used * capacity {
        return;
    }
    drafts.sort_by_key(|draft| std::cmp::Reverse(draft.endpoints.len()));
    let (full, empty) = drafts.split_at_mut(needed);
    let mut moving: Vec<Arc<Endpoint>> = Vec::new();
    for draft in empty {
        moving.append(&mut draft.endpoints);
        draft.changed = true;
    }
    let mut moving = moving.into_iter().peekable();
    for draft in full {
        let room = capacity - draft.endpoints.len();
        if room > 0 && moving.peek().is_some() {
            draft.endpoints.extend(moving.by_ref().take(room));
            draft.changed = true;
        }
    }
}

#[cfg(test)]
mod tests;
