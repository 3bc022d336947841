//! `dump-rules -o json`, whole.

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_tests::binary::run_in;

use crate::command::{Ended, NODE, dump_kernel, dump_state, golden, once, run};

fn parse(ended: Ended) -> Value {
    serde_json::from_str(&ended.success().out).unwrap()
}

/// The part about Services; the ruleset beside it is compared with nft's own in the netns tier.
fn services(mut dumped: Value) -> Value {
    let object = dumped.as_object_mut().unwrap();
    let ruleset = object.remove("nftables").unwrap();
    assert!(ruleset.as_array().is_some_and(|objects| !objects.is_empty()), "{ruleset}");
    assert_eq!(object.remove("schema"), Some(json!(1)));
    assert_eq!(object.len(), 1, "{dumped}");
    dumped["services"].take()
}

#[test]
fn manifests_as_json_tell_why_each_endpoint_is_in_or_out() {
    let want = json!([
        {
            "service": "shop/api",
            "name": "",
            "address": "10.96.0.20",
            "family": "IPv4",
            "kind": "clusterIP",
            "policy": "Cluster",
            "protocol": "tcp",
            "port": 80,
            "endpoints": [{"address": "10.244.1.1:8080", "reason": "ready"}],
            "leftOut": [
                {"address": "10.244.2.1:8080", "reason": "terminating, others are ready"},
                {"address": "10.244.3.1:8080", "reason": "not ready"},
            ],
        },
        {
            "service": "shop/batch",
            "name": "",
            "address": "10.96.0.21",
            "family": "IPv4",
            "kind": "clusterIP",
            "policy": "Cluster",
            "protocol": "tcp",
            "port": 80,
            "endpoints": [
                {
                    "address": "10.244.1.2:8080",
                    "reason": "last resort: terminating but serving, nothing is ready",
                },
                {
                    "address": "10.244.3.2:8080",
                    "reason": "last resort: terminating but serving, nothing is ready",
                },
            ],
            "leftOut": [{"address": "10.244.2.2:8080", "reason": "not ready"}],
        },
    ]);
    assert_eq!(services(parse(dump_state(&golden("terminating"), "json"))), want);
}

#[test]
fn manifests_as_json_tell_who_has_a_contested_address() {
    let port = |service: &str, name: &str, port: u16| {
        json!({
            "service": service,
            "name": name,
            "address": "10.96.0.60",
            "family": "IPv4",
            "kind": "clusterIP",
            "policy": "Cluster",
            "protocol": "tcp",
            "port": port,
            "endpoints": [],
        })
    };
    let with = |mut port: Value, field: &str, value: Value| {
        port[field] = value;
        port
    };
    let endpoint = |address: &str| json!([{"address": address, "reason": "ready"}]);
    let want = json!([
        with(port("web/api", "http", 80), "endpoints", endpoint("10.244.1.1:8080")),
        with(port("web/copy", "admin", 81), "endpoints", endpoint("10.244.2.1:8081")),
        with(port("web/copy", "http", 80), "takenBy", json!("web/api")),
    ]);
    assert_eq!(services(parse(dump_state(&golden("contested"), "json"))), want);
}

#[test]
fn the_kernel_as_json_tells_slots_and_counters() {
    let namespace = Namespace::new().unwrap();
    once(&namespace, &golden("dual-stack")).success();
    let want = json!([
        {
            "service": "web/api",
            "name": "http",
            "address": "10.96.0.10",
            "family": "IPv4",
            "kind": "clusterIP",
            "policy": "Unknown",
            "protocol": "tcp",
            "port": 80,
            "connections": 0,
            "endpoints": [{"address": "10.244.1.5:8080"}, {"address": "10.244.2.6:8080"}],
        },
        {
            "service": "web/api",
            "name": "http",
            "address": "fd00:10:96::a",
            "family": "IPv6",
            "kind": "clusterIP",
            "policy": "Unknown",
            "protocol": "tcp",
            "port": 80,
            "connections": 0,
            "endpoints": [
                {"address": "[fd00:10:244:1::5]:8080"},
                {"address": "[fd00:10:244:2::6]:8080"},
            ],
        },
    ]);
    assert_eq!(services(parse(dump_kernel(&namespace, "json"))), want);
}

#[test]
fn kernel_and_manifests_agree_on_the_ruleset_in_json() {
    for case in ["dual-stack", "no-endpoints", "contested"] {
        let namespace = Namespace::new().unwrap();
        once(&namespace, &golden(case)).success();
        let ruleset = |dumped: Value| dumped["nftables"].clone();
        let held = ruleset(parse(dump_kernel(&namespace, "json")));
        assert_eq!(held, ruleset(parse(dump_state(&golden(case), "json"))), "{case}");
    }
}

#[test]
fn a_filter_leaves_the_ruleset_out() {
    let want = json!({
        "schema": 1,
        "services": [{
            "service": "web/new",
            "name": "udp",
            "address": "10.96.0.51",
            "family": "IPv4",
            "kind": "clusterIP",
            "policy": "Cluster",
            "protocol": "udp",
            "port": 5000,
            "endpoints": [],
            "withoutEndpoints": "refused",
        }],
    });
    let state = golden("no-endpoints");
    let command = ["dump-rules", "web/new:5000", "-o", "json", "--state", state.to_str().unwrap()];
    assert_eq!(parse(run(&[&command, &NODE[..]].concat())), want);

    let namespace = Namespace::new().unwrap();
    once(&namespace, &state).success();
    let held = run_in(&namespace, &["dump-rules", "web/new:udp", "-o", "json"]);
    let mut counted = want;
    counted["services"][0]["connections"] = json!(0);
    counted["services"][0]["policy"] = json!("Unknown");
    assert_eq!(parse(Ended::of(&held)), counted);
}
