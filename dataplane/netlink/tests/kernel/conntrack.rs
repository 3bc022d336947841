//! Connections of real UDP flows: listed, filtered, and deleted without touching others.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use zw_netlink::ct::{self, Deleted, Entry, Filter, IPS_DST_NAT, IPS_SEEN_REPLY};

use super::*;

const UDP: u8 = 17;

/// 10/8 or fd00::/8, every address of which is this host's own.
fn own_addresses() {
    run("ip", &["link", "set", "lo", "up"], "");
    run("ip", &["route", "add", "local", "10.0.0.0/8", "dev", "lo"], "");
    run("ip", &["-6", "route", "add", "local", "fd00::/8", "dev", "lo"], "");
    // IPv6 sockets bind only to addresses that are on an interface.
    for address in ["fd00::1/128", "fd00::14/128"] {
        run("ip", &["addr", "add", address, "dev", "lo", "nodad"], "");
    }
}

/// Nothing is tracked in a namespace until a rule asks about connections.
fn track() {
    let rules =
        "table inet track { chain out { type filter hook output priority 0; ct state new; }; }";
    run("nft", &["-f", "-"], rules);
    // Entries must outlive a test on a busy machine; by default one without an answer has 30 s.
    std::fs::write("/proc/sys/net/netfilter/nf_conntrack_udp_timeout", "600").expect("sets");
}

fn ip(family: Family, n: u32) -> IpAddr {
    match <[u8; 4]>::try_from(&address(family, n)[..]) {
        Ok(v4) => v4.into(),
        Err(_) => <[u8; 16]>::try_from(&address(family, n)[..]).expect("sixteen bytes").into(),
    }
}

/// A socket on every address of both families, so that no packet is answered with an error. Made
/// once per port: a child just forked by another test may hold a closed one for a moment.
fn server(port: u16) -> UdpSocket {
    UdpSocket::bind(("::", port)).expect("binds")
}

fn client(family: Family) -> UdpSocket {
    UdpSocket::bind((ip(family, 1), 0)).expect("binds")
}

fn filter(family: Family, dst: Option<IpAddr>, dst_port: Option<u16>) -> Filter {
    Filter { family, protocol: UDP, dst, dst_port, unanswered: false }
}

fn entries(socket: &mut ct::Socket, filter: &Filter) -> BTreeSet<Entry> {
    let mut all = BTreeSet::new();
    socket
        .entries(filter, &mut |entry| {
            all.insert(*entry);
        })
        .expect("dumps");
    all
}

/// Destinations of the original direction.
fn destinations(socket: &mut ct::Socket, filter: &Filter) -> Vec<SocketAddr> {
    let all = entries(socket, filter);
    all.iter().map(|e| SocketAddr::new(e.original.dst, e.original.dst_port)).collect()
}

#[test]
fn an_entry_tells_both_directions_and_the_translation() {
    in_netns(|| {
        own_addresses();
        let rules = "
            table ip t { chain out { type nat hook output priority -100;
                ip daddr 10.0.0.10 udp dport 53 dnat to 10.0.0.20:5353; }; }
            table ip6 t { chain out { type nat hook output priority -100;
                ip6 daddr fd00::a udp dport 53 dnat to [fd00::14]:5353; }; }";
        run("nft", &["-f", "-"], rules);
        let mut socket = ct::Socket::open().expect("opens");
        for family in FAMILIES {
            let (vip, endpoint) = (ip(family, 10), ip(family, 20));
            let server = UdpSocket::bind((endpoint, 5353)).expect("binds");
            let client = client(family);
            client.send_to(b"x", (vip, 53)).expect("sends");
            let all = entries(&mut socket, &filter(family, Some(vip), Some(53)));
            let [entry] = all.into_iter().collect::<Vec<_>>()[..] else { panic!("one entry") };
            let port = client.local_addr().expect("bound").port();
            let (original, reply) = (entry.original, entry.reply);
            assert_eq!((original.src, original.src_port), (ip(family, 1), port));
            assert_eq!((original.dst, original.dst_port), (vip, 53));
            assert_eq!((reply.src, reply.src_port), (endpoint, 5353));
            assert_eq!((reply.dst, reply.dst_port), (ip(family, 1), port));
            assert_eq!((original.protocol, reply.protocol), (UDP, UDP));
            assert_eq!(entry.status & (IPS_DST_NAT | IPS_SEEN_REPLY), IPS_DST_NAT);
            assert_eq!((entry.zone, entry.family()), (None, family));
            assert!(entry.id.is_some());

            // The answer is seen, and is the same entry's.
            let mut buf = [0; 8];
            let (_, from) = server.recv_from(&mut buf).expect("arrives");
            server.send_to(b"y", from).expect("sends");
            let (_, from) = client.recv_from(&mut buf).expect("arrives");
            assert_eq!(from, SocketAddr::new(vip, 53), "translated back");
            let [after] = entries(&mut socket, &filter(family, None, None))
                .into_iter()
                .collect::<Vec<_>>()[..]
            else {
                panic!("one entry")
            };
            assert_eq!(after.status & IPS_SEEN_REPLY, IPS_SEEN_REPLY);
            assert_eq!((after.original, after.reply, after.id), (original, reply, entry.id));

            // An entry of another number is not this one.
            let other = Entry { id: after.id.map(|id| id ^ 1), ..after };
            let deleted = socket.delete(&[other, after, after]).expect("deletes");
            assert_eq!(deleted, Deleted { deleted: 1, gone: 2, offloaded: 0 });
            assert!(entries(&mut socket, &filter(family, None, None)).is_empty());
        }
    });
}

