//! What the operator wants, from kube-proxy's configuration file and flags: one validated [`Config`].
//!
//! [`mod@file`] and [`flags`] read, [`values`] knows how single values are written, and here they come
//! together: a flag wins over the file, the file over the default. Nothing here touches the kernel.

mod file;
mod flags;
mod reload;
mod show;
mod values;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use zw_model::Scheduler;
use zw_plan::Balance;

use file::File;
use flags::BalanceFlag;
pub(crate) use flags::{Flags, IgnoredFlags};
pub(crate) use reload::{ConfigFile, Difference};
pub(crate) use values::{ContentType, Mode};
use values::{Count, DetectLocalMode, Listen, ListenFlag, NodePortAddress, Span};

const HEALTH_PORT: u16 = 10256;
const METRICS_PORT: u16 = 10249;

/// Everything that was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) node_name: String,
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The API server's address, instead of the kubeconfig's.
    pub(crate) master: Option<String>,
    /// In what form it is asked for objects.
    pub(crate) content_type: ContentType,
    pub(crate) mode: Mode,
    /// The node's primary address, where the operator knows better than the Node object.
    pub(crate) node_address: Option<IpAddr>,
    /// `None`: not served.
    pub(crate) health: Option<SocketAddr>,
    pub(crate) metrics: Option<SocketAddr>,
    /// A server that cannot have its address ends the agent.
    pub(crate) bind_hard_fail: bool,
    pub(crate) cluster_cidrs: Vec<IpNet>,
    pub(crate) detect_local: DetectLocal,
    pub(crate) node_port_addresses: NodePortAddresses,
    pub(crate) masquerade_all: bool,
    pub(crate) masquerade_bit: u32,
    pub(crate) balance: Balance,
    /// A queued change that is not in the kernel after twice this time makes the node unhealthy.
    pub(crate) sync_period: Duration,
    /// Checked and shown, without effect.
    pub(crate) min_sync_period: Duration,
    pub(crate) conntrack: Conntrack,
    pub(crate) oom_score_adj: Wanted<i32>,
    pub(crate) ipvs: Ipvs,
}

/// How traffic of this node's pods is told apart from all other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DetectLocal {
    /// By [`Config::cluster_cidrs`]; without any, not at all.
    ClusterCidr,
    /// By the Node's `spec.podCIDRs`.
    NodeCidr,
    BridgeInterface(String),
    InterfaceNamePrefix(String),
}

/// The node's addresses that NodePorts are served on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodePortAddresses {
    pub(crate) cidrs: Vec<IpNet>,
    pub(crate) primary: bool,
    pub(crate) localhost: bool,
    pub(crate) all: bool,
}

/// Settings of the kernel's connection tracking. A duration of 0 leaves the kernel's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conntrack {
    /// 0 leaves the kernel's limit.
    pub(crate) max_per_core: Wanted<u32>,
    pub(crate) min: Wanted<u32>,
    pub(crate) tcp_established: Wanted<Duration>,
    pub(crate) tcp_close_wait: Wanted<Duration>,
    /// False leaves the kernel's own.
    pub(crate) tcp_be_liberal: bool,
    pub(crate) udp: Duration,
    pub(crate) udp_stream: Duration,
    /// TCP flows to endpoints that are gone are removed, as UDP flows always are.
    pub(crate) tcp_cleanup: bool,
}

/// A setting, and whether somebody asked for it: if so, failing to make it is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted<T> {
    pub(crate) value: T,
    pub(crate) explicit: bool,
}

/// Settings of the ipvs mode. A duration of 0 leaves the kernel's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ipvs {
    pub(crate) sync_period: Duration,
    pub(crate) min_sync_period: Duration,
    /// Round robin if empty. See [`Ipvs::scheduler`].
    pub(crate) scheduler: String,
    /// Shown, without effect: nobody else's virtual server is ever removed.
    pub(crate) exclude_cidrs: Vec<IpNet>,
    pub(crate) strict_arp: bool,
    pub(crate) tcp_timeout: Duration,
    pub(crate) tcp_fin_timeout: Duration,
    pub(crate) udp_timeout: Duration,
}

