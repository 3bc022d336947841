//! A packet's way through a table, without a kernel: every endpoint it could be given to, or why it
//! is not. The same packet cases run here and on a real kernel, which keeps this honest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use zw_model::Protocol;

use crate::element::{Data, Key, Value, decode};
use crate::ipvs::{VirtualKey, VirtualServer};
use crate::ruleset::{Chain, Field, HookKind, HookPoint, InFamily, Interface, Statement};
use crate::sets::{ENDPOINT, SetName};
use crate::table::Table;

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
    /// Each rule that matched, as `chain: rule`, in order.
    pub rules: Vec<String>,
}

/// The packet on its way: what the rules have made of it so far.
struct Walker<'a> {
    table: &'a Table,
    /// The node's own addresses.
    node: &'a [IpAddr],
    packet: Packet,
    /// Where the packet was going before anything was rewritten.
    sent_to: SocketAddr,
    mark: u32,
    /// Every endpoint the packet may have been given to.
    redirected: Option<Vec<SocketAddr>>,
    rules: Vec<String>,
}

/// How a chain ends.
enum End {
    /// At its last rule: the caller, or the next chain at the hook, goes on.
    Continue,
    /// The packet is settled at this hook.
    Settled,
    Masqueraded,
    Rejected,
    Dropped,
}

/// When on its way through a hook that is visited twice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Before addresses are rewritten.
    Before,
    After,
}

/// Sends a packet through the table of a node with these addresses.
pub fn walk(table: &Table, node: &[IpAddr], packet: Packet) -> Walk {
    walk_with(table, &BTreeMap::new(), node, packet)
}

/// The same in the ipvs mode: IPVS takes a packet after it was filtered on its way in, and before that on
/// its way out.
pub fn walk_with(
    table: &Table,
    servers: &BTreeMap<VirtualKey, VirtualServer>,
    node: &[IpAddr],
    packet: Packet,
) -> Walk {
    let first = match packet.origin {
        Origin::Node => HookPoint::Output,
        Origin::Elsewhere(_) => HookPoint::Prerouting,
    };
    let sent_to = packet.to;
    let mut walker =
        Walker { table, node, packet, sent_to, mark: 0, redirected: None, rules: Vec::new() };
    let mut end = walker.hook(HookKind::Filter, first, When::Before);
    if matches!(end, End::Continue) {
        walker.hook(HookKind::Nat, first, When::After);
        let here =
            |addr: IpAddr| node.contains(&addr) || servers.keys().any(|server| server.addr == addr);
        if first == HookPoint::Output {
            walker.by_ipvs(servers);
        }
        let second = match first {
            HookPoint::Prerouting if here(walker.packet.to.ip()) => HookPoint::Input,
            HookPoint::Prerouting => HookPoint::Forward,
            output => output,
        };
        end = walker.hook(HookKind::Filter, second, When::After);
    }
    let stopped = match end {
        End::Rejected => Some(Fate::Rejected),
        End::Dropped => Some(Fate::Dropped),
        _ => None,
    };
    if let Some(fate) = stopped {
        return Walk { fate, rules: walker.rules };
    }
    if first == HookPoint::Prerouting {
        walker.by_ipvs(servers);
    }
    let Some(backends) = walker.redirected.clone() else {
        return Walk { fate: Fate::Untouched, rules: walker.rules };
    };
    let mark = walker.mark;
    let outcomes = backends.into_iter().map(|to| {
        walker.packet.to = to;
        walker.mark = mark;
        let end = walker.hook(HookKind::Nat, HookPoint::Postrouting, When::After);
        Outcome { to, masqueraded: matches!(end, End::Masqueraded) }
    });
    let fate = Fate::Redirected(outcomes.collect());
    Walk { fate, rules: walker.rules }
}

