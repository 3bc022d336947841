//! `healthCheckNodePort`: where load balancers ask whether this node has endpoints of a Service whose
//! external traffic stays on the node that got it.
//!
//! Owns one small HTTP server per Service and listening address. Any request gets the same answer,
//! word for word what kube-proxy says: 200 if the node has a ready endpoint and the proxy is healthy,
//! else 503. Which Services have such a port and how many endpoints are here is decided elsewhere.
//!
//! A Service's port is open in both families, whatever its own: a load balancer asks the node, by
//! whichever of the node's addresses it knows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc::Sender;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tracing::debug;
use zw_model::{Family, ServiceKey};

use crate::listen::{self, Task};

/// How long a connection may last, from the first byte to the last. One connection is one request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections of all Services together. One more ends the oldest: an honest one takes milliseconds, so
/// what is old is somebody holding on.
const CONNECTIONS: usize = 512;

/// Few enough bytes that all connections together are a few megabytes; hyper's least.
const BUFFER: usize = 8 * 1024;

/// A Service's port cannot be opened on an address. It is still being tried.
#[derive(Debug)]
pub(crate) struct HealthPortFailure {
    pub(crate) service: ServiceKey,
    pub(crate) at: SocketAddr,
    pub(crate) error: io::Error,
}

impl fmt::Display for HealthPortFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, at, error } = self;
        write!(f, "failed to start healthcheck {service} on {at}: {error}")
    }
}

/// The health check ports of all Services.
pub(crate) struct HealthPorts {
    runtime: Handle,
    addresses: BTreeSet<IpAddr>,
    services: BTreeMap<ServiceKey, Port>,
    shared: Arc<Shared>,
}

struct Port {
    number: NonZeroU16,
    answer: Arc<Answer>,
    listeners: BTreeMap<IpAddr, Task>,
}

/// What all servers have in common.
struct Shared {
    healthy: Box<dyn Fn() -> bool + Send + Sync>,
    failures: Sender<HealthPortFailure>,
    connections: Mutex<VecDeque<AbortHandle>>,
}

/// How many endpoints are on this node, as each family's address tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LocalEndpoints<T> {
    pub(crate) v4: T,
    pub(crate) v6: T,
}

/// What one Service's servers say.
struct Answer {
    service: ServiceKey,
    local_endpoints: LocalEndpoints<AtomicUsize>,
}

impl HealthPorts {
    /// No port yet. `addresses` is where ports are opened, see [`HealthPorts::listen_on`]; `healthy` is
    /// asked with every request; `failures` hears of ports that cannot be opened.
    pub(crate) fn new(
        runtime: Handle,
        addresses: BTreeSet<IpAddr>,
        healthy: impl Fn() -> bool + Send + Sync + 'static,
        failures: Sender<HealthPortFailure>,
    ) -> Self {
        let connections = Mutex::default();
        let shared = Arc::new(Shared { healthy: Box::new(healthy), failures, connections });
        Self { runtime, addresses, services: BTreeMap::new(), shared }
    }

    /// A Service's port and how many ready endpoints of it, by distinct addresses, are on this node; or
    /// that it has no such port any more. A change of the number alone leaves the listeners be.
    pub(crate) fn set(
        &mut self,
        service: &ServiceKey,
        port: Option<(NonZeroU16, LocalEndpoints<usize>)>,
    ) {
        let Some((number, local_endpoints)) = port else {
            self.services.remove(service);
            return;
        };
        if let Some(known) = self.services.get(service).filter(|known| known.number == number) {
            let LocalEndpoints { v4, v6 } = &known.answer.local_endpoints;
            v4.store(local_endpoints.v4, Ordering::Relaxed);
            v6.store(local_endpoints.v6, Ordering::Relaxed);
            return;
        }
        let LocalEndpoints { v4, v6 } = local_endpoints;
        let local_endpoints = LocalEndpoints { v4: AtomicUsize::new(v4), v6: AtomicUsize::new(v6) };
        let answer = Arc::new(Answer { service: service.clone(), local_endpoints });
        let mut port = Port { number, answer, listeners: BTreeMap::new() };
        port.listen_on(&self.addresses, &self.runtime, &self.shared);
        self.services.insert(service.clone(), port);
    }

    /// Where ports are opened from now on: addresses of the node, or the unspecified address of a
    /// family for all of them.
    pub(crate) fn listen_on(&mut self, addresses: BTreeSet<IpAddr>) {
        self.addresses = addresses;
        for port in self.services.values_mut() {
            port.listen_on(&self.addresses, &self.runtime, &self.shared);
        }
    }
}

impl Port {
    fn listen_on(&mut self, wanted: &BTreeSet<IpAddr>, runtime: &Handle, shared: &Arc<Shared>) {
        self.listeners.retain(|address, _| wanted.contains(address));
        for &address in wanted {
            self.listeners.entry(address).or_insert_with(|| {
                let at = SocketAddr::new(address, self.number.get());
                let serving = serve(at, self.answer.clone(), shared.clone());
                runtime.spawn(serving).abort_handle().into()
            });
        }
    }
}

async fn serve(at: SocketAddr, answer: Arc<Answer>, shared: Arc<Shared>) {
    let failed = |error| {
        let service = answer.service.clone();
        // Nobody listens when the agent is stopping, and hundreds that wait tell enough.
        let _ = shared.failures.try_send(HealthPortFailure { service, at, error });
    };
    let listener = listen::opened(|| listen::tcp(at), failed).await;
    debug!(svc = %answer.service, %at, "health check port is open");
    loop {
        let (stream, _) = listen::accept(&listener).await;
        let family = Family::of(at.ip());
        let connection = tokio::spawn(reply(stream, family, answer.clone(), shared.clone()));
        shared.admit(connection.abort_handle());
    }
}

/// Answers one request. Who asks is not told of trouble, and neither is the log: it is theirs.
async fn reply(stream: TcpStream, family: Family, answer: Arc<Answer>, shared: Arc<Shared>) {
    let service = service_fn(|_| {
        let response = answer.response(family, (shared.healthy)());
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        // As kube-proxy writes them: a load balancer may compare with case.
        .title_case_headers(true)
        .half_close(true)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    let _ = timeout(PATIENCE, connection).await;
}

impl Shared {
    fn admit(&self, connection: AbortHandle) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.is_finished());
        connections.push_back(connection);
        if connections.len() > CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
    }
}

impl Answer {
    fn response(&self, family: Family, healthy: bool) -> Response<Full<Bytes>> {
        let count = match family {
            Family::V4 => &self.local_endpoints.v4,
            Family::V6 => &self.local_endpoints.v6,
        };
        let local_endpoints = count.load(Ordering::Relaxed);
        let mut response = Response::new(Full::new(self.body(local_endpoints, healthy).into()));
        if local_endpoints == 0 || !healthy {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert("x-load-balancing-endpoint-weight", HeaderValue::from(local_endpoints));
        response
    }

    /// To the byte what kube-proxy says. Names of Services need no escaping.
    fn body(&self, local_endpoints: usize, healthy: bool) -> String {
        let ServiceKey { namespace, name } = &self.service;
        format!(
            "{{\n\t\"service\": {{\n\t\t\"namespace\": \"{namespace}\",\n\t\t\"name\": \"{name}\"\n\t}},\n\
             \t\"localEndpoints\": {local_endpoints},\n\t\"serviceProxyHealthy\": {healthy}\n}}"
        )
    }
}

#[cfg(test)]
mod tests;
