//! What every start begins with: a machine that has nothing else to do.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;

/// Makes the API server collect its garbage first, and answers with what is left.
const COLLECT: &str = "/debug/pprof/heap?gc=1&debug=1";
/// Idle for so long, up to a tenth of the processors' time.
const WHILE: Duration = Duration::from_millis(200);
const BUSY: f64 = 0.1;
/// Where others keep the machine busy it is measured all the same.
const PATIENCE: Duration = Duration::from_secs(10);

/// Lets the API server collect its garbage, and waits until the machine is idle. A collection takes a second
/// of both processors, and what the kernel frees of the last node takes half of one: by chance they would
/// fall into one start and not into another.
pub(crate) fn calm(cluster: &Cluster) {
    let collected = cluster.plane.admin().get(COLLECT).expect("the API server answers");
    assert!(collected.ok(), "{}", collected.status);
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let before = Spent::now();
        thread::sleep(WHILE);
        if Spent::now().busy_since(&before) <= BUSY {
            return;
        }
    }
}

/// Time of all processors since the machine was started.
struct Spent {
    all: u64,
    idle: u64,
}

impl Spent {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").expect("the kernel counts");
        let line = text.lines().next().unwrap_or_default();
        let fields: Vec<u64> =
            line.split_whitespace().skip(1).map(|field| field.parse().expect("ticks")).collect();
        // user, nice, system, idle, iowait, irq, softirq and steal; guests' time is in the first two again.
        Self { all: fields[..8].iter().sum(), idle: fields[3] + fields[4] }
    }

    /// The share of the time since then in which something ran.
    fn busy_since(&self, before: &Self) -> f64 {
        let all = (self.all - before.all).max(1);
        1.0 - self.idle.saturating_sub(before.idle) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_makes_the_machine_busy() {
        let before = Spent { all: 1000, idle: 900 };
        assert_eq!(Spent { all: 1040, idle: 940 }.busy_since(&before), 0.0);
        assert_eq!(Spent { all: 1040, idle: 910 }.busy_since(&before), 0.75);
        // The kernel may take some of it back.
        assert_eq!(Spent { all: 1040, idle: 899 }.busy_since(&before), 1.0);
        assert!(Spent::now().all > 0);
    }
}