#[test]
fn only_the_entries_asked_for_are_deleted() {
    in_netns(|| {
        own_addresses();
        track();
        let mut socket = ct::Socket::open().expect("opens");
        let _servers = [5301, 5302].map(server);
        for family in FAMILIES {
            let clients: Vec<UdpSocket> = (0..5).map(|_| client(family)).collect();
            for client in &clients {
                for n in 10..14 {
                    for port in [5301, 5302] {
                        client.send_to(b"x", (ip(family, n), port)).expect("sends");
                    }
                }
            }
            let all = entries(&mut socket, &filter(family, None, None));
            assert_eq!(all.len(), 5 * 4 * 2);

            let vip = filter(family, Some(ip(family, 10)), Some(5301));
            let mut seen = 0;
            let dumped = socket.entries(&vip, &mut |_| seen += 1).expect("dumps");
            // IPv6 addresses are compared here, not in the kernel.
            let received = if family == Family::Ip { 5 } else { 20 };
            assert_eq!((seen, dumped.matched, dumped.received), (5, 5, received));
            let wanted = |entry: &Entry| vip.matches(entry);
            let kept: BTreeSet<Entry> = all.iter().copied().filter(|e| !wanted(e)).collect();
            assert_eq!(kept.len(), 35);

            // Of those that match, all but one: the last client's.
            let spared = clients[4].local_addr().expect("bound").port();
            let deleted = socket
                .delete_matching(&vip, &mut |entry| entry.original.src_port != spared)
                .expect("deletes");
            assert_eq!(deleted, Deleted { deleted: 4, ..Deleted::default() });
            let left = entries(&mut socket, &vip);
            assert_eq!(left.iter().map(|e| e.original.src_port).collect::<Vec<_>>(), [spared]);
            let deleted = socket.delete_matching(&vip, &mut |_| true).expect("deletes");
            assert_eq!(deleted.deleted, 1);
            assert_eq!(entries(&mut socket, &filter(family, None, None)), kept);

            // An address of the other family matches nothing, and the kernel refuses to look for an
            // IPv4 one among IPv6 entries: then all are dumped.
            let other = FAMILIES.into_iter().find(|f| *f != family).expect("two");
            let odd = filter(family, Some(ip(other, 11)), None);
            let dumped = socket.entries(&odd, &mut |e| panic!("{e:?}")).expect("dumps");
            assert_eq!((dumped.matched, dumped.received), (0, kept.len()));
            let tcp = Filter { protocol: 6, ..filter(family, None, None) };
            assert_eq!(destinations(&mut socket, &tcp), []);

            // A port alone, then all that is left, the ones already gone counted as such.
            let port = filter(family, None, Some(5302));
            assert_eq!(entries(&mut socket, &port).len(), 20);
            assert_eq!(socket.delete_matching(&port, &mut |_| true).expect("deletes").deleted, 20);
            let all: Vec<Entry> = all.into_iter().collect();
            let deleted = socket.delete(&all).expect("deletes");
            assert_eq!(deleted, Deleted { deleted: 15, gone: 25, offloaded: 0 });
            assert_eq!(destinations(&mut socket, &filter(family, None, None)), []);
        }
        assert_eq!(socket.delete(&[]).expect("nothing to do"), Deleted::default());
    });
}

#[test]
fn only_the_unanswered_are_sent_where_only_they_are_asked_for() {
    in_netns(|| {
        own_addresses();
        track();
        let mut socket = ct::Socket::open().expect("opens");
        for family in FAMILIES {
            let server = UdpSocket::bind((ip(family, 20), 5301)).expect("binds");
            let clients: Vec<UdpSocket> = (0..5).map(|_| client(family)).collect();
            for client in &clients {
                client.send_to(b"x", (ip(family, 20), 5301)).expect("sends");
            }
            let all = filter(family, None, None);
            let unanswered = Filter { unanswered: true, ..all };
            assert_eq!(entries(&mut socket, &unanswered).len(), 5);
            let (_, from) = server.recv_from(&mut [0; 8]).expect("arrives");
            server.send_to(b"y", from).expect("sends");
            let mut seen = Vec::new();
            let dumped = socket.entries(&unanswered, &mut |e| seen.push(e.original.src_port));
            assert_eq!(dumped.expect("dumps").received, 4, "the kernel picks them");
            assert!(seen.len() == 4 && !seen.contains(&from.port()));
            assert_eq!(entries(&mut socket, &all).len(), 5);
        }
    });
}

