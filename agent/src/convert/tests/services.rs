//! Services: addresses and ports.

use super::*;

#[test]
fn a_service_keeps_addresses_and_ports_in_order() {
    let object = set(service(), "/spec/clusterIPs", json!(["fd00::10", "10.96.0.10"]));
    let object = set(
        object,
        "/spec/ports",
        json!([
            {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 5353, "nodePort": 30053},
            {"name": "dns-tcp", "protocol": "TCP", "port": 53, "targetPort": "dns"},
            {"name": "sig", "protocol": "SCTP", "port": 65535},
        ]),
    );
    let want = Service {
        cluster_ips: vec!["fd00::10".parse().unwrap(), "10.96.0.10".parse().unwrap()],
        ports: vec![
            port("dns", Protocol::Udp, 53),
            port("dns-tcp", Protocol::Tcp, 53),
            port("sig", Protocol::Sctp, 65535),
        ],
        ..want_service()
    };
    check_service(object, want, &[]);
}

#[test]
fn an_absent_or_null_name_is_empty_and_an_absent_or_null_protocol_is_tcp() {
    for raw in [json!({"port": 80}), json!({"name": null, "protocol": null, "port": 80})] {
        let want = Service { ports: vec![port("", Protocol::Tcp, 80)], ..want_service() };
        check_service(set(service(), "/spec/ports", json!([raw])), want, &[]);

        let ports = vec![SlicePort { name: "".into(), protocol: Protocol::Tcp, port: 80 }];
        let want = Slice { ports, ..want_slice() };
        check_slice(set(slice(), "/ports", json!([raw])), want, &[]);
    }
}

#[test]
fn absent_null_and_empty_lists_are_the_same() {
    let no_ports = || Service { ports: Vec::new(), ..want_service() };
    check_service(remove(service(), "/spec/ports"), no_ports(), &[]);
    for list in [json!(null), json!([])] {
        check_service(set(service(), "/spec/ports", list.clone()), no_ports(), &[]);
        check_service(set(service(), "/metadata/labels", json!(null)), want_service(), &[]);
        check_service(set(service(), "/spec/clusterIPs", list), want_service(), &[]);
    }
    let empty = || Slice { ports: Vec::new(), endpoints: Vec::new(), ..want_slice() };
    check_slice(remove(remove(slice(), "/ports"), "/endpoints"), empty(), &[]);
    let object = set(set(slice(), "/ports", json!(null)), "/endpoints", json!(null));
    check_slice(object, empty(), &[]);
}

#[test]
fn cluster_ips_come_before_cluster_ip() {
    let object = set(service(), "/spec/clusterIPs", json!(["10.96.0.99"]));
    let want = || Service { cluster_ips: vec!["10.96.0.99".parse().unwrap()], ..want_service() };
    check_service(object.clone(), want(), &[]);
    check_service(remove(object, "/spec/clusterIP"), want(), &[]);
}

#[test]
fn a_service_that_is_not_ours_is_known_but_irrelevant() {
    let rows = [
        ("headless", set(service(), "/spec/clusterIP", json!("None"))),
        ("headless, new field", set(service(), "/spec/clusterIPs", json!(["None"]))),
        ("no address yet", set(service(), "/spec/clusterIP", json!(""))),
        ("null address", set(service(), "/spec/clusterIP", json!(null))),
        ("no address at all", remove(service(), "/spec/clusterIP")),
        ("empty addresses", set(service(), "/spec/clusterIPs", json!([""]))),
        ("no spec", remove(service(), "/spec")),
        ("ExternalName", set(service(), "/spec/type", json!("ExternalName"))),
        (
            "another proxy's",
            set(
                service(),
                "/metadata/labels",
                json!({"service.kubernetes.io/service-proxy-name": ""}),
            ),
        ),
    ];
    for (name, object) in rows {
        let got = convert(object).unwrap();
        let want = Object::new(id(Kind::Service, "web", "api"), Body::Irrelevant);
        assert_eq!(got, (want, Vec::new()), "{name}");
    }
}

#[test]
fn the_other_types_of_service_are_programmed_for_their_cluster_ip() {
    for kind in ["ClusterIP", "NodePort", "LoadBalancer"] {
        check_service(set(service(), "/spec/type", json!(kind)), want_service(), &[]);
    }
}

#[test]
fn impossible_ports_are_left_out_and_named() {
    for (number, problem) in [
        (json!(0), "0 is not a port (1 to 65535)"),
        (json!(-1), "-1 is not a port (1 to 65535)"),
        (json!(65536), "65536 is not a port (1 to 65535)"),
        (json!(99999), "99999 is not a port (1 to 65535)"),
        (json!(i64::MAX), "9223372036854775807 is not a port (1 to 65535)"),
        (json!(null), "missing"),
    ] {
        let with = |pointer: &str, object: Value| {
            let bad = json!({"name": "bad", "port": number});
            let good = object.pointer(pointer).unwrap()[0].clone();
            set(object, pointer, json!([bad, good]))
        };
        let named = format!("spec.ports[0].port: {problem}");
        check_service(with("/spec/ports", service()), want_service(), &[&named]);
        let named = format!("ports[0].port: {problem}");
        check_slice(with("/ports", slice()), want_slice(), &[&named]);
    }
}

