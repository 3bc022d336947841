//! The command line as typed. Kept apart from what the commands do with it.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;
use zw_plan::{PlanConfig, Pods};

use crate::commands::simulate::SimulateArgs;
use crate::config::{Flags, IgnoredFlags};
use crate::metrics::connections::DEFAULT_LIMIT;

/// A node-local Service proxy for Kubernetes: a kube-proxy replacement that programs nftables through
/// netlink.
#[derive(Debug, Parser)]
#[command(name = "zoneward", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// What to log to standard error, as in RUST_LOG: `info`, `debug`, `zoneward=trace`.
    #[arg(
        long,
        global = true,
        env = "ZONEWARD_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub(crate) log: String,

    /// Log one JSON object a line.
    #[arg(long, global = true)]
    pub(crate) log_json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the agent: program this node's kernel and keep it up to date
    Run(Box<RunArgs>),
    /// Show what is programmed, per Service
    DumpRules(DumpRulesArgs),
    /// Probe the kernel and the permissions, one line per capability
    Check,
    /// Remove everything Zoneward put into the kernel, or what kube-proxy left there
    Cleanup(CleanupArgs),
    /// A dual-stack, three-zone node in private namespaces, with real packets and no cluster
    Demo(DemoArgs),
    /// Score slice-group algorithms
    Simulate(SimulateArgs),
    /// Print the version
    Version,
    /// Print a completion script for a shell
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// kube-proxy's KubeProxyConfiguration, YAML or JSON, followed while it changes. Flags win over it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// A file or folder of manifests instead of a cluster, followed while it changes.
    #[arg(long, value_name = "PATH")]
    pub(crate) state: Option<PathBuf>,

    /// First full sync, then exit; the rules stay.
    #[arg(long)]
    pub(crate) once: bool,

    /// Make the settings of the kernel that need more than NET_ADMIN, then exit.
    #[arg(long, conflicts_with = "once", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set, hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub(crate) init_only: bool,

    /// The same as `zoneward cleanup`.
    #[arg(long, conflicts_with_all = ["once", "init_only"], num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set, hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub(crate) cleanup: bool,

    /// At most this many Services in zoneward_service_connections_total, the busiest first.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT)]
    pub(crate) metrics_max_services: usize,

    /// Take this taint off the Node after the first sync. Needs the right to patch Nodes, which
    /// deploy/base does not give.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["state", "once"])]
    pub(crate) remove_taint: Option<String>,

    #[command(flatten)]
    pub(crate) flags: Flags,

    #[command(flatten)]
    pub(crate) ignored: IgnoredFlags,
}

/// Flags that decide what the rules look like.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Where pods live: traffic to Services from anywhere else leaves with the node's address.
    #[arg(long, value_name = "CIDR[,CIDR]", value_delimiter = ',')]
    pub(crate) cluster_cidr: Vec<IpNet>,

    /// The bit of the packet mark that means "masquerade".
    #[arg(long, default_value_t = 14, value_name = "BIT", value_parser = clap::value_parser!(u32).range(0..32))]
    pub(crate) masquerade_bit: u32,
}

impl PlanArgs {
    pub(crate) fn config(&self) -> PlanConfig {
        PlanConfig {
            pods: Pods::Ranges(self.cluster_cidr.iter().map(IpNet::trunc).collect()),
            masquerade_mark: 1 << self.masquerade_bit,
            ..PlanConfig::default()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct DumpRulesArgs {
    /// Only this Service, or only one port of it by name or number.
    #[arg(value_name = "NS/NAME[:PORT]")]
    pub(crate) service: Option<String>,

    /// Where to look: the kernel works with the agent dead.
    #[arg(long, value_enum, default_value_t = From::Kernel, conflicts_with = "state")]
    pub(crate) from: From,

    /// Manifests to plan from instead, without touching the kernel.
    #[arg(long, value_name = "PATH", requires = "node_name")]
    pub(crate) state: Option<PathBuf>,

    /// With --state: the node to plan for.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub(crate) node_name: Option<String>,

    /// The form.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,

    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum From {
    Kernel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
    Nft,
}

#[derive(Debug, Args)]
pub(crate) struct CleanupArgs {
    /// Remove the tables that kube-proxy left instead, and leave Zoneward's own alone. Stop kube-proxy
    /// first: it would write them again.
    #[arg(long)]
    pub(crate) kube_proxy: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keep the state folder and print where it is.
    #[arg(long)]
    pub(crate) keep: bool,
}
