//! Chains by shape: how many slots to pick from, how the client's address is treated, which policy. Service ports
//! of one shape share a chain, so their number does not follow the number of Services. Only sticky
//! Service ports have chains of their own, because each remembers its clients in a map of its own.
//!
//! A chain's name tells all of it, and is read back as such.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use zw_model::{Family, Protocol};

use crate::base::{UNSERVED, pick_slot};
use crate::config::{Balance, PlanConfig, Pods};
use crate::frontend::Space;
use crate::ruleset::{Chain, Interface, Rule, Statement};

/// What the names of affinity maps begin with.
pub const AFFINITY: &str = "affinity-";

/// How many clients an affinity map remembers; further ones are spread at random.
pub const AFFINITY_SIZE: u32 = 1 << 17;

/// How often a chain picks among slots some of which may be empty, before it settles for the half that
/// is not: with less than one in two empty, one packet in a thousand at most gets that far.
const TRIES: usize = 10;

/// A chain that exists because some Service port needs it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// Picks an endpoint.
    Pick(Pick),
    /// Remembers which one was picked.
    Remember(Remember),
}

/// A chain that picks an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pick {
    pub(crate) space: Space,
    pub(crate) route: Route,
    /// How many slots it picks from: at random a power of two, of which more than half are taken, or the
    /// only one is empty. None where IPVS picks.
    pub(crate) slots: u32,
    pub(crate) sticky: Option<Sticky>,
}

/// How a packet is treated on its way to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Route {
    /// To a cluster IP: what is not a pod's leaves as the node.
    Cluster,
    /// To another address: everything leaves as the node.
    External,
    /// To another address, and only to endpoints on this node: outsiders keep their address. Pods and
    /// the node itself are not bound by that and take the shortcut.
    ExternalLocal,
    /// The shortcut: as it is.
    Shortcut,
}

/// A sticky Service port, as far as chains need to know it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sticky {
    /// Ends the names of its chains and maps: a hash, and the Service port for people.
    pub(crate) id: Arc<str>,
    pub(crate) protocol: Protocol,
    /// In seconds.
    pub(crate) timeout: u32,
    /// Clients of local endpoints are remembered apart: where both policies differ, one client must not
    /// be led out of the node by what it did elsewhere.
    pub(crate) local: bool,
}

/// A chain that remembers which endpoint a client was given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Remember {
    pub(crate) sticky: Sticky,
    /// Pods and the node took the shortcut, so they are remembered with the others.
    pub(crate) external_local: bool,
}

impl Sticky {
    pub(crate) fn map(&self) -> String {
        format!("{AFFINITY}{}{}", if self.local { "local-" } else { "" }, self.id)
    }

    fn not_local(&self) -> Self {
        Self { local: false, ..self.clone() }
    }
}

impl Shape {
    /// The rules.
    pub fn chain(&self, family: Family, config: &PlanConfig) -> Chain {
        let rules = match self {
            Shape::Pick(pick) => pick.rules(family, config),
            Shape::Remember(remember) => remember.rules(family, config),
        };
        Chain { name: self.to_string(), hook: None, rules }
    }

    /// The affinity map it refers to.
    pub(crate) fn affinity_map(&self) -> Option<String> {
        match self {
            Shape::Pick(pick) => pick.sticky.as_ref().map(Sticky::map),
            Shape::Remember(remember) => Some(remember.sticky.map()),
        }
    }

    /// How long it remembers a client, in seconds.
    pub fn timeout(&self) -> Option<u32> {
        match self {
            Shape::Pick(pick) => pick.sticky.as_ref().map(|sticky| sticky.timeout),
            Shape::Remember(remember) => Some(remember.sticky.timeout),
        }
    }

    /// It leads outsiders to endpoints on this node only.
    pub fn is_local(&self) -> bool {
        matches!(self, Shape::Pick(Pick { route: Route::ExternalLocal, .. }))
    }

    /// It belongs to one Service port alone.
    pub fn is_sticky(&self) -> bool {
        self.affinity_map().is_some()
    }

