//! Histories of updates against a table that behaves like the kernel. The domain is tiny, so that
//! Services fight for addresses, share endpoints and change shape all the time.

mod ipvs;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use proptest::prelude::*;
use zw_model::{
    Conditions, External, Family, NodeContext, Protocol, Scope, Service, ServiceKey, ServicePort,
    Slice, SliceEndpoint, SliceKey, SlicePort, Topology, TrafficPolicy,
};

use super::shared::IDLE_SHAPES;
use super::{Contested, Desired};
use crate::adopt::{Actual, bring_to};
use crate::base::base_table;
use crate::changes::{Changes, Place, TableChanges};
use crate::config::{Balance, PlanConfig, Pods};
use crate::digest::{Digest, SetDigest, TableDigest};
use crate::element::{Data, Element, Key};
use crate::frontend::Frontend;
use crate::ruleset::{Chain, SetData, Statement};
use crate::service::{ServiceRules, plan_service};
use crate::sets::SetName;
use crate::shape::Shape;
use crate::surroundings::Surroundings;
use crate::table::Table;

const SERVICES: [&str; 3] = ["a", "b", "c"];

/// One Service as a history has it; what is planned follows from it and from the slots before.
#[derive(Debug, Clone)]
struct Spec {
    /// Which of the two addresses it has in each family.
    vips: [Option<u8>; 2],
    /// Both a TCP and a UDP port, or the TCP one only.
    udp: bool,
    /// Which endpoints it has, and which of them run on this node.
    endpoints: Vec<(u16, bool)>,
    /// How it is reached besides its cluster IPs, and by which rules.
    features: Features,
}

#[derive(Debug, Clone, Copy, Default)]
struct Features {
    node_port: Option<u16>,
    external_ip: bool,
    load_balancer: bool,
    source_ranges: bool,
    internal_local: bool,
    external_local: bool,
    affinity: Option<u32>,
}

/// The Services of one update; `None` removes.
type Step = Vec<(usize, Option<Spec>)>;

fn spec() -> impl Strategy<Value = Spec> {
    let vip = || prop_oneof![1 => Just(None), 4 => (0u8..2).prop_map(Some)];
    let endpoints = prop::collection::btree_map(0u16..4, any::<bool>(), 0..=4);
    let parts = ([vip(), vip()], any::<bool>(), endpoints, features());
    parts.prop_map(|(vips, udp, endpoints, features)| Spec {
        vips,
        udp,
        endpoints: endpoints.into_iter().collect(),
        features,
    })
}

fn features() -> impl Strategy<Value = Features> {
    let node_port = prop_oneof![Just(None), (30_000u16..30_002).prop_map(Some)];
    let affinity = prop_oneof![2 => Just(None), 1 => Just(Some(10)), 1 => Just(Some(10_800))];
    (node_port, affinity, any::<[bool; 5]>()).prop_map(|(node_port, affinity, flags)| {
        let [external_ip, load_balancer, source_ranges, internal_local, external_local] = flags;
        Features {
            node_port,
            external_ip,
            load_balancer,
            source_ranges,
            internal_local,
            external_local,
            affinity,
        }
    })
}

fn history() -> impl Strategy<Value = Vec<Step>> {
    let change = (0usize..3, prop_oneof![1 => Just(None), 4 => spec().prop_map(Some)]);
    prop::collection::vec(prop::collection::vec(change, 1..4), 1..10)
}

fn key(service: usize) -> ServiceKey {
    ServiceKey::new("web", SERVICES[service])
}

fn vip(family: Family, last: u8) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([10, 96, 0, last]),
        Family::V6 => IpAddr::from([0xfd00, 0x96, 0, 0, 0, 0, 0, u16::from(last)]),
    }
}

fn pod(family: Family, n: u16) -> IpAddr {
    let [high, low] = n.to_be_bytes();
    match family {
        Family::V4 => IpAddr::from([10, 244, high, low]),
        Family::V6 => IpAddr::from([0xfd00, 0x244, 0, 0, 0, 0, 0, n]),
    }
}

fn config() -> PlanConfig {
    let pod_ranges = ["10.244.0.0/16", "fd00:244::/32"].map(|net| net.parse().unwrap());
    PlanConfig { pods: Pods::Ranges(pod_ranges.to_vec()), ..PlanConfig::default() }
}

