use proptest::prelude::*;

use super::*;
use crate::testing::{endpoint, http, ports, slice};

/// Ready endpoints `10.0.0.<n>`.
fn endpoints(numbers: impl IntoIterator<Item = usize>) -> Vec<Arc<Endpoint>> {
    let one = |n| Arc::new(endpoint(&format!("10.0.{}.{}", n / 250, n % 250), "a", true));
    let mut all: Vec<Arc<Endpoint>> = numbers.into_iter().map(one).collect();
    all.sort_by(|a, b| address(a).cmp(address(b)));
    all
}

fn group(name: &str, numbers: impl IntoIterator<Item = usize>) -> Slice {
    let endpoints: Vec<Endpoint> = endpoints(numbers).iter().map(|e| (**e).clone()).collect();
    slice(name, Some("a"), &endpoints)
}

fn wanted(numbers: impl IntoIterator<Item = usize>) -> Desired {
    let by_ports = [(http(), endpoints(numbers))].into();
    let wanted = Wanted { by_ports, placeholder: Some(http()) };
    [((Some("a".into()), Family::V4), wanted)].into()
}

/// Each write in a line: what, and how many endpoints the slice then has.
fn shown(writes: &[SliceWrite]) -> Vec<String> {
    let show = |write: &SliceWrite| match write {
        SliceWrite::Create(content) => format!("create {}", content.endpoints.len()),
        SliceWrite::Update(target, content) => {
            format!("update {} {}", target.name, content.endpoints.len())
        }
        SliceWrite::Delete(target, _) => format!("delete {}", target.name),
    };
    writes.iter().map(show).collect()
}

fn packed(desired: &Desired, existing: &[Slice], capacity: usize) -> Vec<String> {
    let existing: Vec<&Slice> = existing.iter().collect();
    shown(&pack(desired, &existing, capacity))
}

#[test]
fn what_is_right_is_not_written() {
    assert_eq!(packed(&wanted(0..5), &[group("x", 0..5)], 100), [""; 0]);
    assert_eq!(packed(&wanted([]), &[group("x", [])], 100), [""; 0]);
}

#[test]
fn the_first_endpoints_fill_new_slices() {
    assert_eq!(packed(&wanted(0..250), &[], 100), ["create 100", "create 100", "create 50"]);
}

#[test]
fn one_that_goes_and_one_that_comes_are_one_write() {
    let existing = [group("x", 0..100), group("y", 100..150)];
    assert_eq!(packed(&wanted((1..150).chain([150])), &existing, 100), ["update x 100"]);
}

/// The example of the documentation of EndpointSlices.
#[test]
fn one_create_is_better_than_two_updates() {
    let existing = [group("x", 0..95), group("y", 100..195)];
    let new = 200..210;
    assert_eq!(packed(&wanted((0..95).chain(100..195).chain(new)), &existing, 100), ["create 10"]);
}

#[test]
fn what_fits_into_one_unchanged_slice_goes_there_into_the_fullest() {
    let existing = [group("x", 0..60), group("y", 100..190), group("z", 200..298)];
    let all = (0..60).chain(100..190).chain(200..298).chain(300..305);
    assert_eq!(packed(&wanted(all), &existing, 100), ["update y 95"]);
}

#[test]
fn changed_slices_are_filled_before_unchanged_ones() {
    let existing = [group("x", 0..60), group("y", 100..190)];
    let all = (1..60).chain(100..190).chain(300..305);
    assert_eq!(packed(&wanted(all), &existing, 100), ["update x 64"]);
}

#[test]
fn a_condition_changes_in_place() {
    let existing = [group("x", 0..60), group("y", 100..150)];
    let mut desired = wanted((0..60).chain(100..150));
    let list = desired.values_mut().next().unwrap().by_ports.values_mut().next().unwrap();
    let one = list.iter_mut().find(|e| address(e) == "10.0.0.7").unwrap();
    *one = Arc::new(endpoint("10.0.0.7", "a", false));
    assert_eq!(packed(&desired, &existing, 100), ["update x 60"]);
}

