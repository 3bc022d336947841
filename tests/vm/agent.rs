//! The agent in the ipvs mode, as it is run: what strangers do to IPVS, what commands say of it, whom it
//! cannot serve, and what is left of it.

use std::net::SocketAddr;
use std::process::Output;
use std::time::Duration;

use zw_dataplane::{Ipvs, LINK};
use zw_lab::Namespace;
use zw_netlink::ipvs::{Batch, IP_VS_SVC_F_SCHED3, RealServer, ServerId, ServerSettings, Socket};
use zw_plan::ActualIpvs;
use zw_tests::binary::{Agent, eventually, run_in, text, tool_in};
use zw_tests::cluster::dual_stack;
use zw_tests::vm::inside;

const NODE: [&str; 4] = ["--node-name", "node-1", "--mode", "ipvs"];

/// A Service with two endpoints in each family, and one more.
fn state() -> tempfile::TempDir {
    let endpoint = |n: u8| {
        (format!("10.244.1.{n}").parse().unwrap(), format!("fd00:10:244:1::{n}").parse().unwrap())
    };
    let api =
        dual_stack(("web", "api"), 10, ("http", "TCP", 80, 8080), &[endpoint(1), endpoint(2)]);
    let other = dual_stack(("web", "other"), 11, ("http", "TCP", 80, 8080), &[endpoint(3)]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("state.yaml"), format!("{api}---\n{other}")).unwrap();
    folder
}

fn read(namespace: &Namespace) -> ActualIpvs {
    namespace.run(|| Ipvs::open(Duration::ZERO).unwrap().read().unwrap())
}

fn server(addr: &str) -> ServerId {
    ServerId { addr: addr.parse().unwrap(), protocol: 6, port: 80 }
}

/// What somebody does by himself.
fn meddle(namespace: &Namespace, change: impl FnOnce(&mut Batch) + Send) {
    namespace.run(|| {
        let mut batch = Batch::new();
        change(&mut batch);
        assert_eq!(Socket::open().unwrap().unwrap().send(&mut batch).unwrap(), []);
    });
}

fn ip(namespace: &Namespace, args: &str) {
    let args: Vec<&str> = args.split_whitespace().collect();
    let done = tool_in(namespace, "ip", &args, "");
    assert!(done.status.success(), "ip {args:?}: {}", text(&done.stderr));
}

/// A virtual server of somebody else's.
fn add_foreign(namespace: &Namespace, id: ServerId) {
    meddle(namespace, |batch| {
        let settings = ServerSettings { scheduler: "wlc".into(), flags: 0, timeout: 0 };
        batch.new_server(&id, &settings);
        let addr = SocketAddr::new("203.0.113.9".parse().unwrap(), 80);
        batch.new_real(&id, &RealServer { addr, weight: 7 });
    });
}

