//! Which Services a change touches, and what is known afterwards.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zw_model::{Family, NodeContext, Scope, Service, ServiceKey, Slice, SliceKey};

use super::{Changed, Index, Touched};
use crate::convert::{Body, Kind, Node, Object, ObjectId};

fn id(kind: Kind, name: &str) -> ObjectId {
    let namespace = if matches!(kind, Kind::Node | Kind::ServiceCidr) { "" } else { "web" };
    ObjectId { kind, namespace: namespace.into(), name: name.into() }
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("web", name)
}

fn service(name: &str, last: u8) -> Service {
    Service {
        key: key(name),
        cluster_ips: vec![[10, 96, 0, last].into()],
        ports: Vec::new(),
        ..Service::default()
    }
}

fn slice(name: &str, service: &str) -> Slice {
    Slice {
        key: SliceKey { namespace: "web".into(), name: name.into() },
        service: key(service),
        family: Family::V4,
        scope: Scope::Everyone,
        managed_by: None,
        ports: Vec::new(),
        endpoints: Vec::new(),
    }
}

fn a_service(service: Service) -> Object {
    Object::new(id(Kind::Service, &service.key.name), Body::Service(service))
}

fn a_slice(slice: Slice) -> Object {
    Object::new(id(Kind::EndpointSlice, &slice.key.name), Body::Slice(slice))
}

fn of_node(name: &str, node: Node) -> Object {
    Object::new(id(Kind::Node, name), Body::Node(Box::new(node)))
}

fn a_node(name: &str, zone: Option<&str>, region: Option<&str>) -> Object {
    let (zone, region) = (zone.map(Into::into), region.map(Into::into));
    of_node(name, Node { zone, region, eligible: true, ..Node::default() })
}

fn irrelevant(kind: Kind, name: &str) -> Object {
    Object::new(id(kind, name), Body::Irrelevant)
}

fn some(names: &[&str]) -> Changed {
    let services = Touched::Some(names.iter().map(|name| key(name)).collect());
    Changed { services, ..Changed::default() }
}

fn all() -> Changed {
    Changed { services: Touched::All, ..Changed::default() }
}

fn surroundings() -> Changed {
    Changed { surroundings: true, ..Changed::default() }
}

/// Every Service with its slices, as planning sees them.
fn known(index: &Index) -> Vec<(Service, Vec<Slice>)> {
    let keys: BTreeSet<ServiceKey> = index.service_keys().cloned().collect();
    keys.iter()
        .map(|key| {
            let (service, slices) = index.service(key).unwrap();
            (service.clone(), slices.cloned().collect())
        })
        .collect()
}

/// An index on `node-1` that has seen these objects, with nothing left to plan.
fn settled(objects: impl IntoIterator<Item = Object>) -> Index {
    let mut index = Index::new("node-1");
    objects.into_iter().for_each(|object| index.apply(object));
    index.take_changed();
    index
}

#[test]
fn a_new_index_knows_its_name_and_nothing_else() {
    let mut index = Index::new("node-1");
    assert_eq!(known(&index), []);
    assert_eq!(index.take_changed(), some(&[]));
    let node = NodeContext { name: "node-1".into(), ..NodeContext::default() };
    assert_eq!(*index.node(), node);
}

#[test]
fn changes_are_told_once() {
    let mut index = Index::new("node-1");
    index.apply(a_service(service("api", 1)));
    index.apply(a_service(service("shop", 2)));
    index.apply(a_slice(slice("api-1", "api")));
    assert_eq!(index.take_changed(), some(&["api", "shop"]));
    assert_eq!(index.take_changed(), some(&[]));
    let want = [(service("api", 1), vec![slice("api-1", "api")]), (service("shop", 2), Vec::new())];
    assert_eq!(known(&index), want);
}

#[test]
fn a_changed_service_replaces_the_old_and_keeps_its_slices() {
    let mut index = settled([a_service(service("api", 1)), a_slice(slice("api-1", "api"))]);
    index.apply(a_service(service("api", 9)));
    assert_eq!(index.take_changed(), some(&["api"]));
    assert_eq!(known(&index), [(service("api", 9), vec![slice("api-1", "api")])]);
}