#[test]
fn slices_that_are_mostly_empty_are_merged_and_the_others_are_not() {
    let existing = [group("x", 0..20), group("y", 100..129), group("z", 200..220)];
    let all = || (0..20).chain(100..129).chain(200..220);
    assert_eq!(packed(&wanted(all()), &existing, 100), ["update y 69", "delete x", "delete z"]);
    let existing = [group("x", 0..20), group("y", 100..140), group("z", 200..220)];
    let all = (0..20).chain(100..140).chain(200..220);
    assert_eq!(packed(&wanted(all), &existing, 100), [""; 0], "a quarter is used");
}

#[test]
fn a_zone_without_endpoints_has_one_empty_slice() {
    assert_eq!(packed(&wanted([]), &[], 100), ["create 0"]);
    let existing = [group("x", 0..3), group("y", 5..7)];
    assert_eq!(packed(&wanted([]), &existing, 100), ["update y 0", "delete x"]);
    let existing = [group("x", []), group("y", 5..7)];
    assert_eq!(packed(&wanted([]), &existing, 100), ["delete y"]);
    assert_eq!(packed(&wanted([3]), &[group("x", [])], 100), ["update x 1"], "it is used");
}

#[test]
fn a_slice_with_other_ports_is_used_again() {
    let mut old = group("x", 0..3);
    old.ports = (*ports(9090)).clone();
    let existing = [old, group("y", [])];
    assert_eq!(packed(&wanted(0..3), &existing, 100), ["update y 3", "delete x"]);
    assert_eq!(packed(&wanted(0..3), &existing[..1], 100), ["update x 3"]);
}

#[test]
fn endpoints_with_different_ports_are_in_different_slices() {
    let by_ports = [(http(), endpoints(0..3)), (ports(9090), endpoints(3..5))].into();
    let wanted = Wanted { by_ports, placeholder: Some(http()) };
    let desired = [((Some("a".into()), Family::V4), wanted)].into();
    assert_eq!(packed(&desired, &[], 100), ["create 3", "create 2"]);
}

#[test]
fn a_zone_nobody_wants_any_more_loses_its_slices() {
    let existing = [group("x", 0..3), group("y", [])];
    let deletes = packed(&Desired::new(), &existing, 100);
    assert_eq!(deletes, ["delete y", "delete x"], "what is of use goes last");
}

#[test]
fn a_smaller_capacity_moves_what_is_too_much() {
    let existing = [group("x", 0..100)];
    assert_eq!(packed(&wanted(0..100), &existing, 40), ["create 40", "create 20", "update x 40"]);
}

#[test]
fn additions_come_before_removals() {
    // y is emptied by its pods and x gets others: first what adds.
    let existing = [group("x", 0..3), group("y", 10..13)];
    let writes = packed(&wanted((0..3).chain(20..22)), &existing, 3);
    assert_eq!(writes, ["update y 2"], "replaced in one write");
    let existing = [group("x", 0..3), group("y", 10..13)];
    let writes = packed(&wanted(20..27), &existing, 3);
    assert_eq!(writes, ["create 1", "update x 3", "update y 3"]);
}

/// An address of few, in one of three states, in one of two zones, with one of two ports.
fn any_member() -> impl Strategy<Value = (usize, bool, usize, usize)> {
    (0usize..12, any::<bool>(), 0usize..2, 0usize..2)
}

