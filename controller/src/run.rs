//! The running controller: watches in, one Service after the other looked at, writes out.
//!
//! One task owns everything that is known. It plans ([`crate::plan`], which is quick) and hands the
//! writes to others, of which several wait for the API server at a time, for one Service never more than
//! one. What was written is known at once, before the watches say it, so nothing is written twice.
//! Controllers that do not lead watch too, and take over without a list.

mod sync;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;
use tracing::{info, warn};
use zw_model::ServiceKey;

use crate::approach::Approach;
use crate::events::Events;
use crate::groups::Divider;
use crate::lease::{Elector, LeaseName};
use crate::metrics::Metrics;
use crate::queue::{Limiter, Queue};
use crate::settings::Settings;
use crate::store::Store;
use crate::watch::{Kind, Seen};
use crate::write::Writer;
use sync::{Finished, Work};

/// How long changes of a Service are collected: the stock controller writes several slices in a row.
const BATCH: Duration = Duration::from_millis(100);

/// The same for Nodes, which concern every divided Service.
const NODE_BATCH: Duration = Duration::from_secs(1);

/// How much is taken in before a look at the queue.
const MOST_AT_ONCE: usize = 4096;

/// What can be set.
#[derive(Debug, Clone)]
pub struct Config {
    /// How Services are divided.
    pub settings: Settings,
    /// How long agents get to see what they are about to rely on.
    pub settle: Duration,
    /// Writes in a second, and at once.
    pub writes_per_second: u32,
    /// See above.
    pub burst: u32,
    /// Services that are written to at a time.
    pub workers: usize,
    /// Whether Endpoints are mirrored.
    pub mirror: bool,
    /// Who leads; without it this one does.
    pub lease: Option<LeaseName>,
    /// Say what would be written, and end.
    pub dry_run: bool,
}

/// Whether everything has been listed and whether this one leads, for probes.
#[derive(Debug, Default)]
pub struct Status {
    listed: AtomicBool,
    leads: AtomicBool,
}

impl Status {
    /// Everything has been listed once.
    pub fn is_ready(&self) -> bool {
        self.listed.load(Ordering::Relaxed)
    }

    /// This one works.
    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }
}

