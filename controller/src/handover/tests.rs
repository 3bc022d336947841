use std::sync::Arc;

use zw_model::Family;

use super::*;
use crate::pack::Wanted;
use crate::testing::{endpoint, http, service, slice};

fn groups(zones: &[&str]) -> Desired {
    let wanted = |zone: &str| Wanted {
        by_ports: [(http(), vec![Arc::new(endpoint("10.0.0.1", zone, true))])].into(),
        placeholder: None,
    };
    zones.iter().map(|&zone| ((Some(zone.into()), Family::V4), wanted(zone))).collect()
}

fn published(zones: &[&str]) -> Vec<Slice> {
    let group = |&zone: &&str| slice(zone, Some(zone), &[endpoint("10.0.0.1", zone, true)]);
    zones.iter().map(group).collect()
}

fn divided(zones: &[&str]) -> Goal {
    let (approach, why) = (Approach::Prefer, Why::Asked);
    let zones_of = zones.iter().map(|&zone| zone.into()).collect();
    Goal::Divided { approach, why, groups: groups(zones), zones: zones_of }
}

fn in_force(zones: &str) -> Service {
    let mut service = service(&[(names::APPROACH, "Prefer"), (names::REASON, "as annotated")]);
    service.zones = split(zones);
    service
}

fn split(zones: &str) -> LabelledZones {
    zones.split(',').filter(|zone| !zone.is_empty()).map(Arc::from).collect()
}

fn step(goal: &Goal, service: &Service, groups: &[Slice], hidden: &str, settled: &str) -> Step {
    let groups: Vec<&Slice> = groups.iter().collect();
    let settled = (!settled.is_empty()).then_some(settled);
    next(goal, &Present { service, groups: &groups, hidden: &split(hidden), settled }, 100)
}

fn labels(zones: &[(&str, bool)]) -> BTreeMap<Arc<str>, bool> {
    zones.iter().map(|(zone, labelled)| ((*zone).into(), *labelled)).collect()
}

#[test]
fn groups_come_first_then_time_to_see_them_then_the_labels() {
    let goal = divided(&["a", "b"]);
    let before = service(&[]);
    let first = step(&goal, &before, &[], "", "");
    assert!(matches!(&first, Step::Slices(writes) if writes.len() == 2), "{first:?}");
    let groups = published(&["a", "b"]);
    assert_eq!(step(&goal, &before, &groups, "", ""), Step::Settle("a,b".into()));
    assert_eq!(step(&goal, &before, &groups, "", "a"), Step::Settle("a,b".into()));
    let mark = ServicePatch {
        zones: labels(&[("a", true), ("b", true)]),
        annotations: [
            (names::APPROACH, Some("Prefer".into())),
            (names::REASON, Some("as annotated".into())),
        ]
        .into(),
    };
    assert_eq!(step(&goal, &before, &groups, "", "a,b"), Step::Service(mark));
    assert_eq!(step(&goal, &in_force("a,b"), &groups, "a,b", ""), Step::Done);
}

#[test]
fn a_new_zone_is_labelled_when_its_group_has_been_seen() {
    let goal = divided(&["a", "b", "c"]);
    let service = in_force("a,b");
    let first = step(&goal, &service, &published(&["a", "b"]), "a,b", "");
    assert!(matches!(&first, Step::Slices(writes) if writes.len() == 1), "{first:?}");
    let groups = published(&["a", "b", "c"]);
    assert_eq!(step(&goal, &service, &groups, "a,b", ""), Step::Settle("c".into()));
    let want = ServicePatch { zones: labels(&[("c", true)]), ..ServicePatch::default() };
    assert_eq!(step(&goal, &service, &groups, "a,b", "c"), Step::Service(want));
}

#[test]
fn a_zone_that_is_gone_loses_its_label_then_its_hold_on_the_default_slices_then_its_group() {
    let goal = divided(&["a"]);
    let groups = published(&["a", "b"]);
    let want = ServicePatch { zones: labels(&[("b", false)]), ..ServicePatch::default() };
    assert_eq!(step(&goal, &in_force("a,b"), &groups, "a,b", ""), Step::Service(want));
    assert_eq!(step(&goal, &in_force("a"), &groups, "a,b", ""), Step::Await);
    let last = step(&goal, &in_force("a"), &groups, "a", "");
    assert!(matches!(&last, Step::Slices(writes) if writes.len() == 1 && writes[0].is_delete()));
}

#[test]
fn the_labels_go_first_and_the_groups_when_the_default_slices_are_back() {
    let goal = Goal::Undivided { why: None, holding: groups(&["a"]) };
    let groups = published(&["a"]);
    let unmark = ServicePatch {
        zones: labels(&[("a", false)]),
        annotations: [(names::APPROACH, None), (names::REASON, None)].into(),
    };
    assert_eq!(step(&goal, &in_force("a"), &groups, "a", ""), Step::Service(unmark));
    let after = service(&[]);
    assert_eq!(step(&goal, &after, &groups, "a", ""), Step::Await);
    assert_eq!(step(&goal, &after, &groups, "", ""), Step::Settle("/".into()));
    let last = step(&goal, &after, &groups, "", "/");
    assert!(matches!(&last, Step::Slices(writes) if writes[0].is_delete()), "{last:?}");
    let goal = Goal::Undivided { why: None, holding: Desired::new() };
    assert_eq!(step(&goal, &after, &[], "", "/"), Step::Done);
}

#[test]
fn groups_that_are_to_go_are_kept_right_until_then() {
    let goal = Goal::Undivided { why: None, holding: groups(&["a"]) };
    let stale = [slice("a", Some("a"), &[endpoint("10.9.9.9", "a", true)])];
    let first = step(&goal, &in_force("a"), &stale, "a", "");
    assert!(matches!(&first, Step::Slices(writes) if !writes[0].is_delete()), "{first:?}");
}

#[test]
fn who_asked_in_vain_is_told_why() {
    let why = Why::TooFew { starts_at: 12, stops_at: 6 };
    let goal = Goal::Undivided { why: Some(why), holding: Desired::new() };
    let Step::Service(patch) = step(&goal, &service(&[]), &[], "", "") else { panic!() };
    assert!(patch.zones.is_empty());
    assert_eq!(patch.annotations[names::APPROACH].as_deref(), Some("Balanced"));
    assert_eq!(
        patch.annotations[names::REASON].as_deref(),
        Some("Prefer starts at 12 ready endpoints and stops at 6")
    );
}
