//! Every rule of the module's list with the reasons it gives.

mod any_input;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use zw_model::{Family, Protocol, ServicePort};

use super::Verdict::{Unused, Used};
use super::{Selection, Tier, Verdict, Why, WhyNot, select};
use crate::testing::{HOSTS, Port, SliceSpec, World};

const HTTP: Port = ("http", Protocol::Tcp, 8080);

/// The Service port every test asks about.
fn http() -> ServicePort {
    ServicePort { name: "http".into(), protocol: Protocol::Tcp, port: 80, node_port: None }
}

/// Asserts the tier and every endpoint's verdict, in both families. Endpoints are written as
/// `host:port`.
#[track_caller]
fn check(build: impl Fn(World) -> World, tier: Tier, want: &[(&str, Verdict)]) {
    for family in Family::BOTH {
        let world = build(World::new(family));
        let selection = select(&http(), family, &world.slices, &world.node);
        let got: Vec<(String, Verdict)> = selection
            .candidates
            .iter()
            .map(|c| (format!("{}:{}", host_of(family, c.endpoint.addr), c.port), c.verdict))
            .collect();
        let want: Vec<(String, Verdict)> =
            want.iter().map(|(endpoint, verdict)| ((*endpoint).to_owned(), *verdict)).collect();
        assert_eq!((selection.tier, got), (tier, want), "{family}");
    }
}

fn host_of(family: Family, addr: IpAddr) -> &'static str {
    HOSTS.iter().find(|host| host.addr(family) == addr).expect("one of the cast").name
}

trait Slices {
    /// One more slice of the Service, with its port at 8080.
    fn with(self, build: impl FnOnce(SliceSpec) -> SliceSpec) -> Self;
}

impl Slices for World {
    fn with(self, build: impl FnOnce(SliceSpec) -> SliceSpec) -> Self {
        self.slice("web/api", &[HTTP], build)
    }
}

// Rule 1: whose slice it is.

#[test]
fn a_slice_for_another_zone_or_region_is_not_ours() {
    check(
        |world| {
            world
                .with(|s| s.ready(&["local-1"]))
                .with(|s| s.for_zone("zone-b").ready(&["zone-b"]))
                .with(|s| s.for_region("region-2").ready(&["zone-c"]))
        },
        Tier::Everyone,
        &[
            ("local-1:8080", Used(Why::Ready)),
            ("zone-b:8080", Unused(WhyNot::OtherZone)),
            ("zone-c:8080", Unused(WhyNot::OtherZone)),
        ],
    );
}

#[test]
fn with_our_zone_unknown_every_slice_counts_whatever_its_label() {
    for region in [None, Some(Arc::from("region-1"))] {
        check(
            |world| {
                world
                    .with(|s| s.ready(&["local-1"]))
                    .with(|s| s.for_zone("zone-a").ready(&["same-zone"]))
                    .with(|s| s.for_zone("zone-b").ready(&["zone-b"]))
                    .with(|s| s.for_region("region-1").ready(&["local-2"]))
                    .with(|s| s.for_region("region-2").ready(&["zone-c"]))
                    .on_node(|node| (node.zone, node.region) = (None, region.clone()))
            },
            Tier::Everyone,
            &[
                ("local-1:8080", Used(Why::Ready)),
                ("local-2:8080", Used(Why::Ready)),
                ("same-zone:8080", Used(Why::Ready)),
                ("zone-b:8080", Used(Why::Ready)),
                ("zone-c:8080", Used(Why::Ready)),
            ],
        );
    }
}

#[test]
fn with_our_region_unknown_any_regions_slice_counts() {
    check(
        |world| {
            world
                .with(|s| s.for_region("region-1").ready(&["local-1"]))
                .with(|s| s.for_region("region-2").ready(&["zone-c"]))
                .on_node(|node| node.region = None)
        },
        Tier::Everyone,
        &[("local-1:8080", Used(Why::Ready)), ("zone-c:8080", Used(Why::Ready))],
    );
}

