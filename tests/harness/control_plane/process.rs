//! Processes and files that end with the test, however it ends.
//!
//! A test that is dropped takes everything down itself. One that is killed, or a shared control plane
//! that nobody drops, cannot: then the kernel kills the processes, because the thread that started them
//! ended, and a small process of its own, which waits for nothing else, removes the folder.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};

use zw_lab::Namespace;

/// Lines of each log that a failure shows.
const TAIL: usize = 40;

type Job = Box<dyn FnOnce() + Send>;

/// A thread in the namespace that starts processes. The kernel ends them when the thread that started
/// them ends, so it must be one that lives as long as they do, which a test's own thread does not.
pub(super) struct Keeper(Sender<Job>);

impl Keeper {
    pub(super) fn new(namespace: &Namespace) -> Self {
        let (jobs, queue) = channel::<Job>();
        namespace.spawn(move || queue.into_iter().for_each(|job| job()));
        Self(jobs)
    }

    /// Starts a program that writes to this log.
    pub(super) fn start(&self, program: &Path, args: &[String], log: &Path) -> Process {
        let log = File::options().create(true).append(true).open(log).expect("a writable folder");
        let errors = log.try_clone().expect("a file can be shared");
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(args)
            // No proxy and no credentials of whoever runs the tests.
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors);
        let (tell, started) = channel();
        let job: Job = Box::new(move || tell.send(command.spawn()).expect("someone waits"));
        self.0.send(job).expect("the keeper runs");
        Process(started.recv().expect("an answer").expect("setpriv (util-linux) is installed"))
    }
}

/// A process that is killed when dropped.
pub(super) struct Process(Child);

impl Process {
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    /// How it ended, if it did.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("a child can be waited for")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A private folder that is removed when dropped, or when this process ends.
pub(super) struct Folder {
    path: PathBuf,
    janitor: Child,
}

impl Folder {
    pub(super) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("zoneward-control-plane-").tempdir();
        let path = folder.expect("a temporary folder").keep();
        // Its input ends when we do. The processes that write into the folder may die a moment later.
        let script = "trap '' HUP INT TERM; cat; \
                      for try in 1 2 3 4 5 6 7 8 9; do rm -rf -- \"$0\" && exit; sleep 0.2; done";
        let janitor = Command::new("sh")
            .args(["-c", script])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A key press that ends the tests must not reach it.
            .process_group(0)
            .spawn()
            .expect("sh is installed");
        Self { path, janitor }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The log of a program.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.log"))
    }

    /// The last lines of every log.
    pub(super) fn logs_tail(&self) -> String {
        let mut logs: Vec<PathBuf> = fs::read_dir(&self.path)
            .expect("the folder is there")
            .map(|entry| entry.expect("the folder is readable").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
            .collect();
        logs.sort();
        let tail = |path: &PathBuf| {
            let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(TAIL)..].join("\n");
            format!("--- {}\n{last}\n", path.display())
        };
        logs.iter().map(tail).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}
