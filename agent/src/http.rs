//! What every HTTP server here does: listen, bound what clients may take, and answer GET and HEAD.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::metrics::{OPEN_METRICS, PLAIN, plain};

/// What a client may take for its request's head, and for all it wants on one connection.
const HEAD: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(120);

/// Connections at once to one server.
const CONNECTIONS: usize = 64;

/// How many may wait to be accepted.
const BACKLOG: u32 = 128;

pub(crate) const JSON: &str = "application/json";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

/// Listens; on `[::]` for both families, or for IPv4 alone where there is no IPv6.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
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

/// Answers all who connect, for ever.
pub(crate) async fn accept<A, F>(listener: TcpListener, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send,
{
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(turn) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let answer = answer.clone();
                tokio::spawn(async move {
                    converse(stream, answer).await;
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

async fn converse<A, F>(stream: TcpStream, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let answer = reads.then(|| answer(request));
        async move {
            Ok::<_, Infallible>(match answer {
                Some(answer) => answer.await,
                None => only_reads(),
            })
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    // What goes wrong here is the client's: it went away, or speaks no HTTP.
    let _ = timeout(WHOLE, connection).await;
}

fn only_reads() -> Response<Full<Bytes>> {
    let mut refused = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n".into());
    refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    refused
}

/// Metrics in the format that was asked for, from the OpenMetrics one.
pub(crate) fn metrics(request: &Request<Incoming>, text: String) -> Response<Full<Bytes>> {
    let accepts = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    if accepts.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
        respond(StatusCode::OK, OPEN_METRICS, text)
    } else {
        respond(StatusCode::OK, PLAIN, plain(&text))
    }
}

pub(crate) fn not_found() -> Response<Full<Bytes>> {
    respond(StatusCode::NOT_FOUND, TEXT, "404 page not found\n".into())
}

pub(crate) fn ok_if(fine: bool) -> StatusCode {
    if fine { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

pub(crate) fn respond(
    status: StatusCode,
    kind: &'static str,
    body: String,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
