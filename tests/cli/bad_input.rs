//! Input that cannot be used: one line each, the rest is programmed, and a kernel that works is never
//! emptied by it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use zw_lab::Namespace;
use zw_tests::binary::{Agent, text};

use crate::command::{Ended, Folder, dump_kernel, dump_state, once};

/// The object that has nothing wrong with it.
const GOOD: &str = "\
apiVersion: v1
kind: Service
metadata: {name: api, namespace: web}
spec:
  clusterIP: 10.96.0.10
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: api-1, namespace: web, labels: {kubernetes.io/service-name: api}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.1.5]}]
";
/// What the kernel says of it.
const PROGRAMMED: &str = "\
web/api:http  IPv4 tcp
  10.96.0.10:80  cluster IP  1 endpoint  0 connections
      0  10.244.1.5:8080
";
/// More than anything here may take, on a slow and busy machine and without optimisation.
const SOON: Duration = Duration::from_secs(200);

/// A file beside the good one.
struct Bad<'a> {
    file: &'a str,
    bytes: &'a [u8],
    /// Without the folder.
    complaints: &'a [&'a str],
    /// What of the file is programmed all the same, after the good object.
    programmed: &'a str,
    /// How it ends when this file is all there is.
    alone: i32,
}

impl Default for Bad<'_> {
    fn default() -> Self {
        Self { file: "bad.yaml", bytes: b"", complaints: &[], programmed: "", alone: 2 }
    }
}

impl Bad<'_> {
    /// The rest is programmed and complaints are exact, and alone the file does no harm either.
    #[track_caller]
    fn check(&self) {
        let namespace = Namespace::new().unwrap();
        let folder = Folder::new(&[("good.yaml", GOOD.as_bytes()), (self.file, self.bytes)]);
        let started = Instant::now();
        let ended = once(&namespace, folder.path()).success();
        assert_eq!(folder.relative(&ended.complaints()), self.counted());
        let held = dump_kernel(&namespace, "text").success();
        assert_eq!(held.out, format!("{PROGRAMMED}{}", self.programmed));

        let dumped = dump_state(folder.path(), "nft").success();
        let complaints: Vec<String> =
            self.complaints.iter().map(|line| format!("WARN {line}")).collect();
        assert_eq!(folder.relative(&dumped.complaints()), complaints);
        assert_eq!(dumped.out, dump_kernel(&namespace, "nft").success().out);

        fs::remove_file(folder.path().join("good.yaml")).unwrap();
        let ended = once(&namespace, folder.path());
        let mut log = self.counted();
        if self.alone == 2 {
            log.push(format!("error: nothing in {} could be read", folder.path().display()));
        }
        let (code, got) = (ended.code, folder.relative(&ended.complaints()));
        assert_eq!((code, got), (Some(self.alone), log));
        let of_file = || self.programmed.trim_start().to_owned();
        let left = if self.alone == 2 { held.out } else { of_file() };
        assert_eq!(dump_kernel(&namespace, "text").success().out, left);
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    }

    /// The complaints as the agent logs them.
    fn counted(&self) -> Vec<String> {
        let lines = self.complaints.iter().zip(1..);
        lines.map(|(line, count)| format!("WARN {line} left_out={count}")).collect()
    }
}

#[test]
fn a_manifest_that_is_not_yaml() {
    Bad {
        bytes: b"kind: [broken\n",
        complaints: &["bad.yaml, document 1: not YAML: unclosed bracket '[' at line 1, column 7"],
        ..Bad::default()
    }
    .check();
}

#[test]
fn a_manifest_that_is_not_json() {
    Bad {
        file: "bad.json",
        bytes: b"{\"kind\": oops}",
        complaints: &["bad.json, document 1: not JSON: expected value at line 1 column 10"],
        ..Bad::default()
    }
    .check();
}

#[test]
fn words_instead_of_an_object() {
    Bad {
        bytes: b"<html>404 Not Found</html>\n",
        complaints: &["bad.yaml, document 1: kind: missing: not a Kubernetes object"],
        ..Bad::default()
    }
    .check();
}

#[test]
fn one_broken_document_between_good_ones() {
    let service = |name: &str, last: u8| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: web}}\n\
             spec: {{clusterIP: 10.96.0.{last}, ports: [{{port: 80}}]}}\n"
        )
    };
    let text = format!("{}---\nkind: [\n---\n{}", service("one", 1), service("three", 3));
    Bad {
        bytes: text.as_bytes(),
        complaints: &["bad.yaml, document 2: not YAML: unclosed bracket '[' at line 2, column 7"],
        programmed: "
web/one  IPv4 tcp
  10.96.0.1:80  cluster IP  no endpoint: refused  0 connections

web/three  IPv4 tcp
  10.96.0.3:80  cluster IP  no endpoint: refused  0 connections
",
        alone: 0,
        ..Bad::default()
    }
    .check();
}

