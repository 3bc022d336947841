//! Services.

use std::net::IpAddr;
use std::num::NonZeroU16;

use ipnet::IpNet;
use zw_model::{
    Division, External, Family, Scheduler, Service, ServiceKey, ServicePort, TrafficPolicy,
};

use super::address::{is_ordinary, parse_address, parse_range};
use super::names::shared;
use super::raw;
use super::{Body, Kind, Object, Problem, Problems, convert_port, identify};

/// What the API server fills in where a Service with client affinity says nothing else.
const DEFAULT_AFFINITY: u32 = 10_800;
/// A day: the longest the API server takes.
const LONGEST_AFFINITY: u32 = 86_400;

/// Who may be reached how, by `spec.type`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    ClusterIp,
    NodePort,
    LoadBalancer,
}

pub(super) fn convert(raw: &raw::Service<'_>, problems: &mut Problems) -> Result<Object, Problem> {
    let id = identify(Kind::Service, &raw.metadata)?;
    let spec = &raw.spec;
    let another_proxys =
        raw.metadata.labels.as_ref().is_some_and(|labels| labels.service_proxy_name.is_some());
    let addresses = match (&spec.cluster_ips, &spec.cluster_ip) {
        (Some(all), _) if !all.is_empty() => all.as_slice(),
        (_, one) => one.as_slice(),
    };
    let kind = match spec.kind.as_deref() {
        Some("ExternalName") => None,
        Some("NodePort") => Some(Type::NodePort),
        Some("LoadBalancer") => Some(Type::LoadBalancer),
        _ => Some(Type::ClusterIp),
    };
    let headless = addresses.iter().any(|address| &**address == "None");
    let Some(kind) = kind
        .filter(|_| !headless && !another_proxys && !addresses.iter().all(|text| text.is_empty()))
    else {
        return Ok(Object::new(id, Body::Irrelevant));
    };

    let cluster_ips = cluster_ips(spec, addresses, problems);
    let external_policy = external_policy(spec, kind, problems);
    let service = Service {
        key: ServiceKey { namespace: id.namespace.clone(), name: id.name.clone() },
        ports: ports(spec, kind, problems),
        internal_policy: policy(
            spec.internal_traffic_policy.as_deref(),
            "spec.internalTrafficPolicy",
            problems,
        ),
        external_policy,
        affinity: affinity(spec, problems),
        scheduler: scheduler(raw, problems),
        has_selector: spec.selector.is_some(),
        external: external(raw, kind, external_policy, &cluster_ips, problems),
        division: division(&raw.metadata),
        cluster_ips,
    };
    Ok(Object::new(id, Body::Service(service)))
}

