//! Which watches hold an object. A slice that is relabelled leaves one watch and enters another, and the
//! two say so in either order: it is withdrawn only when nobody holds it any more, and a moment later.
//!
//! Pure: time is passed in.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::convert::{Kind, ObjectId};
use crate::watch::StreamId;

/// How long a slice that no watch holds stays, in case another watch is about to say it has it.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

/// Who holds what.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    objects: HashMap<ObjectId, Held>,
    streams: BTreeMap<StreamId, Stream>,
    /// Objects nobody holds, by when they are withdrawn.
    leaving: BTreeMap<(Instant, u64), ObjectId>,
    next: u64,
}

#[derive(Debug)]
struct Held {
    by: Vec<StreamId>,
    version: u64,
    leaving: Option<(Instant, u64)>,
}

#[derive(Debug, Default)]
struct Stream {
    holds: HashSet<ObjectId>,
    /// What a list under way has shown so far.
    listing: Option<HashSet<ObjectId>>,
    complete: bool,
}

impl Holders {
    /// A stream has an object; true if this is news, false if another stream knows a newer version.
    pub(crate) fn apply(&mut self, stream: StreamId, id: &ObjectId, version: u64) -> bool {
        let state = self.streams.entry(stream).or_default();
        state.holds.insert(id.clone());
        if let Some(listing) = &mut state.listing {
            listing.insert(id.clone());
        }
        let held = self.objects.entry(id.clone()).or_insert(Held {
            by: Vec::new(),
            version: 0,
            leaving: None,
        });
        if !held.by.contains(&stream) {
            held.by.push(stream);
        }
        if let Some(when) = held.leaving.take() {
            self.leaving.remove(&when);
        }
        let news = version >= held.version;
        held.version = held.version.max(version);
        news
    }

    /// A stream no longer has an object.
    pub(crate) fn delete(&mut self, stream: StreamId, id: &ObjectId, now: Instant) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.holds.remove(id);
        }
        let Some(held) = self.objects.get_mut(id) else { return };
        held.by.retain(|by| *by != stream);
        if held.by.is_empty() && held.leaving.is_none() {
            // Only slices move between watches.
            let grace = if id.kind == Kind::EndpointSlice { GRACE } else { Duration::ZERO };
            let when = (now + grace, self.next);
            self.next += 1;
            held.leaving = Some(when);
            self.leaving.insert(when, id.clone());
        }
    }

    /// A stream begins to list.
    pub(crate) fn begin(&mut self, stream: StreamId) {
        self.streams.entry(stream).or_default().listing = Some(HashSet::new());
    }

    /// A stream's list is complete: what it held and did not list is gone.
    pub(crate) fn complete(&mut self, stream: StreamId, now: Instant) {
        let state = self.streams.entry(stream).or_default();
        state.complete = true;
        let listed = state.listing.take().unwrap_or_default();
        let gone: Vec<ObjectId> = state.holds.difference(&listed).cloned().collect();
        for id in gone {
            self.delete(stream, &id, now);
        }
    }

    /// Whether a stream has listed everything at least once.
    pub(crate) fn is_complete(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|state| state.complete)
    }

    /// A stream has ended: it holds nothing any more.
    pub(crate) fn end(&mut self, stream: StreamId, now: Instant) {
        let holds = self.streams.remove(&stream).map(|state| state.holds).unwrap_or_default();
        for id in holds {
            self.delete(stream, &id, now);
        }
    }

    /// The objects to withdraw now.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<ObjectId> {
        let mut gone = Vec::new();
        while let Some(entry) = self.leaving.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let id = entry.remove();
            self.objects.remove(&id);
            gone.push(id);
        }
        gone
    }

    /// When the next object is withdrawn.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.leaving.keys().next().map(|(when, _)| *when)
    }
}

#[cfg(test)]
mod tests;
