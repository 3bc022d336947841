//! A network namespace per test, and nft as a second opinion inside it.

use std::io::Write;
use std::process::{Command, Stdio};

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Runs `body` on a thread of its own in a fresh network namespace. Children it starts are in there
/// too. Without the permission the test fails: a skipped kernel test proves nothing.
pub(crate) fn in_netns(body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        // SAFETY: only this thread's network namespace changes; no descriptor table is unshared.
        #[allow(unsafe_code)]
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("a network namespace needs root");
        body();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a command that must succeed, with `input` on its stdin, and returns its stdout.
pub(crate) fn run(program: &str, args: &[&str], input: &str) -> String {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("writes");
    let output = child.wait_with_output().expect("ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {}\n{stderr}\n{input}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// `nft list ruleset`
pub(crate) fn listing() -> String {
    run("nft", &["list", "ruleset"], "")
}
