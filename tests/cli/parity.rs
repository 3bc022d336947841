//! The table that compares with kube-proxy: every row names what proves it, and that exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use zw_model::Family;
use zw_plan::testing::{cases, sctp_cases};

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, into);
        } else if name.ends_with(".rs") {
            into.push(path);
        }
    }
}

/// Every function that stands below a test attribute, or in a macro of property tests.
fn tests_in(root: &Path) -> BTreeSet<String> {
    let mut files = Vec::new();
    sources(root, &mut files);
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let mut below_test = false;
        for line in text.lines().map(str::trim_start) {
            if line.starts_with("#[test") || line.starts_with("#[tokio::test") {
                below_test = true;
            } else if let Some((_, name)) = line.split_once("fn ").filter(|_| below_test) {
                let end = name.find('(').unwrap_or(name.len());
                names.insert(name[..end].to_owned());
                below_test = false;
            }
        }
    }
    names
}

/// The words between each two of these marks.
fn between(text: &str, mark: char) -> Vec<&str> {
    text.split(mark).skip(1).step_by(2).collect()
}

#[test]
fn every_row_of_the_comparison_with_kube_proxy_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("dataplane/README.md")).unwrap();
    let tests = tests_in(root);
    let cases = cases(Family::V4).into_iter().chain(sctp_cases(Family::V4));
    let cases: BTreeSet<&str> = cases.map(|case| case.name).collect();

    let start = page.find("## In kube-proxy's place").expect("the comparison");
    let end = page[start..].find("\n## What costs what").expect("the next chapter");
    let mut rows = 0;
    let mut wrong = Vec::new();
    for line in page[start..start + end].lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [behaviour, verdict, proof] = cells[..] else { panic!("three columns: {line}") };
        if behaviour == "behaviour" {
            continue;
        }
        rows += 1;
        let (named, quoted) = (between(proof, '`'), between(proof, '"'));
        if verdict.is_empty() || (named.is_empty() && quoted.is_empty()) {
            wrong.push(format!("says too little: {line}"));
        }
        let missing = named.iter().filter(|name| !tests.contains(**name));
        wrong.extend(missing.map(|name| format!("no test is called {name}: {line}")));
        let missing = quoted.iter().filter(|name| !cases.contains(**name));
        wrong.extend(missing.map(|name| format!("no packet case is called {name}: {line}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rows > 60, "only {rows} rows");
}
