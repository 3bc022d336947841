//! The command line as typed. Kept apart from what the commands do with it.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use ipnet::IpNet;
use zw_model::Scheduler;
use zw_plan::{PlanConfig, Pods};

use crate::commands::controller::ControllerArgs;
use crate::commands::simulate::SimulateArgs;
use crate::complete::services;
use crate::config::{Flags, IgnoredFlags, Mode};
use crate::inspect::filter::Place;
use crate::inspect::socket;
use crate::metrics::connections::DEFAULT_LIMIT;
use crate::screen::Colour;

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
    DumpRules(Box<DumpRulesArgs>),
    /// Tell why a Service is answered, or not, and by whom
    Explain(Box<ExplainArgs>),
    /// Follow one packet through the rules
    Trace(Box<TraceArgs>),
    /// Compare what should be in the kernel with what is; exit code 1 if they differ
    Diff(Box<DiffArgs>),
    /// Watch the busiest Services, and how evenly their endpoints are used
    Top(TopArgs),
    /// Ask the agent whether its first sync is in the kernel; exit code 1 and why, if not
    Ready(ReadyArgs),
    /// Probe the kernel and the permissions, one line per capability
    Check(CheckArgs),
    /// Remove everything Zoneward put into the kernel, or what kube-proxy left there
    Cleanup(CleanupArgs),
    /// A dual-stack, three-zone node in private namespaces, with real packets and no cluster
    Demo(DemoArgs),
    /// Run the zone-slice controller: publish EndpointSlices per zone
    Controller(Box<ControllerArgs>),
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

    /// Where this agent answers root's questions (`--from agent`); empty: nowhere.
    #[arg(long, env = "ZONEWARD_SOCKET", default_value = socket::DEFAULT_PATH, value_name = "PATH")]
    pub(crate) socket: String,

    /// Serve a page for people at /status, beside the metrics. Read-only.
    #[arg(long)]
    pub(crate) status_page: bool,

    /// Take this taint off the Node after the first sync. Needs the right to patch Nodes, which
    /// deploy/components/taint gives and deploy/base does not.
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

    /// With --state: the mode to plan for, nftables or ipvs [default: nftables]
    #[arg(long, requires = "state")]
    pub(crate) mode: Option<Mode>,

    /// With --mode ipvs: the scheduler of Services that ask for no other [default: rr]
    #[arg(long, requires = "mode", value_name = "NAME[,FLAG]")]
    pub(crate) ipvs_scheduler: Option<Scheduler>,
}

impl PlanArgs {
    pub(crate) fn config(&self) -> PlanConfig {
        PlanConfig {
            pods: Pods::Ranges(self.cluster_cidr.iter().map(IpNet::trunc).collect()),
            masquerade_mark: 1 << self.masquerade_bit,
            ipvs: (self.mode == Some(Mode::Ipvs))
                .then(|| self.ipvs_scheduler.clone().unwrap_or_default()),
            ..PlanConfig::default()
        }
    }
}

/// For text.
#[derive(Debug, Args)]
pub(crate) struct ColorArgs {
    /// When to use colour.
    #[arg(long, value_enum, default_value_t = Colour::Auto, value_name = "WHEN")]
    pub(crate) color: Colour,
}

/// How to reach a running agent.
#[derive(Debug, Args)]
pub(crate) struct SocketArgs {
    /// Where the agent answers root.
    #[arg(long, env = "ZONEWARD_SOCKET", default_value = socket::DEFAULT_PATH, value_name = "PATH")]
    socket: PathBuf,
}

impl SocketArgs {
    pub(crate) fn path(&self) -> &Path {
        &self.socket
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReadyArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
}

/// Manifests instead of an agent or the kernel.
#[derive(Debug, Args)]
pub(crate) struct ManifestsArgs {
    /// Manifests to plan from instead of asking the agent or the kernel.
    #[arg(long, value_name = "PATH", requires = "node_name")]
    state: Option<PathBuf>,

