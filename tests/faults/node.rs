//! A node whose agent has a hard life, and a twin on which an agent starts afresh.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use zw_dataplane::Kernel;
use zw_lab::{Answer, Lab, Protocol};
use zw_model::Family;
use zw_netlink::nft::{Batch, Socket};
use zw_plan::{SetName, show_key};
use zw_tests::binary::{Agent, eventually, run_in, text, tool_in};
use zw_tests::control_plane::{ControlPlane, Relay};

use crate::held::{difference, held, keyword};
use crate::script::{Offer, PODS, SERVICES, Step};

/// What the agent may do, and no more.
const RBAC: &str = include_str!("../../deploy/base/rbac.yaml");

const CLIENT: &str = "client";
const NODE_NAME: &str = "node-1";
const PORT: u16 = 80;
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after the last fault all must be well: the longest wait between two attempts, and some.
const QUIET: Duration = Duration::from_secs(45);

/// Where the agent hears of Services.
pub(crate) enum Source<'a> {
    Folder(TempDir),
    Cluster { plane: &'a ControlPlane, kubeconfig: PathBuf },
}

/// The node, its twin and what both are told.
pub(crate) struct Node<'a> {
    agent: Option<Agent>,
    /// How often an agent was started.
    pub(crate) starts: usize,
    pub(crate) lab: Lab,
    twin: Lab,
    source: Source<'a>,
    offers: [Option<Offer>; SERVICES],
    _relays: Vec<Relay>,
}

impl<'a> Node<'a> {
    /// A node that follows a folder of its own.
    pub(crate) fn with_folder() -> Self {
        Self::new(Source::Folder(tempfile::tempdir().expect("a temporary folder")))
    }

    /// A node that follows a real API server.
    pub(crate) fn with_cluster(plane: &'a ControlPlane) -> Self {
        plane.apply(RBAC);
        plane.apply("{apiVersion: v1, kind: Namespace, metadata: {name: web}}");
        let kubeconfig = plane.kubeconfig_for_service_account("kube-system", "zoneward");
        let mut node = Self::new(Source::Cluster { plane, kubeconfig });
        node._relays = [&node.lab, &node.twin].map(|lab| plane.reach_from(lab.node())).into();
        node
    }

    fn new(source: Source<'a>) -> Self {
        let addresses: [IpAddr; 2] =
            ["192.0.2.10", "2001:db8::10"].map(|address| address.parse().unwrap());
        let mut lab = Lab::new(&addresses).unwrap();
        lab.add_host(CLIENT, &pod(9)).unwrap();
        for number in PODS {
            let name = pod_name(number);
            lab.add_host(&name, &pod(number)).unwrap();
            lab.serve(&name, &[8080]).unwrap();
        }
        let twin = Lab::new(&addresses).unwrap();
        let offers = [const { None }; SERVICES];
        Self { agent: None, starts: 0, lab, twin, source, offers, _relays: Vec::new() }
    }

    /// Where a history begins: no Service, no table, a fresh agent.
    pub(crate) fn reset(&mut self) {
        self.agent = None;
        for service in 0..SERVICES {
            self.change(service, None);
        }
        self.nft("flush ruleset");
        self.start(None);
    }

    /// Does one thing, and waits for nothing.
    pub(crate) fn take(&mut self, step: &Step) {
        match step {
            Step::Change(service, offer) => self.change(*service, offer.clone()),
            Step::Kill => self.start(None),
            Step::Tamper(how) => self.start(Some(how)),
            Step::Flush => self.nft("flush ruleset"),
            Step::DropTable(n) => self.nft(&format!("delete table {} zoneward", ["ip", "ip6"][*n])),
            Step::DropElement(n) => self.drop_element(*n),
            Step::EmptyChain(n) => self.empty_chain(*n),
            Step::Intrude => self.nft(
                "add element ip zoneward endpoints { 10.96.60.99 . tcp . 1 . 0 : 192.0.2.9 . 1 }
                 add chain ip zoneward of-nobody",
            ),
            Step::ChangeOthers => self.change_others(),
            Step::Pause(milliseconds) => std::thread::sleep(Duration::from_millis(*milliseconds)),
        }
    }

