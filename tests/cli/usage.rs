//! What is typed: flags, filters, exit codes, pipes, logs.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;
use zw_lab::Namespace;
use zw_tests::binary::{Agent, eventually, run_in, text, zoneward};

use crate::command::{Ended, Folder, NODE, dump_kernel, golden, once, run};

/// `dump-rules` of a golden, with more arguments.
fn dump(case: &str, more: &[&str]) -> Ended {
    let state = golden(case);
    run(&[&["dump-rules", "--state", state.to_str().unwrap()], &NODE[..], more].concat())
}

/// One line of complaint and nothing else.
fn refused(code: i32, error: &str) -> Ended {
    Ended { code: Some(code), out: String::new(), log: vec![format!("error: {error}")] }
}

#[test]
fn bad_usage_is_told_on_standard_error_with_exit_code_2() {
    let rows: [(&[&str], &str); 15] = [
        (&["frobnicate"], "error: unrecognized subcommand 'frobnicate'"),
        (&["run", "--frobnicate"], "error: unexpected argument '--frobnicate' found"),
        (
            &["run", "--state", "x", "--config", "/nowhere"],
            "error: cannot use the configuration /nowhere: cannot read it: No such file or directory \
             (os error 2)",
        ),
        (
            &["run", "--node-name", "n", "--state"],
            "error: a value is required for '--state <PATH>' but none was supplied",
        ),
        (
            &["run", "--node-name", "n"],
            "error: not in a cluster (failed to read an incluster environment variable: environment \
             variable not found): give --kubeconfig FILE, or --state PATH to follow manifests",
        ),
        (
            &["run", "--node-name", "n", "--state", "x", "--mode", "iptables"],
            "error: invalid value 'iptables' for '--mode <MODE>': iptables is not a mode of Zoneward: \
             nftables takes its place, write nftables",
        ),
        (
            &["run", "--node-name", "n", "--state", "x", "--cluster-cidr", "10.0.0.0/33"],
            "error: invalid value '10.0.0.0/33' for '--cluster-cidr <CIDR[,CIDR]>': \"10.0.0.0/33\" is \
             not a CIDR such as 10.244.0.0/16 or fd00:10:244::/48",
        ),
        (
            &["run", "--node-name", "n", "--state", "x", "--cluster-cidr", "10.0.0.0/8,pods"],
            "error: invalid value 'pods' for '--cluster-cidr <CIDR[,CIDR]>': \"pods\" is not a CIDR \
             such as 10.244.0.0/16 or fd00:10:244::/48",
        ),
        (
            &["run", "--node-name", "n", "--state", "x", "--masquerade-bit", "32"],
            "error: invalid value '32' for '--masquerade-bit <BIT>': 32 is not a bit of the \
             packet mark (0 to 31)",
        ),
        (
            &["dump-rules", "--state", "x"],
            "error: the following required arguments were not provided:",
        ),
        (
            &["dump-rules", "--state", "x", "--node-name", "n", "--from", "kernel"],
            "error: the argument '--state <PATH>' cannot be used with '--from <FROM>'",
        ),
        (&["dump-rules", "-o", "xml"], "error: invalid value 'xml' for '--output <OUTPUT>'"),
        (&["completions"], "error: the following required arguments were not provided:"),
        (&["check", "everything"], "error: unexpected argument 'everything' found"),
        (
            &["version", "--log", "[["],
            "error: --log \"[[\" is not a log filter: invalid filter directive",
        ),
    ];
    for (args, error) in rows {
        let output = Command::new(zoneward()).args(args).env_remove("NODE_NAME").output().unwrap();
        let ended = Ended::of(&output);
        let first = ended.log.first().map(String::as_str);
        assert_eq!(
            (ended.code, ended.out.as_str(), first),
            (Some(2), "", Some(error)),
            "{args:?}: {ended:#?}"
        );
    }
}

