//! The servers of one host: a thread inside its namespace with a single-threaded runtime, so a
//! thousand connections cost a thousand tasks and no thread. Says who it is and whom it sees,
//! never reads what it is told beyond the end of the line.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rustix::net::{AddressFamily, bind, listen, sockopt};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::oneshot;

use crate::answer::line;
use crate::{LabError, Namespace, Protocol, sockets};

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Servers that run until this is dropped, listeners and connections with them.
#[derive(Debug)]
pub(crate) struct Server {
    /// None only while being dropped: closing the channel is what ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Where one socket listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    protocol: Protocol,
    address: SocketAddr,
}

/// What it takes to serve `ports` on every address: one socket of each protocol and family. UDP needs
/// what [`on()`] adds besides.
pub(crate) fn everywhere(protocols: &[Protocol], ports: &[u16]) -> Vec<Place> {
    let any = [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)];
    let mut places = Vec::new();
    for &port in ports {
        for address in any {
            for &protocol in protocols {
                let address = SocketAddr::new(address, port);
                places.push(Place { protocol, address });
            }
        }
    }
    places
}

/// What an address adds to servers that are everywhere already: a UDP socket of its own. A datagram that
/// leaves a socket bound to no address has the source the routes prefer, which need not be the address
/// that was asked.
pub(crate) fn on(ports: &[u16], addresses: &[IpAddr]) -> Vec<Place> {
    let each = |&port| {
        addresses.iter().map(move |&address| Place {
            protocol: Protocol::Udp,
            address: SocketAddr::new(address, port),
        })
    };
    ports.iter().flat_map(each).collect()
}

impl Server {
    /// Starts answering as `host` in all these places; when it returns, all of them do.
    pub(crate) fn start(
        host: &str,
        namespace: &Namespace,
        places: Vec<Place>,
    ) -> Result<Self, LabError> {
        let (stop, stopped) = oneshot::channel();
        let (ready, outcome) = mpsc::sync_channel(1);
        let host: Arc<str> = host.into();
        let thread = namespace.spawn(move || {
            let started = serve(&host, &places);
            let (runtime, tasks) = match started {
                Ok(started) => started,
                Err(error) => {
                    // The receiver waits below until it gets this.
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            let _ = ready.send(Ok(()));
            runtime.block_on(async {
                for task in tasks {
                    tokio::spawn(task);
                }
                // Ends by the sender being dropped. The runtime goes next, and with it every
                // task and the sockets they own.
                let _ = stopped.await;
            });
        });
        let server = Self { stop: Some(stop), thread: Some(thread) };
        match outcome.recv() {
            Ok(outcome) => outcome.map(|()| server),
            Err(_) => Err(LabError::Start {
                what: "the servers of a host",
                source: io::Error::other("their thread ended at once"),
            }),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // No task on it blocks, so this wait is short; waiting makes sure that the ports are
            // closed when this returns.
            let _ = thread.join();
        }
    }
}

type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn serve(
    host: &Arc<str>,
    places: &[Place],
) -> Result<(tokio::runtime::Runtime, Vec<Task>), LabError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|source| LabError::Start { what: "the servers of a host", source })?;
    // Tokio registers a socket with the runtime it is handed over in.
    let context = runtime.enter();
    let tasks = places
        .iter()
        .map(|place| {
            task(host.clone(), place).map_err(|source| LabError::Serve {
                host: host.to_string(),
                address: place.address.ip(),
                port: place.address.port(),
                source,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    drop(context);
    Ok((runtime, tasks))
}

fn task(host: Arc<str>, place: &Place) -> io::Result<Task> {
    let socket = bound(place)?;
    let port = place.address.port();
    Ok(match place.protocol {
        // Tokio has no SCTP; its TCP makes the same calls.
        Protocol::Tcp | Protocol::Sctp => {
            listen(&socket, BACKLOG)?;
            let listener = TcpListener::from_std(socket.into())?;
            Box::pin(answer_connections(host, port, listener))
        }
        Protocol::Udp => {
            let socket = UdpSocket::from_std(socket.into())?;
            Box::pin(answer_datagrams(host, port, socket))
        }
    })
}

fn bound(place: &Place) -> io::Result<OwnedFd> {
    let family = match place.address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = sockets::of_kind(family, place.protocol)?;
    // TCP: listen again although old connections are still winding down. UDP: the same port on
    // all addresses and on a single one, where the single one wins.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if family == AddressFamily::INET6 {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &place.address)?;
    Ok(socket)
}

async fn answer_connections(host: Arc<str>, port: u16, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let line = line(&host, port, client.ip());
                tokio::spawn(converse(stream, line));
            }
            // The client went away before it was accepted, or files ran out: one probe fails,
            // the next may not.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// One line at once, one more for every line received, until the client closes or breaks off.
async fn converse(stream: TcpStream, line: String) {
    let mut stream = BufReader::new(stream);
    let mut heard = Vec::new();
    loop {
        if stream.write_all(line.as_bytes()).await.is_err() {
            return;
        }
        heard.clear();
        match stream.read_until(b'\n', &mut heard).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

async fn answer_datagrams(host: Arc<str>, port: u16, socket: UdpSocket) {
    let mut heard = [0; 64];
    loop {
        match socket.recv_from(&mut heard).await {
            Ok((_, client)) => {
                let line = line(&host, port, client.ip());
                // A lost answer is what the prober is there to notice.
                let _ = socket.send_to(line.as_bytes(), client).await;
            }
            Err(_) => tokio::task::yield_now().await,
        }
    }
}