impl Ipvs {
    /// As configured, round robin if nothing is.
    pub(crate) fn scheduler(&self) -> Scheduler {
        self.checked_scheduler().unwrap_or_default()
    }

    fn checked_scheduler(&self) -> Result<Scheduler, String> {
        if self.scheduler.is_empty() { Ok(Scheduler::default()) } else { self.scheduler.parse() }
    }
}

/// A setting that cannot be used, by where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigError {
    field: String,
    message: String,
}

impl ConfigError {
    fn new(field: &str, message: String) -> Self {
        // A path of "." is the document itself.
        Self { field: if field == "." { String::new() } else { field.to_owned() }, message }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

impl Config {
    /// Puts flags, file and defaults together. `host` is the node's name if nobody else knows one.
    fn of(flags: &Flags, file: File, host: &str) -> Result<Self, ConfigError> {
        let bind_address = flags.bind_address.or(file.bind_address);
        let mode = flags.mode.or(file.mode);
        let explicitly_nftables = mode == Some(Mode::Nftables);
        let mode = mode.unwrap_or(Mode::Nftables);
        let (ipvs_settings, by_ipvs) = (ipvs(flags, &file), mode == Mode::Ipvs);
        if by_ipvs && let Err(message) = ipvs_settings.checked_scheduler() {
            return Err(ConfigError::new("ipvs.scheduler", message));
        }
        // In its default mode, and in the ipvs mode, kube-proxy reads the settings of iptables.
        let sync_period = file
            .nftables
            .sync_period
            .or_else(|| file.iptables.sync_period.filter(|_| !explicitly_nftables));
        let min_sync_period = file
            .nftables
            .min_sync_period
            .or_else(|| file.iptables.min_sync_period.filter(|_| !explicitly_nftables));
        let masquerade_all = match file.nftables.masquerade_all {
            Some(all) if explicitly_nftables => all,
            all => all.unwrap_or_default() || file.iptables.masquerade_all,
        };
        let sync_period = sync_period.filter(|_| !by_ipvs);
        let sync_period =
            flags.sync_period.or(sync_period).map_or(ipvs_settings.sync_period, |s| s.0);
        let min_sync_period =
            flags.min_sync_period.or(min_sync_period).map_or(Duration::from_secs(1), |s| s.0);
        if sync_period.is_zero() {
            return Err(ConfigError::new("--sync-period", "0s is too short: write 30s".into()));
        }
        if min_sync_period > sync_period {
            return Err(ConfigError::new(
                "nftables.minSyncPeriod",
                format!(
                    "{} is longer than syncPeriod, {}",
                    Span(min_sync_period),
                    Span(sync_period)
                ),
            ));
        }
        let name = flags.node_name.as_deref().or(file.hostname_override.as_deref()).unwrap_or(host);
        let node_name = name.trim().to_lowercase();
        if node_name.is_empty() {
            return Err(ConfigError::new(
                "hostnameOverride",
                "missing, and the host has no name: write --node-name NAME".into(),
            ));
        }
        let cluster_cidrs =
            flags.cluster_cidr.clone().or(file.cluster_cidr.clone().map(|cidrs| cidrs.0));
        let bit = flags.masquerade_bit.or(file.nftables.masquerade_bit);
        let bit = bit.or(file.iptables.masquerade_bit).map_or(14, |bit| bit.0);
        let health = Server {
            flag: flags.healthz_bind_address,
            port_flag: flags.healthz_port,
            file: file.healthz_bind_address,
            // Both families; a host without IPv6 gets the other one, see `serve`.
            default: SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), HEALTH_PORT),
        };
        let v6 = bind_address.is_some_and(|ip| ip.is_ipv6());
        let loopback: IpAddr =
            if v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
        let metrics = Server {
            flag: flags.metrics_bind_address,
            port_flag: flags.metrics_port,
            file: file.metrics_bind_address,
            default: SocketAddr::new(loopback, METRICS_PORT),
        };
        Ok(Self {
            node_name,
            kubeconfig: flags.kubeconfig.clone().or(file.client_connection.kubeconfig.clone()),
            master: flags.master.clone(),
            content_type: flags
                .kube_api_content_type
                .or(file.client_connection.content_type)
                .unwrap_or_default(),
            mode,
            node_address: bind_address.filter(|ip| !ip.is_unspecified()),
            health: health.address(),
            metrics: metrics.address(),
            bind_hard_fail: flags
                .bind_address_hard_fail
                .or(file.bind_address_hard_fail)
                .unwrap_or_default(),
            cluster_cidrs: cluster_cidrs.unwrap_or_default(),
            detect_local: detect_local(flags, &file)?,
            node_port_addresses: node_port_addresses(flags, &file, by_ipvs)?,
            masquerade_all: flags.masquerade_all.unwrap_or(masquerade_all),
            masquerade_bit: u32::try_from(bit).expect("a MarkBit is 0 to 31"),
            balance: match flags.balance {
                Some(BalanceFlag::Rr) => Balance::RoundRobin,
                Some(BalanceFlag::Random) | None => Balance::Random,
            },
            sync_period,
            min_sync_period,
            conntrack: conntrack(flags, &file),
            oom_score_adj: wanted(flags.oom_score_adj.or(file.oom_score_adj).map(|s| s.0), -999),
            ipvs: ipvs_settings,
        })
    }

