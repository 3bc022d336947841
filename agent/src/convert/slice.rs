//! EndpointSlices.

use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;
use zw_model::{Conditions, Family, Scope, ServiceKey, Slice, SliceEndpoint, SliceKey, SlicePort};

use super::address::{is_ordinary, parse_address};
use super::names::{Place, shared, shared_place};
use super::raw::{self, Labels};
use super::{Body, Kind, Object, Problem, Problems, convert_port, identify};

pub(super) fn convert(
    raw: &raw::EndpointSlice<'_>,
    problems: &mut Problems,
) -> Result<Object, Problem> {
    let id = identify(Kind::EndpointSlice, &raw.metadata)?;
    let label = |which: for<'l, 'a> fn(&'l Labels<'a>) -> &'l Option<raw::Text<'a>>| {
        raw.metadata.label(which).map(shared)
    };
    if raw.metadata.labels.as_ref().is_some_and(|labels| labels.headless.is_some()) {
        return Ok(Object::new(id, Body::Irrelevant));
    }
    let Some(service) = label(|labels| &labels.service_name) else {
        problems.add(
            "metadata.labels[kubernetes.io/service-name]".into(),
            "missing: the slice belongs to no Service".into(),
        );
        return Ok(Object::new(id, Body::Irrelevant));
    };
    let family = match raw.address_type.as_deref() {
        Some("IPv4") => Family::V4,
        Some("IPv6") => Family::V6,
        Some("FQDN") => {
            problems.add("addressType".into(), "FQDN: names cannot be programmed".into());
            return Ok(Object::new(id, Body::Irrelevant));
        }
        other => {
            let message = format!("{:?} is neither IPv4 nor IPv6", other.unwrap_or_default());
            return Err(Problem { field: "addressType".into(), message });
        }
    };
    let scope = match (label(|labels| &labels.for_zone), label(|labels| &labels.for_region)) {
        (Some(zone), _) => Scope::Zone(zone),
        (None, Some(region)) => Scope::Region(region),
        (None, None) => Scope::Everyone,
    };

    let mut ports: Vec<SlicePort> = Vec::new();
    for (i, port) in raw.ports.iter().flatten().enumerate() {
        let field = || format!("ports[{i}]");
        if let Some((name, protocol, port)) = convert_port(port, field, problems) {
            ports.push(SlicePort { name, protocol, port });
        }
    }
    let raw_endpoints = raw.endpoints.as_deref().unwrap_or_default();
    let mut endpoints = Vec::with_capacity(raw_endpoints.len());
    for (i, endpoint) in raw_endpoints.iter().enumerate() {
        match convert_endpoint(endpoint, family) {
            Ok(endpoint) => endpoints.push(endpoint),
            Err(message) => problems.add(format!("endpoints[{i}].addresses[0]"), message),
        }
    }
    let triggered = raw
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| trigger_time(annotations.last_change_trigger_time.as_deref()?));
    let slice = Slice {
        key: SliceKey { namespace: id.namespace.clone(), name: id.name.clone() },
        service: ServiceKey { namespace: id.namespace.clone(), name: service },
        family,
        scope,
        managed_by: label(|labels| &labels.managed_by),
        ports,
        endpoints,
    };
    Ok(Object { id, body: Body::Slice(slice), triggered })
}

/// One that is no time is not worth a word: it only feeds a metric.
fn trigger_time(text: &str) -> Option<SystemTime> {
    text.parse::<Timestamp>().ok().map(SystemTime::from)
}

fn convert_endpoint(raw: &raw::Endpoint<'_>, family: Family) -> Result<SliceEndpoint, String> {
    let first = raw.addresses.as_ref().and_then(|all| all.first.as_deref());
    let addr = parse_address(first.ok_or("missing")?)?;
    if Family::of(addr) != family {
        return Err(format!("{addr} is not {family}, as the slice's addressType says"));
    }
    if !is_ordinary(addr) {
        return Err(format!("{addr} is not an address of one endpoint that nodes can reach"));
    }
    let conditions = raw.conditions.as_ref();
    let place = Place {
        node: raw.node_name.as_deref(),
        zone: raw.zone.as_deref(),
        hints: raw.hints.as_ref(),
    };
    Ok(SliceEndpoint {
        addr,
        conditions: Conditions::from_optional(
            conditions.and_then(|given| given.ready),
            conditions.and_then(|given| given.serving),
            conditions.and_then(|given| given.terminating),
        ),
        topology: shared_place(&place),
    })
}
