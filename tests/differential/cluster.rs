//! What the API holds of this test, and how it gets there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_model::Family;
use zw_tests::control_plane::ControlPlane;

use crate::cast::{NODE_NAME, SERVED, THIS_NODE, member};
use crate::service::{NAMESPACE, Service, cluster_ip};

/// How many requests to the API are under way at once.
const WRITERS: usize = 4;
/// The number of the Service that is written last, see [`Cluster::bring`].
const SENTINEL: usize = 50_000;
const SERVICES: &str = "/api/v1/namespaces/differential/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/differential/endpointslices";

/// An object as it was written: the manifest, and the status where it has one.
type Written = (Value, Option<Value>);

/// A control plane with one Node, and the Services that were written last.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    /// What the API holds, by path.
    written: BTreeMap<String, Written>,
    /// How often something was written.
    generation: usize,
}

/// How a node shows that it has heard of all that was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sentinel {
    generation: usize,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let namespace = Namespace::new().expect("a network namespace, which takes root");
        let plane = ControlPlane::start(&namespace);
        let addresses: Vec<Value> = Family::BOTH
            .iter()
            .map(|family| json!({"type": "InternalIP", "address": THIS_NODE.addr(*family)}))
            .collect();
        let named = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        plane.create("/api/v1/namespaces", &named("Namespace", NAMESPACE));
        plane.create("/api/v1/nodes", &named("Node", NODE_NAME));
        // Not applied: apply refuses two addresses of one type.
        let status = json!({"status": {"addresses": addresses}});
        plane.patch(&format!("/api/v1/nodes/{NODE_NAME}/status"), &status);
        Self { plane, written: BTreeMap::new(), generation: 0 }
    }

    /// Moves the node under test to a zone; empty for none.
    pub(crate) fn set_zone(&self, zone: &str) {
        let zone = if zone.is_empty() { Value::Null } else { json!(zone) };
        let labels = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
        self.plane.patch(&format!("/api/v1/nodes/{NODE_NAME}"), &labels);
    }

    /// Makes the API hold exactly these Services. What was there already is changed in place where the API
    /// allows it. A Service and its slices are written last: as the API tells of every kind in the order
    /// of writing, a node that answers for those has heard of all.
    pub(crate) fn bring(&mut self, services: &[Service]) -> Sentinel {
        let mut wanted: BTreeMap<String, Written> = BTreeMap::new();
        for service in services {
            let manifest = service.manifest();
            let path = format!("{SERVICES}/{}", service.name());
            wanted.insert(path, (manifest, Some(service.status())));
            for slice in service.slice_manifests() {
                let name = slice["metadata"]["name"].as_str().expect("a name").to_owned();
                wanted.insert(format!("{SLICES}/{name}"), (slice, None));
            }
        }
        self.generation += 1;
        let last_words = Sentinel { generation: self.generation };
        let sentinel = last_words.objects();
        let last: Vec<&str> = sentinel.iter().map(|(path, _)| path.as_str()).collect();
        let gone: Vec<String> = self
            .written
            .iter()
            .filter(|(path, _)| !last.contains(&path.as_str()))
            .filter(|(path, (now, _))| {
                wanted.get(*path).is_none_or(|(then, _)| !same_identity(now, then))
            })
            .map(|(path, _)| path.clone())
            .collect();
        in_parallel(&gone, |path| drop(self.plane.delete(path)));
        for path in &gone {
            self.written.remove(path);
        }
        let wanted: Vec<(String, Written)> = wanted.into_iter().collect();
        in_parallel(&wanted, |(path, written)| self.write(path, written));
        for object in &sentinel {
            self.write(&object.0, &object.1);
        }
        self.written.extend(wanted);
        self.written.extend(sentinel);
        last_words
    }

    fn write(&self, path: &str, (manifest, status): &Written) {
        let client = self.plane.admin();
        let before = self.written.get(path);
        if before.is_none_or(|(before, _)| before != manifest) {
            let reply = match before {
                Some(_) => client.put(path, manifest),
                None => client.post(path.rsplit_once('/').expect("a path").0, manifest),
            };
            let reply = reply.unwrap_or_else(|error| panic!("write {path}: {error}"));
            assert!(reply.ok(), "write {path}: {}\n{manifest}", reply.text);
        }
        let Some(status) = status else { return };
        let nothing = json!({"loadBalancer": {}});
        // A Service that is no load balancer any more may still have the addresses of one.
        let was = before.map_or(&nothing, |(_, status)| status.as_ref().unwrap_or(&nothing));
        if status != was {
            let full = json!({"status": {"loadBalancer": {
                "ingress": status["loadBalancer"]["ingress"],
            }}});
            self.plane.patch(&format!("{path}/status"), &full);
        }
    }
}

impl Sentinel {
    /// A Service and its slices, different from the last time in what each kind says.
    fn objects(self) -> Vec<(String, Written)> {
        let (port, (host, target)) = (self.port(), self.endpoint());
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "sentinel", "namespace": NAMESPACE},
            "spec": {
                "ipFamilyPolicy": "RequireDualStack",
                "ipFamilies": ["IPv4", "IPv6"],
                "clusterIP": cluster_ip(Family::V4, SENTINEL),
                "clusterIPs": Family::BOTH.map(|family| cluster_ip(family, SENTINEL)),
                "ports": [{"port": port, "protocol": "TCP"}],
            },
        });
        let mut objects = vec![(format!("{SERVICES}/sentinel"), (service, None))];
        for (family, name) in Family::BOTH.into_iter().zip(["IPv4", "IPv6"]) {
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {
                    "name": format!("sentinel-{}", name.to_lowercase()), "namespace": NAMESPACE,
                    "labels": {"kubernetes.io/service-name": "sentinel"},
                },
                "addressType": name,
                "ports": [{"name": "", "protocol": "TCP", "port": target}],
                "endpoints": [{"addresses": [member(host).addr(family)]}],
            });
            let path = format!("{SLICES}/sentinel-{}", name.to_lowercase());
            objects.push((path, (slice, None)));
        }
        objects
    }

    /// Where it is asked.
    pub(crate) fn addresses(self) -> [SocketAddr; 2] {
        Family::BOTH.map(|family| SocketAddr::new(cluster_ip(family, SENTINEL), self.port()))
    }

    fn port(self) -> u16 {
        1000 + (self.generation % 20_000) as u16
    }

    /// Who answers for it.
    pub(crate) fn endpoint(self) -> (&'static str, u16) {
        let host = ["local-2", "remote-2"][self.generation % 2];
        (host, SERVED[self.generation % SERVED.len()])
    }
}

/// Whether the API can turn one object into the other.
fn same_identity(now: &Value, then: &Value) -> bool {
    now["spec"]["clusterIPs"] == then["spec"]["clusterIPs"]
        && now["addressType"] == then["addressType"]
}

fn in_parallel<T: Sync>(items: &[T], act: impl Fn(&T) + Sync) {
    let act = &act;
    thread::scope(|scope| {
        for items in items.chunks(items.len().div_ceil(WRITERS).max(1)) {
            scope.spawn(move || items.iter().for_each(act));
        }
    });
}
