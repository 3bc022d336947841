//! One Service's part of the ruleset.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use zw_model::{Family, NodeContext, Protocol, Service, ServiceKey, Slice};

use crate::base::{LONGEST_COMMENT, REFUSE, shape_name};
use crate::element::{Data, Element, Key};
use crate::ruleset::SetName;
use crate::select::select;
use crate::slots::assign;

/// What a client connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// The Service's address.
    pub addr: IpAddr,
    /// Transport protocol.
    pub protocol: Protocol,
    /// The Service's port.
    pub port: u16,
}

impl Frontend {
    /// The family of its address.
    pub fn family(&self) -> Family {
        Family::of(self.addr)
    }

    /// Its key in every set that is keyed by what a client connects to.
    pub fn key(&self) -> Key {
        Key::new().addr(self.addr).protocol(self.protocol).port(self.port)
    }
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", SocketAddr::new(self.addr, self.port), self.protocol)
    }
}

/// Where a connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backend {
    /// Address and port.
    pub addr: SocketAddr,
    /// It runs on this node, so it may turn out to be its own client.
    pub local: bool,
}

/// One Service port in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRules {
    /// What clients connect to.
    pub frontend: Frontend,
    /// In slot order; empty means connections are refused.
    pub backends: Vec<Backend>,
    /// `namespace/name:port`, as the kernel keeps it.
    pub comment: String,
}

/// All ports of one Service in both families, ordered by frontend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRules {
    /// At most one per frontend.
    pub ports: Vec<PortRules>,
}

/// Plans one Service. `previous` gives the endpoints that hold a frontend's slots now.
pub fn plan_service<'a>(
    service: &Service,
    slices: impl IntoIterator<Item = &'a Slice> + Clone,
    node: &NodeContext,
    previous: impl Fn(&Frontend) -> Vec<SocketAddr>,
) -> ServiceRules {
    let mut ports: Vec<PortRules> = Vec::new();
    for family in Family::BOTH {
        let Some(addr) = service.cluster_ip(family) else { continue };
        for port in &service.ports {
            let frontend = Frontend { addr, protocol: port.protocol, port: port.port };
            let selection = select(port, family, slices.clone(), node);
            // Sorted by address and free of duplicates already.
            let wanted: Vec<Backend> = selection
                .used()
                .map(|c| Backend {
                    addr: SocketAddr::new(c.endpoint.addr, c.port),
                    local: c.endpoint.node.as_ref() == Some(&node.name),
                })
                .collect();
            let backends = place(&previous(&frontend), &wanted);
            ports.push(PortRules {
                frontend,
                backends,
                comment: comment(&service.key, &port.name),
            });
        }
    }
    ports.sort_by_key(|port| port.frontend);
    ServiceRules { ports }
}

fn place(previous: &[SocketAddr], wanted: &[Backend]) -> Vec<Backend> {
    let addresses: Vec<SocketAddr> = wanted.iter().map(|backend| backend.addr).collect();
    let by_address = |addr: SocketAddr| {
        let at = addresses.binary_search(&addr).expect("slots hold only wanted endpoints");
        wanted[at]
    };
    assign(previous, &addresses).into_iter().map(by_address).collect()
}

fn comment(key: &ServiceKey, port: &str) -> String {
    let mut comment = key.to_string();
    if !port.is_empty() {
        comment.push(':');
        comment.push_str(port);
    }
    // Kubernetes names are ASCII, and namespace/name alone always fits; state files may differ.
    let end = comment.floor_char_boundary(LONGEST_COMMENT);
    comment.truncate(end);
    comment
}

impl ServiceRules {
    /// The rules of one frontend.
    pub fn port(&self, frontend: &Frontend) -> Option<&PortRules> {
        let at = self.ports.binary_search_by_key(frontend, |port| port.frontend).ok()?;
        Some(&self.ports[at])
    }
}

impl PortRules {
    /// The elements that stand for the port itself.
    pub(crate) fn heads(&self) -> [(SetName, Element); 2] {
        let key = self.frontend.key();
        let named = |data| Element { key, data, comment: Some(self.comment.clone()) };
        let verdict = match self.slots() {
            0 => (SetName::NoEndpoints, named(Data::Goto(REFUSE.into()))),
            slots => (SetName::Services, named(Data::Goto(shape_name(slots)))),
        };
        [verdict, (SetName::Connections, named(Data::Nothing))]
    }

    /// The element of one slot, if it is taken.
    pub(crate) fn endpoint(&self, slot: u32) -> Option<Element> {
        let backend = self.backends.get(slot as usize)?;
        let data = Data::Value(Key::new().addr(backend.addr.ip()).port(backend.addr.port()));
        Some(Element { key: self.frontend.key().slot(slot), data, comment: None })
    }

    /// How many endpoints there are to choose from.
    pub(crate) fn slots(&self) -> u32 {
        u32::try_from(self.backends.len()).expect("a Service has fewer than 2^32 endpoints")
    }

    /// The addresses of endpoints that run on this node.
    pub(crate) fn local_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.backends.iter().filter(|backend| backend.local).map(|backend| backend.addr.ip())
    }
}
