//! The same histories in the ipvs mode, against a stand-in for IPVS.

use std::time::Duration;

use zw_model::Scheduler;

use super::*;
use crate::ipvs::{
    ActualIpvs, ActualServer, Draining, Drains, IpvsChanges, Link, Operation, ServerSettings,
    VirtualKey, bring_servers_to,
};

const BOUND: Duration = Duration::from_secs(900);

/// IPVS and the interface, as far as we use them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Fake {
    servers: BTreeMap<VirtualKey, (ServerSettings, BTreeMap<SocketAddr, u32>)>,
    addresses: BTreeSet<IpAddr>,
}

impl Fake {
    fn apply(&mut self, operations: impl IntoIterator<Item = Operation>) {
        for operation in operations {
            match operation {
                Operation::Server(key, settings) => {
                    let reals = self.servers.remove(&key).map(|(_, reals)| reals);
                    self.servers.insert(key, (settings, reals.unwrap_or_default()));
                }
                Operation::Real(key, real, weight) => {
                    self.servers.get_mut(&key).unwrap().1.insert(real, weight);
                }
                Operation::RemoveReal(key, real) => {
                    self.servers.get_mut(&key).unwrap().1.remove(&real).unwrap();
                }
                Operation::RemoveServer(key) => drop(self.servers.remove(&key).unwrap()),
                Operation::Address(addr) => {
                    self.addresses.insert(addr);
                }
                Operation::RemoveAddress(addr) => assert!(self.addresses.remove(&addr), "{addr}"),
            }
        }
    }

    fn read_back(&self) -> ActualIpvs {
        let servers = self.servers.iter().map(|(key, (settings, reals))| {
            let reals = reals.iter().map(|(real, weight)| (*real, Some(*weight))).collect();
            (*key, ActualServer { settings: Some(settings.clone()), reals })
        });
        ActualIpvs {
            link: Link::Up,
            addresses: self.addresses.clone(),
            servers: servers.collect(),
            ..ActualIpvs::default()
        }
    }

    /// Without those who are leaving.
    fn settled(&self) -> Self {
        let mut settled = self.clone();
        for (_, reals) in settled.servers.values_mut() {
            reals.retain(|_, weight| *weight > 0);
        }
        settled.servers.retain(|_, (_, reals)| !reals.is_empty());
        settled
    }

    /// As a fresh start would have it.
    fn of(desired: &Desired) -> Self {
        let servers = desired.virtual_servers().into_iter().map(|(key, server)| {
            (key, (server.settings, server.reals.iter().map(|real| (real.addr, 1)).collect()))
        });
        Self { servers: servers.collect(), addresses: desired.virtual_addresses() }
    }
}

fn config() -> PlanConfig {
    PlanConfig { ipvs: Some(Scheduler::default()), ..super::config() }
}

/// Plans, applies and returns how many messages that took.
fn step(run: &mut Run, fake: &mut Fake, drains: &mut Drains, step: Step, now: Duration) -> usize {
    let changes = run.step(step.into_iter().map(|(service, spec)| (key(service), spec)));
    carry_out(&changes.ipvs, fake, drains, now)
}

fn carry_out(changes: &IpvsChanges, fake: &mut Fake, drains: &mut Drains, now: Duration) -> usize {
    let todo = drains.carry_out(changes, false, now);
    let messages = todo.before.len() + todo.after.len();
    fake.apply(todo.before.into_iter().chain(todo.after));
    messages
}