#[test]
fn an_unknown_protocol_costs_its_port_only() {
    for protocol in ["tcp", "ICMP", ""] {
        let more = json!({"name": "odd", "protocol": protocol, "port": 1});
        let mut object = service();
        object["spec"]["ports"].as_array_mut().unwrap().push(more.clone());
        let problem = format!("spec.ports[1].protocol: {protocol:?} is not TCP, UDP or SCTP");
        check_service(object, want_service(), &[&problem]);

        let mut object = slice();
        object["ports"].as_array_mut().unwrap().push(more);
        let problem = format!("ports[1].protocol: {protocol:?} is not TCP, UDP or SCTP");
        check_slice(object, want_slice(), &[&problem]);
    }
}

#[test]
fn of_duplicate_service_ports_the_first_counts() {
    let ports = json!([
        {"name": "http", "port": 80},
        {"name": "again", "port": 80},
        {"name": "http", "port": 81},
        {"name": "http", "port": 80, "protocol": "UDP"},
        {"port": 90},
        {"port": 91},
    ]);
    let want = Service {
        ports: vec![
            port("http", Protocol::Tcp, 80),
            port("http", Protocol::Udp, 80),
            port("", Protocol::Tcp, 90),
        ],
        ..want_service()
    };
    let problems = [
        "spec.ports[1]: \"again\" 80/tcp stands there twice",
        "spec.ports[2]: \"http\" 81/tcp stands there twice",
        "spec.ports[5]: \"\" 91/tcp stands there twice",
    ];
    check_service(set(service(), "/spec/ports", ports), want, &problems);
}

#[test]
fn a_bad_cluster_ip_is_named_by_the_field_it_stands_in() {
    let nowhere = || Service { cluster_ips: Vec::new(), ..want_service() };
    let object = set(service(), "/spec/clusterIP", json!("10.96.0.300"));
    let problem = "spec.clusterIP: \"10.96.0.300\" is not an IP address";
    check_service(object, nowhere(), &[problem]);

    let object = set(service(), "/spec/clusterIPs", json!(["oops", "10.96.0.10", "10.96.0.11"]));
    let problems = [
        "spec.clusterIPs[0]: \"oops\" is not an IP address",
        "spec.clusterIPs[2]: 10.96.0.11 is a second address of its family",
    ];
    check_service(object, want_service(), &problems);
}

#[test]
fn addresses_are_read_as_kubernetes_reads_them() {
    for (text, want) in [
        ("010.096.000.010", "10.96.0.10"),
        ("::ffff:10.96.0.10", "10.96.0.10"),
        ("FD00:0:0::010", "fd00::10"),
    ] {
        let want = Service { cluster_ips: vec![want.parse().unwrap()], ..want_service() };
        check_service(set(service(), "/spec/clusterIP", json!(text)), want, &[]);
    }
    for text in [
        "10.96.0",
        "10.96.0.1.1",
        "10.96.0.256",
        "0010.96.0.1",
        "+10.96.0.1",
        "10.96.0.-1",
        "10.96..1",
        "10.96.0.1 ",
        "10.96.0.1/32",
        "0x0a.0.0.1",
        "fe80::1%eth0",
        "example.org",
    ] {
        let object = set(service(), "/spec/clusterIP", json!(text));
        let problem = format!("spec.clusterIP: {text:?} is not an IP address");
        check_service(object, Service { cluster_ips: Vec::new(), ..want_service() }, &[&problem]);
    }
}

#[test]
fn what_the_zone_slice_controller_says_on_a_service_is_kept() {
    use zw_controller::names;
    let label = |zone: &str| format!("{}{zone}", names::ZONE_PREFIX);
    let mut object = service();
    object["metadata"]["labels"] = json!({
        label("b"): "true", label("a"): "", label(""): "true", "zones.example/c": "true", "app": "x",
    });
    let division = Division { zones: vec!["a".into(), "b".into()], ..Division::default() };
    let want =
        |division: Division| Service { division: Some(Box::new(division)), ..want_service() };
    check_service(object.clone(), want(division.clone()), &[]);
    object["metadata"]["annotations"] =
        json!({names::APPROACH: "Prefer", names::REASON: "as annotated", "note": "x"});
    let marked = Division {
        approach: Some("Prefer".into()),
        reason: Some("as annotated".into()),
        ..division
    };
    check_service(object, want(marked), &[]);
}