fn surroundings() -> Surroundings {
    let service_ranges = ["10.96.0.0/16", "fd00:96::/112"].map(|net| net.parse().unwrap()).to_vec();
    let node_addresses = node().addresses.into_iter().collect();
    Surroundings { node_addresses, service_ranges, ..Surroundings::default() }
}

fn node() -> NodeContext {
    let addresses = ["192.0.2.1", "2001:db8::1"].map(|addr| addr.parse().unwrap()).to_vec();
    NodeContext { name: "node-1".into(), addresses, ..NodeContext::default() }
}

fn shape_chain(family: Family, slots: u32, config: &PlanConfig) -> Chain {
    Shape::parse(&shape_name(slots)).unwrap().chain(family, config)
}

fn shape_name(slots: u32) -> String {
    format!("cluster-{slots}")
}

/// Plans as the agent does, with the slots that `desired` has now.
fn plan(key: &ServiceKey, spec: &Spec, desired: &Desired) -> ServiceRules {
    let cluster_ips =
        Family::BOTH.into_iter().zip(spec.vips).filter_map(|(f, last)| Some(vip(f, last?)));
    let mut ports = vec![("http", Protocol::Tcp, 80)];
    ports.extend(spec.udp.then_some(("dns", Protocol::Udp, 53)));
    let service = Service {
        key: key.clone(),
        cluster_ips: cluster_ips.collect(),
        ports: ports
            .iter()
            .map(|(name, protocol, port)| ServicePort {
                name: (*name).into(),
                protocol: *protocol,
                port: *port,
                // The two ports must not share one.
                node_port: spec
                    .features
                    .node_port
                    .and_then(|n| (n + 10 * (port % 2)).try_into().ok()),
            })
            .collect(),
        internal_policy: policy(spec.features.internal_local),
        external_policy: policy(spec.features.external_local),
        has_selector: false,
        affinity: spec.features.affinity,
        scheduler: None,
        external: Some(Box::new(external(spec.features))),
        division: None,
    };
    let slices = Family::BOTH.map(|family| Slice {
        key: SliceKey { namespace: key.namespace.clone(), name: family.to_string().into() },
        service: key.clone(),
        family,
        scope: Scope::Everyone,
        managed_by: None,
        ports: ports
            .iter()
            .map(|(name, protocol, port)| SlicePort {
                name: (*name).into(),
                protocol: *protocol,
                port: 8000 + port,
            })
            .collect(),
        endpoints: spec
            .endpoints
            .iter()
            .map(|(n, local)| SliceEndpoint {
                addr: pod(family, *n),
                conditions: Conditions::from_optional(None, None, None),
                topology: Arc::new(Topology {
                    node: Some(if *local { "node-1" } else { "node-2" }.into()),
                    ..Topology::default()
                }),
            })
            .collect(),
    });
    plan_service(&service, &slices, &node(), |frontend| desired.slots(key, frontend))
}

fn policy(local: bool) -> TrafficPolicy {
    if local { TrafficPolicy::Local } else { TrafficPolicy::Cluster }
}

fn external(features: Features) -> External {
    // An external IP may also be some Service's cluster IP.
    let ips = |yes: bool, last: u8| -> Vec<IpAddr> {
        let both = Family::BOTH.map(|family| vip(family, last));
        both.into_iter().filter(|_| yes).collect()
    };
    let ranges = ["192.0.2.0/24", "203.0.113.0/25", "203.0.113.128/25", "2001:db8:1::/48"];
    let ranges = ranges.into_iter().filter(|_| features.source_ranges);
    External {
        ips: ips(features.external_ip, 1),
        load_balancer_ips: ips(features.load_balancer, 7),
        source_ranges: ranges.map(|net| net.parse().unwrap()).collect(),
        health_check_port: None,
    }
}

/// `desired` as a history leaves it, the tables it was told to write, and what it should know.
struct Run {
    config: PlanConfig,
    desired: Desired,
    tables: [Table; 2],
    services: BTreeMap<ServiceKey, ServiceRules>,
}

impl Run {
    fn new() -> Self {
        Self::with(config())
    }

    fn with(config: PlanConfig) -> Self {
        let desired = Desired::new(config.clone(), surroundings());
        let tables = Family::BOTH.map(|family| Table::of(&desired, family).unwrap());
        Self { config, desired, tables, services: BTreeMap::new() }
    }

