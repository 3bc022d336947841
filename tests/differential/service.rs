//! A Service with its slices, as the generator makes it and the API takes it.
//!
//! The number of a Service decides its name and every address and port of its own, so that two never
//! claim the same and a probe knows where to go without asking the API.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};
use zw_model::{Family, Protocol};

use crate::cast::member;

/// The API namespace of everything this test writes.
pub(crate) const NAMESPACE: &str = "differential";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    ClusterIp,
    NodePort,
    LoadBalancer,
}

/// `sessionAffinityConfig.clientIP.timeoutSeconds`, where given.
pub(crate) type Timeout = Option<u32>;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Service {
    pub(crate) number: usize,
    pub(crate) kind: Kind,
    /// In the order of the manifest.
    pub(crate) families: Vec<Family>,
    pub(crate) ports: Vec<Port>,
    pub(crate) external_ips: Vec<IpAddr>,
    pub(crate) ingress: Vec<Ingress>,
    pub(crate) source_ranges: Vec<String>,
    pub(crate) affinity: Option<Timeout>,
    pub(crate) internal_local: bool,
    pub(crate) external_local: bool,
    /// It has the label `service.kubernetes.io/service-proxy-name`.
    pub(crate) foreign: bool,
    pub(crate) slices: Vec<Slice>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    pub(crate) node_port: Option<u16>,
}

/// An address of the load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ingress {
    pub(crate) ip: IpAddr,
    pub(crate) mode: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) family: Family,
    /// Name of the Service's port, protocol, number at the endpoint.
    pub(crate) ports: Vec<(String, Protocol, u16)>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// It has the label `service.kubernetes.io/headless`.
    pub(crate) headless: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) host: &'static str,
    pub(crate) node_name: bool,
    pub(crate) ready: Option<bool>,
    pub(crate) serving: Option<bool>,
    pub(crate) terminating: Option<bool>,
    pub(crate) zone_hints: Vec<&'static str>,
    pub(crate) node_hints: Vec<&'static str>,
}

impl Service {
    pub(crate) fn name(&self) -> String {
        format!("svc-{}", self.number)
    }

    pub(crate) fn cluster_ip(&self, family: Family) -> IpAddr {
        cluster_ip(family, self.number)
    }

    /// Where an outside load balancer asks for local endpoints.
    pub(crate) fn health_check_port(&self) -> Option<u16> {
        let asked = self.kind == Kind::LoadBalancer && self.external_local;
        asked.then_some(32_000 + self.number as u16)
    }

