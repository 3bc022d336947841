//! One run of the binary and all that came of it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use zw_lab::Namespace;
use zw_tests::binary::{run_in, text, zoneward};

/// What the goldens are planned for, and every other state here.
pub(crate) const NODE: [&str; 4] =
    ["--node-name", "node-1", "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48"];

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    /// Its standard error, without the time at the start of log lines.
    pub(crate) log: Vec<String>,
}

impl Ended {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            out: text(&output.stdout),
            log: text(&output.stderr).lines().map(|line| without_time(line).to_owned()).collect(),
        }
    }

    /// A command that went well.
    #[track_caller]
    pub(crate) fn success(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// The log without the lines that tell of success, whose numbers are times.
    pub(crate) fn complaints(&self) -> Vec<&str> {
        self.log.iter().map(String::as_str).filter(|line| !line.starts_with("INFO ")).collect()
    }
}

/// `2026-01-01T00:00:00.000000Z  WARN text` -> `WARN text`
fn without_time(line: &str) -> &str {
    match line.split_once(' ') {
        Some((time, rest)) if time.starts_with("20") && time.ends_with('Z') => rest.trim_start(),
        _ => line,
    }
}

/// Runs the binary where the kernel does not matter.
pub(crate) fn run<S: AsRef<OsStr>>(args: &[S]) -> Ended {
    Ended::of(&Command::new(zoneward()).args(args).output().expect("zoneward starts"))
}

/// `run --once` on a state.
pub(crate) fn once(namespace: &Namespace, state: &Path) -> Ended {
    let args = args(&["run", "--once"], state);
    Ended::of(&run_in(namespace, &args))
}

/// `dump-rules` of the kernel, which knows by itself how its rules were planned.
pub(crate) fn dump_kernel(namespace: &Namespace, form: &str) -> Ended {
    Ended::of(&run_in(namespace, &["dump-rules", "-o", form]))
}

/// `dump-rules` of a state.
pub(crate) fn dump_state(state: &Path, form: &str) -> Ended {
    run(&args(&["dump-rules", "-o", form], state))
}

fn args<'a>(command: &'a [&'a str], state: &'a Path) -> Vec<&'a OsStr> {
    let flags = command.iter().chain(&NODE).chain(&["--state"]).map(OsStr::new);
    flags.chain([state.as_os_str()]).collect()
}

/// A folder of files that goes when dropped.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(name, bytes)| folder.write(name, bytes));
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path().join(name), bytes).unwrap();
    }

    /// Text with this folder's path cut out, so that it can be compared.
    pub(crate) fn relative(&self, lines: &[&str]) -> Vec<String> {
        let path = format!("{}/", self.path().display());
        lines.iter().map(|line| line.replace(&path, "")).collect()
    }
}

/// The folder of one golden.
pub(crate) fn golden(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(case)
}
