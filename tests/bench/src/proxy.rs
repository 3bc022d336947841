//! The two proxies, started alike, and what can be seen of either from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use serde_json::json;
use zw_tests::binary::zoneward;
use zw_tests::control_plane::{Client, NodeProgram, build};

use crate::cluster::Cluster;
use crate::node::{CLUSTER_CIDR, Node};
use crate::shape::NODE_NAME;

/// The metrics both have.
const METRICS: &str = "http://127.0.0.1:10249";
/// When rules were written last, in seconds since 1970.
const LAST_SYNC: &str = "kubeproxy_sync_proxy_rules_last_timestamp_seconds";
/// What the first, full sync took.
const FULL_SYNC: &str = "kubeproxy_sync_full_proxy_rules_duration_seconds";
/// `USER_HZ`, the same on every Linux that /proc shows to people.
const TICKS_PER_SECOND: f64 = 100.0;
/// Longer than any start.
const PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(50);

static KUBE_PROXY: LazyLock<PathBuf> = LazyLock::new(|| {
    build(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/kube-proxy"))).join("kube-proxy")
});

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
pub enum Proxy {
    /// kube-proxy v1.37.1 in the mode nftables.
    KubeProxy,
    /// Zoneward, as it was built beside this program.
    Zoneward,
}

impl Proxy {
    pub(crate) const ALL: [Self; 2] = [Self::KubeProxy, Self::Zoneward];

    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::KubeProxy => "kube-proxy",
            Self::Zoneward => "Zoneward",
        }
    }

    /// The table it writes.
    pub(crate) fn table(self) -> &'static str {
        match self {
            Self::KubeProxy => "kube-proxy",
            Self::Zoneward => "zoneward",
        }
    }

    fn program(self) -> PathBuf {
        match self {
            Self::KubeProxy => KUBE_PROXY.clone(),
            Self::Zoneward => zoneward(),
        }
    }

    /// Starts it on a node. Both are given the same configuration, in which nothing but what the node
    /// demands differs from kube-proxy's defaults.
    pub(crate) fn start(self, cluster: &Cluster, node: &Node) -> Running {
        let config = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "hostnameOverride": NODE_NAME,
            "clusterCIDR": CLUSTER_CIDR,
            "clientConnection": {"kubeconfig": cluster.plane.kubeconfig()},
            // Settings of the machine, which a namespace cannot make.
            "conntrack": {
                "maxPerCore": 0, "min": 0,
                "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
                "udpTimeout": "0s", "udpStreamTimeout": "0s",
            },
        });
        let name = self.table();
        let config = cluster.plane.write_proxy_config(name, &config);
        let config = format!("--config={}", config.display());
        let args = match self {
            Self::KubeProxy => vec![config],
            Self::Zoneward => vec!["run".to_owned(), config],
        };
        let program = self.program();
        let (started, started_at) = (Instant::now(), SystemTime::now());
        let program = cluster.plane.start_on_node(node.namespace(), name, &program, &args);
        let metrics = Client::plain(node.namespace(), METRICS);
        Running { program, metrics, started, started_at }
    }
}

/// A proxy that runs; killed when dropped, and its rules stay.
pub(crate) struct Running {
    pub(crate) program: NodeProgram,
    metrics: Client,
    pub(crate) started: Instant,
    started_at: SystemTime,
}

/// What its first sync was.
pub(crate) struct FirstSync {
    /// From the start of the process until its end.
    pub(crate) after_start: f64,
    /// From its begin, when everything was listed, to its end.
    pub(crate) took: f64,
}

/// Memory of a process, in kB.
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) peak: u64,
}

impl Running {
    /// Waits for the first sync, as the proxy's own metrics tell of it.
    pub(crate) fn first_sync(&mut self) -> FirstSync {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(sync) = self.try_first_sync() {
                return sync;
            }
            self.program.assert_runs();
            assert!(Instant::now() < end, "no sync in time\n{}", self.program.log());
            std::thread::sleep(POLL);
        }
    }

    fn try_first_sync(&self) -> Option<FirstSync> {
        let text = self.metrics.get("/metrics").ok().filter(|reply| reply.ok())?.text;
        let count = of_ipv4(&text, &format!("{FULL_SYNC}_count"))?;
        let took = of_ipv4(&text, &format!("{FULL_SYNC}_sum"))? / count;
        let at = of_ipv4(&text, LAST_SYNC).filter(|at| *at > 0.0)?;
        let started = self.started_at.duration_since(SystemTime::UNIX_EPOCH);
        let started = started.expect("the clock is right").as_secs_f64();
        (count >= 1.0).then_some(FirstSync { after_start: at - started, took })
    }

    /// Seconds of CPU that it has used by now, with the programs it ran.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.program.id()));
        let stat = stat.expect("it runs");
        // The second field is a name in brackets and may hold anything; after it comes the third.
        let fields = stat.rsplit_once(')').expect("a name in brackets").1.split_whitespace();
        // utime, stime, cutime, cstime are the 14th to 17th.
        let ticks: f64 = fields.skip(11).take(4).map(|f| f.parse::<f64>().expect("ticks")).sum();
        ticks / TICKS_PER_SECOND
    }

    /// Its memory now.
    pub(crate) fn memory(&self) -> Memory {
        let status = fs::read_to_string(format!("/proc/{}/status", self.program.id()));
        let status = status.expect("it runs");
        let line = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            number.and_then(|number| number.parse().ok()).expect("a number of kB")
        };
        Memory { resident: line("VmRSS:"), peak: line("VmHWM:") }
    }
}

/// A metric of the family that is measured.
fn of_ipv4(text: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines();
    let line = lines.find(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'))
            && line.contains("ip_family=\"IPv4\"")
    });
    line?.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_its_whole_name_and_family() {
        let text = "# HELP x\nx_total{ip_family=\"IPv4\"} 3\nx{ip_family=\"IPv6\"} 4\n\
                    x{ip_family=\"IPv4\"} 1.5e+09\n";
        assert_eq!(of_ipv4(text, "x"), Some(1.5e9));
        assert_eq!(of_ipv4(text, "y"), None);
    }
}
