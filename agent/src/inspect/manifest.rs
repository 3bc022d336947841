//! Model types back to the Kubernetes objects they were read from, as far as they were read: what an agent
//! tells of its objects is an ordinary manifest, and whoever gets it reads it as such.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value, json};
use zw_controller::names;
use zw_model::{
    External, Family, Hints, NodeContext, Protocol, Scope, Service, Slice, SliceEndpoint,
    TrafficPolicy,
};

/// A Service.
pub(crate) fn service(service: &Service) -> Value {
    let none = External::default();
    let external = service.external.as_deref().unwrap_or(&none);
    let ports: Vec<Value> = service
        .ports
        .iter()
        .map(|port| {
            let mut value = named(&port.name, port.protocol, port.port);
            if let Some(number) = port.node_port {
                value["nodePort"] = json!(number);
            }
            value
        })
        .collect();
    let mut spec = json!({
        "type": kind(service, external),
        "clusterIP": service.cluster_ips.first(),
        "clusterIPs": service.cluster_ips,
        "ports": ports,
        "internalTrafficPolicy": policy(service.internal_policy),
        "externalTrafficPolicy": policy(service.external_policy),
    });
    if service.has_selector {
        // Which one is not known, only that there is one.
        spec["selector"] = json!({"zoneward": "not-kept"});
    }
    if let Some(seconds) = service.affinity {
        spec["sessionAffinity"] = json!("ClientIP");
        spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
    }
    if !external.ips.is_empty() {
        spec["externalIPs"] = json!(external.ips);
    }
    if !external.source_ranges.is_empty() {
        spec["loadBalancerSourceRanges"] = json!(texts(&external.source_ranges));
    }
    if let Some(port) = external.health_check_port {
        spec["healthCheckNodePort"] = json!(port);
    }
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": &*service.key.namespace, "name": &*service.key.name},
        "spec": spec,
    });
    if let Some(division) = service.division.as_deref() {
        let marks = [(names::APPROACH, &division.approach), (names::REASON, &division.reason)];
        for (name, mark) in marks {
            if let Some(mark) = mark {
                object["metadata"]["annotations"][name] = json!(&**mark);
            }
        }
        for zone in &division.zones {
            object["metadata"]["labels"][format!("{}{zone}", names::ZONE_PREFIX)] = json!("true");
        }
    }
    if let Some(scheduler) = &service.scheduler {
        let scheduler = scheduler.to_string();
        object["metadata"]["annotations"]["zoneward/ipvs-scheduler"] = json!(scheduler);
    }
    if !external.load_balancer_ips.is_empty() {
        let ingress: Vec<Value> =
            external.load_balancer_ips.iter().map(|ip| json!({"ip": ip})).collect();
        object["status"] = json!({"loadBalancer": {"ingress": ingress}});
    }
    object
}

/// The least that says as much.
fn kind(service: &Service, external: &External) -> &'static str {
    let node_ports = service.ports.iter().any(|port| port.node_port.is_some());
    let policy_needs_it =
        service.external_policy == TrafficPolicy::Local && !node_ports && external.ips.is_empty();
    if !external.load_balancer_ips.is_empty()
        || external.health_check_port.is_some()
        || policy_needs_it
    {
        "LoadBalancer"
    } else if node_ports {
        "NodePort"
    } else {
        "ClusterIP"
    }
}

fn policy(policy: TrafficPolicy) -> &'static str {
    match policy {
        TrafficPolicy::Cluster => "Cluster",
        TrafficPolicy::Local => "Local",
    }
}

/// An EndpointSlice.
pub(crate) fn slice(slice: &Slice) -> Value {
    let mut labels = Map::new();
    labels.insert("kubernetes.io/service-name".into(), json!(&*slice.service.name));
    match &slice.scope {
        Scope::Everyone => {}
        Scope::Zone(zone) => {
            labels.insert("endpointslice.kubernetes.io/for-zone".into(), json!(&**zone));
        }
        Scope::Region(region) => {
            labels.insert("endpointslice.kubernetes.io/for-region".into(), json!(&**region));
        }
    }
    if let Some(by) = &slice.managed_by {
        labels.insert("endpointslice.kubernetes.io/managed-by".into(), json!(&**by));
    }
    let ports: Vec<Value> =
        slice.ports.iter().map(|port| named(&port.name, port.protocol, port.port)).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": &*slice.key.namespace,
            "name": &*slice.key.name,
            "labels": labels,
        },
        "addressType": slice.family.to_string(),
        "ports": ports,
        "endpoints": slice.endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

fn endpoint(endpoint: &SliceEndpoint) -> Value {
    let conditions = endpoint.conditions;
    let mut value = json!({
        "addresses": [endpoint.addr],
        "conditions": {
            "ready": conditions.ready,
            "serving": conditions.serving,
            "terminating": conditions.terminating,
        },
    });
    if let Some(node) = &endpoint.node {
        value["nodeName"] = json!(&**node);
    }
    if let Some(zone) = &endpoint.zone {
        value["zone"] = json!(&**zone);
    }
    if let Some(hints) = &endpoint.hints {
        value["hints"] = self::hints(hints);
    }
    value
}

fn hints(hints: &Hints) -> Value {
    let list = |names: &[std::sync::Arc<str>]| {
        names.iter().map(|name| json!({"name": &**name})).collect::<Vec<_>>()
    };
    json!({"forZones": list(&hints.zones), "forNodes": list(&hints.nodes)})
}

