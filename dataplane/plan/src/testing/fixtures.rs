//! Objects with valid defaults; a case states only what it is about.

use std::net::IpAddr;
use std::sync::Arc;

pub use zw_model::Conditions;
use zw_model::{
    Family, Hints, NodeContext, Protocol, Scheduler, Scope, Service, ServiceKey, ServicePort,
    Slice, SliceEndpoint, SliceKey, SlicePort, Topology,
};

use super::{NODE, host, second_address};
use crate::config::{PlanConfig, Pods};
use crate::desired::Desired;
use crate::service::{Slots, plan_service};
use crate::surroundings::Surroundings;

/// A named port of a Service or a slice.
pub type Port = (&'static str, Protocol, u16);

/// Everything a node knows.
#[derive(Debug, Clone)]
pub struct World {
    /// The family of all addresses in it.
    pub family: Family,
    /// The node.
    pub node: NodeContext,
    /// The operator's choices.
    pub config: PlanConfig,
    /// What the node has around it.
    pub surroundings: Surroundings,
    /// The Services.
    pub services: Vec<Service>,
    /// Their slices.
    pub slices: Vec<Slice>,
}

/// A slice in the making: [`World::slice`] takes one.
#[derive(Debug)]
pub struct SliceSpec(Slice);

impl World {
    /// The node alone.
    pub fn new(family: Family) -> Self {
        let pods = if family == Family::V4 { "10.244.0.0/16" } else { "fd00:10:244::/48" };
        let pods = Pods::Ranges(vec![pods.parse().expect("a well formed range")]);
        let node_address = NODE.addr(family);
        Self {
            family,
            node: NodeContext {
                name: "node-1".into(),
                zone: Some("zone-a".into()),
                region: Some("region-1".into()),
                addresses: vec![node_address],
                ..NodeContext::default()
            },
            config: PlanConfig { pods, ..PlanConfig::default() },
            surroundings: Surroundings {
                node_addresses: [node_address].into(),
                ..Surroundings::default()
            },
            services: Vec::new(),
            slices: Vec::new(),
        }
    }

    /// Changes what the node knows of itself.
    pub fn on_node(mut self, change: impl FnOnce(&mut NodeContext)) -> Self {
        change(&mut self.node);
        self
    }

    /// Adds a Service.
    pub fn service(mut self, key: &str, last: u8, ports: &[Port]) -> Self {
        let service = Service {
            key: service_key(key),
            cluster_ips: vec![vip(self.family, last)],
            ports: ports
                .iter()
                .map(|(name, protocol, port)| ServicePort {
                    name: (*name).into(),
                    protocol: *protocol,
                    port: *port,
                    node_port: None,
                })
                .collect(),
            ..Service::default()
        };
        self.services.push(service);
        self
    }

    /// Changes the operator's choices.
    pub fn configured(mut self, change: impl FnOnce(&mut PlanConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// Changes what the node has around it.
    pub fn surrounded(mut self, change: impl FnOnce(&mut Surroundings)) -> Self {
        change(&mut self.surroundings);
        self
    }

    /// Changes the last Service.
    pub fn offered(mut self, change: impl FnOnce(&mut Service)) -> Self {
        change(self.services.last_mut().expect("a Service to change"));
        self
    }

    /// The same in the ipvs mode, where node ports are served on listed addresses.
    pub fn by_ipvs(mut self) -> Self {
        self.config.ipvs = Some(Scheduler::default());
        let own = [NODE.addr(self.family), second_address(self.family)];
        if !std::mem::take(&mut self.config.any_node_address).is_empty() {
            self.surroundings.node_addresses = own.into();
        }
        self.surroundings.own_addresses = own.into();
        self
    }

    /// Adds a slice.
    pub fn slice(
        mut self,
        service: &str,
        ports: &[Port],
        build: impl FnOnce(SliceSpec) -> SliceSpec,
    ) -> Self {
        let service = service_key(service);
        let slice = Slice {
            key: SliceKey {
                namespace: service.namespace.clone(),
                name: format!("{}-{}", service.name, self.slices.len()).into(),
            },
            service,
            family: self.family,
            scope: Scope::Everyone,
            managed_by: None,
            ports: ports
                .iter()
                .map(|(name, protocol, port)| SlicePort {
                    name: (*name).into(),
                    protocol: *protocol,
                    port: *port,
                })
                .collect(),
            endpoints: Vec::new(),
        };
        self.slices.push(build(SliceSpec(slice)).0);
        self
    }

    /// The rules for all of it.
    pub fn desired(&self) -> Desired {
        let mut desired = Desired::new(self.config.clone(), self.surroundings.clone());
        desired.load(self.services.iter().map(|service| {
            let slices: Vec<&Slice> =
                self.slices.iter().filter(|slice| slice.service == service.key).collect();
            let rules = plan_service(service, slices, &self.node, |_| Slots::default());
            (service.key.clone(), Some(rules))
        }));
        desired
    }
}

impl SliceSpec {
    /// Labels the slice for a zone.
    pub fn for_zone(mut self, zone: &str) -> Self {
        self.0.scope = Scope::Zone(zone.into());
        self
    }

    /// Labels the slice for a region.
    pub fn for_region(mut self, region: &str) -> Self {
        self.0.scope = Scope::Region(region.into());
        self
    }

    /// Ready endpoints on these members of the cast.
    pub fn ready(self, hosts: &[&str]) -> Self {
        self.with(hosts, Conditions { ready: true, serving: true, terminating: false })
    }

    /// Endpoints that are neither ready nor serving.
    pub fn not_ready(self, hosts: &[&str]) -> Self {
        self.with(hosts, Conditions { ready: false, serving: false, terminating: false })
    }

    /// Endpoints that go away but still answer.
    pub fn terminating(self, hosts: &[&str]) -> Self {
        self.with(hosts, Conditions { ready: false, serving: true, terminating: true })
    }

    /// Endpoints that go away and no longer answer.
    pub fn gone(self, hosts: &[&str]) -> Self {
        self.with(hosts, Conditions { ready: false, serving: false, terminating: true })
    }

    /// Hints the last endpoint for zones.
    pub fn hint_zones(self, zones: &[&str]) -> Self {
        self.hint(|hints| hints.zones = zones.iter().map(|zone| Arc::from(*zone)).collect())
    }

    /// Hints the last endpoint for nodes.
    pub fn hint_nodes(self, nodes: &[&str]) -> Self {
        self.hint(|hints| hints.nodes = nodes.iter().map(|node| Arc::from(*node)).collect())
    }

    fn hint(mut self, change: impl FnOnce(&mut Hints)) -> Self {
        let endpoint = self.0.endpoints.last_mut().expect("a hint follows its endpoint");
        change(Arc::make_mut(&mut endpoint.topology).hints.get_or_insert_default());
        self
    }

    fn with(mut self, hosts: &[&str], conditions: Conditions) -> Self {
        let family = self.0.family;
        self.0.endpoints.extend(hosts.iter().map(|name| {
            let host = host(name);
            SliceEndpoint {
                addr: host.addr(family),
                conditions,
                topology: Arc::new(Topology {
                    node: host.node.map(Arc::from),
                    zone: host.zone.map(Arc::from),
                    hints: None,
                }),
            }
        }));
        self
    }
}

/// A Service address by its last byte.
pub(super) fn vip(family: Family, last: u8) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([10, 96, 0, last]),
        Family::V6 => IpAddr::from([0xfd00, 0x10, 0x96, 0, 0, 0, 0, u16::from(last)]),
    }
}

/// A key from `namespace/name`.
fn service_key(text: &str) -> ServiceKey {
    let (namespace, name) = text.split_once('/').expect("namespace/name");
    ServiceKey::new(namespace, name)
}
