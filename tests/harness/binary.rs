//! The `zoneward` binary as its users run it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use zw_lab::Namespace;

/// Long enough for anything a test waits for.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The binary built with these tests: cargo puts it beside programs, and one folder above tests.
pub fn zoneward() -> PathBuf {
    let own = std::env::current_exe().expect("a test has a path");
    let beside = own.parent().expect("target/<profile> or target/<profile>/deps");
    let folder = if beside.ends_with("deps") { beside.parent().unwrap_or(beside) } else { beside };
    let binary = folder.join("zoneward");
    assert!(binary.exists(), "{} is missing: build it first (cargo build)", binary.display());
    binary
}

/// Runs the binary to its end in a namespace.
pub fn run_in<S: AsRef<OsStr> + Send + Sync>(namespace: &Namespace, args: &[S]) -> Output {
    namespace.run(|| Command::new(zoneward()).args(args).output().expect("zoneward starts"))
}

/// Runs another program in a namespace, with this text as its input.
pub fn tool_in(namespace: &Namespace, program: &str, args: &[&str], input: &str) -> Output {
    namespace.run(|| {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let mut stdin = child.stdin.take().expect("piped");
        let input = input.to_owned();
        let feeder = thread::spawn(move || std::io::Write::write_all(&mut stdin, input.as_bytes()));
        let output = child.wait_with_output().expect("it ends");
        // A program that does not read its input closes it.
        let _ = feeder.join().expect("the feeder does not panic");
        output
    })
}

/// What a program printed, as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A number in a log line, such as `elements=5`.
pub fn field(line: &str, name: &str) -> f64 {
    let value =
        line.split(&format!("{name}=")).nth(1).unwrap_or_else(|| panic!("no {name} in {line}"));
    value.split_whitespace().next().unwrap().parse().unwrap()
}

/// An agent that keeps running; killed when dropped.
pub struct Agent {
    child: Child,
    /// It leads a group of processes that must not outlive it.
    leads: bool,
    lines: Receiver<String>,
    /// Everything it logged so far.
    pub log: Vec<String>,
}

impl Agent {
    /// Starts `zoneward run` with these arguments in a namespace.
    pub fn start(namespace: &Namespace, args: &[&str]) -> Self {
        Self::start_command(namespace, "run", args)
    }

    /// Starts another command that keeps running.
    pub fn start_command(namespace: &Namespace, command: &str, args: &[&str]) -> Self {
        Self::spawn(namespace, Command::new(zoneward()), command, args)
    }

    /// The same with some system calls of it failing, or being its last, in strace's words such as
    /// `recvfrom:error=ENOBUFS:when=7`.
    pub fn start_tampered(namespace: &Namespace, args: &[&str], tamper: &str) -> Self {
        let calls = tamper.split(':').next().expect("which system call");
        let mut strace = Command::new("strace");
        // Not as its parent: then the agent could not be killed without strace, or strace without it.
        strace.args(["-D", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null"]);
        strace.args(["-e", &format!("trace={calls}"), "-e", &format!("inject={tamper}"), "--"]);
        strace.arg(zoneward());
        // Where the agent is killed before strace holds it, strace would wait for it for ever.
        strace.process_group(0);
        let mut agent = Self::spawn(namespace, strace, "run", args);
        agent.leads = true;
        agent
    }

    fn spawn(namespace: &Namespace, mut program: Command, command: &str, args: &[&str]) -> Self {
        let mut child = namespace.run(|| {
            program
                .arg(command)
                .args(args)
                // Tests wait for what a log does not tell otherwise: every single sync.
                .env("ZONEWARD_LOG", "info,zoneward::sync=debug")
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("zoneward starts")
        });
        let log = BufReader::new(child.stderr.take().expect("piped"));
        let (tell, lines) = channel();
        thread::spawn(move || {
            log.lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        Self { child, leads: false, lines, log: Vec::new() }
    }

    /// Waits for a log line that contains all of these words, and returns it.
    pub fn wait_for(&mut self, words: &[&str]) -> String {
        let end = Instant::now() + DEADLINE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no log line with {words:?} in\n{}", self.log.join("\n"));
            };
            self.log.push(line.clone());
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
        }
    }

    /// Takes what it has logged by now into `log`.
    pub fn read_on(&mut self) {
        self.log.extend(self.lines.try_iter());
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Sends SIGTERM and waits for its end.
    pub fn terminate(mut self) -> ExitStatus {
        let killed = Command::new("kill").arg(self.id().to_string()).status().expect("kill runs");
        assert!(killed.success());
        self.child.wait().expect("it ends")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Already ended after `terminate`.
        let _ = self.child.kill();
        if self.leads
            && let Some(group) = i32::try_from(self.id()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Waits until something holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
