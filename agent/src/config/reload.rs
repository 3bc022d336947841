//! The configuration file while the agent runs: looked at every second, and what a change means.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::file::File;
use super::{Config, ConfigError, Flags, Mode};

/// The host's own name, which a network namespace does not change.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Where the configuration comes from: flags, and a file if there is one.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    path: Option<PathBuf>,
    flags: Flags,
    host: String,
    /// What the file looked like when it was last read, and what it said.
    seen: Option<Stamp>,
    text: Option<String>,
}

/// Enough to see that a file is another one, or was written. A ConfigMap's symbolic links are followed.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}

/// A configuration that was read, with the fields of the file that have no effect.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) ignored: Vec<&'static str>,
}

impl ConfigFile {
    pub(crate) fn new(path: Option<PathBuf>, flags: Flags) -> Self {
        // Without it, the file or a flag has to name the node.
        let host = fs::read_to_string(HOST_NAME).unwrap_or_default();
        Self { path, flags, host, seen: None, text: None }
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Reads the file for the first time.
    pub(crate) fn load(&mut self) -> Result<Loaded, ConfigError> {
        let Some(path) = &self.path else {
            let config = Config::of(&self.flags, File::default(), &self.host)?;
            return Ok(Loaded { config, ignored: Vec::new() });
        };
        self.seen = Stamp::of(path).ok();
        let text = fs::read_to_string(path)
            .map_err(|error| ConfigError::new("", format!("cannot read it: {error}")))?;
        let loaded = self.parse(&text);
        self.text = Some(text);
        loaded
    }

    /// Looks again; `None` if it says the same as before.
    pub(crate) fn poll(&mut self) -> Option<Result<Loaded, ConfigError>> {
        let path = self.path.as_ref()?;
        let stamp = Stamp::of(path).ok();
        if stamp == self.seen {
            return None;
        }
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                self.seen = stamp;
                return Some(Err(ConfigError::new("", format!("cannot read it: {error}"))));
            }
        };
        self.seen = stamp;
        if self.text.as_ref() == Some(&text) {
            return None;
        }
        let loaded = self.parse(&text);
        self.text = Some(text);
        Some(loaded)
    }

    /// Reads the text of a file, with the flags over it.
    pub(crate) fn parse(&self, text: &str) -> Result<Loaded, ConfigError> {
        let (file, ignored) = File::parse(text)?;
        Ok(Loaded { config: Config::of(&self.flags, file, &self.host)?, ignored })
    }
}

/// What another configuration changes while the agent runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Where the servers listen.
    pub(crate) servers: bool,
    /// The kernel's settings.
    pub(crate) sysctls: bool,
    /// Anything that takes effect at once, these included.
    pub(crate) live: bool,
    /// Fields that take effect after a restart.
    pub(crate) restart: Vec<&'static str>,
}

impl Config {
    /// Takes over what can change while the agent runs, and says what did.
    pub(crate) fn update(&mut self, new: Config) -> Difference {
        let mut restart = Vec::new();
        let mut kept = |name, differs: bool| {
            if differs {
                restart.push(name);
            }
        };
        kept("mode", self.mode != new.mode);
        let timeouts =
            |c: &Config| (c.ipvs.tcp_timeout, c.ipvs.tcp_fin_timeout, c.ipvs.udp_timeout);
        kept("ipvs timeouts", self.mode == Mode::Ipvs && timeouts(self) != timeouts(&new));
        kept("clientConnection.kubeconfig", self.kubeconfig != new.kubeconfig);
        kept("clientConnection.contentType", self.content_type != new.content_type);
        kept("hostnameOverride", self.node_name != new.node_name);
        let new = Config {
            mode: self.mode,
            kubeconfig: self.kubeconfig.clone(),
            master: self.master.clone(),
            content_type: self.content_type,
            node_name: self.node_name.clone(),
            ..new
        };
        let difference = Difference {
            servers: (self.health, self.metrics, self.bind_hard_fail)
                != (new.health, new.metrics, new.bind_hard_fail),
            sysctls: (&self.conntrack, self.oom_score_adj) != (&new.conntrack, new.oom_score_adj),
            live: *self != new,
            restart,
        };
        *self = new;
        difference
    }
}
