//! The table itself: how strangers' tools see it, what a restart and a change cost.

use std::collections::BTreeSet;

use zw_lab::Namespace;
use zw_tests::binary::{Agent, eventually, field, run_in, text, tool_in};
use zw_tests::cluster::{Shape, dual_stack};

pub(crate) fn state(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("state.yaml"), text).unwrap();
    folder
}

pub(crate) fn two_endpoints() -> String {
    dual_stack(
        ("web", "api"),
        10,
        ("http", "TCP", 80, 8080),
        &[
            ("10.244.1.5".parse().unwrap(), "fd00:10:244:1::5".parse().unwrap()),
            ("10.244.2.6".parse().unwrap(), "fd00:10:244:2::6".parse().unwrap()),
        ],
    )
}

pub(crate) fn once(namespace: &Namespace, folder: &std::path::Path) -> String {
    let args = [
        "run",
        "--once",
        "--node-name",
        "node-1",
        "--cluster-cidr",
        "10.244.0.0/16,fd00:10:244::/48",
    ];
    let mut args: Vec<&std::ffi::OsStr> = args.iter().map(std::ffi::OsStr::new).collect();
    args.extend([std::ffi::OsStr::new("--state"), folder.as_os_str()]);
    let output = run_in(namespace, &args);
    let log = text(&output.stderr);
    assert!(output.status.success(), "{log}");
    log
}

pub(crate) fn listing(namespace: &Namespace) -> String {
    let output = tool_in(namespace, "nft", &["list", "ruleset"], "");
    assert!(output.status.success(), "nft list ruleset: {}", text(&output.stderr));
    text(&output.stdout)
}

pub(crate) fn generation(namespace: &Namespace) -> u32 {
    namespace.run(|| zw_dataplane::Kernel::open().unwrap().generation().unwrap())
}

#[test]
fn a_second_start_writes_nothing_and_leftovers_go() {
    let namespace = Namespace::new().unwrap();
    let folder = state(&two_endpoints());
    once(&namespace, folder.path());
    let (before, listed) = (generation(&namespace), listing(&namespace));
    let log = once(&namespace, folder.path());
    assert_eq!(generation(&namespace), before, "{log}");

    // A stranger's table, a stray element, a stray chain and a rule gone missing.
    let meddle = "add table ip strangers
        add element ip zoneward endpoints { 10.96.0.99 . tcp . 1 . 0 : 192.0.2.9 . 1 }
        add chain ip zoneward of-nobody
        flush chain ip6 zoneward cluster-2
        delete element ip6 zoneward services { fd00:10:96::a . tcp . 80 }";
    let meddled = tool_in(&namespace, "nft", &["-f", "-"], meddle);
    assert!(meddled.status.success(), "{}", text(&meddled.stderr));
    once(&namespace, folder.path());
    let repaired = listing(&namespace);
    assert!(repaired.contains("table ip strangers"), "{repaired}");
    let ours = tool_in(&namespace, "nft", &["delete", "table", "ip", "strangers"], "");
    assert!(ours.status.success());
    assert_eq!(listing(&namespace), listed);
}

#[test]
fn meddling_that_no_rule_shows_is_repaired_too() {
    let folder = state(&two_endpoints());
    for meddle in [
        "chain ip zoneward filter-forward { policy drop; }",
        "add element ip zoneward services { * : drop }",
        "add table ip6 zoneward { flags dormant; }",
    ] {
        let namespace = Namespace::new().unwrap();
        once(&namespace, folder.path());
        let listed = listing(&namespace);
        let meddled = tool_in(&namespace, "nft", &["-f", "-"], meddle);
        assert!(meddled.status.success(), "{meddle}: {}", text(&meddled.stderr));
        assert_ne!(listing(&namespace), listed, "{meddle}");
        once(&namespace, folder.path());
        // A table that was made anew is listed last.
        let tables = |listed: String| -> BTreeSet<String> {
            listed.split_inclusive("\n}\n").map(str::to_owned).collect()
        };
        assert_eq!(tables(listing(&namespace)), tables(listed), "{meddle}");
    }
}

#[test]
fn a_service_that_goes_while_the_node_moves_is_gone() {
    let node = |zone: &str| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: node-1, labels: {{topology.kubernetes.io/zone: {zone}}}}}\n"
        )
    };
    let namespace = Namespace::new().unwrap();
    let folder = state(&(two_endpoints() + &node("zone-a")));
    let path = folder.path().to_str().unwrap();
    let mut agent = Agent::start(&namespace, &["--state", path, "--node-name", "node-1"]);
    agent.wait_for(&["synced"]);
    assert!(listing(&namespace).contains("web/api"));
    std::fs::write(folder.path().join("state.yaml"), node("zone-b")).unwrap();
    eventually("nothing is left of it", || {
        let listed = listing(&namespace);
        !listed.contains("web/api") && !listed.contains("10.244.1.5")
    });
}

#[test]
fn a_table_of_another_version_is_replaced_in_one_step() {
    let namespace = Namespace::new().unwrap();
    let folder = state(&two_endpoints());
    let other = "add table ip zoneward
        add set ip zoneward services { type ipv4_addr; }
        add chain ip zoneward nat-prerouting { type filter hook input priority 0; }";
    assert!(tool_in(&namespace, "nft", &["-f", "-"], other).status.success());
    once(&namespace, folder.path());
    let fresh = Namespace::new().unwrap();
    once(&fresh, folder.path());
    assert_eq!(listing(&namespace), listing(&fresh));

    // So is one that was made with other settings.
    let args = ["run", "--once", "--node-name", "node-1", "--state"];
    let mut args: Vec<&std::ffi::OsStr> = args.iter().map(std::ffi::OsStr::new).collect();
    args.push(folder.path().as_os_str());
    assert!(run_in(&namespace, &args).status.success());
    assert!(!listing(&namespace).contains("10.244.0.0/16"));
    once(&namespace, folder.path());
    assert_eq!(listing(&namespace), listing(&fresh));
}

