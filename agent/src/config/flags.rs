//! kube-proxy's flags. Those given win over the file, which kube-proxy does the other way round: whoever
//! types a flag means it.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ipnet::IpNet;

use super::values::{
    ContentType, Count, DetectLocalMode, ListenFlag, MarkBit, Mode, NodePortAddress, OomScore,
    Span, address, cidr,
};

/// How an endpoint is picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BalanceFlag {
    Random,
    Rr,
}

/// What may stand in the configuration file too.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Flags {
    /// This node's name, as in the Node object; without it, the file's hostnameOverride or the host name.
    #[arg(long, env = "NODE_NAME", value_name = "NAME", alias = "hostname-override")]
    pub(crate) node_name: Option<String>,

    /// How to reach the cluster; without it, as a pod's service account.
    #[arg(long, value_name = "FILE", conflicts_with = "state")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The API server's address, instead of the kubeconfig's.
    #[arg(long, value_name = "URL", conflicts_with = "state")]
    pub(crate) master: Option<String>,

    /// In what form the API server is asked for objects; application/json to be able to read it
    /// [default: application/vnd.kubernetes.protobuf]
    #[arg(long, value_name = "TYPE")]
    pub(crate) kube_api_content_type: Option<ContentType>,

    /// What picks endpoints: nftables or ipvs [default: nftables]
    #[arg(long, alias = "proxy-mode")]
    pub(crate) mode: Option<Mode>,

    /// Where pods live: traffic to Services from anywhere else leaves with the node's address.
    #[arg(long, value_name = "CIDR[,CIDR]", value_delimiter = ',', value_parser = cidr)]
    pub(crate) cluster_cidr: Option<Vec<IpNet>>,

    /// How to tell traffic of this node's pods: ClusterCIDR, NodeCIDR, BridgeInterface or
    /// InterfaceNamePrefix.
    #[arg(long, value_name = "MODE")]
    pub(crate) detect_local_mode: Option<DetectLocalMode>,

    /// With BridgeInterface: the bridge of this node's pods.
    #[arg(long, value_name = "NAME")]
    pub(crate) pod_bridge_interface: Option<String>,

    /// With InterfaceNamePrefix: how the names of this node's pods' interfaces begin.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) pod_interface_name_prefix: Option<String>,

    /// The node's primary address, instead of the Node object's.
    #[arg(long, value_name = "IP", value_parser = address)]
    pub(crate) bind_address: Option<IpAddr>,

    /// Where /healthz, /livez and /readyz are served; empty: nowhere [default: all addresses, port 10256]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) healthz_bind_address: Option<ListenFlag>,

    /// Where /metrics, /configz and /proxyMode are served; empty: nowhere [default: 127.0.0.1:10249]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) metrics_bind_address: Option<ListenFlag>,

    /// kube-proxy's older ways to name the two ports; 0: nowhere.
    #[arg(long, hide = true)]
    pub(crate) healthz_port: Option<u16>,
    #[arg(long, hide = true)]
    pub(crate) metrics_port: Option<u16>,

    /// Exit if one of these addresses cannot be had, instead of trying again.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) bind_address_hard_fail: Option<bool>,

    /// Where NodePorts are served: CIDRs, primary, localhost, all [default: primary]
    #[arg(long, value_name = "ADDRESS[,ADDRESS]", value_delimiter = ',')]
    pub(crate) nodeport_addresses: Option<Vec<NodePortAddress>>,

    /// Let all traffic to cluster IPs leave with the node's address.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) masquerade_all: Option<bool>,

    /// The bit of the packet mark that means "masquerade" [default: 14]
    #[arg(long, value_name = "BIT", alias = "iptables-masquerade-bit")]
    pub(crate) masquerade_bit: Option<MarkBit>,

    /// How an endpoint is picked: at random, or one after the other [default: random]
    #[arg(long, value_enum)]
    pub(crate) balance: Option<BalanceFlag>,

    /// A change that is not in the kernel after twice this time makes the node unhealthy; in the ipvs mode
    /// also how often the kernel is compared with what it should hold [default: 30s]
    #[arg(long, value_name = "DURATION", alias = "iptables-sync-period")]
    pub(crate) sync_period: Option<Span>,

    /// Without effect but checked, as kube-proxy's: what changes is written at once, and what changes
    /// meanwhile together [default: 1s]
    #[arg(long, value_name = "DURATION", alias = "iptables-min-sync-period")]
    pub(crate) min_sync_period: Option<Span>,

    /// Tracked connections per CPU; 0 leaves the kernel's limit [default: 32768]
    #[arg(long, value_name = "N")]
    pub(crate) conntrack_max_per_core: Option<Count>,

    /// Tracked connections at least, whatever the CPUs [default: 131072]
    #[arg(long, value_name = "N")]
    pub(crate) conntrack_min: Option<Count>,

    /// How long an idle TCP connection is remembered; 0s leaves it [default: 24h]
    #[arg(long, value_name = "DURATION")]
    pub(crate) conntrack_tcp_timeout_established: Option<Span>,

    /// How long a half-closed TCP connection is remembered; 0s leaves it [default: 1h]
    #[arg(long, value_name = "DURATION")]
    pub(crate) conntrack_tcp_timeout_close_wait: Option<Span>,

    /// Do not take packets outside of the TCP window for invalid.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) conntrack_tcp_be_liberal: Option<bool>,

    /// How long a UDP flow without an answer is remembered; 0s leaves it.
    #[arg(long, value_name = "DURATION")]
    pub(crate) conntrack_udp_timeout: Option<Span>,

    /// How long an answered UDP flow is remembered; 0s leaves it.
    #[arg(long, value_name = "DURATION")]
    pub(crate) conntrack_udp_timeout_stream: Option<Span>,

    /// Break off TCP connections to endpoints that are gone at their next packet, instead of when their
    /// client gives up.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) conntrack_tcp_cleanup: Option<bool>,

    /// How willingly the kernel kills this process for want of memory [default: -999]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) oom_score_adj: Option<OomScore>,

    #[command(flatten)]
    pub(crate) ipvs: IpvsFlags,
}