#[test]
fn a_slice_may_come_before_its_service() {
    let mut index = Index::new("node-1");
    index.apply(a_slice(slice("api-1", "api")));
    assert_eq!(known(&index), [], "a slice alone makes no Service");
    assert!(index.service(&key("api")).is_none());
    index.take_changed();
    index.apply(a_service(service("api", 1)));
    assert_eq!(index.take_changed(), some(&["api"]));
    assert_eq!(known(&index), [(service("api", 1), vec![slice("api-1", "api")])]);
}

#[test]
fn slices_outlive_their_service_and_serve_its_successor() {
    let mut index = settled([a_service(service("api", 1)), a_slice(slice("api-1", "api"))]);
    index.delete(&id(Kind::Service, "api"));
    assert_eq!(index.take_changed(), some(&["api"]));
    assert_eq!(known(&index), []);
    index.apply(a_service(service("api", 2)));
    assert_eq!(known(&index), [(service("api", 2), vec![slice("api-1", "api")])]);
}

#[test]
fn a_changed_slice_replaces_the_old() {
    let mut index = settled([a_service(service("api", 1)), a_slice(slice("api-1", "api"))]);
    let changed = Slice { scope: Scope::Zone("zone-a".into()), ..slice("api-1", "api") };
    index.apply(a_slice(changed.clone()));
    assert_eq!(index.take_changed(), some(&["api"]));
    assert_eq!(known(&index), [(service("api", 1), vec![changed])]);
}

#[test]
fn a_slice_that_changes_its_service_touches_both() {
    let mut index = settled([
        a_service(service("api", 1)),
        a_service(service("shop", 2)),
        a_slice(slice("s-1", "api")),
    ]);
    index.apply(a_slice(slice("s-1", "shop")));
    assert_eq!(index.take_changed(), some(&["api", "shop"]));
    let want = [(service("api", 1), Vec::new()), (service("shop", 2), vec![slice("s-1", "shop")])];
    assert_eq!(known(&index), want);

    index.delete(&id(Kind::EndpointSlice, "s-1"));
    assert_eq!(index.take_changed(), some(&["shop"]), "its owner is remembered");
}

#[test]
fn a_deleted_slice_touches_its_service() {
    let mut index = settled([
        a_service(service("api", 1)),
        a_slice(slice("api-1", "api")),
        a_slice(slice("api-2", "api")),
    ]);
    index.delete(&id(Kind::EndpointSlice, "api-1"));
    assert_eq!(index.take_changed(), some(&["api"]));
    assert_eq!(known(&index), [(service("api", 1), vec![slice("api-2", "api")])]);
}

#[test]
fn deleting_what_was_never_there_touches_nothing() {
    let mut index = settled([a_service(service("api", 1)), a_slice(slice("shop-1", "shop"))]);
    for unknown in [
        id(Kind::Service, "nobody"),
        id(Kind::Service, "shop"),
        id(Kind::EndpointSlice, "nobody"),
        id(Kind::Node, "node-1"),
        id(Kind::ServiceCidr, "api"),
    ] {
        index.delete(&unknown);
        assert_eq!(index.take_changed(), some(&[]), "{unknown}");
    }
    index.apply(irrelevant(Kind::Service, "nobody"));
    index.apply(irrelevant(Kind::ServiceCidr, "kubernetes"));
    assert_eq!(index.take_changed(), some(&[]));
    assert_eq!(known(&index), [(service("api", 1), Vec::new())]);
}

#[test]
fn the_same_name_in_another_namespace_is_another_object() {
    let mut index = settled([a_service(service("api", 1)), a_slice(slice("api-1", "api"))]);
    for kind in [Kind::Service, Kind::EndpointSlice] {
        let name = if kind == Kind::Service { "api" } else { "api-1" };
        index.delete(&ObjectId { kind, namespace: "other".into(), name: name.into() });
    }
    assert_eq!(index.take_changed(), some(&[]));
    assert_eq!(known(&index), [(service("api", 1), vec![slice("api-1", "api")])]);
}

#[test]
fn a_service_that_becomes_irrelevant_goes() {
    let mut index = settled([a_service(service("api", 1)), a_slice(slice("api-1", "api"))]);
    index.apply(irrelevant(Kind::Service, "api"));
    assert_eq!(index.take_changed(), some(&["api"]));
    assert_eq!(known(&index), []);
}

