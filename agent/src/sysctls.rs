//! Settings of the kernel that the agent makes once, before anything else: how much connection tracking
//! remembers and for how long, and how willingly this process is killed for want of memory.
//!
//! A file is written only if it says something else. What nobody asked for and cannot be set, such as
//! from a container with a read-only /proc/sys, is told in one warning; what the operator asked for is
//! an error, though none that keeps an agent from its work.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use tracing::{info, warn};

use crate::config::{Config, Conntrack, Mode, Wanted};

/// However many CPUs: more than this is memory that nobody planned for.
const MOST_TRACKED: u64 = 1 << 20;

const CONNTRACK: &str = "proc/sys/net/netfilter";
const HASH_SIZE: &str = "sys/module/nf_conntrack/parameters/hashsize";
const OOM_SCORE: &str = "proc/self/oom_score_adj";
const ONLINE_CPUS: &str = "sys/devices/system/cpu/online";

/// Something that was asked for and could not be set.
#[derive(Debug, thiserror::Error)]
#[error("cannot make these settings of the kernel: {}", .0.join("; "))]
pub(crate) struct SysctlError(Vec<String>);

/// One file, and what it should say.
#[derive(Debug, PartialEq, Eq)]
struct Setting {
    file: String,
    value: i64,
    explicit: bool,
    /// A larger value is somebody's decision, or costs nothing.
    only_raise: bool,
}

/// Makes the settings below `root`, which is `/` outside of tests.
pub(crate) fn apply(root: &Path, config: &Config) -> Result<(), SysctlError> {
    let mut wanted = conntrack_settings(&config.conntrack, online_cpus(root));
    if config.mode == Mode::Ipvs {
        wanted.extend(ipvs_settings(config.ipvs.strict_arp));
    }
    let Wanted { value, explicit } = config.oom_score_adj;
    wanted.push(Setting {
        file: OOM_SCORE.into(),
        value: value.into(),
        explicit,
        only_raise: false,
    });
    let (mut asked_for, mut by_default) = (Vec::new(), Vec::new());
    for setting in wanted {
        if let Err(error) = set(root, &setting) {
            let failures = if setting.explicit { &mut asked_for } else { &mut by_default };
            failures.push(format!("{} = {}: {error}", setting.file, setting.value));
        }
    }
    if !by_default.is_empty() {
        warn!("left as they are: {}", by_default.join("; "));
    }
    if asked_for.is_empty() { Ok(()) } else { Err(SysctlError(asked_for)) }
}

fn conntrack_settings(conntrack: &Conntrack, cpus: u64) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut add = |file: String, value: u64, explicit: bool, only_raise: bool| {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        settings.push(Setting { file, value, explicit, only_raise });
    };
    if conntrack.max_per_core.value > 0 {
        let scaled = u64::from(conntrack.max_per_core.value) * cpus;
        let most = scaled.min(MOST_TRACKED).max(conntrack.min.value.into());
        let explicit = conntrack.max_per_core.explicit || conntrack.min.explicit;
        add(format!("{CONNTRACK}/nf_conntrack_max"), most, explicit, !explicit);
        add(HASH_SIZE.into(), most / 4, explicit, true);
    }
    let liberal = u64::from(conntrack.tcp_be_liberal);
    let timeout = |wanted: Duration| wanted.as_secs();
    for (name, value, explicit) in [
        (
            "nf_conntrack_tcp_timeout_established",
            timeout(conntrack.tcp_established.value),
            conntrack.tcp_established.explicit,
        ),
        (
            "nf_conntrack_tcp_timeout_close_wait",
            timeout(conntrack.tcp_close_wait.value),
            conntrack.tcp_close_wait.explicit,
        ),
        ("nf_conntrack_tcp_be_liberal", liberal, true),
        ("nf_conntrack_udp_timeout", timeout(conntrack.udp), true),
        ("nf_conntrack_udp_timeout_stream", timeout(conntrack.udp_stream), true),
    ] {
        // 0 leaves the kernel's own.
        if value > 0 {
            add(format!("{CONNTRACK}/{name}"), value, explicit, false);
        }
    }
    settings
}

/// As kube-proxy in its ipvs mode: packets are forwarded, and where asked for, nobody is told that this
/// node has a Service's address.
fn ipvs_settings(strict_arp: bool) -> Vec<Setting> {
    let setting = |file: &str, value, explicit| Setting {
        file: format!("proc/sys/net/ipv4/{file}"),
        value,
        explicit,
        only_raise: false,
    };
    let mut settings = vec![setting("ip_forward", 1, false)];
    if strict_arp {
        settings.push(setting("conf/all/arp_ignore", 1, true));
        settings.push(setting("conf/all/arp_announce", 2, true));
    }
    settings
}

fn set(root: &Path, setting: &Setting) -> io::Result<()> {
    let path = root.join(&setting.file);
    let is: i64 = fs::read_to_string(&path)?.trim().parse().map_err(io::Error::other)?;
    if is == setting.value || (setting.only_raise && is > setting.value) {
        return Ok(());
    }
    fs::write(&path, setting.value.to_string())?;
    info!(file = setting.file, was = is, is = setting.value, "set");
    Ok(())
}

/// Not those this process may use: a container's limit says nothing of the node's connections.
fn online_cpus(root: &Path) -> u64 {
    let text = fs::read_to_string(root.join(ONLINE_CPUS)).unwrap_or_default();
    let count = text.trim().split(',').try_fold(0, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        Some(sum + (last + 1).checked_sub(first)?)
    });
    let here = || std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    count.filter(|cpus| *cpus > 0).unwrap_or_else(here)
}

#[cfg(test)]
mod tests;