#[test]
fn with_our_region_unknown_a_region_slice_does_not_hide_the_unlabelled_ones() {
    check(
        |world| {
            world
                .with(|s| s.ready(&["local-1"]))
                .with(|s| s.for_region("region-9").not_ready(&["zone-c"]))
                .on_node(|node| node.region = None)
        },
        Tier::Everyone,
        &[("local-1:8080", Used(Why::Ready)), ("zone-c:8080", Unused(WhyNot::NotReady))],
    );
}

#[test]
fn with_our_region_unknown_a_zone_still_fails_over_to_a_region_slice() {
    check(
        |world| {
            world
                .with(|s| s.ready(&["local-1"]))
                .with(|s| s.for_zone("zone-a").not_ready(&["same-zone"]))
                .with(|s| s.for_region("region-9").ready(&["zone-c"]))
                .on_node(|node| node.region = None)
        },
        Tier::Region,
        &[
            ("local-1:8080", Unused(WhyNot::Unlabelled)),
            ("same-zone:8080", Unused(WhyNot::NotReady)),
            ("zone-c:8080", Used(Why::RegionSlice)),
        ],
    );
}

// Rule 2: what makes a Service zoned, and what that silences.

#[test]
fn a_slice_for_our_zone_silences_unlabelled_ones() {
    check(
        |world| {
            world
                .with(|s| s.ready(&["local-1", "zone-b"]))
                .with(|s| s.for_zone("zone-a").ready(&["same-zone"]))
        },
        Tier::Zone,
        &[
            ("local-1:8080", Unused(WhyNot::Unlabelled)),
            ("same-zone:8080", Used(Why::ZoneSlice)),
            ("zone-b:8080", Unused(WhyNot::Unlabelled)),
        ],
    );
}

#[test]
fn a_slice_for_our_region_silences_unlabelled_ones() {
    check(
        |world| {
            world
                .with(|s| s.ready(&["local-1"]))
                .with(|s| s.for_region("region-1").ready(&["zone-b"]))
        },
        Tier::Region,
        &[("local-1:8080", Unused(WhyNot::Unlabelled)), ("zone-b:8080", Used(Why::RegionSlice))],
    );
}

#[test]
fn even_an_empty_slice_makes_a_service_zoned() {
    for label in [|s: SliceSpec| s.for_zone("zone-a"), |s: SliceSpec| s.for_region("region-1")] {
        check(
            |world| world.with(label).with(|s| s.ready(&["zone-b"]).terminating(&["zone-c"])),
            Tier::Zone,
            &[
                ("zone-b:8080", Unused(WhyNot::Unlabelled)),
                ("zone-c:8080", Unused(WhyNot::Unlabelled)),
            ],
        );
    }
}

#[test]
fn a_slice_without_our_port_makes_a_service_zoned_all_the_same() {
    check(
        |world| {
            world.with(|s| s.ready(&["zone-b"])).slice(
                "web/api",
                &[("admin", Protocol::Tcp, 8081)],
                |s| s.for_zone("zone-a").ready(&["same-zone"]),
            )
        },
        Tier::Zone,
        &[("zone-b:8080", Unused(WhyNot::Unlabelled))],
    );
}

#[test]
fn slices_of_the_other_family_say_nothing() {
    let mut world = World::new(Family::V6).with(|s| s.for_zone("zone-a").ready(&["same-zone"]));
    world.family = Family::V4;
    let world = world.with(|s| s.ready(&["local-1"]));
    let verdicts = |family: Family| -> (Tier, Vec<(&str, Verdict)>) {
        let Selection { tier, candidates } = select(&http(), family, &world.slices, &world.node);
        let verdicts = candidates.iter().map(|c| (host_of(family, c.endpoint.addr), c.verdict));
        (tier, verdicts.collect())
    };
    assert_eq!(verdicts(Family::V4), (Tier::Everyone, vec![("local-1", Used(Why::Ready))]));
    assert_eq!(verdicts(Family::V6), (Tier::Zone, vec![("same-zone", Used(Why::ZoneSlice))]));
}