#[test]
fn a_slice_that_becomes_irrelevant_goes() {
    let mut index = settled([a_service(service("api", 1)), a_slice(slice("api-1", "api"))]);
    index.apply(irrelevant(Kind::EndpointSlice, "api-1"));
    assert_eq!(index.take_changed(), some(&["api"]));
    assert_eq!(known(&index), [(service("api", 1), Vec::new())]);
}

#[test]
fn a_service_and_its_last_slice_leave_nothing_behind() {
    let objects = || [a_service(service("api", 1)), a_slice(slice("api-1", "api"))];
    let (of_service, of_slice) = (id(Kind::Service, "api"), id(Kind::EndpointSlice, "api-1"));
    for order in [[&of_service, &of_slice], [&of_slice, &of_service]] {
        let mut index = settled(objects());
        order.into_iter().for_each(|id| index.delete(id));
        assert!(index.services.is_empty() && index.owners.is_empty());
    }
}

#[test]
fn a_change_of_our_nodes_zone_or_region_touches_every_service() {
    let mut index = settled([a_service(service("api", 1))]);
    for (zone, region) in [
        (Some("zone-a"), None),
        (Some("zone-a"), Some("region-1")),
        (Some("zone-b"), Some("region-1")),
        (None, Some("region-1")),
    ] {
        index.apply(a_node("node-1", zone, region));
        assert_eq!(index.take_changed(), all(), "{zone:?} {region:?}");
        let want = NodeContext {
            name: "node-1".into(),
            zone: zone.map(Into::into),
            region: region.map(Into::into),
            ..NodeContext::default()
        };
        assert_eq!(*index.node(), want);
        index.apply(a_node("node-1", zone, region));
        assert_eq!(index.take_changed(), some(&[]), "the same again");
    }
    assert_eq!(known(&index), [(service("api", 1), Vec::new())]);
}

#[test]
fn whatever_changes_with_the_zone_is_part_of_everything() {
    let mut index = settled([]);
    index.apply(a_service(service("api", 1)));
    index.apply(a_node("node-1", Some("zone-a"), None));
    index.apply(a_service(service("shop", 2)));
    assert_eq!(index.take_changed(), all());
    index.apply(a_service(service("shop", 3)));
    assert_eq!(index.take_changed(), some(&["shop"]));
}

#[test]
fn our_nodes_deletion_makes_its_zone_unknown() {
    let mut index = settled([a_node("node-1", Some("zone-a"), Some("region-1"))]);
    index.delete(&id(Kind::Node, "node-1"));
    assert_eq!(index.take_changed(), all());
    assert_eq!(*index.node(), NodeContext { name: "node-1".into(), ..NodeContext::default() });
}

#[test]
fn other_nodes_are_ignored() {
    let mut index = settled([a_node("node-1", Some("zone-a"), None)]);
    index.apply(a_node("node-2", Some("zone-b"), Some("region-2")));
    index.delete(&id(Kind::Node, "node-2"));
    assert_eq!(index.take_changed(), some(&[]));
    let want = NodeContext {
        name: "node-1".into(),
        zone: Some("zone-a".into()),
        ..NodeContext::default()
    };
    assert_eq!(*index.node(), want);
}

#[test]
fn what_says_the_same_again_touches_nothing() {
    let objects = || {
        [
            a_service(service("api", 1)),
            a_slice(slice("api-1", "api")),
            of_node("node-1", a_machine()),
            ranges("kubernetes", &["10.96.0.0/16"]),
        ]
    };
    let mut index = settled(objects());
    for object in objects() {
        index.apply(Object { triggered: Some(at(5)), ..object.clone() });
        assert_eq!(index.take_changed(), some(&[]), "{object:?}");
    }
}

fn a_machine() -> Node {
    Node {
        addresses: vec!["192.0.2.1".parse().unwrap()],
        pod_ranges: vec!["10.244.1.0/24".parse().unwrap()],
        eligible: true,
        ..Node::default()
    }
}

