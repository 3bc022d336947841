//! Hours in the life of an agent, made short: random churn, and memory that stays where it was.
//!
//! `ZW_SOAK_SECONDS` says how long, 40 if unset; 1800 is the long run.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use zw_lab::Namespace;
use zw_tests::binary::{Agent, tool_in};
use zw_tests::cluster::Shape;
use zw_tests::rng::Rng;

const SHAPE: Shape = Shape { services: 300, endpoints: 40 };
/// By then everything that is kept has been needed once.
const WARM_UP: u32 = 4;
/// What the allocator may keep more of at the end than after the warm-up, of the whole.
const TOLERANCE: f64 = 1.15;
const SAMPLE: Duration = Duration::from_millis(200);

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the agent runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// One change of the folder, or of the table by a stranger.
fn churn(rng: &mut Rng, folder: &std::path::Path, namespace: &Namespace) {
    let service = rng.below(SHAPE.services);
    match rng.below(1_000) {
        0 => drop(tool_in(namespace, "nft", &["flush", "ruleset"], "")),
        1..4 => drop(tool_in(namespace, "nft", &["delete", "table", "ip6", "zoneward"], "")),
        4..60 => {
            // It may be gone already.
            let _ = fs::remove_file(folder.join(format!("svc-{service}.json")));
        }
        _ => {
            let all: Vec<usize> = (0..SHAPE.endpoints).collect();
            SHAPE.write_endpoints(folder, service, &rng.some(&all, 70));
        }
    }
}

#[test]
fn memory_stays_where_it_was_through_random_churn() {
    let seconds = std::env::var("ZW_SOAK_SECONDS").ok();
    let seconds = seconds.map_or(40, |text| text.parse().expect("ZW_SOAK_SECONDS is a number"));
    let length = Duration::from_secs(seconds);
    let folder = tempfile::tempdir().unwrap();
    SHAPE.write(folder.path());
    let namespace = Namespace::new().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut agent = Agent::start(&namespace, &["--state", path, "--node-name", "node-0"]);
    agent.wait_for(&["synced"]);

    let mut rng = Rng::stream(1, 0);
    let (started, mut sampled) = (Instant::now(), Instant::now());
    let (mut changes, mut syncs) = (0, 0);
    let mut samples: Vec<u64> = Vec::new();
    while started.elapsed() < length {
        churn(&mut rng, folder.path(), &namespace);
        changes += 1;
        // About what a busy cluster of thousands of pods brings.
        thread::sleep(Duration::from_millis(10));
        if sampled.elapsed() >= SAMPLE {
            sampled = Instant::now();
            assert!(!agent.has_ended(), "{}", agent.log.join("\n"));
            agent.read_on();
            syncs += agent.log.drain(..).filter(|line| line.contains("synced")).count();
            if started.elapsed() > length / WARM_UP {
                samples.push(resident_kib(agent.id()));
            }
        }
    }
    // Each is the middle of a tenth, so that one large batch does not count for more than it is.
    let tenth = samples.len() / 10;
    let middle = |range: &[u64]| {
        let mut range = range.to_vec();
        range.sort_unstable();
        range[range.len() / 2]
    };
    let centre = samples.len() / 2;
    let [start, half, end] = [
        middle(&samples[..tenth]),
        middle(&samples[centre..centre + tenth]),
        middle(&samples[samples.len() - tenth..]),
    ];
    println!(
        "{seconds} s, {changes} changes, {syncs} syncs; resident after warm-up {start} KiB, half way \
         {half} KiB, at the end {end} KiB, ratio {:.3}",
        end as f64 / start as f64
    );
    assert!(syncs > 10, "the agent followed: {syncs} syncs");
    assert!(end as f64 <= start as f64 * TOLERANCE, "{start} KiB became {end} KiB");
}
