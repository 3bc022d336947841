//! The chains that every table has, whatever the Services.

use std::borrow::Cow;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use zw_model::Family;

use crate::config::{Balance, PlanConfig};
use crate::frontend::Space;
use crate::ruleset::{Chain, Field, Hook, HookKind, HookPoint, Rule, Statement};
use crate::sets::{ADDRESS_KEY, ORIGINAL_ADDRESS_KEY, ORIGINAL_NODE_PORT_KEY, SetName};

/// The one table Zoneward owns, in each family. No other table is ever read or written.
pub const TABLE: &str = "zoneward";

/// Continues where nobody may answer.
const REFUSE: &str = "refuse";

/// The same for node ports.
const REFUSE_NODE_PORTS: &str = "refuse-node-ports";

/// Continues where others may use a Service port's endpoints, but not this client.
const IGNORE: &str = "ignore";

/// Where a chain that picks endpoints sends what nobody may answer: on to those, as if it had never been
/// there.
pub(crate) const UNSERVED: &str = "unserved";

/// The only base chain whose rules depend on the Services: empty while none is sticky.
const REMEMBER: &str = "remember";

const DISPATCH: &str = "dispatch";
const TO_SERVICE: &str = "to-service";
const TO_NODE_PORT: &str = "to-node-port";
const NODE_PORTS: &str = "node-ports";
const FIREWALL: &str = "firewall";
const NEW: &str = "new";
const NEW_TO_NODE: &str = "new-to-node";
const REDIRECTED: &str = "redirected";
const STRAY: &str = "stray";
const LEAVE_AS_NODE: &str = "leave-as-node";

/// Hook priorities by nft's names for them.
const DSTNAT: i32 = -100;
const SRCNAT: i32 = 100;
const FILTER: i32 = 0;
/// Before addresses are rewritten.
const BEFORE_DSTNAT: i32 = DSTNAT - 10;

