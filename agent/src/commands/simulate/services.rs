//! A cluster's own Services as inputs: how many nodes and ready endpoints each zone has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use zw_model::{Family, Scope, ServiceKey, Slice};
use zw_topology::{Input, Zone};

use super::NamedInput;
use crate::BadInput;
use crate::config::ContentType;
use crate::convert::{Body, Content, Object};
use crate::state::{Complaint, Event, StateSource};
use crate::watch::{Server, connect, list_all};

/// What manifests say, and what of them could not be used.
pub(super) struct Services {
    pub(super) inputs: Vec<NamedInput>,
    pub(super) complaints: Vec<String>,
}

/// Reads manifests once.
pub(super) fn read(path: &Path) -> Result<Services> {
    let mut source = StateSource::new(path.to_owned());
    let delta = source.poll();
    if !source.has_been_read() {
        bail!(BadInput(format!("nothing in {} could be read", path.display())));
    }
    let objects = delta.events.into_iter().filter_map(|event| match event {
        Event::Apply(object) => Some(object),
        Event::Delete(_) => None,
    });
    let mut services = count(objects);
    let unread = delta.complaints.iter().map(Complaint::to_string);
    services.complaints.splice(0..0, unread);
    Ok(services)
}

/// Lists a cluster's objects once.
pub(super) fn read_cluster(kubeconfig: Option<&Path>) -> Result<Services> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listed = runtime.block_on(async {
        let (client, _) = connect(kubeconfig, None).await?;
        list_all(&Server::new(client, ContentType::default())).await
    })?;
    let mut complaints = Vec::new();
    let mut objects = Vec::new();
    for wire in listed {
        match wire.content {
            Content::Good(object, problems) => {
                complaints.extend(problems.iter().map(|p| format!("{}: {p}", object.id)));
                objects.push(object);
            }
            Content::Bad(Some(id), problem) => complaints.push(format!("{id}: {problem}")),
            Content::Bad(None, problem) => complaints.push(problem.to_string()),
        }
    }
    let mut services = count(objects.into_iter());
    services.complaints.splice(0..0, complaints);
    Ok(services)
}

fn count(objects: impl Iterator<Item = Object>) -> Services {
    let mut nodes: BTreeMap<Arc<str>, Option<Arc<str>>> = BTreeMap::new();
    let mut wanted: BTreeSet<ServiceKey> = BTreeSet::new();
    let mut slices: BTreeMap<ServiceKey, Vec<Slice>> = BTreeMap::new();
    for object in objects {
        match object.body {
            Body::Node(node) => {
                nodes.insert(object.id.name, node.zone);
            }
            Body::Service(service) => {
                wanted.insert(service.key);
            }
            Body::Slice(slice) => slices.entry(slice.service.clone()).or_default().push(slice),
            Body::ServiceRanges(_) | Body::Irrelevant => {}
        }
    }
    let mut services = Services { inputs: Vec::new(), complaints: Vec::new() };
    for key in wanted {
        let slices = slices.remove(&key).unwrap_or_default();
        match service_input(&slices, &nodes) {
            Ok(zones) => services.inputs.push(NamedInput { name: key.to_string(), zones }),
            Err(why) => services.complaints.push(format!("{key}: {why}")),
        }
    }
    services
}

/// One Service's zones. A dual-stack Service lists each endpoint once per family: one family counts.
fn service_input(
    slices: &[Slice],
    nodes: &BTreeMap<Arc<str>, Option<Arc<str>>>,
) -> Result<Input, String> {
    let unlabelled = || slices.iter().filter(|slice| slice.scope == Scope::Everyone);
    let family = unlabelled().map(|slice| slice.family).min().unwrap_or(Family::V4);
    let mut zones: BTreeMap<&str, (u32, BTreeSet<IpAddr>)> = BTreeMap::new();
    for zone in nodes.values().flatten() {
        zones.entry(zone).or_default().0 += 1;
    }
    let endpoints = unlabelled().filter(|slice| slice.family == family).flat_map(|s| &s.endpoints);
    for endpoint in endpoints.filter(|endpoint| endpoint.conditions.ready) {
        let by_node = || nodes.get(endpoint.node.as_ref()?)?.as_ref();
        let Some(zone) = endpoint.zone.as_ref().or_else(by_node) else {
            return Err(format!("endpoint {} has no zone, nor has its node", endpoint.addr));
        };
        zones.entry(zone).or_default().1.insert(endpoint.addr);
    }
    let zones = zones.into_iter().map(|(name, (nodes, endpoints))| {
        let endpoints = u32::try_from(endpoints.len()).map_err(|error| error.to_string())?;
        Ok(Zone { name: name.to_owned(), nodes, endpoints })
    });
    Input::new(zones.collect::<Result<_, String>>()?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::convert;

    fn object(yaml: &str) -> Object {
        convert(&serde_saphyr::from_str(yaml).unwrap()).unwrap().0
    }

    fn node(name: &str, zone: &str) -> Object {
        let labels = format!("{{topology.kubernetes.io/zone: {zone}}}");
        object(&format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {labels}}}}}"
        ))
    }

    fn service(name: &str) -> Object {
        object(&format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{clusterIP: 10.96.0.9}}}}"
        ))
    }

    fn slice(name: &str, kind: &str, labels: &str, endpoints: &str) -> Object {
        object(&format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: {kind}, metadata: {{name: \
             {name}, labels: {{{labels}}}}}, endpoints: [{endpoints}]}}"
        ))
    }

    #[test]
    fn ready_endpoints_count_once_in_their_zone_or_their_nodes() {
        let of = "kubernetes.io/service-name: web";
        let services = count(
            [
                node("n1", "a"),
                node("n2", "a"),
                node("n3", "b"),
                service("web"),
                slice(
                    "web-4",
                    "IPv4",
                    of,
                    "{addresses: [10.0.0.1], zone: a}, {addresses: [10.0.0.2], nodeName: n3}, \
                     {addresses: [10.0.0.3], zone: b, conditions: {ready: false}}",
                ),
                slice("web-4b", "IPv4", of, "{addresses: [10.0.0.1], zone: a}"),
                slice("web-6", "IPv6", of, "{addresses: ['fd00::1'], zone: a}"),
                slice(
                    "web-zoned",
                    "IPv4",
                    &format!("{of}, endpointslice.kubernetes.io/for-zone: a"),
                    "{addresses: [10.0.0.7], zone: a}",
                ),
            ]
            .into_iter(),
        );
        let zone = |name: &str, nodes, endpoints| Zone { name: name.into(), nodes, endpoints };
        let want = Input::new(vec![zone("a", 2, 1), zone("b", 1, 1)]).unwrap();
        assert_eq!(services.complaints, Vec::<String>::new());
        assert_eq!(services.inputs.len(), 1);
        assert_eq!(
            (services.inputs[0].name.as_str(), &services.inputs[0].zones),
            ("default/web", &want)
        );
    }

    #[test]
    fn a_service_whose_endpoints_have_no_zone_is_named_and_the_others_stay() {
        let of = |name: &str| format!("kubernetes.io/service-name: {name}");
        let services = count(
            [
                node("n1", "a"),
                service("lost"),
                service("web"),
                slice("lost-1", "IPv4", &of("lost"), "{addresses: [10.0.0.1]}"),
                slice("web-1", "IPv4", &of("web"), "{addresses: [10.0.0.2], zone: a}"),
            ]
            .into_iter(),
        );
        assert_eq!(
            services.complaints,
            ["default/lost: endpoint 10.0.0.1 has no zone, nor has its node"]
        );
        assert_eq!(
            services.inputs.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(),
            ["default/web"]
        );
    }
}