proptest! {
    #[test]
    fn any_history_ends_in_the_same_servers_as_a_fresh_start(history in history()) {
        let (mut run, mut fake) = (Run::with(config()), Fake::default());
        let mut drains = Drains::new(BOUND);
        let mut now = Duration::ZERO;
        for changes in history {
            step(&mut run, &mut fake, &mut drains, changes, now);
            // The table is as right as in the other mode.
            run.check();
            let want = Fake::of(&run.fresh());
            prop_assert_eq!(&fake.settled().servers, &want.servers);
            // Everybody who leaves still has his virtual server and its address.
            prop_assert!(want.addresses.is_subset(&fake.addresses));
            for server in fake.servers.keys() {
                let at_node = surroundings().node_addresses.contains(&server.addr);
                prop_assert!(at_node || fake.addresses.contains(&server.addr), "{}", server);
            }
            // A restart finds nothing to do, whoever is leaving.
            let mut restarted = Drains::new(BOUND);
            restarted.adopt(&fake.read_back(), now);
            let found = bring_servers_to(&run.desired, &fake.read_back());
            let todo = restarted.carry_out(&found, false, now);
            prop_assert_eq!((todo.before, todo.after), (vec![], vec![]));
            let different = run.desired.ipvs_differences(&fake.read_back());
            prop_assert_eq!(different, IpvsChanges::default());
            now += Duration::from_secs(60);
        }
        fake.apply(drains.release(&BTreeSet::new(), now + BOUND));
        prop_assert!(drains.is_empty());
        prop_assert_eq!(fake, Fake::of(&run.fresh()));
    }

    #[test]
    fn any_earlier_servers_are_brought_to_the_present(history in history()) {
        let (mut run, mut fake) = (Run::with(config()), Fake::default());
        let mut drains = Drains::new(BOUND);
        let mut earlier = vec![fake.clone()];
        for changes in history {
            step(&mut run, &mut fake, &mut drains, changes, Duration::ZERO);
            earlier.push(fake.clone());
        }
        for mut fake in earlier {
            let mut drains = Drains::new(BOUND);
            drains.adopt(&fake.read_back(), Duration::ZERO);
            let changes = bring_servers_to(&run.desired, &fake.read_back());
            carry_out(&changes, &mut fake, &mut drains, Duration::ZERO);
            fake.apply(drains.release(&BTreeSet::new(), BOUND));
            prop_assert_eq!(fake, Fake::of(&run.fresh()));
        }
    }
}

#[test]
fn one_endpoint_more_or_less_is_one_message_at_any_size() {
    for size in [1u16, 2, 50, 2_000] {
        let (mut run, mut fake) = (Run::with(config()), Fake::default());
        let mut drains = Drains::new(BOUND);
        let mut messages = |spec: Spec| {
            step(&mut run, &mut fake, &mut drains, vec![(0, Some(spec))], Duration::ZERO)
        };
        assert_eq!(messages(plain(0..size)), usize::from(size) + 2, "server and address");
        assert_eq!(messages(plain(0..size)), 0);
        assert_eq!(messages(plain(0..=size)), 1, "one comes to {size}");
        assert_eq!(messages(plain(1..=size)), 1, "one leaves");
        assert_eq!(messages(plain(0..=size)), 1, "and is wanted again");
    }
}

#[test]
fn a_node_ports_servers_follow_the_nodes_addresses() {
    let mut run = Run::with(config());
    let features = Features { node_port: Some(30_000), ..Features::default() };
    let (mut fake, mut drains) = (Fake::default(), Drains::new(BOUND));
    let spec = Spec { features, ..plain(0..2) };
    step(&mut run, &mut fake, &mut drains, vec![(0, Some(spec))], Duration::ZERO);
    let at = |fake: &Fake| -> Vec<String> {
        let node_ports = fake.servers.keys().filter(|server| server.port >= 30_000);
        node_ports.map(ToString::to_string).collect()
    };
    assert_eq!(at(&fake), ["192.0.2.1:30000/tcp"]);
    let moved =
        Surroundings { node_addresses: [IpAddr::from([192, 0, 2, 9])].into(), ..surroundings() };
    let changes = run.desired.surround(moved);
    let messages = carry_out(&changes.ipvs, &mut fake, &mut drains, Duration::ZERO);
    assert_eq!(messages, 3 + 2, "a server with two endpoints, and two that leave the other");
    fake.apply(drains.release(&BTreeSet::new(), BOUND));
    assert_eq!(at(&fake), ["192.0.2.9:30000/tcp"]);
    assert_eq!(fake, Fake::of(&run.desired));
}

#[test]
fn an_address_the_node_has_by_itself_stays_its_own() {
    let mut run = Run::with(config());
    let own = |addresses: &[IpAddr]| Surroundings {
        own_addresses: addresses.iter().copied().collect(),
        ..surroundings()
    };
    let (mut fake, mut drains) = (Fake::default(), Drains::new(BOUND));
    let claimed = vip(Family::V4, 1);
    run.desired.surround(own(&[claimed]));
    step(&mut run, &mut fake, &mut drains, vec![(0, Some(plain(0..2)))], Duration::ZERO);
    assert_eq!((fake.servers.len(), fake.addresses.len()), (1, 0), "served, but not added");

    for (addresses, want) in [(&[][..], 1), (&[claimed][..], 0)] {
        let changes = run.desired.surround(own(addresses));
        carry_out(&changes.ipvs, &mut fake, &mut drains, Duration::ZERO);
        assert_eq!(fake.addresses.len(), want);
        assert_eq!(fake, Fake::of(&run.desired));
    }
}

