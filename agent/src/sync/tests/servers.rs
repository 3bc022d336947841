//! The ipvs mode: what strangers do to IPVS, and what it does not take.

use zw_plan::{ActualIpvs, Link};

use super::*;
use crate::config::Mode;

/// With these Services, all of them in the kernel, but for what it does not take; and what Events told.
async fn settled(memory: &Memory, services: u8) -> (Lab, impl FnMut() -> Vec<String>) {
    let script = Arc::<Mutex<Script>>::default();
    let (events, told) = Events::kept();
    let config = Config { mode: Mode::Ipvs, ..Config::for_test() };
    let tables = Faulty::new(memory.clone(), script.clone());
    let engine = engine_with(tables, config, events);
    let mut lab = Lab { engine, memory: memory.clone(), script };
    (0..services).for_each(|n| lab.apply(n, 3));
    lab.quiet().await;
    *lab.script() = Script::default();
    (lab, told)
}

impl Lab {
    /// Reads everything and compares it, as happens every now and then; says how much was repaired so far.
    async fn look(&mut self) -> u64 {
        let ipvs = Some(self.memory.ipvs().clone());
        self.engine.compared(Some(Digest { ipvs, ..digest(&self.memory) }));
        self.quiet().await;
        self.engine.status.recent.tell().drift_repairs
    }
}

fn server(n: u8) -> VirtualKey {
    VirtualKey { addr: [10, 96, 0, n].into(), protocol: Protocol::Tcp, port: 80 }
}

#[tokio::test(start_paused = true)]
async fn what_a_stranger_does_to_ipvs_is_put_right_and_counted_and_the_table_is_not_read_for_it() {
    let memory = Memory::default();
    let (mut lab, _) = settled(&memory, 3).await;
    let before = memory.ipvs().clone();
    let counted = (before.link, before.servers.len(), before.addresses.len());
    assert_eq!(counted, (Link::Up, 3, 3));
    assert_eq!(lab.look().await, 0);

    let meddled: [fn(&mut ActualIpvs); 5] = [
        |ipvs| drop(ipvs.servers.remove(&server(1))),
        |ipvs| ipvs.servers.get_mut(&server(1)).unwrap().reals.clear(),
        |ipvs| ipvs.addresses.clear(),
        |ipvs| ipvs.link = Link::Down,
        |ipvs| *ipvs = ActualIpvs::default(),
    ];
    for (repaired, meddle) in (1..).zip(meddled) {
        meddle(&mut memory.ipvs());
        assert_eq!(lab.look().await, repaired);
        assert_eq!(*memory.ipvs(), before);
    }
    assert_eq!(lab.look().await, 5, "nothing is different any more");
    assert_eq!(lab.asked(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn only_addresses_that_are_wanted_are_missed() {
    let (mut lab, _) = settled(&Memory::default(), 2).await;
    let lost = |last: u8| [IpAddr::from([10, 96, 0, last])].into();
    lab.engine.lost_addresses(&lost(99), false);
    assert!(!lab.engine.is_unsure());
    lab.engine.lost_addresses(&lost(1), false);
    assert!(lab.engine.is_unsure(), "everything is compared soon");
    lab.look().await;
    assert!(!lab.engine.is_unsure());
    lab.engine.lost_addresses(&BTreeSet::new(), true);
    assert!(lab.engine.is_unsure());

    let mut other = Lab::settled(2).await;
    other.engine.lost_addresses(&lost(1), true);
    assert!(!other.engine.is_unsure(), "in the other mode that is no address of ours");
}

#[tokio::test(start_paused = true)]
async fn a_strangers_virtual_server_in_a_services_place_is_told_and_left_alone() {
    let memory = Memory::default();
    memory.ipvs().foreign.insert(server(1));
    let (mut lab, mut told) = settled(&memory, 3).await;
    let news = |n: u8| {
        format!(
            "web/s{n} VirtualServerInUse: not programmed on this node: 10.96.0.{n}:80/tcp \
             (spec.clusterIPs): somebody else has a virtual server there"
        )
    };
    assert_eq!(told(), [news(1)]);
    let keys = |memory: &Memory| memory.ipvs().servers.keys().copied().collect::<Vec<_>>();
    assert_eq!(keys(&memory), [server(0), server(2)]);
    // One more puts his own in our place.
    {
        let mut ipvs = memory.ipvs();
        ipvs.servers.remove(&server(2));
        ipvs.foreign.insert(server(2));
    }
    for _ in 0..2 {
        assert_eq!(lab.look().await, 0, "there is nothing to be done about that");
    }
    assert_eq!(told(), [news(2)], "once");
    memory.ipvs().foreign.clear();
    assert_eq!(lab.look().await, 1);
    assert_eq!(keys(&memory), [server(0), server(1), server(2)]);
    assert_eq!(told(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_the_kernel_does_not_take_is_not_asked_for_again_and_again() {
    let memory = Memory::default();
    memory.refuse_address([10, 96, 0, 1].into());
    let (mut lab, _) = settled(&memory, 3).await;
    assert_eq!(memory.ipvs().addresses.len(), 2);
    for _ in 0..2 {
        assert_eq!(lab.look().await, 0);
    }
    memory.ipvs().addresses.clear();
    assert_eq!(lab.look().await, 1, "the others come back");
    assert_eq!(memory.ipvs().addresses.len(), 2);
    assert_eq!(lab.look().await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_the_kernel_does_not_take_costs_only_itself() {
    let memory = Memory::default();
    memory.refuse_real("10.1.0.2:8080".parse().unwrap());
    let (mut lab, mut told) = settled(&memory, 3).await;
    let reals = |n: u8| memory.ipvs().servers[&server(n)].reals.len();
    assert_eq!([reals(0), reals(1), reals(2)], [3, 2, 3]);
    let news = "web/s1 RulesRefused: endpoints not programmed on this node: 10.1.0.2:8080 of \
                10.96.0.1:80/tcp: Invalid argument";
    assert_eq!(told(), [news]);
    for _ in 0..2 {
        assert_eq!(lab.look().await, 0, "there is nothing to be done about that");
    }
    assert_eq!(lab.asked(), (0, 0));
    lab.apply(1, 2);
    lab.quiet().await;
    assert_eq!(reals(1), 2);
    lab.apply(1, 3);
    lab.quiet().await;
    assert_eq!((reals(1), lab.look().await), (2, 0), "asked for again, refused again");
}