    /// With --state: the node to plan for.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: Option<String>,
}

impl ManifestsArgs {
    /// Where they are and which node they are seen from; `None` if none are meant.
    pub(crate) fn given(&self) -> Option<(&Path, &str)> {
        Some((self.state.as_deref()?, self.node_name.as_deref()?))
    }
}

#[derive(Debug, Args)]
pub(crate) struct DumpRulesArgs {
    /// Only this Service, or only one port of it by name or number.
    #[arg(value_name = "NS/NAME[:PORT]", add = ArgValueCompleter::new(services))]
    pub(crate) service: Option<String>,

    /// Only Services of this namespace.
    #[arg(short, long, value_name = "NS")]
    pub(crate) namespace: Option<String>,

    /// Only what is reached at this address.
    #[arg(long, value_name = "IP[:PORT]")]
    pub(crate) address: Option<Place>,

    /// Only what has this endpoint, in use or not.
    #[arg(long, value_name = "IP[:PORT]")]
    pub(crate) endpoint: Option<Place>,

    /// Where to look: the kernel works with the agent dead, the agent knows why.
    #[arg(long, value_enum, default_value_t = From::Kernel, conflicts_with = "state")]
    pub(crate) from: From,

    #[command(flatten)]
    pub(crate) manifests: ManifestsArgs,

    /// The form.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,

    #[command(flatten)]
    pub(crate) color: ColorArgs,

    #[command(flatten)]
    pub(crate) socket: SocketArgs,

    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum From {
    Kernel,
    Agent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
    Nft,
}

/// The forms of what is no ruleset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoryOutput {
    Text,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The Service, or only one port of it by name or number.
    #[arg(value_name = "NS/NAME[:PORT]", add = ArgValueCompleter::new(services))]
    pub(crate) service: String,

    #[command(flatten)]
    pub(crate) manifests: ManifestsArgs,

    /// The form.
    #[arg(short, long, value_enum, default_value_t = StoryOutput::Text)]
    pub(crate) output: StoryOutput,

    #[command(flatten)]
    pub(crate) color: ColorArgs,

    #[command(flatten)]
    pub(crate) socket: SocketArgs,

    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// The client's address, or `node` for the node itself.
    #[arg(value_name = "SRC")]
    pub(crate) from: String,

    /// Where it sends to: an address and port, or a Service's port by name or number.
    #[arg(value_name = "DST:PORT[/PROTOCOL]")]
    pub(crate) to: String,

    /// The interface it comes in through, where rules tell pods by that.
    #[arg(long = "in", value_name = "INTERFACE", default_value = "")]
    pub(crate) interface: String,

    /// Wait for a real packet and show its way, by nftables' own trace.
    #[arg(long, conflicts_with = "state")]
    pub(crate) live: bool,

    /// With --live: how many seconds to wait for one.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) wait: u32,

    #[command(flatten)]
    pub(crate) manifests: ManifestsArgs,

    /// The form.
    #[arg(short, long, value_enum, default_value_t = StoryOutput::Text)]
    pub(crate) output: StoryOutput,

    #[command(flatten)]
    pub(crate) color: ColorArgs,

    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Only this Service.
    #[arg(value_name = "NS/NAME", add = ArgValueCompleter::new(services))]
    pub(crate) service: Option<String>,

    #[command(flatten)]
    pub(crate) manifests: ManifestsArgs,

    /// Compare again every so many seconds, and tell of every change.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2")]
    pub(crate) watch: Option<NonZeroU32>,

    /// The form.
    #[arg(short, long, value_enum, default_value_t = StoryOutput::Text)]
    pub(crate) output: StoryOutput,

    #[command(flatten)]
    pub(crate) color: ColorArgs,

    #[command(flatten)]
    pub(crate) socket: SocketArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// How many seconds lie between two looks.
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) every: u32,

    /// End after so many looks.
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<u32>,

    /// How many Service ports to show.
    #[arg(long, default_value_t = 30, value_name = "N")]
    pub(crate) services: usize,

    #[command(flatten)]
    pub(crate) color: ColorArgs,

    #[command(flatten)]
    pub(crate) socket: SocketArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CleanupArgs {
    /// Remove the tables that kube-proxy left instead, and leave Zoneward's own alone. Stop kube-proxy
    /// first: it would write them again.
    #[arg(long)]
    pub(crate) kube_proxy: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The mode whose needs must be met: nftables or ipvs [default: nftables]
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keep the state folder and print where it is.
    #[arg(long)]
    pub(crate) keep: bool,
}