#[test]
fn a_kind_that_is_not_read() {
    let reads = "(Service, EndpointSlice, Node, ServiceCIDR, List)";
    Bad {
        bytes: b"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api, namespace: web}\n",
        complaints: &[&format!(
            "bad.yaml, document 1: kind: \"Deployment\" is not one that Zoneward reads {reads}"
        )],
        // Readable, and it holds no Service.
        alone: 0,
        ..Bad::default()
    }
    .check();
}

#[test]
fn a_version_that_is_not_read() {
    Bad {
        bytes: b"apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\n\
                 metadata: {name: api-2, namespace: web}\n",
        complaints: &["bad.yaml, document 1, EndpointSlice web/api-2: apiVersion: \
             \"discovery.k8s.io/v1beta1\" is not a version of EndpointSlice that Zoneward reads"],
        ..Bad::default()
    }
    .check();
}

/// A Service with a good port beside this one.
fn with_port(port: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: bad, namespace: web}}\n\
         spec: {{clusterIP: 10.96.0.99, ports: [{{name: http, port: {port}}}, {{name: ok, port: 81}}]}}\n"
    )
}

#[test]
fn a_port_that_is_none_costs_only_itself() {
    for port in ["0", "70000", "-1", "99999999999999"] {
        Bad {
            bytes: with_port(port).as_bytes(),
            complaints: &[&format!(
                "bad.yaml, document 1, Service web/bad: spec.ports[0].port: {port} is not a port \
                 (1 to 65535)"
            )],
            programmed: "
web/bad:ok  IPv4 tcp
  10.96.0.99:81  cluster IP  no endpoint: refused  0 connections
",
            alone: 0,
            ..Bad::default()
        }
        .check();
    }
}

#[test]
fn a_port_of_another_type_costs_its_service() {
    for (port, got) in [("\"http\"", "string \"http\""), ("1.5", "floating point `1.5`")] {
        Bad {
            bytes: with_port(port).as_bytes(),
            complaints: &[&format!(
                "bad.yaml, document 1, Service web/bad: spec.ports[0].port: invalid type: {got}, \
                 expected i64"
            )],
            ..Bad::default()
        }
        .check();
    }
}

#[test]
fn an_endpoint_with_an_address_that_is_none_costs_only_itself() {
    let text = "apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: bad, namespace: web}
  spec: {clusterIP: 10.96.0.99, ports: [{port: 80}]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: bad-1, namespace: web, labels: {kubernetes.io/service-name: bad}}
  addressType: IPv4
  ports: [{port: 8080}]
  endpoints:
  - addresses: [\"fd00:10:244::1\"]
  - addresses: [10.244.1.300]
  - addresses: [127.0.0.1]
  - addresses: []
  - addresses: [10.244.1.9]
";
    let at = "bad.yaml, document 1, EndpointSlice web/bad-1: items[1].endpoints";
    Bad {
        bytes: text.as_bytes(),
        complaints: &[
            &format!(
                "{at}[0].addresses[0]: fd00:10:244::1 is not IPv4, as the slice's addressType says"
            ),
            &format!("{at}[1].addresses[0]: \"10.244.1.300\" is not an IP address"),
            &format!(
                "{at}[2].addresses[0]: 127.0.0.1 is not an address of one endpoint that nodes can reach"
            ),
            &format!("{at}[3].addresses[0]: missing"),
        ],
        programmed: "
web/bad  IPv4 tcp
  10.96.0.99:80  cluster IP  1 endpoint  0 connections
      0  10.244.1.9:8080
",
        alone: 0,
        ..Bad::default()
    }
    .check();
}

#[test]
fn a_name_that_would_break_nfts_listing() {
    let text = with_port("80").replace("name: bad", "name: 'bad\" }; flush ruleset'");
    Bad {
        bytes: text.as_bytes(),
        complaints: &[
            "bad.yaml, document 1: metadata.name: \"bad\\\" }; flush ruleset\" is not a name \
             in Kubernetes",
        ],
        ..Bad::default()
    }
    .check();
}

#[test]
fn of_an_object_in_two_files_the_first_counts() {
    let namespace = Namespace::new().unwrap();
    let other = GOOD.replace("10.244.1.5", "10.244.1.6");
    let files = [("good.yaml", GOOD.as_bytes()), ("second.yaml", other.as_bytes())];
    let folder = Folder::new(&files);
    let ended = once(&namespace, folder.path()).success();
    let want = [
        "WARN second.yaml, Service web/api: also in good.yaml, which counts left_out=1",
        "WARN second.yaml, EndpointSlice web/api-1: also in good.yaml, which counts left_out=2",
    ];
    assert_eq!(folder.relative(&ended.complaints()), want);
    assert_eq!(dump_kernel(&namespace, "text").success().out, PROGRAMMED);
}

#[test]
fn bytes_that_are_not_text() {
    Bad {
        bytes: b"kind: \xff\xfe\n",
        complaints: &["bad.yaml: not text: byte 6 is not UTF-8"],
        ..Bad::default()
    }
    .check();
}

/// Bytes that look random and are the same every time.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).flatten().take(len).collect()
}

