//! How long changes take from the cluster's decision to the kernel. The controller writes on a slice when
//! the change that it follows was made; once the slice is programmed, the time since then is known.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::Value;
use zw_model::Family;

use crate::convert::ObjectId;

const TRIGGERED: &str = "/metadata/annotations/endpoints.kubernetes.io~1last-change-trigger-time";

/// Changes that are not in the kernel yet.
#[derive(Debug)]
pub(crate) struct Programming {
    started: SystemTime,
    waiting: HashMap<ObjectId, Vec<(Family, SystemTime)>>,
}

impl Programming {
    pub(crate) fn new(started: SystemTime) -> Self {
        Self { started, waiting: HashMap::new() }
    }

    /// A slice came in. What was decided before the agent ran is not its latency.
    pub(crate) fn saw(&mut self, id: &ObjectId, slice: &Value) {
        let family = match slice.get("addressType").and_then(Value::as_str) {
            Some("IPv4") => Family::V4,
            Some("IPv6") => Family::V6,
            _ => return,
        };
        let triggered = slice.pointer(TRIGGERED).and_then(Value::as_str);
        let Some(at) = triggered.and_then(|text| text.parse::<Timestamp>().ok()) else { return };
        let at = SystemTime::from(at);
        if at >= self.started {
            let times = self.waiting.entry(id.clone()).or_default();
            // Anything else about a slice may change under the same time.
            if !times.contains(&(family, at)) {
                times.push((family, at));
            }
        }
    }

    /// A slice went: nobody waits for it.
    pub(crate) fn forget(&mut self, id: &ObjectId) {
        self.waiting.remove(id);
    }

    /// Everything is in the kernel: how long each change took.
    pub(crate) fn finish(&mut self, now: SystemTime) -> Vec<(Family, Duration)> {
        let waited = self.waiting.drain().flat_map(|(_, times)| times);
        waited.map(|(family, at)| (family, now.duration_since(at).unwrap_or_default())).collect()
    }
}

/// kube-proxy's own: fine where the promise is, a few seconds, and coarse up to five minutes.
pub(super) fn buckets() -> impl Iterator<Item = f64> {
    let steps = |first: u32, step: usize, last: u32| (first..=last).step_by(step).map(f64::from);
    [0.25, 0.5]
        .into_iter()
        .chain(steps(1, 1, 59))
        .chain(steps(60, 5, 115))
        .chain(steps(120, 30, 300))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::json;
    use zw_model::Family;

    use super::Programming;
    use crate::convert::{Kind, ObjectId};

    fn id(name: &str) -> ObjectId {
        ObjectId { kind: Kind::EndpointSlice, namespace: "web".into(), name: name.into() }
    }

    fn slice(family: &str, at: &str) -> serde_json::Value {
        json!({
            "addressType": family,
            "metadata": {"annotations": {"endpoints.kubernetes.io/last-change-trigger-time": at}},
        })
    }

    #[test]
    fn a_change_counts_from_its_trigger_to_the_kernel_once() {
        let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let mut programming = Programming::new(started);
        programming.saw(&id("old"), &slice("IPv4", "2001-09-09T01:46:39Z"));
        programming.saw(&id("gone"), &slice("IPv4", "2001-09-09T01:46:42Z"));
        programming.saw(&id("new"), &slice("IPv6", "2001-09-09T01:46:42.5Z"));
        programming.saw(&id("new"), &slice("IPv6", "2001-09-09T01:46:42.5Z"));
        programming.saw(&id("odd"), &slice("IPv4", "yesterday"));
        programming.saw(&id("none"), &json!({"addressType": "IPv4"}));
        programming.forget(&id("gone"));
        let now = started + Duration::from_secs(5);
        assert_eq!(programming.finish(now), [(Family::V6, Duration::from_millis(2500))]);
        assert_eq!(programming.finish(now), []);
    }
}
