//! The fields of Kubernetes objects that are used, from protocol buffers: what [`super::raw`] gets from
//! JSON, by the numbers of the API's `generated.proto` files. Every other field is stepped over.
//!
//! Go writes a field that may not be absent even if it is empty; JSON leaves it out. Such a text is read
//! as absent here ([`plain`]), so that both ways give the same.

use serde::de::IgnoredAny;

use super::raw::{self, Text};
use super::{Problem, problem};
use crate::protobuf::{Fields, Value};

/// How many endpoints the endpoint slice controller puts into a slice, unless it is told otherwise.
const MOST_ENDPOINTS: usize = 100;

type Outcome = Result<(), Problem>;

/// A message that is read field by field.
pub(super) trait Message<'a>: Default {
    /// Takes in a field, or steps over it.
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome;
}

/// Reads into a message; what came before something that cannot be read is kept.
pub(super) fn merge<'a, M: Message<'a>>(message: &mut M, bytes: &'a [u8]) -> Outcome {
    let mut fields = Fields::of(bytes);
    while let Some((number, value)) =
        fields.next().map_err(|malformed| problem("", &malformed.to_string()))?
    {
        message.set(number, value)?;
    }
    Ok(())
}

impl Problem {
    /// The same problem as seen from further outside.
    fn within(mut self, outer: &str) -> Self {
        let dot = if self.field.is_empty() { "" } else { "." };
        self.field = format!("{outer}{dot}{}", self.field);
        self
    }
}

fn bytes<'a>(name: &str, value: Value<'a>, what: &str) -> Result<&'a [u8], Problem> {
    match value {
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err(problem(name, &format!("invalid type: expected {what}"))),
    }
}

fn borrowed<'a>(name: &str, value: Value<'a>) -> Result<Text<'a>, Problem> {
    let text = std::str::from_utf8(bytes(name, value, "a string")?);
    text.map(Text::from).map_err(|_| problem(name, "not UTF-8"))
}

/// A text that may be absent.
fn text<'a>(slot: &mut Option<Text<'a>>, name: &str, value: Value<'a>) -> Outcome {
    *slot = Some(borrowed(name, value)?);
    Ok(())
}

/// A text that Go writes even if it is empty.
fn plain<'a>(slot: &mut Option<Text<'a>>, name: &str, value: Value<'a>) -> Outcome {
    *slot = Some(borrowed(name, value)?).filter(|text| !text.is_empty());
    Ok(())
}

fn number(slot: &mut Option<i64>, name: &str, value: Value<'_>) -> Outcome {
    let Value::Number(number) = value else {
        return Err(problem(name, "invalid type: expected a number"));
    };
    *slot = Some(number.cast_signed());
    Ok(())
}

fn flag(slot: &mut Option<bool>, name: &str, value: Value<'_>) -> Outcome {
    let Value::Number(number) = value else {
        return Err(problem(name, "invalid type: expected a boolean"));
    };
    *slot = Some(number != 0);
    Ok(())
}

fn texts<'a>(slot: &mut Option<Vec<Text<'a>>>, name: &str, value: Value<'a>) -> Outcome {
    let list = slot.get_or_insert_default();
    let index = list.len();
    let text = borrowed(name, value)
        .map_err(|problem| Problem { field: format!("{name}[{index}]"), ..problem })?;
    list.push(text);
    Ok(())
}

fn inner<'a, M: Message<'a>>(slot: &mut M, name: &str, value: Value<'a>) -> Outcome {
    merge(slot, bytes(name, value, "a message")?).map_err(|problem| problem.within(name))
}

fn optional<'a, M: Message<'a>>(slot: &mut Option<M>, name: &str, value: Value<'a>) -> Outcome {
    inner(slot.get_or_insert_default(), name, value)
}

fn push<'a, M: Message<'a>>(slot: &mut Option<Vec<M>>, name: &str, value: Value<'a>) -> Outcome {
    let list = slot.get_or_insert_default();
    let index = list.len();
    let item = list.push_mut(M::default());
    merge(item, bytes(name, value, "a message")?)
        .map_err(|problem| problem.within(&format!("{name}[{index}]")))
}

/// An entry of a map of texts.
fn entry<'a>(name: &str, value: Value<'a>) -> Result<(&'a [u8], Value<'a>), Problem> {
    let mut fields = Fields::of(bytes(name, value, "a message")?);
    let (mut key, mut text) = (&[][..], Value::Bytes(&[]));
    while let Some((number, value)) =
        fields.next().map_err(|malformed| problem(name, &malformed.to_string()))?
    {
        match (number, value) {
            (1, Value::Bytes(bytes)) => key = bytes,
            (2, value) => text = value,
            _ => {}
        }
    }
    Ok((key, text))
}

