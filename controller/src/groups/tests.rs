use zw_topology::Algorithm;

use super::*;
use crate::input::Role;
use crate::testing::{endpoint, slice, zones};

/// Endpoints `10.0.<zone>.<n>`, so many in each zone; those of `-` have no zone.
fn offer(homes: &[(&str, usize)]) -> Vec<Slice> {
    let mut endpoints = Vec::new();
    for (z, (zone, count)) in homes.iter().enumerate() {
        let home = if *zone == "-" { "" } else { zone };
        endpoints.extend((0..*count).map(|i| endpoint(&format!("10.0.{z}.{i}"), home, true)));
    }
    vec![slice("default", None, &endpoints)]
}

fn divided(
    approach: Approach,
    slices: &[Slice],
    nodes: &[(&str, u32)],
    algorithm: Algorithm,
) -> Option<Placement> {
    let zones = zones(nodes);
    let offer = Offer::collect(slices.iter(), Family::V4, &zones).unwrap();
    let settings = Settings { algorithm, ..Settings::default() };
    let nodes = zones.nodes();
    Divider::default().divide(approach, &offer, slices, Family::V4, &nodes, &settings)
}

/// Endpoints by group and home, such as `a:4a b:3b c:1a2c`.
fn shown(placement: &Placement) -> String {
    let group = |(zone, entries): (&Arc<str>, &Vec<Entry>)| {
        let mut homes: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in entries {
            *homes.entry(entry.endpoint.zone.as_deref().unwrap_or("-")).or_default() += 1;
        }
        let homes: String = homes.iter().map(|(home, count)| format!("{count}{home}")).collect();
        format!("{zone}:{homes}")
    };
    placement.groups.iter().map(group).collect::<Vec<_>>().join(" ")
}

/// The groups as slices, one for each zone.
fn published(placement: &Placement) -> Vec<Slice> {
    let group = |(zone, entries): (&Arc<str>, &Vec<Entry>)| {
        let endpoints: Vec<Endpoint> = entries.iter().map(|e| (*e.endpoint).clone()).collect();
        slice(&format!("group-{zone}"), Some(zone), &endpoints)
    };
    placement.groups.iter().map(group).collect()
}

const THREE: [(&str, u32); 3] = [("a", 1), ("b", 1), ("c", 1)];

#[test]
fn require_keeps_every_endpoint_at_home() {
    for (nodes, homes, want) in [
        (&THREE[..], &[("a", 5), ("b", 3), ("c", 2)][..], "a:5a b:3b c:2c"),
        (&[("a", 100), ("b", 1), ("c", 50)], &[("a", 1), ("b", 300)], "a:1a b:300b c:"),
        (&[("a", 1)], &[("a", 2), ("gone", 3), ("-", 1)], "a:2a"),
        (&THREE, &[("a", 0)], "a: b: c:"),
    ] {
        let placement = divided(Approach::Require, &offer(homes), nodes, Algorithm::Local);
        assert_eq!(shown(&placement.unwrap()), want);
    }
}

#[test]
fn prefer_moves_what_other_zones_lack() {
    for (algorithm, nodes, homes, want) in [
        // The topology document's example.
        (
            Algorithm::Local,
            &THREE[..],
            &[("a", 5), ("b", 3), ("c", 2)][..],
            Some("a:4a b:3b c:1a2c"),
        ),
        (Algorithm::Local, &THREE, &[("a", 4), ("b", 4), ("c", 4)], Some("a:4a b:4b c:4c")),
        (Algorithm::Fair, &THREE, &[("a", 4), ("b", 4), ("c", 4)], Some("a:4a b:4b c:4c")),
        (Algorithm::Local, &THREE, &[("a", 12)], Some("a:4a b:4a c:4a")),
        (Algorithm::Fair, &THREE, &[("a", 12)], Some("a:4a b:4a c:4a")),
        (
            Algorithm::Local,
            &[("a", 100), ("b", 100), ("c", 1)],
            &[("a", 50), ("b", 50)],
            Some("a:49a b:50b c:1a"),
        ),
        (Algorithm::Local, &THREE, &[("a", 3), ("b", 1), ("c", 1)], None),
    ] {
        let placement = divided(Approach::Prefer, &offer(homes), nodes, algorithm);
        assert_eq!(placement.as_ref().map(shown).as_deref(), want, "{algorithm} {homes:?}");
    }
}

#[test]
fn endpoints_outside_of_every_zone_are_used_too() {
    for algorithm in [Algorithm::Local, Algorithm::Fair, Algorithm::LocalShared] {
        let slices = offer(&[("a", 4), ("b", 4), ("c", 4), ("gone", 2), ("-", 1)]);
        let placement = divided(Approach::Prefer, &slices, &THREE, algorithm).unwrap();
        let sizes: usize = placement.groups.values().map(Vec::len).sum();
        assert_eq!(sizes, 15, "{algorithm}: {}", shown(&placement));
    }
}