impl Walker<'_> {
    /// To the real servers, if a virtual one is meant.
    fn by_ipvs(&mut self, servers: &BTreeMap<VirtualKey, VirtualServer>) {
        let (addr, port) = (self.packet.to.ip(), self.packet.to.port());
        let key = VirtualKey { addr, protocol: self.packet.protocol, port };
        if let Some(server) = servers.get(&key) {
            let reals: Vec<SocketAddr> = server.reals.iter().map(|real| real.addr).collect();
            self.packet.to = reals[0];
            self.redirected = Some(reals);
        }
    }

    fn hook(&mut self, kind: HookKind, point: HookPoint, when: When) -> End {
        /// Of the chains that rewrite destinations.
        const DSTNAT: i32 = -100;
        let table = self.table;
        let at_hook = |chain: &&Chain| {
            chain.hook.is_some_and(|hook| {
                let before = if hook.priority < DSTNAT { When::Before } else { When::After };
                hook.kind == kind && hook.point == point && before == when
            })
        };
        for chain in table.chains.values().filter(at_hook) {
            match self.chain(chain) {
                End::Continue => {}
                end => return end,
            }
        }
        End::Continue
    }

    fn chain(&mut self, chain: &Chain) -> End {
        for rule in &chain.rules {
            let mut text = None;
            for statement in rule {
                match self.statement(statement) {
                    Step::NoMatch => {
                        text = None;
                        break;
                    }
                    Step::Match => text = Some(rule),
                    Step::Jump(name) => {
                        self.note(chain, rule);
                        match self.named(&name) {
                            End::Continue => {}
                            end => return end,
                        }
                        text = None;
                    }
                    Step::Goto(name) => {
                        self.note(chain, rule);
                        // A goto's end is the end of the chain that was left.
                        return self.named(&name);
                    }
                    Step::End(end) => {
                        self.note(chain, rule);
                        return end;
                    }
                }
            }
            if let Some(rule) = text {
                self.note(chain, rule);
            }
        }
        End::Continue
    }

    fn named(&mut self, name: &str) -> End {
        let table = self.table;
        table.chains.get(name).map_or(End::Continue, |chain| self.chain(chain))
    }

    fn note(&mut self, chain: &Chain, rule: &Vec<Statement>) {
        self.rules.push(format!("{}: {}", chain.name, InFamily(self.table.family, rule)));
    }

    fn statement(&mut self, statement: &Statement) -> Step {
        let matched = |yes: bool| if yes { Step::Match } else { Step::NoMatch };
        match statement {
            Statement::New => Step::Match,
            Statement::Redirected => matched(self.redirected.is_some()),
            Statement::From(net) => matched(net.contains(&self.packet.from)),
            Statement::NotFrom(net) => matched(!net.contains(&self.packet.from)),
            Statement::NotTo(net) => matched(!net.contains(&self.packet.to.ip())),
            Statement::Via(interface) => matched(self.came_through(interface)),
            Statement::NotVia(interface) => matched(!self.came_through(interface)),
            Statement::FromNode => matched(self.node.contains(&self.packet.from)),
            Statement::ToNode => matched(self.node.contains(&self.packet.to.ip())),
            Statement::Protocol(protocol) => matched(self.packet.protocol == *protocol),
            Statement::In(key, set) => matched(self.look_up(key, *set, None).is_some()),
            Statement::NotIn(key, set) => matched(self.look_up(key, *set, None).is_none()),
            Statement::Dispatch(key, set) => match self.look_up(key, *set, None) {
                Some(Data::Goto(chain)) => Step::Goto(chain),
                _ => Step::NoMatch,
            },
            Statement::Marked(bit) => matched(self.mark & bit == *bit),
            Statement::Mark(bit) => {
                self.mark |= bit;
                Step::Match
            }
            Statement::Unmark(bit) => {
                self.mark ^= bit;
                Step::Match
            }
            Statement::Dnat { slots, map, balance } => {
                let key = Statement::dnat_key(*slots, *map, *balance);
                let backends: Option<Vec<SocketAddr>> = (0..*slots)
                    .map(|slot| match self.look_up(&key, *map, Some(slot))? {
                        Data::Value(value) => self.socket_address(&value),
                        _ => None,
                    })
                    .collect();
                // An empty slot would let the packet through unchanged; that is a planning error,
                // and shows as an untouched packet.
                self.redirected = backends;
                if let Some(first) = self.redirected.as_ref().and_then(|b| b.first()) {
                    self.packet.to = *first;
                    Step::End(End::Settled)
                } else {
                    Step::NoMatch
                }
            }
            // This is the first packet anybody sends.
            Statement::DnatAsBefore(_) => Step::NoMatch,
            Statement::Remember { .. } => Step::Match,
            Statement::Masquerade => Step::End(End::Masqueraded),
            Statement::Reject => Step::End(End::Rejected),
            Statement::Drop => Step::End(End::Dropped),
            Statement::Jump(chain) => Step::Jump((*chain).into()),
            Statement::Goto(chain) => Step::Goto(chain.clone().into_owned()),
        }
    }

    fn came_through(&self, interface: &Interface) -> bool {
        match &self.packet.origin {
            Origin::Node => false,
            Origin::Elsewhere(name) if interface.prefix => name.starts_with(&interface.name),
            Origin::Elsewhere(name) => *name == interface.name,
        }
    }

    fn look_up(&self, fields: &[Field], set: SetName, slot: Option<u32>) -> Option<Data> {
        let key = fields.iter().fold(Key::new(), |key, field| match field {
            Field::Saddr => key.addr(self.packet.from),
            Field::Daddr => key.addr(self.packet.to.ip()),
            Field::OriginalDaddr => key.addr(self.sent_to.ip()),
            Field::OriginalDport => key.port(self.sent_to.port()),
            Field::Protocol => key.protocol(self.packet.protocol),
            Field::Dport => key.port(self.packet.to.port()),
            Field::Pick(_) | Field::Next(_) => key.slot(slot.unwrap_or(0)),
        });
        let elements = self.table.elements.get(&set)?;
        if !set.def().ranges {
            return Some(elements.get(&key)?.data.clone());
        }
        // The last one that begins at or before the key; it must also reach it.
        let (_, element) = elements.range(..=key).next_back()?;
        match &element.data {
            Data::UpTo(end) => (key <= *end).then_some(Data::Nothing),
            other => Some(other.clone()),
        }
    }

    fn socket_address(&self, value: &Key) -> Option<SocketAddr> {
        match decode(self.table.family, ENDPOINT, value)?.as_slice() {
            [Value::Addr(addr), Value::Port(port)] => Some(SocketAddr::new(*addr, *port)),
            _ => None,
        }
    }
}

enum Step {
    Match,
    NoMatch,
    Jump(String),
    Goto(String),
    End(End),
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::Rejected => f.write_str("rejected"),
            Fate::Dropped => f.write_str("dropped"),
            Fate::Untouched => f.write_str("untouched"),
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

#[cfg(all(test, feature = "testing"))]
mod tests;
