//! What others do to the table of a running agent: put right at once, counted, and told once.

use std::time::Instant;

use zw_dataplane::{Kernel, Tables};
use zw_lab::Namespace;
use zw_model::{Family, Protocol};
use zw_plan::testing::cases;
use zw_plan::{Actual, Key, Place, SetName, bring_to};
use zw_tests::binary::{Agent, eventually, text, tool_in};

use crate::table::{listing, state, two_endpoints};

fn meddle(namespace: &Namespace, script: &str) {
    let meddled = tool_in(namespace, "nft", &["-f", "-"], script);
    assert!(meddled.status.success(), "{script}: {}", text(&meddled.stderr));
}

/// All sets and chains, in whatever order: one that was made anew is listed last.
fn tables(namespace: &Namespace) -> Vec<String> {
    let around = |part: &str| part.trim_matches(['}', '\n', '\t', ' ']).to_owned();
    let mut parts: Vec<String> = listing(namespace).split("\n\t}").map(around).collect();
    parts.sort();
    parts
}

/// With clients to remember, source ranges and ranges of cluster IPs: something in every kind of set.
fn everything() -> String {
    let sticky = "---
apiVersion: v1
kind: Service
metadata: {name: sticky, namespace: web}
spec:
  type: LoadBalancer
  clusterIPs: [10.96.0.20]
  sessionAffinity: ClientIP
  loadBalancerSourceRanges: [203.0.113.0/24, 198.51.100.0/25]
  ports: [{name: http, port: 80, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: 192.0.2.200}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: sticky-1, namespace: web, labels: {kubernetes.io/service-name: sticky}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.1.7], nodeName: node-1}]
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/16, \"fd00:10:96::/112\"]}
";
    two_endpoints() + sticky
}

#[test]
fn whatever_a_stranger_does_to_the_table_is_put_right_and_told() {
    let namespace = Namespace::new().unwrap();
    let folder = state(&everything());
    let path = folder.path().to_str().unwrap();
    let mut agent = Agent::start(&namespace, &["--state", path, "--node-name", "node-1"]);
    agent.wait_for(&["synced"]);
    meddle(
        &namespace,
        "add table ip strangers { set s { type ipv4_addr; elements = { 10.0.0.1 }; }; }",
    );
    let before = tables(&namespace);
    for (what, script) in [
        (
            "IPv4: an element of services",
            "delete element ip zoneward services { 10.96.0.10 . tcp . 80 }",
        ),
        (
            "IPv6: an element of services",
            "delete element ip6 zoneward services { fd00:10:96::a . tcp . 80 }",
        ),
        (
            "IPv4: an element of endpoints",
            "delete element ip zoneward endpoints { 10.96.0.10 . tcp . 80 . 1 }",
        ),
        (
            "IPv4: an element of endpoints",
            "add element ip zoneward endpoints { 10.96.0.99 . tcp . 1 . 0 : 192.0.2.9 . 1 }",
        ),
        ("IPv4: 4 elements of endpoints", "flush map ip zoneward endpoints"),
        (
            "IPv4: elements of service-ranges",
            "delete element ip zoneward service-ranges { 10.96.0.0/16 }",
        ),
        ("IPv4: elements of service-ranges", "flush set ip zoneward service-ranges"),
        ("IPv4: elements of allowed", "flush set ip zoneward allowed"),
        (
            "IPv4: elements of allowed",
            "add element ip zoneward allowed { 192.0.2.200 . tcp . 80 . 10.0.0.0-10.0.0.9 }",
        ),
        (
            "IPv4: an element of cluster-ips",
            "delete element ip zoneward cluster-ips { 10.96.0.10 }",
        ),
        ("IPv6: chain cluster-2", "flush chain ip6 zoneward cluster-2"),
        ("IPv4: chain dispatch", "insert rule ip zoneward dispatch counter drop"),
        (
            "IPv4: chain of-nobody",
            "add chain ip zoneward of-nobody { type filter hook input priority 0; policy drop; }",
        ),
        ("IPv4: chain nat-input", "delete chain ip zoneward nat-input"),
        ("IPv4: set of-nobody", "add set ip zoneward of-nobody { type ipv4_addr; }"),
        ("IPv4: chain filter-forward", "chain ip zoneward filter-forward { policy drop; }"),
        ("IPv4: the table", "add element ip zoneward services { * : drop }"),
        ("IPv6: the table", "add table ip6 zoneward { flags dormant; }"),
        ("IPv4: the table", "delete table ip zoneward"),
        (
            "IPv4: the table; IPv6: the table",
            "flush ruleset\nadd table ip strangers { set s { type ipv4_addr; elements = { 10.0.0.1 }; }; }",
        ),
    ] {
        let began = Instant::now();
        meddle(&namespace, script);
        let line = agent.wait_for(&[
            "WARN",
            "changed by somebody else",
            &format!("touched={what} by={{\"nft\"}}"),
        ]);
        let repaired = agent.wait_for(&["repaired"]);
        println!("{script}: {:?}, of which nft took some: {repaired}", began.elapsed());
        eventually(&format!("{script} is put right"), || tables(&namespace) == before);
        assert_eq!(line.matches("touched").count(), 1);
    }
    agent.read_on();
    let (told, done) =
        (|word: &str| agent.log.iter().filter(|line| line.contains(word)).count(), 20);
    assert_eq!((told("changed by somebody else"), told("repaired")), (done, done), "once each");
    assert_eq!(told("reading the kernel back"), 0, "all of it from memory");
}

