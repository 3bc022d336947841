//! A packet's way through a table, without a kernel: every endpoint it could be given to, or why it
//! is not. The same packet cases run here and on a real kernel, which keeps this honest.
//!
//! The table may be planned or read back. Of one that was read back some chains may hold rules that are
//! not ours: where a packet gets to one of these, its way is not known from there on.

mod fate;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::config::Balance;
use crate::element::{Data, Element, Key, Value, decode};
use crate::ipvs::{VirtualKey, VirtualServer};
use crate::ruleset::{Chain, Field, HookKind, HookPoint, InFamily, Interface, Statement};
use crate::sets::{ENDPOINT, SetName};
use crate::table::Table;
pub use fate::{Fate, Origin, Outcome, Packet, Step, Walk, Way};

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
    /// By this virtual server.
    server: Option<VirtualKey>,
    hook: HookPoint,
    steps: Vec<Step>,
    /// What the rule under way has found.
    found: Vec<(SetName, Element)>,
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
    Unknown(String),
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
    let mut walker = Walker {
        table,
        node,
        packet,
        sent_to,
        mark: 0,
        redirected: None,
        server: None,
        hook: first,
        steps: Vec::new(),
        found: Vec::new(),
    };
    let mut end = walker.hook(HookKind::Filter, first, When::Before);
    if matches!(end, End::Continue) {
        let nat = walker.hook(HookKind::Nat, first, When::After);
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
        end = match nat {
            End::Dropped | End::Unknown(_) => nat,
            _ => walker.hook(HookKind::Filter, second, When::After),
        };
        // What the node sends to itself comes back in.
        let comes_back = first == HookPoint::Output && here(walker.packet.to.ip());
        if comes_back && matches!(end, End::Continue) {
            end = walker.hook(HookKind::Filter, HookPoint::Input, When::After);
        }
    }
    let stopped = match end {
        End::Rejected => Some(Fate::Rejected),
        End::Dropped => Some(Fate::Dropped),
        End::Unknown(chain) => Some(Fate::Unknown { chain }),
        _ => None,
    };
    if let Some(fate) = stopped {
        return Walk { fate, steps: walker.steps, ways: Vec::new(), server: None };
    }
    if first == HookPoint::Prerouting {
        walker.by_ipvs(servers);
    }
    let server = walker.server;
    let Some(backends) = walker.redirected.clone() else {
        return Walk { fate: Fate::Untouched, steps: walker.steps, ways: Vec::new(), server };
    };
    let steps = std::mem::take(&mut walker.steps);
    let ways = match walker.leave(&backends, first) {
        Ok(ways) => ways,
        Err(chain) => {
            return Walk { fate: Fate::Unknown { chain }, steps, ways: Vec::new(), server };
        }
    };
    let fate = Fate::Redirected(ways.iter().map(|way| way.outcome).collect());
    Walk { fate, steps, ways, server }
}