#[test]
fn hints_in_zone_slices_are_ignored() {
    check(
        |world| {
            world
                .with(|s| {
                    s.for_zone("zone-a")
                        .ready(&["local-1"])
                        .hint_nodes(&["node-1"])
                        .hint_zones(&["zone-a"])
                        .ready(&["same-zone"])
                        .hint_nodes(&["node-2"])
                        .hint_zones(&["zone-b"])
                })
                .with(|s| s.for_region("region-1").ready(&["zone-b"]).hint_zones(&["zone-a"]))
        },
        Tier::Zone,
        &[
            ("local-1:8080", Used(Why::ZoneSlice)),
            ("same-zone:8080", Used(Why::ZoneSlice)),
            ("zone-b:8080", Unused(WhyNot::ZoneFirst)),
        ],
    );
}

// Rule 3: an endpoint that stands in several slices.

#[test]
fn an_endpoint_in_two_slices_counts_once() {
    check(
        |world| world.with(|s| s.ready(&["local-1", "zone-b"])).with(|s| s.ready(&["zone-b"])),
        Tier::Everyone,
        &[
            ("local-1:8080", Used(Why::Ready)),
            ("zone-b:8080", Used(Why::Ready)),
            ("zone-b:8080", Unused(WhyNot::Duplicate)),
        ],
    );
}

#[test]
fn an_endpoint_twice_in_one_slice_counts_once() {
    check(
        |world| world.with(|s| s.not_ready(&["zone-b"]).ready(&["zone-b"])),
        Tier::Everyone,
        &[("zone-b:8080", Unused(WhyNot::Duplicate)), ("zone-b:8080", Used(Why::Ready))],
    );
}

#[test]
fn the_better_copy_of_an_endpoint_wins() {
    type Build = fn(SliceSpec) -> SliceSpec;
    let ready: Build = |s| s.ready(&["zone-b"]);
    let not_ready: Build = |s| s.not_ready(&["zone-b"]);
    let terminating: Build = |s| s.terminating(&["zone-b"]);
    let gone: Build = |s| s.gone(&["zone-b"]);
    let duplicate = Unused(WhyNot::Duplicate);
    // As in kube-proxy, a new endpoint with the address of one that goes away is the one that counts,
    // even before it is ready.
    let rows = [
        ("ready before not ready", ready, not_ready, Used(Why::Ready)),
        ("ready before terminating", ready, terminating, Used(Why::Ready)),
        ("not ready before terminating", not_ready, terminating, Unused(WhyNot::NotReady)),
        ("serving before gone", terminating, gone, Used(Why::LastResort)),
    ];
    for (name, better, worse, verdict) in rows {
        for family in Family::BOTH {
            let verdicts = |world: World| -> Vec<Verdict> {
                let selection = select(&http(), family, &world.slices, &world.node);
                selection.candidates.iter().map(|c| c.verdict).collect()
            };
            let first = verdicts(World::new(family).with(better).with(worse));
            assert_eq!(first, [verdict, duplicate], "{family}, {name}");
            let second = verdicts(World::new(family).with(worse).with(better));
            assert_eq!(second, [duplicate, verdict], "{family}, {name}, the other way round");
        }
    }
}

#[test]
fn copies_in_zone_and_region_are_judged_tier_by_tier() {
    check(
        |world| {
            world
                .with(|s| s.for_region("region-1").ready(&["same-zone", "zone-b"]))
                .with(|s| s.for_zone("zone-a").ready(&["same-zone"]))
                .with(|s| s.ready(&["same-zone"]))
        },
        Tier::Zone,
        &[
            ("same-zone:8080", Used(Why::ZoneSlice)),
            ("same-zone:8080", Unused(WhyNot::ZoneFirst)),
            ("same-zone:8080", Unused(WhyNot::Unlabelled)),
            ("zone-b:8080", Unused(WhyNot::ZoneFirst)),
        ],
    );
    check(
        |world| {
            world
                .with(|s| s.for_zone("zone-a").not_ready(&["same-zone"]))
                .with(|s| s.for_region("region-1").ready(&["same-zone"]))
                .with(|s| s.for_region("region-1").ready(&["same-zone"]))
        },
        Tier::Region,
        &[
            ("same-zone:8080", Unused(WhyNot::NotReady)),
            ("same-zone:8080", Used(Why::RegionSlice)),
            ("same-zone:8080", Unused(WhyNot::Duplicate)),
        ],
    );
}

