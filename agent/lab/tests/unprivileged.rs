//! `enter_private` as a user without any privilege: what `zoneward demo` does on a laptop.
//!
//! Runs as root, copies itself where anybody may execute it, and starts that copy as nobody. No
//! harness: its threads would be in the way of `enter_private`.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use zw_lab::{Answer, Lab, NODE, Protocol, enter_private};

const INSIDE: &str = "--as-nobody";
const NOBODY: u32 = 65534;
const PATIENCE: Duration = Duration::from_secs(5);

fn main() {
    if env::args().any(|argument| argument == INSIDE) {
        inside();
    } else {
        outside();
    }
}

fn outside() {
    let directory = env::temp_dir().join(format!("zw-lab-unprivileged-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = directory.join("test");
    fs::copy(env::current_exe().unwrap(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let status = Command::new(&copy).arg(INSIDE).uid(NOBODY).gid(NOBODY).current_dir("/").status();
    fs::remove_dir_all(&directory).unwrap();
    let status = status.unwrap();
    assert!(status.success(), "the test as nobody: {status}");
}

fn inside() {
    assert!(
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").is_err(),
        "starts with no power over the network"
    );
    let outer = fs::read_link("/proc/self/ns/net").unwrap();
    enter_private().unwrap();
    assert_ne!(outer, fs::read_link("/proc/self/ns/net").unwrap());

    let v4 = "192.0.2.1".parse().unwrap();
    let v6 = "2001:db8::1".parse().unwrap();
    let mut lab = Lab::new(&[v4, v6]).unwrap();
    let (a4, a6) = ("10.1.0.1".parse().unwrap(), "fd00:1::1".parse().unwrap());
    lab.add_host("a", &[a4, a6]).unwrap();
    lab.serve("a", &[80]).unwrap();
    for (to, seen) in [(a4, v4), (a6, v6)] {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            assert_eq!(
                lab.probe(NODE, (to, 80).into(), protocol, PATIENCE),
                Answer::Answered { by: "a".into(), port: 80, seen },
                "{protocol:?} to {to}"
            );
        }
    }
}
