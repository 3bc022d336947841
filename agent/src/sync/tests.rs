//! The engine over tables in memory that fail when told to.

use std::sync::{Mutex, MutexGuard, mpsc};
use std::time::Duration;

use tokio::sync::mpsc::channel;
use zw_dataplane::testing::{Fault, Faulty, Memory, Script};
use zw_dataplane::{Committed, ReadBack, Tables};
use zw_model::{
    Conditions, Family, Protocol, Scope, Service, ServicePort, Slice, SliceEndpoint, SliceKey,
    SlicePort,
};
use zw_plan::{Digest, Element, Key, Part, Place, SetDigest, SetName, Table, TableDigest};

use super::*;
use crate::convert::{Body, Kind, Object, ObjectId};
use crate::events::Events;

struct Lab {
    engine: Engine,
    memory: Memory,
    script: Arc<Mutex<Script>>,
}

mod servers;
mod start;

fn engine(tables: impl Tables + Send + 'static) -> Engine {
    engine_with(tables, Config::for_test(), Events::default())
}

fn engine_with(tables: impl Tables + Send + 'static, config: Config, events: Events) -> Engine {
    let status = Arc::new(Status::new(&config, events));
    let attendants = Attendants::new(status.clone(), channel(8).0, channel(8).0).unwrap();
    let writer = Writer::start(tables).unwrap();
    Engine::new(Index::new("node-1"), config, BTreeSet::new(), attendants, writer, status)
}

impl Lab {
    fn new() -> Self {
        let (memory, script) = (Memory::default(), Arc::<Mutex<Script>>::default());
        let engine = engine(Faulty::new(memory.clone(), script.clone()));
        Self { engine, memory, script }
    }

