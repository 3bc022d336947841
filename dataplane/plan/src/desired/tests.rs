//! Histories of updates against a table that behaves like the kernel. The domain is tiny, so that
//! Services fight for addresses, share endpoints and change shape all the time.

mod damage;
mod histories;
mod ipvs;
mod updates;

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

/// The Services of one update, each once; `None` removes.
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
    let change = prop_oneof![1 => Just(None), 4 => spec().prop_map(Some)];
    let changes = prop::collection::btree_map(0usize..SERVICES.len(), change, 1..4);
    let step = changes.prop_map(|changes| changes.into_iter().collect::<Step>()).prop_shuffle();
    prop::collection::vec(step, 1..10)
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
            Data::Goto(chain) => Some(chain.to_string()),
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

fn frontend_key(family: Family, last: u8) -> Key {
    Frontend::new(vip(family, last), Protocol::Tcp, 80).key()
}
