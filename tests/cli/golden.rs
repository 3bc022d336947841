//! Small states with the rules they become, kept as text for people to review. Each is planned,
//! programmed into a kernel and given to the stock nft, and must be the same every time.
//! `BLESS=1` writes the files anew.

use std::fs;
use std::path::{Path, PathBuf};

use zw_lab::Namespace;
use zw_tests::binary::{text, tool_in};

use crate::command::{dump_kernel, dump_state, golden, once};

fn cases() -> Vec<PathBuf> {
    let entries = fs::read_dir(golden("")).unwrap();
    let mut cases: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 7, "{cases:?}");
    cases
}

fn wanted(case: &Path) -> String {
    fs::read_to_string(case.join("want.nft")).unwrap()
}

#[test]
fn every_golden_state_prints_as_it_did() {
    let mut different = Vec::new();
    for case in cases() {
        for (form, file) in [("nft", "want.nft"), ("text", "want.txt")] {
            let dumped = dump_state(&case.join("state.yaml"), form).success();
            assert_eq!(dumped.complaints(), [""; 0], "{}", case.display());
            let file = case.join(file);
            if std::env::var_os("BLESS").is_some() {
                fs::write(&file, &dumped.out).unwrap();
            } else if fs::read_to_string(&file).unwrap_or_default() != dumped.out {
                different.push(format!("{}, now:\n{}", file.display(), dumped.out));
            }
        }
    }
    assert!(different.is_empty(), "BLESS=1 takes these over:\n{}", different.join("\n"));
}

#[test]
fn the_kernel_holds_what_every_golden_says() {
    for case in cases() {
        let namespace = Namespace::new().unwrap();
        once(&namespace, &case).success();
        let held = dump_kernel(&namespace, "nft").success();
        assert_eq!(held.out, wanted(&case), "{}", case.display());
    }
}

/// Leaves out chains that nothing refers to and that are not wanted: they wait for the next Service of that
/// size.
fn without_idle_chains(held: &str, wanted: &str) -> String {
    let tables =
        |text: &str| -> Vec<String> { text.split_inclusive("\n}\n").map(Into::into).collect() };
    let mut kept = String::new();
    for (table, wanted) in tables(held).iter().zip(tables(wanted)) {
        let mut left = table.clone();
        for block in table.split("\n\n").filter(|block| block.starts_with("\tchain ")) {
            let name = block.split_whitespace().nth(1).expect("a chain's name");
            let is_idle = !table.contains(&format!("goto {name}\n"))
                && !table.contains(&format!("goto {name} "))
                && !table.contains(&format!("goto {name},"));
            if is_idle && !wanted.contains(&format!("\tchain {name} {{")) {
                left = left.replace(&format!("{block}\n\n"), "");
            }
        }
        kept += &left;
    }
    kept
}

#[test]
fn the_kernel_moves_from_any_golden_to_any_other() {
    let namespace = Namespace::new().unwrap();
    let cases = cases();
    for from in &cases {
        for to in &cases {
            once(&namespace, from).success();
            once(&namespace, to).success();
            let held = dump_kernel(&namespace, "nft").success();
            let wanted = wanted(to);
            let held = without_idle_chains(&held.out, &wanted);
            assert_eq!(held, wanted, "{} -> {}", from.display(), to.display());
        }
    }
}

#[test]
fn the_stock_nft_takes_every_golden() {
    for case in cases() {
        let namespace = Namespace::new().unwrap();
        let file = case.join("want.nft");
        let checked = tool_in(&namespace, "nft", &["-c", "-f", file.to_str().unwrap()], "");
        assert!(checked.status.success(), "{}: {}", file.display(), text(&checked.stderr));
    }
}
