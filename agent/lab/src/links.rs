//! Links, addresses and routes, over a route netlink socket in the namespace of the calling
//! thread. Gives names and addresses meaning to the kernel; which ones a lab needs is decided in
//! [`lab`](crate::lab).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkAttribute, LinkMessage, State};
use rtnetlink::packet_route::route::{RouteMessage, RouteScope, RouteType};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};

use crate::{LabError, Namespace};

/// How long a link may take to carry packets, or an address to be usable.
const UP_WITHIN: Duration = Duration::from_secs(5);

/// One of the two families a route can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// `ip link set lo up`
pub(crate) fn loopback_up() -> Result<(), LabError> {
    with_netlink(async |handle| {
        let link = Link::find(handle, "lo").await?;
        link.set_up(handle).await
    })
}

/// `ip link add NEAR type veth peer name FAR netns OTHER; ip link set NEAR up`
pub(crate) fn add_pair(near: &str, far: &str, other: &Namespace) -> Result<(), LabError> {
    with_netlink(async |handle| {
        let peer = LinkMessageBuilder::<LinkUnspec>::new()
            .name(far)
            .setns_by_fd(other.as_fd().as_raw_fd())
            .build();
        let pair =
            LinkVeth::new(near, far).set_info_data(InfoData::Veth(InfoVeth::Peer(peer))).build();
        let done = handle.link().add(pair).execute().await;
        done.map_err(refused(|| format!("add the link pair {near} and {far}")))?;
        Link::find(handle, near).await?.set_up(handle).await
    })
}

/// `ip link set NAME up`
pub(crate) fn set_up(name: &str) -> Result<(), LabError> {
    with_netlink(async |handle| Link::find(handle, name).await?.set_up(handle).await)
}

/// Waits until the link carries packets. The kernel learns of a carrier in a work queue; until
/// that has run it drops what is sent, and a dropped SYN costs the sender a second.
pub(crate) fn wait_up(name: &str) -> Result<(), LabError> {
    with_netlink(async |handle| {
        let deadline = Instant::now() + UP_WITHIN;
        while !Link::find(handle, name).await?.running {
            pause_until(deadline, name).await?;
        }
        Ok(())
    })
}

/// `ip address add ADDRESS/{32,128} dev NAME`, and waits until the addresses work.
///
/// An IPv6 address is added by a work queue: only after that has run is there a local route to it
/// and an answer to neighbour discovery, whose next try comes a second later. The kernel shows it
/// by the tentative flag. The `nodad` flag would skip the flag and not the work, so it is the
/// namespace's `accept_dad` that has to be off.
pub(crate) fn add_addresses(name: &str, addresses: &[IpAddr]) -> Result<(), LabError> {
    with_netlink(async |handle| {
        let link = Link::find(handle, name).await?;
        for &address in addresses {
            let done = handle.address().add(link.index, address, width(address)).execute().await;
            done.map_err(refused(|| format!("add the address {address} to {name}")))?;
        }
        let deadline = Instant::now() + UP_WITHIN;
        while link.tentative(handle).await? {
            pause_until(deadline, name).await?;
        }
        Ok(())
    })
}

/// `ip route replace ADDRESS/{32,128} dev NAME`
pub(crate) fn add_host_routes(name: &str, addresses: &[IpAddr]) -> Result<(), LabError> {
    with_netlink(async |handle| {
        let link = Link::find(handle, name).await?;
        for &address in addresses {
            let route = match address {
                IpAddr::V4(v4) => RouteMessageBuilder::<Ipv4Addr>::new()
                    .destination_prefix(v4, width(address))
                    .output_interface(link.index)
                    .build(),
                IpAddr::V6(v6) => RouteMessageBuilder::<Ipv6Addr>::new()
                    .destination_prefix(v6, width(address))
                    .output_interface(link.index)
                    .build(),
            };
            add_route(handle, route, || format!("route {address} into {name}")).await?;
        }
        Ok(())
    })
}

/// `ip route replace default via inet6 GATEWAY dev NAME`, for IPv4 too (Linux 5.2 and later): so
/// no router needs an IPv4 address that would be one more of the node's own.
pub(crate) fn add_default_routes(
    name: &str,
    gateway: Ipv6Addr,
    families: &[Family],
) -> Result<(), LabError> {
    with_netlink(async |handle| {
        let link = Link::find(handle, name).await?;
        for family in families {
            let route = match family {
                Family::V4 => RouteMessageBuilder::<Ipv4Addr>::new()
                    .via(gateway)
                    .output_interface(link.index)
                    .build(),
                Family::V6 => RouteMessageBuilder::<Ipv6Addr>::new()
                    .gateway(gateway)
                    .output_interface(link.index)
                    .build(),
            };
            add_route(handle, route, || {
                format!("add the default route of {family:?} through {name}")
            })
            .await?;
        }
        Ok(())
    })
}

