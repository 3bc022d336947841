//! SCTP, which not every kernel has, and so apart from the other cases: each of them that speaks TCP once
//! more with SCTP in its place, and all three protocols side by side.

use zw_model::Family;
use zw_model::Protocol::{Sctp, Tcp, Udp};

use super::{Rows, by, cases};
use crate::testing::fixtures::World;
use crate::testing::{Case, Want};

/// Every case of SCTP, in one family.
pub fn sctp_cases(family: Family) -> Vec<Case> {
    let instead_of_tcp = cases(family).into_iter().filter_map(instead_of_tcp);
    instead_of_tcp.chain([side_by_side(family)]).collect()
}

fn instead_of_tcp(mut case: Case) -> Option<Case> {
    let services = case.world.services.iter_mut().flat_map(|service| &mut service.ports);
    let slices = case.world.slices.iter_mut().flat_map(|slice| &mut slice.ports);
    let ports = services.map(|port| &mut port.protocol);
    for protocol in ports.chain(slices.map(|port| &mut port.protocol)) {
        if *protocol == Tcp {
            *protocol = Sctp;
        }
    }
    case.rows.retain(|row| row.protocol == Tcp);
    for row in &mut case.rows {
        row.protocol = Sctp;
    }
    (!case.rows.is_empty()).then_some(case)
}

fn side_by_side(family: Family) -> Case {
    let ports = [("web", Tcp, 80), ("quic", Udp, 80), ("sig", Sctp, 80), ("more", Sctp, 81)];
    let targets =
        [("web", Tcp, 8080), ("quic", Udp, 8080), ("sig", Sctp, 5353), ("more", Sctp, 8081)];
    Case {
        name: "one number for three protocols",
        world: World::new(family)
            .service("web/api", 10, &ports)
            .slice("web/api", &targets, |s| s.ready(&["zone-b"])),
        rows: Rows(family, Vec::new())
            .tcp("TCP", "client", (10, 80), by(&["zone-b"], 8080))
            .udp("UDP", "client", (10, 80), by(&["zone-b"], 8080))
            .row("SCTP", "client", (10, 80), Sctp, by(&["zone-b"], 5353))
            .row("its second port", "client", (10, 81), Sctp, by(&["zone-b"], 8081))
            .tcp("which TCP does not have", "client", (10, 81), Want::Refused)
            .row("nor SCTP a third", "client", (10, 82), Sctp, Want::Refused)
            .1,
    }
}
