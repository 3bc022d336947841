//! What the kernel tells of packets that are traced: every rule that matched, table by table.
//!
//! Owns the subscription. Which packets are traced is decided by a rule somebody writes
//! (`meta nftrace set 1`).

use std::os::fd::{AsFd, BorrowedFd};

use super::constants::*;
use super::reply::{Message, parse_messages};
use crate::Error;
use crate::attr::malformed;
use crate::socket::RawSocket;

/// The kernel sends one message a datagram, with the packet's headers at most.
const RECEIVE_SIZE: usize = 16 << 10;
/// A bound, not an allocation: some thousands of events.
const RECEIVE_BUFFER: libc::c_int = 4 << 20;

/// A subscription to traces.
pub struct Tracer {
    raw: RawSocket,
    buf: Box<[u8]>,
}

/// Something a traced packet met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The packet: the same number for all that one packet meets.
    pub id: u32,
    /// The kernel's `NFPROTO_*` of the table.
    pub nfproto: u8,
    /// The table.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// What it met.
    pub kind: TraceKind,
    /// The number of the rule.
    pub handle: Option<u64>,
    /// What that decided.
    pub verdict: TraceVerdict,
    /// Its network and transport headers; told once for each base chain.
    pub headers: Option<(Vec<u8>, Vec<u8>)>,
}

/// What a traced packet met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// A rule that matched.
    Rule,
    /// The end of a chain that was jumped to.
    Return,
    /// The end of a base chain.
    Policy,
}

/// What was decided of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceVerdict {
    /// On with the next rule.
    Continue,
    /// No further here; the next hook goes on.
    Accept,
    /// Gone.
    Drop,
    /// On in another chain.
    To(String),
    /// Another one, by the kernel's number.
    Other(i32),
}

impl Tracer {
    /// Subscribes in the network namespace of the calling thread.
    pub fn open() -> Result<Self, Error> {
        let raw = RawSocket::open(RECEIVE_BUFFER)?;
        raw.subscribe(NFNLGRP_NFTRACE)?;
        Ok(Self { raw, buf: vec![0; RECEIVE_SIZE].into_boxed_slice() })
    }

    /// Reads what is queued and gives it to `each`. False if nothing was: wait for the descriptor.
    pub fn read(&mut self, each: &mut dyn FnMut(TraceEvent)) -> Result<bool, Error> {
        let Some(len) = self.raw.try_receive(&mut self.buf)? else { return Ok(false) };
        for message in parse_messages(&self.buf[..len]) {
            if let Some(event) = parse_trace(&message?)? {
                each(event);
            }
        }
        Ok(true)
    }
}

impl AsFd for Tracer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_fd()
    }
}

/// Reads a trace message; none if it is another one.
pub fn parse_trace(message: &Message<'_>) -> Result<Option<TraceEvent>, Error> {
    if message.kind != NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_TRACE {
        return Ok(None);
    }
    let (family, attrs) = message.body()?;
    let mut event = TraceEvent {
        id: 0,
        nfproto: family,
        table: String::new(),
        chain: String::new(),
        kind: TraceKind::Rule,
        handle: None,
        verdict: TraceVerdict::Continue,
        headers: None,
    };
    let (mut network, mut transport) = (None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_TRACE_TABLE => event.table = attr.text(),
            NFTA_TRACE_CHAIN => event.chain = attr.text(),
            NFTA_TRACE_RULE_HANDLE => event.handle = Some(attr.u64()?),
            NFTA_TRACE_ID => event.id = attr.u32()?,
            NFTA_TRACE_NFPROTO => event.nfproto = attr.u32()? as u8,
            NFTA_TRACE_TYPE => {
                event.kind = match attr.u32()? {
                    NFT_TRACETYPE_RULE => TraceKind::Rule,
                    NFT_TRACETYPE_RETURN => TraceKind::Return,
                    NFT_TRACETYPE_POLICY => TraceKind::Policy,
                    _ => return Err(malformed("trace of an unknown type")),
                }
            }
            NFTA_TRACE_POLICY => event.verdict = verdict(attr.u32()? as i32, None),
            NFTA_TRACE_VERDICT => {
                let (mut code, mut chain) = (0, None);
                for part in attr.nested() {
                    let part = part?;
                    match part.kind {
                        NFTA_VERDICT_CODE => code = part.u32()? as i32,
                        NFTA_VERDICT_CHAIN => chain = Some(part.text()),
                        _ => {}
                    }
                }
                event.verdict = verdict(code, chain);
            }
            NFTA_TRACE_NETWORK_HEADER => network = Some(attr.payload.to_vec()),
            NFTA_TRACE_TRANSPORT_HEADER => transport = Some(attr.payload.to_vec()),
            _ => {}
        }
    }
    event.headers = network.zip(transport);
    Ok(Some(event))
}

/// `NF_DROP`, `NF_ACCEPT` and nf_tables' own, which are negative.
fn verdict(code: i32, chain: Option<String>) -> TraceVerdict {
    match (code, chain) {
        (0, _) => TraceVerdict::Drop,
        (1, _) => TraceVerdict::Accept,
        (-1, _) => TraceVerdict::Continue,
        (-4 | -3, Some(chain)) => TraceVerdict::To(chain),
        (other, _) => TraceVerdict::Other(other),
    }
}