#[test]
fn ten_megabytes_of_nonsense_cost_little_time_and_few_lines() {
    const LEN: usize = 10 << 20;
    let noise = noise(LEN);
    let first_bad = std::str::from_utf8(&noise).unwrap_err().valid_up_to();
    let printable: Vec<u8> = noise.iter().map(|byte| b'a' + byte % 26).collect();
    let no_object = "bad.yaml, document 1: kind: missing: not a Kubernetes object";
    let deep_yaml =
        "bad.yaml, document 1: not YAML: recursion limit exceeded at line 1, column 259";
    let deep_json = "bad.yaml, document 1: not JSON: recursion limit exceeded at line 1 column 128";
    let zero = "bad.yaml, document 1: not YAML: unexpected character: `\\u{0}' at line 1, column 1";
    let not_text = format!("bad.yaml: not text: byte {first_bad} is not UTF-8");
    let rows: [(Vec<u8>, &str); 7] = [
        (noise, &not_text),
        (vec![0; LEN], zero),
        (printable, no_object),
        (b"lorem ipsum dolor\n".repeat(LEN / 18), no_object),
        (b"- x\n".repeat(LEN / 4), no_object),
        ([b"a: ".to_vec(), b"{".repeat(LEN)].concat(), deep_yaml),
        (b"[".repeat(LEN), deep_json),
    ];
    for (bytes, complaint) in &rows {
        Bad { bytes, complaints: &[complaint], ..Bad::default() }.check();
    }
}

#[test]
fn a_file_of_a_million_broken_documents_is_told_in_a_hundred_lines() {
    let documents = 1_000_000;
    let folder = Folder::new(&[("bad.yaml", &b"---\nx\n".repeat(documents))]);
    let started = Instant::now();
    let ended = dump_state(folder.path(), "text");
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    assert_eq!((ended.code, ended.log.len()), (Some(2), 102));
    let more = format!("WARN bad.yaml: {} more complaints", documents - 100);
    assert_eq!(folder.relative(&[&ended.log[100]]), [more]);
}

#[test]
fn deep_nesting_and_multiplying_aliases_are_refused_soon() {
    let nested: String = (0..3000).map(|depth| format!("{:depth$}a:\n", "")).collect();
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let inner = vec![format!("*a{}", level - 1); 9].join(",");
        bomb += &format!("a{level}: &a{level} [{inner}]\n");
    }
    let rows = [
        (nested, "bad.yaml, document 1: not YAML: budget breached: Depth "),
        (bomb, "bad.yaml, document 1: not YAML: budget breached: RecordedAnchorEvents "),
        ("a: &a [*a]\n".to_owned(), "bad.yaml, document 1: not YAML: "),
        ("{\"a\":".repeat(100_000), "bad.yaml, document 1: not JSON: recursion limit exceeded "),
    ];
    for (text, complaint) in rows {
        let folder = Folder::new(&[("good.yaml", GOOD.as_bytes()), ("bad.yaml", text.as_bytes())]);
        let namespace = Namespace::new().unwrap();
        let started = Instant::now();
        let ended = once(&namespace, folder.path()).success();
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
        let [line] = folder.relative(&ended.complaints()).try_into().unwrap();
        assert!(line.starts_with(&format!("WARN {complaint}")), "{line}");
        assert_eq!(dump_kernel(&namespace, "text").success().out, PROGRAMMED);
    }
}

#[test]
fn an_empty_folder_is_a_state_without_services() {
    let namespace = Namespace::new().unwrap();
    let folder = Folder::new(&[("good.yaml", GOOD.as_bytes())]);
    once(&namespace, folder.path()).success();
    fs::remove_file(folder.path().join("good.yaml")).unwrap();
    let ended = once(&namespace, folder.path()).success();
    assert_eq!(ended.complaints(), [""; 0]);
    assert_eq!(dump_kernel(&namespace, "text").success().out, "");
    let dumped = dump_state(folder.path(), "text").success();
    assert_eq!((dumped.out.as_str(), dumped.log), ("", Vec::new()));
}

