//! Relabelled slices in either order, relists, watches that end.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{GRACE, Holders};
use crate::convert::{Kind, ObjectId};
use crate::watch::StreamId;

const A: StreamId = StreamId(0);
const B: StreamId = StreamId(1);

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
    let (mut holders, now) = (Holders::default(), Instant::now());
    assert!(holders.apply(A, &slice(), 1));
    holders.delete(A, &slice(), now);
    assert_eq!(holders.expire(now + GRACE / 2), []);
    assert!(holders.apply(B, &slice(), 2));
    assert_eq!(holders.expire(later(now)), []);
    assert_eq!(holders.next_deadline(), None);
}

#[test]
fn a_slice_that_moves_add_first_is_never_withdrawn() {
    let (mut holders, now) = (Holders::default(), Instant::now());
    holders.apply(A, &slice(), 1);
    assert!(holders.apply(B, &slice(), 2));
    holders.delete(A, &slice(), now);
    assert_eq!(holders.expire(later(now)), []);
}

#[test]
fn an_older_version_from_another_watch_is_no_news() {
    let mut holders = Holders::default();
    assert!(holders.apply(A, &slice(), 7));
    assert!(!holders.apply(B, &slice(), 6));
    assert!(holders.apply(B, &slice(), 7), "a relist shows the same version again");
    assert!(holders.apply(A, &slice(), 8));
}

#[test]
fn a_slice_that_is_deleted_goes_after_its_grace() {
    let (mut holders, now) = (Holders::default(), Instant::now());
    holders.apply(A, &slice(), 1);
    holders.delete(A, &slice(), now);
    assert_eq!(holders.next_deadline(), Some(now + GRACE));
    assert_eq!(holders.expire(now), []);
    assert_eq!(holders.expire(now + GRACE), [slice()]);
    assert_eq!(holders.next_deadline(), None);
}

#[test]
fn a_service_goes_at_once() {
    let (mut holders, now) = (Holders::default(), Instant::now());
    let service = id(Kind::Service, "api");
    holders.apply(A, &service, 1);
    holders.delete(A, &service, now);
    assert_eq!(holders.expire(now), [service]);
}

#[test]
fn what_a_new_list_does_not_show_is_gone() {
    let (mut holders, now) = (Holders::default(), Instant::now());
    let (kept, gone) = (id(Kind::Service, "kept"), id(Kind::Service, "gone"));
    holders.begin(A);
    holders.apply(A, &kept, 1);
    holders.apply(A, &gone, 2);
    assert!(!holders.is_complete(A));
    holders.complete(A, now);
    assert!(holders.is_complete(A));

    holders.begin(A);
    holders.apply(A, &kept, 1);
    assert!(holders.is_complete(A), "the old list holds until the new one is complete");
    assert_eq!(holders.expire(now), []);
    holders.complete(A, now);
    assert_eq!(holders.expire(now), [gone]);
}

#[test]
fn a_watch_that_ends_gives_up_only_what_nobody_else_holds() {
    let (mut holders, now) = (Holders::default(), Instant::now());
    let (shared, own) = (id(Kind::EndpointSlice, "shared"), id(Kind::EndpointSlice, "own"));
    holders.apply(A, &shared, 1);
    holders.apply(A, &own, 2);
    holders.apply(B, &shared, 1);
    holders.end(A, now);
    assert_eq!(holders.expire(later(now)), [own]);
}

#[test]
fn a_slice_that_comes_back_can_leave_again() {
    let (mut holders, now) = (Holders::default(), Instant::now());
    for round in 0..3 {
        holders.apply(A, &slice(), round);
        holders.delete(A, &slice(), now);
        holders.delete(A, &slice(), now);
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
        let (mut holders, mut now) = (Holders::default(), Instant::now());
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
                    holders.delete(StreamId(stream), &ids[which], now);
                    model[which].retain(|by| *by != stream);
                }
                _ => {
                    holders.end(StreamId(stream), now);
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
}
