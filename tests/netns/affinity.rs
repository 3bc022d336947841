//! Clients that stay with their endpoint, and UDP clients that must not.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use zw_dataplane::Kernel;
use zw_lab::{Answer, Protocol};
use zw_model::{External, Family};
use zw_plan::testing::{NODE, World, host};
use zw_plan::{Desired, bring_to};
use zw_tests::binary::{Agent, DEADLINE};
use zw_tests::plane::{KernelPlane, vip};

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
            assert!(was == gone || now == *was, "{family}: {client} was with {was}, is with {now}");
        }
    }
}

#[test]
fn a_client_that_keeps_coming_stays_longer_than_the_timeout() {
    let plane = KernelPlane::new();
    for family in Family::BOTH {
        bring(&plane, &world(family, &ENDPOINTS, 2).desired());
        let before = CLIENTS.map(|client| the_one(&plane, family, client));
        let started = Instant::now();
        // More than twice the timeout, never silent for as long as that.
        while started.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(500));
            assert_eq!(CLIENTS.map(|client| the_one(&plane, family, client)), before);
        }
    }
}

#[test]
fn a_udp_client_that_never_pauses_is_moved_when_its_endpoint_goes() {
    let plane = KernelPlane::new();
    let folder = tempfile::tempdir().unwrap();
    let write = |endpoint: &str| {
        let (v4, v6) = (host(endpoint).addr(Family::V4), host(endpoint).addr(Family::V6));
        let text = format!(
            "apiVersion: v1
kind: Service
metadata: {{name: dns, namespace: kube-system}}
spec:
  clusterIPs: [10.96.0.10, \"fd00:10:96::a\"]
  ports: [{{name: dns, port: 53, protocol: UDP}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: dns-4, namespace: kube-system, labels: {{kubernetes.io/service-name: dns}}}}
addressType: IPv4
ports: [{{name: dns, port: 5353, protocol: UDP}}]
endpoints: [{{addresses: [{v4}]}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: dns-6, namespace: kube-system, labels: {{kubernetes.io/service-name: dns}}}}
addressType: IPv6
ports: [{{name: dns, port: 5353, protocol: UDP}}]
endpoints: [{{addresses: [\"{v6}\"]}}]
"
        );
        let hidden = folder.path().join(".state.yaml");
        std::fs::write(&hidden, text).unwrap();
        std::fs::rename(hidden, folder.path().join("state.yaml")).unwrap();
    };
    write("zone-b");
    let path = folder.path().to_str().unwrap();
    let mut agent = Agent::start(
        plane.lab().node(),
        &[
            "--node-name",
            "node-1",
            "--state",
            path,
            "--cluster-cidr",
            "10.244.0.0/16,fd00:10:244::/48",
        ],
    );
    agent.wait_for(&["synced"]);

    let sockets = Family::BOTH.map(|family| {
        let from = SocketAddr::new(host("client").addr(family), 0);
        let socket = plane.lab().host("client").unwrap().run(|| UdpSocket::bind(from).unwrap());
        socket.connect(vip(family, 10, 53)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        socket
    });
    // The same flow all the time; says who answered last.
    let ask = |socket: &UdpSocket| -> Option<String> {
        socket.send(b"?\n").ok()?;
        let mut buffer = [0; 200];
        let length = socket.recv(&mut buffer).ok()?;
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        Some(text.split_whitespace().next()?.to_owned())
    };
    let until = |want: &str| {
        let started = Instant::now();
        for (family, socket) in Family::BOTH.iter().zip(&sockets) {
            while ask(socket).as_deref() != Some(want) {
                assert!(started.elapsed() < DEADLINE, "{family}: {want} never answered");
            }
        }
        started.elapsed()
    };
    until("zone-b");
    for endpoint in ["zone-c", "zone-b"] {
        write(endpoint);
        println!("a UDP client moved to {endpoint} after {:?}", until(endpoint));
    }
}
