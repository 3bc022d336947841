//! Clusters of a given size, as the API objects that make them.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::str::FromStr;

use serde_json::{Value, json};

/// How many endpoints a slice holds, as the stock controller packs them.
const PER_SLICE: usize = 100;
/// Of how many nodes the endpoints are.
const NODES: u32 = 500;
/// The zones that endpoints and nodes are in, by their numbers.
pub(crate) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// The node under test; it has one endpoint in five hundred, and is in the first zone.
pub(crate) const NODE_NAME: &str = "node-0";
/// The namespace of all Services.
pub(crate) const NAMESPACE: &str = "load";
/// Where endpoints are, all of them, also those that come later.
pub(crate) const ENDPOINT_RANGE: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 128, 0, 0), 10);
/// Endpoints that take others' places have numbers from here.
pub(crate) const FIRST_NEWCOMER: u32 = 1_000_000;
/// The port of every Service.
const PORT: u16 = 80;
/// The port of every endpoint.
pub(crate) const TARGET_PORT: u16 = 8080;

/// Some Services with so many endpoints each, and others with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// As it was asked for.
    pub name: String,
    groups: Vec<(usize, usize)>,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let groups = match name {
            "A" => "5000x50+1000x10",
            "B" => "25000x1",
            "tiny" => "20x4+10x1",
            other => other,
        };
        let group = |text: &str| {
            let (services, endpoints) = text.split_once('x')?;
            Some((services.parse().ok()?, endpoints.parse().ok()?))
        };
        let groups: Option<Vec<_>> = groups.split('+').map(group).collect();
        let groups = groups.ok_or_else(|| {
            format!("{name:?} is none of A, B and tiny, and not like 500x10+20x1")
        })?;
        let shape = Self { name: name.to_owned(), groups };
        match shape.services() {
            0 => Err("a cluster has at least one Service".to_owned()),
            // The range of cluster IPs, without the addresses below the first Service's.
            65_000.. => Err("a cluster has at most 64,999 Services".to_owned()),
            _ if shape.endpoints() >= FIRST_NEWCOMER as usize => {
                Err("a cluster has less than a million endpoints".to_owned())
            }
            _ => Ok(shape),
        }
    }
}

impl Shape {
    /// How many Services it has.
    pub fn services(&self) -> usize {
        self.groups.iter().map(|(services, _)| services).sum()
    }

    /// How many endpoints it has in all.
    pub fn endpoints(&self) -> usize {
        self.groups.iter().map(|(services, endpoints)| services * endpoints).sum()
    }

    /// The numbers of the endpoints that each Service has.
    pub(crate) fn numbers(&self) -> Vec<Range<u32>> {
        let mut next = 0;
        let sizes = self.groups.iter().flat_map(|(services, size)| vec![*size as u32; *services]);
        let range = |size| {
            next += size;
            next - size..next
        };
        sizes.map(range).collect()
    }

    /// Cluster IPs of Services evenly spread, at most so many.
    pub(crate) fn sample(&self, most: usize) -> Vec<SocketAddr> {
        let (services, most) = (self.services(), most.min(self.services()));
        (0..most).map(|i| vip(i * services / most)).collect()
    }
}

/// Where a Service is reached.
pub(crate) fn vip(service: usize) -> SocketAddr {
    let first = Ipv4Addr::new(10, 96, 1, 0).to_bits();
    SocketAddr::new(Ipv4Addr::from_bits(first + service as u32).into(), PORT)
}

/// Where an endpoint is.
pub(crate) fn endpoint(number: u32) -> SocketAddr {
    let address = Ipv4Addr::from_bits(ENDPOINT_RANGE.0.to_bits() + 1 + number);
    SocketAddr::new(address.into(), TARGET_PORT)
}

/// The zone of an endpoint, by its number.
pub(crate) fn zone_of(number: u32) -> usize {
    // As its node's.
    (number % NODES) as usize % ZONES.len()
}

/// A Service as people write it.
pub(crate) fn service(number: usize) -> Value {
    let name = format!("svc-{number}");
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {
            "clusterIP": vip(number).ip(),
            "selector": {"app": name},
            "ports": [{"name": "http", "port": PORT, "targetPort": TARGET_PORT}],
        },
    })
}

/// Whom a slice is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum For {
    Everyone,
    /// Everyone still, but of a Service that has slices for every zone: labelled as the stock controller
    /// would, so that agents in these zones can leave it out.
    Others,
    Zone(usize),
}

/// The slices of a Service with these endpoints, as the stock controller writes them, by name.
pub(crate) fn slices(service: usize, endpoints: &[u32], whom: For) -> Vec<(String, Value)> {
    let app = format!("svc-{service}");
    let mut labels = json!({
        "app": app,
        "kubernetes.io/service-name": app,
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    });
    let suffix = match whom {
        For::Everyone => String::new(),
        For::Others => {
            for zone in ZONES {
                labels[format!("zones.zoneward/{zone}")] = json!("");
            }
            String::new()
        }
        For::Zone(zone) => {
            labels["endpointslice.kubernetes.io/for-zone"] = json!(ZONES[zone]);
            labels["endpointslice.kubernetes.io/managed-by"] = json!("zoneward");
            format!("-{}", ZONES[zone])
        }
    };
    // An empty one is a slice too.
    let count = endpoints.len().div_ceil(PER_SLICE).max(1);
    let slice = |i: usize| {
        let name = format!("{app}-{i:05}{suffix}");
        let chunk = endpoints.chunks(PER_SLICE).nth(i).unwrap_or_default();
        let manifest = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": TARGET_PORT, "protocol": "TCP"}],
            "endpoints": chunk.iter().map(|number| entry(&app, *number)).collect::<Vec<_>>(),
        });
        (name, manifest)
    };
    (0..count).map(slice).collect()
}

fn entry(app: &str, number: u32) -> Value {
    json!({
        "addresses": [endpoint(number).ip()],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "nodeName": format!("node-{}", number % NODES),
        "zone": ZONES[zone_of(number)],
        "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": format!("{app}-{number:x}")},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_shapes_are_what_they_are_said_to_be() {
        for (name, services, endpoints) in
            [("A", 6_000, 260_000), ("B", 25_000, 25_000), ("3x4+2x1", 5, 14), ("7x0", 7, 0)]
        {
            let shape: Shape = name.parse().unwrap();
            assert_eq!((shape.services(), shape.endpoints()), (services, endpoints), "{name}");
            assert_eq!(shape.numbers().len(), services);
            assert_eq!(shape.numbers().last().unwrap().end as usize, endpoints);
        }
        for wrong in ["", "C", "5", "5x", "0x5", "70000x1", "1000x1000", "5x5+"] {
            assert!(wrong.parse::<Shape>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_large_service_has_slices_of_a_hundred_and_an_empty_one_has_one() {
        let endpoints: Vec<u32> = (0..250).collect();
        let sizes = |endpoints: &[u32]| -> Vec<usize> {
            let slices = slices(1, endpoints, For::Everyone);
            slices.iter().map(|(_, slice)| slice["endpoints"].as_array().unwrap().len()).collect()
        };
        assert_eq!(sizes(&endpoints), [100, 100, 50]);
        assert_eq!(sizes(&[]), [0]);
    }

    #[test]
    fn samples_are_spread_and_never_more_than_there_are() {
        let shape: Shape = "3x1".parse().unwrap();
        assert_eq!(shape.sample(50), [vip(0), vip(1), vip(2)]);
        let shape: Shape = "100x1".parse().unwrap();
        assert_eq!(shape.sample(2), [vip(0), vip(50)]);
    }
}
