//! A running agent, asked over its socket: `--from agent`, `explain`, `diff`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use zw_lab::Namespace;
use zw_tests::binary::{Agent, run_in, text, tool_in, zoneward};
use zw_tests::cluster::Shape;

use crate::command::{Ended, Folder, NODE, golden, once, run};

/// A node with an agent that follows a copy of a golden.
struct Node {
    namespace: Namespace,
    folder: Folder,
    agent: Agent,
}

impl Node {
    fn new(state: PathBuf) -> Self {
        let folder = Folder::new(&[("state.yaml", &std::fs::read(state).unwrap())]);
        let namespace = Namespace::new().unwrap();
        let socket = folder.path().join("sock/agent.sock");
        let args =
            ["--state", folder.path().to_str().unwrap(), "--socket", socket.to_str().unwrap()];
        let mut agent = Agent::start(&namespace, &[&args[..], &NODE].concat());
        agent.wait_for(&["synced"]);
        Self { namespace, folder, agent }
    }

    fn socket(&self) -> String {
        self.folder.path().join("sock/agent.sock").to_str().unwrap().to_owned()
    }

    fn ask(&self, command: &[&str]) -> Ended {
        let socket = self.socket();
        Ended::of(&run_in(&self.namespace, &[command, &["--socket", &socket]].concat()))
    }
}

fn services(ended: Ended) -> Vec<Value> {
    let mut dumped: Value = serde_json::from_str(&ended.success().out).unwrap();
    let services = dumped["services"].as_array_mut().unwrap();
    for service in services.iter_mut() {
        service.as_object_mut().unwrap().remove("connections");
    }
    services.clone()
}

#[test]
fn the_agent_tells_of_every_state_what_its_manifests_say() {
    let cases =
        ["contested", "dual-stack", "hints", "no-endpoints", "ports", "terminating", "zoned"];
    let texts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("texts");
    for case in cases.map(golden).into_iter().chain([texts]) {
        let state = case.join("state.yaml");
        let node = Node::new(state.clone());
        let told = services(node.ask(&["dump-rules", "--from", "agent", "-o", "json"]));
        let command = ["dump-rules", "-o", "json", "--state", state.to_str().unwrap()];
        assert_eq!(told, services(run(&[&command, &NODE[..]].concat())), "{}", case.display());
        let same = node.ask(&["diff"]);
        assert_eq!((same.code, same.out.as_str()), (Some(0), "the kernel holds what it should\n"));
    }
}

#[test]
fn the_agent_tells_how_it_is_and_what_it_could_not_use() {
    let mut node = Node::new(golden("dual-stack").join("state.yaml"));
    let told = node.ask(&["dump-rules", "--from", "agent"]).success();
    let first = told.out.lines().next().unwrap();
    assert!(first.starts_with("agent 0.1.0 on node-1: last sync "), "{first}");
    assert!(first.ends_with("; 1 syncs, 0 failed, 0 drift repairs"), "{first}");
    node.folder.write("bad.yaml", b"apiVersion: v1\nkind: Service\nmetadata: {name: 7}\n");
    node.agent.wait_for(&["WARN"]);
    let told = node.ask(&["dump-rules", "--from", "agent"]).success();
    assert!(told.out.contains("not used: ") && told.out.contains("bad.yaml"), "{}", told.out);
    let one = node.ask(&["dump-rules", "web/api", "--from", "agent"]).success();
    assert!(one.out.starts_with("web/api:http  IPv4 tcp\n"), "{}", one.out);
}