#[test]
fn a_copy_in_a_slice_that_is_not_ours_is_no_duplicate() {
    check(
        |world| {
            world
                .with(|s| s.for_zone("zone-b").ready(&["zone-b"]))
                .with(|s| s.terminating(&["zone-b"]))
        },
        Tier::Everyone,
        &[("zone-b:8080", Unused(WhyNot::OtherZone)), ("zone-b:8080", Used(Why::LastResort))],
    );
}

// Rule 4: which tier of a zoned Service.

#[test]
fn the_zone_comes_before_the_region() {
    check(
        |world| {
            world
                .with(|s| {
                    s.for_zone("zone-a")
                        .ready(&["local-1"])
                        .not_ready(&["local-2"])
                        .terminating(&["same-zone"])
                })
                .with(|s| s.for_region("region-1").ready(&["zone-b"]).gone(&["zone-c"]))
        },
        Tier::Zone,
        &[
            ("local-1:8080", Used(Why::ZoneSlice)),
            ("local-2:8080", Unused(WhyNot::NotReady)),
            ("same-zone:8080", Unused(WhyNot::Terminating)),
            ("zone-b:8080", Unused(WhyNot::ZoneFirst)),
            ("zone-c:8080", Unused(WhyNot::Terminating)),
        ],
    );
}

#[test]
fn a_zone_without_a_ready_endpoint_fails_over_to_the_region() {
    check(
        |world| {
            world
                .with(|s| s.for_zone("zone-a").not_ready(&["local-1"]).terminating(&["same-zone"]))
                .with(|s| s.for_region("region-1").ready(&["zone-b"]).not_ready(&["zone-c"]))
        },
        Tier::Region,
        &[
            ("local-1:8080", Unused(WhyNot::NotReady)),
            ("same-zone:8080", Unused(WhyNot::Terminating)),
            ("zone-b:8080", Used(Why::RegionSlice)),
            ("zone-c:8080", Unused(WhyNot::NotReady)),
        ],
    );
}

#[test]
fn with_nothing_ready_the_zones_last_resort_comes_first() {
    check(
        |world| {
            world
                .with(|s| s.for_zone("zone-a").terminating(&["same-zone"]).gone(&["local-1"]))
                .with(|s| s.for_region("region-1").terminating(&["zone-b"]).not_ready(&["zone-c"]))
                .with(|s| s.ready(&["local-2"]))
        },
        Tier::Zone,
        &[
            ("local-1:8080", Unused(WhyNot::NotReady)),
            ("local-2:8080", Unused(WhyNot::Unlabelled)),
            ("same-zone:8080", Used(Why::LastResort)),
            ("zone-b:8080", Unused(WhyNot::ZoneFirst)),
            ("zone-c:8080", Unused(WhyNot::NotReady)),
        ],
    );
}

#[test]
fn with_nothing_usable_in_the_zone_the_regions_last_resort_counts() {
    check(
        |world| {
            world
                .with(|s| s.for_zone("zone-a").not_ready(&["local-1"]).gone(&["same-zone"]))
                .with(|s| s.for_region("region-1").terminating(&["zone-b"]))
        },
        Tier::Region,
        &[
            ("local-1:8080", Unused(WhyNot::NotReady)),
            ("same-zone:8080", Unused(WhyNot::NotReady)),
            ("zone-b:8080", Used(Why::LastResort)),
        ],
    );
}

#[test]
fn a_zoned_service_with_nothing_usable_uses_nothing() {
    check(
        |world| {
            world
                .with(|s| s.for_zone("zone-a").not_ready(&["same-zone"]))
                .with(|s| s.for_region("region-1").gone(&["zone-b"]))
                .with(|s| s.ready(&["zone-c"]))
        },
        Tier::Zone,
        &[
            ("same-zone:8080", Unused(WhyNot::NotReady)),
            ("zone-b:8080", Unused(WhyNot::NotReady)),
            ("zone-c:8080", Unused(WhyNot::Unlabelled)),
        ],
    );
}

// Rule 5: Services that are not zoned.

