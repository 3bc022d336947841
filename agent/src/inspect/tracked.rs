//! How many connections each endpoint has now, from the kernel's connection tracking.

use std::collections::HashMap;
use std::net::SocketAddr;

use tracing::debug;
use zw_dataplane::{FlowFilter, FlowTable};
use zw_model::{Family, Protocol};

use super::view::PortView;

/// Where a connection was sent and who answers it.
type Flow = (Protocol, SocketAddr, SocketAddr);

/// Tracked connections by where they were sent and who answers; empty where that cannot be read.
pub(crate) fn read() -> HashMap<Flow, u64> {
    let mut flows = HashMap::new();
    let mut take = || -> Result<(), zw_dataplane::FlowError> {
        let mut table = FlowTable::open()?;
        for family in Family::BOTH {
            for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                let all = FlowFilter { family, protocol, unanswered: false, to: None };
                table.each(all, &mut |flow| {
                    // What nobody redirected is nobody's Service.
                    if flow.to != flow.answered_by {
                        *flows.entry((protocol, flow.to, flow.answered_by)).or_default() += 1;
                    }
                })?;
            }
        }
        Ok(())
    };
    if let Err(error) = take() {
        debug!(error = &error as &dyn std::error::Error, "no tracked connections");
    }
    flows
}

/// Adds them to endpoints that have any.
pub(crate) fn count(ports: &mut [PortView]) {
    let flows = read();
    if flows.is_empty() {
        return;
    }
    let mut by_node_port: HashMap<(Protocol, u16, SocketAddr), u64> = HashMap::new();
    for ((protocol, to, by), number) in &flows {
        *by_node_port.entry((*protocol, to.port(), *by)).or_default() += number;
    }
    let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    for port in ports {
        let Some(protocol) = protocols.into_iter().find(|p| p.to_string() == port.protocol) else {
            continue;
        };
        let (address, number) = (port.address, port.port);
        let outsiders = port.endpoints_for_outsiders.iter_mut().flatten();
        for endpoint in port.endpoints.iter_mut().chain(outsiders) {
            let Ok(by) = endpoint.address.parse::<SocketAddr>() else { continue };
            endpoint.connections = match address {
                Some(address) => flows.get(&(protocol, SocketAddr::new(address, number), by)),
                None => by_node_port.get(&(protocol, number, by)),
            }
            .copied();
        }
    }
}
