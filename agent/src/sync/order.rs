//! Which Services come first where nothing is programmed yet, and how many at a time.
//!
//! A node without rules needs the API server and DNS before anything else, and 250,000 endpoints in one
//! transaction would keep those waiting. Each transaction makes the kernel look at the whole table once
//! more, so they double in size.

use std::collections::VecDeque;

use zw_model::{Service, ServiceKey};

use crate::index::{Index, Known};

/// About how many endpoints the first transaction writes, and the largest.
const FIRST: usize = 1024;
const LARGEST: usize = 1 << 17;

/// The Services that are not in the kernel yet, in the order they come.
#[derive(Debug)]
pub(super) struct Waiting {
    /// These before all others.
    first: VecDeque<ServiceKey>,
    /// The others come by name, from this one on; `None`: they are through.
    rest: Option<ServiceKey>,
    next: usize,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { first: VecDeque::new(), rest: None, next: FIRST }
    }
}

impl Waiting {
    /// All of these, which come by name.
    pub(super) fn all<'a>(services: impl Iterator<Item = Known<'a>>) -> Self {
        let (mut first, mut rest) = (Vec::new(), None);
        for Known { key, service, .. } in services {
            match turn(key, service) {
                Some(turn) => first.push((turn, key)),
                None => rest = rest.or(Some(key)),
            }
        }
        first.sort_unstable();
        let first = first.into_iter().map(|(_, key)| key.clone()).collect();
        Self { first, rest: rest.cloned(), next: FIRST }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.rest.is_none()
    }

    /// Every one.
    pub(super) fn take_all<'a>(&mut self, index: &'a Index) -> Vec<Known<'a>> {
        self.next = usize::MAX;
        self.take(index)
    }

    /// The next ones: whole Services, as many as go into one transaction, and at least one. None of those
    /// that went meanwhile.
    pub(super) fn take<'a>(&mut self, index: &'a Index) -> Vec<Known<'a>> {
        let (mut taken, mut endpoints) = (Vec::new(), 0);
        let mut take = |known: Known<'a>| {
            endpoints += 1 + known.slices.clone().map(|slice| slice.endpoints.len()).sum::<usize>();
            taken.push(known);
            endpoints >= self.next
        };
        let mut full = false;
        while !full && let Some(key) = self.first.pop_front() {
            full = index.known(&key).is_some_and(&mut take);
        }
        if !full && let Some(from) = self.rest.take() {
            let mut rest = index.services_from(from);
            let is_rest = |known: &Known<'_>| turn(known.key, known.service).is_none();
            let mut next = rest.find(is_rest);
            while !full && let Some(known) = next.take() {
                full = take(known);
                next = rest.find(is_rest);
            }
            self.rest = next.map(|known| known.key.clone());
        }
        self.next = self.next.saturating_mul(2).min(LARGEST);
        taken
    }
}

/// The API server first, then DNS, the cluster's own before anybody else's, then all others.
fn turn(key: &ServiceKey, service: &Service) -> Option<u8> {
    const DNS: u16 = 53;
    let is_dns = || service.ports.iter().any(|port| port.port == DNS);
    match (&*key.namespace, &*key.name) {
        ("default", "kubernetes") => Some(0),
        ("kube-system", _) if is_dns() => Some(1),
        _ if is_dns() => Some(2),
        _ => None,
    }
}