#[test]
fn whatever_a_stranger_does_to_ipvs_comes_back_and_is_told_once() {
    inside(|| {
        let namespace = Namespace::new().unwrap();
        let folder = state();
        let path = folder.path().to_str().unwrap();
        let period = ["--sync-period", "1s", "--socket", "", "--state", path];
        let mut agent = Agent::start(&namespace, &[&NODE[..], &period].concat());
        agent.wait_for(&["synced"]);
        let foreign = server("198.51.100.7");
        add_foreign(&namespace, foreign);
        let before = read(&namespace);
        assert_eq!((before.servers.len(), before.addresses.len()), (4, 4), "{before:?}");
        assert_eq!(before.foreign.len(), 1);

        let (v4, v6) = (server("10.96.0.10"), server("fd00:10:96::a"));
        let real = |addr: &str, weight| RealServer { addr: addr.parse().unwrap(), weight };
        type Meddle<'a> = &'a (dyn Fn() + Sync);
        let meddled: [(&str, Meddle<'_>); 9] = [
            ("the virtual server 10.96.0.10:80/tcp", &|| {
                meddle(&namespace, |batch| batch.delete_server(&v4));
            }),
            ("the real server 10.244.1.1:8080 of 10.96.0.10:80/tcp", &|| {
                let real = real("10.244.1.1:8080", 0);
                meddle(&namespace, move |batch| batch.delete_real(&v4, real.addr));
            }),
            ("the real server [fd00:10:244:1::2]:8080 of [fd00:10:96::a]:80/tcp", &|| {
                let real = real("[fd00:10:244:1::2]:8080", 9);
                meddle(&namespace, move |batch| batch.set_real(&v6, &real));
            }),
            ("the virtual server [fd00:10:96::a]:80/tcp", &|| {
                let flags = IP_VS_SVC_F_SCHED3;
                let settings = ServerSettings { scheduler: "wlc".into(), flags, timeout: 0 };
                meddle(&namespace, move |batch| batch.set_server(&v6, &settings));
            }),
            ("the address 10.96.0.10", &|| {
                ip(&namespace, &format!("addr del 10.96.0.10/32 dev {LINK}"));
            }),
            ("the address fd00:10:96::a", &|| {
                ip(&namespace, &format!("addr del fd00:10:96::a/128 dev {LINK}"));
            }),
            ("the address 192.0.2.99", &|| {
                ip(&namespace, &format!("addr add 192.0.2.99/32 dev {LINK}"));
            }),
            ("the interface zoneward-ipvs", &|| ip(&namespace, &format!("link set {LINK} down"))),
            ("the interface zoneward-ipvs", &|| ip(&namespace, &format!("link del {LINK}"))),
        ];
        for (what, meddle) in &meddled {
            meddle();
            let line = agent.wait_for(&["WARN", "not as it was left"]);
            assert!(line.contains(&format!("different=\"{what}")), "{what}: {line}");
            let repaired = agent.wait_for(&["repaired"]);
            println!("{what}: {repaired}");
            eventually(&format!("{what} is put right"), || read(&namespace) == before);
        }
        // A comparison later nothing more was found, and none of it was told or counted twice.
        std::thread::sleep(Duration::from_secs(3));
        agent.read_on();
        let told = |word: &str| agent.log.iter().filter(|line| line.contains(word)).count();
        assert_eq!((told("not as it was left"), told("repaired")), (9, 9), "{:#?}", agent.log);
        assert_eq!(metric(&namespace, "zoneward_drift_repairs_total"), "9");
        let theirs = namespace.run(|| Socket::open().unwrap().unwrap().reals(&foreign).unwrap());
        assert_eq!(theirs.len(), 1, "nobody touched it");
    });
}

/// A metric without labels.
fn metric(namespace: &Namespace, name: &str) -> String {
    use std::io::{Read, Write};
    let answer = namespace.run(|| {
        let mut stream = std::net::TcpStream::connect("127.0.0.1:10249").unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let value = answer.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    value.unwrap_or_else(|| panic!("no {name} in {answer}")).to_owned()
}

/// What a command prints, and its exit code.
fn said(namespace: &Namespace, args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = run_in(namespace, args);
    let text = text(&stdout) + &text(&stderr);
    println!("zoneward {}: {status}\n{text}", args.join(" "));
    (status.code(), text)
}

#[test]
fn commands_speak_of_virtual_servers_as_the_kernel_has_them() {
    inside(|| {
        let namespace = Namespace::new().unwrap();
        let folder = state();
        let path = folder.path().to_str().unwrap();
        let socket = folder.path().join("sock/agent.sock");
        let socket = socket.to_str().unwrap();
        let more = ["--sync-period", "5m", "--socket", socket, "--state", path];
        let mut agent = Agent::start(&namespace, &[&NODE[..], &more].concat());
        agent.wait_for(&["synced"]);
        let ask = |args: &[&str]| said(&namespace, &[args, &["--socket", socket]].concat());
        let state = ["--state", path, "--node-name", "node-1"];
        let offline = |args: &[&str]| said(&namespace, &[args, &state].concat());

        let same = "the kernel holds what it should";
        for (code, text) in [ask(&["diff"]), offline(&["diff"])] {
            assert!(code == Some(0) && text.contains(same), "{text}");
        }
        let (_, text) = ask(&["explain", "web/api"]);
        assert!(text.contains("holds what the agent wants"), "{text}");
        let (code, text) = ask(&["dump-rules"]);
        assert_eq!(code, Some(0));
        let head = "IPVS: zoneward-ipvs up with 4 addresses, 4 virtual servers, 6 real servers";
        assert!(text.contains(head), "{text}");
        assert!(text.contains("web/api:http  IPv4 tcp  ipvs rr"), "{text}");
        let (_, text) = said(&namespace, &["trace", "10.244.9.9", "web/api:http"]);
        assert!(text.contains("2 endpoints of web/api:http; IPVS picks, by rr"), "{text}");
        assert!(text.contains("weight 1"), "{text}");

        // No notification tells of any of these.
        let (api, other) = (server("10.96.0.10"), server("10.96.0.11"));
        meddle(&namespace, |batch| {
            batch.delete_server(&other);
            batch.delete_real(&api, "10.244.1.1:8080".parse().unwrap());
            let addr = "10.244.1.2:8080".parse().unwrap();
            batch.set_real(&api, &RealServer { addr, weight: 5 });
        });
        for (code, text) in [ask(&["diff"]), offline(&["diff"])] {
            assert_eq!(code, Some(1));
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for line in [
                "- missing web/other:http IPv4 virtual server 10.96.0.11:80/tcp rr, 1 real server",
                "- missing web/api:http IPv4 real server 10.96.0.10:80/tcp -> 10.244.1.1:8080",
                "~ changed web/api:http IPv4 real server 10.96.0.10:80/tcp -> 10.244.1.2:8080, \
                 weight 5, should be weight 1",
                "3 differences",
            ] {
                assert!(words.contains(line), "{line} is not in\n{text}");
            }
        }
        let (_, text) = ask(&["explain", "web/api"]);
        assert!(text.contains("differs in 2 places"), "{text}");
        let (_, text) = ask(&["dump-rules", "web/other"]);
        assert!(text.contains("nobody answers"), "{text}");
        let (_, text) = said(&namespace, &["trace", "10.244.9.9", "web/api:http"]);
        assert!(text.contains("weight 5") && !text.contains("10.244.1.1:8080"), "{text}");
        drop(agent);

        ip(&namespace, &format!("link set {LINK} down"));
        let (code, text) = offline(&["diff", "web/api"]);
        assert_eq!(code, Some(1));
        assert!(text.contains("zoneward-ipvs down, should be up"), "{text}");
        let (_, text) = said(&namespace, &["trace", "10.244.9.9", "web/api:http"]);
        assert!(text.contains("the packet does not get to IPVS"), "{text}");
    });
}

#[test]
fn services_that_cannot_be_served_are_named_with_their_field() {
    inside(|| {
        let namespace = Namespace::new().unwrap();
        let folder = state();
        let file = folder.path().join("state.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let (name, annotated) = (
            "metadata: {name: other,",
            // Debian's kernel has no such module.
            "metadata: {annotations: {zoneward/ipvs-scheduler: twos}, name: other,",
        );
        assert_eq!(text.matches(name).count(), 1);
        std::fs::write(&file, text.replace(name, annotated)).unwrap();
        add_foreign(&namespace, server("10.96.0.10"));
        let path = folder.path().to_str().unwrap();
        let args = ["--sync-period", "1s", "--socket", "", "--state", path];
        let mut agent = Agent::start(&namespace, &[&NODE[..], &args].concat());
        agent.wait_for(&["synced"]);
        let told = |words: &[&str], agent: &Agent| {
            let all = |line: &&String| words.iter().all(|word| line.contains(word));
            agent.log.iter().filter(all).count()
        };
        let (in_use, missing) = (
            ["WARN", "svc=web/api", "10.96.0.10:80/tcp", "spec.clusterIPs", "somebody else"],
            ["WARN", "svc=web/other", "ipvs-scheduler]", "ip_vs_twos", "10.96.0.11:80/tcp"],
        );
        assert_eq!((told(&in_use, &agent), told(&missing, &agent)), (1, 1), "{:#?}", agent.log);

        // The first one's other family is served, and no comparison takes the rest for a difference.
        assert_eq!(read(&namespace).servers.len(), 1);
        std::thread::sleep(Duration::from_secs(3));
        agent.read_on();
        assert_eq!(told(&["not as it was left"], &agent), 0, "{:#?}", agent.log);
        // Its place is free again: a comparison finds that out.
        meddle(&namespace, |batch| batch.delete_server(&server("10.96.0.10")));
        agent.wait_for(&["repaired"]);
        assert_eq!(read(&namespace).servers.len(), 2);
    });
}

#[test]
fn an_endpoint_that_ipvs_does_not_take_costs_only_itself() {
    inside(|| {
        let namespace = Namespace::new().unwrap();
        ip(&namespace, "link set lo up");
        ip(&namespace, "addr add 192.0.2.1/24 dev lo");
        let folder = state();
        let file = folder.path().join("state.yaml");
        let good = std::fs::read_to_string(&file).unwrap();
        // Nobody answers at a broadcast address.
        std::fs::write(&file, good.replace("10.244.1.2", "192.0.2.255")).unwrap();
        let path = folder.path().to_str().unwrap();
        let args = ["--sync-period", "1s", "--socket", "", "--state", path];
        let mut agent = Agent::start(&namespace, &[&NODE[..], &args].concat());
        agent.wait_for(&["svc=web/api", "192.0.2.255:8080", "not programmed"]);
        agent.wait_for(&["synced"]);
        let reals = || {
            let servers = read(&namespace).servers;
            servers.values().map(|server| server.reals.len()).collect::<Vec<_>>()
        };
        assert_eq!(reals(), [1, 1, 2, 1]);
        std::thread::sleep(Duration::from_secs(3));
        agent.read_on();
        let again = agent.log.iter().filter(|line| line.contains("not as it was left")).count();
        assert_eq!(again, 0, "{:#?}", agent.log);
        std::fs::write(&file, good).unwrap();
        agent.wait_for(&["synced"]);
        assert_eq!(reals(), [2, 1, 2, 1]);
    });
}

#[test]
fn nothing_is_left_where_the_interface_was_down() {
    inside(|| {
        let namespace = Namespace::new().unwrap();
        let folder = state();
        let path = folder.path().to_str().unwrap();
        let once = |mode: &str| {
            let args = ["run", "--once", "--state", path, "--node-name", "node-1", "--mode", mode];
            assert_eq!(said(&namespace, &args).0, Some(0));
        };
        let nothing = || {
            let is = read(&namespace);
            assert_eq!(is, ActualIpvs::default());
            assert_eq!(namespace.run(zw_dataplane::link_index), None);
        };
        once("ipvs");
        ip(&namespace, &format!("link set {LINK} down"));
        once("nftables");
        nothing();
        once("ipvs");
        ip(&namespace, &format!("link set {LINK} down"));
        let (code, text) = said(&namespace, &["cleanup"]);
        assert_eq!(code, Some(0));
        assert!(text.contains("removed 4 virtual servers"), "{text}");
        assert!(text.contains("removed the interface zoneward-ipvs"), "{text}");
        nothing();
    });
}
