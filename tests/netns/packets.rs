//! The packet cases on the kernel, and how evenly it spreads connections.

use std::collections::BTreeMap;
use std::time::Duration;

use zw_dataplane::Kernel;
use zw_lab::{Answer, Protocol};
use zw_model::Family;
use zw_plan::bring_to;
use zw_plan::testing::{World, cases};
use zw_tests::plane::{KernelPlane, check_all, vip};

#[test]
fn the_kernel_agrees_with_the_walker_on_every_packet() {
    println!("{} packet rows on the kernel", check_all(&KernelPlane::new(), cases));
}

#[test]
fn every_endpoint_gets_its_share_whether_its_chain_has_empty_slots_or_not() {
    const CONNECTIONS: usize = 600;
    let plane = KernelPlane::new();
    let all = ["local-2", "same-zone", "zone-b", "zone-c", "local-1"];
    for (family, number) in Family::BOTH.into_iter().flat_map(|f| [3, 4, 5].map(|n| (f, n))) {
        let hosts = &all[..number];
        let ports = [("http", zw_model::Protocol::Tcp, 80), ("dns", zw_model::Protocol::Udp, 53)];
        let targets =
            [("http", zw_model::Protocol::Tcp, 8080), ("dns", zw_model::Protocol::Udp, 5353)];
        let world =
            World::new(family)
                .service("web/api", 10, &ports)
                .slice("web/api", &targets, |slice| slice.ready(hosts));
        plane.lab().node().run(|| {
            let mut kernel = Kernel::open().unwrap();
            let read = kernel.read_back().unwrap();
            kernel.commit(&bring_to(&world.desired(), &read.actual), read.generation).unwrap();
        });
        for (protocol, port) in [(Protocol::Tcp, 80), (Protocol::Udp, 53)] {
            let to = vip(family, 10, port);
            let mut hits: BTreeMap<String, usize> = BTreeMap::new();
            let answers =
                plane.lab().probe_many("client", to, protocol, CONNECTIONS, Duration::from_secs(5));
            for answer in answers {
                match answer {
                    Answer::Answered { by, .. } => *hits.entry(by).or_default() += 1,
                    other => panic!("{family} {protocol:?}: {other:?}"),
                }
            }
            println!("{family} {protocol:?}, {number} endpoints: {hits:?}");
            assert_eq!(hits.len(), hosts.len(), "everyone is hit: {hits:?}");
            let (draws, share) = (CONNECTIONS as f64, 1.0 / number as f64);
            let deviation = (draws * share * (1.0 - share)).sqrt();
            for (host, count) in hits {
                let off = (count as f64 - draws * share).abs();
                assert!(off < 5.0 * deviation, "{host} got {count} of {CONNECTIONS}");
            }
        }
    }
}