impl Walker<'_> {
    /// To the real servers, if a virtual one is meant.
    fn by_ipvs(&mut self, servers: &BTreeMap<VirtualKey, VirtualServer>) {
        let (addr, port) = (self.packet.to.ip(), self.packet.to.port());
        let key = VirtualKey { addr, protocol: self.packet.protocol, port };
        if let Some(server) = servers.get(&key) {
            let reals: Vec<SocketAddr> = server.reals.iter().map(|real| real.addr).collect();
            // Of a virtual server that was read back all may be leaving.
            let Some(first) = reals.first() else { return };
            self.packet.to = *first;
            self.redirected = Some(reals);
            self.server = Some(key);
        }
    }

    /// The last hooks, once for each endpoint; `Err` is a chain that is not ours.
    fn leave(&mut self, backends: &[SocketAddr], first: HookPoint) -> Result<Vec<Way>, String> {
        let mut slots: BTreeMap<SocketAddr, u32> = BTreeMap::new();
        for backend in backends {
            *slots.entry(*backend).or_default() += 1;
        }
        let mark = self.mark;
        let mut ways = Vec::new();
        for (to, slots) in slots {
            self.packet.to = to;
            self.mark = mark;
            // What comes from elsewhere and is for the node itself never gets to postrouting.
            let stays = first == HookPoint::Prerouting && self.node.contains(&to.ip());
            let last = if stays { HookPoint::Input } else { HookPoint::Postrouting };
            let masqueraded = match self.hook(HookKind::Nat, last, When::After) {
                End::Unknown(chain) => return Err(chain),
                end => matches!(end, End::Masqueraded),
            };
            let steps = std::mem::take(&mut self.steps);
            ways.push(Way { outcome: Outcome { to, masqueraded }, slots, steps });
        }
        Ok(ways)
    }

    fn hook(&mut self, kind: HookKind, point: HookPoint, when: When) -> End {
        self.hook = point;
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
        if self.table.is_unknown(&chain.name) {
            return End::Unknown(chain.name.clone());
        }
        for rule in &chain.rules {
            let mut text = None;
            self.found.clear();
            for statement in rule {
                match self.statement(statement) {
                    Next::NoMatch => {
                        text = None;
                        break;
                    }
                    Next::Match => text = Some(rule),
                    Next::Jump(name) => {
                        self.note(chain, rule);
                        match self.named(&name) {
                            End::Continue => {}
                            end => return end,
                        }
                        text = None;
                    }
                    Next::Goto(name) => {
                        self.note(chain, rule);
                        // A goto's end is the end of the chain that was left.
                        return self.named(&name);
                    }
                    Next::End(end) => {
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
        self.steps.push(Step {
            hook: self.hook,
            chain: chain.name.clone(),
            rule: InFamily(self.table.family, rule).to_string(),
            found: std::mem::take(&mut self.found),
        });
    }

    fn statement(&mut self, statement: &Statement) -> Next {
        let matched = |yes: bool| if yes { Next::Match } else { Next::NoMatch };
        match statement {
            Statement::New => Next::Match,
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
                Some(Data::Goto(chain)) => Next::Goto(chain.into_owned()),
                _ => Next::NoMatch,
            },
            Statement::Marked(bit) => matched(self.mark & bit == *bit),
            Statement::Mark(bit) => {
                self.mark |= bit;
                Next::Match
            }
            Statement::Unmark(bit) => {
                self.mark ^= bit;
                Next::Match
            }
            Statement::Dnat { slots, map, balance } => {
                let key = Statement::dnat_key(*slots, *map, *balance);
                let backends: Vec<SocketAddr> = (0..*slots)
                    .map_while(|slot| match self.look_up(&key, *map, Some(slot))? {
                        Data::Value(value) => self.socket_address(&value),
                        _ => None,
                    })
                    .collect();
                // Whoever picks an empty slot picks again, in a rule further down that says the same.
                // More of them than there may be are a planning error, and show as another fate.
                let enough = match balance {
                    Balance::Random => *slots / 2 + 1,
                    Balance::RoundRobin => *slots,
                };
                if backends.len() < enough as usize {
                    return Next::NoMatch;
                }
                self.packet.to = backends[0];
                self.redirected = Some(backends);
                Next::End(End::Settled)
            }
            Statement::DnatAsBefore(map) => match self.remembered(map) {
                Some(with) => {
                    self.redirected = Some(vec![with]);
                    self.packet.to = with;
                    Next::End(End::Settled)
                }
                None => Next::NoMatch,
            },
            Statement::Remember { .. } | Statement::Count(..) => Next::Match,
            Statement::Masquerade => Next::End(End::Masqueraded),
            Statement::Reject => Next::End(End::Rejected),
            Statement::Drop => Next::End(End::Dropped),
            Statement::Accept => Next::End(End::Settled),
            Statement::Jump(chain) => Next::Jump(chain.clone().into_owned()),
            Statement::Goto(chain) => Next::Goto(chain.clone().into_owned()),
        }
    }

    /// Where this client went before.
    fn remembered(&self, map: &str) -> Option<SocketAddr> {
        let clients = self.table.affinity_maps.get(map)?;
        self.socket_address(clients.get(&Key::new().addr(self.packet.from))?)
    }

    fn came_through(&self, interface: &Interface) -> bool {
        match &self.packet.origin {
            Origin::Node => false,
            Origin::Elsewhere(name) if interface.prefix => name.starts_with(&interface.name),
            Origin::Elsewhere(name) => *name == interface.name,
        }
    }

    fn look_up(&mut self, fields: &[Field], set: SetName, slot: Option<u32>) -> Option<Data> {
        let element = self.find(fields, set, slot)?;
        let data = element.data.clone();
        self.found.push((set, element));
        Some(data)
    }

    fn find(&self, fields: &[Field], set: SetName, slot: Option<u32>) -> Option<Element> {
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
            return elements.get(&key).cloned();
        }
        // The last one that begins at or before the key; it must also reach it.
        let (_, element) = elements.range(..=key).next_back()?;
        match &element.data {
            Data::UpTo(end) if key > *end => None,
            _ => Some(element.clone()),
        }
    }

    fn socket_address(&self, value: &Key) -> Option<SocketAddr> {
        match decode(self.table.family, ENDPOINT, value)?.as_slice() {
            [Value::Addr(addr), Value::Port(port)] => Some(SocketAddr::new(*addr, *port)),
            _ => None,
        }
    }
}

enum Next {
    Match,
    NoMatch,
    Jump(String),
    Goto(String),
    End(End),
}

#[cfg(all(test, feature = "testing"))]
mod tests;
