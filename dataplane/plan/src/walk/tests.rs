//! The packet cases on the walker.

use zw_model::Family;

use crate::table::Table;
use crate::testing::{NODE, by_ipvs, cases, sctp_cases};
use crate::walk::{walk, walk_with};

#[test]
fn every_packet_meets_its_fate() {
    let mut rows = 0;
    for family in Family::BOTH {
        for case in cases(family).into_iter().chain(sctp_cases(family)) {
            let table = Table::of(&case.world.desired(), family).unwrap();
            for row in &case.rows {
                let walk = walk(&table, &NODE.addresses(family), row.packet(family));
                assert_eq!(
                    walk.fate,
                    row.fate(family),
                    "{family}, {}: {}\nrules met:\n  {}\n{table}",
                    case.name,
                    row.name,
                    walk.rules().join("\n  ")
                );
                rows += 1;
            }
        }
    }
    assert!(rows >= 500, "only {rows} rows ran");
}

#[test]
fn in_the_ipvs_mode_every_packet_meets_the_same_fate() {
    let mut rows = 0;
    for family in Family::BOTH {
        for case in by_ipvs(cases(family)).chain(by_ipvs(sctp_cases(family))) {
            let desired = case.world.desired();
            let table = Table::of(&desired, family).unwrap();
            let servers = desired.virtual_servers();
            for row in &case.rows {
                let node = NODE.addresses(family);
                let walk = walk_with(&table, &servers, &node, row.packet(family));
                assert_eq!(
                    walk.fate,
                    row.fate(family),
                    "{family}, {}: {}\nrules met:\n  {}\n{servers:?}\n{table}",
                    case.name,
                    row.name,
                    walk.rules().join("\n  ")
                );
                rows += 1;
            }
        }
    }
    assert!(rows >= 300, "only {rows} rows ran");
}
