//! The machine: qemu in software emulation, Debian's kernel, an initramfs with the calling test binary in it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::archive::Archive;
use super::{ENDED, modules};
use crate::binary::zoneward;

/// All of it, from the start of qemu; the first process inside gives up a little earlier.
const DEADLINE: Duration = Duration::from_secs(560);
/// How much of the kernel's console a failure shows.
const TAIL: usize = 40;

/// Where the test binary lies inside; `zoneward` lies where it is looked for, beside its folder.
const TESTS: &str = "/zoneward/deps/tests";
/// Second opinions, as tests on this machine's own kernel have them too.
const PROGRAMS: &[&str] = &["nft", "ip", "kill"];

/// Boots, runs this very test binary inside with these arguments and returns what it printed.
///
/// # Errors
/// Says why it did not come to its end, with the end of the kernel's console.
pub(super) fn run(arguments: &[String]) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("make a folder: {error}"))?;
    let kernel = kernel();
    let (initramfs, console) = (folder.path().join("initramfs"), folder.path().join("console"));
    pack(&initramfs, &kernel.join("modules"), arguments)
        .map_err(|error| format!("make the initramfs: {error}"))?;
    let machine = Machine::start(&kernel.join("vmlinuz"), &initramfs, &console)
        .map_err(|error| format!("start qemu-system-x86_64 (package qemu-system-x86): {error}"))?;
    machine.printed().map_err(|why| {
        let console = fs::read(&console).unwrap_or_default();
        let console = String::from_utf8_lossy(&console).into_owned();
        let lines: Vec<&str> = console.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
        format!("{why}\nThe end of its console:\n{tail}")
    })
}

/// The folder with the kernel; fetched by `tests/vm/kernel` if it is missing.
fn kernel() -> PathBuf {
    let fetch = concat!(env!("CARGO_MANIFEST_DIR"), "/vm/kernel");
    let output = Command::new(fetch).stderr(Stdio::inherit()).output().expect("bash is installed");
    assert!(output.status.success(), "{fetch} failed, its reason is above");
    PathBuf::from(String::from_utf8(output.stdout).expect("a path in UTF-8").trim_end())
}

/// The files inside. Programs are the ones built for this machine, with the libraries they load: no
/// second build, and what is tested is what is there.
fn pack(to: &Path, module_folder: &Path, arguments: &[String]) -> io::Result<()> {
    let mut archive = Archive::new(BufWriter::new(File::create(to)?));
    for folder in ["/proc", "/sys", "/dev", "/tmp", "/run"] {
        archive.folder(folder)?;
    }
    // The first process has this for its standard streams, before it has mounted anything.
    archive.device("/dev/console", (5, 1))?;
    for (number, (name, content)) in modules::in_load_order(module_folder).iter().enumerate() {
        archive.file(&format!("/modules/{number:03}-{name}.ko"), content)?;
    }
    archive.file("/zoneward/arguments", arguments.join("\n").as_bytes())?;

    let binary = zoneward();
    let mut programs = vec![
        (binary.with_file_name("vm-init"), "/init".to_owned()),
        (std::env::current_exe()?, TESTS.to_owned()),
        (binary, "/zoneward/zoneward".to_owned()),
    ];
    programs.extend(PROGRAMS.iter().map(|name| (found(name), format!("/usr/bin/{name}"))));
    let mut libraries = BTreeSet::new();
    for (program, inside) in programs {
        archive.file(&inside, &fs::read(&program)?)?;
        libraries.extend(libraries_of(&program)?);
    }
    for library in libraries {
        archive.file(&library, &fs::read(&library)?)?;
    }
    archive.finish()
}

fn found(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(program));
    places.find(|file| file.is_file()).unwrap_or_else(|| panic!("{program} is not installed"))
}

/// What the dynamic loader would load, itself included: the absolute paths that `ldd` prints.
fn libraries_of(program: &Path) -> io::Result<Vec<String>> {
    let output = Command::new("ldd").arg(program).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(words.map(|word| word.trim_end_matches(':').to_owned()).collect())
}

/// A running machine; killed when dropped.
struct Machine {
    qemu: Child,
    started: Instant,
}

impl Machine {
    fn start(kernel: &Path, initramfs: &Path, console: &Path) -> io::Result<Self> {
        let qemu = Command::new("qemu-system-x86_64")
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2G"])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(initramfs)
            // A panic ends qemu. The processor's own random numbers are good enough for tests.
            .args(["-append", "console=ttyS0 quiet panic=-1 random.trust_cpu=on mitigations=off"])
            // The kernel speaks on the first line, the tests on the second.
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .args(["-serial", "stdio"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self { qemu, started: Instant::now() })
    }

    /// What the tests printed, once the last line has come.
    fn printed(mut self) -> Result<Vec<String>, String> {
        let output = BufReader::new(self.qemu.stdout.take().expect("piped"));
        let (tell, lines) = channel();
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        let mut printed = Vec::new();
        loop {
            let left = DEADLINE.saturating_sub(self.started.elapsed());
            let end = match lines.recv_timeout(left) {
                Ok(line) => {
                    println!("vm {:5.1} s | {line}", self.started.elapsed().as_secs_f32());
                    let last = line.starts_with(ENDED);
                    printed.push(line);
                    if last {
                        return Ok(printed);
                    }
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => format!("did not end within {DEADLINE:?}"),
                Err(RecvTimeoutError::Disconnected) => "ended before its tests did".to_owned(),
            };
            let printed = printed[printed.len().saturating_sub(TAIL)..].join("\n");
            return Err(format!("The machine {end}. What it printed last:\n{printed}"));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
