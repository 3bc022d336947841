//! Differences that are meant to be, each with its reason. The list is short, and every use is counted
//! and printed.

use std::collections::BTreeMap;

use crate::compare::Difference;
use crate::questions::Frontend;
use crate::service::Service;

struct Allowed {
    name: &'static str,
    reason: &'static str,
    /// Whether a difference is this one. The Service is none for what belongs to none.
    covers: fn(&Difference, Option<&Service>) -> bool,
}

const LIST: &[Allowed] = &[Allowed {
    name: "wrong port of a cluster IP",
    reason: "not built yet: Zoneward leaves such a packet alone, kube-proxy refuses it",
    covers: |difference, _| difference.question.frontend == Frontend::WrongPort,
}];

/// How often each entry was used.
#[derive(Debug, Default)]
pub(crate) struct Uses(BTreeMap<&'static str, (usize, &'static str)>);

impl Uses {
    /// The differences that no entry covers; the others are counted.
    pub(crate) fn take(
        &mut self,
        differences: Vec<Difference>,
        services: &[Service],
    ) -> Vec<Difference> {
        let unexplained = |difference: &Difference| {
            let service = difference.question.service.map(|number| &services[number]);
            let entry = LIST.iter().find(|entry| (entry.covers)(difference, service));
            if let Some(entry) = entry {
                self.0.entry(entry.name).or_insert((0, entry.reason)).0 += 1;
            }
            entry.is_none()
        };
        differences.into_iter().filter(unexplained).collect()
    }

    /// One line for each that was used.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |(name, (count, reason)): (&&str, &(usize, &str))| {
            format!("allowed, {count} times: {name}: {reason}")
        };
        self.0.iter().map(line).collect()
    }
}
