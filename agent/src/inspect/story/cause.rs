//! Why a Service port is answered or not: the one thing to say first.

use std::collections::BTreeSet;

use zw_model::{Family, NodeContext, Scope, Service, ServicePort, Slice, TrafficPolicy};
use zw_plan::{Candidate, Selection, Verdict, Why, WhyNot};

use super::{VerdictStory, distinct, port_words, scope_words};
use crate::screen::count;

/// One port of a Service in one family, and what was decided.
pub(super) struct Seen<'a> {
    pub(super) service: &'a Service,
    pub(super) port: &'a ServicePort,
    pub(super) family: Family,
    pub(super) slices: &'a [&'a Slice],
    pub(super) selection: &'a Selection<'a>,
    pub(super) node: &'a NodeContext,
}

impl Seen<'_> {
    /// What becomes of clients: of all, and of those that a policy treats differently.
    pub(super) fn verdicts(&self) -> Vec<VerdictStory> {
        let used = self.selection.used().count();
        if used == 0 {
            let text = format!("connections are refused: {}", self.why_nobody());
            return vec![VerdictStory { good: false, text }];
        }
        let mut verdicts = Vec::new();
        let local = self.selection.local(self.node).len();
        let seen = count(self.distinct_endpoints(), "endpoint");
        let internal = self.service.internal_policy == TrafficPolicy::Local;
        let external = self.service.external_policy == TrafficPolicy::Local;
        for (bound, name, whom) in [
            (internal, "internalTrafficPolicy", "connections to the cluster IP"),
            (external, "externalTrafficPolicy", "connections from outside"),
        ] {
            if bound && local == 0 {
                verdicts.push(VerdictStory {
                    good: false,
                    text: format!(
                        "{whom} are ignored: {name} is Local, and no endpoint is on this node, {}; \
                         there is {seen} {}",
                        self.node.name,
                        self.whereabouts()
                    ),
                });
            } else if bound {
                let text =
                    format!("{local} of {seen} on this node, {whom} keep to them: {name} is Local");
                verdicts.push(VerdictStory { good: true, text });
            }
        }
        if !internal {
            let why = distinct(self.selection.used().map(|c| c.verdict.to_string()));
            let text = format!("{used} of {seen} in use: {why}");
            verdicts.insert(0, VerdictStory { good: true, text });
        }
        verdicts
    }

    fn distinct_endpoints(&self) -> usize {
        let all = self.selection.candidates.iter().map(|c| (c.endpoint.addr, c.port));
        all.collect::<BTreeSet<_>>().len()
    }

    /// Which nodes the endpoints are on.
    fn whereabouts(&self) -> String {
        let node = |c: &Candidate<'_>| match &c.endpoint.node {
            Some(node) => node.to_string(),
            None => "no node".into(),
        };
        let nodes: BTreeSet<String> = self.selection.used().map(node).collect();
        let some: Vec<&str> = nodes.iter().take(5).map(String::as_str).collect();
        let more = nodes.len() - some.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("on {}{more}", some.join(", "))
    }

    /// No endpoint is used at all.
    fn why_nobody(&self) -> String {
        let of_family: Vec<&&Slice> =
            self.slices.iter().filter(|slice| slice.family == self.family).collect();
        if self.slices.is_empty() {
            let who = if self.service.has_selector {
                "its selector matches no pod"
            } else {
                "it has no selector, and nobody has written one"
            };
            return format!("there is no EndpointSlice for it that this node may see; {who}");
        }
        if of_family.is_empty() {
            return format!(
                "none of its {} has {} addresses",
                count(self.slices.len(), "slice"),
                self.family
            );
        }
        if let Some(why) = self.nothing_for_the_zone(&of_family) {
            return why;
        }
        if of_family.iter().all(|slice| slice.endpoints.is_empty()) {
            let matches =
                if self.service.has_selector { ": its selector matches no pod" } else { "" };
            return format!("its {} no endpoint{matches}", agree(of_family.len(), "lists", "list"));
        }
        if self.selection.candidates.is_empty() {
            return self.port_mismatch(&of_family);
        }
        let verdicts: BTreeSet<&str> =
            self.selection.candidates.iter().map(|c| word(c.verdict)).collect();
        let seen = count(self.distinct_endpoints(), "endpoint");
        if verdicts.iter().all(|verdict| *verdict == word(Verdict::Unused(WhyNot::OtherZone))) {
            let scopes = distinct(of_family.iter().map(|slice| scope_words(&slice.scope)));
            return format!(
                "all its slices are labelled {scopes}; this node, {}, is in zone {}",
                self.node.name,
                self.node.zone.as_deref().unwrap_or("unknown")
            );
        }
        let zoned = of_family.iter().any(|slice| slice.scope != Scope::Everyone);
        let usable_elsewhere =
            self.selection.candidates.iter().filter(|c| c.endpoint.conditions.ready).count();
        if zoned && usable_elsewhere > 0 {
            return format!(
                "no slice for this node's zone or region has a ready endpoint; {} in other slices \
                 do not count, because the Service has slices labelled for zone {}",
                count(usable_elsewhere, "ready endpoint"),
                self.node.zone.as_deref().unwrap_or("unknown")
            );
        }
        match self.distinct_endpoints() {
            1 => "its only endpoint is not ready".into(),
            _ => format!("none of its {seen} is ready"),
        }
    }

    /// There are slices for this node's zone, and nothing is in them.
    fn nothing_for_the_zone(&self, of_family: &[&&Slice]) -> Option<String> {
        let zone = self.node.zone.as_ref()?;
        let of_zone = |slice: &&&&Slice| matches!(&slice.scope, Scope::Zone(of) if of == zone);
        let own: Vec<&&&Slice> = of_family.iter().filter(of_zone).collect();
        if own.is_empty() || own.iter().any(|slice| !slice.endpoints.is_empty()) {
            return None;
        }
        let others = match self.distinct_endpoints() {
            0 => String::new(),
            others => format!(", and {} in other slices do not count", count(others, "endpoint")),
        };
        let slices = if own.len() == 1 { "slice" } else { "slices" };
        let have = if own.len() == 1 { "has" } else { "have" };
        Some(format!("its {slices} for zone {zone} {have} no endpoint{others}"))
    }

    fn port_mismatch(&self, of_family: &[&&Slice]) -> String {
        let has = distinct(
            of_family
                .iter()
                .flat_map(|slice| &slice.ports)
                .map(|port| port_words(&port.name, port.port, port.protocol)),
        );
        let wanted = if self.port.name.is_empty() {
            format!("a {} port without a name", self.port.protocol)
        } else {
            format!("a {} port named \"{}\"", self.port.protocol, self.port.name)
        };
        if has.is_empty() {
            return format!("its slices have no ports, and the Service wants {wanted}");
        }
        format!(
            "its slices have no port of that name: the Service wants {wanted}, the slices have {has}"
        )
    }

    /// Some slices lack the port, others have it.
    pub(super) fn mismatched_slices(&self) -> Option<String> {
        let of_family = self.slices.iter().filter(|slice| slice.family == self.family);
        let has = |slice: &&&Slice| {
            let is_it = |p: &zw_model::SlicePort| {
                p.name == self.port.name && p.protocol == self.port.protocol
            };
            slice.ports.iter().any(is_it)
        };
        let (with, without): (Vec<&&Slice>, Vec<&&Slice>) =
            of_family.filter(|slice| !slice.endpoints.is_empty()).partition(has);
        if with.is_empty() || without.is_empty() {
            return None;
        }
        let names = distinct(without.iter().map(|slice| slice.key.to_string()));
        Some(format!("no port \"{}\" in {names}: their endpoints do not count", self.port.name))
    }
}