    /// Plans and applies one update, and returns what it changed.
    #[track_caller]
    fn step(&mut self, updates: impl IntoIterator<Item = (ServiceKey, Option<Spec>)>) -> Changes {
        let updates: Vec<(ServiceKey, Option<ServiceRules>)> = updates
            .into_iter()
            .map(|(key, spec)| {
                let rules = spec.map(|spec| plan(&key, &spec, &self.desired));
                (key, rules)
            })
            .collect();
        for (key, rules) in &updates {
            match rules {
                Some(rules) => self.services.insert(key.clone(), rules.clone()),
                None => self.services.remove(key),
            };
        }
        let changes = self.desired.update(updates);
        for table in &mut self.tables {
            let referenced: BTreeSet<String> = goals(table);
            if let Some(changes) = changes.tables.get(&table.family) {
                // What belongs to one sticky Service port alone goes at once all the same.
                let in_use = |chain: &&String| {
                    let sticky = Shape::parse(chain).is_some_and(|shape| shape.is_sticky());
                    referenced.contains(*chain) && !sticky
                };
                let too_early: Vec<&String> = changes.delete_chains.iter().filter(in_use).collect();
                assert_eq!(too_early, Vec::<&String>::new(), "in use when the transaction begins");
                table.apply(changes).unwrap();
            }
        }
        changes
    }

    /// The same Services and slots without any history.
    fn fresh(&self) -> Desired {
        let mut fresh = Desired::new(self.config.clone(), surroundings());
        fresh.load(self.services.iter().map(|(key, rules)| (key.clone(), Some(rules.clone()))));
        fresh
    }

    /// Elements exactly as after a fresh start; chains too, but for shapes that lie idle.
    fn check(&self) {
        let fresh = self.fresh();
        for table in &self.tables {
            let family = table.family;
            let mut want = Table::of(&fresh, family).unwrap();
            for (name, chain) in idle(table, &want, &self.config) {
                want.chains.insert(name, chain);
            }
            assert_eq!(*table, want, "as a fresh start would have it:\n{table}\n{want}");
            assert_eq!(*table, Table::of(&self.desired, family).unwrap(), "as it is remembered");
        }
        assert_eq!(bring_to(&self.desired, &actual(&self.tables)).tables, BTreeMap::new());
        assert_eq!(self.desired.differences(&digest(&self.tables)), [""; 0]);
    }
}

/// As the kernel would tell it.
fn digest(tables: &[Table; 2]) -> Digest {
    let table = |table: &Table| {
        let read = table.read_back();
        let sets = read.sets.iter().map(|(set, elements)| {
            let mut digest = SetDigest::default();
            elements.values().for_each(|element| digest.add(element));
            (*set, digest)
        });
        let digest = TableDigest {
            sets: sets.collect(),
            note: read.note.clone(),
            chains: read.chains.clone(),
            affinity_maps: read.affinity_maps.keys().cloned().collect(),
            ..TableDigest::default()
        };
        (table.family, digest)
    };
    Digest { tables: tables.iter().map(table).collect(), ipvs: None }
}

/// The chains that elements go to.
fn goals(table: &Table) -> BTreeSet<String> {
    let elements = table.elements.values().flat_map(BTreeMap::values);
    elements
        .filter_map(|element| match &element.data {
            Data::Goto(chain) => Some(chain.clone()),
            _ => None,
        })
        .collect()
}

/// The shape chains that `table` has over `fresh`.
fn idle(table: &Table, fresh: &Table, config: &PlanConfig) -> Vec<(String, Chain)> {
    let extra = table.chains.keys().filter(|name| !fresh.chains.contains_key(*name));
    extra
        .filter_map(|name| {
            let shape = Shape::parse(name).filter(|shape| !shape.is_sticky())?;
            Some((name.clone(), shape.chain(table.family, config)))
        })
        .collect()
}

fn actual(tables: &[Table; 2]) -> Actual {
    let tables = tables.iter().map(|table| (table.family, table.read_back())).collect();
    Actual { tables, ..Actual::default() }
}

/// Applies `changes` to both tables.
fn applied(tables: &[Table; 2], changes: &Changes) -> [Table; 2] {
    tables.clone().map(|mut table| {
        table.apply(changes.tables.get(&table.family).unwrap_or(&TableChanges::default())).unwrap();
        table
    })
}

fn tables_of(desired: &Desired) -> [Table; 2] {
    Family::BOTH.map(|family| Table::of(desired, family).unwrap())
}

fn plain(endpoints: impl IntoIterator<Item = u16>) -> Spec {
    let endpoints = endpoints.into_iter().map(|n| (n, false)).collect();
    Spec { vips: [Some(1), None], udp: false, endpoints, features: Features::default() }
}