/// A raw request, and the first line of what comes back.
fn request(socket: &str, line: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    write!(stream, "{line}\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn ready_is_said_of_an_agent_after_its_first_sync_and_of_no_other() {
    let node = Node::new(golden("contested").join("state.yaml"));
    let ended = node.ask(&["ready"]);
    assert_eq!(ended, Ended { code: Some(0), out: "ready\n".into(), log: Vec::new() });

    // One that waits for its manifests, beside it.
    let folder = Folder::new(&[("state.yaml", b"kind: [")]);
    let socket = folder.path().join("agent.sock");
    let socket = socket.to_str().unwrap();
    let args = ["--state", folder.path().to_str().unwrap(), "--socket", socket];
    let mut agent = Agent::start(&node.namespace, &[&args[..], &NODE].concat());
    agent.wait_for(&["answering questions of root"]);
    let asked = Ended::of(&run_in(&node.namespace, &["ready", "--socket", socket]));
    let waits = "manifests: nothing could be read yet\n".to_owned();
    assert_eq!(asked, Ended { code: Some(1), out: waits, log: Vec::new() });
    agent.kill();
    let asked = Ended::of(&run_in(&node.namespace, &["ready", "--socket", socket]));
    assert_eq!((asked.code, asked.out.as_str()), (Some(1), ""));
    assert!(asked.log[0].starts_with("error: cannot ask the agent on"), "{:?}", asked.log);
}

#[test]
fn the_socket_is_roots_alone_and_changes_nothing() {
    let node = Node::new(golden("dual-stack").join("state.yaml"));
    let socket = node.socket();
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let path = std::path::Path::new(&socket);
    assert_eq!((mode(path), mode(path.parent().unwrap())), (0o600, 0o700));
    // Also where the file lets everybody in.
    let open = |mode| {
        let all = std::fs::Permissions::from_mode(mode);
        for place in path.ancestors().take(3) {
            std::fs::set_permissions(place, all.clone()).unwrap();
        }
    };
    open(0o777);
    let nobody = node.namespace.run(|| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(zoneward());
        command.args(["explain", "web/api", "--socket", &socket]).output().unwrap()
    });
    assert_eq!(nobody.status.code(), Some(1), "{nobody:?}");
    assert!(text(&nobody.stderr).contains("it answers root"), "{}", text(&nobody.stderr));
    for (line, want) in [
        ("GET /v1/status HTTP/1.1", "HTTP/1.1 200 OK"),
        ("POST /v1/status HTTP/1.1", "HTTP/1.1 405 Method Not Allowed"),
        ("DELETE /v1/services HTTP/1.1", "HTTP/1.1 405 Method Not Allowed"),
        ("GET /v2 HTTP/1.1", "HTTP/1.1 404 Not Found"),
        ("GET /v1/services?only=x HTTP/1.1", "HTTP/1.1 400 Bad Request"),
    ] {
        assert_eq!(request(&socket, line), want, "{line}");
    }
}

#[test]
fn without_an_agent_the_kernel_is_shown_and_the_reason_told() {
    let namespace = Namespace::new().unwrap();
    let ask = |command: &[&str]| {
        Ended::of(&run_in(&namespace, &[command, &["--socket", "/nowhere/agent.sock"]].concat()))
    };
    let error = "error: cannot ask the agent on /nowhere/agent.sock (it answers root on the node it runs \
                 on; `--from kernel` and `--state` need none): No such file or directory (os error 2)";
    for command in [&["explain", "web/api"][..], &["diff"], &["dump-rules", "--from", "agent"]] {
        let ended = ask(command);
        assert_eq!((ended.code, ended.log), (Some(1), vec![error.to_owned()]), "{command:?}");
    }
    once(&namespace, &golden("dual-stack")).success();
    let told = ask(&["explain", "web/api"]).success();
    assert!(told.out.starts_with("no agent, so this is what the kernel holds"), "{}", told.out);
    assert!(told.out.contains("10.96.0.10:80"), "{}", told.out);
}

#[test]
fn a_service_that_is_not_there_is_told_with_those_that_are_like_it() {
    let node = Node::new(golden("dual-stack").join("state.yaml"));
    for (name, meant) in
        [("web/ap", "; is it web/api?"), ("shop/api", "; is it web/api?"), ("x/y", "")]
    {
        let ended = node.ask(&["explain", name]);
        let want = format!("error: no Service {name} with a cluster IP is known{meant}");
        assert_eq!((ended.code, ended.log), (Some(1), vec![want]));
    }
    let ended = node.ask(&["explain", "web/api:https"]);
    assert_eq!(ended.log, ["error: Service web/api has no port https"]);
}

