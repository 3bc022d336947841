//! What happens beside the kernel's tables after a commit: stale UDP flows go, and the ports on which
//! load balancers ask for a Service's endpoints answer anew. Cost follows the Services that changed.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use zw_model::{Family, NodeContext, Protocol, Service, ServiceKey, Slice};
use zw_plan::{At, Desired, Frontend};

use crate::around::Around;
use crate::conntrack_cleanup::{ChangedUdp, UdpFrontend};
use crate::flows::Flows;
use crate::health_ports::{HealthPortFailure, HealthPorts};
use crate::index::Index;

pub(crate) struct Attendants {
    flows: Flows,
    health_ports: HealthPorts,
}

/// The UDP frontends of Services before they change.
#[derive(Debug, Default)]
pub(crate) struct Before(BTreeSet<UdpFrontend>);

impl Attendants {
    /// `healthy`: whether this agent keeps up, which load balancers are told too.
    pub(crate) fn new(
        healthy: impl Fn() -> bool + Send + Sync + 'static,
        failures: UnboundedSender<HealthPortFailure>,
    ) -> Self {
        let health_ports = HealthPorts::new(Handle::current(), BTreeSet::new(), healthy, failures);
        Self { flows: Flows::start(), health_ports }
    }

    /// The node has other addresses.
    pub(crate) fn look_around(&mut self, around: &Around, local: &BTreeSet<IpAddr>) {
        self.health_ports.listen_on(around.listening());
        let any = &around.plan.any_node_address;
        let serving = local.iter().filter(|addr| any.contains(&Family::of(**addr)));
        let only = around.surroundings.node_addresses.iter();
        self.flows.serve_node_ports_on(serving.chain(only).copied().collect());
    }

    /// To be asked before the Services change.
    pub(crate) fn before(desired: &Desired, keys: &BTreeSet<ServiceKey>) -> Before {
        let rules = keys.iter().filter_map(|key| desired.service(key));
        let frontends = rules.flat_map(|rules| &rules.ports).map(|port| &port.frontend);
        Before(frontends.filter_map(udp).collect())
    }

    /// These Services have changed, and the kernel knows.
    pub(crate) fn attend<'a>(
        &mut self,
        index: &Index,
        desired: &Desired,
        keys: impl Iterator<Item = &'a ServiceKey>,
        before: Before,
    ) {
        let mut changed = ChangedUdp::default();
        for key in keys {
            let Some((service, slices)) = index.service(key) else {
                self.health_ports.set(key, None);
                continue;
            };
            let port = service.external.as_ref().and_then(|external| external.health_check_port);
            let count = || ready_here(slices.clone(), index.node());
            self.health_ports.set(key, port.map(|port| (port, count())));
            for rules in desired.service(key).into_iter().flat_map(|rules| &rules.ports) {
                if let Some(frontend) = udp(&rules.frontend) {
                    let family = rules.frontend.family();
                    changed.served(
                        frontend,
                        serving(service, slices.clone(), family, &rules.frontend),
                    );
                }
            }
        }
        before.0.into_iter().for_each(|frontend| changed.gone(frontend));
        if !changed.is_empty() {
            self.flows.clean(changed);
        }
    }
}

fn udp(frontend: &Frontend) -> Option<UdpFrontend> {
    (frontend.protocol == Protocol::Udp).then(|| match frontend.at {
        At::Address(addr) => UdpFrontend::Address(SocketAddr::new(addr, frontend.port)),
        At::Node(family) => UdpFrontend::NodePort(family, frontend.port),
    })
}

/// Everybody who still answers, whatever policies, zones and hints say.
fn serving<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a Slice>,
    family: Family,
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
    let of_family = slices.filter(|slice| slice.family == family);
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

/// Ready endpoints on this node, by distinct addresses.
fn ready_here<'a>(slices: impl Iterator<Item = &'a Slice>, node: &NodeContext) -> usize {
    let endpoints = slices.flat_map(|slice| &slice.endpoints);
    let here = endpoints
        .filter(|endpoint| endpoint.conditions.ready && endpoint.node.as_ref() == Some(&node.name));
    here.map(|endpoint| endpoint.addr).collect::<BTreeSet<_>>().len()
}