fn frontend(last: u8) -> Frontend {
    Frontend::new(vip(Family::V4, last), Protocol::Tcp, 80)
}

proptest! {
    #[test]
    fn changes_that_were_not_sent_go_with_the_next(steps in history()) {
        let mut run = Run::new();
        let mut tables = run.tables.clone();
        let mut unsent = Changes::default();
        for (at, step) in steps.into_iter().enumerate() {
            let step = step.into_iter().map(|(service, spec)| (key(service), spec));
            unsent = unsent.then(run.step(step));
            // Every third fails.
            if at % 3 != 0 {
                tables = applied(&tables, &std::mem::take(&mut unsent));
                prop_assert_eq!(&tables, &run.tables);
            }
        }
        prop_assert_eq!(applied(&tables, &unsent), run.tables);
    }

    #[test]
    fn what_is_left_of_changes_follows_from_what_is_there(steps in history(), landed in any::<bool>()) {
        let mut run = Run::new();
        for step in steps {
            let before = run.tables.clone();
            let changes = run.step(step.into_iter().map(|(service, spec)| (key(service), spec)));
            let is = if landed { &run.tables } else { &before };
            let element = |(family, set, key): &Place| {
                let table = is.iter().find(|table| table.family == *family)?;
                table.elements.get(set)?.get(key).cloned()
            };
            let found: Vec<_> = changes.places().into_iter().map(|at| (at, element(&at))).collect();
            let left = run.desired.resume(changes.clone(), found);
            let mut is = is.clone();
            for table in &mut is {
                let Some(left) = left.tables.get(&table.family) else { continue };
                // What was swept already cannot be again, and the sweep is no part of the transaction.
                let mut left = left.clone();
                left.delete_chains.retain(|chain| table.chains.contains_key(chain));
                left.forget_others.retain(|map, _| table.affinity_maps.contains_key(map));
                table.apply(&left).unwrap();
            }
            prop_assert_eq!(&is, &run.tables);
            if landed && !changes.places().iter().any(|(_, set, _)| set.def().ranges) {
                prop_assert_eq!(left.element_operations(), 0);
            }
        }
    }

    #[test]
    fn any_history_ends_in_the_same_table_as_a_fresh_start(history in history()) {
        let mut run = Run::new();
        for step in history {
            run.step(step.into_iter().map(|(service, spec)| (key(service), spec)));
            run.check();
        }
    }

    #[test]
    fn any_earlier_table_is_brought_to_the_present(history in history()) {
        let mut run = Run::new();
        let mut earlier = vec![Family::BOTH.map(Table::absent), run.tables.clone()];
        for step in history {
            run.step(step.into_iter().map(|(service, spec)| (key(service), spec)));
            earlier.push(run.tables.clone());
        }
        let fresh = run.fresh();
        for tables in &earlier {
            let found = if tables[0].exists() { actual(tables) } else { Actual::default() };
            let brought = applied(tables, &bring_to(&fresh, &found));
            prop_assert_eq!(&brought, &tables_of(&fresh));
            prop_assert_eq!(bring_to(&fresh, &actual(&brought)), Changes::default());
        }
    }

    #[test]
    fn a_restart_with_nothing_changed_writes_nothing(history in history()) {
        let mut run = Run::new();
        for step in history {
            run.step(step.into_iter().map(|(service, spec)| (key(service), spec)));
        }
        let found = actual(&run.tables);
        let mut fresh = run.fresh();
        fresh.keep_idle(&found);
        prop_assert_eq!(bring_to(&fresh, &found), Changes::default());
        prop_assert_eq!(&tables_of(&fresh), &run.tables, "what lies idle is known");
    }

    #[test]
    fn a_restart_gives_every_endpoint_its_slot_back(history in history()) {
        let mut run = Run::new();
        for step in history {
            run.step(step.into_iter().map(|(service, spec)| (key(service), spec)));
        }
        let found = actual(&run.tables).slots();
        for (key, rules) in &run.services {
            let contested: Vec<Frontend> =
                run.desired.contested(key).into_iter().map(|c| c.frontend).collect();
            for port in &rules.ports {
                let held = run.desired.slots(key, &port.frontend);
                let read = found.get(&port.frontend).cloned().unwrap_or_default();
                prop_assert!(contested.contains(&port.frontend) || read == held);
            }
        }
    }

    #[test]
    fn a_damaged_table_is_repaired(history in history(), damage in prop::collection::vec(damage(), 1..5)) {
        let mut run = Run::new();
        for step in history {
            run.step(step.into_iter().map(|(service, spec)| (key(service), spec)));
        }
        let mut damaged = run.tables.clone();
        for (family, damage) in damage {
            damage.to(&mut damaged[family]);
        }
        let changes = bring_to(&run.desired, &actual(&damaged));
        prop_assert_eq!(changes.is_empty(), damaged == run.tables, "{:?}", changes);
        prop_assert_eq!(applied(&damaged, &changes), run.tables);
    }
}