    /// The shape of a chain with this name.
    pub fn parse(name: &str) -> Option<Self> {
        let external_local = name.strip_prefix(REMEMBER_EXTERNAL);
        if let Some(rest) = external_local.or_else(|| name.strip_prefix(REMEMBER)) {
            let sticky = parse_sticky(rest)?;
            let external_local = external_local.is_some();
            return Some(Shape::Remember(Remember { sticky, external_local }));
        }
        let (name, sticky) = match name.split_once(STICKY) {
            Some((name, sticky)) => (name, Some(parse_sticky(sticky)?)),
            None => (name, None),
        };
        let (route, slots) = name.rsplit_once('-')?;
        let slots: u32 = slots.parse().ok()?;
        let all = Space::BOTH.into_iter().flat_map(|space| {
            Route::ALL.into_iter().map(move |route| Pick { space, route, slots, sticky: None })
        });
        let pick = all.into_iter().find(|pick| pick.prefix() == route)?;
        Some(Shape::Pick(Pick { sticky, ..pick }))
    }
}

impl Route {
    const ALL: [Route; 4] =
        [Route::Cluster, Route::External, Route::ExternalLocal, Route::Shortcut];
}

const REMEMBER: &str = "remember-";
const REMEMBER_EXTERNAL: &str = "remember-external-";
const STICKY: &str = "-sticky-";
const LOCAL: &str = "local-";

/// `10800s-tcp-[local-]0123abcd-web/api/http`
fn parse_sticky(text: &str) -> Option<Sticky> {
    let (timeout, rest) = text.split_once("s-")?;
    let (protocol, rest) = rest.split_once('-')?;
    let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    let protocol = protocols.into_iter().find(|known| known.to_string() == protocol)?;
    let local = rest.strip_prefix(LOCAL);
    Some(Sticky {
        id: local.unwrap_or(rest).into(),
        protocol,
        timeout: timeout.parse().ok()?,
        local: local.is_some(),
    })
}

impl Pick {
    fn prefix(&self) -> &'static str {
        match (self.space, self.route) {
            (Space::Address, Route::Cluster) => "cluster",
            (Space::Address, Route::External) => "external",
            (Space::Address, Route::ExternalLocal) => "external-local",
            (Space::Address, Route::Shortcut) => "shortcut",
            // Node ports have no cluster IP; the name is never used.
            (Space::NodePort, Route::Cluster) => "node-port-cluster",
            (Space::NodePort, Route::External) => "node-port",
            (Space::NodePort, Route::ExternalLocal) => "node-port-local",
            (Space::NodePort, Route::Shortcut) => "node-port-shortcut",
        }
    }

    fn rules(&self, family: Family, config: &PlanConfig) -> Vec<Rule> {
        let mark = Statement::Mark(config.masquerade_mark);
        let shortcut = Statement::Dispatch(self.space.key(), self.space.shortcuts());
        let treat: Vec<Rule> = match self.route {
            Route::Cluster if config.masquerade_all => vec![vec![mark]],
            Route::Cluster => {
                let outside = outside_pods(family, config);
                let known = !outside.is_empty();
                // IPVS needs the Service's address on the node, which is then the source of what the
                // node itself sends there.
                let from_node =
                    config.ipvs.is_some().then(|| vec![Statement::FromNode, mark.clone()]);
                let rules = known.then(|| [outside, vec![mark]].concat()).into_iter();
                rules.chain(from_node).collect()
            }
            Route::External => vec![vec![mark]],
            Route::ExternalLocal => {
                let pods = from_pods(family, config).into_iter();
                pods.map(|pod| vec![pod, shortcut.clone()])
                    .chain([
                        vec![Statement::FromNode, mark],
                        vec![Statement::FromNode, shortcut.clone()],
                    ])
                    .collect()
            }
            Route::Shortcut => Vec::new(),
        };
        // Who takes the shortcut was counted before.
        let count = (self.route != Route::Shortcut)
            .then(|| vec![Statement::Count(self.space.key(), self.space.connections())]);
        let mut rules: Vec<Rule> = count.into_iter().chain(treat).collect();
        if self.slots > 0 {
            if let Some(sticky) = &self.sticky {
                // nft wants to know the protocol before it takes a port out of a map.
                rules.push(vec![
                    Statement::Protocol(sticky.protocol),
                    Statement::DnatAsBefore(sticky.map()),
                ]);
            }
            let map = match self.route {
                Route::ExternalLocal => self.space.local_endpoints(),
                _ => self.space.endpoints(),
            };
            let dnat = |slots| vec![pick_slot(config, map, slots)];
            if config.balance == Balance::Random && self.slots > 2 {
                // Who picks an empty slot picks again; every endpoint stays as likely as any other.
                rules.extend(std::iter::repeat_n(dnat(self.slots), TRIES));
                rules.push(dnat(self.slots / 2));
            } else {
                rules.push(dnat(self.slots));
            }
            // The slot was not there any more, or not yet: see the chain that led here. Or there are none.
            rules.push(dnat(1));
        }
        rules.push(vec![
            Statement::In(self.space.key(), self.space.no_endpoints()),
            Statement::Goto(UNSERVED.into()),
        ]);
        rules.push(vec![if self.slots > 0 { Statement::Drop } else { Statement::Accept }]);
        rules
    }
}

