//! What people see: every command on one state, at two widths, with and without colour, kept as text for
//! review. `BLESS=1` writes the files anew.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use zw_lab::Namespace;
use zw_tests::binary::{text, tool_in, zoneward};

use crate::command::{Ended, NODE, once};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("texts")
}

fn state() -> PathBuf {
    folder().join("state.yaml")
}

/// What it is called here, and how it is called.
type Named = (&'static str, &'static [&'static str]);

/// Commands that need no kernel.
const OFFLINE: [Named; 12] = [
    ("dump-rules", &["dump-rules"]),
    ("dump-rules-ipvs", &["dump-rules", "--mode", "ipvs", "--ipvs-scheduler", "wrr"]),
    ("trace-ipvs", &["trace", "203.0.113.9", "198.51.100.7:443", "--mode", "ipvs"]),
    ("explain", &["explain", "web/api"]),
    ("explain-policy", &["explain", "web/shop"]),
    ("explain-not-ready", &["explain", "web/late"]),
    ("explain-zone", &["explain", "web/zoned"]),
    ("explain-contested", &["explain", "web/zz-copy"]),
    ("trace-pod", &["trace", "10.244.1.9", "web/api:http"]),
    ("trace-sticky", &["trace", "203.0.113.9", "198.51.100.7:443"]),
    ("trace-dropped", &["trace", "192.0.2.200", "198.51.100.7:443/tcp"]),
    ("trace-stray", &["trace", "node", "10.96.0.10:81"]),
];

/// The same of Services that the zone-slice controller looks after, which are a state of their own.
const DIVIDED: [Named; 4] = [
    ("explain-divided", &["explain", "web/divided"]),
    ("explain-required", &["explain", "web/required"]),
    ("explain-dividing", &["explain", "web/dividing"]),
    ("explain-undivided", &["explain", "web/undivided"]),
];

/// Commands that look at the kernel.
const ON_A_NODE: [Named; 4] = [
    ("dump-rules-kernel", &["dump-rules"]),
    ("trace-kernel", &["trace", "10.244.1.9", "web/api:http"]),
    ("diff", &["diff"]),
    ("top", &["top", "--rounds", "1", "--every", "1", "--socket", "/nowhere"]),
];

fn run_at(width: &str, colour: bool, args: &[&str]) -> Output {
    let mut command = Command::new(zoneward());
    command.args(args).args(["--color", if colour { "always" } else { "never" }]);
    command.env("COLUMNS", width).env_remove("NODE_NAME").output().unwrap()
}

/// Compares with what is kept, or keeps it.
fn compare(name: &str, width: &str, colour: bool, got: &str, different: &mut Vec<String>) {
    let file = folder().join(format!("{name}-{width}{}.txt", if colour { "-colour" } else { "" }));
    if std::env::var_os("BLESS").is_some() {
        fs::write(&file, got).unwrap();
    } else if fs::read_to_string(&file).unwrap_or_default() != got {
        different.push(format!("{}, now:\n{got}", file.display()));
    }
    let widest = got.lines().map(|line| visible(line).chars().count()).max().unwrap_or(0);
    let long = |line: &str| line.split(' ').any(|word| visible(word).len() > 40);
    let limit: usize = width.parse().unwrap();
    // A word that is too long by itself, such as a chain's name, stays whole.
    assert!(
        widest <= limit || got.lines().any(long) || name.starts_with("top"),
        "{name}: {widest}\n{got}"
    );
}

/// A line without its colours.
fn visible(line: &str) -> String {
    let mut rest = line;
    let mut seen = String::new();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        seen += before;
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    seen + rest
}

#[test]
fn every_command_prints_as_it_did_at_any_width_with_and_without_colour() {
    let mut different = Vec::new();
    let divided = folder().join("divided.yaml");
    let of = |commands: &[Named], state: PathBuf| -> Vec<(Named, PathBuf)> {
        commands.iter().map(|command| (*command, state.clone())).collect()
    };
    for ((name, command), state) in [of(&OFFLINE, state()), of(&DIVIDED, divided)].concat() {
        let args = [command, &["--state", state.to_str().unwrap()], &NODE].concat();
        let mut plain = Vec::new();
        for (width, colour) in [("80", false), ("120", false), ("80", true), ("120", true)] {
            let ended = Ended::of(&run_at(width, colour, &args)).success();
            assert_eq!(ended.complaints(), [""; 0], "{name}");
            compare(name, width, colour, &ended.out, &mut different);
            plain.push(visible(&ended.out));
        }
        assert_eq!(plain[..2], plain[2..], "{name}: colour changes more than colour");
    }
    assert!(different.is_empty(), "BLESS=1 takes these over:\n{}", different.join("\n"));
}

#[test]
fn commands_on_a_node_print_as_they_did() {
    let namespace = Namespace::new().unwrap();
    once(&namespace, &state()).success();
    let meddle = "delete element ip zoneward services { 10.96.0.10 . tcp . 80 }
        add element ip zoneward endpoints { 10.96.0.99 . tcp . 1 . 0 : 192.0.2.9 . 1 }
        delete element ip6 zoneward endpoints { fd00:10:96::a . tcp . 80 . 0 }
        add element ip6 zoneward endpoints { fd00:10:96::a . tcp . 80 . 0 : 2001:db8::9 . 1 }
        add rule ip zoneward refuse drop
        add chain ip zoneward of-nobody";
    let mut different = Vec::new();
    let state = state();
    for (name, command) in ON_A_NODE {
        if name == "diff" {
            let meddled = tool_in(&namespace, "nft", &["-f", "-"], meddle);
            assert!(meddled.status.success(), "{}", text(&meddled.stderr));
        }
        let state = ["--state", state.to_str().unwrap(), "--node-name", "node-1"];
        let args = [command, if name == "diff" { &state[..] } else { &[] }].concat();
        for (width, colour) in [("80", false), ("120", false), ("80", true), ("120", true)] {
            let ended = Ended::of(&namespace.run(|| run_at(width, colour, &args)));
            assert_eq!(ended.code, Some(i32::from(name == "diff")), "{name}: {ended:?}");
            compare(name, width, colour, &ended.out, &mut different);
        }
    }
    assert!(different.is_empty(), "BLESS=1 takes these over:\n{}", different.join("\n"));
}
