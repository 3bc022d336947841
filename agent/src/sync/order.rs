//! Which Services come first where nothing is programmed yet, and how many at a time.
//!
//! A node without rules needs the API server and DNS before anything else, and 250,000 endpoints in one
//! transaction would keep those waiting. Each transaction makes the kernel look at the whole table once
//! more, so they double in size.

use std::collections::VecDeque;

use zw_model::{Service, ServiceKey, Slice};

/// About how many endpoints the first transaction writes, and the largest.
const FIRST: usize = 1024;
const LARGEST: usize = 1 << 17;

/// The Services that are not in the kernel yet, in the order they come.
#[derive(Debug)]
pub(super) struct Waiting {
    services: VecDeque<Waits>,
    next: usize,
}

#[derive(Debug)]
struct Waits {
    key: ServiceKey,
    /// About how many it has.
    endpoints: usize,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { services: VecDeque::new(), next: FIRST }
    }
}

impl Waiting {
    /// All of these, each with its slices.
    pub(super) fn all<'a, S: Iterator<Item = &'a Slice>>(
        services: impl Iterator<Item = (&'a ServiceKey, &'a Service, S)>,
    ) -> Self {
        let mut services: Vec<(u8, Waits)> = services
            .map(|(key, service, slices)| {
                (
                    turn(key, service),
                    Waits {
                        key: key.clone(),
                        endpoints: slices.map(|slice| slice.endpoints.len()).sum(),
                    },
                )
            })
            .collect();
        services.sort_by_key(|(turn, _)| *turn);
        Self { services: services.into_iter().map(|(_, waits)| waits).collect(), next: FIRST }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// Every one.
    pub(super) fn take_all(&mut self) -> Vec<ServiceKey> {
        std::mem::take(&mut self.services).into_iter().map(|waits| waits.key).collect()
    }

    /// The next ones: whole Services, as many as go into one transaction, and at least one.
    pub(super) fn take(&mut self) -> Vec<ServiceKey> {
        let (mut taken, mut endpoints) = (Vec::new(), 0);
        while endpoints < self.next
            && let Some(waits) = self.services.pop_front()
        {
            endpoints += 1 + waits.endpoints;
            taken.push(waits.key);
        }
        self.next = (self.next * 2).min(LARGEST);
        taken
    }
}

/// The API server first, then DNS, the cluster's own before anybody else's.
fn turn(key: &ServiceKey, service: &Service) -> u8 {
    const DNS: u16 = 53;
    let is_dns = || service.ports.iter().any(|port| port.port == DNS);
    match (&*key.namespace, &*key.name) {
        ("default", "kubernetes") => 0,
        ("kube-system", _) if is_dns() => 1,
        _ if is_dns() => 2,
        _ => 3,
    }
}
