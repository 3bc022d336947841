//! `zoneward run`: the agent.

mod settings;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, info, warn};
use zw_dataplane::{Reaction, WriteError, Writer};

use crate::BadInput;
use crate::addresses::Addresses;
use crate::attendants::Attendants;
use crate::cli::RunArgs;
use crate::cluster::Cluster;
use crate::config::{ConfigError, ConfigFile, Difference};
use crate::files::Files;
use crate::health_ports::HealthPortFailure;
use crate::index::Index;
use crate::sync::Engine;
use crate::sysctls;
use crate::watch::connect;
use settings::{Settings, tell_ignored};

/// How long after a failed sync the next try is made, doubling up to the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

pub(crate) fn run(args: RunArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let RunArgs { config: path, state, once, init_only, cleanup, flags, ignored } = args;
    if cleanup {
        return super::cleanup::run(out);
    }
    let mut file = ConfigFile::new(path, flags);
    let loaded = file.load().map_err(|error| unusable(&file, &error))?;
    let config = loaded.config;
    debug!(config = %config.show(), "configured");
    tell_ignored(ignored.given().into_iter().chain(loaded.ignored));
    if init_only {
        return Ok(sysctls::apply(Path::new("/"), &config)?);
    }
    let writer = Writer::start().map_err(with_advice)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let source = match state {
            Some(path) => Source::Files(Files::new(path)),
            None => {
                let (client, received) =
                    connect(config.kubeconfig.as_deref(), config.master.as_deref()).await?;
                Source::Cluster(Box::new(Cluster::new(client, received, &config.node_name)))
            }
        };
        if !once {
            sysctls::apply(Path::new("/"), &config)?;
        }
        let index = Index::new(&config.node_name).ignore_triggers_before(SystemTime::now());
        let addresses = Addresses::follow().await?;
        let (failures, failed) = unbounded_channel();
        let attendants = Attendants::new(|| true, failures);
        let engine = Engine::new(index, config.clone(), addresses.local(), attendants, writer);
        let settings = Settings::new(config, file);
        let mut agent = Agent { source, engine, settings, addresses, failed };
        if once { agent.once().await } else { agent.follow().await }
    })
}

/// Bad configuration is bad input, whether it came from the file or a flag.
fn unusable(file: &ConfigFile, error: &ConfigError) -> BadInput {
    match file.path() {
        Some(path) => BadInput(format!("cannot use the configuration {}: {error}", path.display())),
        None => BadInput(error.to_string()),
    }
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
}

/// Carries what the source says to the kernel.
struct Agent {
    source: Source,
    engine: Engine,
    settings: Settings,
    addresses: Addresses,
    /// Ports for load balancers that could not be opened.
    failed: UnboundedReceiver<HealthPortFailure>,
}

impl Agent {
    async fn once(&mut self) -> anyhow::Result<()> {
        while !self.source.changed(self.engine.index()).await {
            if let Source::Files(files) = &self.source {
                bail!(BadInput(format!("nothing in {} could be read", files.path().display())));
            }
        }
        self.engine.sync().await.map_err(with_advice)
    }

    async fn follow(&mut self) -> anyhow::Result<()> {
        let mut terminated = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
        let mut interrupted = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
        // A sync under way is left alone: its transaction lands or not, as a whole.
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
            outcome = self.work() => return outcome,
        }
        info!("stopped; rules stay in place, `zoneward cleanup` removes them");
        Ok(())
    }

    /// Brings a changed configuration into force.
    fn reconfigure(&mut self, difference: &Difference) {
        let config = &self.settings.config;
        self.engine.set_config(config.clone());
        if difference.sysctls
            && let Err(error) = sysctls::apply(Path::new("/"), config)
        {
            error!("{error}");
        }
    }

    /// Syncs after every change, and again after a failure. Ends only if that cannot help.
    async fn work(&mut self) -> anyhow::Result<()> {
        let mut retry = Retry::default();
        let mut complete = false;
        loop {
            tokio::select! {
                now = self.source.changed(self.engine.index()) => complete = now,
                difference = self.settings.changed() => self.reconfigure(&difference),
                _ = self.addresses.changed() => {
                    self.engine.set_addresses(self.addresses.local());
                }
                Some(failure) = self.failed.recv() => {
                    warn!("{failure}");
                    continue;
                }
                () = sleep_until(retry.until.unwrap_or_else(Instant::now)), if retry.until.is_some() => {}
            }
            if !complete || retry.not_yet() {
                continue;
            }
            match self.engine.sync().await {
                Ok(()) => retry = Retry::default(),
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
}

/// Waiting longer after each failure.
#[derive(Default)]
struct Retry {
    wait: Option<Duration>,
    until: Option<Instant>,
}

impl Retry {
    fn not_yet(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    fn postpone(&mut self) -> Duration {
        let wait = self.wait.map_or(FIRST_RETRY, |wait| (wait * 2).min(LONGEST_RETRY));
        self.wait = Some(wait);
        self.until = Some(Instant::now() + wait);
        wait
    }
}
