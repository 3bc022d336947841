//! How strangers' tools see the table, with something of every kind in it.

use std::collections::BTreeSet;

use serde_json::Value;
use zw_lab::Namespace;
use zw_tests::binary::{run_in, text, tool_in};

use crate::table::{generation, listing, once, state, two_endpoints};

/// A cluster IP, a node port, an external IP and a firewalled load balancer under both policies, with
/// endpoints and without, and the ranges of cluster IPs.
fn everything() -> String {
    let service = |name: &str, last: u8, policy: &str| {
        format!(
            "---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: web}}
spec:
  type: LoadBalancer
  clusterIPs: [10.96.0.{last}, \"fd00:10:96::{last:x}\"]
  externalTrafficPolicy: {policy}
  externalIPs: [198.51.100.{last}, \"2001:db8:100::{last:x}\"]
  loadBalancerSourceRanges: [203.0.113.0/24, 203.0.113.64/26, 192.0.2.7/32, \"2001:db8:ffff::/48\"]
  ports: [{{name: http, port: 80, nodePort: {}}}, {{name: dns, port: 53, protocol: UDP}}]
status: {{loadBalancer: {{ingress: [{{ip: 198.51.101.{last}}}, {{ip: \"2001:db8:101::{last:x}\"}}]}}}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}, namespace: web, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: http, port: 8080}}]
endpoints: [{{addresses: [10.244.1.7], nodeName: node-1}}, {{addresses: [10.244.2.7], nodeName: node-2}}]
",
            30_000 + u16::from(last)
        )
    };
    let ranges = "---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/16, \"fd00:10:96::/112\"]}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
";
    two_endpoints() + &service("plain", 21, "Cluster") + &service("local", 22, "Local") + ranges
}

fn sticky() -> String {
    everything()
        .replace("  type: LoadBalancer", "  type: LoadBalancer\n  sessionAffinity: ClientIP")
}

/// Only the differences: a whole ruleset helps nobody.
fn assert_same(ours: Vec<String>, theirs: Vec<String>) {
    assert!(ours.len() > 30, "{} lines", ours.len());
    let (of_ours, of_theirs): (BTreeSet<_>, BTreeSet<_>) =
        (ours.iter().collect(), theirs.iter().collect());
    let only = |one: &BTreeSet<&String>, other: &BTreeSet<&String>| -> Vec<String> {
        one.difference(other).map(|line| (*line).clone()).collect()
    };
    assert_eq!(only(&of_ours, &of_theirs), only(&of_theirs, &of_ours), "ours, and nft's");
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn the_stock_nft_lists_the_table_and_loads_its_listing_back() {
    let namespace = Namespace::new().unwrap();
    let folder = state(&everything());
    once(&namespace, folder.path());
    let listed = listing(&namespace);
    for line in [
        "10.96.0.10 . tcp . 80 comment \"web/api:http\" : goto cluster-2",
        "tcp . 30021 comment \"web/plain:http\" : goto node-port-2",
        "198.51.100.22 . tcp . 80 comment \"web/local:http\" : goto external-local-1",
        "198.51.101.21 . tcp . 80 . 203.0.113.0/24",
        "10.96.0.0/16",
        "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints",
        "dnat ip6 to ip6 daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints",
        "fib saddr type local meta mark set meta mark | 0x00004000",
    ] {
        assert!(listed.contains(line), "{line:?} is not in\n{listed}");
    }
    let loaded = tool_in(&namespace, "nft", &["-f", "-"], &format!("flush ruleset\n{listed}"));
    assert!(loaded.status.success(), "{}", text(&loaded.stderr));
    assert_eq!(listing(&namespace), listed);

    // And a restart takes what nft loaded for its own.
    let before = generation(&namespace);
    let log = once(&namespace, folder.path());
    assert_eq!(generation(&namespace), before, "nothing was written: {log}");
}

#[test]
fn the_stock_nft_lists_sticky_services_and_a_restart_changes_nothing() {
    let namespace = Namespace::new().unwrap();
    let folder = state(&sticky());
    once(&namespace, folder.path());
    let listed = listing(&namespace);
    for line in [
        "ct original ip daddr . meta l4proto . ct original proto-dst vmap @sticky",
        "timeout 3h : ip daddr . th dport }",
        "flags dynamic,timeout",
    ] {
        assert!(listed.contains(line), "{line:?} is not in\n{listed}");
    }
    let before = generation(&namespace);
    let log = once(&namespace, folder.path());
    assert_eq!(generation(&namespace), before, "nothing was written: {log}");

    // Not sticky any more: nothing of it stays.
    let folder = state(&everything());
    once(&namespace, folder.path());
    let listed = listing(&namespace);
    for word in ["affinity-", "ct original"] {
        assert!(!listed.contains(word), "{word:?} is still in\n{listed}");
    }
}

#[test]
fn what_dump_rules_prints_as_nft_is_what_nft_prints() {
    for text_of_state in [everything(), sticky()] {
        let namespace = Namespace::new().unwrap();
        let folder = state(&text_of_state);
        once(&namespace, folder.path());
        let dumped = run_in(&namespace, &["dump-rules", "-o", "nft"]);
        assert!(dumped.status.success(), "{}", text(&dumped.stderr));
        assert_same(normal(&text(&dumped.stdout)), normal(&listing(&namespace)));
    }
}

/// Lines without what only one of the two prints: counters, fingerprints and names of priorities.
fn normal(listing: &str) -> Vec<String> {
    let words = [" comment \"zw-", " counter packets 0 bytes 0"];
    let mut lines: Vec<String> = listing
        .lines()
        .map(|line| {
            let line = line
                .replace(words[1], "")
                .replace("priority dstnat - 10", "priority -110")
                .replace("priority dstnat", "priority -100")
                .replace("priority srcnat", "priority 100")
                .replace("priority filter", "priority 0");
            let line = line.split(words[0]).next().unwrap_or_default().to_owned();
            line.replace("elements = {", "").trim_matches([' ', '\t', ',', '}']).to_owned()
        })
        // Several short elements share a line there.
        .flat_map(|line| line.split(", ").map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| !line.is_empty())
        .collect();
    lines.sort();
    lines
}

#[test]
fn what_dump_rules_prints_as_json_is_what_nft_prints() {
    let namespace = Namespace::new().unwrap();
    let folder = state(&everything());
    once(&namespace, folder.path());
    let dumped = run_in(&namespace, &["dump-rules", "-o", "json"]);
    let listed = tool_in(&namespace, "nft", &["-j", "list", "ruleset"], "");

    // What both know: chains and rules without their handles. nft writes a single flag as a string.
    let objects = |json: &[u8]| -> Vec<String> {
        let json: Value = serde_json::from_slice(json).unwrap();
        let objects = json["nftables"].as_array().unwrap().iter();
        let mut objects: Vec<String> = objects
            .filter(|object| object.get("chain").is_some() || object.get("rule").is_some())
            .cloned()
            .map(|mut object| {
                let body = object.as_object_mut().unwrap().values_mut().next().unwrap();
                body.as_object_mut().unwrap().remove("handle");
                object
                    .to_string()
                    .replace("\"flags\":\"fully-random\"", "\"flags\":[\"fully-random\"]")
                    .replace("\"flags\":\"saddr\"", "\"flags\":[\"saddr\"]")
                    .replace("\"flags\":\"daddr\"", "\"flags\":[\"daddr\"]")
            })
            .collect();
        objects.sort();
        objects
    };
    assert_same(objects(&dumped.stdout), objects(&listed.stdout));
}
