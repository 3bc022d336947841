//! What the operator's choices and the node's surroundings change.

use zw_model::Family;
use zw_model::Protocol::Tcp;

use super::{AT_8080, HTTP, Rows, by, by_as_node};
use crate::config::{Balance, Pods};
use crate::testing::fixtures::{World, vip};
use crate::testing::{Case, Want};

pub(super) fn cases(family: Family) -> Vec<Case> {
    let rows = || Rows(family, Vec::new());
    let served = |world: World| {
        world
            .service("web/api", 10, &[HTTP])
            .slice("web/api", &[AT_8080], |s| s.ready(&["zone-b", "zone-c"]))
    };
    let world = || World::new(family);
    let both = ["zone-b", "zone-c"];
    let ranges = if family == Family::V4 { "10.96.0.0/24" } else { "fd00:10:96::/112" };
    let beyond = std::net::SocketAddr::new(
        match family {
            Family::V4 => [10, 96, 1, 1].into(),
            Family::V6 => std::net::IpAddr::from([0xfd00, 0x10, 0x96, 0, 0, 0, 1, 1]),
        },
        80,
    );
    vec![
        Case {
            name: "masquerade all",
            world: served(world().configured(|config| config.masquerade_all = true)),
            rows: rows()
                .tcp("a pod becomes the node", "client", (10, 80), by_as_node(&both, 8080))
                .tcp("an outsider too", "outside", (10, 80), by_as_node(&both, 8080))
                .1,
        },
        Case {
            name: "pods known by their interface",
            // The one that leads to the pod named client.
            world: served(world().configured(|config| config.pods = Pods::Bridge("h6".into()))),
            rows: rows()
                .tcp("a pod keeps its address", "client", (10, 80), by(&both, 8080))
                .tcp("others become the node", "same-zone", (10, 80), by_as_node(&both, 8080))
                .tcp("an outsider too", "outside", (10, 80), by_as_node(&both, 8080))
                .tcp("the node is itself", "node", (10, 80), by_as_node(&both, 8080))
                .1,
        },
        Case {
            name: "pods known by the beginning of their interface",
            world: served(
                world().configured(|config| config.pods = Pods::InterfacePrefix("h".into())),
            ),
            rows: rows()
                .tcp("a pod keeps its address", "client", (10, 80), by(&both, 8080))
                .tcp("whoever comes that way does", "outside", (10, 80), by(&both, 8080))
                .tcp("the node is itself", "node", (10, 80), by_as_node(&both, 8080))
                .1,
        },
        Case {
            name: "round robin",
            world: served(world().configured(|config| config.balance = Balance::RoundRobin)),
            rows: rows().tcp("all take part", "client", (10, 80), by(&both, 8080)).1,
        },
        Case {
            name: "the range of cluster IPs is known",
            world: served(world().surrounded(|around| {
                around.service_ranges = vec![ranges.parse().expect("a range")];
            })),
            rows: rows()
                .tcp("a Service is served", "client", (10, 80), by(&both, 8080))
                .tcp("its wrong port is refused", "client", (10, 81), Want::Refused)
                .tcp("an address nobody has is ignored", "client", (99, 80), Want::Dropped)
                .tcp("by the node too", "node", (99, 80), Want::Dropped)
                .tcp("by an outsider too", "outside", (99, 80), Want::Dropped)
                .to("the first address", "client", (vip(family, 0), 80).into(), Tcp, Want::Dropped)
                .to("beyond the range", "client", beyond, Tcp, Want::Untouched)
                .1,
        },
        Case {
            name: "a sticky Service's first packet",
            world: served(world()).offered(|service| service.affinity = Some(10_800)),
            rows: rows().tcp("from the node", "node", (10, 81), Want::Refused).1,
        },
    ]
}
