//! `zoneward run`: the agent.

mod retry;
mod settings;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{debug, error, info, warn};
use zw_dataplane::{Ipvs, IpvsOptions, Kernel, Reaction, TableWatch, WithIpvs, WriteError, Writer};

use crate::BadInput;
use crate::addresses::{AddressChange, Addresses};
use crate::attendants::Attendants;
use crate::cli::RunArgs;
use crate::cluster::Cluster;
use crate::compare::Comparison;
use crate::config::{Config, ConfigError, ConfigFile, Difference, Mode};
use crate::events::{Events, Reason};
use crate::files::Files;
use crate::health::NodeState;
use crate::health_ports::HealthPortFailure;
use crate::index::{Index, Seen};
use crate::inspect::page::Page;
use crate::inspect::questions::{self, Questions};
use crate::inspect::socket::{self, Socket, Witness};
use crate::localhost_ports::LocalPortFailure;
use crate::ready::Blocker;
use crate::serve::Servers;
use crate::status::Status;
use crate::sync::Engine;
use crate::watch::{Received, Server, connect, kubeconfig};
use crate::{panics, sysctls, taint};
use retry::Retry;
use settings::{Settings, tell_ignored};

/// How many ports that could not be opened may wait to be told.
const FAILURES: usize = 256;

/// In the ipvs mode, how long an endpoint that is used no longer keeps the connections it has, and how
/// often it is asked whether it has any.
const LONGEST_DRAIN: Duration = Duration::from_secs(15 * 60);
const LOOK_AT_DRAINS: Duration = Duration::from_secs(2);

pub(crate) fn run(args: RunArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.cleanup {
        return super::cleanup::own(out);
    }
    let kubeconfig_by_flag = args.flags.kubeconfig.is_some();
    let mut file = ConfigFile::new(args.config, args.flags);
    let loaded = file.load().map_err(|error| unusable(&file, &error))?;
    let config = loaded.config;
    debug!(config = %config.show(), "configured");
    tell_ignored(args.ignored.given().into_iter().chain(loaded.ignored));
    if args.init_only {
        if config.mode == Mode::Ipvs {
            Ipvs::set_sysctls().map_err(with_advice)?;
        }
        return Ok(sysctls::apply(Path::new("/"), &config)?);
    }
    panics::end_the_process();
    let mut kernel = open_kernel(&config).map_err(with_advice)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let from = match args.state {
            Some(path) => From::Files(path),
            None => {
                let named = config.kubeconfig.as_deref();
                let in_a_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
                let kubeconfig = kubeconfig(named, kubeconfig_by_flag, in_a_pod);
                let (client, received) = connect(kubeconfig, config.master.as_deref()).await?;
                From::Cluster(client, received)
            }
        };
        let client = match &from {
            From::Files(_) => None,
            From::Cluster(client, _) => Some(client.clone()),
        };
        // Who programs once and ends has nobody to tell, and leaves the kernel's settings alone.
        let events = match &client {
            Some(client) if !args.once => Events::start(client.clone(), &config.node_name),
            _ => Events::default(),
        };
        let status = Arc::new(Status::new(&config, events));
        let source = match from {
            From::Files(path) => Source::Files(Files::new(path, status.clone())),
            From::Cluster(client, received) => {
                let server = Server::new(client, config.content_type);
                let cluster = Cluster::new(server, received, &config.node_name, status.clone());
                Source::Cluster(Box::new(cluster))
            }
        };
        let index = Index::new(&config.node_name).ignore_triggers_before(SystemTime::now());
        let addresses = Addresses::follow().await?;
        let (health_failures, failed_health) = channel(FAILURES);
        let (localhost_failures, failed_localhost) = channel(FAILURES);
        let asked = status.clone();
        let attendants = Attendants::new(asked, health_failures, localhost_failures)
            .context("cannot start a thread for servers")?;
        let local = addresses.local();
        // Before the table is read: what anybody does to it after that is told.
        let tables = (!args.once).then(|| TableWatch::start(kernel.table())).transpose();
        let tables = tables.map_err(with_advice)?;
        let writer = Writer::start(kernel)?;
        let mut engine =
            Engine::new(index, config.clone(), local, attendants, writer, status.clone());
        engine.read_ahead()?;
        let mut agent = Agent { source, engine, status };
        let Some(tables) = tables else { return agent.once().await };
        make_settings(&config, &agent.status);
        let (asker, questions) = questions::channel();
        let (node, status) = (config.node_name.clone(), agent.status.clone());
        let witness = Arc::new(Witness { node, status: status.clone(), asker });
        let page = args.status_page.then(|| Page::new(witness.clone()));
        let servers = Servers::start(&config, status, args.metrics_max_services, page)?;
        let socket = socket::path(args.socket.as_ref());
        let _socket = socket.and_then(|path| Socket::open(&path, witness));
        agent.status.events.node(Reason::Starting, String::new());
        let taint = client.zip(args.remove_taint);
        let every = (config.mode == Mode::Ipvs).then_some(config.sync_period);
        let settings = Settings::new(config, file);
        let failed = (failed_health, failed_localhost);
        let comparison = Comparison::new(agent.engine.commits(), every);
        let outside =
            Outside { settings, servers, taint, addresses, tables, comparison, failed, questions };
        agent.follow(outside).await
    })
}