#[test]
fn no_command_at_all_prints_the_help_with_exit_code_2() {
    let ended = run::<&str>(&[]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
    assert!(
        ended.log.iter().any(|line| line == "Usage: zoneward [OPTIONS] <COMMAND>"),
        "{ended:?}"
    );
}

#[test]
fn the_node_name_may_come_from_the_environment() {
    let mut command = Command::new(zoneward());
    command.args(["dump-rules", "--state"]).arg(golden("hints")).args(&NODE[2..]);
    let ended = Ended::of(&command.env("NODE_NAME", "node-1").output().unwrap()).success();
    assert_eq!(ended, dump("hints", &[]));
}

#[test]
fn kube_proxys_way_to_clean_up_works_too() {
    let namespace = Namespace::new().unwrap();
    once(&namespace, &golden("dual-stack")).success();
    for (flag, said) in [
        ("--cleanup", "removed the IPv4 table zoneward\nremoved the IPv6 table zoneward\n"),
        ("--cleanup=true", "nothing to remove\n"),
    ] {
        let ended = Ended::of(&run_in(&namespace, &["run", flag])).success();
        assert_eq!(ended.out, said, "{flag}");
    }
}

#[test]
fn a_filter_that_is_no_service_is_bad_usage() {
    for filter in ["web", "web/", "/api", "/", "", "web/api/http", "web//api", "web/api:", ":80"] {
        let error =
            format!("{filter:?} is not a Service: write namespace/name or namespace/name:port");
        assert_eq!(dump("dual-stack", &[filter]), refused(2, &error));
    }
}

#[test]
fn a_filter_shows_a_service_or_one_of_its_ports_by_name_or_number() {
    let udp = "\
kube-system/dns:dns  IPv4 udp
  10.96.0.53:53  cluster IP  3 endpoints
      0  10.244.2.2:53    node-2  ready
      1  10.244.3.2:1053  node-3  ready
      2  10.244.4.2:1053  node-4  ready
";
    let tcp = "\
kube-system/dns:dns-tcp  IPv4 tcp
  10.96.0.53:53  cluster IP  3 endpoints
      0  10.244.2.2:53    node-2  ready
      1  10.244.3.2:1053  node-3  ready
      2  10.244.4.2:1053  node-4  ready
";
    let metrics = "\
kube-system/dns:metrics  IPv4 tcp
  10.96.0.53:9153  cluster IP  1 endpoint
      0  10.244.2.2:9153  node-2  ready
";
    for (filter, want) in [
        ("kube-system/dns", format!("{udp}\n{tcp}\n{metrics}")),
        ("kube-system/dns:dns", udp.to_owned()),
        ("kube-system/dns:53", format!("{udp}\n{tcp}")),
        ("kube-system/dns:metrics", metrics.to_owned()),
        ("kube-system/dns:9153", metrics.to_owned()),
    ] {
        assert_eq!(dump("ports", &[filter]).success().out, want, "{filter}");
    }
    // The kernel answers the same questions.
    let namespace = Namespace::new().unwrap();
    once(&namespace, &golden("ports")).success();
    let held = run_in(&namespace, &["dump-rules", "kube-system/dns:9153"]);
    let want = "\
kube-system/dns:metrics  IPv4 tcp
  10.96.0.53:9153  cluster IP  1 endpoint  0 connections
      0  10.244.2.2:9153
";
    assert_eq!(Ended::of(&held).success().out, want);
}

#[test]
fn a_filter_that_matches_nothing_is_a_failure() {
    for filter in ["kube-system/none", "web/dns", "kube-system/dns:dns-udp", "kube-system/dns:54"] {
        let want = refused(1, &format!("no Service port {filter} is programmed"));
        assert_eq!(dump("ports", &[filter]), want);
        assert_eq!(dump("ports", &[filter, "-o", "json"]), want);
    }
}

#[test]
fn a_filter_with_whole_tables_is_bad_usage() {
    let want = refused(2, "-o nft prints whole tables: leave the Service out");
    assert_eq!(dump("ports", &["kube-system/dns", "-o", "nft"]), want);
}

#[test]
fn a_kernel_without_our_table_is_told() {
    let namespace = Namespace::new().unwrap();
    let want = refused(1, "Zoneward has programmed nothing here: there is no table zoneward");
    assert_eq!(dump_kernel(&namespace, "text"), want);
    // For machines that is a valid answer.
    assert_eq!(
        dump_kernel(&namespace, "json").success().out,
        "{\n  \"schema\": 1,\n  \"services\": []\n}\n"
    );
    assert_eq!(dump_kernel(&namespace, "nft").success().out, "");

    once(&namespace, &golden("dual-stack")).success();
    let cleaned = Ended::of(&run_in(&namespace, &["cleanup"])).success();
    assert_eq!(cleaned.out, "removed the IPv4 table zoneward\nremoved the IPv6 table zoneward\n");
    assert_eq!(dump_kernel(&namespace, "text"), want);
}

#[test]
fn the_version_is_that_of_the_workspace() {
    let want = concat!("zoneward ", env!("CARGO_PKG_VERSION"), "\n");
    for command in ["version", "--version", "-V"] {
        let ended = run(&[command]).success();
        assert_eq!((ended.out.as_str(), ended.log), (want, Vec::new()));
    }
}

#[test]
fn help_lists_every_command() {
    let help = run(&["--help"]).success().out;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> =
        listed.map_while(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    let want = [
        "run",
        "dump-rules",
        "explain",
        "trace",
        "diff",
        "top",
        "ready",
        "check",
        "cleanup",
        "demo",
        "controller",
        "simulate",
        "version",
        "completions",
        "help",
    ];
    assert_eq!(commands, want, "{help}");
    for command in &commands[..commands.len() - 1] {
        let help = run(&[command, "--help"]).success().out;
        assert!(help.contains(&format!("Usage: zoneward {command}")), "{help}");
    }
}

#[test]
fn completions_are_a_script_that_bash_can_read() {
    let script = run(&["completions", "bash"]).success();
    assert_eq!(script.log, [""; 0]);
    assert!(script.out.contains("_clap_complete_zoneward"), "{}", script.out);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zoneward.bash");
    std::fs::write(&file, &script.out).unwrap();
    let checked = Command::new("bash").arg("-n").arg(&file).output().expect("bash runs");
    assert_eq!((checked.status.code(), text(&checked.stderr)), (Some(0), String::new()));
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(
            run(&["completions", shell]).success().out.contains("ZONEWARD_COMPLETE"),
            "{shell}"
        );
    }
}

#[test]
fn shells_complete_the_names_of_services() {
    let namespace = Namespace::new().unwrap();
    once(&namespace, &golden("ports")).success();
    let complete = |words: &[&str]| {
        let output = namespace.run(|| {
            let mut command = Command::new(zoneward());
            command.env("ZONEWARD_COMPLETE", "zsh");
            command.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
            command.env("_CLAP_IFS", "\n").arg("--").args(words).output().unwrap()
        });
        let ended = Ended::of(&output).success();
        ended.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(complete(&["zoneward", "exp"]).iter().any(|line| line.starts_with("explain")));
    for command in ["explain", "dump-rules", "diff"] {
        assert_eq!(complete(&["zoneward", command, "kube"]), ["kube-system/dns"], "{command}");
    }
    assert_eq!(complete(&["zoneward", "explain", "none"]), [""; 0]);
}

/// A kubectl that writes down how it was called.
const KUBECTL: &str = "#!/bin/sh
printf '%s\\n' \"$*\" >> \"$CALLS\"
case \" $* \" in *\" get pods \"*) [ -z \"${PODS-}\" ] || echo \"$PODS\" ;; esac
";

#[test]
fn the_kubectl_plugin_asks_the_agent_of_the_node_it_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let kubectl = folder.path().join("kubectl");
    std::fs::write(&kubectl, KUBECTL).unwrap();
    std::fs::set_permissions(&kubectl, std::fs::Permissions::from_mode(0o755)).unwrap();
    let calls = folder.path().join("calls");
    let plugin =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubectl-zoneward");
    let run = |args: &[&str], pods: &str| {
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let mut command = Command::new(&plugin);
        command.args(args).env("PATH", path).env("CALLS", &calls).env("PODS", pods);
        let ended = Ended::of(&command.stdin(Stdio::null()).output().unwrap());
        let called = std::fs::read_to_string(&calls).unwrap_or_default();
        let _ = std::fs::remove_file(&calls);
        (ended, called)
    };
    let (ended, called) = run(&["explain", "web/api"], "");
    assert_eq!((ended.code, ended.log), (Some(0), Vec::new()));
    assert_eq!(called, "-n kube-system exec daemonset/zoneward -- zoneward explain web/api\n");
    for node in [&["--node", "node-2"][..], &["--node=node-2"]] {
        let (ended, called) = run(&[node, &["diff"]].concat(), "pod/zoneward-x");
        assert_eq!((ended.code, ended.log), (Some(0), Vec::new()));
        let lines: Vec<&str> = called.lines().collect();
        assert!(lines[0].contains("spec.nodeName=node-2"), "{called}");
        assert_eq!(lines[1..], ["-n kube-system exec pod/zoneward-x -- zoneward diff"]);
    }
    let (ended, _) = run(&["--node", "gone", "diff"], "");
    assert_eq!(
        (ended.code, ended.log),
        (Some(1), vec!["error: no pod of Zoneward runs on node gone".to_owned()])
    );
}

/// The writing end of a pipe that nobody reads.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_closed_standard_output_is_success_without_a_word() {
    let state = golden("dual-stack");
    let dump = |form| -> Vec<&str> {
        [&["dump-rules", "-o", form, "--state", state.to_str().unwrap()], &NODE[..]].concat()
    };
    let commands = [
        dump("text"),
        dump("json"),
        dump("nft"),
        [&["explain", "web/api", "--state", state.to_str().unwrap()], &NODE[..]].concat(),
        [&["trace", "10.244.9.9", "web/api:http", "--state", state.to_str().unwrap()], &NODE[..]]
            .concat(),
        vec!["diff", "--state", state.to_str().unwrap(), "--node-name", "node-1"],
        vec!["version"],
        vec!["--help"],
        vec!["check"],
        vec!["completions", "bash"],
        vec!["simulate", "--dataset", "small", "-o", "csv"],
    ];
    let namespace = Namespace::new().unwrap();
    for args in commands {
        let output = namespace
            .run(|| Command::new(zoneward()).args(&args).stdout(closed_pipe()).output().unwrap());
        let want = Ended { code: Some(0), out: String::new(), log: Vec::new() };
        assert_eq!(Ended::of(&output), want, "{args:?}");
    }
    // As a shell does it.
    let mut shell = Command::new("bash");
    shell.args(["-o", "pipefail", "-c", "\"$0\" \"$@\" | head -1"]).arg(zoneward());
    let ended = Ended::of(&shell.args(dump("json")).output().expect("bash runs"));
    assert_eq!(ended, Ended { code: Some(0), out: "{\n".into(), log: Vec::new() });
}

