//! How a process gets a network of its own, with or without being root.

use std::fs;
use std::io;

use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities};

use crate::namespace::unshare;
use crate::{LabError, links};

const USER: &str = "make a private user namespace";
const NETWORK: &str = "make a private network namespace";

/// Settings that forbid user namespaces to ordinary users: file, the forbidding value, the remedy.
const GATES: &[(&str, &str, &str)] = &[
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "`sysctl kernel.unprivileged_userns_clone=1`",
    ),
    ("/proc/sys/user/max_user_namespaces", "0", "`sysctl user.max_user_namespaces=1000`"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`",
    ),
];

/// Moves the process into a private network namespace, and into a private user namespace first if
/// it lacks the capabilities a lab needs; there the caller is root. Nothing it does to the network
/// from then on touches the machine's.
///
/// 1. Refuse if the process has more than one thread: the others would stay behind.
/// 2. Without `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`: enter a user namespace, map the caller to root.
/// 3. Enter a network namespace and set its loopback interface up.
///
/// Not undone on failure: a process that gets an error back should end.
pub fn enter_private() -> Result<(), LabError> {
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        return Err(LabError::Threads { threads });
    }
    if !privileged() {
        become_root_inside().map_err(|source| forbidden(USER, source))?;
    }
    unshare(UnshareFlags::NEWNET).map_err(|source| forbidden(NETWORK, source))?;
    links::loopback_up()
}

fn privileged() -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

fn become_root_inside() -> io::Result<()> {
    // Read before: inside, an unmapped caller is nobody.
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER)?;
    // user_namespaces(7): an unprivileged process may map its group only once it gave up
    // setgroups. Absent before Linux 3.19, where the rule is absent too.
    match fs::write("/proc/self/setgroups", "deny") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

fn forbidden(action: &'static str, source: io::Error) -> LabError {
    let gates = GATES.iter().filter(|(path, closed, _)| {
        fs::read_to_string(path).is_ok_and(|value| value.trim() == *closed)
    });
    LabError::Forbidden { action, hint: hint(gates.map(|(_, _, remedy)| *remedy)), source }
}

fn hint<'a>(remedies: impl Iterator<Item = &'a str>) -> String {
    let remedies: Vec<_> = remedies.collect();
    if remedies.is_empty() {
        "run as root, or where user namespaces are allowed (a container needs --privileged, or \
         a seccomp profile that lets unshare through)"
            .to_owned()
    } else {
        format!(
            "this system keeps user namespaces from ordinary users; run as root, or allow them \
             with {}",
            remedies.join(" and ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_every_closed_gate_and_always_root() {
        let both = hint(["`a=1`", "`b=2`"].into_iter());
        assert!(both.contains("run as root"), "{both}");
        assert!(both.ends_with("allow them with `a=1` and `b=2`"), "{both}");
        assert!(hint(std::iter::empty()).starts_with("run as root"));
    }

    #[test]
    fn a_process_with_several_threads_is_refused() {
        // The test harness runs every test on a thread of its own.
        let outcome = enter_private();
        assert!(
            matches!(outcome, Err(LabError::Threads { threads }) if threads > 1),
            "{outcome:?}"
        );
    }
}
