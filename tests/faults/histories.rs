//! Histories: API changes, kills, failing system calls and strangers in any order. After each, once quiet,
//! the kernel is as after a fresh start and every Service answers.
//!
//! `ZW_FAULTS_SEED` is the seed of the first history, the next has the next one; a failure names its seed,
//! and `ZW_FAULTS_SEED=<that> ZW_FAULTS_HISTORIES=1` runs it alone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use zw_tests::control_plane::shared;

use crate::node::Node;
use crate::script::{Step, script};

/// From a folder of manifests, and from a real API server, which takes longer.
const OF_A_FOLDER: u64 = 300;
const OF_A_CLUSTER: u64 = 60;
/// How many nodes there are at once; most of the time they wait.
const NODES: usize = 3;
const SEED: u64 = 20_260_000;

/// The seeds to run, handed out one by one.
struct Seeds {
    next: AtomicU64,
    end: u64,
}

impl Seeds {
    fn new(offset: u64, count: u64) -> Self {
        let first = number("ZW_FAULTS_SEED");
        let start = first.unwrap_or(SEED + offset);
        let count = number("ZW_FAULTS_HISTORIES").unwrap_or(count);
        println!("histories {start} to {}", start + count - 1);
        Self { next: AtomicU64::new(start), end: start + count }
    }

    fn next(&self) -> Option<u64> {
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < self.end)
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// Runs histories on a node; says how many, and how many agents it took.
fn live(mut node: Node<'_>, seeds: &Seeds) -> (usize, usize) {
    let mut histories = 0;
    while let Some(seed) = seeds.next() {
        let steps = script(seed);
        let started = Instant::now();
        node.reset();
        steps.iter().for_each(|step| node.take(step));
        let outcome = node.settle();
        let log = node.log();
        let tell = |what: &str| {
            let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
            let steps = steps.join("\n");
            format!("seed {seed}: {what}\nsteps:\n{steps}\nthe last agent's log:\n{log}")
        };
        if let Err(what) = outcome {
            panic!("{}", tell(&what));
        }
        assert!(!log.contains("panicked"), "{}", tell("a panic"));
        histories += 1;
        if started.elapsed().as_secs() >= 5 {
            println!("seed {seed}: took {:?}: {:?}", started.elapsed(), kinds(&steps));
        }
    }
    (histories, node.starts)
}

fn kinds(steps: &[Step]) -> Vec<String> {
    steps.iter().map(|step| format!("{step:?}")).collect()
}

#[test]
fn any_history_of_a_folder_ends_as_a_fresh_start() {
    let seeds = Seeds::new(0, OF_A_FOLDER);
    let started = Instant::now();
    let lived: Vec<(usize, usize)> = thread::scope(|scope| {
        let nodes: Vec<_> =
            (0..NODES).map(|_| scope.spawn(|| live(Node::with_folder(), &seeds))).collect();
        nodes.into_iter().map(|node| node.join().expect("a history failed, see above")).collect()
    });
    let histories: usize = lived.iter().map(|(histories, _)| histories).sum();
    let starts: usize = lived.iter().map(|(_, starts)| starts).sum();
    println!("{histories} histories of a folder, {starts} agents, {:?}", started.elapsed());
    assert!(histories > 0);
}

#[test]
fn any_history_of_a_cluster_ends_as_a_fresh_start() {
    let seeds = Seeds::new(100_000, OF_A_CLUSTER);
    let plane = shared();
    let started = Instant::now();
    let (histories, starts) = live(Node::with_cluster(&plane), &seeds);
    println!("{histories} histories of a cluster, {starts} agents, {:?}", started.elapsed());
    assert!(histories > 0);
}
