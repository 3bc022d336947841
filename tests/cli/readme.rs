//! The commands that the READMEs quote, run as they stand: every line of every `sh` block.

use std::fs;
use std::path::Path;
use std::process::Command;

use zw_lab::Namespace;
use zw_tests::binary::zoneward;

use crate::command::{Ended, golden};

/// Quoted, but run elsewhere or nowhere; whatever is added needs its reason.
const NOT_RUN_HERE: [(&str, &str); 5] = [
    ("cargo run --release -- demo", ".ci/run runs it by itself"),
    ("tests/run", "runs this test"),
    (
        "ZW_SCALE_CHANGES=1000 cargo test --release -p zw-controller world -- --nocapture",
        "tests/run runs these tests",
    ),
    (
        "zoneward controller --dry-run --kubeconfig admin.kubeconfig",
        "takes a cluster: tests/cluster/zone_controller_scale.rs",
    ),
    (
        "zoneward simulate --dataset large --algorithm all --plot controller/scores.svg",
        "39 million inputs take too long, and the picture is in the repository",
    ),
];

/// The lines of each `sh` block, without comments.
fn blocks(markdown: &str) -> Vec<Vec<&str>> {
    let mut blocks = Vec::new();
    let mut lines = markdown.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let block: Vec<&str> = lines
            .by_ref()
            .map(str::trim)
            .take_while(|line| !line.starts_with("```"))
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        match language.trim() {
            "sh" => blocks.push(block),
            "text" | "yaml" | "json" | "nft" | "toml" | "rust" => {}
            other => panic!("a block of {other:?}: write commands as `sh`"),
        }
    }
    blocks
}

/// A command's arguments, if a shell would make nothing else of the line.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let arguments = line.strip_prefix("zoneward ")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,= ".contains(c);
    arguments.chars().all(plain).then(|| arguments.split_whitespace().collect())
}

/// Runs the commands of one block one after the other, in a namespace and a folder of their own.
fn run_block(block: &[&str]) -> Vec<String> {
    let namespace = Namespace::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let manifests = folder.path().join("manifests");
    fs::create_dir(&manifests).unwrap();
    fs::copy(golden("hints").join("state.yaml"), manifests.join("state.yaml")).unwrap();
    let mut run = Vec::new();
    for line in block {
        if NOT_RUN_HERE.iter().any(|(command, _)| command == line) {
            continue;
        }
        let Some(arguments) = arguments(line) else {
            panic!("not a command that this test knows how to run: {line}");
        };
        let endless = arguments[0] == "run" && !arguments.contains(&"--once");
        assert!(!endless, "runs until it is stopped: {line}");
        let output = namespace.run(|| {
            let mut command = Command::new(zoneward());
            command.args(&arguments).current_dir(folder.path()).env_remove("NODE_NAME");
            command.output().unwrap()
        });
        let ended = Ended::of(&output);
        assert_eq!((ended.code, ended.complaints()), (Some(0), Vec::new()), "{line}: {ended:#?}");
        run.push((*line).to_owned());
    }
    run
}

#[test]
fn every_command_in_a_readme_works_as_it_stands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut quoted = String::new();
    let mut run = Vec::new();
    for file in [
        "README.md",
        "agent/README.md",
        "controller/README.md",
        "dataplane/README.md",
        "tests/README.md",
    ] {
        let markdown =
            fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        run.extend(blocks(&markdown).iter().flat_map(|block| run_block(block)));
        quoted += &markdown;
    }
    for verb in ["check", "run", "dump-rules", "explain", "trace", "diff", "top", "cleanup"] {
        let shown = run.iter().any(|line| line.starts_with(&format!("zoneward {verb}")));
        assert!(shown, "no README shows how to use {verb}: {run:#?}");
    }
    for (command, _) in NOT_RUN_HERE {
        assert!(quoted.contains(command), "no README has {command} any more");
    }
}

#[test]
fn the_readme_has_a_row_for_every_command() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let help = Ended::of(&Command::new(zoneward()).arg("--help").output().unwrap()).success().out;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let rows: Vec<&str> = readme.lines().filter(|line| line.starts_with("| `zoneward ")).collect();
    for verb in listed.map_while(|line| line.strip_prefix("  ")?.split(' ').next()) {
        let named = |row: &&str| {
            [" ", "`"].iter().any(|end| row.contains(&format!("`zoneward {verb}{end}")))
        };
        assert!(verb == "help" || rows.iter().any(named), "{verb} is in none of {rows:#?}");
    }
}
