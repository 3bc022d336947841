//! The status page in a real browser: what it shows, and that nothing goes wrong in it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

use zw_lab::Namespace;
use zw_tests::binary::{Agent, text};

use crate::command::{Folder, NODE};

/// An agent with or without its page.
fn start(namespace: &Namespace, folder: &Folder, more: &[&str]) -> Agent {
    let state = Path::new(env!("CARGO_MANIFEST_DIR")).join("texts/state.yaml");
    let socket = folder.path().join("agent.sock");
    let args = ["--state", state.to_str().unwrap(), "--socket", socket.to_str().unwrap()];
    let mut agent = Agent::start(namespace, &[&args[..], &NODE, more].concat());
    agent.wait_for(&["serving metrics"]);
    agent.wait_for(&["synced"]);
    agent
}

fn get(namespace: &Namespace, request: &str) -> String {
    namespace.run(|| {
        let mut stream = TcpStream::connect("127.0.0.1:10249").unwrap();
        write!(stream, "{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    })
}

/// Headless Chromium on one address, with everything it says on standard error.
fn browse(namespace: &Namespace, home: &Path, url: &str, more: &[&str]) -> Output {
    namespace.run(|| {
        let mut command = Command::new("timeout");
        command.args(["120", "chromium", "--headless", "--no-sandbox", "--disable-gpu"]);
        command.args(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
        command.args(["--enable-logging=stderr", "--hide-scrollbars", "--window-size=1200,900"]);
        command.arg(format!("--user-data-dir={}", home.display()));
        // So much time passes for the page, as fast as it can: three looks at the agent.
        command.args(["--virtual-time-budget=6000"]).args(more).arg(url);
        command.env("HOME", home).output().expect("chromium runs (Debian's package)")
    })
}

#[test]
fn the_page_is_off_unless_it_is_wanted() {
    let namespace = Namespace::new().unwrap();
    let folder = Folder::new(&[]);
    let _agent = start(&namespace, &folder, &[]);
    for path in ["/status", "/status/load.json", "/status/explain.json?service=web/api"] {
        let answer = get(&namespace, &format!("GET {path}"));
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
    }
}

#[test]
fn the_page_shows_every_service_in_a_browser_without_an_error() {
    let namespace = Namespace::new().unwrap();
    let folder = Folder::new(&[]);
    let _agent = start(&namespace, &folder, &["--status-page"]);
    let page = get(&namespace, "GET /status");
    assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
    // Nothing in it is from elsewhere; the one address is a name.
    let addresses: Vec<&str> =
        page.split("//").skip(1).filter(|rest| !rest.starts_with(' ')).collect();
    assert!(addresses.iter().all(|rest| rest.starts_with("www.w3.org/2000/svg")), "{addresses:?}");
    let posted = get(&namespace, "POST /status");
    assert!(posted.starts_with("HTTP/1.1 405"), "{posted}");

    let home = folder.path().join("home");
    let url = "http://127.0.0.1:10249/status?service=web/zoned";
    let dumped = browse(&namespace, &home, url, &["--dump-dom"]);
    let (dom, log) = (text(&dumped.stdout), text(&dumped.stderr));
    for row in ["web/api:http", "web/late:http", "web/shop:https", "web/zoned:http"] {
        assert!(dom.contains(&format!("<tr data-service=\"{row}\">")), "no {row} in\n{dom}\n{log}");
    }
    for words in [
        "node-1, zone zone-a",
        "0 drift repairs",
        "<path d=\"M0.0,19.0",
        // What was asked for is explained.
        "all its slices are labelled for zone zone-b; this node, node-1, is in zone zone-a",
    ] {
        assert!(dom.contains(words), "no {words} in\n{dom}\n{log}");
    }
    let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert_eq!(console, [""; 0], "the console is not empty");

    let filtered =
        browse(&namespace, &home, "http://127.0.0.1:10249/status?filter=shop", &["--dump-dom"]);
    let dom = text(&filtered.stdout);
    assert_eq!(dom.matches("<tr data-service=").count(), 1, "{dom}");

    let picture = folder.path().join("page.png");
    let shot = format!("--screenshot={}", picture.display());
    let drawn = browse(&namespace, &home, url, &[&shot]);
    let png = fs::read(&picture).unwrap_or_else(|e| panic!("{e}: {}", text(&drawn.stderr)));
    assert!(png.starts_with(b"\x89PNG"));
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    assert_eq!((number(16), number(20)), (1200, 900));
    // An empty page of that size takes a few thousand bytes.
    assert!(png.len() > 20_000, "{} bytes", png.len());
    if let Some(keep) = std::env::var_os("ZW_SCREENSHOT") {
        fs::copy(&picture, keep).unwrap();
    }
}