#[test]
fn ready_endpoints_are_used_and_the_others_say_why_not() {
    check(
        |world| {
            world.with(|s| {
                s.ready(&["local-1", "zone-b"])
                    .not_ready(&["local-2"])
                    .terminating(&["same-zone"])
                    .gone(&["zone-c"])
            })
        },
        Tier::Everyone,
        &[
            ("local-1:8080", Used(Why::Ready)),
            ("local-2:8080", Unused(WhyNot::NotReady)),
            ("same-zone:8080", Unused(WhyNot::Terminating)),
            ("zone-b:8080", Used(Why::Ready)),
            ("zone-c:8080", Unused(WhyNot::Terminating)),
        ],
    );
}

#[test]
fn with_nothing_ready_the_serving_and_terminating_are_used_whatever_their_hints() {
    check(
        |world| {
            world.with(|s| {
                s.terminating(&["local-1"])
                    .hint_zones(&["zone-a"])
                    .terminating(&["zone-b"])
                    .hint_zones(&["zone-b"])
                    .not_ready(&["local-2"])
                    .gone(&["zone-c"])
            })
        },
        Tier::Everyone,
        &[
            ("local-1:8080", Used(Why::LastResort)),
            ("local-2:8080", Unused(WhyNot::NotReady)),
            ("zone-b:8080", Used(Why::LastResort)),
            ("zone-c:8080", Unused(WhyNot::NotReady)),
        ],
    );
}

#[test]
fn complete_zone_hints_narrow_to_those_that_name_our_zone() {
    check(
        |world| {
            world
                .with(|s| s.ready(&["local-1"]).hint_zones(&["zone-b", "zone-a"]))
                .with(|s| s.ready(&["zone-b"]).hint_zones(&["zone-b"]))
        },
        Tier::Everyone,
        &[("local-1:8080", Used(Why::ZoneHint)), ("zone-b:8080", Unused(WhyNot::HintedElsewhere))],
    );
}

#[test]
fn complete_node_hints_come_before_zone_hints() {
    check(
        |world| {
            world.with(|s| {
                s.ready(&["local-1"])
                    .hint_zones(&["zone-b"])
                    .hint_nodes(&["node-1"])
                    .ready(&["same-zone"])
                    .hint_zones(&["zone-a"])
                    .hint_nodes(&["node-2"])
            })
        },
        Tier::Everyone,
        &[
            ("local-1:8080", Used(Why::NodeHint)),
            ("same-zone:8080", Unused(WhyNot::HintedElsewhere)),
        ],
    );
}

#[test]
fn node_hints_for_others_leave_the_decision_to_zone_hints() {
    check(
        |world| {
            world.with(|s| {
                s.ready(&["same-zone"])
                    .hint_zones(&["zone-a"])
                    .hint_nodes(&["node-2"])
                    .ready(&["zone-b"])
                    .hint_zones(&["zone-b"])
                    .hint_nodes(&["node-3"])
            })
        },
        Tier::Everyone,
        &[
            ("same-zone:8080", Used(Why::ZoneHint)),
            ("zone-b:8080", Unused(WhyNot::HintedElsewhere)),
        ],
    );
}

#[test]
fn hints_that_do_not_decide_leave_every_ready_endpoint_in_use() {
    type Change = fn(World) -> World;
    let rows: [(&str, Change); 5] = [
        ("one ready endpoint has no zone hint", |world| {
            world.with(|s| s.ready(&["local-1"]).hint_zones(&["zone-a"]).ready(&["zone-b"]))
        }),
        ("one ready endpoint has an empty hint", |world| {
            world.with(|s| {
                let s = s.ready(&["local-1"]).hint_nodes(&["node-1"]).hint_zones(&["zone-a"]);
                s.ready(&["zone-b"]).hint_nodes(&[]).hint_zones(&[])
            })
        }),
        ("no hint names our zone", |world| {
            world.with(|s| {
                let s = s.ready(&["local-1"]).hint_zones(&["zone-b"]);
                s.ready(&["zone-b"]).hint_zones(&["zone-c"])
            })
        }),
        ("no hint names our node", |world| {
            world.with(|s| {
                let s = s.ready(&["local-1"]).hint_nodes(&["node-2"]);
                s.ready(&["zone-b"]).hint_nodes(&["node-3"])
            })
        }),
        ("our zone is unknown", |world| {
            let world = world.on_node(|node| node.zone = None);
            world.with(|s| {
                let s = s.ready(&["local-1"]).hint_zones(&["zone-a"]);
                s.ready(&["zone-b"]).hint_zones(&["zone-b"])
            })
        }),
    ];
    for (name, build) in rows {
        for family in Family::BOTH {
            let world = build(World::new(family));
            let selection = select(&http(), family, &world.slices, &world.node);
            let verdicts: Vec<Verdict> = selection.candidates.iter().map(|c| c.verdict).collect();
            assert_eq!(verdicts, [Used(Why::Ready), Used(Why::Ready)], "{family}, {name}");
        }
    }
}

