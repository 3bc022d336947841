//! The network itself: a star with the node in the middle.
//!
//! ```text
//!   host a           host b           the fabric: takes every packet, answers none
//!     eth0             eth0             eth0
//!      |                |                |
//!      h1               h2              eth0 (the node's addresses)
//!      +-------- node, routing ----------+
//! ```
//! Every link has `fe80::1` at the node and `fe80::2` at the far end. Those are the gateways, of
//! IPv4 too, so the node has no address but its own; each host has its addresses as /32 and /128.
//! The node's default routes lead into the fabric: a packet to an address nobody has passes all of
//! the node's hooks, as on a real node, and is lost there.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::links::{self, Family};
use crate::probe::{self, Held, Protocol};
use crate::server::{self, Server};
use crate::sockets::Sockets;
use crate::{Answer, LabError, Namespace, batch, sysctl};

/// The name of the node where a host's is asked for.
pub const NODE: &str = "node";

/// The one interface of a host, and the node's to the outside.
const UPLINK: &str = "eth0";
const NEAR: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const FAR: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

/// One node and the hosts around it: every host has a link to the node, which routes between them.
/// When it is dropped its threads have ended and its namespaces go, except those that a clone of a
/// [`Namespace`] or a [`Held`] connection still refers to.
#[derive(Debug)]
pub struct Lab {
    // Dropped in this order; servers and sockets before the namespace they are in.
    hosts: BTreeMap<String, Host>,
    node: Host,
    /// Kept for its end of the node's uplink: without it the link would be down.
    _fabric: Namespace,
}

#[derive(Debug)]
struct Host {
    /// What its node calls the link to it; the node's own is the uplink.
    link: String,
    addresses: Vec<IpAddr>,
    ports: Vec<u16>,
    servers: Vec<Server>,
    sockets: Sockets,
    namespace: Namespace,
}

impl Host {
    fn new(link: String, addresses: &[IpAddr], namespace: Namespace) -> Self {
        Self {
            link,
            addresses: addresses.to_vec(),
            ports: Vec::new(),
            servers: Vec::new(),
            sockets: Sockets::of(&namespace),
            namespace,
        }
    }
}

impl Lab {
    /// A node with these addresses that forwards both families, and no host yet.
    pub fn new(node_addresses: &[IpAddr]) -> Result<Self, LabError> {
        let node = Namespace::new()?;
        node.run(sysctl::router)?;
        let fabric = Namespace::new()?;
        connect(&node, UPLINK, &fabric)?;
        node.run(|| {
            links::add_addresses(UPLINK, node_addresses)?;
            links::add_default_routes(UPLINK, FAR, &[Family::V4, Family::V6])
        })?;
        Ok(Self {
            hosts: BTreeMap::new(),
            node: Host::new(UPLINK.to_owned(), node_addresses, node),
            _fabric: fabric,
        })
    }

    /// A host with these addresses, reachable from the node and all other hosts, its default
    /// routes through the node. When this returns the first packet gets through.
    pub fn add_host(&mut self, name: &str, addresses: &[IpAddr]) -> Result<(), LabError> {
        self.check_name(name)?;
        let namespace = Namespace::new()?;
        let link = format!("h{}", self.hosts.len() + 1);
        connect(&self.node.namespace, &link, &namespace)?;
        self.hosts.insert(name.to_owned(), Host::new(link, &[], namespace));
        addresses.iter().try_for_each(|&address| self.add_address(name, address))
    }

    /// One more address for a host, or for the node. Servers of the host answer there too.
    pub fn add_address(&mut self, host: &str, address: IpAddr) -> Result<(), LabError> {
        let node = self.node.namespace.clone();
        let target = self.find_mut(host)?;
        target.namespace.run(|| links::add_addresses(UPLINK, &[address]))?;
        if host != NODE {
            // The default route comes after the address it needs for a source.
            let family = [Family::of(address)];
            target.namespace.run(|| links::add_default_routes(UPLINK, NEAR, &family))?;
            node.run(|| links::add_host_routes(&target.link, &[address]))?;
        }
        target.addresses.push(address);
        let places = server::on(&target.ports, &[address]);
        if !places.is_empty() {
            let server = Server::start(host, &target.namespace, places)?;
            target.servers.push(server);
        }
        Ok(())
    }

    /// Makes a host answer at every address of a range, such as `10.128.0.0/10`, at no cost per address.
    /// A server that listens on all addresses listens there too, a UDP server of [`Lab::serve`] answers
    /// from another.
    pub fn add_range(&mut self, host: &str, network: IpAddr, prefix: u8) -> Result<(), LabError> {
        let node = self.node.namespace.clone();
        let target = self.find_mut(host)?;
        target.namespace.run(|| links::add_local_range((network, prefix)))?;
        if host != NODE {
            node.run(|| links::add_range_route(&target.link, (network, prefix), FAR))?;
        }
        Ok(())
    }

    /// The namespace of the node.
    pub fn node(&self) -> &Namespace {
        &self.node.namespace
    }

    /// The namespace of a host, or of the node by the name [`NODE`].
    pub fn host(&self, name: &str) -> Option<&Namespace> {
        self.find(name).map(|host| &host.namespace)
    }

