//! `zoneward run`: the agent.

use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};
use tracing::{error, info};
use zw_dataplane::{Reaction, WriteError, Writer};

use crate::BadInput;
use crate::cli::{Mode, RunArgs};
use crate::cluster::Cluster;
use crate::files::Files;
use crate::index::Index;
use crate::sync::Engine;
use crate::watch::connect;

/// How long after a failed sync the next try is made, doubling up to the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

pub(crate) fn run(args: RunArgs) -> anyhow::Result<()> {
    let RunArgs { node_name, state, kubeconfig, mode: Mode::Nftables, once, plan } = args;
    let writer = Writer::start().map_err(with_advice)?;
    let index = Index::new(&node_name).ignore_triggers_before(SystemTime::now());
    let engine = Engine::new(index, plan.config(), writer);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let source = match state {
            Some(path) => Source::Files(Files::new(path)),
            None => {
                let (client, received) = connect(kubeconfig.as_deref()).await?;
                Source::Cluster(Box::new(Cluster::new(client, received, &node_name)))
            }
        };
        let mut agent = Agent { source, engine };
        if once { agent.once().await } else { agent.follow().await }
    })
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

    /// Syncs after every change, and again after a failure. Ends only if that cannot help.
    async fn work(&mut self) -> anyhow::Result<()> {
        let mut retry = Retry::default();
        let mut complete = false;
        loop {
            tokio::select! {
                now = self.source.changed(self.engine.index()) => complete = now,
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
