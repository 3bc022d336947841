//! UDP: every client has a session with one endpoint, over a socket of its own, until it is silent for
//! long or the endpoint goes.
//!
//! Nothing is queued here: what a socket cannot take at once is lost, as datagrams may be. Datagrams
//! pass through one buffer on the stack, so a waiting session costs no memory for them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{SendFlags, connect, send, sendto};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::debug;

use super::choice::Choice;
use super::{LocalFrontend, Shared};
use crate::listen::{self, Task};

/// The largest datagram, and one more.
const BUFFER: usize = 65_536;

/// Datagrams taken from one socket before others get their turn.
const BURST: usize = 32;

/// The pause after an error of the listening socket itself.
const PAUSE: Duration = Duration::from_millis(100);

/// The sessions of all frontends.
pub(super) struct Sessions {
    limit: usize,
    began: Instant,
    table: Mutex<HashMap<(LocalFrontend, SocketAddr), Entry>>,
}

struct Entry {
    session: Arc<Session>,
    _replies: Task,
}

struct Session {
    frontend: LocalFrontend,
    client: SocketAddr,
    backend: SocketAddr,
    socket: UdpSocket,
    /// When a datagram last passed either way, in microseconds since the table began.
    last: AtomicU64,
}

/// Listens for as long as the task is let.
pub(super) async fn serve(frontend: LocalFrontend, choice: Arc<Choice>, shared: Arc<Shared>) {
    let at = frontend.at();
    let failed = |error| shared.failed(frontend, error);
    let socket = listen::opened(|| listen::udp(at), failed).await;
    debug!(%at, "localhost node port is open");
    let listener = Listener { frontend, choice, shared, socket: Arc::new(socket) };
    loop {
        let readable = listener.socket.readable().await;
        if let Err(error) = readable.and_then(|()| listener.take_in()) {
            debug!(%error, %at, "cannot receive");
            sleep(PAUSE).await;
        }
    }
}

#[derive(Clone)]
struct Listener {
    frontend: LocalFrontend,
    choice: Arc<Choice>,
    shared: Arc<Shared>,
    socket: Arc<UdpSocket>,
}