    /// With these Services, all of them in the kernel.
    async fn settled(services: u8) -> Self {
        let mut lab = Self::new();
        (0..services).for_each(|n| lab.apply(n, 3));
        lab.quiet().await;
        *lab.script() = Script::default();
        lab
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    /// How often the tables were read as a whole, and elements looked up.
    fn asked(&self) -> (usize, usize) {
        let script = self.script();
        (script.reads, script.look_ups)
    }

    /// A Service and its endpoints, as they are now.
    fn apply(&mut self, n: u8, endpoints: u8) {
        self.apply_named("web", &format!("s{n}"), n, 80, endpoints.into());
    }

    fn apply_named(&mut self, namespace: &str, name: &str, n: u8, port: u16, endpoints: u16) {
        let key = ServiceKey::new(namespace, name);
        let id = |kind| ObjectId { kind, namespace: namespace.into(), name: name.into() };
        let service = Service {
            key: key.clone(),
            cluster_ips: vec![[10, 96, 0, n].into()],
            ports: vec![ServicePort {
                name: "x".into(),
                protocol: Protocol::Tcp,
                port,
                node_port: None,
            }],
            ..Service::default()
        };
        let endpoint = |e: u16| SliceEndpoint {
            addr: [10, n, (e >> 8) as u8, e as u8].into(),
            conditions: Conditions::from_optional(None, None, None),
            topology: Arc::default(),
        };
        let slice = Slice {
            key: SliceKey { namespace: namespace.into(), name: name.into() },
            service: key,
            family: Family::V4,
            scope: Scope::Everyone,
            managed_by: None,
            ports: vec![SlicePort { name: "x".into(), protocol: Protocol::Tcp, port: 8080 }],
            endpoints: (0..endpoints).map(endpoint).collect(),
        };
        let index = self.engine.index();
        index.apply(Object::new(id(Kind::Service), Body::Service(service)));
        index.apply(Object::new(id(Kind::EndpointSlice), Body::Slice(slice)));
    }

    fn delete(&mut self, n: u8) {
        let name = format!("s{n}");
        let id = |kind| ObjectId { kind, namespace: "web".into(), name: name.as_str().into() };
        self.engine.index().delete(&id(Kind::Service));
        self.engine.index().delete(&id(Kind::EndpointSlice));
    }

    /// Syncs until there is nothing left to do; errors are tried again a few times, without the wait.
    async fn quiet(&mut self) {
        for _ in 0..50 {
            let now = Instant::now();
            if !self.engine.is_behind() && self.engine.due(now).is_none() {
                assert!(self.engine.spent.is_none(), "what is written takes no room");
                if !self.engine.is_unsure() {
                    return;
                }
                self.engine.compared(Some(digest(&self.memory)));
                continue;
            }
            if let Some(due) = self.engine.due(now).filter(|_| !self.engine.is_behind()) {
                tokio::time::sleep_until(due).await;
            }
            if let Err(error) = self.engine.sync().await {
                assert_ne!(error.reaction(), zw_dataplane::Reaction::Fatal, "{error}");
            }
        }
        panic!("never quiet");
    }

    /// As a fresh start with the same Services would have it, but for chains that lie idle.
    #[track_caller]
    fn check(&self) {
        let mut fresh =
            Desired::new(self.engine.around.plan.clone(), self.engine.around.surroundings.clone());
        fresh.load(self.engine.index.services().map(|known| {
            let slots = |frontend: &_| self.engine.desired.slots(known.key, frontend);
            (known.key.clone(), self.engine.plan(known.clone(), slots))
        }));
        for family in Family::BOTH {
            let (is, want) = (self.memory.table(family), Table::of(&fresh, family).unwrap());
            assert_eq!(is.elements, want.elements);
            for (name, chain) in &want.chains {
                assert_eq!(is.chains.get(name), Some(chain));
            }
        }
    }

    fn has(&self, n: u8) -> bool {
        let services = &self.memory.table(Family::V4).elements[&SetName::Services];
        services.contains_key(&key(n, 80))
    }
}

fn key(n: u8, port: u16) -> Key {
    Key::new().addr([10, 96, 0, n].into()).protocol(Protocol::Tcp).port(port)
}

/// As the kernel would tell it.
fn digest(memory: &Memory) -> Digest {
    let mut digest = Digest::default();
    for table in Family::BOTH.map(|family| memory.table(family)).iter().filter(|t| t.exists()) {
        let read = table.read_back();
        let of_set = |elements: &std::collections::HashMap<Key, Element>| {
            let mut digest = SetDigest::default();
            elements.values().for_each(|element| digest.add(element));
            digest
        };
        let table_digest = TableDigest {
            sets: read.sets.iter().map(|(set, elements)| (*set, of_set(elements))).collect(),
            affinity_maps: read.affinity_maps.keys().cloned().collect(),
            note: read.note,
            chains: read.chains,
            ..TableDigest::default()
        };
        digest.tables.insert(table.family, table_digest);
    }
    digest
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_sent_for_want_of_memory_goes_with_the_next_and_nothing_is_read() {
    // ENOMEM, ENOBUFS, EINTR, EAGAIN
    for errno in [12, 105, 4, 11] {
        let mut lab = Lab::settled(3).await;
        lab.script().faults.extend([Fault::Refused(errno), Fault::Refused(errno)]);
        lab.apply(1, 4);
        let error = lab.engine.sync().await.unwrap_err();
        assert_eq!(error.reaction(), zw_dataplane::Reaction::Retry);
        lab.apply(2, 1);
        lab.apply(1, 2);
        lab.engine.sync().await.unwrap_err();
        assert!(lab.engine.due(Instant::now()).is_some(), "it is not forgotten");
        lab.engine.sync().await.unwrap();
        assert_eq!(lab.asked(), (0, 0));
        lab.check();
    }
}

#[tokio::test(start_paused = true)]
async fn missing_rights_end_it() {
    let mut lab = Lab::settled(1).await;
    lab.script().faults.push_back(Fault::Refused(1));
    lab.apply(0, 1);
    let error = lab.engine.sync().await.unwrap_err();
    assert_eq!(error.reaction(), zw_dataplane::Reaction::Fatal);
    assert!(error.is_permission());
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_answer_only_what_the_transaction_touched_is_looked_up() {
    // ENOENT, EEXIST and EBUSY too: the table is not what it was thought to be.
    let refused = [2, 17, 16].map(Fault::Refused);
    let lost = [true, false].map(|landed| Fault::Lost { landed });
    for fault in refused.into_iter().chain(lost) {
        let mut lab = Lab::settled(3).await;
        lab.script().faults.push_back(fault);
        lab.apply(1, 5);
        lab.engine.sync().await.unwrap();
        assert_eq!(lab.asked(), (0, 1), "{fault:?}");
        lab.check();
        assert!(lab.engine.is_unsure(), "the rest is looked at, in the background");
        lab.quiet().await;
        assert_eq!(lab.script().reads, 0, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_sync_that_is_overtaken_begins_again() {
    let mut lab = Lab::new();
    lab.apply(1, 2);
    lab.script().faults.extend([Fault::Overtaken, Fault::Overtaken]);
    lab.engine.sync().await.unwrap();
    assert_eq!(lab.script().reads, 3);
    lab.check();
}

#[tokio::test(start_paused = true)]
async fn what_a_stranger_did_without_a_word_is_found_by_what_it_breaks() {
    let mut lab = Lab::settled(5).await;
    lab.memory.meddle(Family::V4, |table| {
        let services = table.elements.get_mut(&SetName::Services).unwrap();
        services.remove(&key(1, 80)).unwrap();
        services.remove(&key(4, 80)).unwrap();
    });
    lab.apply(1, 2);
    lab.engine.sync().await.unwrap();
    assert!(lab.has(1) && !lab.has(4));
    assert_eq!(lab.asked(), (0, 1));
    lab.quiet().await;
    assert!(lab.has(4), "the comparison finds the rest");
    assert_eq!(lab.script().reads, 1);
    lab.check();
}

#[tokio::test(start_paused = true)]
async fn what_notifications_lost_is_found_in_the_background_and_by_force_where_nothing_rests() {
    for rests in [true, false] {
        let mut lab = Lab::settled(3).await;
        lab.memory.meddle(Family::V4, |table| {
            table.elements.get_mut(&SetName::Services).unwrap().clear();
        });
        assert!(!lab.engine.is_unsure());
        lab.engine.drifted(Drift { lost: true, ..Drift::default() });
        assert!(lab.engine.is_unsure() && !lab.engine.is_behind());
        if !rests {
            for _ in 0..UNSURE {
                assert!(lab.engine.is_unsure());
                lab.engine.compared(None);
            }
        }
        lab.quiet().await;
        lab.check();
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_kernel_refuses_is_set_aside_and_tried_again_when_it_changes() {
    let element = Part::Element(Family::V4, SetName::Endpoints, key(1, 80).slot(4));
    for part in [element, Part::Chain(Family::V4, "cluster-8".into())] {
        let mut lab = Lab::settled(3).await;
        // EINVAL
        lab.script().refused = Some((part.clone(), 22));
        lab.apply(0, 2);
        lab.apply(1, 5);
        lab.apply(2, 4);
        lab.engine.sync().await.unwrap();
        assert_eq!([0, 1, 2].map(|n| lab.has(n)), [true, false, true], "{part:?}");
        let refused = lab.engine.status.refused();
        assert_eq!(refused.keys().map(ToString::to_string).collect::<Vec<_>>(), ["web/s1"]);
        assert!(refused.values().all(|why| why.contains("the kernel refused a part")));
        assert_eq!(lab.script().reads, 0);
        lab.check();
        // Others change, a full sync comes: it stays aside.
        lab.apply(2, 1);
        lab.engine.in_doubt = true;
        lab.quiet().await;
        assert_eq!([0, 1, 2].map(|n| lab.has(n)), [true, false, true]);
        // It changes.
        lab.apply(1, 3);
        lab.engine.sync().await.unwrap();
        assert!(lab.has(1) && lab.engine.status.refused().is_empty());
        lab.check();
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_kernel_refuses_at_the_start_keeps_nobody_else_waiting() {
    let mut lab = Lab::new();
    lab.script().refused = Some((Part::Chain(Family::V4, "cluster-8".into()), 22));
    for (n, endpoints) in [(0, 5), (1, 3), (2, 5), (3, 1)] {
        lab.apply(n, endpoints);
    }
    lab.quiet().await;
    assert_eq!([0, 1, 2, 3].map(|n| lab.has(n)), [false, true, false, true]);
    assert_eq!((lab.engine.status.refused().len(), lab.script().reads), (2, 1));
    assert_eq!(lab.engine.status.blockers(), [""; 0], "ready all the same");
}

#[tokio::test(start_paused = true)]
async fn a_kernel_that_does_not_answer_is_told_until_it_does() {
    struct Slow(mpsc::Receiver<()>, Memory);
    impl Tables for Slow {
        fn read_back(&mut self) -> Result<ReadBack, WriteError> {
            self.1.read_back()
        }
        fn is_still(&mut self, read: &ReadBack) -> bool {
            self.1.is_still(read)
        }
        fn elements(&mut self, at: &[Place]) -> Result<Vec<Option<Element>>, WriteError> {
            self.1.elements(at)
        }
        fn commit(&mut self, c: &Changes, g: Option<u32>) -> Result<Committed, WriteError> {
            self.0.recv().unwrap();
            self.1.commit(c, g)
        }
    }
    let (answer, wait) = mpsc::channel();
    let mut engine = engine(Slow(wait, Memory::default()));
    let status = engine.status.clone();
    assert!(status.is_live());
    let asked = status.clone();
    // Time is the runtime's own, which passes while nothing happens.
    let watcher = tokio::spawn(async move {
        while asked.is_live() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        answer.send(()).unwrap();
    });
    engine.sync().await.unwrap();
    watcher.await.unwrap();
    assert!(status.is_live(), "it answered in the end");
}

/// Any history of changes, faults and strangers, once quiet, is as a fresh start.
#[tokio::test(start_paused = true)]
async fn any_history_of_changes_and_faults_ends_as_a_fresh_start() {
    for seed in 0..300u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut lab = Lab::new();
        for _ in 0..12 {
            match next(10) {
                0..4 => lab.apply(next(4) as u8, next(5) as u8),
                4 => lab.delete(next(4) as u8),
                5 => lab.script().faults.push_back(Fault::Lost { landed: next(2) == 0 }),
                6 => {
                    let errno = [2, 12, 17, 16, 105, 4][next(6) as usize];
                    lab.script().faults.push_back(Fault::Refused(errno));
                }
                7 => {
                    // Told, as the kernel would.
                    let (mut drift, at) = (Drift::default(), next(4) as u8);
                    lab.memory.meddle(Family::V4, |table| {
                        let set = SetName::Services;
                        if table
                            .elements
                            .get_mut(&set)
                            .and_then(|s| s.remove(&key(at, 80)))
                            .is_some()
                        {
                            drift.table(Family::V4).element(set, key(at, 80), None);
                        }
                    });
                    lab.engine.drifted(drift);
                }
                8 => {
                    lab.memory.meddle(Family::V4, |table| *table = Table::absent(Family::V4));
                    let mut drift = Drift::default();
                    drift.table(Family::V4).alter();
                    lab.engine.drifted(drift);
                }
                _ => {
                    let _ = lab.engine.sync().await;
                }
            }
            if next(3) > 0 {
                let _ = lab.engine.sync().await;
            }
        }
        lab.quiet().await;
        assert!(lab.engine.status.refused().is_empty(), "seed {seed}: nothing is really refused");
        lab.check();
    }
}
