//! Which watches hold an object. A slice that is relabelled leaves one watch and enters another, and the
//! two say so in either order: it is withdrawn only when nobody holds it any more, and a moment later.
//!
//! Pure: time is passed in. There is one entry per object and no set per watch, for a node has room for
//! each of tens of thousands of objects once.

use std::collections::{BTreeMap, HashMap};
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

#[derive(Debug, Default)]
struct Held {
    /// The watches that have it, and in which of their lists or after it they last said so.
    by: Vec<(StreamId, u32)>,
    version: u64,
    /// Of few at a time.
    leaving: Option<Box<(Instant, u64)>>,
}

#[derive(Debug, Default)]
struct Stream {
    /// How many lists were begun.
    lists: u32,
    complete: bool,
}

impl Holders {
    /// A stream has an object; true if this is news, false if another stream knows a newer version.
    pub(crate) fn apply(&mut self, stream: StreamId, id: &ObjectId, version: u64) -> bool {
        let list = self.streams.entry(stream).or_default().lists;
        // Not by its entry, which would take a copy of the name each time.
        if !self.objects.contains_key(id) {
            self.objects.insert(id.clone(), Held::default());
        }
        let Some(held) = self.objects.get_mut(id) else { return false };
        match held.by.iter_mut().find(|(by, _)| *by == stream) {
            Some((_, last)) => *last = list,
            None => {
                held.by.reserve_exact(1);
                held.by.push((stream, list));
            }
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
        let Some(held) = self.objects.get_mut(id) else { return };
        held.by.retain(|(by, _)| *by != stream);
        if held.by.is_empty() && held.leaving.is_none() {
            // Only slices move between watches.
            let grace = if id.kind == Kind::EndpointSlice { GRACE } else { Duration::ZERO };
            let when = (now + grace, self.next);
            self.next += 1;
            held.leaving = Some(Box::new(when));
            self.leaving.insert(when, id.clone());
        }
    }

    /// A stream begins to list.
    pub(crate) fn begin(&mut self, stream: StreamId) {
        self.streams.entry(stream).or_default().lists += 1;
    }

    /// A stream's list is complete: what it held and did not list is gone.
    pub(crate) fn complete(&mut self, stream: StreamId, now: Instant) {
        let state = self.streams.entry(stream).or_default();
        state.complete = true;
        let list = state.lists;
        self.delete_all(stream, now, |last| last != list);
    }

    /// Whether a stream has listed everything at least once.
    pub(crate) fn is_complete(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|state| state.complete)
    }

    /// A stream has ended: it holds nothing any more.
    pub(crate) fn end(&mut self, stream: StreamId, now: Instant) {
        self.streams.remove(&stream);
        self.delete_all(stream, now, |_| true);
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

    /// Deletes what a stream has, by the list it last said so in.
    fn delete_all(&mut self, stream: StreamId, now: Instant, which: impl Fn(u32) -> bool) {
        let has = |held: &Held| held.by.iter().any(|(by, last)| *by == stream && which(*last));
        let gone = self.objects.iter().filter(|(_, held)| has(held)).map(|(id, _)| id.clone());
        for id in gone.collect::<Vec<ObjectId>>() {
            self.delete(stream, &id, now);
        }
    }
}

#[cfg(test)]
mod tests;