#[test]
fn whatever_a_stranger_does_to_ipvs_is_found_and_put_right() {
    let (mut run, mut fake) = (Run::with(config()), Fake::default());
    let mut drains = Drains::new(BOUND);
    let features = Features { node_port: Some(30_000), external_ip: true, ..Features::default() };
    for endpoints in [0..3, 1..3] {
        let spec = Spec { features, ..plain(endpoints) };
        step(&mut run, &mut fake, &mut drains, vec![(0, Some(spec))], Duration::ZERO);
    }
    let before = fake.clone();
    let server = VirtualKey { addr: vip(Family::V4, 1), protocol: Protocol::Tcp, port: 80 };
    let reals = &before.servers[&server].1;
    let of_weight = |weight: u32| *reals.iter().find(|(_, is)| **is == weight).unwrap().0;
    let (used, leaving) = (of_weight(1), of_weight(0));
    let strange: SocketAddr = "192.0.2.9:1".parse().unwrap();
    let nobodys = VirtualKey { port: 81, ..server };
    type Meddle<'a> = &'a dyn Fn(&mut Fake);
    let meddled: [(&str, Meddle<'_>); 9] = [
        ("no virtual server", &|fake| drop(fake.servers.remove(&server))),
        ("no real server", &|fake| {
            fake.servers.get_mut(&server).unwrap().1.remove(&used);
        }),
        ("another weight", &|fake| {
            fake.servers.get_mut(&server).unwrap().1.insert(used, 7);
        }),
        ("no weight", &|fake| {
            fake.servers.get_mut(&server).unwrap().1.insert(used, 0);
        }),
        ("a weight for one that leaves", &|fake| {
            fake.servers.get_mut(&server).unwrap().1.insert(leaving, 1);
        }),
        ("one real server more", &|fake| {
            fake.servers.get_mut(&server).unwrap().1.insert(strange, 1);
        }),
        ("another scheduler", &|fake| {
            fake.servers.get_mut(&server).unwrap().0.scheduler = "wlc".parse().unwrap();
        }),
        ("one virtual server more", &|fake| {
            let settings = before.servers[&server].0.clone();
            fake.servers.insert(nobodys, (settings, [(strange, 1)].into()));
        }),
        ("other addresses", &|fake| {
            fake.addresses = [IpAddr::from([192, 0, 2, 99])].into();
        }),
    ];
    for (what, meddle) in meddled {
        meddle(&mut fake);
        let different = run.desired.ipvs_differences(&fake.read_back());
        assert!(!different.is_empty(), "{what}");
        carry_out(&different, &mut fake, &mut drains, Duration::ZERO);
        // What a stranger added leaves like everybody else.
        let gone = [(server, strange), (nobodys, strange)];
        let gone = gone.map(|(server, real)| Draining { server, real }).into();
        fake.apply(drains.release(&gone, Duration::ZERO));
        assert_eq!(fake.settled(), before.settled(), "{what}");
        let found = run.desired.ipvs_differences(&fake.read_back());
        assert_eq!(found, IpvsChanges::default(), "{what}");
        fake = before.clone();
    }
    for link in [Link::Missing, Link::Down] {
        let actual = ActualIpvs { link, ..fake.read_back() };
        let up = IpvsChanges { link: Some(true), ..IpvsChanges::default() };
        assert_eq!(run.desired.ipvs_differences(&actual), up);
        let other = bring_servers_to(&Run::new().desired, &actual);
        let goes = (link == Link::Down).then_some(false);
        assert_eq!(other.link, goes, "and goes with the mode");
    }
}

#[test]
fn leaving_the_mode_leaves_nothing() {
    let (mut run, mut fake) = (Run::with(config()), Fake::default());
    let mut drains = Drains::new(BOUND);
    let features = Features { node_port: Some(30_000), external_ip: true, ..Features::default() };
    let spec = Spec { features, ..plain(0..3) };
    step(&mut run, &mut fake, &mut drains, vec![(0, Some(spec))], Duration::ZERO);
    let other = Run::new();
    let changes = bring_servers_to(&other.desired, &fake.read_back());
    assert_eq!(changes.link, Some(false));
    carry_out(&changes, &mut fake, &mut drains, Duration::ZERO);
    assert_eq!(fake.servers, BTreeMap::new());
    assert!(drains.is_empty(), "nobody is waited for");
}
