//! What happens beside the kernel's tables after a commit: stale flows go, the ports on which load
//! balancers ask for a Service's endpoints answer anew, and node ports on the loopback address, which the
//! kernel cannot redirect, are relayed. Cost follows the Services that changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Sender;
use zw_model::{Family, NodeContext, Protocol, Service, ServiceKey, Slice};
use zw_plan::{At, Backend, Desired, Exposure, Frontend, PortRules, ServiceRules};

use crate::around::Around;
use crate::config::Config;
use crate::conntrack_cleanup::ChangedFlows;
use crate::flows::Flows;
use crate::health_ports::{HealthPortFailure, HealthPorts, LocalEndpoints};
use crate::index::Index;
use crate::localhost_ports::{Backends, Limits, LocalFrontend, LocalPortFailure, LocalhostPorts};
use crate::metrics::Policy;
use crate::side_runtime::SideRuntime;
use crate::status::Status;

pub(crate) struct Attendants {
    flows: Flows,
    health_ports: HealthPorts,
    localhost_ports: LocalhostPorts,
    /// Stale TCP flows go too.
    clean_tcp: bool,
    /// Families whose node ports are served on the loopback address too.
    on_localhost: BTreeSet<Family>,
    /// Services that a local policy leaves without an endpoint on this node.
    without_local: BTreeMap<(Policy, Family), BTreeSet<ServiceKey>>,
    status: Arc<Status>,
    /// A large sync must not keep a load balancer waiting for its answer.
    _side: SideRuntime,
}

/// What there was before Services changed.
#[derive(Debug, Default)]
pub(crate) struct Before {
    frontends: BTreeSet<Frontend>,
    /// Nothing was translated at all.
    nothing: bool,
}

impl Before {
    /// Takes in what a Service has until it changes.
    pub(crate) fn note(&mut self, rules: &ServiceRules) {
        self.frontends.extend(rules.ports.iter().map(|port| port.frontend));
    }

    /// Takes in that the kernel has nothing until now.
    pub(crate) fn note_nothing(&mut self) {
        self.nothing = true;
    }
}

impl Attendants {
    /// Whether this agent keeps up is told to load balancers too.
    pub(crate) fn new(
        status: Arc<Status>,
        health_failures: Sender<HealthPortFailure>,
        localhost_failures: Sender<LocalPortFailure>,
    ) -> io::Result<Self> {
        let side = SideRuntime::start("servers")?;
        let runtime = side.handle().clone();
        let (limits, nowhere) = (Limits::default(), BTreeSet::new());
        let asked = status.clone();
        let healthy = move || asked.is_live();
        Ok(Self {
            flows: Flows::start(status.clone()),
            clean_tcp: false,
            status,
            without_local: BTreeMap::new(),
            health_ports: HealthPorts::new(runtime.clone(), nowhere, healthy, health_failures),
            localhost_ports: LocalhostPorts::new(runtime, limits, localhost_failures),
            on_localhost: BTreeSet::new(),
            _side: side,
        })
    }

    /// The node has other addresses, or other settings. True if every Service's node ports have to be
    /// attended to because of that.
    pub(crate) fn look_around(
        &mut self,
        around: &Around,
        local: &BTreeSet<IpAddr>,
        config: &Config,
    ) -> bool {
        self.clean_tcp = config.conntrack.tcp_cleanup;
        self.health_ports.listen_on(around.listening());
        let before = self.on_localhost.clone();
        let node_ports = &config.node_port_addresses;
        let wanted = Family::BOTH.into_iter().filter(|family| node_ports.wants_localhost(*family));
        self.on_localhost = wanted.collect();
        let any = &around.plan.any_node_address;
        let serving = local.iter().filter(|addr| any.contains(&Family::of(**addr)));
        let only = around.surroundings.node_addresses.iter();
        self.flows.serve_node_ports_on(serving.chain(only).copied().collect());
        before != self.on_localhost
    }