/// For the ipvs mode.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct IpvsFlags {
    #[arg(long, hide = true)]
    pub(crate) ipvs_sync_period: Option<Span>,
    #[arg(long, hide = true)]
    pub(crate) ipvs_min_sync_period: Option<Span>,
    #[arg(long, hide = true)]
    pub(crate) ipvs_scheduler: Option<String>,
    #[arg(long, hide = true, value_delimiter = ',', value_parser = cidr)]
    pub(crate) ipvs_exclude_cidrs: Option<Vec<IpNet>>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) ipvs_strict_arp: Option<bool>,
    #[arg(long, hide = true)]
    pub(crate) ipvs_tcp_timeout: Option<Span>,
    #[arg(long, hide = true)]
    pub(crate) ipvs_tcpfin_timeout: Option<Span>,
    #[arg(long, hide = true)]
    pub(crate) ipvs_udp_timeout: Option<Span>,
}

/// Accepted so that kube-proxy's command line works unchanged, without effect.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct IgnoredFlags {
    #[arg(long = "v", short = 'v', hide = true)]
    verbosity: Option<String>,
    #[arg(long, hide = true)]
    vmodule: Option<String>,
    #[arg(long, hide = true)]
    logging_format: Option<String>,
    #[arg(long, hide = true)]
    log_flush_frequency: Option<String>,
    #[arg(long, hide = true)]
    feature_gates: Option<String>,
    #[arg(long, hide = true)]
    config_sync_period: Option<String>,
    #[arg(long, hide = true)]
    kube_api_burst: Option<String>,
    #[arg(long, hide = true)]
    kube_api_qps: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    profiling: Option<String>,
    #[arg(long, hide = true)]
    show_hidden_metrics_for_version: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    iptables_localhost_nodeports: Option<String>,
}

impl IgnoredFlags {
    /// Those that were given, to be told. How much is logged is asked for so often that it is not.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        [
            (&self.vmodule, "--vmodule"),
            (&self.logging_format, "--logging-format"),
            (&self.log_flush_frequency, "--log-flush-frequency"),
            (&self.feature_gates, "--feature-gates"),
            (&self.config_sync_period, "--config-sync-period"),
            (&self.kube_api_burst, "--kube-api-burst"),
            (&self.kube_api_qps, "--kube-api-qps"),
            (&self.profiling, "--profiling"),
            (&self.show_hidden_metrics_for_version, "--show-hidden-metrics-for-version"),
            (&self.iptables_localhost_nodeports, "--iptables-localhost-nodeports"),
        ]
        .into_iter()
        .filter_map(|(value, name)| value.as_ref().map(|_| name))
        .collect()
    }
}
