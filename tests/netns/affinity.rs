//! Clients that stay with their endpoint.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use zw_dataplane::Kernel;
use zw_lab::{Answer, Protocol};
use zw_model::{External, Family, ServiceKey};
use zw_plan::testing::{NODE, World};
use zw_plan::{Desired, bring_to};
use zw_tests::plane::{KernelPlane, vip};

use crate::on_the_kernel;

const ENDPOINTS: [&str; 3] = ["local-2", "zone-b", "zone-c"];
const CLIENTS: [&str; 4] = ["client", "same-zone", "outside", "node"];
const NODE_PORT: u16 = 30_080;

fn external_ip(family: Family) -> std::net::IpAddr {
    match family {
        Family::V4 => [198, 51, 100, 7].into(),
        Family::V6 => [0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 7].into(),
    }
}

/// A sticky Service with every kind of address.
fn world(family: Family, endpoints: &[&str], timeout: u32) -> World {
    World::new(family)
        .service("web/api", 10, &[("http", zw_model::Protocol::Tcp, 80)])
        .offered(|service| {
            service.affinity = Some(timeout);
            service.ports[0].node_port = NODE_PORT.try_into().ok();
            let ips = vec![external_ip(family)];
            service.external = Some(Box::new(External { ips, ..External::default() }));
        })
        .slice("web/api", &[("http", zw_model::Protocol::Tcp, 8080)], |s| s.ready(endpoints))
}

/// Brings the kernel there as a restarted agent would; says how much it had to write.
fn bring(plane: &KernelPlane, desired: &Desired) -> usize {
    plane.lab().node().run(|| {
        let mut kernel = Kernel::open().unwrap();
        let read = kernel.read_back().unwrap();
        let changes = bring_to(desired, &read.actual);
        kernel.commit(&changes, read.generation).unwrap();
        changes.element_operations() + changes.chain_operations()
    })
}

/// Who answers this client, at any of the Service's addresses.
fn answerers(plane: &KernelPlane, family: Family, client: &str, times: usize) -> BTreeSet<String> {
    let everywhere = [
        vip(family, 10, 80),
        SocketAddr::new(external_ip(family), 80),
        SocketAddr::new(NODE.addr(family), NODE_PORT),
    ];
    let asked = everywhere.iter().cycle().take(times * everywhere.len());
    asked
        .map(|to| match plane.lab().probe(client, *to, Protocol::Tcp, Duration::from_secs(5)) {
            Answer::Answered { by, .. } => by,
            other => panic!("{family}, {client} to {to}: {other:?}"),
        })
        .collect()
}

fn the_one(plane: &KernelPlane, family: Family, client: &str) -> String {
    let mut all = answerers(plane, family, client, 4);
    assert_eq!(all.len(), 1, "{family}: {client} stays with one of {all:?}");
    all.pop_first().unwrap()
}

#[test]
fn a_client_stays_with_its_endpoint_at_every_address_through_changes_and_restarts() {
    on_the_kernel(|| {
        let plane = KernelPlane::new();
        for family in Family::BOTH {
            let desired = world(family, &ENDPOINTS, 10_800).desired();
            bring(&plane, &desired);
            let before = CLIENTS.map(|client| the_one(&plane, family, client));

            assert_eq!(bring(&plane, &desired), 0, "a restart writes nothing");
            assert_eq!(CLIENTS.map(|client| the_one(&plane, family, client)), before);

            // Some endpoint goes: its clients move, and stay where they moved; all others stay put.
            let gone = &before[0];
            let left: Vec<&str> = ENDPOINTS.into_iter().filter(|name| name != gone).collect();
            bring(&plane, &world(family, &left, 10_800).desired());
            for (client, was) in CLIENTS.iter().zip(&before) {
                let now = the_one(&plane, family, client);
                assert_ne!(now, *gone, "{family}: {client} is not sent where nobody is");
                assert!(
                    was == gone || now == *was,
                    "{family}: {client} was with {was}, is with {now}"
                );
            }
        }
    });
}

/// What is not used any more is deleted in a second transaction, and the kernel may refuse that.
#[test]
fn a_service_that_comes_back_knows_no_client_even_where_its_map_was_left_behind() {
    on_the_kernel(|| {
        let plane = KernelPlane::new();
        for family in Family::BOTH {
            let mut desired = world(family, &["zone-b"], 10_800).desired();
            bring(&plane, &desired);
            assert_eq!(the_one(&plane, family, "client"), "zone-b");

            let key = ServiceKey::new("web", "api");
            let mut goes = desired.update([(key.clone(), None)]);
            for table in goes.tables.values_mut() {
                let left = table.delete_sets.len() + table.delete_chains.len();
                assert!(left > 0, "{family}: something to leave behind");
                (table.delete_sets, table.delete_chains) = Default::default();
            }
            let back = world(family, &["zone-c"], 10_800).desired();
            let comes = desired.update([(key.clone(), back.service(&key).cloned())]);
            plane.lab().node().run(|| {
                let mut kernel = Kernel::open().unwrap();
                kernel.commit(&goes, None).unwrap();
                kernel.commit(&comes, None).unwrap();
            });
            assert_eq!(the_one(&plane, family, "client"), "zone-c");
        }
    });
}

#[test]
fn a_client_that_keeps_coming_stays_longer_than_the_timeout() {
    on_the_kernel(|| {
        let plane = KernelPlane::new();
        for family in Family::BOTH {
            bring(&plane, &world(family, &ENDPOINTS, 3).desired());
            let before = CLIENTS.map(|client| the_one(&plane, family, client));
            let started = Instant::now();
            // More than twice the timeout, never silent for as long as that.
            while started.elapsed() < Duration::from_secs(7) {
                thread::sleep(Duration::from_millis(500));
                assert_eq!(CLIENTS.map(|client| the_one(&plane, family, client)), before);
            }
        }
    });
}
