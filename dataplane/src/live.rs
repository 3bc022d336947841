//! One real packet's way through every table of this host, told by the kernel.
//!
//! Writes a table of its own, never ours: one rule that switches the kernel's trace on for new
//! connections of one client to one place. The table is owned by its socket, so it goes with the process,
//! however that ends.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zw_model::{Family, Protocol};
use zw_netlink::Error;
use zw_netlink::nft::{Batch, ChainSpec, Hook, HookKind, HookPoint, Socket, Tracer};
pub use zw_netlink::nft::{TraceEvent, TraceKind, TraceVerdict};
use zw_plan::{Statement, TABLE};

use crate::error::WriteError;
use crate::kernel::reading;
use crate::nft::{family as netlink_family, rules};

/// Right after connection tracking, which tells what is new; before everybody who decides.
const AFTER_CONNTRACK: i32 = -199;

/// A packet that says nothing for so long has nothing more to say.
const QUIET: Duration = Duration::from_millis(300);

/// A trace that is switched on.
pub struct LiveTrace {
    /// Closing it ends the table, if nothing else has.
    owner: Socket,
    family: Family,
    table: String,
    tracer: Tracer,
    /// Where each of our rules is, by its number.
    rules: BTreeMap<u64, (String, usize)>,
}

impl LiveTrace {
    /// Traces new connections of `from` to `to`.
    pub fn start(from: IpAddr, to: SocketAddr, protocol: Protocol) -> Result<Self, WriteError> {
        let what = "the kernel's trace";
        let of = Family::of(to.ip());
        let family = netlink_family(of);
        let mut socket = Socket::open().map_err(|error| reading(what, error))?;
        let mut rules: BTreeMap<u64, (String, usize)> = BTreeMap::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let list = socket.rule_list(family, TABLE).map_err(|error| reading(what, error))?;
        for rule in list {
            let place = places.entry(rule.chain.clone()).or_default();
            if let Some(handle) = rule.handle {
                rules.insert(handle, (rule.chain, *place));
            }
            *place += 1;
        }
        let tracer = Tracer::open().map_err(|error| reading(what, error))?;
        let table = format!("zoneward-trace-{}", std::process::id());
        let mut batch = Batch::new();
        batch.add_owned_table(family, &table);
        let matches = [Statement::New, Statement::Protocol(protocol), Statement::From(from.into())];
        let mut exprs = rules::encode(of, &matches.to_vec());
        exprs.extend(rules::to_and_trace(of, to));
        for (name, point) in [("incoming", HookPoint::Prerouting), ("own", HookPoint::Output)] {
            let hook = Some(Hook { kind: HookKind::Filter, point, priority: AFTER_CONNTRACK });
            batch.add_chain(family, &table, &ChainSpec { name: name.into(), hook, comment: None });
            batch.add_rule(family, &table, name, &exprs, None);
        }
        socket.commit(&mut batch).map_err(|error| reading(what, error))?;
        Ok(Self { owner: socket, family: of, table, tracer, rules })
    }

    /// Waits for one packet, and returns all it met; none if there was no such packet in time.
    pub fn packet(&mut self, patience: Duration) -> Result<Vec<TraceEvent>, WriteError> {
        let mut end = Instant::now() + patience;
        let mut met: Vec<TraceEvent> = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.readable(left)? {
                return Ok(met);
            }
            let before = met.len();
            let mut take = |event: TraceEvent| {
                // Others may trace too, and the same client may send more.
                let ours = met.first().is_none_or(|first| first.id == event.id);
                if ours && (!met.is_empty() || event.table == self.table) {
                    met.push(event);
                }
            };
            self.tracer.read(&mut take).map_err(|error| reading("the kernel's trace", error))?;
            if met.len() > before {
                if before == 0 {
                    self.stop();
                }
                end = Instant::now() + QUIET;
            }
        }
    }

    /// One packet is enough: others shall not pay for it.
    fn stop(&mut self) {
        let mut batch = Batch::new();
        batch.delete_table(netlink_family(self.family), &self.table);
        if let Err(error) = self.owner.commit(&mut batch) {
            tracing::debug!(error = &error as &dyn std::error::Error, "the trace goes on for now");
        }
    }

    /// Which of our rules this is: its chain, and its place in it.
    pub fn rule(&self, event: &TraceEvent) -> Option<(&str, usize)> {
        let ours = event.table == TABLE;
        let (chain, place) = self.rules.get(&event.handle.filter(|_| ours)?)?;
        Some((chain, *place))
    }

    fn readable(&self, wait: Duration) -> Result<bool, WriteError> {
        let wait = Timespec::try_from(wait).ok();
        let mut waiting = [PollFd::from_borrowed_fd(self.tracer.as_fd(), PollFlags::IN)];
        match poll(&mut waiting, wait.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(errno) => {
                let source = io::Error::from(errno);
                Err(WriteError::Socket(Error::Socket { action: "wait for", source }))
            }
        }
    }
}