#[test]
fn shared_groups_are_published_for_each_zone_that_shares_them() {
    let nodes = [("a", 2), ("b", 1), ("c", 1)];
    let slices = offer(&[("a", 6)]);
    let placement = divided(Approach::Prefer, &slices, &nodes, Algorithm::LocalShared).unwrap();
    assert_eq!(shown(&placement), "a:3a b:3a c:3a", "b and c have the same three");
    let addresses = |zone: &str| -> Vec<String> {
        placement.groups[zone].iter().map(|e| address(&e.endpoint).to_owned()).collect()
    };
    assert_eq!(addresses("b"), addresses("c"));
}

#[test]
fn where_the_node_is_counts_more_than_what_the_slice_says() {
    let mut moved = endpoint("10.0.0.1", "a", true);
    moved.node_name = Some("b-0".into());
    let slices = [slice("default", None, &[moved])];
    let placement = divided(Approach::Require, &slices, &THREE, Algorithm::Local).unwrap();
    assert_eq!(shown(&placement), "a: b:1a c:");
}

#[test]
fn an_endpoint_that_is_not_ready_stays_where_it_is_and_does_not_count() {
    let mut slices = offer(&[("a", 8), ("b", 6), ("c", 4)]);
    let first = divided(Approach::Prefer, &slices, &THREE, Algorithm::Local).unwrap();
    assert_eq!(shown(&first), "a:6a b:6b c:2a4c");
    let lent = address(
        &first.groups["c"]
            .iter()
            .find(|e| e.endpoint.zone.as_deref() == Some("a"))
            .unwrap()
            .endpoint,
    )
    .to_owned();
    for endpoint in &mut slices[0].endpoints {
        if address(endpoint) == lent {
            *endpoint = Arc::new(crate::testing::endpoint(&lent, "a", false));
        }
    }
    slices.extend(published(&first));
    let second = divided(Approach::Prefer, &slices, &THREE, Algorithm::Local).unwrap();
    assert!(second.groups["c"].iter().any(|e| address(&e.endpoint) == lent));
    assert_eq!(second.reallocated, 0, "{}", shown(&second));
}

#[test]
fn an_update_that_reaches_no_threshold_moves_nothing_else() {
    for algorithm in [Algorithm::Local, Algorithm::Fair] {
        let mut slices = offer(&[("a", 10), ("b", 10), ("c", 10)]);
        let first = divided(Approach::Prefer, &slices, &THREE, algorithm).unwrap();
        slices = offer(&[("a", 11), ("b", 10), ("c", 9)]);
        slices.extend(published(&first));
        let second = divided(Approach::Prefer, &slices, &THREE, algorithm).unwrap();
        assert_eq!(shown(&second), "a:11a b:10b c:9c", "{algorithm}");
        assert_eq!(second.reallocated, 0);
    }
}

#[test]
fn groups_that_are_given_up_keep_their_endpoints_and_no_zone_is_left_without() {
    let mut slices = offer(&[("a", 2), ("b", 1)]);
    let nodes = zones(&THREE);
    slices.push(slice("group-a", Some("a"), &[endpoint("10.0.0.0", "a", true)]));
    slices.push(slice("group-b", Some("b"), &[endpoint("10.0.1.0", "b", true)]));
    slices.push(slice("group-c", Some("c"), &[endpoint("10.9.9.9", "c", true)]));
    let offer = Offer::collect(slices.iter(), Family::V4, &nodes).unwrap();
    let held = hold(&offer, &slices, Family::V4, &nodes.nodes());
    assert_eq!(shown(&held), "a:2a b:1b c:2a1b");
}

#[test]
fn an_address_with_several_sets_of_ports_is_one_endpoint() {
    let mut slices = offer(&[("a", 2)]);
    let mut other = slices[0].clone();
    other.name = "metrics".into();
    other.ports = (*crate::testing::ports(9090)).clone();
    slices.push(other);
    let offer = Offer::collect(slices.iter(), Family::V4, &zones(&THREE)).unwrap();
    assert_eq!(offer.ready(), 2);
    let placement = divided(Approach::Require, &slices, &THREE, Algorithm::Local).unwrap();
    assert_eq!(placement.groups["a"].len(), 4);
}

#[test]
fn an_endpoint_in_two_default_slices_counts_once_and_as_ready_if_one_says_so() {
    let slices = [
        slice("one", None, &[endpoint("10.0.0.1", "a", false)]),
        slice("two", None, &[endpoint("10.0.0.1", "a", true)]),
    ];
    let placement = divided(Approach::Require, &slices, &THREE, Algorithm::Local).unwrap();
    let [entry] = &placement.groups["a"][..] else { panic!("one entry") };
    assert!(is_ready(&entry.endpoint));
}

#[test]
fn slices_for_zones_that_others_made_are_not_looked_at() {
    let mut foreign = slice("foreign", None, &[endpoint("10.9.9.9", "a", true)]);
    foreign.role = Role::Foreign;
    assert!(Offer::collect([foreign].iter(), Family::V4, &zones(&THREE)).is_none());
}
