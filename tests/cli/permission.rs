//! Without root and without capabilities: what is missing, and how to get it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use zw_lab::Namespace;
use zw_tests::binary::zoneward;

use crate::command::{Ended, Folder, NODE, golden};

/// On Debian and elsewhere: nobody.
const NOBODY: u32 = 65534;

/// A folder that everyone may enter, with the binary in it: a checkout may lie where others may not.
struct Public {
    folder: Folder,
    binary: PathBuf,
}

impl Public {
    fn new() -> Self {
        let folder = Folder::new(&[]);
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let binary = folder.path().join("zoneward");
        fs::copy(zoneward(), &binary).unwrap();
        fs::set_permissions(&binary, Permissions::from_mode(0o755)).unwrap();
        Self { folder, binary }
    }

    /// A state folder of one golden in it.
    fn state(&self, case: &str) -> PathBuf {
        let state = self.folder.path().join("state");
        fs::create_dir(&state).unwrap();
        fs::copy(golden(case).join("state.yaml"), state.join("state.yaml")).unwrap();
        for (path, mode) in [(&state, 0o755), (&state.join("state.yaml"), 0o644)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        state
    }

    /// Runs the binary as nobody: another user than root starts without capabilities.
    fn as_nobody(&self, namespace: &Namespace, args: &[&str]) -> Ended {
        let output = namespace.run(|| {
            let mut command = Command::new(&self.binary);
            command.args(args).current_dir("/").uid(NOBODY).gid(NOBODY).output().unwrap()
        });
        Ended::of(&output)
    }
}

/// What every command that needs the kernel says, up to what was refused.
fn missing_capability(refused: &str) -> Ended {
    let error = format!(
        "error: missing the capability NET_ADMIN in this network namespace: run as root, or add \
         NET_ADMIN to the container's capabilities (`zoneward check` tells more): the kernel refused \
         access to {refused}: Operation not permitted (os error 1)"
    );
    Ended { code: Some(1), out: String::new(), log: vec![error] }
}

#[test]
fn without_permission_the_agent_names_the_capability() {
    let (public, namespace) = (Public::new(), Namespace::new().unwrap());
    let state = public.state("dual-stack");
    let args = ["run", "--once", "--state", state.to_str().unwrap()];
    let ended = public.as_nobody(&namespace, &[&args, &NODE[..]].concat());
    assert_eq!(ended, missing_capability("nf_tables"));
    // It does not wait for better times either.
    let args = ["run", "--state", state.to_str().unwrap()];
    let ended = public.as_nobody(&namespace, &[&args, &NODE[..]].concat());
    assert_eq!(ended, missing_capability("nf_tables"));
}

#[test]
fn without_permission_the_kernel_is_neither_read_nor_cleaned() {
    let (public, namespace) = (Public::new(), Namespace::new().unwrap());
    let dumped = public.as_nobody(&namespace, &["dump-rules"]);
    assert_eq!(dumped, missing_capability("nf_tables"));
    let cleaned = public.as_nobody(&namespace, &["cleanup"]);
    assert_eq!(cleaned, missing_capability("nf_tables"));
}

#[test]
fn check_says_what_is_there_and_what_is_missing() {
    let (public, namespace) = (Public::new(), Namespace::new().unwrap());
    let forwarding = "\
IPv4 forwarding  warning: off, so pods' packets are not routed; write 1 to /proc/sys/net/ipv4/ip_forward
IPv6 forwarding  warning: off, so pods' packets are not routed; write 1 to /proc/sys/net/ipv6/conf/all/forwarding
";
    switch_forwarding(&namespace, "0");
    let why = "not permitted; run as root, or give the container the capability NET_ADMIN";
    let missing = Ended {
        code: Some(1),
        out: format!(
            "nf_tables        MISSING: {why}\nIPv4 ruleset     MISSING: {why}\n\
             IPv6 ruleset     MISSING: {why}\n{forwarding}"
        ),
        log: vec!["error: 3 of 5 capabilities are missing".into()],
    };
    assert_eq!(public.as_nobody(&namespace, &["check"]), missing);

    let rules = "nf_tables        ok\nIPv4 ruleset     ok\nIPv6 ruleset     ok\n";
    let check = || Ended::of(&zw_tests::binary::run_in(&namespace, &["check"]));
    let there =
        |rest: &str| Ended { code: Some(0), out: format!("{rules}{rest}"), log: Vec::new() };
    assert_eq!(check(), there(forwarding));
    switch_forwarding(&namespace, "1");
    assert_eq!(check(), there("IPv4 forwarding  ok\nIPv6 forwarding  ok\n"));
}

fn switch_forwarding(namespace: &Namespace, value: &str) {
    namespace.run(|| {
        for path in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            fs::write(Path::new("/proc/sys/net").join(path), value).unwrap();
        }
    });
}

#[test]
fn manifests_are_planned_without_any_permission() {
    let (public, namespace) = (Public::new(), Namespace::new().unwrap());
    let state = public.state("dual-stack");
    let args = ["dump-rules", "-o", "nft", "--state", state.to_str().unwrap()];
    let dumped = public.as_nobody(&namespace, &[&args, &NODE[..]].concat()).success();
    assert_eq!(dumped.out, fs::read_to_string(golden("dual-stack").join("want.nft")).unwrap());
}

#[test]
fn a_folder_or_a_file_without_permission_is_told() {
    let (public, namespace) = (Public::new(), Namespace::new().unwrap());
    let state = public.state("dual-stack");
    let args = ["dump-rules", "--state", state.to_str().unwrap()];
    let dump = || public.as_nobody(&namespace, &[&args, &NODE[..]].concat());
    let denied = "cannot be read: Permission denied (os error 13)";

    // One file of two.
    let secret = state.join("secret.yaml");
    fs::write(&secret, "kind: [").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let dumped = dump().success();
    assert_eq!(dumped.log, [format!("WARN {}: {denied}", secret.display())]);
    assert_eq!(dumped.out, fs::read_to_string(golden("dual-stack").join("want.txt")).unwrap());

    // The folder, which may not be listed, or listed but not entered.
    let shown = state.display();
    let file = |name| format!("WARN {shown}/{name}: {denied}");
    for (mode, lines) in [
        (0o700, vec![format!("WARN {shown}: {denied}; what it held stays in force")]),
        (0o744, vec![file("secret.yaml"), file("state.yaml")]),
    ] {
        fs::set_permissions(&state, Permissions::from_mode(mode)).unwrap();
        let nothing = vec![format!("error: nothing in {shown} could be read")];
        let want = Ended { code: Some(2), out: String::new(), log: [lines, nothing].concat() };
        assert_eq!(dump(), want, "{mode:o}");
    }
}
