//! The two HTTP servers: health for load balancers and kubelets, metrics for everybody else. They run on
//! a thread of their own, so that a long sync does not keep a probe waiting, and only tell what
//! [`Status`] knows.
//!
//! An address that cannot be had is told, tried again and, where the operator wants that, fatal.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_SECURITY_POLICY;
use hyper::{Request, Response, StatusCode};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::{debug, error, info};

use crate::config::{Config, Mode};
use crate::events::Reason;
use crate::http::{JSON, TEXT, accept, listen, metrics, not_found, ok_if, respond};
use crate::inspect::page::{self, Page};
use crate::metrics::connections::{self, Connections};
use crate::status::Status;

/// How long after a failure an address is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// How long an address may be taken before that is an Event: during an update the agent that is replaced
/// has it for as long as both run.
const HANDOVER: Duration = Duration::from_secs(30);

/// Where to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Binds {
    health: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    hard_fail: bool,
}

impl Binds {
    fn of(config: &Config) -> Self {
        let Config { health, metrics, bind_hard_fail, .. } = *config;
        Self { health, metrics, hard_fail: bind_hard_fail }
    }
}

/// The running servers; they end with the process, or when this is dropped.
pub(crate) struct Servers {
    binds: watch::Sender<Binds>,
    fatal: mpsc::Receiver<anyhow::Error>,
}

impl Servers {
    /// Starts them, in the caller's network namespace. At most so many Services are shown in metrics.
    pub(crate) fn start(
        config: &Config,
        status: Arc<Status>,
        most_services: usize,
        page: Option<Page>,
    ) -> anyhow::Result<Self> {
        let (binds, wanted) = watch::channel(Binds::of(config));
        let (tell, fatal) = mpsc::channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the servers' runtime")?;
        let connections = Mutex::new(Connections::new(most_services));
        let state = Arc::new(State { status, mode: config.mode, connections, page });
        thread::Builder::new()
            .name("http".into())
            .spawn(move || {
                let health = serve(Server::Health, wanted.clone(), state.clone(), tell.clone());
                let metrics = serve(Server::Metrics, wanted, state, tell);
                runtime.block_on(async { tokio::join!(health, metrics) });
            })
            .context("cannot start the servers' thread")?;
        Ok(Self { binds, fatal })
    }

    /// Listens where another configuration says.
    pub(crate) fn reconfigure(&self, config: &Config) {
        let new = Binds::of(config);
        self.binds.send_if_modified(|binds| std::mem::replace(binds, new) != new);
    }

    /// Waits for a failure that must end the agent.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        match self.fatal.recv().await {
            Some(error) => error,
            None => anyhow::anyhow!("the servers' thread has ended"),
        }
    }
}

/// What answers are made of.
struct State {
    status: Arc<Status>,
    mode: Mode,
    connections: Mutex<Connections>,
    /// Only where it is wanted.
    page: Option<Page>,
}

#[derive(Debug, Clone, Copy)]
enum Server {
    Health,
    Metrics,
}

impl Server {
    fn name(self) -> &'static str {
        match self {
            Server::Health => "health",
            Server::Metrics => "metrics",
        }
    }

    fn address(self, binds: Binds) -> Option<SocketAddr> {
        match self {
            Server::Health => binds.health,
            Server::Metrics => binds.metrics,
        }
    }

    fn reason(self) -> Reason {
        match self {
            Server::Health => Reason::FailedToStartProxierHealthcheck,
            Server::Metrics => Reason::FailedToStartMetricServer,
        }
    }
}

/// One server for as long as the agent runs, wherever it is wanted.
async fn serve(
    server: Server,
    mut wanted: watch::Receiver<Binds>,
    state: Arc<State>,
    fatal: mpsc::Sender<anyhow::Error>,
) {
    // The same failure again and again is told once.
    let mut told = String::new();
    let mut failing_since = None;
    loop {
        let binds = *wanted.borrow_and_update();
        let work = async {
            let Some(address) = server.address(binds) else {
                return std::future::pending().await;
            };
            match listen(address) {
                Ok(listener) => {
                    info!(%address, "serving {}", server.name());
                    told.clear();
                    failing_since = None;
                    let state = state.clone();
                    let answer = move |request: Request<Incoming>| {
                        let state = state.clone();
                        async move { answer(server, &request, &state).await }
                    };
                    accept(listener, answer).await;
                }
                Err(error) => {
                    let message = format!("cannot listen on {address}: {error}");
                    if message != told {
                        error!(%address, %error, "cannot serve {}; trying again", server.name());
                        told.clone_from(&message);
                    }
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    if binds.hard_fail || since.elapsed() >= HANDOVER {
                        state.status.events.node(server.reason(), message);
                    }
                    if binds.hard_fail {
                        let context = format!("cannot serve {} on {address}", server.name());
                        // Only the first failure matters.
                        let _ = fatal.try_send(anyhow::Error::new(error).context(context));
                    }
                    sleep(RETRY).await;
                }
            }
        };
        let changed = tokio::select! {
            () = work => Ok(()),
            changed = wanted.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

async fn answer(
    server: Server,
    request: &Request<Incoming>,
    state: &Arc<State>,
) -> Response<Full<Bytes>> {
    let status = &state.status;
    let health = |(healthy, body): (bool, String)| respond(ok_if(healthy), JSON, body);
    match (server, request.uri().path()) {
        (Server::Health, "/healthz") => health(status.healthz()),
        (Server::Health, "/livez") => health(status.livez()),
        (Server::Health, "/readyz") => {
            let blockers = status.blockers();
            let ready = blockers.is_empty();
            let body = if ready { "ok\n".into() } else { blockers.join("\n") + "\n" };
            respond(ok_if(ready), TEXT, body)
        }
        (Server::Metrics, "/healthz") => respond(StatusCode::OK, TEXT, "ok".into()),
        (Server::Metrics, "/proxyMode") => {
            respond(StatusCode::OK, TEXT, state.mode.as_str().into())
        }
        (Server::Metrics, "/configz") => respond(StatusCode::OK, JSON, status.config().to_string()),
        (Server::Metrics, "/metrics") => metrics(request, scrape(state).await),
        (Server::Metrics, path) if path == "/status" || path.starts_with("/status/") => {
            status_page(path, request.uri().query().unwrap_or_default(), state).await
        }
        _ => not_found(),
    }
}

const HTML: &str = "text/html; charset=utf-8";

async fn status_page(path: &str, query: &str, state: &Arc<State>) -> Response<Full<Bytes>> {
    let Some(page) = &state.page else { return not_found() };
    match path {
        "/status" => {
            let mut whole = respond(StatusCode::OK, HTML, page::HTML.into());
            let policy = hyper::header::HeaderValue::from_static(page::POLICY);
            whole.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
            whole
        }
        "/status/load.json" => respond(StatusCode::OK, JSON, page.load().await),
        "/status/explain.json" => respond(StatusCode::OK, JSON, page.explain(query).await),
        _ => not_found(),
    }
}

/// All metrics, the kernel's counters as they are now.
async fn scrape(state: &Arc<State>) -> String {
    let blocking = state.clone();
    let read = move || match connections::read() {
        Ok(counts) => {
            let mut connections =
                blocking.connections.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            connections.update(&counts, &blocking.status.metrics);
        }
        // The rest is as true without them.
        Err(error) => debug!(error = &error as &dyn std::error::Error, "no connection counters"),
    };
    // It ends early only if it panicked, which has been told.
    let _ = tokio::task::spawn_blocking(read).await;
    state.status.metrics.encode()
}
