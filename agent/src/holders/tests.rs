//! Relabelled slices in either order, relists, watches that end.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{GRACE, Held, Holders, UNKNOWN};
use crate::convert::{Kind, ObjectId};
use crate::watch::StreamId;

const A: StreamId = StreamId(0);
const B: StreamId = StreamId(1);

/// Two watches of slices.
fn holders() -> Holders {
    let mut holders = Holders::default();
    holders.start(A, Kind::EndpointSlice);
    holders.start(B, Kind::EndpointSlice);
    holders
}

fn id(kind: Kind, name: &str) -> ObjectId {
    ObjectId { kind, namespace: "web".into(), name: name.into() }
}

fn slice() -> ObjectId {
    id(Kind::EndpointSlice, "api-1")
}

/// Long after every grace.
fn later(now: Instant) -> Instant {
    now + Duration::from_secs(60)
}

#[test]
fn a_slice_that_moves_delete_first_is_never_withdrawn() {
    let (mut holders, now) = (holders(), Instant::now());
    assert!(holders.apply(A, &slice(), 1));
    holders.delete(A, &slice(), 2, now);
    assert_eq!(holders.expire(now + GRACE / 2), []);
    assert!(holders.apply(B, &slice(), 2));
    assert_eq!(holders.expire(later(now)), []);
    assert_eq!(holders.next_deadline(), None);
}

#[test]
fn a_slice_that_moves_add_first_is_never_withdrawn() {
    let (mut holders, now) = (holders(), Instant::now());
    holders.apply(A, &slice(), 1);
    assert!(holders.apply(B, &slice(), 2));
    holders.delete(A, &slice(), 2, now);
    assert_eq!(holders.expire(later(now)), []);
}

#[test]
fn an_older_version_from_another_watch_is_no_news() {
    let mut holders = holders();
    assert!(holders.apply(A, &slice(), 7));
    assert!(!holders.apply(B, &slice(), 6));
    assert!(holders.apply(B, &slice(), 7), "a relist shows the same version again");
    assert!(holders.apply(A, &slice(), 8));
}

#[test]
fn after_a_restore_from_a_backup_what_is_listed_again_counts() {
    let (mut holders, now) = (holders(), Instant::now());
    for stream in [A, B] {
        holders.begin(stream);
        holders.complete(stream, 950, now);
    }
    assert!(holders.apply(A, &slice(), 960));
    assert!(!holders.apply(A, &slice(), 480), "not by a watch, which goes on from there");
    holders.begin(A);
    assert!(holders.apply(A, &slice(), 480));
    holders.complete(A, 500, now);
    assert!(holders.apply(A, &slice(), 510));
    // The other one has listed again too, and must not be thought to be ahead.
    holders.begin(B);
    holders.complete(B, 505, now);
    holders.delete(A, &slice(), 520, now);
    assert_eq!(holders.expire(now), []);
    assert!(holders.apply(B, &slice(), 520), "it moved");
    assert_eq!(holders.expire(later(now)), []);
}

#[test]
fn a_slice_that_is_deleted_goes_after_its_grace_while_another_watch_is_silent() {
    let (mut holders, now) = (holders(), Instant::now());
    holders.apply(A, &slice(), 1);
    holders.delete(A, &slice(), 2, now);
    assert_eq!(holders.next_deadline(), Some(now + GRACE));
    assert_eq!(holders.expire(now), []);
    assert_eq!(holders.expire(now + GRACE), [slice()]);
    assert_eq!(holders.next_deadline(), None);
}

#[test]
fn a_slice_that_is_deleted_goes_once_the_other_watches_have_come_as_far() {
    let (mut holders, now) = (holders(), Instant::now());
    holders.apply(A, &slice(), 1);
    holders.delete(A, &slice(), 5, now);
    holders.apply(B, &id(Kind::EndpointSlice, "other"), 4);
    assert_eq!(holders.expire(now), [], "it may be about to say that it has it");
    holders.begin(B);
    holders.apply(B, &id(Kind::EndpointSlice, "other"), 9);
    assert_eq!(holders.expire(now), [], "nor does a part of a list tell of the rest");
    holders.apply(B, &id(Kind::EndpointSlice, "other"), 9);
    holders.complete(B, 9, now);
    assert_eq!(holders.expire(now), [slice()]);

    holders.apply(A, &slice(), 10);
    holders.delete(A, &slice(), 11, now);
    assert_eq!(holders.expire(now), []);
    holders.told(B, 11);
    assert_eq!(holders.expire(now), [slice()]);
    assert_eq!(holders.next_deadline(), None);
}

#[test]
fn a_slice_goes_at_once_where_no_other_watch_could_have_it() {
    let (mut holders, now) = (Holders::default(), Instant::now());
    holders.start(A, Kind::EndpointSlice);
    holders.start(B, Kind::Service);
    holders.apply(A, &slice(), 1);
    holders.delete(A, &slice(), 2, now);
    assert_eq!(holders.expire(now), [slice()]);
}

#[test]
fn without_numbered_versions_nothing_is_certain() {
    let (mut holders, now) = (holders(), Instant::now());
    holders.apply(A, &slice(), UNKNOWN);
    holders.apply(B, &id(Kind::EndpointSlice, "other"), UNKNOWN);
    holders.delete(A, &slice(), UNKNOWN, now);
    holders.told(B, UNKNOWN);
    assert_eq!(holders.expire(now), []);
    assert_eq!(holders.expire(now + GRACE), [slice()]);
}

