//! Differences that are meant to be, each with its reason. The list is short, and every use is counted
//! and printed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::compare::Difference;
use crate::observe::Observation;
use crate::service::Service;
use zw_model::Family;

struct Allowed {
    name: &'static str,
    reason: &'static str,
    /// Whether a difference is this one. The Service is none for what belongs to none.
    covers: fn(&Difference, Option<&Service>) -> bool,
}

const LIST: &[Allowed] = &[
    Allowed {
        name: "a health check port on an address of the family that the Service does not have",
        reason: "a load balancer that knows the node by such an address gets no answer from kube-proxy \
                 and takes the node out; Zoneward tells it what the other family's address tells",
        covers: other_familys_health_check,
    },
    Allowed {
        name: "a pod that reaches itself although its slice does not say on which node it is",
        reason: "both masquerade a pod's connection to itself only for pods they know to be on this node; \
                 Zoneward knows it by the address, kube-proxy by address, protocol and port, so that \
                 another Service may make the difference. Answered against silence",
        covers: reaches_itself,
    },
    Allowed {
        name: "a sticky client that was given itself, although its slice does not say where it is",
        reason: "it stays with itself and hears nothing, on whichever side chance gave it itself",
        covers: stays_with_itself,
    },
];

fn other_familys_health_check(difference: &Difference, service: Option<&Service>) -> bool {
    let Difference { question, answers: [kube_proxy, zoneward] } = difference;
    let lacks = |service: &Service| !service.families.contains(&Family::of(question.to.ip()));
    service.is_some_and(lacks)
        && kube_proxy.other.iter().eq(["health check: ConnectionRefused"])
        && zoneward.kinds() == "health check"
}

/// Which endpoint a sticky client is given first is chance, and it may be itself.
fn stays_with_itself(difference: &Difference, service: Option<&Service>) -> bool {
    let Difference { question, answers: [kube_proxy, zoneward] } = difference;
    let kinds = [kube_proxy.kinds(), zoneward.kinds()];
    question.sticky
        && service.is_some_and(|service| is_unplaced(question.from, service))
        && kinds.iter().any(|kind| kind == "silent")
        && kinds.iter().any(|kind| kind == "answered")
}

/// The asker is an endpoint of the Service, and no slice says that it is on this node.
fn is_unplaced(from: &str, service: &Service) -> bool {
    let mut endpoints = service.slices.iter().flat_map(|slice| &slice.endpoints);
    endpoints.any(|endpoint| endpoint.host == from && !endpoint.node_name)
}

fn reaches_itself(difference: &Difference, service: Option<&Service>) -> bool {
    let Difference { question, answers: [kube_proxy, zoneward] } = difference;
    let unplaced = service.is_some_and(|service| is_unplaced(question.from, service));
    let itself = |(by, ..): &&(String, u16, IpAddr)| by == question.from;
    let others = |side: &Observation| -> BTreeSet<_> {
        side.answered.iter().filter(|answer| !itself(answer)).cloned().collect()
    };
    unplaced
        && others(kube_proxy) == others(zoneward)
        && kube_proxy.kinds().ends_with("silent")
        && zoneward.kinds() == "answered"
        && zoneward.answered.iter().any(|answer| itself(&answer))
}

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
