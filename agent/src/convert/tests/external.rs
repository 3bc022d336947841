//! How Services are reached from outside, their policies and their affinity.

use std::net::IpAddr;
use std::num::NonZeroU16;

use zw_model::{External, TrafficPolicy};

use super::*;

/// A LoadBalancer with these addresses of its load balancer.
fn load_balancer(ingress: Value) -> Value {
    let object = set(service(), "/spec/type", json!("LoadBalancer"));
    set(object, "/status", json!({"loadBalancer": {"ingress": ingress}, "conditions": []}))
}

fn with_external(external: External) -> Service {
    Service { external: Some(Box::new(external)), ..want_service() }
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn external_ips_count_for_every_type() {
    for kind in ["ClusterIP", "NodePort", "LoadBalancer"] {
        let object = set(service(), "/spec/type", json!(kind));
        let listed = json!(["192.0.2.1", "2001:db8::1", "192.0.2.1", "192.0.2.2"]);
        let want = External {
            ips: ips(&["192.0.2.1", "2001:db8::1", "192.0.2.2"]),
            ..External::default()
        };
        check_service(set(object, "/spec/externalIPs", listed), with_external(want), &[]);
    }
    for nothing in [json!(null), json!([])] {
        check_service(set(service(), "/spec/externalIPs", nothing), want_service(), &[]);
    }
}

#[test]
fn an_address_that_would_catch_the_nodes_own_traffic_is_left_out_and_named() {
    let odd =
        ["127.0.0.1", "0.0.0.0", "224.0.0.1", "169.254.1.1", "255.255.255.255", "::1", "fe80::1"];
    for ip in odd {
        let object = set(service(), "/spec/externalIPs", json!([ip, "192.0.2.1"]));
        let want = External { ips: ips(&["192.0.2.1"]), ..External::default() };
        let problem = format!("spec.externalIPs[0]: {ip} cannot be a Service's");
        check_service(object, with_external(want), &[&problem]);

        let object = load_balancer(json!([{"ip": ip}, {"ip": "192.0.2.1"}]));
        let want = External { load_balancer_ips: ips(&["192.0.2.1"]), ..External::default() };
        let problem = format!("status.loadBalancer.ingress[0].ip: {ip} cannot be a Service's");
        check_service(object, with_external(want), &[&problem]);
    }
}

#[test]
fn an_address_has_one_role_cluster_ip_before_load_balancer_before_external_ip() {
    let object = load_balancer(json!([{"ip": "192.0.2.1"}, {"ip": "10.96.0.10"}]));
    let object =
        set(object, "/spec/externalIPs", json!(["192.0.2.1", "10.96.0.10", "192.0.2.2", "oops"]));
    let want = External {
        ips: ips(&["192.0.2.2"]),
        load_balancer_ips: ips(&["192.0.2.1"]),
        ..External::default()
    };
    let problems = [
        "status.loadBalancer.ingress[1].ip: 10.96.0.10 is its cluster IP",
        "spec.externalIPs[1]: 10.96.0.10 is its cluster IP",
        "spec.externalIPs[3]: \"oops\" is not an IP address",
    ];
    check_service(object, with_external(want), &problems);
}

#[test]
fn a_load_balancers_addresses_count_where_packets_keep_them() {
    let ingress = json!([
        {"ip": "192.0.2.1"},
        {"ip": "192.0.2.2", "ipMode": "VIP", "ports": []},
        {"ip": "192.0.2.3", "ipMode": "Proxy"},
        {"ip": "192.0.2.4", "ipMode": null},
        {"hostname": "lb.example.org"},
        {"ip": "", "hostname": "lb.example.org"},
        {"ip": "192.0.2.1"},
        {"ip": "2001:db8::1"},
    ]);
    let want = External {
        load_balancer_ips: ips(&["192.0.2.1", "192.0.2.2", "192.0.2.4", "2001:db8::1"]),
        ..External::default()
    };
    check_service(load_balancer(ingress.clone()), with_external(want), &[]);

    for kind in ["ClusterIP", "NodePort"] {
        let left_over = set(load_balancer(ingress.clone()), "/spec/type", json!(kind));
        check_service(left_over, want_service(), &[]);
    }
    for nothing in [json!(null), json!([])] {
        check_service(load_balancer(nothing), want_service(), &[]);
    }
}

#[test]
fn source_ranges_are_trimmed_and_a_range_of_everybody_lifts_the_limit_of_its_family() {
    let check = |ranges: Value, want: &[&str], problems: &[&str]| {
        let object = load_balancer(json!([{"ip": "192.0.2.1"}]));
        let object = set(object, "/spec/loadBalancerSourceRanges", ranges);
        let want = External {
            load_balancer_ips: ips(&["192.0.2.1"]),
            source_ranges: want.iter().map(|range| range.parse().unwrap()).collect(),
            ..External::default()
        };
        check_service(object, with_external(want), problems);
    };
    check(json!(null), &[], &[]);
    check(json!([" 10.0.0.0/8", "fd00::/8\n", "10.0.0.0/8"]), &["10.0.0.0/8", "fd00::/8"], &[]);
    check(json!(["10.0.0.0/8", "0.0.0.0/0", "fd00::/8"]), &["fd00::/8"], &[]);
    check(json!(["10.0.0.0/8", "::/0", "fd00::/8"]), &["10.0.0.0/8"], &[]);
    check(json!(["0.0.0.0/0", "::/0"]), &[], &[]);
    let bad = |text: &str| {
        format!("spec.loadBalancerSourceRanges[0]: {text:?} is not a range of addresses")
    };
    // The others stay, and what a slip leaves empty is closed, not open.
    check(json!(["10.0.0.0/33", "10.0.0.0/8"]), &["10.0.0.0/8"], &[&bad("10.0.0.0/33")]);
    check(json!(["10.0.0.0/33"]), &["0.0.0.0/32"], &[&bad("10.0.0.0/33")]);
    check(json!(["fd00::/x", "10.0.0.0/8"]), &["10.0.0.0/8", "::/128"], &[&bad("fd00::/x")]);
    check(json!(["oops"]), &["0.0.0.0/32", "::/128"], &[&bad("oops")]);
    check(json!(["oops", "::/0"]), &["0.0.0.0/32"], &[&bad("oops")]);
}

#[test]
fn source_ranges_mean_nothing_without_an_address_of_the_load_balancer() {
    let ranges = json!(["10.0.0.0/8"]);
    for object in [service(), load_balancer(json!([]))] {
        let object = set(object, "/spec/loadBalancerSourceRanges", ranges.clone());
        check_service(object, want_service(), &[]);
    }
}

#[test]
fn node_ports_count_for_the_types_that_have_them() {
    let check = |kind: &str, number: Value, want: Option<u16>, problems: &[&str]| {
        let object = set(service(), "/spec/type", json!(kind));
        let object = set(object, "/spec/ports/0/nodePort", number);
        let node_port = want.map(|port| NonZeroU16::new(port).unwrap());
        let want = ServicePort { node_port, ..port("http", Protocol::Tcp, 80) };
        check_service(object, Service { ports: vec![want], ..want_service() }, problems);
    };
    for kind in ["NodePort", "LoadBalancer"] {
        check(kind, json!(30080), Some(30080), &[]);
        check(kind, json!(0), None, &[]);
        check(kind, json!(null), None, &[]);
        for bad in [-1, 65536] {
            let problem = format!("spec.ports[0].nodePort: {bad} is not a port (1 to 65535)");
            check(kind, json!(bad), None, &[&problem]);
        }
    }
    check("ClusterIP", json!(30080), None, &[]);
}

#[test]
fn one_node_port_is_one_ports_per_protocol() {
    let object = set(service(), "/spec/type", json!("NodePort"));
    let ports = json!([
        {"name": "a", "port": 1, "nodePort": 30000},
        {"name": "b", "port": 2, "nodePort": 30000, "protocol": "UDP"},
        {"name": "c", "port": 3, "nodePort": 30000},
        {"name": "d", "port": 4},
        {"name": "e", "port": 5},
    ]);
    let with = |name: &str, protocol, number, node_port| ServicePort {
        node_port: NonZeroU16::new(node_port),
        ..port(name, protocol, number)
    };
    let want = vec![
        with("a", Protocol::Tcp, 1, 30000),
        with("b", Protocol::Udp, 2, 30000),
        with("c", Protocol::Tcp, 3, 0),
        with("d", Protocol::Tcp, 4, 0),
        with("e", Protocol::Tcp, 5, 0),
    ];
    let problem = "spec.ports[2].nodePort: 30000/tcp stands there twice";
    let object = set(object, "/spec/ports", ports);
    check_service(object, Service { ports: want, ..want_service() }, &[problem]);
}

#[test]
fn client_affinity_lasts_as_long_as_the_service_says_within_a_day() {
    let timeout = |seconds: Value| json!({"clientIP": {"timeoutSeconds": seconds}});
    let problem = |seconds: i64, used: u32| {
        format!(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds: {seconds} is not between 1 and \
             86400, so {used} counts"
        )
    };
    for (kind, config, want, problems) in [
        (json!(null), json!(null), None, vec![]),
        (json!("None"), timeout(json!(60)), None, vec![]),
        (json!("ClientIP"), json!(null), Some(10800), vec![]),
        (json!("ClientIP"), json!({"clientIP": null}), Some(10800), vec![]),
        (json!("ClientIP"), timeout(json!(null)), Some(10800), vec![]),
        (json!("ClientIP"), timeout(json!(1)), Some(1), vec![]),
        (json!("ClientIP"), timeout(json!(86400)), Some(86400), vec![]),
        (json!("ClientIP"), timeout(json!(0)), Some(10800), vec![problem(0, 10800)]),
        (json!("ClientIP"), timeout(json!(-5)), Some(10800), vec![problem(-5, 10800)]),
        (json!("ClientIP"), timeout(json!(86401)), Some(86400), vec![problem(86401, 86400)]),
        (
            json!("ClientIP"),
            timeout(json!(5_000_000_000i64)),
            Some(86400),
            vec![problem(5_000_000_000, 86400)],
        ),
        (
            json!("Cookie"),
            json!(null),
            None,
            vec!["spec.sessionAffinity: \"Cookie\" is neither None nor ClientIP".to_owned()],
        ),
    ] {
        let object = set(service(), "/spec/sessionAffinity", kind);
        let object = set(object, "/spec/sessionAffinityConfig", config);
        let problems: Vec<&str> = problems.iter().map(String::as_str).collect();
        check_service(object, Service { affinity: want, ..want_service() }, &problems);
    }
}

#[test]
fn a_traffic_policy_that_is_not_known_keeps_traffic_flowing_and_is_named() {
    for (raw, want) in [
        (json!(null), TrafficPolicy::Cluster),
        (json!("Cluster"), TrafficPolicy::Cluster),
        (json!("Local"), TrafficPolicy::Local),
    ] {
        let object = set(service(), "/spec/internalTrafficPolicy", raw.clone());
        check_service(object, Service { internal_policy: want, ..want_service() }, &[]);
        let object = set(service(), "/spec/externalTrafficPolicy", raw);
        let object = set(object, "/spec/type", json!("NodePort"));
        check_service(object, Service { external_policy: want, ..want_service() }, &[]);
    }
    for which in ["internal", "external"] {
        let field = format!("{which}TrafficPolicy");
        let object = set(service(), "/spec/type", json!("NodePort"));
        let object = set(object, &format!("/spec/{field}"), json!("local"));
        let problem = format!("spec.{field}: \"local\" is neither Cluster nor Local");
        check_service(object, want_service(), &[&problem]);
    }
}

#[test]
fn the_external_policy_applies_where_there_is_a_way_in_from_outside() {
    let object = set(service(), "/spec/externalTrafficPolicy", json!("Local"));
    check_service(object.clone(), want_service(), &[]);
    let local = || Service { external_policy: TrafficPolicy::Local, ..want_service() };
    for kind in ["NodePort", "LoadBalancer"] {
        check_service(set(object.clone(), "/spec/type", json!(kind)), local(), &[]);
    }
    let external = External { ips: ips(&["192.0.2.1"]), ..External::default() };
    let want = Service { external: Some(Box::new(external)), ..local() };
    check_service(set(object, "/spec/externalIPs", json!(["192.0.2.1"])), want, &[]);
}

#[test]
fn the_health_check_port_is_for_load_balancers_with_the_local_policy() {
    let object = |kind: &str, policy: &str, port: Value| {
        let object = set(service(), "/spec/type", json!(kind));
        let object = set(object, "/spec/externalTrafficPolicy", json!(policy));
        set(object, "/spec/healthCheckNodePort", port)
    };
    let local = || Service { external_policy: TrafficPolicy::Local, ..want_service() };
    let external = External { health_check_port: NonZeroU16::new(32000), ..External::default() };
    let want = Service { external: Some(Box::new(external)), ..local() };
    check_service(object("LoadBalancer", "Local", json!(32000)), want, &[]);
    check_service(object("LoadBalancer", "Local", json!(0)), local(), &[]);
    check_service(object("NodePort", "Local", json!(32000)), local(), &[]);
    check_service(object("LoadBalancer", "Cluster", json!(32000)), want_service(), &[]);
    let problem = "spec.healthCheckNodePort: 70000 is not a port (1 to 65535)";
    check_service(object("LoadBalancer", "Local", json!(70000)), local(), &[problem]);
}