    /// What nothing but a host name gives.
    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        tests::defaults()
    }
}

/// Where a server's address may come from.
struct Server {
    flag: Option<ListenFlag>,
    port_flag: Option<u16>,
    file: Option<Listen>,
    default: SocketAddr,
}

impl Server {
    fn address(self) -> Option<SocketAddr> {
        let port = self.default.port();
        let mut address = match (self.flag, self.file) {
            (Some(ListenFlag::Off), _) => return None,
            (Some(ListenFlag::At(listen)), _) | (None, Some(listen)) => listen.or_port(port),
            (None, None) => self.default,
        };
        if let Some(port) = self.port_flag {
            address.set_port(port);
        }
        (address.port() > 0).then_some(address)
    }
}

fn detect_local(flags: &Flags, file: &File) -> Result<DetectLocal, ConfigError> {
    let interface = |flag: &Option<String>, field: &Option<String>, name: &str, mode: &str| {
        flag.clone().or_else(|| field.clone()).ok_or_else(|| {
            let message = format!("missing, and detectLocalMode {mode} needs it");
            ConfigError::new(&format!("detectLocal.{name}"), message)
        })
    };
    let local = &file.detect_local;
    match flags.detect_local_mode.or(file.detect_local_mode) {
        None | Some(DetectLocalMode::ClusterCidr) => Ok(DetectLocal::ClusterCidr),
        Some(DetectLocalMode::NodeCidr) => Ok(DetectLocal::NodeCidr),
        Some(mode @ DetectLocalMode::BridgeInterface) => {
            let flag = &flags.pod_bridge_interface;
            let name = interface(flag, &local.bridge_interface, "bridgeInterface", mode.as_str())?;
            Ok(DetectLocal::BridgeInterface(name))
        }
        Some(mode @ DetectLocalMode::InterfaceNamePrefix) => {
            let flag = &flags.pod_interface_name_prefix;
            let field = &local.interface_name_prefix;
            let prefix = interface(flag, field, "interfaceNamePrefix", mode.as_str())?;
            Ok(DetectLocal::InterfaceNamePrefix(prefix))
        }
    }
}