fn cluster_ips(
    spec: &raw::ServiceSpec<'_>,
    addresses: &[raw::Text<'_>],
    problems: &mut Problems,
) -> Vec<IpAddr> {
    let listed = spec.cluster_ips.as_ref().is_some_and(|all| !all.is_empty());
    let mut ips: Vec<IpAddr> = Vec::with_capacity(addresses.len());
    for (i, text) in addresses.iter().enumerate() {
        let field =
            || if listed { format!("spec.clusterIPs[{i}]") } else { "spec.clusterIP".into() };
        match service_address(text) {
            Err(message) => problems.add(field(), message),
            Ok(ip) if ips.iter().any(|other| Family::of(*other) == Family::of(ip)) => {
                problems.add(field(), format!("{ip} is a second address of its family"));
            }
            Ok(ip) => ips.push(ip),
        }
    }
    ips
}

/// An address that traffic may be sent to on behalf of a Service. Others would catch the node's own.
fn service_address(text: &str) -> Result<IpAddr, String> {
    let ip = parse_address(text)?;
    if is_ordinary(ip) { Ok(ip) } else { Err(format!("{ip} cannot be a Service's")) }
}

fn ports(spec: &raw::ServiceSpec<'_>, kind: Type, problems: &mut Problems) -> Vec<ServicePort> {
    let raw = spec.ports.as_deref().unwrap_or_default();
    let mut ports: Vec<ServicePort> = Vec::with_capacity(raw.len());
    for (i, raw) in raw.iter().enumerate() {
        let field = || format!("spec.ports[{i}]");
        let Some((name, protocol, port)) = convert_port(raw, field, problems) else { continue };
        let taken = |other: &ServicePort| {
            other.protocol == protocol && (other.port == port || other.name == name)
        };
        if ports.iter().any(taken) {
            problems.add(field(), format!("{name:?} {port}/{protocol} stands there twice"));
            continue;
        }
        let mut node_port = match kind {
            Type::ClusterIp => None,
            Type::NodePort | Type::LoadBalancer => {
                node_port(raw.node_port, || format!("{}.nodePort", field()), problems)
            }
        };
        let same = |other: &ServicePort| other.protocol == protocol && other.node_port == node_port;
        if let Some(number) = node_port
            && ports.iter().any(same)
        {
            let message = format!("{number}/{protocol} stands there twice");
            problems.add(format!("{}.nodePort", field()), message);
            node_port = None;
        }
        ports.push(ServicePort { name, protocol, port, node_port });
    }
    ports
}

/// 0 is how Kubernetes writes "none".
fn node_port(
    raw: Option<i64>,
    field: impl FnOnce() -> String,
    problems: &mut Problems,
) -> Option<NonZeroU16> {
    let number = raw.filter(|number| *number != 0)?;
    let port = u16::try_from(number).ok().and_then(NonZeroU16::new);
    if port.is_none() {
        problems.add(field(), format!("{number} is not a port (1 to 65535)"));
    }
    port
}

fn division(metadata: &raw::Metadata<'_>) -> Option<Box<Division>> {
    let annotation =
        |which: for<'m, 'a> fn(&'m raw::Annotations<'a>) -> &'m Option<raw::Text<'a>>| {
            which(metadata.annotations.as_ref()?).as_deref().map(shared)
        };
    let labels = metadata.labels.as_ref();
    let mut zones = labels.map(|labels| labels.grouped_zones.clone()).unwrap_or_default();
    zones.sort();
    zones.dedup();
    let division = Division {
        approach: annotation(|all| &all.approach),
        reason: annotation(|all| &all.reason),
        zones,
    };
    (division != Division::default()).then(|| Box::new(division))
}

/// One that is not known leaves the operator's.
fn scheduler(raw: &raw::Service<'_>, problems: &mut Problems) -> Option<Scheduler> {
    let text = raw.metadata.annotations.as_ref()?.ipvs_scheduler.as_deref()?;
    let scheduler = text.parse::<Scheduler>();
    scheduler
        .map_err(|message| {
            problems.add("metadata.annotations[zoneward/ipvs-scheduler]".into(), message);
        })
        .ok()
}

/// A policy that is not known is no reason to send traffic nowhere.
fn policy(raw: Option<&str>, field: &str, problems: &mut Problems) -> TrafficPolicy {
    match raw {
        None | Some("" | "Cluster") => TrafficPolicy::Cluster,
        Some("Local") => TrafficPolicy::Local,
        Some(other) => {
            problems.add(field.into(), format!("{other:?} is neither Cluster nor Local"));
            TrafficPolicy::Cluster
        }
    }
}

/// Means something only where there is a way in from outside.
fn external_policy(
    spec: &raw::ServiceSpec<'_>,
    kind: Type,
    problems: &mut Problems,
) -> TrafficPolicy {
    let has_external_ips = spec.external_ips.as_ref().is_some_and(|all| !all.is_empty());
    if kind == Type::ClusterIp && !has_external_ips {
        return TrafficPolicy::Cluster;
    }
    let raw = spec.external_traffic_policy.as_deref();
    policy(raw, "spec.externalTrafficPolicy", problems)
}

fn affinity(spec: &raw::ServiceSpec<'_>, problems: &mut Problems) -> Option<u32> {
    match spec.session_affinity.as_deref() {
        None | Some("" | "None") => return None,
        Some("ClientIP") => {}
        Some(other) => {
            let message = format!("{other:?} is neither None nor ClientIP");
            problems.add("spec.sessionAffinity".into(), message);
            return None;
        }
    }
    let config = spec.session_affinity_config.as_ref().and_then(|all| all.client_ip.as_ref());
    let Some(seconds) = config.and_then(|config| config.timeout_seconds) else {
        return Some(DEFAULT_AFFINITY);
    };
    let longest = i64::from(LONGEST_AFFINITY);
    let used = match u32::try_from(seconds) {
        Ok(fine @ 1..=LONGEST_AFFINITY) => return Some(fine),
        _ if seconds > longest => LONGEST_AFFINITY,
        _ => DEFAULT_AFFINITY,
    };
    problems.add(
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds".into(),
        format!("{seconds} is not between 1 and {longest}, so {used} counts"),
    );
    Some(used)
}

fn external(
    raw: &raw::Service<'_>,
    kind: Type,
    policy: TrafficPolicy,
    cluster_ips: &[IpAddr],
    problems: &mut Problems,
) -> Option<Box<External>> {
    let spec = &raw.spec;
    let mut external = External::default();
    if kind == Type::LoadBalancer {
        external.load_balancer_ips = load_balancer_ips(raw, cluster_ips, problems);
        let ranges = spec.load_balancer_source_ranges.as_deref().unwrap_or_default();
        let ranges = source_ranges(ranges, problems);
        // They protect these addresses and no others.
        if !external.load_balancer_ips.is_empty() {
            external.source_ranges = ranges;
        }
        if policy == TrafficPolicy::Local {
            let field = || "spec.healthCheckNodePort".to_owned();
            external.health_check_port = node_port(spec.health_check_node_port, field, problems);
        }
    }
    for (i, text) in spec.external_ips.iter().flatten().enumerate() {
        let field = || format!("spec.externalIPs[{i}]");
        match service_address(text) {
            Err(message) => problems.add(field(), message),
            Ok(ip) if cluster_ips.contains(&ip) => {
                problems.add(field(), format!("{ip} is its cluster IP"));
            }
            // One that is also the load balancer's is that: it may be for some sources only.
            Ok(ip) if external.ips.contains(&ip) || external.load_balancer_ips.contains(&ip) => {}
            Ok(ip) => external.ips.push(ip),
        }
    }
    (external != External::default()).then(|| Box::new(external))
}

/// Those whose packets still carry the address when they reach a node. In any other mode the load
/// balancer sends to the node's own address.
fn load_balancer_ips(
    raw: &raw::Service<'_>,
    cluster_ips: &[IpAddr],
    problems: &mut Problems,
) -> Vec<IpAddr> {
    let status = raw.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let mut ips: Vec<IpAddr> = Vec::new();
    for (i, ingress) in
        status.and_then(|status| status.ingress.as_ref()).into_iter().flatten().enumerate()
    {
        let Some(text) = ingress.ip.as_deref().filter(|text| !text.is_empty()) else { continue };
        if !matches!(ingress.ip_mode.as_deref(), None | Some("VIP")) {
            continue;
        }
        let field = || format!("status.loadBalancer.ingress[{i}].ip");
        match service_address(text) {
            Err(message) => problems.add(field(), message),
            Ok(ip) if cluster_ips.contains(&ip) => {
                problems.add(field(), format!("{ip} is its cluster IP"));
            }
            Ok(ip) if ips.contains(&ip) => {}
            Ok(ip) => ips.push(ip),
        }
    }
    ips
}

/// A range of everybody makes its family unlimited. One that cannot be read is left out; where a family
/// had only such, nobody may, for a slip must not open what was meant to be closed.
fn source_ranges(raw: &[raw::Text<'_>], problems: &mut Problems) -> Vec<IpNet> {
    let mut ranges: Vec<IpNet> = Vec::new();
    let mut unreadable: Vec<Family> = Vec::new();
    for (i, text) in raw.iter().enumerate() {
        let text = text.trim();
        match parse_range(text) {
            Ok(range) if ranges.contains(&range) => {}
            Ok(range) => ranges.push(range),
            Err(message) => {
                problems.add(format!("spec.loadBalancerSourceRanges[{i}]"), message);
                unreadable.extend(families_it_may_mean(text));
            }
        }
    }
    for family in Family::BOTH {
        let of_family = |range: &IpNet| Family::of(range.addr()) == family;
        if ranges.iter().any(|range| of_family(range) && range.prefix_len() == 0) {
            ranges.retain(|range| !of_family(range));
        } else if unreadable.contains(&family) && !ranges.iter().any(of_family) {
            ranges.push(nobody(family));
        }
    }
    ranges
}

fn families_it_may_mean(text: &str) -> &'static [Family] {
    match (text.contains(':'), text.contains('.')) {
        (true, _) => &[Family::V6],
        (false, true) => &[Family::V4],
        (false, false) => &Family::BOTH,
    }
}

/// The unspecified address alone, which no client has.
fn nobody(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::from(IpAddr::from([0u8; 4])),
        Family::V6 => IpNet::from(IpAddr::from([0u16; 8])),
    }
}