fn named(name: &str, protocol: Protocol, port: u16) -> Value {
    let protocol = protocol.to_string().to_uppercase();
    if name.is_empty() {
        json!({"protocol": protocol, "port": port})
    } else {
        json!({"name": name, "protocol": protocol, "port": port})
    }
}

/// The Node, as far as it is known.
pub(crate) fn node(node: &NodeContext) -> Value {
    let mut labels = Map::new();
    if let Some(zone) = &node.zone {
        labels.insert("topology.kubernetes.io/zone".into(), json!(&**zone));
    }
    if let Some(region) = &node.region {
        labels.insert("topology.kubernetes.io/region".into(), json!(&**region));
    }
    let internal = |addr: &IpAddr| json!({"type": "InternalIP", "address": addr});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": &*node.name, "labels": labels},
        "spec": {"podCIDRs": texts(&node.pod_ranges)},
        "status": {"addresses": node.addresses.iter().map(internal).collect::<Vec<_>>()},
    })
}

fn texts(nets: &[IpNet]) -> Vec<String> {
    nets.iter().map(ToString::to_string).collect()
}

/// The family as the socket writes it.
pub(crate) fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

/// The family of that number.
pub(crate) fn family_of(number: u8) -> Option<Family> {
    Family::BOTH.into_iter().find(|family| family_number(*family) == number)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;
    use std::sync::Arc;

    use zw_model::{Conditions, Division, ServiceKey, ServicePort, SliceKey, SlicePort, Topology};

    use super::*;
    use crate::convert::{Body, convert};

    fn body(value: &Value) -> Body {
        let (object, problems) = convert(value).unwrap();
        assert_eq!(problems, [], "{value}");
        object.body
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_service_reads_back_as_it_was() {
        let port = |node_port| ServicePort {
            name: "http".into(),
            protocol: Protocol::Udp,
            port: 80,
            node_port,
        };
        let plain = Service {
            key: ServiceKey::new("web", "api"),
            cluster_ips: vec![ip("10.96.0.1"), ip("fd00::1")],
            ports: vec![port(None)],
            ..Service::default()
        };
        let local = TrafficPolicy::Local;
        let all = External {
            ips: vec![ip("192.0.2.9")],
            load_balancer_ips: vec![ip("192.0.2.10")],
            source_ranges: vec!["10.0.0.0/8".parse().unwrap(), "::/128".parse().unwrap()],
            health_check_port: NonZeroU16::new(30_999),
        };
        let some = [
            External { ips: vec![ip("192.0.2.9")], ..External::default() },
            External { load_balancer_ips: vec![ip("192.0.2.10")], ..External::default() },
        ];
        let mut services = vec![
            Service { internal_policy: local, affinity: Some(60), ..plain.clone() },
            Service { has_selector: true, external_policy: local, ..plain.clone() },
            Service { ports: vec![port(NonZeroU16::new(30_080))], ..plain.clone() },
            Service {
                ports: vec![port(NonZeroU16::new(30_080))],
                external_policy: local,
                external: Some(Box::new(all)),
                ..plain.clone()
            },
        ];
        for external in some {
            for external_policy in [TrafficPolicy::Cluster, local] {
                let external = Some(Box::new(external.clone()));
                services.push(Service { external_policy, external, ..plain.clone() });
            }
        }
        for (approach, zones) in
            [(Some("Prefer"), &["a", "b"][..]), (None, &["a"]), (Some("Balanced"), &[])]
        {
            let division = Division {
                approach: approach.map(Into::into),
                reason: approach.map(|_| "as annotated".into()),
                zones: zones.iter().map(|zone| (*zone).into()).collect(),
            };
            services.push(Service { division: Some(Box::new(division)), ..plain.clone() });
        }
        services.push(plain);
        for want in services {
            let told = service(&want);
            assert_eq!(body(&told), Body::Service(want), "{told}");
        }
    }

    #[test]
    fn a_slice_reads_back_as_it_was() {
        let endpoint = |hints| SliceEndpoint {
            addr: ip("10.244.0.1"),
            conditions: Conditions { ready: false, serving: true, terminating: true },
            topology: Arc::new(Topology {
                node: Some("node-1".into()),
                zone: Some("zone-a".into()),
                hints,
            }),
        };
        let hints = Hints { zones: vec!["zone-b".into()], nodes: vec!["node-2".into()] };
        for scope in [Scope::Everyone, Scope::Zone("a".into()), Scope::Region("r".into())] {
            for managed_by in [None, Some("somebody".into())] {
                let want = Slice {
                    key: SliceKey { namespace: "web".into(), name: "api-1".into() },
                    service: ServiceKey::new("web", "api"),
                    family: Family::V4,
                    scope: scope.clone(),
                    managed_by,
                    ports: vec![SlicePort { name: "".into(), protocol: Protocol::Tcp, port: 1 }],
                    endpoints: vec![endpoint(None), endpoint(Some(hints.clone()))],
                };
                let told = slice(&want);
                assert_eq!(body(&told), Body::Slice(want), "{told}");
            }
        }
    }

    #[test]
    fn a_node_reads_back_as_it_was() {
        let want = NodeContext {
            name: "node-1".into(),
            zone: Some("zone-a".into()),
            region: None,
            addresses: vec![ip("192.0.2.1"), ip("2001:db8::1")],
            pod_ranges: vec!["10.244.1.0/24".parse().unwrap()],
        };
        let Body::Node(read) = body(&node(&want)) else { panic!("not a Node") };
        assert_eq!((read.zone, read.region), (want.zone, want.region));
        assert_eq!((read.addresses, read.pod_ranges), (want.addresses, want.pod_ranges));
    }
}
