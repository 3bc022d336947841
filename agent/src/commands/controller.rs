//! `zoneward controller`: the zone-slice controller, with its probes and metrics.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{ArgAction, Args};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tracing::{error, info};
use zw_controller::settings::{Settings, algorithm};
use zw_controller::{Config, LeaseName, Metrics, Status, run as run_controller};
use zw_topology::Algorithm;

use crate::http::{TEXT, accept, listen, metrics, not_found, ok_if, respond};
use crate::watch::connect;

/// How long after a failure an address is tried again.
const RETRY: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct ControllerArgs {
    /// How to reach the cluster; without it, as the pod this runs in.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The API server's address, if not the kubeconfig's.
    #[arg(long, value_name = "URL")]
    master: Option<String>,

    /// Say what would be written, and end.
    #[arg(long)]
    dry_run: bool,

    /// How Services that prefer their zone are divided: fair, local or local-shared.
    #[arg(long, value_name = "NAME", default_value = "fair", value_parser = algorithm)]
    algorithm: Algorithm,

    /// Overload no endpoint may reach, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=1000))]
    overload_threshold: u32,

    /// Endpoints for each zone around which Prefer starts and stops.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    starting_threshold: u32,

    /// How many endpoints above that Prefer starts, and below it stops.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    padding: u32,

    /// Most endpoints in one slice.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_endpoints_per_slice: u32,

    /// Mirror Endpoints too, for clusters in which no kube-controller-manager does.
    #[arg(long)]
    mirror_endpoints: bool,

    /// Seconds that agents get to see new slices before they have to rely on them.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    settle: u64,

    /// Writes to the API server in a second.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    kube_api_qps: u32,

    /// Writes at once, after a quiet time.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    kube_api_burst: u32,

    /// Services that are written to at a time.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    concurrent_syncs: u32,

    /// Of several controllers let one work.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    leader_elect: bool,

    /// Where the Lease is.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE", default_value = "kube-system")]
    leader_elect_namespace: String,

    /// Who this one is among several; by default the host and the process.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    identity: Option<String>,

    /// Where /healthz, /readyz and /metrics are served.
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:10258")]
    bind_address: SocketAddr,
}

impl ControllerArgs {
    fn config(&self) -> Config {
        let identity = self.identity.clone().unwrap_or_else(|| {
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            format!("{}_{}", host.trim(), std::process::id())
        });
        Config {
            settings: Settings {
                algorithm: self.algorithm,
                overload_percent: self.overload_threshold,
                starting_threshold: self.starting_threshold,
                padding: self.padding,
                slice_capacity: self.max_endpoints_per_slice as usize,
            },
            // Nobody has to see what is not written.
            settle: Duration::from_secs(if self.dry_run { 0 } else { self.settle }),
            writes_per_second: self.kube_api_qps,
            burst: self.kube_api_burst,
            workers: self.concurrent_syncs as usize,
            mirror: self.mirror_endpoints,
            lease: self.leader_elect.then(|| LeaseName {
                namespace: self.leader_elect_namespace.clone(),
                name: "zoneward-controller".into(),
                identity,
            }),
            dry_run: self.dry_run,
        }
    }
}

pub(crate) fn run(args: ControllerArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let (client, _) = connect(args.kubeconfig.as_deref(), args.master.as_deref()).await?;
        let mut terminated = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
        let mut interrupted = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
        let (metrics, status) = (Arc::new(Metrics::new()), Arc::new(Status::default()));
        if !args.dry_run {
            tokio::spawn(serve(args.bind_address, metrics.clone(), status.clone()));
        }
        let stop = async {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
            info!("stopped; slices stay as they are");
        };
        run_controller(client, args.config(), metrics, status, stop).await;
        Ok(())
    })
}

/// Tells how the controller is, wherever that can be had.
async fn serve(address: SocketAddr, numbers: Arc<Metrics>, status: Arc<Status>) {
    loop {
        match listen(address) {
            Ok(listener) => {
                info!(%address, "serving health and metrics");
                let (numbers, status) = (numbers.clone(), status.clone());
                let answer = move |request: Request<Incoming>| {
                    let (numbers, status) = (numbers.clone(), status.clone());
                    async move {
                        match request.uri().path() {
                            "/healthz" | "/livez" => respond(StatusCode::OK, TEXT, "ok\n".into()),
                            "/readyz" => {
                                let ready = status.is_ready();
                                let text =
                                    if ready { "ok\n" } else { "not everything is listed\n" };
                                respond(ok_if(ready), TEXT, text.into())
                            }
                            "/leading" => {
                                let text = if status.leads() { "yes\n" } else { "no\n" };
                                respond(StatusCode::OK, TEXT, text.into())
                            }
                            "/metrics" => metrics(&request, numbers.encode()),
                            _ => not_found(),
                        }
                    }
                };
                accept(listener, answer).await;
            }
            Err(cause) => {
                error!(%address, error = %cause, "cannot serve health and metrics; trying again");
                sleep(RETRY).await;
            }
        }
    }
}
