//! Which Services come first where nothing is programmed yet, and how many at a time.
//!
//! A node without rules needs the API server and DNS before anything else, and 250,000 endpoints in one
//! transaction would keep those waiting. Each transaction makes the kernel look at the whole table once
//! more, so they double in size, and the last takes a small rest along.

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
    /// What all of them count for, unless some changed or went meanwhile.
    left: usize,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { first: VecDeque::new(), rest: None, next: FIRST, left: 0 }
    }
}

impl Waiting {
    /// All of these, which come by name.
    pub(super) fn all<'a>(services: impl Iterator<Item = Known<'a>>) -> Self {
        let (mut first, mut rest, mut left) = (Vec::new(), None, 0);
        for known in services {
            match turn(known.key, known.service) {
                Some(turn) => first.push((turn, known.key)),
                None => rest = rest.or(Some(known.key)),
            }
            left += weight(&known);
        }
        first.sort_unstable();
        let first = first.into_iter().map(|(_, key)| key.clone()).collect();
        Self { first, rest: rest.cloned(), next: FIRST, left }
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
        let little_left = self.left <= self.next.saturating_add(self.next / 2);
        let at_least = if little_left { usize::MAX } else { self.next };
        let (mut taken, mut endpoints) = (Vec::new(), 0);
        let mut take = |known: Known<'a>| {
            endpoints += weight(&known);
            taken.push(known);
            endpoints >= at_least
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
        self.left = self.left.saturating_sub(endpoints);
        taken
    }
}

/// What a Service counts for: its endpoints, and what it has itself.
fn weight(known: &Known<'_>) -> usize {
    1 + known.slices.clone().map(|slice| slice.endpoints.len()).sum::<usize>()
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
