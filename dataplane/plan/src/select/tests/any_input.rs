//! What holds whatever the slices say.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use proptest::prelude::*;
use zw_model::{
    Conditions, Family, Hints, NodeContext, Protocol, Scope, ServiceKey, Slice, SliceEndpoint,
    SliceKey, SlicePort, Topology,
};

use super::super::{Candidate, Selection, Verdict, select};
use super::http;

fn name(prefix: &'static str) -> impl Strategy<Value = Arc<str>> {
    prop::sample::select(vec!["1", "2"]).prop_map(move |n| format!("{prefix}-{n}").into())
}

fn hints() -> impl Strategy<Value = Option<Hints>> {
    let some =
        (prop::collection::vec(name("zone"), 0..3), prop::collection::vec(name("node"), 0..2));
    prop::option::of(some.prop_map(|(zones, nodes)| Hints { zones, nodes }))
}

fn endpoint(family: Family) -> impl Strategy<Value = SliceEndpoint> {
    (0u8..4, any::<[bool; 3]>(), hints()).prop_map(move |(last, conditions, hints)| {
        let [ready, serving, terminating] = conditions;
        let addr = match family {
            Family::V4 => IpAddr::from([10, 244, 0, last]),
            Family::V6 => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)]),
        };
        let conditions = Conditions { ready, serving, terminating };
        let topology = Arc::new(Topology { hints, ..Topology::default() });
        SliceEndpoint { addr, conditions, topology }
    })
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![
        2 => Just(Scope::Everyone),
        1 => name("zone").prop_map(Scope::Zone),
        1 => name("region").prop_map(Scope::Region),
    ]
}

fn slice_ports() -> impl Strategy<Value = Vec<SlicePort>> {
    let port = (prop::sample::select(vec!["http", "http", "other"]), 8080u16..8082)
        .prop_map(|(name, port)| SlicePort { name: name.into(), protocol: Protocol::Tcp, port });
    prop::collection::vec(port, 1..3)
}

fn slices() -> impl Strategy<Value = Vec<Slice>> {
    let family = prop::sample::select(vec![Family::V4, Family::V4, Family::V6]);
    let slice = family.prop_flat_map(|family| {
        let endpoints = prop::collection::vec(endpoint(family), 0..4);
        (scope(), slice_ports(), endpoints).prop_map(move |(scope, ports, endpoints)| Slice {
            key: SliceKey { namespace: "web".into(), name: "".into() },
            service: ServiceKey::new("web", "api"),
            family,
            scope,
            managed_by: None,
            ports,
            endpoints,
        })
    });
    prop::collection::vec(slice, 0..6).prop_map(|mut slices| {
        for (i, slice) in slices.iter_mut().enumerate() {
            slice.key.name = format!("api-{i}").into();
        }
        slices
    })
}

fn node() -> impl Strategy<Value = NodeContext> {
    (any::<bool>(), any::<bool>()).prop_map(|(zone, region)| NodeContext {
        name: "node-1".into(),
        zone: zone.then(|| "zone-1".into()),
        region: region.then(|| "region-1".into()),
        ..NodeContext::default()
    })
}

/// The slices that may be used at all, by the first two rules as DESIGN.md has them.
fn visible<'a>(slices: &'a [Slice], node: &NodeContext) -> Vec<&'a Slice> {
    let ours = |mine: &Option<Arc<str>>, label: &Arc<str>| mine.as_ref() == Some(label);
    let of_family = || slices.iter().filter(|slice| slice.family == Family::V4);
    let zoned = node.zone.is_some()
        && of_family().any(|slice| match &slice.scope {
            Scope::Everyone => false,
            Scope::Zone(zone) => ours(&node.zone, zone),
            Scope::Region(region) => ours(&node.region, region),
        });
    let visible = |slice: &&Slice| match &slice.scope {
        Scope::Everyone => !zoned,
        Scope::Zone(zone) => node.zone.is_none() || ours(&node.zone, zone),
        Scope::Region(region) => {
            node.zone.is_none() || node.region.is_none() || ours(&node.region, region)
        }
    };
    of_family().filter(visible).collect()
}

