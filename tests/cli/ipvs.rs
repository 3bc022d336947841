//! The ipvs mode where the kernel does not have what it needs, and where it does.

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_tests::binary::run_in;

use crate::command::{Ended, Folder, NODE, dump_kernel, golden, run};

/// What a run in the ipvs mode, and then a check, have to say.
fn run_and_check(namespace: &Namespace) -> (Ended, Ended) {
    let state = golden("dual-stack");
    let run = ["run", "--once", "--mode", "ipvs", "--state", state.to_str().unwrap()];
    let run = Ended::of(&run_in(namespace, &[&run[..], &NODE].concat()));
    (run, Ended::of(&run_in(namespace, &["check", "--mode", "ipvs"])))
}

#[test]
fn a_kernel_without_ipvs_is_told_which_module_is_missing_and_nothing_is_programmed() {
    let namespace = Namespace::new().unwrap();
    let has_ipvs = namespace.run(|| zw_netlink::ipvs::Socket::open().unwrap().is_some());
    let (run, check) = run_and_check(&namespace);
    if has_ipvs {
        // Such a kernel is what the vm tier is for; this much is true of it.
        run.success();
        assert!(!check.out.contains("modprobe ip_vs"), "{check:#?}");
        return;
    }
    assert_eq!(run.code, Some(1), "{run:#?}");
    assert_eq!(
        run.log.last().map(String::as_str),
        Some(
            "error: the ipvs mode needs IPVS, and this kernel does not have it loaded: run `modprobe \
             ip_vs` on the node, and name the module in /etc/modules-load.d for the next start, or use \
             the mode nftables"
        )
    );
    assert_eq!(check.code, Some(1), "{check:#?}");
    assert!(
        check.out.contains("IPVS              MISSING: not loaded; run `modprobe ip_vs`"),
        "{check:#?}"
    );

    let dump = dump_kernel(&namespace, "text");
    assert_eq!(dump.code, Some(1), "no table: {dump:#?}");
    assert_eq!(namespace.run(zw_dataplane::link_index), None, "no interface");
}

#[test]
fn the_check_for_the_other_mode_asks_for_nothing_of_ipvs() {
    let check = Ended::of(&run_in(&Namespace::new().unwrap(), &["check"]));
    assert!(!check.out.contains("IPVS"), "{check:#?}");
}

#[test]
fn a_scheduler_that_does_not_exist_is_named_with_its_field() {
    let folder = Folder::new(&[(
        "config.yaml",
        b"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
          mode: ipvs\nipvs: {scheduler: fastest}\n",
    )]);
    let config = folder.path().join("config.yaml");
    let args = ["run", "--once", "--state", "x", "--config", config.to_str().unwrap()];
    let ended = Ended::of(&run_in(&Namespace::new().unwrap(), &[&args[..], &NODE].concat()));
    assert_eq!(ended.code, Some(2));
    let error = ended.log.last().unwrap();
    assert!(error.contains("ipvs.scheduler: \"fastest\" is no scheduler of IPVS"), "{error}");
}

#[test]
fn manifests_are_planned_for_ipvs_where_asked_for() {
    let state = golden("dual-stack");
    let dump = ["dump-rules", "-o", "json", "--state", state.to_str().unwrap()];
    let mode = ["--mode", "ipvs", "--ipvs-scheduler", "sh,port"];
    let dumped = run(&[&dump[..], &NODE, &mode].concat()).success();
    let dumped: Value = serde_json::from_str(&dumped.out).unwrap();
    let server = |server: &str, reals: [&str; 2]| {
        let reals = reals.map(|address| json!({"address": address, "weight": 1}));
        json!({"server": server, "scheduler": "sh,port", "nodePort": false, "reals": reals})
    };
    let want = json!({
        "interface": "zoneward-ipvs",
        "state": "up",
        "addresses": ["10.96.0.10", "fd00:10:96::a"],
        "servers": [
            server("10.96.0.10:80/tcp", ["10.244.1.5:8080", "10.244.2.6:8080"]),
            server(
                "[fd00:10:96::a]:80/tcp",
                ["[fd00:10:244:1::5]:8080", "[fd00:10:244:2::6]:8080"],
            ),
        ],
        "others": [],
    });
    assert_eq!(dumped["ipvs"], want);
    assert_eq!(dumped["services"][0]["scheduler"], "sh,port");

    let other = run(&[&dump[..], &NODE].concat()).success();
    assert!(!other.out.contains("\"ipvs\""), "not in the other mode");
    let bare = run(&["dump-rules", "--mode", "ipvs"]);
    assert_eq!(bare.code, Some(2), "the kernel knows its mode by itself: {bare:#?}");
}