#[test]
fn entries_of_a_zone_are_deleted_in_their_zone() {
    in_netns(|| {
        own_addresses();
        let rules = "table inet track { chain out { type filter hook output priority -300;
            udp dport 5301 ct zone set 7; udp dport 5302 ct original zone set 9;
            udp dport 5303 ct reply zone set 11; }
            chain later { type filter hook output priority 0; ct state new; }; }";
        run("nft", &["-f", "-"], rules);
        let mut socket = ct::Socket::open().expect("opens");
        let ports = [(5301, Some(7)), (5302, Some(9)), (5303, None), (5304, None)];
        let _servers = ports.map(|(port, _)| server(port));
        for family in FAMILIES {
            let client = client(family);
            for (port, _) in ports {
                client.send_to(b"x", (ip(family, 10), port)).expect("sends");
            }
            for (port, zone) in ports {
                let vip = filter(family, Some(ip(family, 10)), Some(port));
                let zones: Vec<_> = entries(&mut socket, &vip).iter().map(|e| e.zone).collect();
                assert_eq!(zones, [zone], "{port}");
                // In the default zone there is none by that tuple.
                if zone.is_some() {
                    let found = entries(&mut socket, &vip).into_iter();
                    let outside: Vec<_> = found.map(|e| Entry { zone: None, ..e }).collect();
                    assert_eq!(socket.delete(&outside).expect("counts").gone, 1);
                }
                let deleted = socket.delete_matching(&vip, &mut |_| true).expect("deletes");
                assert_eq!(deleted.deleted, 1, "{port}");
                assert_eq!(destinations(&mut socket, &vip), [], "{port}");
            }
        }
    });
}

#[test]
fn a_refused_deletion_is_an_error_and_the_socket_goes_on() {
    in_netns(|| {
        own_addresses();
        track();
        let mut socket = ct::Socket::open().expect("opens");
        let _server = server(5301);
        client(Family::Ip).send_to(b"x", (ip(Family::Ip, 10), 5301)).expect("sends");
        let all = filter(Family::Ip, None, None);
        let [entry] = entries(&mut socket, &all).into_iter().collect::<Vec<_>>()[..] else {
            panic!("one entry")
        };
        // Addresses of two families make no tuple.
        let mut mixed = entry;
        mixed.original.src = ip(Family::Ip6, 1);
        let error = socket.delete(&[mixed, entry]).expect_err("no tuple");
        assert!(matches!(error, Error::Refused { op: None, .. }), "{error}");
        assert_eq!(destinations(&mut socket, &all), [], "the other one was deleted");
    });
}

/// Prints what a filtered deletion costs among many; asserts only what is left.
#[test]
fn two_hundred_of_twenty_thousand_entries_are_deleted() {
    in_netns(|| {
        own_addresses();
        track();
        let mut socket = ct::Socket::open().expect("opens");
        let _server = server(5301);
        for family in FAMILIES {
            let client = client(family);
            let vip = ip(family, 0x20_0000);
            for n in 0..19_800 {
                client.send_to(b"x", (ip(family, 0x10_0000 + n), 5301)).expect("sends");
            }
            let clients: Vec<UdpSocket> = (0..200).map(|_| self::client(family)).collect();
            for client in &clients {
                client.send_to(b"x", (vip, 5301)).expect("sends");
            }
            let began = Instant::now();
            let dumped = socket.entries(&filter(family, None, None), &mut |_| {}).expect("dumps");
            let whole = began.elapsed();
            assert_eq!(dumped.matched, 20_000);

            let began = Instant::now();
            let vip = filter(family, Some(vip), Some(5301));
            let deleted = socket.delete_matching(&vip, &mut |_| true).expect("deletes");
            let filtered = began.elapsed();
            assert_eq!(deleted, Deleted { deleted: 200, ..Deleted::default() });
            let left = entries(&mut socket, &filter(family, None, None));
            assert_eq!(left.len(), 19_800);
            assert!(!left.iter().any(|entry| vip.matches(entry)));

            let began = Instant::now();
            let left: Vec<Entry> = left.into_iter().collect();
            assert_eq!(socket.delete(&left).expect("deletes").deleted, 19_800);
            let rest = began.elapsed();
            println!(
                "{family:?}: dump of 20,000 {whole:?}, 200 found and deleted {filtered:?}, 19,800 deleted {rest:?}"
            );
        }
    });
}
