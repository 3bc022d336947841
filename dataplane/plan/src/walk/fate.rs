//! A packet, and what becomes of it.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use zw_model::Protocol;

use crate::element::Element;
use crate::ipvs::VirtualKey;
use crate::ruleset::HookPoint;
use crate::sets::SetName;

/// The first packet of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Where it enters the node's hooks.
    pub origin: Origin,
    /// Source address.
    pub from: IpAddr,
    /// Destination.
    pub to: SocketAddr,
    /// Transport protocol.
    pub protocol: Protocol,
}

/// Where a packet comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A process on the node itself.
    Node,
    /// A pod or anything else that reaches the node through the interface of this name.
    Elsewhere(String),
}

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Given to one of these, each as likely as the number of slots it holds.
    Redirected(BTreeSet<Outcome>),
    /// Refused with an ICMP message.
    Rejected,
    /// Lost without a word.
    Dropped,
    /// Not Zoneward's business: goes where it was sent.
    Untouched,
    /// It got to a chain whose rules are not ours.
    Unknown {
        /// The chain.
        chain: String,
    },
}

/// One way a packet can leave the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outcome {
    /// The endpoint.
    pub to: SocketAddr,
    /// The endpoint sees the node's address as the source.
    pub masqueraded: bool,
}

/// A packet's fate and the rules it met.
#[derive(Debug, Clone)]
pub struct Walk {
    /// The end.
    pub fate: Fate,
    /// Each rule that matched, in order, until an endpoint was picked.
    pub steps: Vec<Step>,
    /// One for each endpoint it may be given to.
    pub ways: Vec<Way>,
    /// The virtual server whose scheduler picks one of these; `None`: the rules do.
    pub server: Option<VirtualKey>,
}

/// A rule that matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Where on its way the packet was.
    pub hook: HookPoint,
    /// The chain.
    pub chain: String,
    /// The rule, as nft writes it.
    pub rule: String,
    /// The elements it found, each with its set.
    pub found: Vec<(SetName, Element)>,
}

/// What happens once an endpoint is picked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The end.
    pub outcome: Outcome,
    /// How many of all slots lead there.
    pub slots: u32,
    /// Each rule that matched from there on.
    pub steps: Vec<Step>,
}

impl Walk {
    /// Each rule that matched, as `chain: rule`.
    pub fn rules(&self) -> Vec<String> {
        let after = self.ways.iter().flat_map(|way| &way.steps);
        let all = self.steps.iter().chain(after);
        all.map(|step| format!("{}: {}", step.chain, step.rule)).collect()
    }

    /// The Service port it met, as the kernel keeps it: `namespace/name:port`.
    pub fn service(&self) -> Option<&str> {
        let found = self.steps.iter().flat_map(|step| &step.found);
        found.filter_map(|(_, element)| element.comment.as_deref()).next()
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::Rejected => f.write_str("rejected"),
            Fate::Dropped => f.write_str("dropped"),
            Fate::Untouched => f.write_str("untouched"),
            Fate::Unknown { chain } => write!(f, "unknown from chain {chain} on"),
            Fate::Redirected(outcomes) => {
                f.write_str("reaches")?;
                outcomes.iter().try_for_each(|outcome| {
                    write!(f, " {}", outcome.to)?;
                    if outcome.masqueraded { f.write_str(" (as the node)") } else { Ok(()) }
                })
            }
        }
    }
}
