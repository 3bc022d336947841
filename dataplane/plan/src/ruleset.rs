//! The ruleset as a syntax tree. Its `Display` is nft's own syntax: logs, goldens, `dump-rules` and
//! the stock `nft list ruleset` speak one language.
//!
//! Statements are as large as the rules need them, not as small as nf_tables' expressions: the
//! walker can match on them and the encoder has one function each.

use std::fmt;

use ipnet::IpNet;
use zw_model::Family;

/// The sets and maps of the table; everything that grows with the cluster lives in one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetName {
    /// Service address, protocol, port: which chain picks an endpoint.
    Services,
    /// The same keys with a counter each. A set of its own, because a Service's element in
    /// `services` is replaced whenever its number of endpoints changes, which would reset it.
    Connections,
    /// Service address, protocol, port, slot: the endpoint.
    Endpoints,
    /// Service ports without a usable endpoint.
    NoEndpoints,
    /// Addresses of this node's endpoints, twice: a pod that reaches itself through a Service.
    Hairpin,
}

impl SetName {
    /// In the order they are created and printed.
    pub const ALL: [SetName; 5] = [
        SetName::Services,
        SetName::Connections,
        SetName::Endpoints,
        SetName::NoEndpoints,
        SetName::Hairpin,
    ];

    /// The name in the kernel.
    pub fn as_str(self) -> &'static str {
        match self {
            SetName::Services => "services",
            SetName::Connections => "connections",
            SetName::Endpoints => "endpoints",
            SetName::NoEndpoints => "no-endpoints",
            SetName::Hairpin => "hairpin",
        }
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One field of a concatenation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// `ip saddr`
    Saddr,
    /// `ip daddr`
    Daddr,
    /// `meta l4proto`
    Protocol,
    /// `th dport`
    Dport,
    /// `numgen random mod N`
    Pick(u32),
}

/// Service address, protocol and port: what a packet to a Service is recognised by.
pub(crate) const FRONTEND: &[Field] = &[Field::Daddr, Field::Protocol, Field::Dport];

/// What a set's elements map to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetData {
    /// A plain set.
    None,
    /// A verdict map.
    Verdict,
    /// A map to registers.
    Fields(&'static [Field]),
}

/// The definition of a set or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetDef {
    /// Its name.
    pub name: SetName,
    /// The fields of its key.
    pub key: &'static [Field],
    /// What it maps to.
    pub data: SetData,
    /// Every element counts the packets that match it.
    pub counter: bool,
}

/// Where a base chain hooks in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// Its type.
    pub kind: HookKind,
    /// The hook.
    pub point: HookPoint,
    /// Its priority.
    pub priority: i32,
}

/// A base chain's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookKind {
    /// `type filter`
    Filter,
    /// `type nat`
    Nat,
}

/// Where on its way a packet is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPoint {
    /// Before routing.
    Prerouting,
    /// To this node.
    Input,
    /// Through this node.
    Forward,
    /// From this node.
    Output,
    /// After routing.
    Postrouting,
}

/// A chain with its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// A base chain has one.
    pub hook: Option<Hook>,
    /// In order.
    pub rules: Vec<Rule>,
}

/// A rule: all statements in order, until one does not match.
pub type Rule = Vec<Statement>;

/// A match or an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// `ct state new`
    New,
    /// `ct status dnat`: only what this host has redirected.
    Redirected,
    /// `ip saddr != 10.244.0.0/16`
    NotFrom(IpNet),
    /// `ip daddr . … @set`: matches, and counts if the set has counters.
    In(&'static [Field], SetName),
    /// `ip daddr . … vmap @set`
    Dispatch(&'static [Field], SetName),
    /// `meta mark & 0x4000 == 0x4000`
    Marked(u32),
    /// `meta mark set meta mark | 0x4000`
    Mark(u32),
    /// `meta mark set meta mark ^ 0x4000`
    Unmark(u32),
    /// `dnat ip to ip daddr . … . numgen random mod 3 map @endpoints`
    Dnat {
        /// How many endpoints to choose from.
        slots: u32,
        /// The map.
        map: SetName,
    },
    /// `masquerade fully-random`
    Masquerade,
    /// `reject`: with ICMP's port unreachable
    Reject,
    /// `jump chain`
    Jump(&'static str),
    /// `goto chain`
    Goto(&'static str),
}

impl Chain {
    /// One word per rule that changes when the rule does; kept in the rule's userdata, so that a
    /// restart can tell what is there without decoding rules. In the rules and not in the chain,
    /// because the kernel never changes the userdata a chain was made with, and a chain that Services
    /// refer to cannot be made anew.
    pub fn fingerprints(&self, family: Family) -> Vec<String> {
        let fingerprint = |rule| {
            let text = InFamily::<Rule>(family, rule).to_string();
            // FNV-1a: std's hasher may change between Rust releases, which would rewrite every rule.
            let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            format!("zw-{hash:016x}")
        };
        self.rules.iter().map(fingerprint).collect()
    }
}

/// Something to print as nft writes it in the table of one family.
pub(crate) struct InFamily<'a, T: ?Sized>(pub(crate) Family, pub(crate) &'a T);

impl fmt::Display for InFamily<'_, Field> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = keyword(self.0);
        match self.1 {
            Field::Saddr => write!(f, "{ip} saddr"),
            Field::Daddr => write!(f, "{ip} daddr"),
            Field::Protocol => f.write_str("meta l4proto"),
            Field::Dport => f.write_str("th dport"),
            Field::Pick(n) => write!(f, "numgen random mod {n}"),
        }
    }
}

impl fmt::Display for InFamily<'_, [Field]> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, field) in self.1.iter().enumerate() {
            if i > 0 {
                f.write_str(" . ")?;
            }
            InFamily(self.0, field).fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for InFamily<'_, Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, statement) in self.1.iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            InFamily(self.0, statement).fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for InFamily<'_, Statement> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (family, ip) = (self.0, keyword(self.0));
        match self.1 {
            Statement::New => f.write_str("ct state new"),
            Statement::Redirected => f.write_str("ct status dnat"),
            Statement::NotFrom(net) => write!(f, "{ip} saddr != {net}"),
            Statement::In(key, set) => write!(f, "{} @{set}", InFamily(family, *key)),
            Statement::Dispatch(key, set) => write!(f, "{} vmap @{set}", InFamily(family, *key)),
            Statement::Marked(bit) => write!(f, "meta mark & {bit:#010x} == {bit:#010x}"),
            Statement::Mark(bit) => write!(f, "meta mark set meta mark | {bit:#010x}"),
            Statement::Unmark(bit) => write!(f, "meta mark set meta mark ^ {bit:#010x}"),
            Statement::Dnat { slots, map } => {
                let key = [FRONTEND, &[Field::Pick(*slots)]].concat();
                write!(f, "dnat {ip} to {} map @{map}", InFamily(family, &key[..]))
            }
            Statement::Masquerade => f.write_str("masquerade fully-random"),
            Statement::Reject => f.write_str("reject"),
            Statement::Jump(chain) => write!(f, "jump {chain}"),
            Statement::Goto(chain) => write!(f, "goto {chain}"),
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            HookKind::Filter => "filter",
            HookKind::Nat => "nat",
        };
        let point = match self.point {
            HookPoint::Prerouting => "prerouting",
            HookPoint::Input => "input",
            HookPoint::Forward => "forward",
            HookPoint::Output => "output",
            HookPoint::Postrouting => "postrouting",
        };
        write!(f, "type {kind} hook {point} priority {}; policy accept;", self.priority)
    }
}

/// The word nft uses for a family's table and header.
pub(crate) fn keyword(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}
