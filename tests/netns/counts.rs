//! Connections are counted by the kernel, in counters that packets make.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use zw_dataplane::Kernel;
use zw_model::Family;
use zw_plan::testing::host;
use zw_tests::binary::{Agent, eventually};
use zw_tests::cluster::dual_stack;
use zw_tests::plane::{KernelPlane, vip};

use crate::on_the_kernel;

/// What the kernel has counted of a Service port, in both families; `None` if it does not know it.
fn counted(plane: &KernelPlane, name: &str) -> [Option<u64>; 2] {
    plane.lab().node().run(|| {
        let mut kernel = Kernel::open().unwrap();
        Family::BOTH.map(|family| kernel.named_connections(family).unwrap().get(name).copied())
    })
}

/// How many counters there are, in both families.
fn counters(plane: &KernelPlane) -> usize {
    plane.lab().node().run(|| {
        let mut kernel = Kernel::open().unwrap();
        let mut of = |family| kernel.connections(family, zw_plan::SetName::Connections).unwrap();
        Family::BOTH.map(|family| of(family).len()).into_iter().sum()
    })
}

#[test]
fn a_counter_is_made_by_the_first_packet_outlives_changes_and_goes_with_its_service() {
    on_the_kernel(|| {
        let plane = KernelPlane::new();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.yaml");
        let service = |name: &str, endpoints: &[&str]| {
            let pairs = endpoints.iter().map(|name| {
                match Family::BOTH.map(|family| host(name).addr(family)) {
                    [IpAddr::V4(v4), IpAddr::V6(v6)] => (v4, v6),
                    other => panic!("{other:?}"),
                }
            });
            let pairs: Vec<_> = pairs.collect();
            dual_stack(("web", name), 10, ("http", "TCP", 80, 8080), &pairs)
        };
        fs::write(&file, service("api", &["zone-b"])).unwrap();
        let path = folder.path().to_str().unwrap();
        let mut agent =
            Agent::start(plane.lab().node(), &["--node-name", "node-1", "--state", path]);
        agent.wait_for(&["synced"]);
        assert_eq!((counted(&plane, "web/api:http"), counters(&plane)), ([Some(0); 2], 0));

        let client = plane.lab().host("client").unwrap();
        let connect = |times: usize| {
            for family in Family::BOTH {
                let to: SocketAddr = vip(family, 10, 80);
                for _ in 0..times {
                    client.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(5))).unwrap();
                }
            }
        };
        connect(3);
        assert_eq!((counted(&plane, "web/api:http"), counters(&plane)), ([Some(3); 2], 2));

        // Led to another chain, whose packets are counted in the same place.
        fs::write(&file, service("api", &["zone-b", "zone-c", "same-zone"])).unwrap();
        agent.wait_for(&["synced"]);
        connect(2);
        assert_eq!((counted(&plane, "web/api:http"), counters(&plane)), ([Some(5); 2], 2));

        // Another Service has the addresses, and has had no connection yet.
        fs::write(&file, service("shop", &["zone-b"])).unwrap();
        agent.wait_for(&["synced"]);
        assert_eq!(counted(&plane, "web/api:http"), [None; 2]);
        assert_eq!((counted(&plane, "web/shop:http"), counters(&plane)), ([Some(0); 2], 0));
        connect(1);
        assert_eq!((counted(&plane, "web/shop:http"), counters(&plane)), ([Some(1); 2], 2));

        let elsewhere = dual_stack(("web", "other"), 11, ("http", "TCP", 80, 8080), &[]);
        fs::write(&file, elsewhere).unwrap();
        eventually("nothing is left of it", || counted(&plane, "web/shop:http") == [None; 2]);
        assert_eq!(counters(&plane), 0);
    });
}
