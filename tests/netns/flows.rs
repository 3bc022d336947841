//! Tracked flows whose endpoint goes: UDP clients move, TCP connections stay or break as asked for. And
//! flows that were there first.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use zw_dataplane::{FlowFilter, FlowTable};
use zw_lab::{Answer, Held};
use zw_model::{Family, Protocol};
use zw_plan::testing::host;
use zw_tests::binary::{Agent, DEADLINE, eventually, tool_in};
use zw_tests::plane::{KernelPlane, vip};

use crate::on_the_kernel;

/// A node with an agent that follows a folder, in which a dual-stack Service has these endpoints.
struct Node {
    plane: KernelPlane,
    folder: TempDir,
}

impl Node {
    fn new() -> Self {
        Self { plane: KernelPlane::new(), folder: tempfile::tempdir().unwrap() }
    }

    fn start(&self, more: &[&str]) -> Agent {
        let path = self.folder.path().to_str().unwrap();
        let ranges = "10.244.0.0/16,fd00:10:244::/48";
        let args = ["--node-name", "node-1", "--state", path, "--cluster-cidr", ranges];
        let mut agent = Agent::start(self.plane.lab().node(), &[&args, more].concat());
        agent.wait_for(&["synced"]);
        agent
    }

    fn write(&self, endpoints: &[&str]) {
        let slice = |family: Family, kind: &str| {
            let endpoints: Vec<String> = endpoints
                .iter()
                .map(|name| format!("{{addresses: [\"{}\"]}}", host(name).addr(family)))
                .collect();
            format!(
                "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: dns-{kind}, namespace: kube-system, labels: {{kubernetes.io/service-name: dns}}}}
addressType: {kind}
ports: [{{name: dns, port: 5353, protocol: UDP}}, {{name: dns-tcp, port: 5353, protocol: TCP}}]
endpoints: [{}]
",
                endpoints.join(", ")
            )
        };
        let text = format!(
            "apiVersion: v1
kind: Service
metadata: {{name: dns, namespace: kube-system}}
spec:
  clusterIPs: [10.96.0.10, \"fd00:10:96::a\"]
  ports: [{{name: dns, port: 53, protocol: UDP}}, {{name: dns-tcp, port: 53, protocol: TCP}}]
{}{}",
            slice(Family::V4, "IPv4"),
            slice(Family::V6, "IPv6")
        );
        let hidden = self.folder.path().join(".state.yaml");
        fs::write(&hidden, text).unwrap();
        fs::rename(hidden, self.folder.path().join("state.yaml")).unwrap();
    }

    /// Another Service that claims the same addresses in vain.
    fn write_contender(&self, endpoint: &str) {
        let text = format!(
            "apiVersion: v1
kind: Service
metadata: {{name: zz, namespace: kube-system}}
spec: {{clusterIP: 10.96.0.10, ports: [{{port: 53, protocol: TCP}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: zz-1, namespace: kube-system, labels: {{kubernetes.io/service-name: zz}}}}
addressType: IPv4
ports: [{{port: 5353, protocol: TCP}}]
endpoints: [{{addresses: [{}]}}]
",
            host(endpoint).addr(Family::V4)
        );
        let hidden = self.folder.path().join(".contender.yaml");
        fs::write(&hidden, text).unwrap();
        fs::rename(hidden, self.folder.path().join("contender.yaml")).unwrap();
    }

    fn hold(&self, family: Family) -> Held {
        let to = vip(family, 10, 53);
        self.plane.lab().open("client", to, Duration::from_secs(5)).expect("a connection")
    }
}

#[test]
fn a_udp_client_that_never_pauses_is_moved_when_its_endpoint_goes() {
    on_the_kernel(|| {
        let node = Node::new();
        node.write(&["zone-b"]);
        let _agent = node.start(&[]);

        let sockets = Family::BOTH.map(|family| {
            let from = SocketAddr::new(host("client").addr(family), 0);
            let client = node.plane.lab().host("client").unwrap();
            let socket = client.run(|| UdpSocket::bind(from).unwrap());
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
            node.write(&[endpoint]);
            println!("a UDP client moved to {endpoint} after {:?}", until(endpoint));
        }
    });
}

#[test]
fn a_connection_begun_before_there_were_rules_gets_through_with_its_next_packet() {
    on_the_kernel(|| {
        let node = Node::new();
        node.write(&["zone-b"]);
        let lab = node.plane.lab();
        // As on any node where somebody else has rules about connections.
        let others = "table inet other {
            chain pass { type filter hook forward priority 0; ct state new accept; }
        }";
        assert!(tool_in(lab.node(), "nft", &["-f", "-"], others).status.success());
        thread::scope(|scope| {
            let clients = Family::BOTH.map(|family| {
                let connect = move || lab.open("client", vip(family, 10, 53), DEADLINE);
                (family, scope.spawn(connect))
            });
            for family in Family::BOTH {
                eventually("a flow to nobody", || {
                    let (protocol, to) = (Protocol::Tcp, Some(vip(family, 10, 53)));
                    let sought = FlowFilter { family, protocol, unanswered: true, to };
                    let mut found = 0;
                    let mut table = lab.node().run(FlowTable::open).unwrap();
                    table.each(sought, &mut |_| found += 1).unwrap();
                    found > 0
                });
            }
            let _agent = node.start(&[]);
            for (family, client) in clients {
                let held = client.join().unwrap();
                assert!(held.is_ok(), "{family}: {:?}", held.err());
            }
        });
    });
}

#[test]
fn a_tcp_connection_outlives_every_change_even_that_of_its_endpoint() {
    on_the_kernel(|| {
        let node = Node::new();
        node.write(&["zone-b"]);
        let mut agent = node.start(&[]);
        let mut held = Family::BOTH.map(|family| node.hold(family));
        for endpoints in [&["zone-b", "zone-c"][..], &["zone-c"], &[]] {
            node.write(endpoints);
            agent.wait_for(&["synced"]);
            for connection in &mut held {
                let answer = connection.say();
                assert!(
                    matches!(&answer, Answer::Answered { by, .. } if by == "zone-b"),
                    "{answer:?}"
                );
            }
        }
    });
}

#[test]
fn where_asked_for_a_tcp_connection_breaks_when_its_endpoint_goes_and_no_other_does() {
    on_the_kernel(|| {
        let node = Node::new();
        node.write(&["zone-b"]);
        let mut agent = node.start(&["--conntrack-tcp-cleanup"]);
        let mut leading_away = Family::BOTH.map(|family| node.hold(family));
        node.write(&["zone-c"]);
        agent.wait_for(&["synced"]);
        // Nobody waits for it: what is tracked is looked for after the commit.
        for (family, connection) in Family::BOTH.iter().zip(&mut leading_away) {
            let started = Instant::now();
            while !matches!(connection.say(), Answer::Failed(_)) {
                assert!(
                    started.elapsed() < DEADLINE,
                    "{family}: still with an endpoint that is gone"
                );
            }
        }
        let mut staying = Family::BOTH.map(|family| node.hold(family));
        for endpoints in [&["zone-c", "zone-b"][..], &["zone-c"], &["local-2", "zone-c"]] {
            node.write(endpoints);
            agent.wait_for(&["synced"]);
            for connection in &mut staying {
                let answer = connection.say();
                assert!(
                    matches!(&answer, Answer::Answered { by, .. } if by == "zone-c"),
                    "{answer:?}"
                );
            }
        }
    });
}

#[test]
fn a_service_that_claims_anothers_address_cuts_none_of_its_connections() {
    on_the_kernel(|| {
        let node = Node::new();
        node.write(&["zone-b"]);
        let mut agent = node.start(&["--conntrack-tcp-cleanup"]);
        let mut held = node.hold(Family::V4);
        let mut stays = |agent: &mut Agent| {
            agent.wait_for(&["synced"]);
            // What is tracked is looked for after the commit.
            for _ in 0..20 {
                let answer = held.say();
                let same = matches!(&answer, Answer::Answered { by, .. } if by == "zone-b");
                assert!(same, "{answer:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        for endpoint in ["zone-c", "local-2"] {
            node.write_contender(endpoint);
            stays(&mut agent);
        }
        fs::remove_file(node.folder.path().join("contender.yaml")).unwrap();
        stays(&mut agent);
    });
}
