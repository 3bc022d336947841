//! Which Service ports are asked for.

use std::net::{IpAddr, SocketAddr};

use anyhow::bail;
use zw_model::ServiceKey;

use super::view::PortView;
use crate::BadInput;

/// `namespace/name[:port]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceName {
    pub(crate) text: String,
    pub(crate) key: ServiceKey,
    pub(crate) port: Option<String>,
}

impl ServiceName {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let (service, port) = match text.split_once(':') {
            Some((service, port)) => (service, Some(port.to_owned())),
            None => (text, None),
        };
        let parts: Vec<&str> = service.split('/').collect();
        let [namespace, name] = parts[..] else { bail!(not_a_service(text)) };
        if namespace.is_empty() || name.is_empty() || port.as_deref() == Some("") {
            bail!(not_a_service(text));
        }
        Ok(Self { text: text.into(), key: ServiceKey::new(namespace, name), port })
    }

    /// Whether a port of that name or number is meant.
    pub(crate) fn has_port(&self, name: &str, number: u16) -> bool {
        self.port.as_ref().is_none_or(|want| name == *want || number.to_string() == *want)
    }
}

fn not_a_service(text: &str) -> BadInput {
    BadInput(format!("{text:?} is not a Service: write namespace/name or namespace/name:port"))
}

/// All that a Service port must be to be shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    pub(crate) service: Option<ServiceName>,
    pub(crate) namespace: Option<String>,
    pub(crate) address: Option<Place>,
    pub(crate) endpoint: Option<Place>,
}

/// An address, or one port of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    addr: IpAddr,
    port: Option<u16>,
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(addr) = text.parse() {
            return Ok(Self { addr, port: None });
        }
        let socket: SocketAddr =
            text.parse().map_err(|_| "not an address, with or without a port".to_owned())?;
        Ok(Self { addr: socket.ip(), port: Some(socket.port()) })
    }
}

impl Place {
    fn is(&self, addr: IpAddr, port: u16) -> bool {
        self.addr == addr && self.port.is_none_or(|want| want == port)
    }
}

impl Filter {
    pub(crate) fn is_empty(&self) -> bool {
        self.service.is_none()
            && self.namespace.is_none()
            && self.address.is_none()
            && self.endpoint.is_none()
    }

    pub(crate) fn matches(&self, port: &PortView) -> bool {
        let (namespace, name) = port.service.split_once('/').unwrap_or_default();
        let service = |want: &ServiceName| {
            (&*want.key.namespace, &*want.key.name) == (namespace, name)
                && want.has_port(&port.name, port.port)
        };
        let endpoint = |want: &Place| {
            let mut all = port.all_endpoints().filter_map(|e| e.address.parse::<SocketAddr>().ok());
            all.any(|at| want.is(at.ip(), at.port()))
        };
        self.service.as_ref().is_none_or(service)
            && self.namespace.as_ref().is_none_or(|want| want == namespace)
            && self.address.is_none_or(|want| port.address.is_some_and(|a| want.is(a, port.port)))
            && self.endpoint.as_ref().is_none_or(endpoint)
    }

    /// What was asked for, to say that there is none.
    pub(crate) fn describe(&self) -> String {
        let place = |place: &Place| match place.port {
            Some(port) => SocketAddr::new(place.addr, port).to_string(),
            None => place.addr.to_string(),
        };
        let parts = [
            self.service.as_ref().map(|service| service.text.clone()),
            self.namespace.as_ref().map(|namespace| format!("in namespace {namespace}")),
            self.address.as_ref().map(|address| format!("at {}", place(address))),
            self.endpoint.as_ref().map(|endpoint| format!("with endpoint {}", place(endpoint))),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}