fn ranges(name: &str, ranges: &[&str]) -> Object {
    let ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
    Object::new(id(Kind::ServiceCidr, name), Body::ServiceRanges(ranges))
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn a_nodes_addresses_and_pod_ranges_touch_its_surroundings_and_no_service() {
    let mut index = settled([a_service(service("api", 1)), of_node("node-1", a_machine())]);
    let want = NodeContext {
        name: "node-1".into(),
        addresses: a_machine().addresses,
        pod_ranges: a_machine().pod_ranges,
        ..NodeContext::default()
    };
    assert_eq!(*index.node(), want);

    let addresses = vec!["192.0.2.9".parse().unwrap()];
    index.apply(of_node("node-1", Node { addresses: addresses.clone(), ..a_machine() }));
    assert_eq!(index.take_changed(), surroundings());
    assert_eq!(index.node().addresses, addresses);
    index.apply(of_node("node-1", Node { pod_ranges: Vec::new(), ..a_machine() }));
    assert_eq!(index.take_changed(), surroundings());
    assert_eq!(index.node().pod_ranges, []);

    index.apply(of_node("node-2", a_machine()));
    assert_eq!(index.take_changed(), some(&[]), "another node's are its own business");
}

#[test]
fn a_node_that_is_deleted_is_still_a_machine_with_its_addresses() {
    let mut index = settled([of_node("node-1", a_machine())]);
    index.delete(&id(Kind::Node, "node-1"));
    assert_eq!(index.take_changed(), some(&[]));
    assert_eq!(index.node().addresses, a_machine().addresses);
    assert_eq!(index.node_is_eligible(), None);
}

#[test]
fn a_node_is_eligible_until_it_is_about_to_go_and_unknown_while_it_is_missing() {
    let mut index = Index::new("node-1");
    assert_eq!(index.node_is_eligible(), None);
    index.apply(of_node("node-2", a_machine()));
    assert_eq!(index.node_is_eligible(), None);
    for eligible in [true, false] {
        index.apply(of_node("node-1", Node { eligible, ..a_machine() }));
        assert_eq!(index.node_is_eligible(), Some(eligible));
    }
    index.delete(&id(Kind::Node, "node-2"));
    assert_eq!(index.node_is_eligible(), Some(false));
}

#[test]
fn service_ranges_are_the_union_of_all_service_cidrs() {
    let mut index = Index::new("node-1");
    let union = |index: &Index| -> Vec<String> {
        index.service_ranges().iter().map(ToString::to_string).collect()
    };
    index.apply(ranges("kubernetes", &["10.96.0.0/16", "fd00::/108"]));
    assert_eq!(index.take_changed(), surroundings());
    index.apply(ranges("more", &["10.97.0.0/16", "10.96.0.0/16"]));
    assert_eq!(index.take_changed(), surroundings());
    assert_eq!(union(&index), ["10.96.0.0/16", "10.97.0.0/16", "fd00::/108"]);

    index.delete(&id(Kind::ServiceCidr, "kubernetes"));
    assert_eq!(index.take_changed(), surroundings());
    assert_eq!(union(&index), ["10.96.0.0/16", "10.97.0.0/16"]);
    index.delete(&id(Kind::ServiceCidr, "kubernetes"));
    assert_eq!(index.take_changed(), some(&[]));
}

#[test]
fn the_earliest_trigger_of_a_service_is_told_with_its_change() {
    let mut index = Index::new("node-1").ignore_triggers_before(at(10));
    for (name, service, when) in
        [("api-1", "api", 30), ("api-2", "api", 20), ("api-3", "api", 9), ("shop-1", "shop", 9)]
    {
        index.apply(Object { triggered: Some(at(when)), ..a_slice(slice(name, service)) });
    }
    let want = Changed { triggered: [(key("api"), at(20))].into(), ..some(&["api", "shop"]) };
    assert_eq!(index.take_changed(), want);
    index.delete(&id(Kind::EndpointSlice, "api-1"));
    assert_eq!(index.take_changed(), some(&["api"]), "a deletion has no trigger of its own");
}

#[test]
fn an_endpoint_takes_32_bytes_here_and_36_among_rules() {
    assert_eq!(size_of::<zw_model::SliceEndpoint>(), 32);
    assert_eq!(size_of::<zw_plan::Backend>(), 36);
}