/// `ip route replace RANGE via inet6 GATEWAY dev NAME`. By a gateway, because on the link itself every
/// address of the range would be asked for and remembered on its own.
pub(crate) fn add_range_route(
    name: &str,
    (network, prefix): (IpAddr, u8),
    gateway: Ipv6Addr,
) -> Result<(), LabError> {
    with_netlink(async |handle| {
        let link = Link::find(handle, name).await?;
        let route = match network {
            IpAddr::V4(v4) => RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(v4, prefix)
                .via(gateway)
                .output_interface(link.index)
                .build(),
            IpAddr::V6(v6) => RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(v6, prefix)
                .gateway(gateway)
                .output_interface(link.index)
                .build(),
        };
        add_route(handle, route, || format!("route {network}/{prefix} into {name}")).await
    })
}

/// `ip route replace local RANGE dev lo`: every address of the range is this host's own.
pub(crate) fn add_local_range((network, prefix): (IpAddr, u8)) -> Result<(), LabError> {
    /// `RT_TABLE_LOCAL`
    const LOCAL: u32 = 255;
    with_netlink(async |handle| {
        let link = Link::find(handle, "lo").await?;
        let route = match network {
            IpAddr::V4(v4) => RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(v4, prefix)
                .scope(RouteScope::Host)
                .kind(RouteType::Local)
                .table_id(LOCAL)
                .output_interface(link.index)
                .build(),
            IpAddr::V6(v6) => RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(v6, prefix)
                .kind(RouteType::Local)
                .table_id(LOCAL)
                .output_interface(link.index)
                .build(),
        };
        add_route(handle, route, || format!("make {network}/{prefix} local")).await
    })
}

async fn add_route(
    handle: &Handle,
    route: RouteMessage,
    action: impl Fn() -> String,
) -> Result<(), LabError> {
    let done = handle.route().add(route).replace().execute().await;
    done.map_err(refused(action))
}

fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// What the kernel knows of one link.
struct Link {
    name: String,
    index: u32,
    running: bool,
}

impl Link {
    async fn find(handle: &Handle, name: &str) -> Result<Self, LabError> {
        let mut found = std::pin::pin!(handle.link().get().match_name(name).execute());
        let message = found.try_next().await;
        let message =
            message.map_err(refused(|| format!("look for the link {name}")))?.unwrap_or_default();
        Ok(Self { name: name.to_owned(), index: message.header.index, running: running(&message) })
    }

    async fn tentative(&self, handle: &Handle) -> Result<bool, LabError> {
        let all = handle.address().get().set_link_index_filter(self.index).execute();
        let all: Vec<_> = all
            .try_collect()
            .await
            .map_err(refused(|| format!("list the addresses of {}", self.name)))?;
        Ok(all.iter().any(|address| {
            address.header.index == self.index
                && address.header.flags.contains(AddressHeaderFlags::Tentative)
        }))
    }

    async fn set_up(&self, handle: &Handle) -> Result<(), LabError> {
        let change = LinkUnspec::new_with_index(self.index).up().build();
        let done = handle.link().set(change).execute().await;
        done.map_err(refused(|| format!("set the link {} up", self.name)))
    }
}

/// Lets the kernel get on with what is waited for, which takes it well under a millisecond.
async fn pause_until(deadline: Instant, name: &str) -> Result<(), LabError> {
    if Instant::now() > deadline {
        return Err(LabError::NotReady { link: name.to_owned(), seconds: UP_WITHIN.as_secs() });
    }
    tokio::time::sleep(Duration::from_micros(200)).await;
    Ok(())
}

fn running(message: &LinkMessage) -> bool {
    let up = LinkAttribute::OperState(State::Up);
    message.attributes.contains(&up)
}

fn refused(action: impl Fn() -> String) -> impl FnOnce(rtnetlink::Error) -> LabError {
    move |source| LabError::Netlink { action: action(), source }
}

/// Runs `work` with a socket of the calling thread's namespace, on the calling thread: a runtime
/// with threads of its own would have them in whichever namespace it was built in.
fn with_netlink<T>(work: impl AsyncFnOnce(&Handle) -> Result<T, LabError>) -> Result<T, LabError> {
    let failed = |source: io::Error| LabError::Start { what: "the netlink connection", source };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(failed)?;
        tokio::spawn(connection);
        work(&handle).await
    })
}