    /// Waits until the kernel holds what a fresh start puts there, then connects to every Service. An
    /// agent that was made to end is started again, as the kubelet would.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        let should = self.fresh_start();
        let end = Instant::now() + QUIET;
        loop {
            self.revive();
            let is = held(self.lab.node());
            if is.as_ref() == Some(&should) {
                break;
            }
            if Instant::now() > end {
                let is = is.unwrap_or_default();
                return Err(format!("not as a fresh start:\n{}", difference(&is, &should)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.connect()
    }

    /// What the agent said, for a failure.
    pub(crate) fn log(&mut self) -> String {
        let Some(agent) = &mut self.agent else { return String::new() };
        agent.read_on();
        agent.log.join("\n")
    }

    fn start(&mut self, tamper: Option<&str>) {
        // The old one is killed here.
        self.agent = None;
        self.starts += 1;
        let (args, node) = (self.args(), self.lab.node());
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.agent = Some(match tamper {
            Some(how) => Agent::start_tampered(node, &args, how),
            None => Agent::start(node, &args),
        });
    }

    fn revive(&mut self) {
        if self.agent.as_mut().is_none_or(Agent::has_ended) {
            self.start(None);
        }
    }

    fn args(&self) -> Vec<String> {
        let (flag, path) = match &self.source {
            Source::Folder(folder) => ("--state", folder.path()),
            Source::Cluster { kubeconfig, .. } => ("--kubeconfig", kubeconfig.as_path()),
        };
        let path = path.to_str().expect("a path in UTF-8");
        let args = [flag, path, "--node-name", NODE_NAME];
        let cidr = ["--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48"];
        args.into_iter().chain(cidr).map(str::to_owned).collect()
    }

    /// What a fresh start puts into an empty kernel.
    fn fresh_start(&self) -> BTreeSet<String> {
        let twin = self.twin.node();
        assert!(tool_in(twin, "nft", &["flush", "ruleset"], "").status.success());
        let args: Vec<String> =
            ["run", "--once"].map(str::to_owned).into_iter().chain(self.args()).collect();
        let output = run_in(twin, &args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut all = None;
        eventually("the twin's tables are read", || {
            all = held(twin);
            all.is_some()
        });
        all.expect("it was there")
    }

    fn connect(&self) -> Result<(), String> {
        for (service, offer) in self.offers.iter().enumerate() {
            let Some(Offer { pods, .. }) = offer else { continue };
            for vip in vips(service) {
                let answer = self.lab.probe(CLIENT, vip, Protocol::Tcp, PATIENCE);
                let right = match &answer {
                    Answer::Answered { by, .. } => pods.iter().any(|pod| pod_name(*pod) == *by),
                    Answer::Refused => pods.is_empty(),
                    _ => false,
                };
                if !right {
                    return Err(format!(
                        "{vip} has the pods {pods:?}, and the answer was {answer}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn change(&mut self, service: usize, offer: Option<Offer>) {
        if self.offers[service] == offer {
            return;
        }
        let before = std::mem::replace(&mut self.offers[service], offer);
        let objects = self.offers[service].as_ref().map(|offer| manifests(service, offer));
        match (&self.source, objects) {
            (Source::Folder(folder), Some(objects)) => {
                let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
                // In one step: half of a file is often a valid one.
                let hidden = folder.path().join(".next");
                fs::write(&hidden, text).expect("the folder is writable");
                let path = folder.path().join(format!("{service}.json"));
                fs::rename(hidden, path).expect("the folder is writable");
            }
            (Source::Folder(folder), None) => {
                fs::remove_file(folder.path().join(format!("{service}.json")))
                    .expect("it is there");
            }
            (Source::Cluster { plane, .. }, Some(objects)) => {
                let objects: Vec<String> = objects.iter().map(Value::to_string).collect();
                plane.apply(&objects.join("\n---\n"));
            }
            (Source::Cluster { plane, .. }, None) => {
                for object in manifests(service, &before.expect("it differs from None")) {
                    let name = object["metadata"]["name"].as_str().expect("a name");
                    let root = match object["kind"].as_str() {
                        Some("Service") => "/api/v1/namespaces/web/services",
                        _ => "/apis/discovery.k8s.io/v1/namespaces/web/endpointslices",
                    };
                    plane.delete(&format!("{root}/{name}"));
                }
            }
        }
    }

    /// What a stranger does; if the table is not there just now, nothing.
    fn nft(&self, script: &str) {
        tool_in(self.lab.node(), "nft", &["-f", "-"], script);
    }

    fn drop_element(&self, number: usize) {
        let read = self.lab.node().run(|| Kernel::open().ok()?.read_back().ok());
        let mut all: Vec<String> = Vec::new();
        for (family, table) in read.iter().flat_map(|read| &read.actual.tables) {
            for (set, elements) in table.sets.iter().filter(|(set, _)| !set.def().ranges) {
                all.extend(
                    elements
                        .keys()
                        .map(|key| deletion(*family, *set, &show_key(*family, *set, key))),
                );
            }
        }
        all.sort();
        if !all.is_empty() {
            self.nft(&all[number % all.len()]);
        }
    }

    fn empty_chain(&self, number: usize) {
        let read = self.lab.node().run(|| Kernel::open().ok()?.read_back().ok());
        let mut all: Vec<String> = Vec::new();
        for (family, table) in read.iter().flat_map(|read| &read.actual.tables) {
            let name =
                |chain: &String| format!("flush chain {} zoneward {chain}", keyword(*family));
            all.extend(table.chains.keys().map(name));
        }
        if !all.is_empty() {
            self.nft(&all[number % all.len()]);
        }
    }

    fn change_others(&self) {
        self.lab.node().run(|| {
            let mut socket = Socket::open().expect("nf_tables");
            for _ in 0..20 {
                let mut batch = Batch::new();
                batch.add_table(zw_netlink::nft::Family::Ip, "strangers", None);
                batch.delete_table(zw_netlink::nft::Family::Ip, "strangers");
                socket.commit(&mut batch).expect("a table of one's own");
            }
        });
    }
}

fn deletion(family: Family, set: SetName, key: &str) -> String {
    format!("delete element {} zoneward {} {{ {key} }}", keyword(family), set.as_str())
}

fn pod_name(number: u8) -> String {
    format!("pod-{number}")
}

/// A pod's addresses.
fn pod(number: u8) -> [IpAddr; 2] {
    [
        IpAddr::from([10, 244, number, 1]),
        IpAddr::from([0xfd00, 0x10, 0x244, u16::from(number), 0, 0, 0, 1]),
    ]
}

/// A Service's addresses.
fn vips(service: usize) -> [SocketAddr; 2] {
    let last = 10 + service as u16;
    [
        IpAddr::from([10, 96, 60, last as u8]),
        IpAddr::from([0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0x6000 + last]),
    ]
    .map(|address| SocketAddr::new(address, PORT))
}

/// A Service and its slices.
fn manifests(service: usize, offer: &Offer) -> Vec<Value> {
    let name = format!("svc-{service}");
    let ips = vips(service).map(|vip| vip.ip());
    let affinity = if offer.sticky { "ClientIP" } else { "None" };
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "web"},
        "spec": {
            "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"],
            "clusterIP": ips[0], "clusterIPs": ips, "sessionAffinity": affinity,
            "ports": [{"name": "http", "port": PORT, "protocol": "TCP"}],
        },
    })];
    for (i, family) in ["IPv4", "IPv6"].into_iter().enumerate() {
        let endpoints: Vec<Value> =
            offer.pods.iter().map(|number| json!({"addresses": [pod(*number)[i]]})).collect();
        objects.push(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
            "metadata": {
                "name": format!("{name}-{}", family.to_lowercase()), "namespace": "web",
                "labels": {"kubernetes.io/service-name": name},
            },
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints,
        }));
    }
    objects
}
