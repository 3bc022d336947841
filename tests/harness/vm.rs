//! Tests that run on another kernel: Debian's, in a virtual machine that boots, runs them and ends.
//!
//! A test of the vm tier is an ordinary test whose body stands in [`inside()`]. On this machine the first of
//! them boots the virtual machine, which runs the same test binary with the same selection of tests; each
//! then tells what became of it there. So one boot serves all that were asked for.

mod archive;
mod machine;
mod modules;

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Set, in the machine, by its first process.
pub const INSIDE: &str = "ZW_INSIDE_VM";
/// What the last line of output begins with.
pub const ENDED: &str = "vm: ended";

/// What one test came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// What libtest said of it: `ok`, `FAILED`.
    word: String,
    /// What it printed.
    output: String,
}

/// What the machine's tests came to; the whole of it failed if there is a reason.
static OUTCOMES: LazyLock<Result<BTreeMap<String, Outcome>, String>> =
    LazyLock::new(|| machine::run(&selection(std::env::args().skip(1))).map(|lines| read(&lines)));

/// Runs the calling test's body in the machine.
///
/// # Panics
/// With what it printed there, if it failed there, or with the reason if it did not get that far.
pub fn inside<F: FnOnce()>(body: F) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let name = test_name(std::any::type_name::<F>());
    let outcomes = OUTCOMES.as_ref().unwrap_or_else(|why| panic!("{why}"));
    let outcome = outcomes.get(name);
    let outcome = outcome.unwrap_or_else(|| panic!("{name} did not run in the machine"));
    assert_eq!(outcome.word, "ok", "in the machine:\n{}", outcome.output);
    println!("{}", outcome.output);
}

/// `packets::a_test`, from its body's `vm::packets::a_test::{{closure}}`.
fn test_name(closure: &str) -> &str {
    let name = closure.split("::{{closure}}").next().unwrap_or(closure);
    name.split_once("::").map_or(name, |(_crate, name)| name)
}

/// What was asked of libtest here, without what concerns this machine's output; and how it is done there:
/// one after the other, because emulated processors are slow and deadlines are not, and with all output.
fn selection(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let (mut selection, mut takes_value) = (Vec::new(), false);
    for argument in arguments {
        let selects = matches!(argument.as_str(), "--exact" | "--skip" | "--ignored");
        if selects || takes_value || !argument.starts_with('-') {
            selection.push(argument.clone());
        }
        takes_value = argument == "--skip";
    }
    selection.extend(["--test-threads=1", "--show-output"].map(str::to_owned));
    selection
}

/// Reads libtest's output: a line for each test, then what each of them printed.
fn read(lines: &[String]) -> BTreeMap<String, Outcome> {
    let mut outcomes = BTreeMap::<String, Outcome>::new();
    let mut printing: Option<String> = None;
    for line in lines {
        let line = line.trim_end();
        if let Some(rest) = line.strip_prefix("test ")
            && let Some((name, word)) = rest.split_once(" ... ")
        {
            outcomes.entry(name.to_owned()).or_default().word = word.to_owned();
        } else if let Some(name) = line.strip_prefix("---- ")
            && let Some(name) = name.strip_suffix(" stdout ----")
        {
            printing = Some(name.to_owned());
        } else if matches!(line, "successes:" | "failures:") {
            printing = None;
        } else if let Some(name) = &printing
            && let Some(outcome) = outcomes.get_mut(name)
        {
            outcome.output.push_str(line);
            outcome.output.push('\n');
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_same_tests_are_asked_for_inside() {
        let asked = "packets:: --nocapture --skip slow --exact --test-threads=4 -q";
        assert_eq!(
            selection(words(asked).into_iter()),
            words("packets:: --skip slow --exact --test-threads=1 --show-output")
        );
    }

    #[test]
    fn each_test_is_told_its_own_outcome() {
        let text = "running 3 tests
test a::one ... ok
test b::two ... FAILED
test three ... ok

successes:

---- a::one stdout ----
12 rows


successes:
    a::one
    three

failures:

---- b::two stdout ----
thread 'b::two' panicked
left: 1


failures:
    b::two

test result: FAILED. 2 passed; 1 failed";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let outcome =
            |word: &str, output: &str| Outcome { word: word.into(), output: output.into() };
        let want = [
            ("a::one", outcome("ok", "12 rows\n\n\n")),
            ("b::two", outcome("FAILED", "thread 'b::two' panicked\nleft: 1\n\n\n")),
            ("three", outcome("ok", "")),
        ];
        assert_eq!(read(&lines), want.map(|(name, outcome)| (name.to_owned(), outcome)).into());
        assert_eq!(test_name("vm::b::two::{{closure}}"), "b::two");
    }
}
