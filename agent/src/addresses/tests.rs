//! The kernel's own notifications, in a namespace that nobody else touches.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use rtnetlink::packet_route::address::AddressMessage;
use rtnetlink::{LinkUnspec, LinkVeth};
use tokio::time::timeout;
use zw_lab::Namespace;

use super::*;

const LONG: Duration = Duration::from_secs(10);
const INTERFACE: u32 = 7;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn addresses(list: &[&str]) -> BTreeSet<LocalAddress> {
    list.iter().map(|text| LocalAddress { addr: ip(text), on_loopback: false }).collect()
}

/// What a namespace with nothing but its loopback interface has, and these.
fn loopback_and(list: &[&str]) -> BTreeSet<LocalAddress> {
    let loopback = ["127.0.0.1", "::1"];
    let loopback = loopback.map(|text| LocalAddress { addr: ip(text), on_loopback: true });
    addresses(list).into_iter().chain(loopback).collect()
}

/// Runs in a namespace of its own.
fn alone<F: Future<Output = ()>>(test: impl FnOnce(Kernel) -> F + Send) {
    Namespace::new().unwrap().run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (connection, handle, _) = new_connection().unwrap();
            tokio::spawn(connection);
            handle.link().add(LinkVeth::new("eth0", "eth1").up().build()).execute().await.unwrap();
            let mut links = handle.link().get().match_name("eth0").execute();
            let eth0 = links.try_next().await.unwrap().unwrap().header.index;
            test(Kernel { handle, eth0 }).await;
        });
    });
}

/// What changes the node's addresses, in place of an administrator.
struct Kernel {
    handle: Handle,
    eth0: u32,
}

impl Kernel {
    async fn add(&self, interface: u32, text: &str, prefix: u8) {
        self.handle.address().add(interface, ip(text), prefix).execute().await.unwrap();
    }

    async fn delete(&self, interface: u32, text: &str, prefix: u8) {
        let mut messages = self.handle.address().get().execute();
        let mut found = None;
        while let Some(message) = messages.try_next().await.unwrap() {
            if own_address(&message) == Some(ip(text)) && place(&message) == (interface, prefix) {
                found = Some(message);
            }
        }
        self.handle.address().del(found.unwrap()).execute().await.unwrap();
    }
}

async fn next(addresses: &mut Addresses) -> BTreeSet<LocalAddress> {
    let news = timeout(LONG, addresses.changed()).await.expect("the addresses change");
    assert_eq!(news, AddressChange { own: true, ..AddressChange::default() });
    addresses.current.clone()
}

/// Waits until the set is this one.
async fn becomes(addresses: &mut Addresses, want: &BTreeSet<LocalAddress>) {
    let reached = timeout(LONG, async {
        while addresses.current != *want {
            addresses.changed().await;
        }
    });
    let reached = reached.await;
    assert!(reached.is_ok(), "still {:?}", addresses.current);
}

#[test]
fn every_change_of_the_nodes_addresses_is_told() {
    alone(async |kernel| {
        kernel.add(kernel.eth0, "192.0.2.1", 24).await;
        let mut addresses = Addresses::follow().await.unwrap();
        assert_eq!(addresses.current, loopback_and(&["192.0.2.1"]));

        kernel.add(kernel.eth0, "2001:db8::1", 64).await;
        assert_eq!(next(&mut addresses).await, loopback_and(&["192.0.2.1", "2001:db8::1"]));
        kernel.delete(kernel.eth0, "192.0.2.1", 24).await;
        assert_eq!(next(&mut addresses).await, loopback_and(&["2001:db8::1"]));
        kernel.handle.link().del(kernel.eth0).execute().await.unwrap();
        assert_eq!(next(&mut addresses).await, loopback_and(&[]));
    });
}

#[test]
fn an_address_on_the_loopback_interface_is_marked_unless_it_is_elsewhere_too() {
    alone(async |kernel| {
        let mut addresses = Addresses::follow().await.unwrap();
        kernel.add(LOOPBACK, "192.0.2.1", 32).await;
        let marked = LocalAddress { addr: ip("192.0.2.1"), on_loopback: true };
        assert!(next(&mut addresses).await.contains(&marked));
        kernel.add(kernel.eth0, "192.0.2.1", 24).await;
        assert_eq!(next(&mut addresses).await, loopback_and(&["192.0.2.1"]));
        kernel.delete(LOOPBACK, "192.0.2.1", 32).await;
        kernel.add(kernel.eth0, "192.0.2.2", 24).await;
        assert_eq!(
            next(&mut addresses).await,
            loopback_and(&["192.0.2.1", "192.0.2.2"]),
            "it stays where it still is, and only the new one is news"
        );
    });
}

