//! Whether this node serves Services: kube-proxy's rules for `/healthz` and `/livez`, which load
//! balancers rely on. Pure: time is passed in.
//!
//! A change that waits longer than twice the sync period makes both unhealthy. A node that is about to
//! go makes only `/healthz` so: load balancers turn away from it, and nothing restarts the agent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use serde::Serialize;
use zw_model::Family;

/// How long the kernel may take to answer before that is told. A transaction of 250,000 elements takes a
/// second where nothing else runs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One moment on both clocks: one never jumps, the other is what people read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) steady: Instant,
    pub(crate) wall: SystemTime,
}

impl Now {
    pub(crate) fn read() -> Self {
        Self { steady: Instant::now(), wall: SystemTime::now() }
    }
}

/// What the Node object says of its future.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum NodeState {
    #[default]
    Missing,
    /// Being deleted, or marked to be.
    Leaving,
    Staying,
}

impl NodeState {
    /// By whether load balancers may send it traffic; `None` while there is no Node.
    pub(crate) fn of(eligible: Option<bool>) -> Self {
        match eligible {
            None => Self::Missing,
            Some(true) => Self::Staying,
            Some(false) => Self::Leaving,
        }
    }
}

/// What is known about the node and its rules.
#[derive(Debug)]
pub(crate) struct Health {
    /// See [`crate::config::Config::sync_period`].
    pub(crate) sync_period: Duration,
    pub(crate) node: NodeState,
    /// Since when the kernel owes an answer.
    pub(crate) asked: Option<Instant>,
    families: BTreeMap<Family, Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    written: Option<SystemTime>,
    /// Since when the oldest change waits that is not in the kernel.
    waiting: Option<Instant>,
}

/// kube-proxy's answer, field by field.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    last_updated: String,
    current_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_eligible: Option<bool>,
    healthy: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    status: BTreeMap<&'static str, FamilyAnswer>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct FamilyAnswer {
    last_updated: String,
    healthy: bool,
}

impl Health {
    pub(crate) fn new(sync_period: Duration) -> Self {
        Self { sync_period, node: NodeState::default(), asked: None, families: BTreeMap::new() }
    }

    /// A change of this family waits to be written.
    pub(crate) fn queued(&mut self, family: Family, now: Now) {
        self.families.entry(family).or_default().waiting.get_or_insert(now.steady);
    }

    /// Everything that waited is in the kernel.
    pub(crate) fn written(&mut self, family: Family, now: Now) {
        let written = Some(now.wall);
        self.families.insert(family, Progress { written, waiting: None });
    }

    /// Whether every change has been written in time.
    pub(crate) fn is_live(&self, now: Now) -> bool {
        let answers = self.asked.is_none_or(|since| now.steady < since + PATIENCE);
        answers && self.families.values().all(|progress| self.in_time(progress, now))
    }

    /// `/healthz`: whether load balancers should send traffic here, and the body that says so.
    pub(crate) fn healthz(&self, now: Now) -> (bool, Answer) {
        let eligible = self.node == NodeState::Staying;
        let healthy = self.is_live(now) && eligible;
        (healthy, Answer { node_eligible: Some(eligible), ..self.answer(healthy, now) })
    }

    /// `/livez`: the same, without the node's future.
    pub(crate) fn livez(&self, now: Now) -> (bool, Answer) {
        let healthy = self.is_live(now);
        (healthy, self.answer(healthy, now))
    }

    fn answer(&self, healthy: bool, now: Now) -> Answer {
        let last = self.families.values().filter_map(|progress| progress.written).max();
        // Since the first versions of kube-proxy a healthy answer is a recent one.
        let last = if healthy { Some(now.wall) } else { last };
        let of_family = |progress: &Progress| FamilyAnswer {
            last_updated: time(progress.written),
            healthy: self.in_time(progress, now),
        };
        Answer {
            last_updated: time(last),
            current_time: time(Some(now.wall)),
            node_eligible: None,
            healthy: self.is_live(now),
            status: self
                .families
                .iter()
                .map(|(family, progress)| (name(*family), of_family(progress)))
                .collect(),
        }
    }

    /// Also before the first write: a first sync that fails for ever is no health. kube-proxy thinks
    /// otherwise.
    fn in_time(&self, progress: &Progress, now: Now) -> bool {
        let late = 2 * self.sync_period;
        progress.waiting.is_none_or(|since| now.steady.saturating_duration_since(since) < late)
    }
}

/// As Kubernetes writes it.
pub(crate) fn name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

