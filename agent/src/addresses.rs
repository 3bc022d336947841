//! The node's own addresses, as they are and as they change.
//!
//! Owns a subscription to the kernel's address notifications. Link-local IPv6 addresses are left out:
//! they mean nothing without an interface, and no Service is reached by one. What node ports make of
//! the addresses is in [`node_ports`]. Services' addresses, which the ipvs mode has on an interface, are
//! not the node's own; that they go, or that their interface does, is told as well.

mod node_ports;

pub(crate) use node_ports::{NodePorts, localhost};

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use futures_util::stream::Stream;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::LinkFlags;
use rtnetlink::{Handle, MulticastGroup, new_connection, new_multicast_connection};
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tracing::{debug, warn};

/// Every network namespace's loopback interface has this index; the kernel insists on it.
const LOOPBACK: u32 = 1;

/// How long after losing the kernel's ear the next try is made.
const RETRY: Duration = Duration::from_secs(1);

/// How many notifications are taken in before the set is looked at again.
const AT_ONCE: usize = 1024;

/// Why the addresses could not be learned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddressError {
    #[error("cannot open a route netlink socket")]
    Open(#[source] std::io::Error),
    #[error("cannot list the node's addresses")]
    List(#[source] rtnetlink::Error),
}

/// An address that packets are delivered to on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LocalAddress {
    pub(crate) addr: IpAddr,
    /// Whether it is on the loopback interface. Such an address need not be one of 127.0.0.0/8: nodes
    /// that announce an address by a routing protocol often keep it there.
    pub(crate) on_loopback: bool,
}

/// The node's addresses, followed live.
pub(crate) struct Addresses {
    known: Known,
    current: BTreeSet<LocalAddress>,
    subscription: Option<Subscription>,
    /// Notifications were lost.
    in_doubt: bool,
    /// The interface with Services' addresses, and those that were it before.
    services: BTreeSet<u32>,
    /// What has not been told yet.
    news: AddressChange,
}

/// What has happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AddressChange {
    /// The node's own addresses are others.
    pub(crate) own: bool,
    /// Services' addresses that are gone from their interface.
    pub(crate) lost: BTreeSet<IpAddr>,
    /// That interface is down, or gone.
    pub(crate) down: bool,
}

impl AddressChange {
    fn take(&mut self, message: &RouteNetlinkMessage, services: &BTreeSet<u32>) {
        match message {
            RouteNetlinkMessage::DelAddress(message)
                if services.contains(&message.header.index) =>
            {
                self.lost.extend(own_address(message));
            }
            RouteNetlinkMessage::NewLink(message) if services.contains(&message.header.index) => {
                self.down |= !message.header.flags.contains(LinkFlags::Up);
            }
            RouteNetlinkMessage::DelLink(message) => {
                self.down |= services.contains(&message.header.index);
            }
            _ => {}
        }
    }
}

impl Addresses {
    /// Learns the addresses the node has now and subscribes to every change after that.
    pub(crate) async fn follow() -> Result<Self, AddressError> {
        // Before the list: nothing is missed between the two, and what is told twice does no harm.
        let subscription = Subscription::open()?;
        let known = list().await?;
        let services = zw_dataplane::link_index().into_iter().collect();
        let current = known.local(&services);
        let subscription = Some(subscription);
        let news = AddressChange::default();
        Ok(Self { known, current, subscription, in_doubt: false, services, news })
    }

    /// The addresses as of now.
    pub(crate) fn local(&self) -> BTreeSet<IpAddr> {
        self.current.iter().map(|local| local.addr).collect()
    }

    /// Waits until the set is another one, or Services' addresses are gone. Losing a notification, or the
    /// whole subscription, costs another list and never an error. Nothing is lost if the wait is given up.
    pub(crate) async fn changed(&mut self) -> AddressChange {
        loop {
            if self.in_doubt || self.subscription.is_none() {
                self.look_again().await;
            } else {
                self.listen().await;
            }
            self.services.extend(zw_dataplane::link_index());
            let now = self.known.local(&self.services);
            if now != self.current {
                self.current = now;
                self.news.own = true;
            }
            if self.news != AddressChange::default() {
                return std::mem::take(&mut self.news);
            }
        }
    }

