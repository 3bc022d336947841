//! Cluster IPs that are somebody's own address. Nobody should configure that, so it has to do as little
//! harm as it can: the Service's port is the Service's, and what arrives for any other port still does.

use std::net::SocketAddr;

use zw_model::Family;
use zw_model::Protocol::Tcp;

use super::{AT_8080, HTTP, Rows, by, by_as_node};
use crate::testing::fixtures::World;
use crate::testing::{Case, NODE, Want, host};

/// The one case that the ipvs mode does not serve alike: it spares the node's own addresses.
const NODES_OWN: &str = "a cluster IP that is the node's own address, from the node";

/// These cases in the ipvs mode.
pub fn by_ipvs(cases: Vec<Case>) -> impl Iterator<Item = Case> {
    let alike = cases.into_iter().filter(|case| case.name != NODES_OWN);
    alike.map(|case| Case { world: case.world.by_ipvs(), ..case })
}

pub(super) fn cases(family: Family) -> Vec<Case> {
    let rows = || Rows(family, Vec::new());
    let at = |addr| {
        World::new(family)
            .service("web/api", 10, &[HTTP])
            .offered(|service| service.cluster_ips = vec![addr])
            .slice("web/api", &[AT_8080], |s| s.ready(&["zone-b"]))
    };
    let node = |port| SocketAddr::new(NODE.addr(family), port);
    let other = |port| SocketAddr::new(host("same-zone").addr(family), port);
    vec![
        Case {
            name: "a cluster IP that is the node's own address",
            world: at(NODE.addr(family)),
            rows: rows()
                .to("its port is served", "client", node(80), Tcp, by(&["zone-b"], 8080))
                .to("outside", "outside", node(80), Tcp, by_as_node(&["zone-b"], 8080))
                .to("other ports are the node's", "client", node(81), Tcp, Want::Untouched)
                .to("outside", "outside", node(81), Tcp, Want::Untouched)
                .1,
        },
        Case {
            name: NODES_OWN,
            world: at(NODE.addr(family)),
            rows: rows().to("it is refused there", "node", node(81), Tcp, Want::Refused).1,
        },
        Case {
            name: "a cluster IP that is another machine's address",
            world: at(host("same-zone").addr(family)),
            rows: rows()
                .to("its port is served", "client", other(80), Tcp, by(&["zone-b"], 8080))
                .to("what passes through is refused", "client", other(30_080), Tcp, Want::Refused)
                .1,
        },
    ]
}