/// The chains every table has, in the order they are written.
pub fn base_table(family: Family, config: &PlanConfig, any_sticky: bool) -> Vec<Chain> {
    let mark = config.masquerade_mark;
    let nat = |point, priority| Some(Hook { kind: HookKind::Nat, point, priority });
    let filter = |point, priority| Some(Hook { kind: HookKind::Filter, point, priority });
    let chain = |name: &str, hook, rules: Vec<Rule>| Chain { name: name.into(), hook, rules };
    let goto = |chain: &'static str| Statement::Goto(Cow::Borrowed(chain));
    let jump = |chain: &'static str| Statement::Jump(Cow::Borrowed(chain));
    let (address, node_port) = (Space::Address, Space::NodePort);
    // Between the first look at these sets and the second an endpoint may have come.
    let refuse = |space: Space| {
        let elsewhere = Statement::In(space.key(), space.elsewhere());
        let nobody = Statement::In(space.key(), space.no_endpoints());
        vec![vec![elsewhere, goto(IGNORE)], vec![nobody, Statement::Reject], vec![Statement::Drop]]
    };
    // A packet may look a map up just before a transaction and miss what it replaces: so it looks again
    // before it is taken for nobody's. Connection tracking would hold the client to where nobody answers.
    // And to a packet that set out before the transaction that made it, a chain is empty: so every chain
    // that picks endpoints ends with a verdict, what no Service serves is accepted, and who comes back all
    // the same has met an empty one. It is dropped, and sent again.
    let dispatch = |to: &'static str| vec![vec![jump(to)], vec![Statement::Drop]];
    let to_chain = |space: Space| vec![vec![Statement::Dispatch(space.key(), space.services())]; 2];
    let accept = || vec![Statement::Accept];
    let to_node_port = |then: Statement| [node_addresses(family, config), vec![then]].concat();
    let ipvs = config.ipvs.is_some();
    // What was redirected is settled, but for endpoints that are somebody's cluster IP. What IPVS redirects
    // does not say so.
    let redirected =
        |then: Statement| if ipvs { vec![] } else { vec![vec![Statement::Redirected, then]] };
    let unanswered = || vec![Statement::In(address.key(), address.no_endpoints()), goto(REFUSE)];
    let unanswered_node_port = [
        to_node_port(Statement::In(node_port.key(), node_port.no_endpoints())),
        vec![goto(REFUSE_NODE_PORTS)],
    ];
    let new = |to: &'static str| vec![vec![Statement::New, jump(to)]];
    let mut chains = vec![
        chain(IGNORE, None, vec![vec![Statement::Drop]]),
        // What clients of a Service without endpoints are told: connection refused, at once.
        chain(REFUSE, None, refuse(address)),
        chain(REFUSE_NODE_PORTS, None, refuse(node_port)),
        chain(
            UNSERVED,
            None,
            vec![vec![Statement::Marked(mark), Statement::Unmark(mark)], vec![Statement::Accept]],
        ),
        chain(
            TO_SERVICE,
            None,
            [to_chain(address), vec![to_node_port(goto(NODE_PORTS)), accept()]].concat(),
        ),
        chain(TO_NODE_PORT, None, [to_chain(node_port), vec![accept()]].concat()),
        chain(NODE_PORTS, None, dispatch(TO_NODE_PORT)),
        chain(DISPATCH, None, dispatch(TO_SERVICE)),
        chain(
            FIREWALL,
            None,
            vec![vec![
                Statement::In(ADDRESS_KEY, SetName::Firewalled),
                Statement::NotIn(SetName::Allowed.def().key, SetName::Allowed),
                Statement::Drop,
            ]],
        ),
        // Nobody serves this: the wrong port of a Service, or an address that no Service has.
        chain(
            STRAY,
            None,
            vec![
                [
                    // IPVS takes what some Service serves from here.
                    not_served(ipvs),
                    vec![Statement::In(&[Field::Daddr], SetName::ClusterIps), Statement::Reject],
                ]
                .concat(),
                [
                    not_served(ipvs),
                    vec![Statement::In(&[Field::Daddr], SetName::ServiceRanges), Statement::Drop],
                ]
                .concat(),
            ],
        ),
        chain(
            REDIRECTED,
            None,
            vec![vec![Statement::In(&[Field::Daddr], SetName::ClusterIps), Statement::Reject]],
        ),
        chain(
            NEW,
            None,
            [redirected(goto(REDIRECTED)), vec![unanswered(), vec![goto(STRAY)]]].concat(),
        ),
        chain(
            NEW_TO_NODE,
            None,
            [
                redirected(Statement::Accept),
                vec![unanswered_node_port.concat(), unanswered()],
                // Where Services' addresses are the node's, what nobody serves arrives here.
                if ipvs { vec![vec![goto(STRAY)]] } else { vec![] },
            ]
            .concat(),
        ),
        remember(any_sticky),
        chain(
            LEAVE_AS_NODE,
            None,
            vec![vec![Statement::Unmark(mark)], vec![Statement::Masquerade]],
        ),
        chain("filter-prerouting", filter(HookPoint::Prerouting, BEFORE_DSTNAT), new(FIREWALL)),
        chain("filter-output-first", filter(HookPoint::Output, BEFORE_DSTNAT), new(FIREWALL)),
        chain("nat-prerouting", nat(HookPoint::Prerouting, DSTNAT), vec![vec![jump(DISPATCH)]]),
        chain("nat-output", nat(HookPoint::Output, DSTNAT), vec![vec![jump(DISPATCH)]]),
        chain(
            "nat-postrouting",
            nat(HookPoint::Postrouting, SRCNAT),
            vec![
                vec![Statement::Redirected, jump(REMEMBER)],
                vec![Statement::Marked(mark), goto(LEAVE_AS_NODE)],
                // A pod that reached itself: with its own source address the reply would never
                // leave the pod, and the Service's address would never answer. What IPVS redirects does
                // not say so, but nothing else comes from a pod and goes to the same.
                [
                    if ipvs { vec![] } else { vec![Statement::Redirected] },
                    vec![
                        Statement::In(SetName::Hairpin.def().key, SetName::Hairpin),
                        Statement::Masquerade,
                    ],
                ]
                .concat(),
            ],
        ),
        // What is redirected to an endpoint on the node itself never gets to postrouting.
        chain(
            "nat-input",
            nat(HookPoint::Input, SRCNAT),
            vec![vec![Statement::Redirected, jump(REMEMBER)]],
        ),
        // Most packets are not new, and pass these without being looked at.
        chain("filter-input", filter(HookPoint::Input, FILTER), new(NEW_TO_NODE)),
        chain("filter-forward", filter(HookPoint::Forward, FILTER), new(NEW)),
        chain("filter-output", filter(HookPoint::Output, FILTER), new(NEW)),
    ];
    chains.extend(slot_chains(config));
    chains
}