/// `run --once` and `dump-rules` both say this of a path, and a kernel that works stays as it is.
#[track_caller]
fn check_unreadable(path: &Path, why: &str) {
    let namespace = Namespace::new().unwrap();
    let good = Folder::new(&[("good.yaml", GOOD.as_bytes())]);
    once(&namespace, good.path()).success();

    let shown = path.display();
    let complaint = format!("WARN {shown}: cannot be read: {why}; what it held stays in force");
    let error = format!("error: nothing in {shown} could be read");
    let want = |complaint: String| Ended {
        code: Some(2),
        out: String::new(),
        log: vec![complaint, error.clone()],
    };
    let started = Instant::now();
    assert_eq!(dump_state(path, "text"), want(complaint.clone()));
    assert_eq!(once(&namespace, path), want(format!("{complaint} left_out=1")));
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    assert_eq!(dump_kernel(&namespace, "text").success().out, PROGRAMMED);
}

#[test]
fn a_path_that_is_not_there() {
    let folder = Folder::new(&[]);
    check_unreadable(&folder.path().join("missing"), "No such file or directory (os error 2)");
}

#[test]
fn a_pipe_or_a_device_instead_of_a_file() {
    let folder = Folder::new(&[]);
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    check_unreadable(&pipe, "neither a file nor a folder");
    check_unreadable(Path::new("/dev/zero"), "neither a file nor a folder");
}

#[test]
fn a_link_that_goes_in_circles() {
    let folder = Folder::new(&[]);
    let circle = folder.path().join("circle.yaml");
    symlink(&circle, &circle).unwrap();
    check_unreadable(&circle, "Too many levels of symbolic links (os error 40)");
}

fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).output().expect("mkfifo runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
}

#[test]
fn what_is_no_file_among_the_manifests_is_passed_over() {
    let namespace = Namespace::new().unwrap();
    let folder = Folder::new(&[("good.yaml", GOOD.as_bytes()), ("notes.txt", b"kind: [")]);
    make_pipe(&folder.path().join("pipe.yaml"));
    fs::create_dir(folder.path().join("folder.yaml")).unwrap();
    symlink("nowhere", folder.path().join("dangling.yaml")).unwrap();
    folder.write(".hidden.yaml", b"kind: [");
    let ended = once(&namespace, folder.path()).success();
    assert_eq!(ended.complaints(), [""; 0]);
    assert_eq!(dump_kernel(&namespace, "text").success().out, PROGRAMMED);
}

/// The node's Services matter more than a setting. An init container has nothing else to do, so there it is
/// an error.
#[test]
fn a_setting_that_the_kernel_refuses_does_not_keep_an_agent_from_its_work() {
    let namespace = Namespace::new().unwrap();
    let folder = Folder::new(&[("state.yaml", GOOD.as_bytes())]);
    let path = folder.path().to_str().unwrap();
    // More seconds than the kernel can count.
    let args = [
        "--node-name",
        "node-1",
        "--state",
        path,
        "--conntrack-tcp-timeout-established",
        "2000000h",
    ];
    let mut agent = Agent::start(&namespace, &args);
    let refused = "nf_conntrack_tcp_timeout_established = 7200000000: Invalid argument";
    agent.wait_for(&["ERROR", "cannot make these settings of the kernel", refused]);
    agent.wait_for(&["synced"]);
    assert_eq!(dump_kernel(&namespace, "text").success().out, PROGRAMMED);
    let init = zw_tests::binary::run_in(&namespace, &[&["run", "--init-only"], &args[..]].concat());
    assert_eq!(init.status.code(), Some(1));
    assert!(text(&init.stderr).contains(refused), "{}", text(&init.stderr));
}

#[test]
fn a_running_agent_keeps_what_works_through_every_kind_of_breakage() {
    let namespace = Namespace::new().unwrap();
    let folder = Folder::new(&[("state.yaml", GOOD.as_bytes())]);
    let path = folder.path().to_str().unwrap();
    let mut agent = Agent::start(&namespace, &["--state", path, "--node-name", "node-1"]);
    agent.wait_for(&["synced"]);
    let rows: [(&[u8], &str); 4] = [
        (b"kind: [", "not YAML"),
        (b"\xff", "not UTF-8"),
        (b"oops", "not a Kubernetes object"),
        (
            b"apiVersion: v1\nkind: Service\nmetadata: {name: api, namespace: web}\nspec: 5\n",
            "spec: ",
        ),
    ];
    for (bytes, why) in rows {
        folder.write("state.yaml", bytes);
        agent.wait_for(&["WARN", "state.yaml", why]);
        assert_eq!(dump_kernel(&namespace, "text").success().out, PROGRAMMED, "{why}");
    }
    // Still alive, and still listening.
    folder.write("state.yaml", GOOD.replace("10.244.1.5", "10.244.1.6").as_bytes());
    agent.wait_for(&["synced", "services=1"]);
    let held = dump_kernel(&namespace, "text").success().out;
    assert_eq!(held, PROGRAMMED.replace("10.244.1.5", "10.244.1.6"));
    assert_eq!(agent.terminate().code(), Some(0));
}