/// Runs until `stop` is done, or, on a dry run, until there is nothing left to do.
pub async fn run(
    client: Client,
    config: Config,
    metrics: Arc<Metrics>,
    status: Arc<Status>,
    stop: impl Future<Output = ()>,
) {
    let seen = crate::watch::start(&client, config.mirror);
    let lease = config.lease.clone().filter(|_| !config.dry_run);
    // Without a lease this one leads, for as long as this sender is there to say so.
    let (alone, mut leads) = watch::channel(true);
    let mut elector = lease.map(|name| {
        let (elector, elected) = Elector::new(client.clone(), name);
        leads = elected;
        elector
    });
    let identity = config.lease.as_ref().map_or("zoneward-controller", |lease| &lease.identity);
    let (writer, events) = if config.dry_run {
        (Writer::dry(metrics.clone()), Events::default())
    } else {
        let limiter = Limiter::new(config.writes_per_second, config.burst);
        let events = Events::start(client.clone(), identity);
        (Writer::new(client.clone(), limiter, metrics.clone()), events)
    };
    let mut controller = Controller::new(config, writer, events, metrics, status, leads);
    let follow = async {
        match &mut elector {
            Some(elector) => elector.follow().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = controller.work(seen) => {}
        () = follow => {}
        () = stop => {}
    }
    // Writes under way end with this; the next leader finds what they did.
    drop((controller, alone));
    if let Some(elector) = &mut elector {
        elector.release().await;
    }
}

/// Everything that is known.
struct Controller {
    config: Config,
    store: Store,
    queue: Queue,
    divider: Divider,
    writer: Writer,
    events: Events,
    metrics: Arc<Metrics>,
    status: Arc<Status>,
    leads: watch::Receiver<bool>,
    /// What has not been listed yet.
    missing: BTreeSet<Kind>,
    /// When a change of Nodes concerns all divided Services.
    nodes_due: Option<Instant>,
    /// For what, and since when, agents get time to see it.
    settling: HashMap<ServiceKey, (String, Instant)>,
    /// The newest trigger time that was written.
    triggers: HashMap<ServiceKey, String>,
    /// What was last counted of each Service.
    counted: HashMap<ServiceKey, (Approach, i64)>,
    /// Writes under way.
    running: FuturesUnordered<Work>,
}

impl Controller {
    fn new(
        config: Config,
        writer: Writer,
        events: Events,
        metrics: Arc<Metrics>,
        status: Arc<Status>,
        leads: watch::Receiver<bool>,
    ) -> Self {
        let mut missing = BTreeSet::from([Kind::Services, Kind::Slices, Kind::Nodes]);
        if config.mirror {
            missing.insert(Kind::Endpoints);
        }
        Self {
            config,
            store: Store::default(),
            queue: Queue::default(),
            divider: Divider::default(),
            writer,
            events,
            metrics,
            status,
            leads,
            missing,
            nodes_due: None,
            settling: HashMap::new(),
            triggers: HashMap::new(),
            counted: HashMap::new(),
            running: FuturesUnordered::new(),
        }
    }

    async fn work(&mut self, mut seen: mpsc::Receiver<Seen>) {
        let mut worked = false;
        loop {
            let works = self.missing.is_empty() && *self.leads.borrow();
            if works != worked {
                self.start_or_stop(works);
                worked = works;
            }
            if works {
                self.look(Instant::now());
                if self.config.dry_run && self.running.is_empty() && self.queue.next_due().is_none()
                {
                    return;
                }
            }
            let due = self.next_due().filter(|_| works).map(tokio::time::Instant::from_std);
            tokio::select! {
                one = seen.recv() => {
                    let Some(one) = one else { return };
                    self.take_in(one);
                    for _ in 1..MOST_AT_ONCE {
                        let Ok(more) = seen.try_recv() else { break };
                        self.take_in(more);
                    }
                }
                Some(finished) = self.running.next() => self.finish(finished),
                changed = self.leads.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = sleep_until(due.unwrap_or_else(tokio::time::Instant::now)), if due.is_some() => {}
            }
        }
    }

    /// Begins with everything, or leaves the queue to another.
    fn start_or_stop(&mut self, works: bool) {
        self.status.leads.store(works, Ordering::Relaxed);
        self.metrics.leads(works);
        if !works {
            warn!("another controller leads; this one goes on watching");
            return;
        }
        let now = Instant::now();
        let keys = self.store.keys();
        info!(services = keys.len(), divided = self.store.divided().len(), "everything is listed");
        self.settling.clear();
        keys.iter().for_each(|key| self.queue.add(key, now));
    }

    /// Plans what is due as long as there are workers.
    fn look(&mut self, now: Instant) {
        if self.nodes_due.is_some_and(|due| due <= now) {
            self.nodes_due = None;
            for key in self.store.divided() {
                self.queue.add(key, now);
            }
        }
        while self.running.len() < self.config.workers.max(1) {
            let Some(key) = self.queue.take(now) else { break };
            self.sync(key, now);
        }
        self.metrics.queued(self.queue.len());
    }

    /// When there is something to look at; with all workers busy, when one of them is done.
    fn next_due(&self) -> Option<Instant> {
        let queue =
            self.queue.next_due().filter(|_| self.running.len() < self.config.workers.max(1));
        [queue, self.nodes_due].into_iter().flatten().min()
    }

    fn take_in(&mut self, seen: Seen) {
        let changed = match seen {
            Seen::Service(service, version) => {
                let key = service.key.clone();
                self.store.apply_service(service, version).then_some(key).into_iter().collect()
            }
            Seen::Slice(key, slice) => self.store.apply_slice(key, slice),
            Seen::Endpoints(endpoints, version) => {
                let key = endpoints.key.clone();
                self.store.apply_endpoints(endpoints, version).then_some(key).into_iter().collect()
            }
            Seen::Node(node, version) => {
                if self.store.apply_node(node, version) {
                    self.nodes_changed();
                }
                Vec::new()
            }
            Seen::Gone(kind, (namespace, name)) => self.gone(kind, namespace, name),
            Seen::Listed(kind, names) => {
                if self.missing.remove(&kind) && self.missing.is_empty() {
                    self.status.listed.store(true, Ordering::Relaxed);
                }
                match kind {
                    Kind::Services => self.store.keep_services(&names),
                    Kind::Slices => self.store.keep_slices(&names),
                    Kind::Endpoints => self.store.keep_endpoints(&names),
                    Kind::Nodes => {
                        if self.store.keep_nodes(&names) {
                            self.nodes_changed();
                        }
                        Vec::new()
                    }
                }
            }
        };
        // Before everything is listed there is nothing to look at, and then all of it.
        if self.missing.is_empty() {
            let when = Instant::now() + BATCH;
            changed.iter().for_each(|key| self.queue.add(key, when));
        }
    }

    fn gone(&mut self, kind: Kind, namespace: Arc<str>, name: Arc<str>) -> Vec<ServiceKey> {
        let key = || ServiceKey { namespace: namespace.clone(), name: name.clone() };
        match kind {
            Kind::Services => self.store.delete_service(&key()).then(key).into_iter().collect(),
            Kind::Endpoints => self.store.delete_endpoints(&key()).then(key).into_iter().collect(),
            Kind::Slices => self.store.delete_slice(&namespace, &name).into_iter().collect(),
            Kind::Nodes => {
                if self.store.delete_node(&name) {
                    self.nodes_changed();
                }
                Vec::new()
            }
        }
    }

    fn nodes_changed(&mut self) {
        self.nodes_due.get_or_insert_with(|| Instant::now() + NODE_BATCH);
    }

    fn finish(&mut self, finished: Finished) {
        self.record(&finished);
        let key = &finished.key;
        match finished.outcome {
            Ok(()) => {
                self.queue.done(key);
                // The next step, or the certainty that there is none.
                self.queue.add(key, Instant::now());
            }
            Err(error) => {
                self.metrics.failed();
                let wait = self.queue.failed(key, Instant::now());
                warn!(svc = %key, %error, retry_in_ms = wait.as_millis() as u64, "sync failed");
            }
        }
    }
}
