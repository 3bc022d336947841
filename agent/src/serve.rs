//! The two HTTP servers: health for load balancers and kubelets, metrics for everybody else. They run on
//! a thread of their own, so that a long sync does not keep a probe waiting, and only tell what
//! [`Status`] knows.
//!
//! An address that cannot be had is told, tried again and, where the operator wants that, fatal.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info};

use crate::config::{Config, Mode};
use crate::events::Reason;
use crate::inspect::page::{self, Page};
use crate::metrics::connections::{self, Connections};
use crate::metrics::{OPEN_METRICS, PLAIN, plain};
use crate::status::Status;

/// How long after a failure an address is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// What a client may take for its request's head, and for all it wants on one connection.
const HEAD: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(120);

/// Connections at once to one server.
const CONNECTIONS: usize = 64;

/// How many may wait to be accepted.
const BACKLOG: u32 = 128;

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
                    accept(server, listener, &state).await;
                }
                Err(error) => {
                    let message = format!("cannot listen on {address}: {error}");
                    if message != told {
                        error!(%address, %error, "cannot serve {}; trying again", server.name());
                        told.clone_from(&message);
                    }
                    state.status.events.node(server.reason(), message);
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

/// Listens; on `[::]` for both families, or for IPv4 alone where there is no IPv6.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let bind = |address: SocketAddr| {
        let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
        if address.is_ipv6() {
            rustix::net::sockopt::set_ipv6_v6only(&socket, !address.ip().is_unspecified())?;
        }
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    let unsupported = |error: &io::Error| {
        let unknown =
            rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::AFNOSUPPORT);
        unknown || error.kind() == io::ErrorKind::AddrNotAvailable
    };
    match bind(address) {
        Err(error) if address.is_ipv6() && address.ip().is_unspecified() && unsupported(&error) => {
            bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()))
        }
        outcome => outcome,
    }
}

async fn accept(server: Server, listener: TcpListener, state: &Arc<State>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(turn) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let state = state.clone();
                tokio::spawn(async move {
                    converse(server, stream, state).await;
                    drop(turn);
                });
            }
            Err(error) => {
                // Such as too many open files: it passes, or does not, but never by trying at once.
                debug!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(server: Server, stream: TcpStream, state: Arc<State>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let state = state.clone();
        async move { Ok::<_, Infallible>(answer(server, &request, &state).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    // What goes wrong here is the client's: it went away, or speaks no HTTP.
    let _ = timeout(WHOLE, connection).await;
}

async fn answer(
    server: Server,
    request: &Request<Incoming>,
    state: &Arc<State>,
) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused =
            respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n".into());
        refused.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
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
        (Server::Metrics, "/metrics") => {
            let text = scrape(state).await;
            let accepts = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
            if accepts.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
                respond(StatusCode::OK, OPEN_METRICS, text)
            } else {
                respond(StatusCode::OK, PLAIN, plain(&text))
            }
        }
        (Server::Metrics, path) if path == "/status" || path.starts_with("/status/") => {
            status_page(path, request.uri().query().unwrap_or_default(), state).await
        }
        _ => respond(StatusCode::NOT_FOUND, TEXT, "404 page not found\n".into()),
    }
}

async fn status_page(path: &str, query: &str, state: &Arc<State>) -> Response<Full<Bytes>> {
    let not_found = || respond(StatusCode::NOT_FOUND, TEXT, "404 page not found\n".into());
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

const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

fn ok_if(fine: bool) -> StatusCode {
    if fine { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    headers.insert(X_CONTENT_TYPE_OPTIONS, hyper::header::HeaderValue::from_static("nosniff"));
    response
}
