//! The first process of the virtual machine: mounts what programs expect, loads the modules, runs the test
//! binary and switches the machine off. The kernel's console is for its own complaints and for the tests'
//! standard error; what the tests print goes to the second serial line, where nobody else writes.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::system::{RebootCommand, finit_module, reboot, uname};
use zw_tests::vm::{ENDED, INSIDE};

/// Ends before the outer side loses its patience, so that what was printed is seen.
const DEADLINE: Duration = Duration::from_secs(540);

fn main() {
    let outcome = run();
    if let Err(error) = &outcome {
        // On the console, whose end the outer side shows.
        eprintln!("vm-init: {error}");
    }
    // Returning would be a kernel panic. Only fails without the right to do it.
    let _ = reboot(RebootCommand::PowerOff);
}

fn run() -> Result<(), Box<dyn Error>> {
    for (kind, folder) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
        ("tmpfs", "/run"),
    ] {
        mount(kind, folder, kind, MountFlags::empty(), None)
            .map_err(|error| format!("mount {folder}: {error}"))?;
    }
    // A lab has two sockets for each probe under way.
    let files = Some(65_536);
    setrlimit(Resource::Nofile, Rlimit { current: files, maximum: files })?;
    load_modules()?;

    let mut output = OpenOptions::new().write(true).open("/dev/ttyS1")?;
    let uptime = fs::read_to_string("/proc/uptime")?;
    let uptime = uptime.split_whitespace().next().unwrap_or("?");
    writeln!(output, "vm: Linux {}, up for {uptime} s", uname().release().to_string_lossy())?;
    let how = run_tests(&output)?;
    writeln!(output, "{ENDED}: {how}")?;
    // What is still in the driver's buffer would be lost.
    rustix::termios::tcdrain(&output)?;
    Ok(())
}

/// Their names begin with their place in the order.
fn load_modules() -> Result<(), Box<dyn Error>> {
    let mut files: Vec<_> =
        fs::read_dir("/modules")?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.sort();
    for file in files {
        finit_module(File::open(&file)?, c"", 0)
            .map_err(|error| format!("load {}: {error}", file.display()))?;
    }
    Ok(())
}

fn run_tests(output: &File) -> Result<String, Box<dyn Error>> {
    let start = Instant::now();
    let arguments = fs::read_to_string("/zoneward/arguments")?;
    let mut tests = Command::new("/zoneward/deps/tests")
        .args(arguments.lines())
        .env(INSIDE, "1")
        .env("PATH", "/usr/bin")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .spawn()?;
    loop {
        if let Some(status) = tests.try_wait()? {
            return Ok(format!("{status}"));
        }
        if start.elapsed() > DEADLINE {
            tests.kill()?;
            return Ok(format!("killed after {DEADLINE:?}"));
        }
        thread::sleep(Duration::from_millis(50));
    }
}
