//! The ruleset as a syntax tree. Its `Display` is nft's own syntax: logs, goldens, `dump-rules` and
//! the stock `nft list ruleset` speak one language.
//!
//! Statements are as large as the rules need them, not as small as nf_tables' expressions: the
//! walker can match on them and the encoder has one function each.

use std::borrow::Cow;
use std::fmt;

use ipnet::IpNet;
use zw_model::{Family, Protocol};

use crate::config::Balance;
use crate::sets::{ADDRESS_KEY, NODE_PORT_KEY, SetName};

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
    /// `ct original ip daddr`: where the connection went before it was redirected.
    OriginalDaddr,
    /// `ct original proto-dst`
    OriginalDport,
    /// `numgen random mod N`
    Pick(u32),
    /// `numgen inc mod N`
    Next(u32),
}

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
    /// Its elements may span from one key to another.
    pub ranges: bool,
    /// Its elements are made by packets, which they count: nobody else writes them or compares them.
    pub counts: bool,
    /// How many elements it may have, if that is limited.
    pub size: Option<u32>,
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
    /// `ip saddr 10.244.0.0/16`
    From(IpNet),
    /// `ip saddr != 10.244.0.0/16`
    NotFrom(IpNet),
    /// `ip daddr != 127.0.0.0/8`
    NotTo(IpNet),
    /// `iifname "veth*"`
    Via(Interface),
    /// `iifname != "veth*"`
    NotVia(Interface),
    /// `fib saddr type local`: from one of the node's own addresses.
    FromNode,
    /// `fib daddr type local`: to one of the node's own addresses.
    ToNode,
    /// `meta l4proto tcp`
    Protocol(Protocol),
    /// `ip daddr . … @set`
    In(&'static [Field], SetName),
    /// `ip daddr . … != @set`
    NotIn(&'static [Field], SetName),
    /// `ip daddr . … vmap @set`
    Dispatch(&'static [Field], SetName),
    /// `update @set { ip daddr . … }`: counts, for the first time or once more.
    Count(&'static [Field], SetName),
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
        /// How.
        balance: Balance,
    },
    /// `dnat ip to ip saddr map @affinity-…`: back to where this client went before.
    DnatAsBefore(String),
    /// `update @affinity-… { ct original ip saddr timeout 3h : ip daddr . th dport }`: remembers where
    /// this client went, or that it is still there.
    Remember {
        /// The affinity map.
        map: String,
        /// For how many seconds.
        timeout: u32,
    },
    /// `masquerade fully-random`
    Masquerade,
    /// `reject`: with ICMP's port unreachable
    Reject,
    /// `drop`
    Drop,
    /// `accept`: nothing more to be done at this hook.
    Accept,
    /// `jump chain`
    Jump(Cow<'static, str>),
    /// `goto chain`
    Goto(Cow<'static, str>),
}

/// An interface by its name or the beginning of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The name.
    pub name: String,
    /// Any name that begins like this.
    pub prefix: bool,
}

impl Statement {
    /// What a [`Statement::Dnat`] looks up.
    pub fn dnat_key(slots: u32, map: SetName, balance: Balance) -> Vec<Field> {
        let slot = match balance {
            Balance::Random => Field::Pick(slots),
            Balance::RoundRobin => Field::Next(slots),
        };
        let node_port = matches!(map, SetName::NodePortEndpoints | SetName::NodePortLocalEndpoints);
        let key = if node_port { NODE_PORT_KEY } else { ADDRESS_KEY };
        [key, &[slot]].concat()
    }
}

impl Chain {
    /// Its rules as nft writes them.
    pub fn texts(&self, family: Family) -> Vec<String> {
        self.rules.iter().map(|rule| InFamily::<Rule>(family, rule).to_string()).collect()
    }

    /// One word per rule that changes when the rule does; kept in the rule's userdata, so that a
    /// restart can tell what is there without decoding rules. In the rules and not in the chain,
    /// because the kernel never changes the userdata a chain was made with, and a chain that Services
    /// refer to cannot be made anew.
    pub fn fingerprints(&self, family: Family) -> Vec<String> {
        let texts = self.texts(family).into_iter();
        texts.map(|text| format!("zw-{:016x}", fingerprint(&text))).collect()
    }
}

/// FNV-1a: std's hasher may change between Rust releases, which would rewrite every rule.
pub(crate) fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
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
            Field::OriginalDaddr => write!(f, "ct original {ip} daddr"),
            Field::OriginalDport => f.write_str("ct original proto-dst"),
            Field::Pick(n) => write!(f, "numgen random mod {n}"),
            Field::Next(n) => write!(f, "numgen inc mod {n}"),
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
            Statement::From(net) => write!(f, "{ip} saddr {net}"),
            Statement::NotFrom(net) => write!(f, "{ip} saddr != {net}"),
            Statement::NotTo(net) if net.prefix_len() == net.max_prefix_len() => {
                write!(f, "{ip} daddr != {}", net.addr())
            }
            Statement::NotTo(net) => write!(f, "{ip} daddr != {net}"),
            Statement::Via(interface) => write!(f, "iifname {interface}"),
            Statement::NotVia(interface) => write!(f, "iifname != {interface}"),
            Statement::FromNode => f.write_str("fib saddr type local"),
            Statement::ToNode => f.write_str("fib daddr type local"),
            Statement::Protocol(protocol) => write!(f, "meta l4proto {protocol}"),
            Statement::In(key, set) => write!(f, "{} @{set}", InFamily(family, *key)),
            Statement::NotIn(key, set) => write!(f, "{} != @{set}", InFamily(family, *key)),
            Statement::Dispatch(key, set) => write!(f, "{} vmap @{set}", InFamily(family, *key)),
            Statement::Count(key, set) => {
                write!(f, "update @{set} {{ {} }}", InFamily(family, *key))
            }
            Statement::Marked(bit) => write!(f, "meta mark & {bit:#010x} == {bit:#010x}"),
            Statement::Mark(bit) => write!(f, "meta mark set meta mark | {bit:#010x}"),
            Statement::Unmark(bit) => write!(f, "meta mark set meta mark ^ {bit:#010x}"),
            Statement::Dnat { slots, map, balance } => {
                let key = Statement::dnat_key(*slots, *map, *balance);
                write!(f, "dnat {ip} to {} map @{map}", InFamily(family, &key[..]))
            }
            Statement::DnatAsBefore(map) => write!(f, "dnat {ip} to {ip} saddr map @{map}"),
            Statement::Remember { map, timeout } => {
                let timeout = Period(*timeout);
                write!(
                    f,
                    "update @{map} {{ ct original {ip} saddr timeout {timeout} : {ip} daddr . th dport }}"
                )
            }
            Statement::Masquerade => f.write_str("masquerade fully-random"),
            Statement::Reject => f.write_str("reject"),
            Statement::Drop => f.write_str("drop"),
            Statement::Accept => f.write_str("accept"),
            Statement::Jump(chain) => write!(f, "jump {chain}"),
            Statement::Goto(chain) => write!(f, "goto {chain}"),
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}{}\"", self.name, if self.prefix { "*" } else { "" })
    }
}

/// Seconds as nft writes them: `1d2h3m4s`.
struct Period(u32);

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0;
        let parts = [
            (seconds / 86_400, "d"),
            (seconds / 3_600 % 24, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
        ];
        parts.into_iter().filter(|(n, _)| *n > 0).try_for_each(|(n, unit)| write!(f, "{n}{unit}"))
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            HookKind::Filter => "filter",
            HookKind::Nat => "nat",
        };
        write!(f, "type {kind} hook {} priority {}; policy accept;", self.point, self.priority)
    }
}

impl fmt::Display for HookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HookPoint::Prerouting => "prerouting",
            HookPoint::Input => "input",
            HookPoint::Forward => "forward",
            HookPoint::Output => "output",
            HookPoint::Postrouting => "postrouting",
        })
    }
}

/// The word nft uses for a family's table and header.
pub(crate) fn keyword(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}