#[test]
fn a_service_goes_at_once() {
    let (mut holders, now) = (Holders::default(), Instant::now());
    holders.start(A, Kind::Service);
    let service = id(Kind::Service, "api");
    holders.apply(A, &service, 1);
    holders.delete(A, &service, UNKNOWN, now);
    assert_eq!(holders.expire(now), [service]);
}

#[test]
fn what_a_new_list_does_not_show_is_gone() {
    let (mut holders, now) = (holders(), Instant::now());
    holders.start(A, Kind::Service);
    let (kept, gone) = (id(Kind::Service, "kept"), id(Kind::Service, "gone"));
    holders.begin(A);
    holders.apply(A, &kept, 1);
    holders.apply(A, &gone, 2);
    assert!(!holders.is_complete(A));
    holders.complete(A, 3, now);
    assert!(holders.is_complete(A));

    holders.begin(A);
    holders.apply(A, &kept, 1);
    assert!(holders.is_complete(A), "the old list holds until the new one is complete");
    assert_eq!(holders.expire(now), []);
    holders.complete(A, 4, now);
    assert_eq!(holders.expire(now), [gone]);
}

#[test]
fn a_watch_that_ends_gives_up_only_what_nobody_else_holds() {
    let (mut holders, now) = (holders(), Instant::now());
    let (shared, own) = (id(Kind::EndpointSlice, "shared"), id(Kind::EndpointSlice, "own"));
    holders.apply(A, &shared, 1);
    holders.apply(A, &own, 2);
    holders.apply(B, &shared, 1);
    holders.end(A, now);
    assert_eq!(holders.expire(later(now)), [own]);
}

#[test]
fn a_slice_that_comes_back_can_leave_again() {
    let (mut holders, now) = (holders(), Instant::now());
    for round in 0..3 {
        holders.apply(A, &slice(), round);
        holders.delete(A, &slice(), round, now);
        holders.delete(A, &slice(), round, now);
    }
    assert_eq!(holders.expire(later(now)), [slice()]);
    assert_eq!(holders.expire(later(now)), []);
}

proptest! {
    /// Whatever two watches say in whatever order: in the end an object is withdrawn exactly if nobody
    /// holds it.
    #[test]
    fn in_the_end_an_object_is_there_exactly_if_somebody_holds_it(
        steps in proptest::collection::vec((0u32..3, 0usize..3, 0u8..5), 0..60),
    ) {
        let ids = ["x", "y", "z"].map(|name| id(Kind::EndpointSlice, name));
        let (mut holders, mut now) = (holders(), Instant::now());
        let mut model: [Vec<u32>; 3] = Default::default();
        let mut present = [false; 3];
        for (version, (stream, which, what)) in (1..).zip(steps) {
            now += Duration::from_millis(100);
            match what {
                0..3 => {
                    holders.apply(StreamId(stream), &ids[which], version);
                    if !model[which].contains(&stream) {
                        model[which].push(stream);
                    }
                    present[which] = true;
                }
                3 => {
                    holders.delete(StreamId(stream), &ids[which], version, now);
                    model[which].retain(|by| *by != stream);
                }
                _ => {
                    holders.end(StreamId(stream), now);
                    holders.start(StreamId(stream), Kind::EndpointSlice);
                    model.iter_mut().for_each(|by| by.retain(|by| *by != stream));
                }
            }
            for gone in holders.expire(now) {
                let which = ids.iter().position(|id| *id == gone).unwrap();
                prop_assert!(model[which].is_empty(), "withdrawn while held");
                prop_assert!(present[which], "withdrawn twice");
                present[which] = false;
            }
        }
        for gone in holders.expire(later(now)) {
            present[ids.iter().position(|id| *id == gone).unwrap()] = false;
        }
        prop_assert_eq!(present, model.map(|by| !by.is_empty()));
    }

    /// However far one watch is ahead of another: an object that only ever moves between them is never
    /// withdrawn before its grace is over.
    #[test]
    fn an_object_that_moves_is_never_taken_for_deleted(
        moves in proptest::collection::vec(any::<bool>(), 1..20),
        mut turns in proptest::collection::vec(any::<bool>(), 0..60),
    ) {
        let (mut holders, now) = (holders(), Instant::now());
        holders.apply(A, &slice(), 1);
        // What the server tells each of the two, in order; true is "has it now".
        let mut told: [Vec<(u64, Option<bool>)>; 2] = Default::default();
        let mut at = 0;
        for (version, moves) in (2..).zip(moves) {
            if moves {
                told[at].push((version, Some(false)));
                at = 1 - at;
                told[at].push((version, Some(true)));
            } else {
                // Something else changes.
                told[usize::from(version % 3 == 0)].push((version, None));
            }
        }
        turns.extend(std::iter::repeat_n(false, 60).chain(std::iter::repeat_n(true, 60)));
        for second in turns {
            let (stream, events) = if second { (B, &mut told[1]) } else { (A, &mut told[0]) };
            if events.is_empty() {
                continue;
            }
            match events.remove(0) {
                (version, Some(true)) => drop(holders.apply(stream, &slice(), version)),
                (version, Some(false)) => holders.delete(stream, &slice(), version, now),
                (version, None) => holders.told(stream, version),
            }
            prop_assert_eq!(holders.expire(now), []);
        }
    }
}

#[test]
fn an_object_takes_64_bytes_beside_its_name() {
    assert_eq!(size_of::<(ObjectId, Held)>(), 64);
}
