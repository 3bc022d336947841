//! Which watches hold an object. A slice that is relabelled leaves one watch and enters another, and the
//! two say so in either order: it is withdrawn only when nobody holds it any more.
//!
//! That is certain once every watch of its kind has come as far as any of them had when nobody held it:
//! the server tells each of them everything in order of its versions. Where there is no other watch it is
//! certain at once. Where another one has nothing to tell for a while, [`GRACE`] has to do.
//!
//! Pure: time is passed in. There is one entry per object and no set per watch, for a node has room for
//! each of tens of thousands of objects once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use foldhash::HashMap;

use crate::convert::{Kind, ObjectId};
use crate::watch::StreamId;

/// How long a slice that no watch holds stays, in case another watch is about to say it has it.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

/// The version of a server that does not number them: nothing is known of its order.
const UNKNOWN: u64 = u64::MAX;

/// Who holds what.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    objects: HashMap<ObjectId, Held>,
    streams: BTreeMap<StreamId, Stream>,
    /// Objects nobody holds, by when they are withdrawn at the latest.
    leaving: BTreeMap<(Instant, u64), Leaving>,
    next: u64,
}

#[derive(Debug)]
struct Held {
    version: u64,
    by: By,
}

/// A watch that has an object, and in which of its lists or after it it last said so.
type Holding = (StreamId, u32);

/// The watches that have an object. Hardly ever other than one, and only that takes no room of its own.
#[derive(Debug)]
#[expect(clippy::box_collection, reason = "a list in place would make all of them larger")]
enum By {
    One(Holding),
    /// At least two.
    Several(Box<Vec<Holding>>),
    /// It is leaving, and this is its place among those.
    Nobody(Box<(Instant, u64)>),
}

impl By {
    fn all(&self) -> &[Holding] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(all) => all,
            Self::Nobody(_) => &[],
        }
    }

    /// A watch has it; gives its place among those that are leaving, if it had one.
    fn set(&mut self, stream: StreamId, list: u32) -> Option<(Instant, u64)> {
        match self {
            Self::One((by, last)) if *by == stream => *last = list,
            Self::One(one) => *self = Self::Several(Box::new(vec![*one, (stream, list)])),
            Self::Several(all) => match all.iter_mut().find(|(by, _)| *by == stream) {
                Some((_, last)) => *last = list,
                None => all.push((stream, list)),
            },
            Self::Nobody(place) => {
                let place = **place;
                *self = Self::One((stream, list));
                return Some(place);
            }
        }
        None
    }

    /// A watch does not have it; true if it was the only one that did.
    fn remove(&mut self, stream: StreamId) -> bool {
        match self {
            Self::One((by, _)) => *by == stream,
            Self::Several(all) => {
                all.retain(|(by, _)| *by != stream);
                if let [one] = all[..] {
                    *self = Self::One(one);
                }
                false
            }
            Self::Nobody(_) => false,
        }
    }
}

#[derive(Debug)]
struct Leaving {
    id: ObjectId,
    /// Who was the last to have it.
    from: StreamId,
    /// Whoever has told everything up to this version will not say any more that it moved.
    until: u64,
}

#[derive(Debug)]
struct Stream {
    kind: Kind,
    /// How many lists were begun.
    lists: u32,
    listing: bool,
    complete: bool,
    /// It has told everything up to this version.
    told: u64,
}

impl Holders {
    /// A watch of this kind starts.
    pub(crate) fn start(&mut self, stream: StreamId, kind: Kind) {
        let state = Stream { kind, lists: 0, listing: false, complete: false, told: 0 };
        self.streams.insert(stream, state);
    }

    /// A stream has an object; true if this is news, false if another stream knows a newer version. What one
    /// alone has and lists again counts whatever its version: after a restore from a backup they go back.
    pub(crate) fn apply(&mut self, stream: StreamId, id: &ObjectId, version: u64) -> bool {
        self.told(stream, version);
        let state = self.streams.get(&stream);
        let (list, listing) = state.map_or((0, false), |state| (state.lists, state.listing));
        // Not by its entry, which would take a copy of the name each time.
        let Some(held) = self.objects.get_mut(id) else {
            self.objects.insert(id.clone(), Held { version, by: By::One((stream, list)) });
            return true;
        };
        let alone = matches!(held.by, By::One((by, _)) if by == stream);
        if let Some(place) = held.by.set(stream, list) {
            self.leaving.remove(&place);
        }
        let news = version >= held.version || (alone && listing);
        if news {
            held.version = version;
        }
        news
    }

