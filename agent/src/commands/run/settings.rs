//! The configuration while the agent runs: looked at every second, told what became of a change.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{error, info, warn};

use crate::config::{Config, ConfigFile, Difference};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The configuration in force, and where the next one will come from.
pub(super) struct Settings {
    pub(super) config: Config,
    file: ConfigFile,
    looks: Interval,
}

impl Settings {
    pub(super) fn new(config: Config, file: ConfigFile) -> Self {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { config, file, looks }
    }

    /// Waits for a change that takes effect while the agent runs. A file that cannot be used is told, and
    /// changes nothing.
    pub(super) async fn changed(&mut self) -> Difference {
        loop {
            self.looks.tick().await;
            let loaded = match self.file.poll() {
                None => continue,
                Some(Err(error)) => {
                    error!(%error, "the configuration cannot be used; the one before stays in force");
                    continue;
                }
                Some(Ok(loaded)) => loaded,
            };
            tell_ignored(loaded.ignored.into_iter());
            let difference = self.config.update(loaded.config);
            if !difference.restart.is_empty() {
                warn!("takes effect after a restart: {}", difference.restart.join(", "));
            }
            if difference.live {
                info!("configuration changed");
                return difference;
            }
        }
    }
}

/// Names what has no effect.
pub(super) fn tell_ignored<'a>(names: impl Iterator<Item = &'a str>) {
    let names: Vec<&str> = names.collect();
    if !names.is_empty() {
        warn!("ignored: {}", names.join(", "));
    }
}