fn any_desired() -> impl Strategy<Value = Desired> {
    prop::collection::vec(any_member(), 0..14).prop_map(|members| {
        let mut desired = Desired::new();
        for zone in ["a", "b"] {
            let wanted = Wanted { placeholder: Some(http()), ..Wanted::default() };
            desired.insert((Some(zone.into()), Family::V4), wanted);
        }
        let mut seen = BTreeSet::new();
        for (number, ready, zone, port) in members {
            let key = (Some(["a", "b"][zone].into()), Family::V4);
            if seen.insert((number, zone, port)) {
                let list = desired.get_mut(&key).unwrap();
                let ports = [http(), ports(9090)][port].clone();
                let address = format!("10.0.0.{number}");
                let endpoint = Arc::new(endpoint(&address, "a", ready));
                list.by_ports.entry(ports).or_default().push(endpoint);
            }
        }
        desired
    })
}

/// What the slices hold, and who is ready in which zone.
fn held(slices: &[Slice]) -> BTreeSet<(String, Ports, String, bool)> {
    let mut all = BTreeSet::new();
    for slice in slices {
        let Role::Group(Some(zone)) = &slice.role else { panic!("a group") };
        for endpoint in &slice.endpoints {
            let member = (
                zone.to_string(),
                slice.ports.clone(),
                address(endpoint).to_owned(),
                is_ready(endpoint),
            );
            assert!(all.insert(member.clone()), "{member:?} is there twice");
        }
    }
    all
}

fn has_ready(slices: &[Slice], zone: &str) -> bool {
    let of_zone = |slice: &&Slice| slice.role == Role::Group(Some(zone.into()));
    slices.iter().filter(of_zone).flat_map(|slice| &slice.endpoints).any(|e| is_ready(e))
}

proptest! {
    #[test]
    fn any_history_of_wishes_is_packed(
        wishes in prop::collection::vec(any_desired(), 1..6),
        capacity in 1usize..6,
    ) {
        let mut slices: Vec<Slice> = Vec::new();
        let mut next = 0;
        for desired in wishes {
            let existing: Vec<&Slice> = slices.iter().collect();
            let writes = pack(&desired, &existing, capacity);
            let mut after = slices.clone();
            let mut states = Vec::new();
            let mut touched = BTreeSet::new();
            for write in &writes {
                match write {
                    SliceWrite::Create(content) => {
                        next += 1;
                        let mut made = slice(&format!("s{next}"), content.audience.as_deref(), &[]);
                        made.ports = (*content.ports).clone();
                        made.endpoints = content.endpoints.clone();
                        after.push(made);
                    }
                    SliceWrite::Update(target, content) => {
                        prop_assert!(touched.insert(target.name.clone()), "written twice");
                        let old = after.iter_mut().find(|s| s.name == target.name).unwrap();
                        prop_assert_ne!(
                            (&old.ports, &old.endpoints), (&*content.ports, &content.endpoints),
                            "a write that changes nothing"
                        );
                        old.ports = (*content.ports).clone();
                        old.endpoints = content.endpoints.clone();
                    }
                    SliceWrite::Delete(target, _) => {
                        prop_assert!(touched.insert(target.name.clone()), "written twice");
                        after.retain(|s| s.name != target.name);
                    }
                }
                states.push(after.clone());
            }
            let want: BTreeSet<_> = desired
                .iter()
                .flat_map(|((zone, _), wanted)| {
                    wanted.by_ports.iter().flat_map(move |(ports, list)| {
                        list.iter().map(move |e| {
                            (zone.as_deref().unwrap().to_owned(), (**ports).clone(),
                             address(e).to_owned(), is_ready(e))
                        })
                    })
                })
                .collect();
            prop_assert_eq!(held(&after), want);
            prop_assert!(after.iter().all(|s| s.endpoints.len() <= capacity));
            for zone in ["a", "b"] {
                prop_assert!(after.iter().any(|s| s.role == Role::Group(Some(zone.into()))));
                if has_ready(&slices, zone) && has_ready(&after, zone) {
                    for state in &states {
                        prop_assert!(has_ready(state, zone), "zone {} has a gap", zone);
                    }
                }
            }
            slices = after;
            let existing: Vec<&Slice> = slices.iter().collect();
            prop_assert_eq!(pack(&desired, &existing, capacity), vec![], "and stays so");
        }
    }
}