/// From how many slots at most a chain that every table has picks, as a power of two.
const MOST_SLOTS: u32 = 10;

/// Picks a slot of a map and sends the packet there, or goes on if the slot is empty. With every rule that
/// refers to a map the kernel walks all of it, and with every element it walks all such rules: so they are
/// made once, while the maps are empty, and shared. Not for local endpoints, which are few; nor in turn,
/// where every number of slots occurs.
pub(crate) fn pick_slot(config: &PlanConfig, map: SetName, slots: u32) -> Statement {
    let is_large = Space::BOTH.iter().any(|space| space.endpoints() == map);
    if is_large && has_slot_chains(config) && slots <= 1 << MOST_SLOTS {
        return Statement::Jump(slot_chain(map, slots).into());
    }
    Statement::Dnat { slots, map, balance: config.balance }
}

fn slot_chains(config: &PlanConfig) -> impl Iterator<Item = Chain> {
    let maps = Space::BOTH.map(Space::endpoints).into_iter().filter(|_| has_slot_chains(config));
    maps.flat_map(move |map| {
        (0..=MOST_SLOTS).map(move |n| {
            let (slots, balance) = (1 << n, config.balance);
            let rules = vec![vec![Statement::Dnat { slots, map, balance }]];
            Chain { name: slot_chain(map, slots), hook: None, rules }
        })
    })
}

fn has_slot_chains(config: &PlanConfig) -> bool {
    config.balance == Balance::Random && config.ipvs.is_none()
}

fn slot_chain(map: SetName, slots: u32) -> String {
    format!("{map}-{slots}")
}

/// Leads to the chains that remember sticky Services' clients. Without such Services it is empty: nft
/// before 1.0.8 cannot load `ct original proto-dst` within a concatenation, and an ordinary node's
/// listing must load everywhere.
pub(crate) fn remember(any_sticky: bool) -> Chain {
    let rules = if any_sticky {
        vec![
            vec![Statement::Dispatch(ORIGINAL_ADDRESS_KEY, SetName::Sticky)],
            vec![Statement::Dispatch(ORIGINAL_NODE_PORT_KEY, SetName::StickyNodePorts)],
        ]
    } else {
        Vec::new()
    };
    Chain { name: REMEMBER.into(), hook: None, rules }
}

/// In the ipvs mode, matches what no Service serves.
fn not_served(ipvs: bool) -> Rule {
    if ipvs { vec![Statement::NotIn(ADDRESS_KEY, SetName::Served)] } else { vec![] }
}

/// Matches what is sent to an address that node ports are served on. Never to the loopback addresses:
/// what is sent there cannot leave the node.
fn node_addresses(family: Family, config: &PlanConfig) -> Rule {
    if !config.serves_any_address(family) {
        return vec![Statement::In(&[Field::Daddr], SetName::NodeAddresses)];
    }
    let loopback = match family {
        Family::V4 => IpNet::V4(Ipv4Net::new_assert([127, 0, 0, 0].into(), 8)),
        Family::V6 => IpNet::V6(Ipv6Net::new_assert(std::net::Ipv6Addr::LOCALHOST, 128)),
    };
    vec![Statement::ToNode, Statement::NotTo(loopback)]
}
