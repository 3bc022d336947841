//! The agent's own socket, for root alone: what it wants the kernel to hold, what it did last, and what
//! it could not use. HTTP over a unix socket, so that `curl --unix-socket` can ask too. Read-only and
//! bounded: a few clients at once, and the agent's thread answers for some Services at a time.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/status` | [`AgentReport`] |
//! | `GET /v1/services[?only=NS/NAME]` | one JSON object a line: the circumstances, Services with their slices and slots, and an end |

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};
use zw_model::ServiceKey;

use super::agent::AgentReport;
use super::questions::{Asker, Page, Which};
use crate::side_runtime::SideRuntime;
use crate::status::Status;

/// Where the agent listens unless told otherwise.
pub(crate) const DEFAULT_PATH: &str = "/run/zoneward/agent.sock";

/// Clients at once.
const CONNECTIONS: usize = 8;
/// What a client may take for its request, and for all it wants.
const HEAD: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(120);
/// How long the agent's thread may be busy with a sync before a client is told so.
const BUSY: Duration = Duration::from_secs(20);

type Body = BoxBody<Bytes, Infallible>;

/// What answers are made of; the page of the metrics server tells the same.
#[derive(Debug)]
pub(crate) struct Witness {
    pub(crate) node: String,
    pub(crate) status: Arc<Status>,
    pub(crate) asker: Asker,
}

/// The open socket; closed when dropped.
pub(crate) struct Socket {
    _thread: SideRuntime,
}

impl Socket {
    /// Opens it. A path that cannot be had costs only this socket: everything else goes on.
    pub(crate) fn open(path: &Path, witness: Arc<Witness>) -> Option<Self> {
        match Self::try_open(path, witness) {
            Ok(socket) => {
                info!(path = %path.display(), "answering questions of root");
                Some(socket)
            }
            Err(error) => {
                warn!(path = %path.display(), %error, "no socket for `--from agent`");
                None
            }
        }
    }

    fn try_open(path: &Path, witness: Arc<Witness>) -> io::Result<Self> {
        let listener = bind(path)?;
        let thread = SideRuntime::start("inspect")?;
        thread.handle().spawn(async move {
            match UnixListener::from_std(listener) {
                Ok(listener) => accept(listener, witness).await,
                Err(error) => warn!(%error, "no socket for `--from agent`"),
            }
        });
        Ok(Self { _thread: thread })
    }
}

/// Binds for root alone. The folder, if it is made here, is closed to others before the socket exists.
fn bind(path: &Path) -> io::Result<StdListener> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    match fs::symlink_metadata(path) {
        // A dead agent's, or one's that is about to end: the newest answers.
        Ok(there) if there.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "not a socket")),
        Err(_) => {}
    }
    let listener = StdListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn accept(listener: UnixListener, witness: Arc<Witness>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(turn) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let witness = witness.clone();
                tokio::spawn(async move {
                    converse(stream, witness).await;
                    drop(turn);
                });
            }
            Err(error) => {
                debug!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: UnixStream, witness: Arc<Witness>) {
    // The file's mode says the same; this holds wherever the file is.
    let own = rustix::process::geteuid().as_raw();
    if !stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own) {
        return;
    }
    let service = service_fn(move |request: Request<Incoming>| {
        let witness = witness.clone();
        async move { Ok::<_, Infallible>(answer(&request, &witness).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    // What goes wrong here is the client's.
    let _ = timeout(WHOLE, connection).await;
}

async fn answer(request: &Request<Incoming>, witness: &Arc<Witness>) -> Response<Body> {
    if *request.method() != Method::GET {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET");
    }
    match request.uri().path() {
        "/v1/status" => {
            let report = serde_json::to_string(&AgentReport::of(witness)).unwrap_or_default();
            respond(StatusCode::OK, whole(report))
        }
        "/v1/services" => {
            let which = match request.uri().query().and_then(|q| q.strip_prefix("only=")) {
                Some(name) => match name.split_once('/') {
                    Some((namespace, name)) => Which::Only(ServiceKey::new(namespace, name)),
                    None => return refuse(StatusCode::BAD_REQUEST, "only=NAMESPACE/NAME"),
                },
                None => Which::All,
            };
            match timeout(BUSY, witness.asker.ask(which)).await {
                Ok(Some(page)) => respond(StatusCode::OK, services(page, witness.clone())),
                Ok(None) => refuse(StatusCode::SERVICE_UNAVAILABLE, "the agent is stopping"),
                Err(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, "the agent is busy with a sync"),
            }
        }
        _ => refuse(StatusCode::NOT_FOUND, "there are /v1/status and /v1/services"),
    }
}

/// All Services, a page at a time, as the client takes them.
fn services(first: Page, witness: Arc<Witness>) -> Body {
    let head = json!({
        "agent": AgentReport::of(&witness),
        "circumstances": first.head,
    });
    let start = format!("{head}\n{}", text(&first.lines));
    let state = (Some(start), first.next, witness);
    let pages = stream::unfold(state, |(start, next, witness)| async move {
        if let Some(start) = start {
            return Some((frame(start), (None, next.or(Some(END)), witness)));
        }
        let which = next?;
        if which == END {
            return Some((frame("{\"end\":true}\n".into()), (None, None, witness)));
        }
        // An answer without an end is known to be cut short.
        let page = timeout(BUSY, witness.asker.ask(which)).await.ok()??;
        Some((frame(text(&page.lines)), (None, page.next.or(Some(END)), witness)))
    });
    BodyExt::boxed(StreamBody::new(pages))
}

/// Stands for the line that ends an answer: there is nothing after no Service.
const END: Which = Which::All;

fn frame(text: String) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(Bytes::from(text)))
}

fn text(lines: &[String]) -> String {
    lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}

fn whole(text: String) -> Body {
    BodyExt::boxed(Full::new(Bytes::from(text + "\n")))
}

fn refuse(status: StatusCode, why: &str) -> Response<Body> {
    respond(status, whole(json!({ "error": why }).to_string()))
}

fn respond(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The path a flag or the environment gives; none if it is empty.
pub(crate) fn path(given: &Path) -> Option<PathBuf> {
    (!given.as_os_str().is_empty()).then(|| given.to_owned())
}