impl Remember {
    fn rules(&self, family: Family, config: &PlanConfig) -> Vec<Rule> {
        let Self { sticky, external_local } = self;
        let mut rules: Vec<Rule> = Vec::new();
        if *external_local {
            let others = Remember { sticky: sticky.not_local(), external_local: false };
            let others = Statement::Goto(Shape::Remember(others).to_string().into());
            let pods = from_pods(family, config).into_iter();
            rules.extend(pods.chain([Statement::FromNode]).map(|from| vec![from, others.clone()]));
        }
        rules.push(vec![Statement::Remember { map: sticky.map(), timeout: sticky.timeout }]);
        rules
    }
}

/// Matches what is not a pod's; empty where that cannot be told.
fn outside_pods(family: Family, config: &PlanConfig) -> Rule {
    match interface(config) {
        Some(interface) => vec![Statement::NotVia(interface)],
        None => config.pod_ranges(family).map(|net| Statement::NotFrom(*net)).collect(),
    }
}

/// Each matches some pods, together all of them.
fn from_pods(family: Family, config: &PlanConfig) -> Vec<Statement> {
    match interface(config) {
        Some(interface) => vec![Statement::Via(interface)],
        None => config.pod_ranges(family).map(|net| Statement::From(*net)).collect(),
    }
}

fn interface(config: &PlanConfig) -> Option<Interface> {
    match &config.pods {
        Pods::Ranges(_) => None,
        Pods::Bridge(name) => Some(Interface { name: name.clone(), prefix: false }),
        Pods::InterfacePrefix(name) => Some(Interface { name: name.clone(), prefix: true }),
    }
}

/// Of the chains that are most in use, which every Service's elements lead to: nothing is to be allocated for
/// them.
macro_rules! names {
    ($prefix:literal, $slots:expr, [$($known:literal)*]) => {
        match $slots {
            $($known => Some(concat!($prefix, "-", $known)),)*
            _ => None,
        }
    };
    ($prefix:literal, $slots:expr) => {
        names!($prefix, $slots, [0 1 2 4 8 16 32 64 128 256 512 1024])
    };
}

impl Shape {
    /// The chain's name, as it is shown.
    pub(crate) fn name(&self) -> Cow<'static, str> {
        let known = match self {
            Shape::Pick(Pick { space: Space::Address, route, slots, sticky: None }) => {
                match route {
                    Route::Cluster => names!("cluster", *slots),
                    Route::External => names!("external", *slots),
                    Route::ExternalLocal => names!("external-local", *slots),
                    Route::Shortcut => names!("shortcut", *slots),
                }
            }
            _ => None,
        };
        known.map_or_else(|| self.to_string().into(), Cow::Borrowed)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Pick(pick) => {
                write!(f, "{}-{}", pick.prefix(), pick.slots)?;
                pick.sticky.iter().try_for_each(|sticky| write!(f, "{STICKY}{sticky}"))
            }
            Shape::Remember(Remember { sticky, external_local: false }) => {
                write!(f, "{REMEMBER}{sticky}")
            }
            Shape::Remember(Remember { sticky, .. }) => write!(f, "{REMEMBER_EXTERNAL}{sticky}"),
        }
    }
}