    /// A stream no longer has an object since this version.
    pub(crate) fn delete(&mut self, stream: StreamId, id: &ObjectId, version: u64, now: Instant) {
        self.told(stream, version);
        let Some(held) = self.objects.get_mut(id) else { return };
        if held.by.remove(stream) {
            let place = (now + GRACE, self.next);
            self.next += 1;
            held.by = By::Nobody(Box::new(place));
            // Another watch may have had it later than this one, and be ahead.
            let told = self.streams.values().filter(|s| s.kind == id.kind).map(|s| s.told);
            let until = told.fold(version, u64::max);
            self.leaving.insert(place, Leaving { id: id.clone(), from: stream, until });
        }
    }

    /// A stream begins to list.
    pub(crate) fn begin(&mut self, stream: StreamId) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.lists += 1;
            state.listing = true;
        }
    }

    /// A stream's list of this version is complete: what it held and did not list is gone.
    pub(crate) fn complete(&mut self, stream: StreamId, version: u64, now: Instant) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        state.listing = false;
        state.complete = true;
        if version != UNKNOWN {
            state.told = version;
        }
        let list = state.lists;
        self.delete_all(stream, version, now, |last| last != list);
    }

    /// A stream has told everything up to a version. In a list that is so only at its end.
    pub(crate) fn told(&mut self, stream: StreamId, version: u64) {
        if let Some(state) = self.streams.get_mut(&stream)
            && !state.listing
            && version != UNKNOWN
        {
            state.told = state.told.max(version);
        }
    }

    /// Whether a stream has listed everything at least once.
    pub(crate) fn is_complete(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|state| state.complete)
    }

    /// A stream has ended: it holds nothing any more.
    pub(crate) fn end(&mut self, stream: StreamId, now: Instant) {
        // What is true since it last said something.
        let told = self.streams.remove(&stream).map_or(UNKNOWN, |state| state.told);
        self.delete_all(stream, told, now, |_| true);
    }

    /// The objects to withdraw now.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<ObjectId> {
        let goes = |when: &Instant, leaving: &Leaving| *when <= now || self.is_certain(leaving);
        let due = self.leaving.iter().filter(|((when, _), leaving)| goes(when, leaving));
        let due: Vec<(Instant, u64)> = due.map(|(when, _)| *when).collect();
        let gone = due.iter().filter_map(|when| Some(self.leaving.remove(when)?.id));
        let gone: Vec<ObjectId> = gone.collect();
        for id in &gone {
            self.objects.remove(id);
        }
        gone
    }

    /// When the next object is withdrawn at the latest.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.leaving.keys().next().map(|(when, _)| *when)
    }

    /// Every watch that could have it by now would have said so.
    fn is_certain(&self, Leaving { id, from, until }: &Leaving) -> bool {
        let mut of_kind = self.streams.iter().filter(|(_, state)| state.kind == id.kind);
        let alone = of_kind.clone().all(|(stream, _)| stream == from);
        alone || of_kind.all(|(_, state)| state.told >= *until)
    }

    /// Deletes what a stream has, by the list it last said so in.
    fn delete_all(
        &mut self,
        stream: StreamId,
        version: u64,
        now: Instant,
        which: impl Fn(u32) -> bool,
    ) {
        let has =
            |held: &Held| held.by.all().iter().any(|(by, last)| *by == stream && which(*last));
        let gone = self.objects.iter().filter(|(_, held)| has(held)).map(|(id, _)| id.clone());
        for id in gone.collect::<Vec<ObjectId>>() {
            self.delete(stream, &id, version, now);
        }
    }
}

#[cfg(test)]
mod tests;
