//! Zoneward's pure core: from Services and slices to a declarative nftables ruleset, and in the ipvs
//! mode virtual servers, and back to the smallest set of changes.
//!
//! ```text
//! Service + slices ─▶ select ─▶ slots ─▶ service (PortRules) ─▶ desired ─▶ Changes
//!                                                     kernel's own view ─▶ adopt ─┘
//! ```
//!
//! The ruleset's cost follows its shape, not the number of Services: everything that grows with a
//! cluster is an element of a few named maps, chains exist per number of endpoints. Nothing here
//! does IO or reads a clock; the same input always gives the same bytes.

mod adopt;
mod base;
mod changes;
mod config;
mod desired;
mod digest;
mod drift;
mod element;
mod expected;
mod frontend;
mod ipvs;
mod part;
mod rules;
mod ruleset;
mod select;
mod service;
mod sets;
mod shape;
mod slots;
mod surroundings;
mod table;
mod walk;

#[cfg(feature = "testing")]
pub mod testing;

pub use adopt::{Actual, ActualChain, ActualTable, bring_to, decode_frontend};
pub use base::{TABLE, base_table};
pub use changes::{Changes, Place, TableChanges};
pub use config::{Balance, PlanConfig, Pods};
pub use desired::{Contested, Desired};
pub use digest::{Digest, SetDigest, TableDigest};
pub use drift::{ChainDrift, Drift, TableDrift};
pub use element::{Data, Element, Key, Value, decode};
pub use expected::Expected;
pub use frontend::{At, Frontend};
pub use ipvs::{
    ActualIpvs, ActualServer, Draining, Drains, IpvsChanges, Link, Operation, Operations,
    ServerSettings, VirtualKey, VirtualServer, WEIGHT,
};
pub use part::Part;
pub use ruleset::{
    Chain, Field, Hook, HookKind, HookPoint, Interface, Rule, SetData, SetDef, Statement,
};
pub use select::{Candidate, Selection, Tier, Verdict, Why, WhyNot, select};
pub use service::{Backend, Backends, Exposure, PortRules, ServiceRules, Slots, plan_service};
pub use sets::{SetName, sets};
pub use shape::{AFFINITY, AFFINITY_SIZE, Shape};
pub use slots::assign;
pub use surroundings::Surroundings;
pub use table::{ApplyError, Table, show_element, show_key};
pub use walk::{Fate, Origin, Outcome, Packet, Step, Walk, Way, walk, walk_with};