    /// These Services have changed, and the kernel knows.
    pub(crate) fn attend<'a>(
        &mut self,
        index: &Index,
        desired: &Desired,
        keys: impl Iterator<Item = &'a ServiceKey>,
        Before { frontends: before, nothing }: Before,
    ) {
        let mut changed = ChangedFlows::default();
        let mut touched = before;
        touched.retain(|frontend| self.is_attended(frontend));
        for key in keys {
            let ports = desired.service(key).map_or(&[][..], |rules| &rules.ports);
            self.count_without_local(key, ports);
            let asked = index.service(key).and_then(|(service, slices)| {
                let port = service.external.as_ref()?.health_check_port?;
                Some((port, ready_here(service, slices, index.node())))
            });
            self.health_ports.set(key, asked);
            let frontends = ports.iter().map(|rules| rules.frontend);
            if nothing {
                // Whoever connects to the node itself is answered by it.
                let addresses = frontends.clone().filter(|frontend| frontend.addr().is_some());
                let left = addresses.filter(|frontend| !self.cleans(frontend));
                left.for_each(|frontend| changed.begun(frontend));
            }
            touched.extend(frontends.filter(|frontend| self.is_attended(frontend)));
        }
        for frontend in touched {
            // Whoever has it now: perhaps another Service, which claims the same and did not change.
            let rules = |owner| desired.service(owner)?.port(&frontend);
            let owner = desired.owner(&frontend);
            let serves = owner.and_then(|owner| Some((rules(owner)?, index.service(owner)?)));
            match &serves {
                Some((rules, (service, _))) => self.relay(rules, service),
                None => {
                    if let Some(local) = localhost(&frontend) {
                        self.localhost_ports.set(local, None);
                    }
                }
            }
            match serves {
                _ if !self.cleans(&frontend) => {}
                Some((_, (service, slices))) => {
                    changed.served(frontend, serving(service, slices, &frontend));
                }
                None => changed.gone(frontend),
            }
        }
        if !changed.is_empty() {
            self.flows.clean(changed);
        }
    }

    fn count_without_local(&mut self, key: &ServiceKey, ports: &[PortRules]) {
        for family in Family::BOTH {
            for policy in [Policy::Internal, Policy::External] {
                let lacks = |rules: &PortRules| {
                    let answering = match (&rules.exposure, policy) {
                        (Exposure::Cluster, Policy::Internal) => &rules.backends,
                        (Exposure::ExternalLocal { local, .. }, Policy::External) => local,
                        _ => return false,
                    };
                    let of_family = rules.frontend.family() == family;
                    of_family && rules.has_endpoints && answering.is_empty()
                };
                let services = self.without_local.entry((policy, family)).or_default();
                let changed = match ports.iter().any(lacks) {
                    true => services.insert(key.clone()),
                    false => services.remove(key),
                };
                if changed {
                    let services = i64::try_from(services.len()).unwrap_or(i64::MAX);
                    self.status.metrics.no_local_endpoints(policy, family, services);
                }
            }
        }
    }
}

impl Attendants {
    /// Most frontends are TCP ports of cluster IPs, with which nothing is to be done.
    fn is_attended(&self, frontend: &Frontend) -> bool {
        self.cleans(frontend) || localhost(frontend).is_some()
    }

    /// Whether flows to it are looked after: who sends UDP would never notice.
    fn cleans(&self, frontend: &Frontend) -> bool {
        match frontend.protocol {
            Protocol::Udp => true,
            Protocol::Tcp => self.clean_tcp,
            Protocol::Sctp => false,
        }
    }

    fn relay(&mut self, rules: &PortRules, service: &Service) {
        let Some(frontend) = localhost(&rules.frontend) else { return };
        let addresses = |backends: &[Backend]| backends.iter().map(|b| b.addr).collect();
        let backends = self.on_localhost.contains(&frontend.family).then(|| Backends {
            addrs: match &rules.exposure {
                Exposure::ExternalLocal { local, .. } => addresses(local),
                _ => addresses(&rules.backends),
            },
            affinity: service.affinity.map(|seconds| Duration::from_secs(seconds.into())),
        });
        self.localhost_ports.set(frontend, backends);
    }
}

/// A node port, as it would be served on the loopback address.
fn localhost(frontend: &Frontend) -> Option<LocalFrontend> {
    let port = NonZeroU16::new(frontend.port)?;
    match frontend.at {
        At::Address(_) => None,
        At::Node(family) => Some(LocalFrontend { protocol: frontend.protocol, family, port }),
    }
}

/// Everybody who still answers, whatever policies, zones and hints say.
fn serving<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a Slice>,
    frontend: &Frontend,
) -> Vec<SocketAddr> {
    let is_it = |port: &&zw_model::ServicePort| match frontend.at {
        At::Address(_) => port.protocol == frontend.protocol && port.port == frontend.port,
        At::Node(_) => {
            port.protocol == frontend.protocol
                && port.node_port.is_some_and(|number| number.get() == frontend.port)
        }
    };
    let Some(port) = service.ports.iter().find(is_it) else { return Vec::new() };
    let of_family = slices.filter(|slice| slice.family == frontend.family());
    of_family
        .flat_map(|slice| {
            let numbers = slice
                .ports
                .iter()
                .filter(|p| p.name == port.name && p.protocol == port.protocol)
                .map(|p| p.port);
            numbers.flat_map(|number| {
                let answers = slice
                    .endpoints
                    .iter()
                    .filter(|endpoint| endpoint.conditions.serving || endpoint.conditions.ready);
                answers.map(move |endpoint| SocketAddr::new(endpoint.addr, number))
            })
        })
        .collect()
}

/// Ready endpoints on this node, by distinct addresses. A family that the Service does not have is asked
/// all the same by load balancers that know the node by such an address, and tells what the other does.
fn ready_here<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a Slice> + Clone,
    node: &NodeContext,
) -> LocalEndpoints<usize> {
    let count = |family: Family| {
        // An endpoint without a port serves nothing.
        let useful = |slice: &&Slice| slice.family == family && !slice.ports.is_empty();
        let of_family = slices.clone().filter(useful);
        let here = of_family.flat_map(|slice| &slice.endpoints).filter(|endpoint| {
            endpoint.conditions.ready && endpoint.node.as_ref() == Some(&node.name)
        });
        here.map(|endpoint| endpoint.addr).collect::<BTreeSet<_>>().len()
    };
    let told = |family: Family, other: Family| {
        count(if service.cluster_ip(family).is_some() { family } else { other })
    };
    LocalEndpoints { v4: told(Family::V4, Family::V6), v6: told(Family::V6, Family::V4) }
}