/// Waits until then, and not at all for what is past: a timer takes a millisecond at least.
async fn reach(due: Instant) {
    if due > Instant::now() {
        sleep_until(due).await;
    }
}

/// Bad configuration is bad input, whether it came from the file or a flag.
fn unusable(file: &ConfigFile, error: &ConfigError) -> BadInput {
    match file.path() {
        Some(path) => BadInput(format!("cannot use the configuration {}: {error}", path.display())),
        None => BadInput(error.to_string()),
    }
}

/// Makes the settings of the kernel that are asked for. A node whose Services work without them is better
/// off than one without Services.
fn make_settings(config: &Config, status: &Status) {
    if let Err(error) = sysctls::apply(Path::new("/"), config) {
        error!("{error}");
        status.events.node(Reason::KernelSettingsRefused, error.to_string());
    }
}

/// The kernel, with all that the mode needs of it. What the other mode left goes with the first sync.
fn open_kernel(config: &Config) -> Result<WithIpvs, WriteError> {
    let table = Kernel::open()?;
    let mut ipvs = Ipvs::open(LONGEST_DRAIN)?;
    if config.mode == Mode::Ipvs {
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let Config { ipvs: settings, .. } = config;
        let timeouts =
            [settings.tcp_timeout, settings.tcp_fin_timeout, settings.udp_timeout].map(seconds);
        ipvs.prepare(&IpvsOptions { scheduler: settings.scheduler(), timeouts })?;
    }
    Ok(WithIpvs::new(table, ipvs))
}

/// Adds how to get what is missing.
pub(crate) fn with_advice(error: WriteError) -> anyhow::Error {
    let permission = error.is_permission();
    let error = anyhow::Error::new(error);
    if permission {
        return error.context(
            "missing the capability NET_ADMIN in this network namespace: run as root, or add \
             NET_ADMIN to the container's capabilities (`zoneward check` tells more)",
        );
    }
    error
}

/// Where Services are to come from.
enum From {
    Files(PathBuf),
    Cluster(Client, Received),
}

/// Where Services come from.
enum Source {
    Files(Files),
    Cluster(Box<Cluster>),
}

impl Source {
    /// Waits for changes and takes them into the index. False until the source has said everything once:
    /// before that, a sync would take working Services away.
    async fn changed(&mut self, index: &mut Index) -> bool {
        match self {
            Source::Files(files) => files.changed(index).await,
            Source::Cluster(cluster) => cluster.changed(index).await,
        }
    }

    /// What it has not said yet.
    fn waiting_for(&self) -> Vec<Blocker> {
        match self {
            Source::Files(_) => vec![Blocker::Manifests],
            Source::Cluster(cluster) => cluster.waiting_for(),
        }
    }
}

/// Carries what the source says to the kernel.
struct Agent {
    source: Source,
    engine: Engine,
    status: Arc<Status>,
}

/// What an agent that stays has besides.
struct Outside {
    settings: Settings,
    servers: Servers,
    /// A taint to remove once the node is ready, and who does it.
    taint: Option<(Client, String)>,
    addresses: Addresses,
    /// What others do to our tables.
    tables: TableWatch,
    comparison: Comparison,
    /// Ports that could not be opened.
    failed: (Receiver<HealthPortFailure>, Receiver<LocalPortFailure>),
    /// What people ask.
    questions: Questions,
}