impl Listener {
    /// Passes on what clients sent.
    fn take_in(&self) -> io::Result<()> {
        let mut buffer = [0; BUFFER];
        for _ in 0..BURST {
            match self.socket.try_recv_from(&mut buffer) {
                Ok((length, client)) => self.pass_on(client, &buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn pass_on(&self, client: SocketAddr, datagram: &[u8]) {
        let outcome = self.try_pass_on(client, datagram);
        // What the last datagram met is told with this one, which was not sent: once more, elsewhere.
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        let outcome = match outcome {
            Err(error) if refused(&error) => self.try_pass_on(client, datagram),
            outcome => outcome,
        };
        if let Err(error) = outcome {
            debug!(%error, %client, at = %self.frontend.at(), "a datagram is lost");
        }
    }

    fn try_pass_on(&self, client: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        let session = match self.shared.sessions.find(self.frontend, client) {
            Some(session) => session,
            None => self.begin(client)?,
        };
        self.shared.sessions.touch(&session);
        // Not through the runtime, which does not know a new socket to be writable yet.
        match send(&session.socket, datagram, SendFlags::DONTWAIT) {
            Ok(_) => Ok(()),
            Err(errno) => {
                let error = io::Error::from(errno);
                if error.kind() == io::ErrorKind::ConnectionRefused {
                    self.fail(&session);
                }
                Err(error)
            }
        }
    }

    fn begin(&self, client: SocketAddr) -> io::Result<Arc<Session>> {
        let nobody = || io::Error::from(io::ErrorKind::NotConnected);
        let backend = self.choice.pick().ok_or_else(nobody)?;
        let from = match backend.ip() {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        let socket = listen::udp(SocketAddr::new(from, 0))?;
        connect(&socket, &backend).inspect_err(|_| self.choice.forget(backend))?;
        let (frontend, last) = (self.frontend, AtomicU64::default());
        let session = Arc::new(Session { frontend, client, backend, socket, last });
        self.shared.sessions.touch(&session);
        let replies = tokio::spawn(self.clone().carry_back(session.clone()));
        let entry = Entry { session: session.clone(), _replies: replies.abort_handle().into() };
        self.shared.sessions.insert(entry);
        if !self.choice.holds(backend) {
            // It went while this was done; nobody else would look here again.
            self.shared.sessions.end(&session);
            return Err(nobody());
        }
        Ok(session)
    }

    /// Carries answers back until the client has been silent for long, or the endpoint refuses.
    async fn carry_back(self, session: Arc<Session>) {
        loop {
            let until = self.shared.sessions.last(&session) + self.shared.limits.idle;
            match timeout_at(until, session.socket.readable()).await {
                Ok(ready) => {
                    if let Err(error) = ready.and_then(|()| self.answer(&session)) {
                        debug!(%error, backend = %session.backend, "a session ends");
                        return self.fail(&session);
                    }
                }
                Err(_) if until < self.shared.sessions.last(&session) + self.shared.limits.idle => {
                }
                Err(_) => return self.shared.sessions.end(&session),
            }
        }
    }

    fn answer(&self, session: &Session) -> io::Result<()> {
        let mut buffer = [0; BUFFER];
        for _ in 0..BURST {
            match session.socket.try_recv(&mut buffer) {
                Ok(length) => {
                    self.shared.sessions.touch(session);
                    // A client that went away, or does not keep up, loses it.
                    let answer = &buffer[..length];
                    let _ = sendto(&self.socket, answer, SendFlags::DONTWAIT, &session.client);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The client's next datagram begins anew, at an endpoint that may be another.
    fn fail(&self, session: &Session) {
        self.choice.forget(session.backend);
        self.shared.sessions.end(session);
    }
}

impl Sessions {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, began: Instant::now(), table: Mutex::default() }
    }

    /// Keeps those sessions of a frontend whose endpoint is wanted.
    pub(super) fn retain(&self, frontend: LocalFrontend, wanted: impl Fn(SocketAddr) -> bool) {
        self.table().retain(|(of, _), entry| *of != frontend || wanted(entry.session.backend));
    }

    fn find(&self, frontend: LocalFrontend, client: SocketAddr) -> Option<Arc<Session>> {
        self.table().get(&(frontend, client)).map(|entry| entry.session.clone())
    }

    /// Looks at every session to find the one that goes, which happens only at the limit.
    fn insert(&self, entry: Entry) {
        let mut table = self.table();
        if table.len() >= self.limit {
            let last = |entry: &Entry| entry.session.last.load(Ordering::Relaxed);
            let oldest = table.iter().min_by_key(|(_, entry)| last(entry)).map(|(key, _)| *key);
            oldest.and_then(|key| table.remove(&key));
        }
        table.insert((entry.session.frontend, entry.session.client), entry);
    }

    /// Ends a session, unless another has its place already.
    fn end(&self, session: &Session) {
        let mut table = self.table();
        let key = (session.frontend, session.client);
        if table.get(&key).is_some_and(|entry| std::ptr::eq(&*entry.session, session)) {
            table.remove(&key);
        }
    }

    fn touch(&self, session: &Session) {
        let now = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        session.last.store(now, Ordering::Relaxed);
    }

    fn last(&self, session: &Session) -> Instant {
        self.began + Duration::from_micros(session.last.load(Ordering::Relaxed))
    }

    fn table(&self) -> MutexGuard<'_, HashMap<(LocalFrontend, SocketAddr), Entry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.table().len()
    }

    #[cfg(test)]
    pub(super) fn holds(&self, frontend: LocalFrontend, client: SocketAddr) -> bool {
        self.find(frontend, client).is_some()
    }
}