impl fmt::Display for Sticky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = if self.local { LOCAL } else { "" };
        write!(f, "{}s-{}-{local}{}", self.timeout, self.protocol, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::base_table;

    #[test]
    fn a_name_that_is_known_beforehand_is_the_one_that_is_shown() {
        for (space, route) in
            Space::BOTH.into_iter().flat_map(|space| Route::ALL.map(|route| (space, route)))
        {
            for slots in 0..=2050 {
                let shape = Shape::Pick(Pick { space, route, slots, sticky: None });
                assert_eq!(shape.name(), shape.to_string());
            }
        }
    }

    /// A packet that comes back from one is taken for one that saw none of its rules, and dropped.
    #[test]
    fn nobody_comes_back_from_a_chain_that_picks_endpoints() {
        let sticky = Sticky { id: "x".into(), protocol: Protocol::Tcp, timeout: 10, local: false };
        let ipvs = PlanConfig { ipvs: Some(Default::default()), ..PlanConfig::default() };
        for (space, route) in
            Space::BOTH.into_iter().flat_map(|space| Route::ALL.map(|route| (space, route)))
        {
            for (slots, config) in
                [(0, &ipvs), (0, &PlanConfig::default()), (1, &PlanConfig::default())]
            {
                for sticky in [None, Some(sticky.clone())] {
                    let shape = Shape::Pick(Pick { space, route, slots, sticky });
                    let rules = shape.chain(Family::V6, config).rules;
                    let last = rules.last().map(Vec::as_slice);
                    let ends = matches!(last, Some([Statement::Drop | Statement::Accept]));
                    assert!(ends, "{shape}: {rules:?}");
                }
            }
        }
    }

    /// The kernel walks a map of all endpoints for every rule that is added and refers to it.
    #[test]
    fn a_new_size_adds_no_rule_that_refers_to_all_endpoints() {
        let config = PlanConfig::default();
        let base = base_table(Family::V4, &config, false);
        for (space, n) in
            Space::BOTH.into_iter().flat_map(|space| (0..=10).map(move |n| (space, n)))
        {
            for route in [Route::Cluster, Route::External, Route::Shortcut] {
                let shape = Shape::Pick(Pick { space, route, slots: 1 << n, sticky: None });
                for statement in shape.chain(Family::V4, &config).rules.iter().flatten() {
                    assert!(!matches!(statement, Statement::Dnat { .. }), "{shape}");
                    if let Statement::Jump(name) = statement {
                        assert!(base.iter().any(|chain| chain.name == *name), "{shape}: {name}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_name_tells_the_whole_shape() {
        let sticky = |local| Sticky {
            id: "0123abcd-web/api-local-1/http".into(),
            protocol: Protocol::Udp,
            timeout: 10_800,
            local,
        };
        let mut shapes = Vec::new();
        for local in [false, true] {
            for external_local in [false, true] {
                let sticky = sticky(local);
                shapes.push(Shape::Remember(Remember { sticky, external_local }));
            }
            for space in Space::BOTH {
                for route in Route::ALL {
                    let pick = Pick { space, route, slots: 3, sticky: None };
                    shapes.push(Shape::Pick(Pick { sticky: Some(sticky(local)), ..pick.clone() }));
                    shapes.push(Shape::Pick(pick));
                }
            }
        }
        for shape in shapes {
            assert_eq!(Shape::parse(&shape.to_string()), Some(shape));
        }
        for other in ["", "cluster", "cluster-x", "dispatch", "nat-postrouting", "svc-of-old-1"] {
            assert_eq!(Shape::parse(other), None, "{other}");
        }
    }
}