/// What a stranger, or a predecessor of another version, may have done to a table.
#[derive(Debug, Clone)]
enum Damage {
    UnknownChain,
    LeftoverShape(u32),
    StrayElements,
    ForeignData(prop::sample::Index),
    OtherComment(prop::sample::Index),
    LostElement(prop::sample::Index),
    ChangedRules(prop::sample::Index),
    EmptiedChain(prop::sample::Index),
}

fn damage() -> impl Strategy<Value = (usize, Damage)> {
    let any = any::<prop::sample::Index>;
    let damage = prop_oneof![
        Just(Damage::UnknownChain),
        (1u32..100).prop_map(Damage::LeftoverShape),
        Just(Damage::StrayElements),
        any().prop_map(Damage::ForeignData),
        any().prop_map(Damage::OtherComment),
        any().prop_map(Damage::LostElement),
        any().prop_map(Damage::ChangedRules),
        any().prop_map(Damage::EmptiedChain),
    ];
    (0usize..2, damage)
}

impl Damage {
    fn to(&self, table: &mut Table) {
        let family = table.family;
        match self {
            Damage::UnknownChain => {
                let rules = vec![vec![Statement::Reject]];
                let chain = Chain { name: "svc-of-old".into(), hook: None, rules };
                table.chains.insert(chain.name.clone(), chain);
            }
            Damage::LeftoverShape(slots) => {
                let chain = shape_chain(family, *slots, &config());
                table.chains.insert(chain.name.clone(), chain);
            }
            Damage::StrayElements => {
                let of_nobody = frontend_key(family, 99);
                let to = Data::Value(Key::new().addr(pod(family, 99)).port(1));
                let goto = |chain: &str| Data::Goto(chain.into());
                for (set, key, data) in [
                    (SetName::Services, of_nobody, goto("refuse")),
                    (SetName::NoEndpoints, of_nobody, Data::Nothing),
                    (SetName::Connections, of_nobody, Data::Nothing),
                    (SetName::Endpoints, of_nobody.slot(0), to),
                    (SetName::Hairpin, Key::new().addr(vip(family, 9)), Data::Nothing),
                ] {
                    let element = Element { key, data, comment: None };
                    table.elements.entry(set).or_default().insert(key, element);
                }
            }
            Damage::ForeignData(index) => {
                with_one(table, index, |element| element.data = Data::Foreign);
            }
            Damage::OtherComment(index) => {
                with_one(table, index, |element| element.comment = Some("x/y:z".into()));
            }
            Damage::LostElement(index) => {
                let mut lost = None;
                with_one(table, index, |element| lost = Some(element.key));
                if let Some(key) = lost {
                    table.elements.values_mut().for_each(|elements| {
                        elements.remove(&key);
                    });
                }
            }
            Damage::ChangedRules(index) => {
                let at = index.index(table.chains.len());
                let chain = table.chains.values_mut().nth(at).unwrap();
                chain.rules.push(vec![Statement::Mark(1)]);
            }
            Damage::EmptiedChain(index) => {
                let at = index.index(table.chains.len());
                table.chains.values_mut().nth(at).unwrap().rules.clear();
            }
        }
    }
}

fn frontend_key(family: Family, last: u8) -> Key {
    Frontend::new(vip(family, last), Protocol::Tcp, 80).key()
}

fn with_one(table: &mut Table, index: &prop::sample::Index, change: impl FnOnce(&mut Element)) {
    let mut elements: Vec<&mut Element> =
        table.elements.values_mut().flat_map(BTreeMap::values_mut).collect();
    if !elements.is_empty() {
        let at = index.index(elements.len());
        change(elements[at]);
    }
}