/// A node without an agent, which would put right what is meddled with.
fn unattended() -> (Namespace, [String; 4]) {
    let namespace = Namespace::new().unwrap();
    let state = golden("dual-stack");
    once(&namespace, &state).success();
    let state = state.to_str().unwrap();
    (namespace, ["--state", state, "--node-name", "node-1"].map(str::to_owned))
}

fn meddle(namespace: &Namespace, rules: &str) {
    let meddled = tool_in(namespace, "nft", &["-f", "-"], rules);
    assert!(meddled.status.success(), "{rules}: {}", text(&meddled.stderr));
}

#[test]
fn drift_is_told_with_the_service_and_by_the_exit_code() {
    let (namespace, state) = unattended();
    let diff = |more: &[&str]| {
        let mut args = vec!["diff", "-o", "json"];
        args.extend(state.iter().map(String::as_str));
        let ended = Ended::of(&run_in(&namespace, &[&args, more].concat()));
        (ended.code, serde_json::from_str::<Value>(&ended.out).unwrap())
    };
    let same = serde_json::json!({"schema": 1, "same": true, "differences": []});
    assert_eq!(diff(&[]), (Some(0), same.clone()));
    meddle(&namespace, "delete element ip zoneward services { 10.96.0.10 . tcp . 80 }");
    let want = serde_json::json!({"schema": 1, "same": false, "differences": [{
        "service": "web/api:http",
        "family": "IPv4",
        "place": "services",
        "what": "missing",
        "shouldBe": "10.96.0.10 . tcp . 80 : goto cluster-2",
    }]});
    assert_eq!(diff(&[]), (Some(1), want.clone()));
    assert_eq!(diff(&["web/api"]), (Some(1), want));
    assert_eq!(diff(&["web/other"]), (Some(0), same));
}

#[test]
fn diff_watch_tells_when_drift_comes_and_goes() {
    let (namespace, state) = unattended();
    let mut watching = namespace.run(|| {
        let mut command = Command::new(zoneward());
        command.args(["diff", "--watch=1"]).args(&state).stdout(Stdio::piped()).spawn().unwrap()
    });
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "the kernel holds what it should");
    meddle(&namespace, "add chain ip zoneward of-nobody");
    assert_eq!(lines.next().unwrap(), "");
    assert_eq!(lines.next().unwrap(), "+  extra  -  IPv4  chain  of-nobody");
    assert_eq!(lines.next().unwrap(), "1 difference");
    meddle(&namespace, "delete chain ip zoneward of-nobody");
    assert_eq!(lines.next().unwrap(), "");
    assert_eq!(lines.next().unwrap(), "the kernel holds what it should");
    watching.kill().unwrap();
    watching.wait().unwrap();
}

#[test]
fn ten_thousand_services_are_printed() {
    const SERVICES: usize = 10_000;
    let folder = tempfile::tempdir().unwrap();
    Shape { services: SERVICES, endpoints: 3 }.write(folder.path());
    // In one file: looking at ten thousand again and again is another matter.
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    let all: Vec<u8> = files.flat_map(|file| std::fs::read(file).unwrap()).collect();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("state.json"), all).unwrap();
    let namespace = Namespace::new().unwrap();
    once(&namespace, folder.path()).success();
    let socket = folder.path().join("agent.sock");
    let args = ["--state", folder.path().to_str().unwrap(), "--socket", socket.to_str().unwrap()];
    let mut agent = Agent::start(&namespace, &[&args[..], &NODE].concat());
    agent.wait_for(&["synced"]);
    let socket = socket.to_str().unwrap();
    for command in [
        &["dump-rules"][..],
        &["dump-rules", "-o", "json"],
        &["dump-rules", "--from", "agent", "--socket", socket],
        &["diff", "--socket", socket],
    ] {
        let started = Instant::now();
        let ended = Ended::of(&run_in(&namespace, command)).success();
        let took = started.elapsed();
        println!("{command:?}: {} bytes in {took:?}", ended.out.len());
        if command[0] == "dump-rules" && !command.contains(&"json") {
            let titles = ended.out.lines().filter(|line| line.starts_with("load/svc-"));
            assert_eq!(titles.count(), SERVICES);
        }
    }
}
