//! `zoneward run`: the agent.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};
use zw_dataplane::{Reaction, WriteError, Writer};

use crate::BadInput;
use crate::cli::{Mode, RunArgs};
use crate::index::Index;
use crate::state::{Event, StateSource};
use crate::sync::Engine;

/// How often the state's files are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How long after a failed sync the next try is made, doubling up to the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

pub(crate) fn run(args: RunArgs) -> anyhow::Result<()> {
    let RunArgs { node_name, state, mode: Mode::Nftables, once, plan } = args;
    let Some(state) = state else {
        bail!(BadInput("no source of Services: give --state PATH".into()));
    };
    let writer = Writer::start().map_err(with_advice)?;
    let engine = Engine::new(Index::new(&node_name), plan.config(), writer);
    let mut follower = Follower { source: StateSource::new(state), engine, complaints: 0 };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async { if once { follower.once().await } else { follower.follow().await } })
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

/// Carries what the files say to the kernel.
struct Follower {
    source: StateSource,
    engine: Engine,
    /// How many parts of the input could not be used so far.
    complaints: usize,
}

impl Follower {
    async fn once(&mut self) -> anyhow::Result<()> {
        if !self.look() {
            bail!(BadInput(format!("nothing in {} could be read", self.source.path().display())));
        }
        self.engine.sync().await.map_err(with_advice)
    }

    async fn follow(&mut self) -> anyhow::Result<()> {
        let mut terminated = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
        let mut interrupted = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut retry = Retry::default();
        loop {
            tokio::select! {
                _ = terminated.recv() => break,
                _ = interrupted.recv() => break,
                _ = ticks.tick() => {}
            }
            let readable = self.look();
            if !readable || retry.not_yet() {
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
        info!("stopped; rules stay in place, `zoneward cleanup` removes them");
        Ok(())
    }

    /// Takes in what the files say; false until something could be read, so that a broken folder at
    /// start does not empty a working kernel.
    fn look(&mut self) -> bool {
        let delta = self.source.poll();
        for complaint in &delta.complaints {
            self.complaints += 1;
            warn!(left_out = self.complaints, "{complaint}");
        }
        for event in delta.events {
            match event {
                Event::Apply(object) => self.engine.index().apply(object),
                Event::Delete(id) => self.engine.index().delete(&id),
            }
        }
        self.source.has_been_read()
    }
}

/// Waiting longer after each failure.
#[derive(Default)]
struct Retry {
    wait: Option<Duration>,
    until: Option<tokio::time::Instant>,
}

impl Retry {
    fn not_yet(&self) -> bool {
        self.until.is_some_and(|until| tokio::time::Instant::now() < until)
    }

    fn postpone(&mut self) -> Duration {
        let wait = self.wait.map_or(FIRST_RETRY, |wait| (wait * 2).min(LONGEST_RETRY));
        self.wait = Some(wait);
        self.until = Some(tokio::time::Instant::now() + wait);
        wait
    }
}