    /// Every host and port that could answer for a port of the Service, whatever its conditions.
    pub(crate) fn candidates(&self, port: &Port, family: Family) -> Vec<(&'static str, u16)> {
        let mut found = Vec::new();
        for slice in self.slices.iter().filter(|slice| slice.family == family) {
            for (_, _, target) in
                slice.ports.iter().filter(|(name, p, _)| *name == port.name && *p == port.protocol)
            {
                found.extend(slice.endpoints.iter().map(|e| (e.host, *target)));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The Service as the API takes it.
    pub(crate) fn manifest(&self) -> Value {
        let mut spec = json!({
            "type": match self.kind {
                Kind::ClusterIp => "ClusterIP",
                Kind::NodePort => "NodePort",
                Kind::LoadBalancer => "LoadBalancer",
            },
            "ipFamilyPolicy":
                if self.families.len() == 2 { "RequireDualStack" } else { "SingleStack" },
            "ipFamilies": self.families.iter().map(|f| family_name(*f)).collect::<Vec<_>>(),
            "clusterIP": self.cluster_ip(self.families[0]),
            "clusterIPs": self.families.iter().map(|f| self.cluster_ip(*f)).collect::<Vec<_>>(),
            "ports": self.ports.iter().map(Port::manifest).collect::<Vec<_>>(),
            "sessionAffinity": if self.affinity.is_some() { "ClientIP" } else { "None" },
            "internalTrafficPolicy": policy(self.internal_local),
        });
        if let Some(Some(seconds)) = self.affinity {
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
        }
        if !self.external_ips.is_empty() {
            spec["externalIPs"] = json!(self.external_ips);
        }
        if self.kind != Kind::ClusterIp || !self.external_ips.is_empty() {
            spec["externalTrafficPolicy"] = json!(policy(self.external_local));
        }
        if let Some(port) = self.health_check_port() {
            spec["healthCheckNodePort"] = json!(port);
        }
        if self.kind == Kind::LoadBalancer {
            let ports = self.ports.iter().any(|port| port.node_port.is_some());
            spec["allocateLoadBalancerNodePorts"] = json!(ports);
            if !self.source_ranges.is_empty() {
                spec["loadBalancerSourceRanges"] = json!(self.source_ranges);
            }
        }
        let mut metadata = json!({"name": self.name(), "namespace": NAMESPACE});
        if self.foreign {
            metadata["labels"] = json!({"service.kubernetes.io/service-proxy-name": "other"});
        }
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    }

    /// Its status, which the API takes apart from the rest.
    pub(crate) fn status(&self) -> Value {
        let ingress: Vec<Value> =
            self.ingress.iter().map(|i| json!({"ip": i.ip, "ipMode": i.mode})).collect();
        json!({"loadBalancer": if ingress.is_empty() { json!({}) } else { json!({"ingress": ingress}) }})
    }

    /// Its slices as the API takes them.
    pub(crate) fn slice_manifests(&self) -> Vec<Value> {
        let manifest = |(i, slice): (usize, &Slice)| slice.manifest(&self.name(), i);
        self.slices.iter().enumerate().map(manifest).collect()
    }
}

impl Port {
    fn manifest(&self) -> Value {
        let mut port = json!({"port": self.port, "protocol": protocol_name(self.protocol)});
        if !self.name.is_empty() {
            port["name"] = json!(self.name);
        }
        if let Some(node_port) = self.node_port {
            port["nodePort"] = json!(node_port);
        }
        port
    }
}

impl Slice {
    fn manifest(&self, service: &str, number: usize) -> Value {
        let ports: Vec<Value> = self
            .ports
            .iter()
            .map(|(name, protocol, port)| {
                json!({"name": name, "protocol": protocol_name(*protocol), "port": port})
            })
            .collect();
        let mut labels = json!({"kubernetes.io/service-name": service});
        if self.headless {
            labels["service.kubernetes.io/headless"] = json!("");
        }
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{service}-{number}"), "namespace": NAMESPACE, "labels": labels,
            },
            "addressType": family_name(self.family),
            "ports": ports,
            "endpoints": self.endpoints.iter().map(|e| e.manifest(self.family)).collect::<Vec<_>>(),
        })
    }
}

impl Endpoint {
    fn manifest(&self, family: Family) -> Value {
        let host = member(self.host);
        let mut conditions = json!({});
        let given =
            [("ready", self.ready), ("serving", self.serving), ("terminating", self.terminating)];
        for (name, value) in given {
            if let Some(value) = value {
                conditions[name] = json!(value);
            }
        }
        let mut endpoint = json!({"addresses": [host.addr(family)], "conditions": conditions});
        if let (true, Some(node)) = (self.node_name, host.node) {
            endpoint["nodeName"] = json!(node);
        }
        let named = |names: &[&str]| names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>();
        if !self.zone_hints.is_empty() {
            endpoint["hints"]["forZones"] = json!(named(&self.zone_hints));
        }
        if !self.node_hints.is_empty() {
            endpoint["hints"]["forNodes"] = json!(named(&self.node_hints));
        }
        endpoint
    }
}

/// The cluster IP of a Service by its number; those from 60,000 on belong to none.
pub(crate) fn cluster_ip(family: Family, number: usize) -> IpAddr {
    // The first 256 are left to the API server's own Service.
    let number = number as u32 + 256;
    match family {
        Family::V4 => Ipv4Addr::from_bits(0x0a60_0000 + number).into(),
        Family::V6 => v6(0xfd00_0010_0096, number),
    }
}

/// The external addresses of a Service by its number: a hundred Services have two each.
pub(crate) fn external_ip(family: Family, number: usize, second: bool) -> IpAddr {
    let number = number as u32 + if second { 128 } else { 1 };
    match family {
        Family::V4 => Ipv4Addr::from_bits(0xc633_6400 + number).into(),
        Family::V6 => v6(0x2001_0db8_00ee, number),
    }
}

/// The load balancer's addresses of a Service by its number: a hundred Services have two each.
pub(crate) fn ingress_ip(family: Family, number: usize, second: bool) -> IpAddr {
    let number = number as u32 + if second { 128 } else { 1 };
    match family {
        Family::V4 => Ipv4Addr::from_bits(0xc612_0000 + number).into(),
        Family::V6 => v6(0x2001_0db8_001b, number),
    }
}

fn v6(prefix: u128, number: u32) -> IpAddr {
    Ipv6Addr::from_bits(prefix << 80 | u128::from(number)).into()
}

fn family_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    }
}

fn policy(local: bool) -> &'static str {
    if local { "Local" } else { "Cluster" }
}
