//! A control plane that holds a cluster of a shape, and the changes it goes through.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zw_lab::Namespace;
use zw_tests::control_plane::{Client, ControlPlane};

use crate::progress::Progress;
use crate::results::Kind;
use crate::shape::{
    FIRST_NEWCOMER, For, NAMESPACE, NODE_NAME, Shape, ZONES, service, slices, zone_of,
};

/// Requests under way at a time while a cluster is loaded; enough to keep the API server busy.
const WRITERS: usize = 16;
const SERVICES: &str = "/api/v1/namespaces/load/services";
pub(crate) const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/load/endpointslices";

/// A loaded cluster.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) shape: Shape,
    /// The endpoints of every Service, by their numbers.
    endpoints: Vec<Vec<u32>>,
    /// The number of the next endpoint that takes another's place.
    newcomer: u32,
    /// How many changes were made.
    changes: usize,
    zoned: bool,
}

/// A change that is about to be made.
pub(crate) struct Pending {
    pub(crate) kind: Kind,
    /// Slices and their paths.
    writes: Vec<(String, Value)>,
}

impl Cluster {
    /// Starts a control plane and writes a cluster of this shape.
    pub(crate) fn load(shape: &Shape, progress: &Progress) -> (Self, Duration) {
        let namespace = Namespace::new().expect("a network namespace, which takes root");
        let plane = ControlPlane::start(&namespace);
        plane.create("/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}}));
        plane.create("/api/v1/nodes", &node());
        let addresses = json!([{"type": "InternalIP", "address": "192.0.2.1"}]);
        let status = json!({"status": {"addresses": addresses}});
        plane.patch(&format!("/api/v1/nodes/{NODE_NAME}/status"), &status);
        let endpoints: Vec<Vec<u32>> = shape.numbers().into_iter().map(Iterator::collect).collect();
        let started = Instant::now();
        write_all(&plane, endpoints.len(), progress, |client, number| {
            create(client, SERVICES, &service(number));
            for (_, slice) in slices(number, &endpoints[number], For::Everyone) {
                create(client, SLICES, &slice);
            }
        });
        let took = started.elapsed();
        let cluster = Self {
            plane,
            shape: shape.clone(),
            endpoints,
            newcomer: FIRST_NEWCOMER,
            changes: 0,
            zoned: false,
        };
        (cluster, took)
    }

    /// Writes the slices for every zone, as the controller would, and then marks those for everyone.
    pub(crate) fn zone(&mut self, progress: &Progress) {
        write_all(&self.plane, self.endpoints.len(), progress, |client, number| {
            let endpoints = &self.endpoints[number];
            for zone in 0..ZONES.len() {
                for (_, slice) in slices(number, &of_zone(endpoints, zone), For::Zone(zone)) {
                    create(client, SLICES, &slice);
                }
            }
            for (name, slice) in slices(number, endpoints, For::Others) {
                replace(client, &format!("{SLICES}/{name}"), &slice);
            }
        });
        self.zoned = true;
    }

    /// Prepares the next change: an endpoint of some Service is replaced; then one of the same Service
    /// goes; then one comes. Which Service follows from the number of changes alone.
    pub(crate) fn next_change(&mut self) -> Pending {
        /// Primes, so that neither Services nor endpoints repeat soon.
        const STRIDES: (usize, usize) = (7_919, 31);
        let (turn, step) = (self.changes / 3, self.changes % 3);
        self.changes += 1;
        let service = turn.wrapping_mul(STRIDES.0) % self.endpoints.len();
        let before = self.endpoints[service].clone();
        let endpoints = &mut self.endpoints[service];
        let which = turn.wrapping_mul(STRIDES.1);
        let kind = match step {
            0 if !endpoints.is_empty() => Kind::Replaced,
            1 if !endpoints.is_empty() => Kind::Removed,
            _ => Kind::Added,
        };
        match kind {
            Kind::Replaced => {
                let which = which % endpoints.len();
                endpoints[which] = self.newcomer;
            }
            Kind::Removed => {
                endpoints.remove(which % endpoints.len());
            }
            Kind::Added => endpoints.insert(which % (endpoints.len() + 1), self.newcomer),
        }
        self.newcomer += 1;
        let whom = if self.zoned { For::Others } else { For::Everyone };
        let mut writes = written(service, &before, endpoints, whom);
        if self.zoned {
            for zone in 0..ZONES.len() {
                let (before, now) = (of_zone(&before, zone), of_zone(endpoints, zone));
                writes.extend(written(service, &before, &now, For::Zone(zone)));
            }
        }
        Pending { kind, writes }
    }

    /// The newest version of any slice, to watch from.
    pub(crate) fn slices_version(&self) -> String {
        let list = self.plane.get(&format!("{SLICES}?limit=1"));
        list["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
    }
}

impl Pending {
    /// Makes the change.
    pub(crate) fn make(&self, client: &Client) {
        self.writes.iter().for_each(|(path, slice)| replace(client, path, slice));
    }
}

/// The endpoints that a zone is given: its own, or all where it has none.
fn of_zone(endpoints: &[u32], zone: usize) -> Vec<u32> {
    let own: Vec<u32> = endpoints.iter().copied().filter(|n| zone_of(*n) == zone).collect();
    if own.is_empty() { endpoints.to_vec() } else { own }
}

/// The slices that differ. Shapes keep a Service in as many slices as it had.
fn written(service: usize, before: &[u32], now: &[u32], whom: For) -> Vec<(String, Value)> {
    let before: HashMap<String, Value> = slices(service, before, whom).into_iter().collect();
    let differs = |(name, slice): &(String, Value)| before.get(name) != Some(slice);
    let now = slices(service, now, whom).into_iter().filter(differs);
    now.map(|(name, slice)| (format!("{SLICES}/{name}"), slice)).collect()
}

fn node() -> Value {
    json!({"metadata": {"name": NODE_NAME, "labels": {
        "topology.kubernetes.io/zone": ZONES[0],
        "topology.kubernetes.io/region": "region-1",
    }}})
}

/// Many clients at a time, as it would take minutes one by one.
fn write_all(
    plane: &ControlPlane,
    services: usize,
    progress: &Progress,
    write: impl Fn(&Client, usize) + Sync,
) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            // Of its own, so that each has a connection; and on one thread, where a request is cheaper.
            let client = plane.admin().from(plane.namespace());
            let (next, write) = (&next, &write);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= services {
                        return;
                    }
                    write(&client, number);
                    progress.part(number, services);
                }
            });
        }
    });
}

fn create(client: &Client, path: &str, object: &Value) {
    let reply = client.post(path, object);
    let reply = reply.unwrap_or_else(|error| panic!("create in {path}: {error}"));
    assert_eq!(reply.status, 201, "{path} {object}: {}", reply.text);
}

fn replace(client: &Client, path: &str, object: &Value) {
    let reply = client.put(path, object);
    let reply = reply.unwrap_or_else(|error| panic!("write {path}: {error}"));
    assert!(reply.ok(), "write {path}: {}, {}", reply.status, reply.text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_slices_that_differ_are_written() {
        let before: Vec<u32> = (0..150).collect();
        let mut now = before.clone();
        now[120] = 7_000_000;
        let writes = written(5, &before, &now, For::Everyone);
        assert_eq!(writes.len(), 1);
        assert!(writes[0].0.ends_with("/svc-5-00001"), "{}", writes[0].0);
        assert!(written(5, &now, &now, For::Everyone).is_empty());
    }
}