/// Address, port and conditions of every endpoint that may be used.
fn visible_endpoints(slices: &[Slice], node: &NodeContext) -> Vec<(SocketAddr, Conditions)> {
    let mut endpoints = Vec::new();
    for slice in visible(slices, node) {
        for port in slice.ports.iter().filter(|port| &*port.name == "http") {
            let with_port = |e: &SliceEndpoint| (SocketAddr::new(e.addr, port.port), e.conditions);
            endpoints.extend(slice.endpoints.iter().map(with_port));
        }
    }
    endpoints
}

fn address(candidate: &Candidate<'_>) -> SocketAddr {
    SocketAddr::new(candidate.endpoint.addr, candidate.port)
}

proptest! {
    #[test]
    fn every_endpoint_gets_exactly_one_verdict(slices in slices(), node in node()) {
        let selection = select(&http(), Family::V4, &slices, &node);
        let mut got: Vec<(&SliceKey, SocketAddr, Conditions)> = selection
            .candidates
            .iter()
            .map(|c| (&c.slice.key, address(c), c.endpoint.conditions))
            .collect();
        let mut want = Vec::new();
        for slice in slices.iter().filter(|slice| slice.family == Family::V4) {
            for port in slice.ports.iter().filter(|port| &*port.name == "http") {
                let entry = |e: &SliceEndpoint| (SocketAddr::new(e.addr, port.port), e.conditions);
                let entries = slice.endpoints.iter().map(entry);
                want.extend(entries.map(|(addr, conditions)| (&slice.key, addr, conditions)));
            }
        }
        let by = |(slice, addr, c): &(&SliceKey, SocketAddr, Conditions)| {
            ((*slice).clone(), *addr, c.ready, c.serving, c.terminating)
        };
        got.sort_by_key(by);
        want.sort_by_key(by);
        prop_assert_eq!(got, want);
    }

    #[test]
    fn used_endpoints_are_unique_and_fit_to_be_used(slices in slices(), node in node()) {
        let selection = select(&http(), Family::V4, &slices, &node);
        let used: Vec<SocketAddr> = selection.used().map(address).collect();
        let unique: Vec<SocketAddr> =
            used.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        prop_assert_eq!(&used, &unique, "in order and without repetition");

        let visible = visible_endpoints(&slices, &node);
        let anything_ready = visible.iter().any(|(_, conditions)| conditions.ready);
        for candidate in selection.used() {
            let conditions = candidate.endpoint.conditions;
            prop_assert!(visible.contains(&(address(candidate), conditions)));
            let fit = conditions.ready
                || (conditions.usable_as_last_resort() && !anything_ready);
            prop_assert!(fit, "{:?}", candidate);
        }
    }

    #[test]
    fn whatever_is_usable_something_is_used(slices in slices(), node in node()) {
        let visible = visible_endpoints(&slices, &node);
        let anything_usable = visible.iter().any(|(addr, conditions)| {
            // A copy that is not terminating stands for the address; see the better copy.
            let replaced = || visible.iter().any(|(other, c)| other == addr && !c.terminating);
            conditions.ready || (conditions.usable_as_last_resort() && !replaced())
        });
        let selection = select(&http(), Family::V4, &slices, &node);
        prop_assert!(!anything_usable || selection.used().next().is_some());
    }

    #[test]
    fn the_order_of_slices_does_not_matter(
        (slices, shuffled) in slices().prop_flat_map(|s| (Just(s.clone()), Just(s).prop_shuffle())),
        node in node(),
    ) {
        let verdicts = |slices: &[Slice]| {
            let Selection { tier, candidates } = select(&http(), Family::V4, slices, &node);
            let rows: Vec<(SliceKey, SocketAddr, Conditions, Verdict)> = candidates
                .iter()
                .map(|c| (c.slice.key.clone(), address(c), c.endpoint.conditions, c.verdict))
                .collect();
            (tier, rows)
        };
        prop_assert_eq!(verdicts(&slices), verdicts(&shuffled));
    }
}
