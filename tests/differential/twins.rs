//! Two nodes with the same addresses, one cluster, and a proxy on each.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zw_lab::{Answer, Lab, Protocol};
use zw_tests::binary::{Agent, DEADLINE};
use zw_tests::control_plane::{ControlPlane, NodeProgram, Relay};

use crate::cast::{self, CLUSTER_CIDR, NODE_NAME};
use crate::cluster::{Cluster, Sentinel};
use crate::service::Service;

/// How long a node is given to answer before it is asked again.
const POLL: Duration = Duration::from_millis(100);

/// What runs on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    KubeProxy,
    Zoneward,
}

/// What an operator decides for all Services.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) node_port_addresses: &'static [&'static str],
    pub(crate) masquerade_all: bool,
}

enum Proxy {
    KubeProxy(NodeProgram),
    Zoneward { _agent: Agent },
}

/// One of the two nodes.
pub(crate) struct Side {
    pub(crate) program: Program,
    pub(crate) lab: Lab,
    // Before the relay it uses.
    proxy: Option<Proxy>,
    _relay: Relay,
}

/// Both nodes and the cluster they follow.
pub(crate) struct Twins {
    pub(crate) sides: [Side; 2],
    cluster: Cluster,
}

impl Twins {
    /// Builds both nodes; nothing runs on them yet.
    pub(crate) fn new(programs: [Program; 2]) -> Self {
        let cluster = Cluster::start();
        let sides = programs.map(|program| {
            let lab = cast::build();
            let relay = cluster.plane.reach_from(lab.node());
            Side { program, lab, proxy: None, _relay: relay }
        });
        Self { sides, cluster }
    }

    /// Starts the proxies anew with these settings.
    pub(crate) fn start(&mut self, settings: Settings) {
        let plane = &self.cluster.plane;
        for (i, side) in self.sides.iter_mut().enumerate() {
            side.proxy = None;
            let name = format!("proxy-{i}");
            let config = proxy_config(plane, settings);
            side.proxy = Some(match side.program {
                Program::KubeProxy => {
                    Proxy::KubeProxy(plane.start_kube_proxy(side.lab.node(), &name, &config))
                }
                Program::Zoneward => {
                    let args = zoneward_args(plane, &name, &config);
                    let args: Vec<&str> = args.iter().map(String::as_str).collect();
                    Proxy::Zoneward { _agent: Agent::start(side.lab.node(), &args) }
                }
            });
        }
    }

    /// Moves the node under test to a zone; empty for none.
    pub(crate) fn set_zone(&self, zone: &str) {
        self.cluster.set_zone(zone);
    }

    /// Makes the cluster hold exactly these Services, and waits until both nodes have heard of it.
    pub(crate) fn bring(&mut self, services: &[Service]) {
        let sentinel = self.cluster.bring(services);
        let end = Instant::now() + DEADLINE;
        for side in &mut self.sides {
            side.wait_for(sentinel, end);
        }
    }
}

impl Side {
    fn wait_for(&mut self, sentinel: Sentinel, end: Instant) {
        let (host, target) = sentinel.endpoint();
        let questions = sentinel.addresses().map(|to| (to, Protocol::Tcp));
        let is_it = |answer: &Answer| matches!(answer, Answer::Answered { by, port, .. } if by == host && *port == target);
        loop {
            let answers = self.lab.probe_all("local-client", &questions, POLL);
            if answers.iter().all(is_it) {
                return;
            }
            if let Some(Proxy::KubeProxy(proxy)) = &mut self.proxy {
                proxy.assert_runs();
            }
            assert!(Instant::now() < end, "{:?} did not follow: {answers:?}", self.program);
            // A refusal comes at once.
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What both proxies are told.
fn proxy_config(plane: &ControlPlane, settings: Settings) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": NODE_NAME,
        "clusterCIDR": CLUSTER_CIDR,
        "nodePortAddresses": settings.node_port_addresses,
        "clientConnection": {"kubeconfig": plane.kubeconfig()},
        "nftables": {"minSyncPeriod": "10ms", "masqueradeAll": settings.masquerade_all},
        "conntrack": {
            "maxPerCore": 0, "min": 0,
            "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
            "udpTimeout": "0s", "udpStreamTimeout": "0s",
        },
    })
}

/// How the agent is started.
fn zoneward_args(plane: &ControlPlane, name: &str, config: &Value) -> Vec<String> {
    vec![format!("--config={}", plane.write_proxy_config(name, config).display())]
}
