//! nf_tables: what can be written, sent and read back.
//!
//! [`Batch`] encodes operations, [`Socket`] commits them as one transaction and dumps what the
//! kernel holds, [`Monitor`] and [`Watch`] tell what anybody changes, [`Tracer`] what packets meet, [`reply`] parses bytes. The small types that name kernel objects live here.

mod batch;
mod chain;
mod client;
mod constants;
mod element;
mod expr;
mod load;
mod monitor;
mod notice;
pub mod reply;
mod set;
mod trace;
mod userdata;
mod watch;

pub use crate::error::Error;
pub use batch::Batch;
pub use chain::{ChainSpec, Hook, HookKind, HookPoint};
pub use client::{Committed, Socket};
pub use element::{Element, ElementData};
pub use expr::{
    CmpOp, Expr, NAT_FULLY_RANDOM, NAT_PERSISTENT, NAT_RANDOM, REG_VERDICT, REG32_00, RejectWith,
    Verdict,
};
pub use load::{CtKey, FibAddress, MetaKey, NameMatch, PayloadBase, RTN_LOCAL};
pub use monitor::{Monitor, Subscription};
pub use notice::{Change, Elements, Generation, Notice, Object, Verb, parse_notice};
pub use reply::{ChainInfo, DumpedElement, RuleInfo, SetInfo, TableInfo};
pub use set::{SetData, SetSpec, TypeOf};
pub use trace::{TraceEvent, TraceKind, TraceVerdict, Tracer, parse_trace};
pub use watch::Watch;

/// The protocol family of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4, `ip` in nft.
    Ip,
    /// IPv6, `ip6` in nft.
    Ip6,
}

impl Family {
    /// The kernel's `NFPROTO_*`.
    pub fn nfproto(self) -> u8 {
        match self {
            Self::Ip => 2,
            Self::Ip6 => 10,
        }
    }

    /// The family of an `NFPROTO_*`; none for those we never write (inet, arp, bridge, netdev).
    pub fn from_nfproto(number: u8) -> Option<Self> {
        match number {
            2 => Some(Self::Ip),
            10 => Some(Self::Ip6),
            _ => None,
        }
    }
}

/// An operation of a batch, counted from 0 in the order of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u32);