#[test]
fn a_missing_set_comes_back_with_its_elements() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..3)))]);
    let mut damaged = run.tables.clone();
    damaged[0].elements.remove(&SetName::Endpoints);
    let changes = bring_to(&run.desired, &actual(&damaged));
    assert_eq!(changes.element_operations(), 3);
    assert_eq!(applied(&damaged, &changes), run.tables);
}

#[test]
fn a_set_of_another_version_is_deleted_and_nothing_else_touched() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..3)))]);
    let mut found = actual(&run.tables);
    found.tables.get_mut(&Family::V6).unwrap().unknown_sets.push("firewall".into());
    let changes = bring_to(&run.desired, &found);
    let want = TableChanges { delete_sets: vec!["firewall".into()], ..TableChanges::default() };
    let tables = BTreeMap::from([(Family::V6, want)]);
    assert_eq!(changes, Changes { tables, ..Changes::default() });
}

#[test]
fn a_table_that_cannot_be_changed_in_place_is_replaced() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..3)))]);
    let mut damaged = run.tables.clone();
    damaged[0].chains.clear();
    let mut found = actual(&damaged);
    found.tables.get_mut(&Family::V4).unwrap().incompatible = true;
    let changes = bring_to(&run.desired, &found);
    let fresh = bring_to(&run.desired, &Actual::default()).tables.remove(&Family::V4).unwrap();
    let want = TableChanges { delete_table: true, ..fresh };
    let tables = BTreeMap::from([(Family::V4, want)]);
    assert_eq!(changes, Changes { tables, ..Changes::default() });
    assert_eq!(applied(&damaged, &changes), run.tables);
}

#[test]
fn a_table_made_under_other_settings_is_brought_to_ours() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..3)))]);
    let others = [
        PlanConfig { masquerade_mark: 1 << 15, ..config() },
        PlanConfig { pods: Pods::Ranges(Vec::new()), ..config() },
        PlanConfig { pods: Pods::Ranges(vec!["10.0.0.0/8".parse().unwrap()]), ..config() },
    ];
    for other in others {
        let mut desired = Desired::new(other, surroundings());
        desired.load(run.services.clone().into_iter().map(|(key, rules)| (key, Some(rules))));
        let changes = bring_to(&desired, &actual(&run.tables));
        assert_eq!(applied(&run.tables, &changes), tables_of(&desired));
    }
}

#[test]
fn without_services_a_fresh_start_makes_the_base_of_both_tables() {
    let desired = Desired::new(config(), Surroundings::default());
    let empty: BTreeMap<SetName, BTreeMap<Key, Element>> =
        SetName::ALL.into_iter().map(|set| (set, BTreeMap::new())).collect();
    for table in tables_of(&desired) {
        let base: BTreeMap<String, Chain> = base_table(table.family, &config(), false)
            .into_iter()
            .map(|chain| (chain.name.clone(), chain))
            .collect();
        assert_eq!((&table.chains, &table.elements), (&base, &empty));
        assert!(table.exists());
    }
}

#[test]
fn one_endpoint_more_or_less_changes_a_handful_of_elements_at_any_size() {
    for (family, vips) in [(Family::V4, [Some(1), None]), (Family::V6, [None, Some(1)])] {
        for size in [1u16, 2, 50, 20_000] {
            // Every other endpoint is a local one, which takes its hairpin address along.
            let of = |endpoints: &mut dyn Iterator<Item = u16>| Spec {
                vips,
                udp: false,
                endpoints: endpoints.map(|n| (n, n % 2 == 0)).collect(),
                features: Features::default(),
            };
            let mut run = Run::new();
            run.step([(key(0), Some(of(&mut (0..size))))]);
            for gone in BTreeSet::from([0, size / 2, size - 1]) {
                let name = format!("{family}, endpoint {gone} of {size}");
                let removed = of(&mut (0..size).filter(|n| *n != gone));
                for spec in [removed, of(&mut (0..size))] {
                    let changes = run.step([(key(0), Some(spec))]);
                    let operations = changes.element_operations();
                    assert!((1..=6).contains(&operations), "{name}: {operations} elements");
                    assert_eq!(changes.tables.len(), 1, "{name}");
                    let table = &changes.tables[&family];
                    assert_eq!(table.rewrite_chains, [], "{name}");
                    assert_eq!(table.delete_chains, Vec::<String>::new(), "{name}");
                    assert!(table.add_chains.len() <= 1, "{name}");
                }
            }
            run.check();
        }
    }
}