#[test]
fn lost_notifications_cost_another_list_and_no_address() {
    alone(async |kernel| {
        let mut addresses = Addresses::follow().await.unwrap();
        let all: Vec<String> =
            (0..2000).map(|i| format!("10.1.{}.{}", i / 250, i % 250 + 1)).collect();
        let want = loopback_and(&all.iter().map(String::as_str).collect::<Vec<_>>());
        // On another thread's runtime while this one does not read: the kernel keeps some hundred
        // notifications for a socket and drops the rest.
        let namespace = Namespace::current().unwrap();
        let (eth0, more) = (kernel.eth0, all.clone());
        let added = thread::scope(|scope| {
            scope
                .spawn(|| {
                    namespace.run(|| {
                        let runtime = tokio::runtime::Builder::new_current_thread()
                            .enable_all()
                            .build()
                            .unwrap();
                        runtime.block_on(async {
                            let (connection, handle, _) = new_connection().unwrap();
                            tokio::spawn(connection);
                            let kernel = Kernel { handle, eth0 };
                            for address in &more {
                                kernel.add(eth0, address, 32).await;
                            }
                        });
                    });
                })
                .join()
        });
        added.unwrap();
        timeout(LONG, addresses.listen()).await.unwrap();
        while !addresses.in_doubt {
            timeout(LONG, addresses.listen()).await.expect("the kernel tells of an overrun");
        }
        becomes(&mut addresses, &want).await;
    });
}

#[test]
fn a_lost_subscription_is_opened_again() {
    alone(async |kernel| {
        let mut addresses = Addresses::follow().await.unwrap();
        addresses.subscription.as_ref().unwrap().connection.abort();
        kernel.add(kernel.eth0, "192.0.2.1", 24).await;
        assert_eq!(next(&mut addresses).await, loopback_and(&["192.0.2.1"]));
        kernel.add(kernel.eth0, "192.0.2.2", 24).await;
        assert_eq!(next(&mut addresses).await, loopback_and(&["192.0.2.1", "192.0.2.2"]));
    });
}

#[test]
fn services_addresses_are_not_the_nodes_and_are_missed_when_they_go() {
    alone(async |kernel| {
        let links = kernel.handle.link();
        links.add(LinkVeth::new(zw_dataplane::LINK, "eth2").up().build()).execute().await.unwrap();
        let services = zw_dataplane::link_index().unwrap();
        kernel.add(services, "10.96.0.1", 32).await;
        kernel.add(services, "fd00:10:96::1", 128).await;
        let mut addresses = Addresses::follow().await.unwrap();
        assert_eq!(addresses.current, loopback_and(&[]));

        kernel.add(services, "10.96.0.2", 32).await;
        kernel.delete(services, "10.96.0.1", 32).await;
        let changed = async |addresses: &mut Addresses| timeout(LONG, addresses.changed()).await;
        let lost =
            |text: &str| AddressChange { lost: [ip(text)].into(), ..AddressChange::default() };
        assert_eq!(changed(&mut addresses).await, Ok(lost("10.96.0.1")));

        let down = LinkUnspec::new_with_index(services).down().build();
        kernel.handle.link().set(down).execute().await.unwrap();
        let mut news = AddressChange::default();
        // Of IPv6 they go with that, in a message of their own.
        while !news.down || news.lost.is_empty() {
            let more = changed(&mut addresses).await.expect("that it is down is told");
            news.down |= more.down;
            news.lost.extend(more.lost);
            assert!(!more.own);
        }
        assert_eq!(news.lost, [ip("fd00:10:96::1")].into());
        kernel.handle.link().del(services).execute().await.unwrap();
        while !changed(&mut addresses).await.expect("that it is gone is told").down {}
        assert_eq!(addresses.current, loopback_and(&[]), "and never become the node's");
    });
}

fn message(interface: u32, prefix: u8, attributes: &[AddressAttribute]) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = interface;
    message.header.prefix_len = prefix;
    message.attributes = attributes.to_vec();
    message
}

#[test]
fn the_nodes_end_of_a_link_counts_and_link_local_ones_do_not() {
    let mut known = Known::default();
    let peer = AddressAttribute::Address(ip("192.0.2.2"));
    known.add(&message(INTERFACE, 32, &[peer, AddressAttribute::Local(ip("192.0.2.1"))]));
    known.add(&message(INTERFACE, 64, &[AddressAttribute::Address(ip("fe80::1"))]));
    known.add(&message(INTERFACE, 64, &[AddressAttribute::Address(ip("2001:db8::1"))]));
    known.add(&message(INTERFACE, 64, &[]));
    assert_eq!(known.local(&BTreeSet::new()), addresses(&["192.0.2.1", "2001:db8::1"]));
}

#[test]
fn an_address_stays_until_its_last_prefix_length_goes() {
    let mut known = Known::default();
    let own = [AddressAttribute::Local(ip("192.0.2.1"))];
    known.add(&message(INTERFACE, 24, &own));
    known.add(&message(INTERFACE, 32, &own));
    known.remove(&message(INTERFACE, 24, &own));
    assert_eq!(known.local(&BTreeSet::new()), addresses(&["192.0.2.1"]));
    known.remove(&message(INTERFACE, 32, &own));
    known.remove(&message(INTERFACE, 32, &own));
    assert_eq!(known, Known::default());
}