#[test]
fn hints_of_endpoints_that_are_not_ready_neither_help_nor_hinder() {
    check(
        |world| {
            world.with(|s| {
                s.ready(&["local-1"])
                    .hint_zones(&["zone-a"])
                    .not_ready(&["local-2"])
                    .terminating(&["same-zone"])
                    .ready(&["zone-b"])
                    .hint_zones(&["zone-b"])
            })
        },
        Tier::Everyone,
        &[
            ("local-1:8080", Used(Why::ZoneHint)),
            ("local-2:8080", Unused(WhyNot::NotReady)),
            ("same-zone:8080", Unused(WhyNot::Terminating)),
            ("zone-b:8080", Unused(WhyNot::HintedElsewhere)),
        ],
    );
    check(
        |world| {
            world.with(|s| {
                s.not_ready(&["local-1"])
                    .hint_zones(&["zone-a"])
                    .ready(&["zone-b"])
                    .hint_zones(&["zone-b"])
            })
        },
        Tier::Everyone,
        &[("local-1:8080", Unused(WhyNot::NotReady)), ("zone-b:8080", Used(Why::Ready))],
    );
}

// Ports.

#[test]
fn slices_may_give_one_port_name_different_numbers() {
    check(
        |world| {
            world.with(|s| s.ready(&["local-1", "zone-b"])).slice(
                "web/api",
                &[("http", Protocol::Tcp, 8081)],
                |s| s.ready(&["local-1"]).not_ready(&["zone-b"]),
            )
        },
        Tier::Everyone,
        &[
            ("local-1:8080", Used(Why::Ready)),
            ("local-1:8081", Used(Why::Ready)),
            ("zone-b:8080", Used(Why::Ready)),
            ("zone-b:8081", Unused(WhyNot::NotReady)),
        ],
    );
}

#[test]
fn a_port_is_matched_by_name_and_protocol() {
    check(
        |world| {
            let ports = [("http", Protocol::Udp, 1), ("other", Protocol::Tcp, 2), HTTP];
            world
                .slice("web/api", &ports, |s| s.ready(&["local-1"]))
                .slice("web/api", &ports[..2], |s| s.ready(&["zone-b"]))
                .slice("web/api", &[], |s| s.ready(&["zone-c"]))
        },
        Tier::Everyone,
        &[("local-1:8080", Used(Why::Ready))],
    );
}

#[test]
fn without_slices_there_is_nothing() {
    check(|world| world, Tier::Everyone, &[]);
}

#[test]
fn every_verdict_reads_as_a_reason_of_its_own() {
    let all = [
        Used(Why::Ready),
        Used(Why::NodeHint),
        Used(Why::ZoneHint),
        Used(Why::ZoneSlice),
        Used(Why::RegionSlice),
        Used(Why::LastResort),
        Unused(WhyNot::NotReady),
        Unused(WhyNot::Terminating),
        Unused(WhyNot::HintedElsewhere),
        Unused(WhyNot::OtherZone),
        Unused(WhyNot::Unlabelled),
        Unused(WhyNot::ZoneFirst),
        Unused(WhyNot::Duplicate),
    ];
    let texts: BTreeSet<String> = all.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), all.len(), "{texts:?}");
    assert_eq!(Used(Why::ZoneSlice).to_string(), "ready, in a slice for this zone");
}
