//! What objects ask for, with the reason for each endpoint.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use zw_model::{Family, Protocol};
use zw_plan::{Backend, Candidate, Exposure, PortRules, Selection, Verdict, select};

use super::{
    EndpointView, FrontendKind, PortView, Refusal, empty, endpoint, kind_of, port_of, sort,
};
use crate::inspect::planned::Planned;

/// Every Service port that objects ask for, with the reason for each endpoint.
pub(crate) fn from_planned(planned: &Planned) -> Vec<PortView> {
    let Planned { index, desired, .. } = planned;
    let mut ports = Vec::new();
    for key in index.service_keys() {
        let Some((service, slices)) = index.service(key) else { continue };
        let contested = desired.contested(key);
        // The frontends of a port and family are neighbours only by chance.
        let mut selections: HashMap<(&str, Protocol, Family), Selection<'_>> = HashMap::new();
        for rules in desired.service(key).into_iter().flat_map(|rules| &rules.ports) {
            let frontend = rules.frontend;
            let Some(port) = port_of(service, &frontend) else { continue };
            let mut view =
                empty(frontend, kind_of(service, &frontend), &key.to_string(), &port.name);
            view.affinity_seconds = service.affinity;
            view.scheduler = desired.scheduler(rules).map(ToString::to_string);
            view.source_ranges = rules
                .sources
                .as_ref()
                .map(|ranges| ranges.iter().map(ToString::to_string).collect());
            view.policy = match view.kind {
                FrontendKind::ClusterIp => service.internal_policy.into(),
                _ => service.external_policy.into(),
            };
            let lost = contested.iter().find(|c| c.frontend == frontend && c.owner != *key);
            if let Some(lost) = lost {
                view.taken_by = Some(lost.owner.to_string());
                ports.push(view);
                continue;
            }
            let selection = selections
                .entry((&port.name, port.protocol, frontend.family()))
                .or_insert_with(|| select(port, frontend.family(), slices.clone(), index.node()));
            fill(&mut view, rules, selection);
            ports.push(view);
        }
    }
    sort(&mut ports);
    ports
}

fn fill(view: &mut PortView, rules: &PortRules, selection: &Selection<'_>) {
    let at = |c: &Candidate<'_>| SocketAddr::new(c.endpoint.addr, c.port);
    let mut best: HashMap<SocketAddr, &Candidate<'_>> = HashMap::new();
    for candidate in &selection.candidates {
        if !best.get(&at(candidate)).is_some_and(used) {
            best.insert(at(candidate), candidate);
        }
    }
    let explained = |backends: &[Backend]| -> Vec<EndpointView> {
        let held = backends.iter().filter_map(|backend| best.get(&backend.addr).copied());
        held.map(|candidate| match candidate.verdict {
            Verdict::Used(_) => endpoint(candidate),
            // Hints and zones have no say where a policy keeps traffic on the node.
            Verdict::Unused(_) => with_reason(candidate, "on this node".into()),
        })
        .collect()
    };
    view.endpoints = explained(&rules.backends);
    let bound_by_policy = matches!(rules.exposure, Exposure::ExternalLocal { .. });
    view.endpoints_for_outsiders = bound_by_policy.then(|| explained(rules.local()));
    let answering = if bound_by_policy { rules.local() } else { &rules.backends };
    view.without_endpoints = answering.is_empty().then_some(if rules.has_endpoints {
        Refusal::Ignored
    } else {
        Refusal::Refused
    });
    let held: HashSet<SocketAddr> =
        rules.backends.iter().chain(rules.local()).map(|backend| backend.addr).collect();
    let in_use = |c: &&Candidate<'_>| {
        held.contains(&at(c)) && best.get(&at(c)).is_some_and(|best| std::ptr::eq(*best, *c))
    };
    let left_out = selection.candidates.iter().filter(|c| !in_use(c));
    view.left_out = left_out
        .map(|candidate| match candidate.verdict {
            Verdict::Used(why) => {
                with_reason(candidate, format!("{}, but not on this node", Verdict::Used(why)))
            }
            Verdict::Unused(_) => endpoint(candidate),
        })
        .collect();
}

fn with_reason(candidate: &Candidate<'_>, reason: String) -> EndpointView {
    EndpointView { reason: Some(reason), ..endpoint(candidate) }
}

fn used(candidate: &&Candidate<'_>) -> bool {
    matches!(candidate.verdict, Verdict::Used(_))
}