impl<'a> Message<'a> for raw::Metadata<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => plain(&mut self.name, "name", value),
            3 => plain(&mut self.namespace, "namespace", value),
            6 => plain(&mut self.resource_version, "resourceVersion", value),
            9 => {
                self.deletion_timestamp = Some(IgnoredAny);
                Ok(())
            }
            11 => {
                let (key, value) = entry("labels", value)?;
                let labels = self.labels.get_or_insert_default();
                let slot = std::str::from_utf8(key).ok().and_then(|name| labels.slot(name));
                slot.map_or(Ok(()), |slot| text(slot, "labels", value))
            }
            12 => {
                let (key, value) = entry("annotations", value)?;
                let annotations = self.annotations.get_or_insert_default();
                let slot = match key {
                    b"endpoints.kubernetes.io/last-change-trigger-time" => {
                        &mut annotations.last_change_trigger_time
                    }
                    b"zoneward/ipvs-scheduler" => &mut annotations.ipvs_scheduler,
                    b"zoneward/approach" => &mut annotations.approach,
                    b"zoneward/reason" => &mut annotations.reason,
                    _ => return Ok(()),
                };
                text(slot, "annotations", value)
            }
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::Anything<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => inner(&mut self.metadata, "metadata", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::Service<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => inner(&mut self.metadata, "metadata", value),
            2 => inner(&mut self.spec, "spec", value),
            3 => optional(&mut self.status, "status", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::ServiceSpec<'a> {
    fn set(&mut self, field: u32, value: Value<'a>) -> Outcome {
        match field {
            1 => {
                push(&mut self.ports, "ports", value)?;
                // Unlike in a slice, it cannot be absent.
                let port = self.ports.as_mut().and_then(|ports| ports.last_mut());
                let protocol = port.map(|port| &mut port.protocol);
                protocol.and_then(|slot| slot.take_if(|protocol| protocol.is_empty()));
                Ok(())
            }
            2 => {
                self.selector = Some(IgnoredAny);
                Ok(())
            }
            3 => plain(&mut self.cluster_ip, "clusterIP", value),
            4 => plain(&mut self.kind, "type", value),
            5 => texts(&mut self.external_ips, "externalIPs", value),
            7 => plain(&mut self.session_affinity, "sessionAffinity", value),
            9 => texts(&mut self.load_balancer_source_ranges, "loadBalancerSourceRanges", value),
            11 => plain(&mut self.external_traffic_policy, "externalTrafficPolicy", value),
            12 => number(&mut self.health_check_node_port, "healthCheckNodePort", value),
            14 => optional(&mut self.session_affinity_config, "sessionAffinityConfig", value),
            18 => texts(&mut self.cluster_ips, "clusterIPs", value),
            22 => text(&mut self.internal_traffic_policy, "internalTrafficPolicy", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::SessionAffinityConfig {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => optional(&mut self.client_ip, "clientIP", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::ClientIpConfig {
    fn set(&mut self, field: u32, value: Value<'a>) -> Outcome {
        match field {
            1 => number(&mut self.timeout_seconds, "timeoutSeconds", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::ServiceStatus<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => optional(&mut self.load_balancer, "loadBalancer", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::LoadBalancer<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => push(&mut self.ingress, "ingress", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::Ingress<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => plain(&mut self.ip, "ip", value),
            3 => text(&mut self.ip_mode, "ipMode", value),
            _ => Ok(()),
        }
    }
}

/// A Service's ports and a slice's have the same numbers as far as both have them.
impl<'a> Message<'a> for raw::Port<'a> {
    fn set(&mut self, field: u32, value: Value<'a>) -> Outcome {
        match field {
            1 => text(&mut self.name, "name", value),
            2 => text(&mut self.protocol, "protocol", value),
            3 => number(&mut self.port, "port", value),
            5 => number(&mut self.node_port, "nodePort", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::EndpointSlice<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => inner(&mut self.metadata, "metadata", value),
            2 => {
                self.endpoints.get_or_insert_with(|| Vec::with_capacity(MOST_ENDPOINTS));
                push(&mut self.endpoints, "endpoints", value)
            }
            3 => push(&mut self.ports, "ports", value),
            4 => plain(&mut self.address_type, "addressType", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::Endpoint<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => {
                let first = &mut self.addresses.get_or_insert_default().first;
                if first.is_none() { text(first, "addresses[0]", value) } else { Ok(()) }
            }
            2 => optional(&mut self.conditions, "conditions", value),
            6 => text(&mut self.node_name, "nodeName", value),
            7 => text(&mut self.zone, "zone", value),
            8 => optional(&mut self.hints, "hints", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::Conditions {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => flag(&mut self.ready, "ready", value),
            2 => flag(&mut self.serving, "serving", value),
            3 => flag(&mut self.terminating, "terminating", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::Hints<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => push(&mut self.for_zones, "forZones", value),
            2 => push(&mut self.for_nodes, "forNodes", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::Named<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        if number == 1 {
            self.name = borrowed("name", value)?;
        }
        Ok(())
    }
}

impl<'a> Message<'a> for raw::Node<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => inner(&mut self.metadata, "metadata", value),
            2 => optional(&mut self.spec, "spec", value),
            3 => optional(&mut self.status, "status", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::NodeSpec<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => plain(&mut self.pod_cidr, "podCIDR", value),
            5 => push(&mut self.taints, "taints", value),
            7 => texts(&mut self.pod_cidrs, "podCIDRs", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::Taint<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => plain(&mut self.key, "key", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::NodeStatus<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            5 => push(&mut self.addresses, "addresses", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::NodeAddress<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => plain(&mut self.kind, "type", value),
            2 => plain(&mut self.address, "address", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::ServiceCidr<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => inner(&mut self.metadata, "metadata", value),
            2 => optional(&mut self.spec, "spec", value),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for raw::ServiceCidrSpec<'a> {
    fn set(&mut self, number: u32, value: Value<'a>) -> Outcome {
        match number {
            1 => texts(&mut self.cidrs, "cidrs", value),
            _ => Ok(()),
        }
    }
}