#[test]
fn removing_an_endpoint_moves_the_last_one_into_its_slot() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..4)))]);
    let changes = run.step([(key(0), Some(plain([0, 2, 3])))]);
    let front = frontend_key(Family::V4, 1);
    let slot = |slot, n| Element {
        key: front.slot(slot),
        data: Data::Value(Key::new().addr(pod(Family::V4, n)).port(8080)),
        comment: None,
    };
    let want = TableChanges {
        delete_elements: BTreeMap::from([(SetName::Endpoints, vec![slot(1, 1), slot(3, 3)])]),
        add_elements: BTreeMap::from([(SetName::Endpoints, vec![slot(1, 3)])]),
        ..TableChanges::default()
    };
    let tables = BTreeMap::from([(Family::V4, want)]);
    assert_eq!(changes, Changes { tables, ..Changes::default() });
}

#[test]
fn a_service_is_led_to_another_chain_only_where_its_slots_double_or_halve() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..1)))]);
    let led_on = |size: u16, run: &mut Run| {
        let changes = run.step([(key(0), Some(plain(0..size)))]);
        let moved = changes.tables[&Family::V4].add_elements.contains_key(&SetName::Services);
        (moved || changes.chain_operations() > 0).then_some(size)
    };
    let growing: Vec<u16> = (2..=70).filter_map(|size| led_on(size, &mut run)).collect();
    assert_eq!(growing, [2, 3, 5, 9, 17, 33, 65]);
    let shrinking: Vec<u16> = (0..70).rev().filter_map(|size| led_on(size, &mut run)).collect();
    assert_eq!(shrinking, [64, 32, 16, 8, 4, 2, 1]);
    run.check();
}

#[test]
fn the_last_endpoint_goes_and_the_first_one_comes_without_a_verdict() {
    for (internal_local, external_local) in [(false, false), (false, true), (true, false)] {
        let features = Features {
            node_port: Some(30_000),
            external_ip: true,
            load_balancer: true,
            internal_local,
            external_local,
            ..Features::default()
        };
        let of = |endpoints: &[(u16, bool)]| Spec {
            endpoints: endpoints.iter().copied().collect(),
            features,
            ..plain([])
        };
        let mut run = Run::new();
        run.step([(key(0), Some(of(&[(1, true)])))]);
        // One here, none, one elsewhere.
        for endpoints in [&[][..], &[(1, true)], &[(2, false)], &[], &[(2, false)], &[(1, true)]] {
            let changes = run.step([(key(0), Some(of(endpoints)))]);
            let table = &changes.tables[&Family::V4];
            let verdicts = table.add_elements.keys().filter(|s| s.def().data == SetData::Verdict);
            let verdicts: Vec<_> = verdicts.collect();
            assert!(verdicts.is_empty(), "{features:?} to {endpoints:?}: {verdicts:?}");
            assert_eq!(changes.chain_operations(), 0, "{features:?} to {endpoints:?}");
        }
        run.check();
    }
}

#[test]
fn an_update_that_says_the_same_changes_nothing() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..4)))]);
    assert_eq!(run.step([(key(0), Some(plain(0..4)))]), Changes::default());
    assert_eq!(run.step([(key(2), None)]), Changes::default());
}

#[test]
fn a_service_that_scales_through_many_sizes_leaves_few_idle_chains() {
    let config = PlanConfig { balance: Balance::RoundRobin, ..config() };
    let mut run = Run::with(config.clone());
    let sizes = (1..=100).chain((1..100).rev()).chain([0]);
    for size in sizes {
        run.step([(key(0), Some(plain(0..size)))]);
        let fresh = run.fresh();
        let idle = idle(&run.tables[0], &Table::of(&fresh, Family::V4).unwrap(), &config);
        assert!(idle.len() <= IDLE_SHAPES, "{} idle chains at size {size}", idle.len());
    }
    run.check();
}

#[test]
fn shapes_that_all_fall_idle_at_once_go_with_the_next_update() {
    let many = 2 * IDLE_SHAPES;
    let name = |n: usize| ServiceKey::new("web", format!("svc-{n:03}"));
    // In turn, because there is a chain for every number then.
    let config = PlanConfig { balance: Balance::RoundRobin, ..config() };
    let mut run = Run::with(config.clone());
    run.step((0..many).map(|n| {
        let endpoints = (0..=u16::try_from(n).unwrap()).map(|n| (n, false)).collect();
        let last = u8::try_from(n).unwrap();
        (name(n), Some(Spec { vips: [Some(last), None], endpoints, ..plain([]) }))
    }));
    let idle = |run: &Run| {
        idle(&run.tables[0], &Table::of(&run.fresh(), Family::V4).unwrap(), &config).len()
    };
    run.step((0..many).map(|n| (name(n), None)));
    assert_eq!(idle(&run), many, "they may not go in the transaction that frees them");
    run.step([(key(0), Some(plain(0..2)))]);
    assert_eq!(idle(&run), 0);
    run.check();
}