#[test]
fn a_full_disk_under_standard_output_is_a_failure() {
    for args in [&["version"][..], &["completions", "bash"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = Command::new(zoneward()).args(args).stdout(full).output().unwrap();
        assert_eq!(Ended::of(&output), refused(1, "No space left on device (os error 28)"));
    }
}

#[test]
fn an_agent_whose_log_nobody_takes_works_on() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into();
    for log in [closed_pipe as fn() -> Stdio, full] {
        let namespace = Namespace::new().unwrap();
        let status = namespace.run(|| {
            let mut command = Command::new(zoneward());
            command.args(["run", "--once", "--state"]).arg(golden("contested")).args(NODE);
            command.stderr(log()).status().unwrap()
        });
        assert_eq!(status.code(), Some(0));
        let want = std::fs::read_to_string(golden("contested").join("want.nft")).unwrap();
        assert_eq!(dump_kernel(&namespace, "nft").success().out, want);
    }
}

/// A log line without what differs from run to run.
fn stable(line: &str) -> Value {
    let mut line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    let time = line.as_object_mut().unwrap().remove("timestamp");
    assert!(time.is_some_and(|time| time.as_str().unwrap().ends_with('Z')), "{line}");
    let fields = line["fields"].as_object_mut().unwrap();
    for measured in ["chains", "bytes", "read_ms", "plan_ms", "commit_ms"] {
        if let Some(value) = fields.remove(measured) {
            assert!(value.is_number(), "{measured}: {value}");
        }
    }
    line
}