/// Where nothing is said, kube-proxy serves them on all addresses in the ipvs mode.
fn node_port_addresses(
    flags: &Flags,
    file: &File,
    all: bool,
) -> Result<NodePortAddresses, ConfigError> {
    let entries = flags.nodeport_addresses.as_ref().unwrap_or(&file.node_port_addresses);
    if entries.is_empty() {
        return Ok(NodePortAddresses { primary: !all, all, ..NodePortAddresses::default() });
    }
    let mut addresses = NodePortAddresses::default();
    for (i, entry) in entries.iter().enumerate() {
        if entries[..i].contains(entry) {
            let field = format!("nodePortAddresses[{i}]");
            return Err(ConfigError::new(&field, format!("{entry} stands there twice")));
        }
        match entry {
            NodePortAddress::Range(net) => addresses.cidrs.push(*net),
            NodePortAddress::Primary => addresses.primary = true,
            NodePortAddress::Localhost => addresses.localhost = true,
            NodePortAddress::All => addresses.all = true,
        }
    }
    Ok(addresses)
}

fn conntrack(flags: &Flags, file: &File) -> Conntrack {
    let count = |count: Count| u32::try_from(count.0).expect("a Count is not negative");
    let seconds = |span: Span| span.0;
    let file = &file.conntrack;
    let established = flags.conntrack_tcp_timeout_established.or(file.tcp_established_timeout);
    let close_wait = flags.conntrack_tcp_timeout_close_wait.or(file.tcp_close_wait_timeout);
    Conntrack {
        max_per_core: wanted(
            flags.conntrack_max_per_core.or(file.max_per_core).map(count),
            32 * 1024,
        ),
        min: wanted(flags.conntrack_min.or(file.min).map(count), 128 * 1024),
        tcp_established: wanted(established.map(seconds), Duration::from_secs(24 * 3600)),
        tcp_close_wait: wanted(close_wait.map(seconds), Duration::from_secs(3600)),
        tcp_be_liberal: flags.conntrack_tcp_be_liberal.or(file.tcp_be_liberal).unwrap_or_default(),
        udp: flags.conntrack_udp_timeout.or(file.udp_timeout).unwrap_or_default().0,
        udp_stream: flags
            .conntrack_udp_timeout_stream
            .or(file.udp_stream_timeout)
            .unwrap_or_default()
            .0,
        tcp_cleanup: flags.conntrack_tcp_cleanup.unwrap_or_default(),
    }
}

fn ipvs(flags: &Flags, file: &File) -> Ipvs {
    let (flags, file) = (&flags.ipvs, &file.ipvs);
    let listed = file.exclude_cidrs.iter().map(|cidr| cidr.0);
    Ipvs {
        sync_period: flags
            .ipvs_sync_period
            .or(file.sync_period)
            .map_or(Duration::from_secs(30), |span| span.0),
        min_sync_period: flags.ipvs_min_sync_period.or(file.min_sync_period).unwrap_or_default().0,
        scheduler: flags
            .ipvs_scheduler
            .clone()
            .or_else(|| file.scheduler.clone())
            .unwrap_or_default(),
        exclude_cidrs: flags.ipvs_exclude_cidrs.clone().unwrap_or_else(|| listed.collect()),
        strict_arp: flags.ipvs_strict_arp.or(file.strict_arp).unwrap_or_default(),
        tcp_timeout: flags.ipvs_tcp_timeout.or(file.tcp_timeout).unwrap_or_default().0,
        tcp_fin_timeout: flags.ipvs_tcpfin_timeout.or(file.tcp_fin_timeout).unwrap_or_default().0,
        udp_timeout: flags.ipvs_udp_timeout.or(file.udp_timeout).unwrap_or_default().0,
    }
}

fn wanted<T>(asked_for: Option<T>, default: T) -> Wanted<T> {
    let explicit = asked_for.is_some();
    Wanted { value: asked_for.unwrap_or(default), explicit }
}

#[cfg(test)]
mod tests;