#[test]
fn an_idle_shape_is_taken_up_again_without_writing_it() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..2)))]);
    run.step([(key(0), Some(plain(0..3)))]);
    let changes = run.step([(key(0), Some(plain(0..2)))]);
    assert_eq!(changes.chain_operations(), 0);
    run.check();
}

#[test]
fn two_services_swap_their_addresses_in_one_update() {
    let with_vip =
        |last, endpoints: [u16; 2]| Spec { vips: [Some(last), Some(last)], ..plain(endpoints) };
    for turn in [[0, 1], [1, 0]] {
        let mut run = Run::new();
        run.step([(key(0), Some(with_vip(1, [0, 1]))), (key(1), Some(with_vip(2, [2, 3])))]);
        let swapped = [with_vip(2, [0, 1]), with_vip(1, [2, 3])];
        let changes = run.step(turn.map(|n| (key(n), Some(swapped[n].clone()))));
        run.check();
        assert_eq!(changes.chain_operations(), 0, "the shape stays the same");
        assert_eq!(run.desired.contested(&key(0)), []);
        assert_eq!(run.desired.contested(&key(1)), []);
        let slots = actual(&run.tables).slots();
        let at_8080 = |n: u16| SocketAddr::new(pod(Family::V4, n), 8080);
        assert_eq!(slots[&frontend(1)].all, [at_8080(2), at_8080(3)]);
        assert_eq!(slots[&frontend(2)].all, [at_8080(0), at_8080(1)]);
    }
}

#[test]
fn a_contested_frontend_is_the_first_claimants_until_he_lets_go() {
    let mut run = Run::new();
    let backends = |run: &Run| actual(&run.tables).slots().remove(&frontend(1)).unwrap().all;
    let at_8080 = |n: u16| SocketAddr::new(pod(Family::V4, n), 8080);
    let contested = |owner, losers: &[usize]| {
        let losers = losers.iter().map(|n| key(*n)).collect();
        vec![Contested { frontend: frontend(1), owner: key(owner), losers }]
    };

    run.step([(key(1), Some(plain([1])))]);
    let silent = run.step([(key(2), Some(plain([2])))]);
    assert_eq!(silent, Changes::default(), "who loses changes nothing");
    assert_eq!(run.desired.contested(&key(1)), contested(1, &[2]));

    run.step([(key(0), Some(plain([0])))]);
    assert_eq!(backends(&run), [at_8080(0)], "by name, whoever came first");
    for n in 0..3 {
        assert_eq!(run.desired.contested(&key(n)), contested(0, &[1, 2]));
    }
    run.check();

    run.step([(key(0), None), (key(1), None)]);
    assert_eq!(backends(&run), [at_8080(2)]);
    assert_eq!(run.desired.contested(&key(2)), []);
    run.check();
}

#[test]
fn a_hairpin_address_stays_until_its_last_user_goes() {
    let local = |last| Spec {
        vips: [Some(last), None],
        udp: true,
        endpoints: vec![(0, true)],
        ..plain([])
    };
    let pair = Key::new().addr(pod(Family::V4, 0)).addr(pod(Family::V4, 0));
    let hairpins = |run: &Run| -> Vec<Key> {
        run.tables[0].elements[&SetName::Hairpin].keys().copied().collect()
    };
    let mut run = Run::new();
    run.step([(key(0), Some(local(1))), (key(1), Some(local(2)))]);
    assert_eq!(hairpins(&run), [pair]);
    run.step([(key(0), None)]);
    assert_eq!(hairpins(&run), [pair]);
    let moved_away = Spec { endpoints: vec![(0, false)], ..local(2) };
    let changes = run.step([(key(1), Some(moved_away))]);
    let want = TableChanges {
        delete_elements: BTreeMap::from([(SetName::Hairpin, vec![Element::bare(pair)])]),
        ..TableChanges::default()
    };
    let tables = BTreeMap::from([(Family::V4, want)]);
    assert_eq!(changes, Changes { tables, ..Changes::default() });
    run.check();
}
