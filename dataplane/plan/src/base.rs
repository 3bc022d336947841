//! The part of the table that does not depend on any Service, and the chains per shape.

use ipnet::IpNet;
use zw_model::Family;

use crate::ruleset::{
    Chain, FRONTEND, Field, Hook, HookKind, HookPoint, Rule, SetData, SetDef, SetName, Statement,
};

/// The one table Zoneward owns, in each family. No other table is ever read or written.
pub const TABLE: &str = "zoneward";

/// Continues where a Service port has no usable endpoint.
pub(crate) const REFUSE: &str = "refuse";

const DISPATCH: &str = "dispatch";
const LEAVE_AS_NODE: &str = "leave-as-node";

/// Hook priorities by nft's names for them.
const DSTNAT: i32 = -100;
const SRCNAT: i32 = 100;
const FILTER: i32 = 0;

/// What the operator decides about the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanConfig {
    /// Where pods live. Traffic to a Service from anywhere else leaves with the node's address, so
    /// that replies come back this way. Empty: unknown, so nothing is masqueraded for its source.
    pub pod_ranges: Vec<IpNet>,
    /// The packet mark bit that carries "masquerade me" from the nat hooks to postrouting. Bit 14 is
    /// kube-proxy's, which every network plugin already leaves alone.
    pub masquerade_mark: u32,
}

impl Default for PlanConfig {
    fn default() -> Self {
        Self { pod_ranges: Vec::new(), masquerade_mark: 1 << 14 }
    }
}

impl PlanConfig {
    /// The settings as far as one family's table depends on them: its comment, so that whoever reads the
    /// kernel can tell what the rules are without decoding them, and a change of settings is seen.
    pub fn note(&self, family: Family) -> String {
        let ranges = self.pod_ranges.iter().filter(|net| Family::of(net.addr()) == family);
        let ranges: Vec<String> = ranges.map(ToString::to_string).collect();
        let pods = if ranges.is_empty() { UNKNOWN.to_owned() } else { ranges.join(",") };
        let mut note = format!("mark {:#x}, pods {pods}", self.masquerade_mark);
        note.truncate(LONGEST_COMMENT);
        note
    }

    /// The settings a note tells of; `None` if it is somebody else's, or was too long to keep.
    pub fn from_note(note: &str) -> Option<Self> {
        if note.len() >= LONGEST_COMMENT {
            return None;
        }
        let (mark, pods) = note.strip_prefix("mark 0x")?.split_once(", pods ")?;
        let pod_ranges = match pods {
            UNKNOWN => Vec::new(),
            pods => pods.split(',').map(|net| net.parse().ok()).collect::<Option<_>>()?,
        };
        Some(Self { pod_ranges, masquerade_mark: u32::from_str_radix(mark, 16).ok()? })
    }
}

const UNKNOWN: &str = "unknown";

/// nft cuts a comment at 128 bytes including its end, and refuses to load a longer one.
pub(crate) const LONGEST_COMMENT: usize = 127;

/// The sets and maps, the same in both families.
pub fn sets() -> [SetDef; 5] {
    SetName::ALL.map(|name| match name {
        SetName::Services => SetDef { name, key: FRONTEND, data: SetData::Verdict, counter: false },
        SetName::Connections => SetDef { name, key: FRONTEND, data: SetData::None, counter: true },
        SetName::Endpoints => SetDef {
            name,
            // The modulus of a set's key is only documentation: rules use their own.
            key: &[Field::Daddr, Field::Protocol, Field::Dport, Field::Pick(2)],
            data: SetData::Fields(&[Field::Daddr, Field::Dport]),
            counter: false,
        },
        SetName::NoEndpoints => {
            SetDef { name, key: FRONTEND, data: SetData::Verdict, counter: false }
        }
        SetName::Hairpin => {
            SetDef { name, key: &[Field::Saddr, Field::Daddr], data: SetData::None, counter: false }
        }
    })
}

/// The chains every table has, in the order they are written.
pub fn base_table(config: &PlanConfig) -> Vec<Chain> {
    let mark = config.masquerade_mark;
    let nat = |point, priority| Some(Hook { kind: HookKind::Nat, point, priority });
    let filter = |point| Some(Hook { kind: HookKind::Filter, point, priority: FILTER });
    let refuse = || vec![vec![Statement::New, Statement::Dispatch(FRONTEND, SetName::NoEndpoints)]];
    let chain = |name: &str, hook, rules: Vec<Rule>| Chain { name: name.into(), hook, rules };
    vec![
        chain(
            DISPATCH,
            None,
            vec![
                vec![Statement::In(FRONTEND, SetName::Connections)],
                vec![Statement::Dispatch(FRONTEND, SetName::Services)],
            ],
        ),
        // What clients of a Service without endpoints are told: connection refused, at once.
        chain(REFUSE, None, vec![vec![Statement::Reject]]),
        chain(
            LEAVE_AS_NODE,
            None,
            vec![vec![Statement::Unmark(mark)], vec![Statement::Masquerade]],
        ),
        chain(
            "nat-prerouting",
            nat(HookPoint::Prerouting, DSTNAT),
            vec![vec![Statement::Jump(DISPATCH)]],
        ),
        chain("nat-output", nat(HookPoint::Output, DSTNAT), vec![vec![Statement::Jump(DISPATCH)]]),
        chain(
            "nat-postrouting",
            nat(HookPoint::Postrouting, SRCNAT),
            vec![
                vec![Statement::Marked(mark), Statement::Goto(LEAVE_AS_NODE)],
                // A pod that reached itself: with its own source address the reply would never
                // leave the pod, and the Service's address would never answer.
                vec![
                    Statement::Redirected,
                    Statement::In(&[Field::Saddr, Field::Daddr], SetName::Hairpin),
                    Statement::Masquerade,
                ],
            ],
        ),
        chain("filter-input", filter(HookPoint::Input), refuse()),
        chain("filter-forward", filter(HookPoint::Forward), refuse()),
        chain("filter-output", filter(HookPoint::Output), refuse()),
    ]
}

/// What the names of shape chains begin with.
pub(crate) const SHAPE: &str = "cluster-";

/// The name of the chain that picks one of `slots` endpoints for traffic to a cluster IP.
pub(crate) fn shape_name(slots: u32) -> String {
    format!("{SHAPE}{slots}")
}

/// The chain that picks one of `slots` endpoints, shared by every Service port that has that many.
pub fn shape_chain(family: Family, slots: u32, config: &PlanConfig) -> Chain {
    let outside: Rule = config
        .pod_ranges
        .iter()
        .filter(|net| Family::of(net.addr()) == family)
        .map(|net| Statement::NotFrom(*net))
        .collect();
    let mut rules = Vec::new();
    if !outside.is_empty() {
        rules.push([outside, vec![Statement::Mark(config.masquerade_mark)]].concat());
    }
    rules.push(vec![Statement::Dnat { slots, map: SetName::Endpoints }]);
    Chain { name: shape_name(slots), hook: None, rules }
}