    /// The node's interface towards a host; for [`NODE`], its uplink.
    pub fn link(&self, name: &str) -> Option<&str> {
        self.find(name).map(|host| host.link.as_str())
    }

    /// Starts a TCP and a UDP server on every one of these ports of a host or of the node, on all
    /// addresses of both families. Each answers with `<host> <port> <client address>`: a TCP
    /// server on being connected to and again for every line it gets, a UDP server for every
    /// datagram. They run until [`Lab::stop_serving`] or until the lab is dropped.
    pub fn serve(&mut self, host: &str, ports: &[u16]) -> Result<(), LabError> {
        let target = self.find_mut(host)?;
        let mut places = server::everywhere(&[Protocol::Tcp, Protocol::Udp], ports);
        places.extend(server::on(ports, &target.addresses));
        let server = Server::start(host, &target.namespace, places)?;
        target.servers.push(server);
        target.ports.extend_from_slice(ports);
        Ok(())
    }

    /// The same over SCTP, where the kernel has it: a server that answers like a TCP one.
    pub fn serve_sctp(&mut self, host: &str, ports: &[u16]) -> Result<(), LabError> {
        let target = self.find_mut(host)?;
        let places = server::everywhere(&[Protocol::Sctp], ports);
        target.servers.push(Server::start(host, &target.namespace, places)?);
        Ok(())
    }

    /// Ends all servers of a host. From then on its ports refuse, and connections that were open
    /// are closed. Nothing happens if there is no such host or it serves nothing.
    pub fn stop_serving(&mut self, host: &str) {
        if let Ok(target) = self.find_mut(host) {
            target.servers.clear();
            target.ports.clear();
        }
    }

    /// Asks `to` from a host or from the node, with a new socket and so a new source port, and
    /// says what came of it within `patience`.
    pub fn probe(
        &self,
        from: &str,
        to: SocketAddr,
        protocol: Protocol,
        patience: Duration,
    ) -> Answer {
        match self.find(from) {
            Some(host) => probe::probe(&host.sockets, to, protocol, patience),
            None => nobody(from),
        }
    }

    /// [`Lab::probe`] `count` times, one after the other, each with the whole patience. To wait
    /// for many silent ones at once, use [`Lab::probe_all`].
    pub fn probe_many(
        &self,
        from: &str,
        to: SocketAddr,
        protocol: Protocol,
        count: usize,
        patience: Duration,
    ) -> Vec<Answer> {
        (0..count).map(|_| self.probe(from, to, protocol, patience)).collect()
    }

    /// [`Lab::probe`] for many places at once; answers come in the order of the questions. All that are
    /// silent wait together, so that thousands of them cost a few times the patience.
    pub fn probe_all(
        &self,
        from: &str,
        questions: &[(SocketAddr, Protocol)],
        patience: Duration,
    ) -> Vec<Answer> {
        match self.find(from) {
            Some(host) => batch::ask(&host.namespace, host.sockets.ports(), questions, patience),
            None => vec![nobody(from); questions.len()],
        }
    }

    /// Opens a TCP connection that stays. `Err` is the answer [`Lab::probe`] would have given, and
    /// never [`Answer::Answered`]; `patience` also holds for every [`Held::say`].
    pub fn open(&self, from: &str, to: SocketAddr, patience: Duration) -> Result<Held, Answer> {
        let host = self.find(from).ok_or_else(|| nobody(from))?;
        let held = probe::open(&host.sockets, to, Protocol::Tcp, patience)
            .map_err(probe::Trouble::answer)?;
        match held.greeting() {
            Answer::Answered { .. } => Ok(held),
            other => Err(other.clone()),
        }
    }

    fn find(&self, name: &str) -> Option<&Host> {
        if name == NODE { Some(&self.node) } else { self.hosts.get(name) }
    }

    fn find_mut(&mut self, name: &str) -> Result<&mut Host, LabError> {
        if name == NODE {
            return Ok(&mut self.node);
        }
        let unknown = || LabError::UnknownHost { name: name.to_owned() };
        self.hosts.get_mut(name).ok_or_else(unknown)
    }

    /// A name is a word in the line a server answers with.
    fn check_name(&self, name: &str) -> Result<(), LabError> {
        let why = if name.is_empty() || name.contains(char::is_whitespace) {
            "a name is one word"
        } else if name.len() > 255 {
            "a name has at most 255 bytes"
        } else if name == NODE {
            "that is what the node is called"
        } else if self.hosts.contains_key(name) {
            "there is one of that name already"
        } else {
            return Ok(());
        };
        Err(LabError::Name { name: name.to_owned(), why })
    }
}

/// Gives `far` its settings and links it to the node, whose end is called `link`.
fn connect(node: &Namespace, link: &str, far: &Namespace) -> Result<(), LabError> {
    // Before there is an interface: what it starts out with are the defaults at that moment.
    far.run(sysctl::leaf)?;
    node.run(|| links::add_pair(link, UPLINK, far))?;
    far.run(|| {
        links::set_up(UPLINK)?;
        links::wait_up(UPLINK)?;
        links::add_addresses(UPLINK, &[FAR.into()])
    })?;
    node.run(|| {
        links::wait_up(link)?;
        links::add_addresses(link, &[NEAR.into()])
    })
}

fn nobody(name: &str) -> Answer {
    Answer::Failed(format!("no host named {name:?} in the lab"))
}