#[test]
fn what_packets_and_time_do_is_no_drift_and_neither_are_other_tables() {
    let namespace = Namespace::new().unwrap();
    let folder = state(&everything());
    let path = folder.path().to_str().unwrap();
    let mut agent = Agent::start(&namespace, &["--state", path, "--node-name", "node-1"]);
    agent.wait_for(&["synced"]);
    let map = listing(&namespace)
        .lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix("map affinity-")
                .map(|rest| rest.trim_end_matches(" {").to_owned())
        })
        .expect("a sticky Service has a map");
    // As the packet path would: a client, that is forgotten after a moment.
    meddle(
        &namespace,
        &format!(
            "add element ip zoneward affinity-{map} {{ 10.244.1.9 timeout 100ms : 10.244.1.7 . 8080 }}"
        ),
    );
    for n in 0..20 {
        meddle(&namespace, &format!("add table ip others-{n}\ndelete table ip others-{n}"));
    }
    eventually("the client is forgotten", || !listing(&namespace).contains("10.244.1.9"));
    // The next thing told is this.
    meddle(&namespace, "flush chain ip zoneward dispatch");
    agent.wait_for(&["repaired"]);
    let told = agent.log.iter().filter(|line| line.contains("changed by somebody else")).count();
    assert_eq!(told, 1, "{}", agent.log.join("\n"));
}

/// What is compared in the background, and what is looked up after a doubtful failure.
#[test]
fn the_kernel_tells_in_short_what_it_was_given_and_what_is_different() {
    for family in Family::BOTH {
        for case in cases(family) {
            let namespace = Namespace::new().unwrap();
            let desired = case.world.desired();
            let changes = bring_to(&desired, &Actual::default());
            let digest = namespace.run(|| {
                let mut kernel = Kernel::open().unwrap();
                kernel.commit(&changes, None).unwrap();
                let ranges = |place: &Place| place.1.def().ranges;
                let at: Vec<Place> =
                    changes.places().into_iter().filter(|at| !ranges(at)).collect();
                let found = kernel.elements(&at).unwrap();
                for ((family, set, key), found) in at.iter().zip(found) {
                    let added = &changes.tables[family].add_elements[set];
                    let want = added.iter().find(|element| element.key == *key).cloned();
                    assert_eq!(found, want, "{}", case.name);
                }
                let nowhere =
                    Key::new().addr([192, 0, 2, 99].into()).protocol(Protocol::Tcp).port(1);
                let nowhere = (Family::V4, SetName::Services, nowhere);
                assert_eq!(kernel.elements(&[nowhere]).unwrap(), [None]);
                kernel.digest().unwrap()
            });
            assert_eq!(desired.differences(&digest), [""; 0], "{}", case.name);
        }
    }
}

#[test]
fn what_nobody_told_is_seen_in_the_digest() {
    let namespace = Namespace::new().unwrap();
    let case = cases(Family::V4).into_iter().find(|case| {
        let changes = bring_to(&case.world.desired(), &Actual::default());
        changes.tables[&Family::V4].add_elements.contains_key(&SetName::Services)
    });
    let desired = case.expect("a case with a Service").world.desired();
    let differences = || {
        let digest = namespace.run(|| Kernel::open().unwrap().digest().unwrap());
        desired.differences(&digest)
    };
    assert_eq!(differences(), ["the IPv4 table", "the IPv6 table"]);
    namespace.run(|| {
        let changes = bring_to(&desired, &Actual::default());
        Kernel::open().unwrap().commit(&changes, None).unwrap();
    });
    assert_eq!(differences(), [""; 0]);
    for (script, want) in [
        ("flush map ip zoneward services", "IPv4 elements of services"),
        ("add chain ip6 zoneward of-nobody", "IPv6 chain of-nobody"),
        ("flush chain ip zoneward dispatch", "IPv4 chain dispatch"),
        ("add set ip zoneward of-nobody { type ipv4_addr; }", "IPv4 set of-nobody"),
        ("add table ip6 zoneward { flags dormant; }", "the IPv6 table"),
    ] {
        meddle(&namespace, script);
        let found = differences();
        assert!(found.iter().any(|different| different == want), "{script}: {found:?}");
    }
}
