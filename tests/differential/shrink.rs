//! Smaller Services: each one step simpler than the one that showed a difference.

use crate::service::{Endpoint, Kind, Service};

/// Takes one change and keeps what it makes of the Service.
type Try<'a> = dyn FnMut(&dyn Fn(&mut Service)) + 'a;

/// All that are one step smaller, the biggest steps first.
pub(crate) fn smaller(service: &Service) -> Vec<Service> {
    let mut found = Vec::new();
    let mut try_with = |change: &dyn Fn(&mut Service)| {
        let mut changed = service.clone();
        change(&mut changed);
        let changed = changed.normalised();
        if changed != *service && !changed.ports.is_empty() && !changed.families.is_empty() {
            found.push(changed);
        }
    };
    for i in 0..service.families.len() {
        try_with(&|s| {
            let gone = s.families.remove(i);
            s.slices.retain(|slice| slice.family != gone);
        });
    }
    for i in 0..service.ports.len() {
        try_with(&|s| {
            let gone = s.ports.remove(i);
            let of_it = |port: &(String, _, _)| port.0 == gone.name && port.1 == gone.protocol;
            s.slices.iter_mut().for_each(|slice| slice.ports.retain(|port| !of_it(port)));
        });
    }
    for i in 0..service.slices.len() {
        try_with(&|s| {
            let _ = s.slices.remove(i);
        });
    }
    try_with(&|s| s.kind = Kind::ClusterIp);
    try_with(&|s| s.kind = Kind::NodePort);
    try_with(&|s| s.external_ips.clear());
    try_with(&|s| s.ingress.clear());
    try_with(&|s| s.source_ranges.clear());
    try_with(&|s| s.affinity = None);
    try_with(&|s| s.internal_local = false);
    try_with(&|s| s.external_local = false);
    try_with(&|s| s.foreign = false);
    if service.kind == Kind::LoadBalancer {
        try_with(&|s| s.ports.iter_mut().for_each(|port| port.node_port = None));
    }
    for i in 0..service.external_ips.len() {
        try_with(&|s| {
            let _ = s.external_ips.remove(i);
        });
    }
    for i in 0..service.ingress.len() {
        try_with(&|s| {
            let _ = s.ingress.remove(i);
        });
        try_with(&|s| s.ingress[i].mode = "VIP");
    }
    for i in 0..service.source_ranges.len() {
        try_with(&|s| {
            let _ = s.source_ranges.remove(i);
        });
    }
    for (i, slice) in service.slices.iter().enumerate() {
        for j in 0..slice.endpoints.len() {
            try_with(&|s| {
                let _ = s.slices[i].endpoints.remove(j);
            });
        }
    }
    for (i, slice) in service.slices.iter().enumerate() {
        try_with(&|s| s.slices[i].headless = false);
        for j in 0..slice.endpoints.len() {
            simpler_endpoint(&mut try_with, i, j);
        }
        for j in 0..slice.ports.len() {
            try_with(&|s| {
                let _ = s.slices[i].ports.remove(j);
            });
        }
    }
    found
}

/// Changes an endpoint wherever it is: copies that contradict each other are another matter.
fn simpler_endpoint(try_with: &mut Try<'_>, i: usize, j: usize) {
    let mut with = |change: fn(&mut Endpoint)| {
        try_with(&|s| {
            let (family, host) = (s.slices[i].family, s.slices[i].endpoints[j].host);
            let slices = s.slices.iter_mut().filter(|slice| slice.family == family);
            let endpoints = slices.flat_map(|slice| &mut slice.endpoints);
            endpoints.filter(|endpoint| endpoint.host == host).for_each(change);
        });
    };
    with(|e| e.zone_hints.clear());
    with(|e| e.node_hints.clear());
    with(|e| (e.ready, e.serving, e.terminating) = (None, None, None));
    with(|e| e.serving = None);
    with(|e| e.node_name = true);
}