/// Hints that are there and decide nothing.
pub(super) fn ignored_hints(selection: &Selection<'_>, node: &NodeContext) -> Option<String> {
    let plain = |c: &&Candidate<'_>| c.verdict == Verdict::Used(Why::Ready);
    let ready: Vec<&Candidate<'_>> = selection.candidates.iter().filter(plain).collect();
    let hinted = |c: &&&Candidate<'_>| {
        c.endpoint.hints.as_ref().is_some_and(|h| !h.zones.is_empty() || !h.nodes.is_empty())
    };
    let with = ready.iter().filter(hinted).count();
    if with == 0 {
        return None;
    }
    let Some(zone) = node.zone.as_deref() else {
        return Some(
            "hints are ignored: this node has no label topology.kubernetes.io/zone".into(),
        );
    };
    if with < ready.len() {
        let without = ready.iter().filter(|c| !hinted(c)).map(|c| c.endpoint.addr.to_string());
        let some: Vec<String> = without.take(3).collect();
        return Some(format!(
            "hints are ignored: {} of {} has none ({})",
            ready.len() - with,
            count(ready.len(), "ready endpoint"),
            some.join(", ")
        ));
    }
    Some(format!("hints are ignored: none of them names zone {zone} or node {}", node.name))
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Used(_) => "used",
        Verdict::Unused(WhyNot::OtherZone) => "other zone",
        Verdict::Unused(_) => "unused",
    }
}

/// `1 slice lists`, `2 slices list`
fn agree(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", count(number, "slice"), if number == 1 { one } else { many })
}