/// As Go writes a time in JSON, never in its year 1.
fn time(at: Option<SystemTime>) -> String {
    let stamp = at.and_then(|at| Timestamp::try_from(at).ok());
    stamp.map_or_else(|| "0001-01-01T00:00:00Z".into(), |stamp| stamp.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant, SystemTime};

    use serde_json::json;
    use zw_model::Family;

    use super::{Health, NodeState, Now};

    /// A clock that is moved by hand.
    struct Clock(Now);

    impl Clock {
        fn at(&self, seconds: u64) -> Now {
            let passed = Duration::from_secs(seconds);
            Now { steady: self.0.steady + passed, wall: self.0.wall + passed }
        }
    }

    fn start() -> (Health, Clock) {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let mut health = Health::new(Duration::from_secs(30));
        health.node = NodeState::Staying;
        (health, Clock(Now { steady: Instant::now(), wall }))
    }

    #[test]
    fn the_answer_is_kube_proxys_to_the_letter() {
        let (mut health, clock) = start();
        health.queued(Family::V4, clock.at(0));
        health.written(Family::V4, clock.at(1));
        health.written(Family::V6, clock.at(2));
        let (healthy, answer) = health.healthz(clock.at(10));
        assert!(healthy);
        assert_eq!(
            serde_json::to_string(&answer).unwrap(),
            r#"{"lastUpdated":"2001-09-09T01:46:50Z","currentTime":"2001-09-09T01:46:50Z","nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":"2001-09-09T01:46:41Z","healthy":true},"IPv6":{"lastUpdated":"2001-09-09T01:46:42Z","healthy":true}}}"#
        );
        let (_, answer) = health.livez(clock.at(10));
        assert!(!serde_json::to_string(&answer).unwrap().contains("nodeEligible"));
    }

    #[test]
    fn a_change_that_waits_twice_the_sync_period_is_unhealthy() {
        let (mut health, clock) = start();
        for family in Family::BOTH {
            health.written(family, clock.at(0));
        }
        health.queued(Family::V6, clock.at(10));
        // A later change does not make the oldest younger.
        health.queued(Family::V6, clock.at(50));
        assert!(health.healthz(clock.at(69)).0);
        let (healthy, answer) = health.livez(clock.at(70));
        assert!(!healthy && !health.healthz(clock.at(70)).0);
        assert_eq!(
            serde_json::to_value(&answer).unwrap(),
            json!({
                "lastUpdated": "2001-09-09T01:46:40Z",
                "currentTime": "2001-09-09T01:47:50Z",
                "healthy": false,
                "status": {
                    "IPv4": {"lastUpdated": "2001-09-09T01:46:40Z", "healthy": true},
                    "IPv6": {"lastUpdated": "2001-09-09T01:46:40Z", "healthy": false},
                },
            })
        );
        health.written(Family::V6, clock.at(71));
        assert!(health.healthz(clock.at(1000)).0);
    }

    #[test]
    fn a_first_sync_that_never_succeeds_is_unhealthy_too() {
        let (mut health, clock) = start();
        assert!(health.livez(clock.at(1000)).0, "nothing to do is fine");
        health.queued(Family::V4, clock.at(1000));
        let (healthy, answer) = health.livez(clock.at(1060));
        assert!(!healthy);
        let answer = serde_json::to_value(&answer).unwrap();
        assert_eq!(answer["lastUpdated"], "0001-01-01T00:00:00Z");
    }

    #[test]
    fn a_kernel_that_does_not_answer_is_unhealthy_until_it_does() {
        let (mut health, clock) = start();
        health.asked = Some(clock.at(10).steady);
        assert!(health.livez(clock.at(39)).0);
        assert!(!health.livez(clock.at(40)).0 && !health.healthz(clock.at(40)).0);
        health.asked = None;
        assert!(health.livez(clock.at(41)).0);
    }

    #[test]
    fn a_node_that_leaves_is_live_but_not_healthy() {
        let (mut health, clock) = start();
        for eligible in [true, false] {
            health.node = NodeState::of(Some(eligible));
            let (healthy, answer) = health.healthz(clock.at(0));
            let answer = serde_json::to_value(&answer).unwrap();
            assert_eq!((healthy, &answer["nodeEligible"]), (eligible, &eligible.into()));
            // As in kube-proxy, `healthy` in the body is about the rules alone.
            assert_eq!(answer["healthy"], true);
            assert!(health.livez(clock.at(0)).0);
        }
        health.node = NodeState::of(None);
        assert!(!health.healthz(clock.at(0)).0);
    }
}
