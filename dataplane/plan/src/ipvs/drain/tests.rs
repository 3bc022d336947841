//! One real server's way out, and what waits for it.

use super::*;

const BOUND: Duration = Duration::from_secs(900);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn server(protocol: Protocol) -> VirtualKey {
    VirtualKey { addr: IpAddr::from([10, 96, 0, 10]), protocol, port: 80 }
}

fn real(last: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 244, 1, last]), 8080)
}

fn draining(protocol: Protocol, last: u8) -> Draining {
    Draining { server: server(protocol), real: real(last) }
}

fn reals_go(protocol: Protocol, last: &[u8]) -> IpvsChanges {
    let reals = last.iter().map(|last| ((server(protocol), real(*last)), false)).collect();
    IpvsChanges { reals, ..IpvsChanges::default() }
}

fn all_goes(protocol: Protocol, last: &[u8]) -> IpvsChanges {
    let key = server(protocol);
    IpvsChanges {
        servers: [(key, None)].into(),
        addresses: [(key.addr, false)].into(),
        ..reals_go(protocol, last)
    }
}

#[test]
fn a_real_server_gets_no_new_connections_and_goes_when_the_last_has_ended() {
    let mut drains = Drains::new(BOUND);
    let key = server(Protocol::Tcp);
    let todo = drains.carry_out(&reals_go(Protocol::Tcp, &[1]), false, at(0));
    assert_eq!(todo.after, [Operation::Real(key, real(1), 0)]);
    assert_eq!(drains.release(&BTreeSet::new(), at(899)), []);
    let idle = [draining(Protocol::Tcp, 1)].into();
    assert_eq!(drains.release(&idle, at(899)), [Operation::RemoveReal(key, real(1))]);
    assert!(drains.is_empty());
}

#[test]
fn it_goes_after_a_while_whatever_it_has() {
    let mut drains = Drains::new(BOUND);
    drains.carry_out(&reals_go(Protocol::Sctp, &[1]), false, at(100));
    assert_eq!(drains.release(&BTreeSet::new(), at(999)), []);
    let gone = [Operation::RemoveReal(server(Protocol::Sctp), real(1))];
    assert_eq!(drains.release(&BTreeSet::new(), at(1000)), gone);
}

#[test]
fn udp_goes_at_once() {
    let mut drains = Drains::new(BOUND);
    let key = server(Protocol::Udp);
    let todo = drains.carry_out(&reals_go(Protocol::Udp, &[1]), false, at(0));
    assert_eq!(todo.after, [Operation::RemoveReal(key, real(1))]);
    let todo = drains.carry_out(&all_goes(Protocol::Udp, &[2, 3]), false, at(0));
    let gone = [Operation::RemoveServer(key), Operation::RemoveAddress(key.addr)];
    assert_eq!(todo.after, gone, "real servers go with their virtual server");
    assert!(drains.is_empty());
}

#[test]
fn one_that_is_wanted_again_stays() {
    let mut drains = Drains::new(BOUND);
    let key = server(Protocol::Tcp);
    drains.carry_out(&reals_go(Protocol::Tcp, &[1]), false, at(0));
    let again = IpvsChanges { reals: [((key, real(1)), true)].into(), ..IpvsChanges::default() };
    let todo = drains.carry_out(&again, false, at(1));
    assert_eq!(todo.before, [Operation::Real(key, real(1), 1)]);
    assert_eq!(drains.release(&BTreeSet::new(), at(9_999)), []);
}

#[test]
fn a_virtual_server_and_its_address_wait_for_the_last_connection() {
    let mut drains = Drains::new(BOUND);
    let key = server(Protocol::Tcp);
    let todo = drains.carry_out(&all_goes(Protocol::Tcp, &[1, 2]), false, at(0));
    let quiet = [Operation::Real(key, real(1), 0), Operation::Real(key, real(2), 0)];
    assert_eq!(todo.after, quiet);
    let first = [draining(Protocol::Tcp, 1)].into();
    assert_eq!(drains.release(&first, at(1)), [Operation::RemoveReal(key, real(1))]);
    let second = [draining(Protocol::Tcp, 2)].into();
    let gone = [Operation::RemoveServer(key), Operation::RemoveAddress(key.addr)];
    assert_eq!(drains.release(&second, at(2)), gone);
}

#[test]
fn leaving_the_mode_waits_for_nobody() {
    let mut drains = Drains::new(BOUND);
    let key = server(Protocol::Tcp);
    drains.carry_out(&reals_go(Protocol::Tcp, &[1]), false, at(0));
    let changes = IpvsChanges { link: Some(false), ..all_goes(Protocol::Tcp, &[1, 2]) };
    let todo = drains.carry_out(&changes, false, at(1));
    assert_eq!(todo.after[0], Operation::RemoveServer(key));
    assert!(drains.is_empty());
}

#[test]
fn who_has_no_weight_when_the_kernel_is_read_is_leaving() {
    let key = server(Protocol::Tcp);
    let reals = [(real(1), Some(0)), (real(2), Some(1))].into();
    let is = super::super::ActualServer { settings: None, reals };
    let actual = ActualIpvs { servers: [(key, is)].into(), ..ActualIpvs::default() };
    let mut drains = Drains::new(BOUND);
    drains.adopt(&actual, at(50));
    assert_eq!(drains.leaving().collect::<Vec<_>>(), [&draining(Protocol::Tcp, 1)]);
    let todo = drains.carry_out(&reals_go(Protocol::Tcp, &[1]), false, at(60));
    let quiet = [Operation::Real(key, real(1), 0)];
    assert_eq!(todo.after, quiet, "whatever weight somebody gave it meanwhile");
    // Read again later: the time does not start anew.
    drains.adopt(&actual, at(900));
    let gone = [Operation::RemoveReal(key, real(1))];
    assert_eq!(drains.release(&BTreeSet::new(), at(960)), gone);
}