#[test]
fn a_refused_transaction_names_its_object_and_changes_nothing() {
    use zw_model::{Family, Protocol};
    use zw_plan::testing::World;
    use zw_plan::{Actual, bring_to};

    let namespace = Namespace::new().unwrap();
    let world = World::new(Family::V6)
        .service("web/api", 10, &[("http", Protocol::Tcp, 80)])
        .slice("web/api", &[("http", Protocol::Tcp, 8080)], |slice| slice.ready(&["zone-b"]));
    namespace.run(|| {
        let mut kernel = zw_dataplane::Kernel::open().unwrap();
        let changes = bring_to(&world.desired(), &Actual::default());
        kernel.commit(&changes, None).unwrap();
        let before = kernel.generation().unwrap();
        // Everything is there already, and elements must be new.
        let refused = kernel.commit(&changes, None).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the kernel refused IPv6 element fd00:10:96::a . tcp . 80 of services for web/api:http"
        );
        assert_eq!(refused.reaction(), zw_dataplane::Reaction::Resync);
        assert_eq!(kernel.generation().unwrap(), before);
        let stale = kernel.commit(&changes, Some(before.wrapping_sub(1))).unwrap_err();
        assert!(matches!(stale, zw_dataplane::WriteError::Overtaken), "{stale}");
    });
}

#[test]
fn cleanup_removes_our_tables_and_no_others() {
    let namespace = Namespace::new().unwrap();
    let folder = state(&two_endpoints());
    assert!(tool_in(&namespace, "nft", &["add", "table", "ip", "strangers"], "").status.success());
    once(&namespace, folder.path());
    assert!(run_in(&namespace, &["cleanup"]).status.success());
    assert_eq!(listing(&namespace), "table ip strangers {\n}\n");
    let again = run_in(&namespace, &["cleanup"]);
    assert_eq!((again.status.code(), text(&again.stdout)), (Some(0), "nothing to remove\n".into()));
}

#[test]
fn rules_of_kube_proxy_in_other_modes_are_told_and_left_alone() {
    let namespace = Namespace::new().unwrap();
    let theirs = "table ip nat {
	chain KUBE-SERVICES {
	}
}
";
    assert!(tool_in(&namespace, "nft", &["-f", "-"], theirs).status.success());
    let output = run_in(&namespace, &["cleanup", "--kube-proxy"]);
    assert!(output.status.success());
    let said = text(&output.stdout);
    let want =
        "not removed: rules of its iptables mode in the IPv4 table nat: run kube-proxy --cleanup\n";
    assert_eq!(said, want);
    assert_eq!(listing(&namespace), theirs);
}

#[test]
fn a_running_agent_follows_edits_and_leaves_its_rules_when_stopped() {
    let namespace = Namespace::new().unwrap();
    let folder = state(&two_endpoints());
    let path = folder.path().to_str().unwrap();
    let mut agent = Agent::start(&namespace, &["--state", path, "--node-name", "node-1"]);
    agent.wait_for(&["synced"]);

    let one_less = two_endpoints().replace("- addresses: [\"10.244.2.6\"]\n", "");
    std::fs::write(folder.path().join("state.yaml"), one_less).unwrap();
    eventually("one endpoint is left", || {
        let listed = listing(&namespace);
        !listed.contains("10.244.2.6") && listed.contains("goto cluster-1")
    });

    std::fs::write(folder.path().join("state.yaml"), "kind: [broken").unwrap();
    agent.wait_for(&["WARN", "state.yaml, document 1: not YAML"]);
    std::fs::remove_dir_all(folder.path()).unwrap();
    agent.wait_for(&["WARN", "cannot be read", "stays in force"]);
    let listed = listing(&namespace);
    assert!(listed.contains("10.244.1.5"), "{listed}");

    assert_eq!(agent.terminate().code(), Some(0));
    assert_eq!(listing(&namespace), listed);
}

#[test]
fn one_endpoint_costs_at_most_six_elements_whatever_the_size() {
    for endpoints in [1, 2, 50, 2_000] {
        let shape = Shape { services: 20, endpoints };
        let namespace = Namespace::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        shape.write(folder.path());
        let path = folder.path().to_str().unwrap();
        // Every endpoint of this node is local too: the dearest case.
        let mut agent = Agent::start(&namespace, &["--state", path, "--node-name", "node-0"]);
        agent.wait_for(&["synced", "services=20"]);
        let rules = || -> Vec<String> {
            let listed = listing(&namespace);
            let rules = listed.lines().filter(|line| line.contains("comment \"zw-"));
            rules.map(str::to_owned).collect()
        };
        let before = rules();
        for now in [endpoints - 1, endpoints, endpoints + 1, endpoints] {
            shape.write_service(folder.path(), 3, now);
            let line = agent.wait_for(&["synced"]);
            println!("{endpoints} endpoints, now {now}: {line}");
            assert_eq!(field(&line, "services"), 1.0, "{line}");
            assert!((1.0..=6.0).contains(&field(&line, "elements")), "{line}");
        }
        // Some rules are the same in several chains.
        let count = |rules: &[String], rule: &String| rules.iter().filter(|r| *r == rule).count();
        let after = rules();
        for rule in &before {
            assert!(count(&after, rule) >= count(&before, rule), "{rule} is still there");
        }
    }
}
