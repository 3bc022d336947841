//! Who takes part, and how they are written down as manifests.

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The node the agent runs on.
pub(super) const NODE: &str = "node-1";
/// Where pods live.
pub(super) const POD_RANGES: &str = "10.244.0.0/16,fd00:10:244::/48";
/// The Service's two addresses and its two ports: TCP and UDP, both answered by pods on 8080.
pub(super) const VIPS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0xa)),
];
pub(super) const TCP_PORT: u16 = 80;
pub(super) const UDP_PORT: u16 = 53;
pub(super) const SERVED: u16 = 8080;

/// A zone of the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Zone {
    A = 1,
    B,
    C,
}

impl Zone {
    pub(super) const ALL: [Zone; 3] = [Zone::A, Zone::B, Zone::C];

    fn letter(self) -> char {
        match self {
            Zone::A => 'a',
            Zone::B => 'b',
            Zone::C => 'c',
        }
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zone-{}", self.letter())
    }
}

/// A pod, in the node of its zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) zone: Zone,
    number: u8,
    draining: bool,
}

impl Pod {
    pub(super) fn new(zone: Zone, number: u8) -> Self {
        Self { zone, number, draining: false }
    }

    /// Still serving, but going away.
    pub(super) fn draining(self) -> Self {
        Self { draining: true, ..self }
    }

    pub(super) fn name(self) -> String {
        format!("{}-{}", self.zone.letter(), self.number)
    }

    pub(super) fn addresses(self) -> [IpAddr; 2] {
        let (zone, number) = (self.zone as u8, self.number);
        [
            IpAddr::from([10, 244, zone, 10 + number]),
            IpAddr::from([0xfd00, 0x10, 0x244, zone.into(), 0, 0, 0, 0x10 + u16::from(number)]),
        ]
    }
}

/// An EndpointSlice of the Service, once per family.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    name: String,
    label: Option<(&'static str, String)>,
    pods: Vec<Pod>,
}

impl Slice {
    pub(super) fn plain(pods: Vec<Pod>) -> Self {
        Self { name: "shop-all".into(), label: None, pods }
    }

    pub(super) fn for_zone(zone: Zone, pods: Vec<Pod>) -> Self {
        Self::named_for(zone, zone, pods)
    }

    /// The slice of one zone, labelled for another.
    pub(super) fn named_for(home: Zone, zone: Zone, pods: Vec<Pod>) -> Self {
        Self { name: format!("shop-{home}"), label: Some(("for-zone", zone.to_string())), pods }
    }

    pub(super) fn for_region(pods: Vec<Pod>) -> Self {
        Self { name: "shop-region".into(), label: Some(("for-region", "region-1".into())), pods }
    }
}

/// Node, Service and slices, as `kubectl get -o yaml` would print them.
pub(super) fn manifests(slices: &[Slice]) -> String {
    let mut text = format!(
        "apiVersion: v1
kind: Node
metadata:
  name: {NODE}
  labels:
    topology.kubernetes.io/zone: {}
    topology.kubernetes.io/region: region-1
---
apiVersion: v1
kind: Service
metadata: {{name: shop, namespace: demo}}
spec:
  clusterIPs: [\"{}\", \"{}\"]
  ports:
  - {{name: web, port: {TCP_PORT}, protocol: TCP}}
  - {{name: ask, port: {UDP_PORT}, protocol: UDP}}
",
        Zone::A,
        VIPS[0],
        VIPS[1],
    );
    for slice in slices {
        for (i, family) in ["IPv4", "IPv6"].into_iter().enumerate() {
            let label = slice
                .label
                .as_ref()
                .map(|(key, value)| format!("    endpointslice.kubernetes.io/{key}: {value}\n"));
            let endpoints: String = slice.pods.iter().map(|pod| endpoint(*pod, i)).collect();
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {}-{}
  namespace: demo
  labels:
    kubernetes.io/service-name: shop
{}addressType: {family}
ports:
- {{name: web, port: {SERVED}, protocol: TCP}}
- {{name: ask, port: {SERVED}, protocol: UDP}}
endpoints:
{endpoints}",
                slice.name,
                family.to_lowercase(),
                label.unwrap_or_default(),
            );
        }
    }
    text
}

fn endpoint(pod: Pod, family: usize) -> String {
    let conditions = if pod.draining {
        "{ready: false, serving: true, terminating: true}"
    } else {
        "{ready: true, serving: true, terminating: false}"
    };
    format!(
        "- addresses: [\"{}\"]\n  conditions: {conditions}\n  nodeName: node-{}\n  zone: {}\n",
        pod.addresses()[family],
        pod.zone as u8,
        pod.zone,
    )
}