#[test]
fn a_log_in_json_is_one_object_a_line() {
    let namespace = Namespace::new().unwrap();
    let state = golden("contested");
    let state = state.to_str().unwrap();
    let output = run_in(
        &namespace,
        &[&["run", "--once", "--log-json", "--state", state], &NODE[..]].concat(),
    );
    let ended = Ended::of(&output).success();
    let lines: Vec<Value> = ended.log.iter().map(|line| stable(line)).collect();
    let want = [
        serde_json::json!({
            "level": "WARN",
            "target": "zoneward::sync::partial",
            "fields": {
                "message": "not programmed: another Service has this address and port",
                "svc": "web/copy",
                "frontend": "10.96.0.60:80/tcp",
                "owner": "web/api",
            },
        }),
        serde_json::json!({
            "level": "INFO",
            "target": "zoneward::sync::report",
            "fields": {"message": "synced", "services": 2, "elements": 5},
        }),
    ];
    assert_eq!(lines, want);
}

#[test]
fn a_log_filter_silences_what_it_leaves_out() {
    let namespace = Namespace::new().unwrap();
    let state = golden("contested");
    let state = state.to_str().unwrap();
    let command = ["run", "--once", "--log", "error", "--state", state];
    let ended = Ended::of(&run_in(&namespace, &[&command, &NODE[..]].concat()));
    assert_eq!(ended, Ended { code: Some(0), out: String::new(), log: Vec::new() });
}

/// In a busy cluster that would be many lines a second.
#[test]
fn an_ordinary_change_is_logged_only_if_asked_for() {
    let namespace = Namespace::new().unwrap();
    let state = fs::read_to_string(golden("contested").join("state.yaml")).unwrap();
    for (level, want) in [("info", 1), ("debug", 2)] {
        let folder = Folder::new(&[("state.yaml", state.as_bytes())]);
        let args = ["--log", level, "--state", folder.path().to_str().unwrap()];
        let mut agent = Agent::start(&namespace, &[&args[..], &NODE].concat());
        agent.wait_for(&["synced"]);
        folder.write("state.yaml", state.replace("10.244.1.1", "10.244.1.9").as_bytes());
        eventually("the other endpoint", || {
            dump_kernel(&namespace, "text").success().out.contains("10.244.1.9")
        });
        folder.write("state.yaml", b"kind: [");
        agent.wait_for(&["WARN", "state.yaml"]);
        let synced = agent.log.iter().filter(|line| line.contains("synced")).count();
        assert_eq!(synced, want, "{level}: {:#?}", agent.log);
        assert_eq!(agent.terminate().code(), Some(0));
    }
}