impl Agent {
    async fn once(&mut self) -> anyhow::Result<()> {
        while !self.source.changed(self.engine.index()).await {
            if let Source::Files(files) = &self.source {
                bail!(BadInput(format!("nothing in {} could be read", files.path().display())));
            }
        }
        self.engine.sync().await.map_err(with_advice)?;
        while self.engine.due(Instant::now()).is_some_and(|due| due <= Instant::now()) {
            self.engine.sync().await.map_err(with_advice)?;
        }
        Ok(())
    }

    async fn follow(&mut self, mut outside: Outside) -> anyhow::Result<()> {
        let mut terminated = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
        let mut interrupted = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
        // A sync under way is left alone: its transaction lands or not, as a whole.
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
            outcome = self.work(&mut outside) => return outcome,
        }
        info!("stopped; rules stay in place, `zoneward cleanup` removes them");
        Ok(())
    }

    /// Syncs after every change, and again after a failure. Ends only if that cannot help.
    async fn work(&mut self, outside: &mut Outside) -> anyhow::Result<()> {
        let mut retry = Retry::default();
        let mut complete = false;
        let by_ipvs = outside.settings.config.mode == Mode::Ipvs;
        let mut drains = interval(LOOK_AT_DRAINS);
        drains.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.status.wait_for(self.source.waiting_for());
        loop {
            let due =
                retry.until().or_else(|| self.engine.due(Instant::now())).filter(|_| complete);
            tokio::select! {
                now = self.source.changed(self.engine.index()) => self.took_in(&mut complete, now),
                difference = outside.settings.changed() => self.reconfigure(outside, &difference),
                failure = outside.servers.failed() => return Err(failure),
                change = outside.addresses.changed() => self.addresses_changed(outside, &change),
                drift = outside.tables.changed() => self.engine.drifted(drift),
                digest = outside.comparison.read() => self.engine.compared(digest),
                Some(failure) = outside.failed.0.recv() => {
                    warn!("{failure}");
                    let (service, reason) =
                        (&failure.service, Reason::FailedToStartServiceHealthcheck);
                    self.status.events.service(service, reason, failure.to_string());
                }
                Some(failure) = outside.failed.1.recv() => warn!("{failure}"),
                _ = drains.tick(), if by_ipvs => self.engine.drain().await,
                Some(question) = outside.questions.recv() => self.engine.answer(question),
                () = reach(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
            if !complete {
                continue;
            }
            if self.engine.is_unsure() {
                outside.comparison.hasten();
            }
            let now = Instant::now();
            if self.engine.is_behind() {
                self.status.queued();
            } else if self.engine.due(now).is_none_or(|due| due > now) {
                continue;
            }
            if retry.not_yet() {
                continue;
            }
            match self.engine.sync().await {
                Ok(()) => {
                    retry = Retry::default();
                    if let Some((client, key)) = outside.taint.take() {
                        taint::remove(client, outside.settings.config.node_name.clone(), key);
                    }
                }
                Err(failure) if failure.reaction() == Reaction::Fatal => {
                    return Err(with_advice(failure));
                }
                Err(failure) => {
                    let wait = retry.postpone();
                    error!(
                        error = &failure as &dyn std::error::Error,
                        retry_in_s = wait.as_secs(),
                        "sync failed"
                    );
                }
            }
        }
    }

    /// The node's addresses are others, or Services' are.
    fn addresses_changed(&mut self, outside: &Outside, change: &AddressChange) {
        if change.own {
            self.engine.set_addresses(outside.addresses.local());
        }
        self.engine.lost_addresses(&change.lost, change.down);
    }

    /// Reports what the source brought.
    fn took_in(&mut self, complete: &mut bool, now: bool) {
        let Seen { services, slices } = self.engine.index().take_seen();
        self.status.changed(services, slices);
        self.status.node(NodeState::of(self.engine.index().node_is_eligible()));
        if let Source::Cluster(cluster) = &self.source {
            self.status.metrics.received(cluster.received());
        }
        match (*complete, now) {
            (false, true) => self.status.listed(),
            (false, false) => self.status.wait_for(self.source.waiting_for()),
            (true, _) => {}
        }
        *complete = now;
    }

    /// Brings a changed configuration into force.
    fn reconfigure(&mut self, outside: &Outside, difference: &Difference) {
        let config = &outside.settings.config;
        self.engine.set_config(config.clone());
        if difference.servers {
            outside.servers.reconfigure(config);
        }
        if difference.sysctls {
            make_settings(config, &self.status);
        }
        self.status.configured(config);
    }
}