    async fn look_again(&mut self) {
        let again = async {
            if self.subscription.is_none() {
                self.subscription = Some(Subscription::open()?);
            }
            list().await
        };
        match again.await {
            Ok(known) => {
                let (before, after) = (self.known.at(&self.services), known.at(&self.services));
                self.news.lost.extend(before.difference(&after));
                self.known = known;
                self.in_doubt = false;
            }
            Err(error) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "the node's addresses may be outdated"
                );
                sleep(RETRY).await;
            }
        }
    }

    /// Takes in at least one notification, and all others that are there already.
    async fn listen(&mut self) {
        let Some(subscription) = &mut self.subscription else { return };
        let mut next = subscription.messages.next().await;
        for _ in 0..AT_ONCE {
            match next.map(|(message, _)| message.payload) {
                Some(NetlinkPayload::InnerMessage(message)) => {
                    self.known.take(&message);
                    self.news.take(&message, &self.services);
                }
                Some(NetlinkPayload::Overrun(_)) => {
                    debug!("address notifications were lost");
                    self.in_doubt = true;
                }
                Some(_) => {}
                None => {
                    self.subscription = None;
                    self.in_doubt = true;
                    return;
                }
            }
            match subscription.messages.next().now_or_never() {
                Some(more) => next = more,
                None => return,
            }
        }
    }
}

type Messages = dyn Stream<Item = (NetlinkMessage<RouteNetlinkMessage>, rtnetlink::sys::SocketAddr)>
    + Send
    + Unpin;

/// The kernel's notifications of addresses, and of interfaces that go up and down.
struct Subscription {
    messages: Box<Messages>,
    connection: AbortHandle,
}

impl Subscription {
    fn open() -> Result<Self, AddressError> {
        let groups = [MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr, MulticastGroup::Link];
        let (connection, _, messages) =
            new_multicast_connection(&groups).map_err(AddressError::Open)?;
        let connection = tokio::spawn(connection).abort_handle();
        Ok(Self { messages: Box::new(messages), connection })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Every address on every interface. A socket of its own: an answer never waits behind notifications
/// and is never lost with them.
async fn list() -> Result<Known, AddressError> {
    let (connection, handle, _) = new_connection().map_err(AddressError::Open)?;
    let connection = tokio::spawn(connection).abort_handle();
    let outcome = list_with(&handle).await;
    connection.abort();
    outcome
}

async fn list_with(handle: &Handle) -> Result<Known, AddressError> {
    let mut known = Known::default();
    let mut messages = handle.address().get().execute();
    while let Some(message) = messages.try_next().await.map_err(AddressError::List)? {
        known.add(&message);
    }
    Ok(known)
}

/// What the kernel has said: an address may be on several interfaces, and on one of them with several
/// prefix lengths, and stays until the last of these goes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known(BTreeMap<IpAddr, BTreeSet<(u32, u8)>>);

impl Known {
    fn take(&mut self, message: &RouteNetlinkMessage) {
        match message {
            RouteNetlinkMessage::NewAddress(message) => self.add(message),
            RouteNetlinkMessage::DelAddress(message) => self.remove(message),
            _ => {}
        }
    }

    fn add(&mut self, message: &AddressMessage) {
        if let Some(addr) = own_address(message) {
            self.0.entry(addr).or_default().insert(place(message));
        }
    }

    fn remove(&mut self, message: &AddressMessage) {
        let Some(addr) = own_address(message) else { return };
        if let Some(places) = self.0.get_mut(&addr) {
            places.remove(&place(message));
            if places.is_empty() {
                self.0.remove(&addr);
            }
        }
    }

    /// Those on these interfaces.
    fn at(&self, interfaces: &BTreeSet<u32>) -> BTreeSet<IpAddr> {
        let here =
            |places: &BTreeSet<(u32, u8)>| places.iter().any(|(at, _)| interfaces.contains(at));
        self.0.iter().filter(|(_, places)| here(places)).map(|(addr, _)| *addr).collect()
    }

    /// But for those on the interfaces `except`, which are Services' addresses.
    fn local(&self, except: &BTreeSet<u32>) -> BTreeSet<LocalAddress> {
        let local = |(addr, places): (&IpAddr, &BTreeSet<(u32, u8)>)| {
            let mut own = places.iter().map(|(at, _)| *at).filter(|at| !except.contains(at));
            own.clone().next()?;
            Some(LocalAddress { addr: *addr, on_loopback: own.all(|at| at == LOOPBACK) })
        };
        self.0.iter().filter_map(local).collect()
    }
}

fn place(message: &AddressMessage) -> (u32, u8) {
    (message.header.index, message.header.prefix_len)
}

/// On a point-to-point link `IFA_ADDRESS` is the peer's and `IFA_LOCAL` the node's; elsewhere IPv6 has
/// only the former.
fn own_address(message: &AddressMessage) -> Option<IpAddr> {
    let find = |wanted: fn(&AddressAttribute) -> Option<IpAddr>| {
        message.attributes.iter().find_map(wanted)
    };
    let addr = find(|attribute| match attribute {
        AddressAttribute::Local(addr) => Some(*addr),
        _ => None,
    })
    .or_else(|| {
        find(|attribute| match attribute {
            AddressAttribute::Address(addr) => Some(*addr),
            _ => None,
        })
    })?;
    let link_local = matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local());
    (!link_local).then_some(addr)
}

#[cfg(test)]
mod tests;
