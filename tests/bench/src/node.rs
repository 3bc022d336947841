//! The node a proxy works on: namespaces in which every endpoint of any cluster answers.
//!
//! ```text
//!   client ---- node, where the proxy runs ---- backends, which have all addresses of the endpoints
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use zw_lab::{Lab, Namespace};
use zw_tests::control_plane::Relay;

use crate::cluster::Cluster;
use crate::shape::{ENDPOINT_RANGE, TARGET_PORT};

/// Endpoints and the client.
pub(crate) const CLUSTER_CIDR: &str = "10.128.0.0/9";
const NODE: &str = "192.0.2.1";
const CLIENT: &str = "10.192.0.1";
const BACKENDS: &str = "10.192.0.2";
/// How long an attempt to connect may take before the next; the wait for a start is as exact.
const ATTEMPT: Duration = Duration::from_millis(20);
/// Longer than any start.
const PATIENCE: Duration = Duration::from_secs(300);

/// A node with nothing on it yet.
pub(crate) struct Node {
    // Before the namespaces they are in.
    relay: Option<Relay>,
    _backends: Backends,
    lab: Lab,
}

impl Node {
    /// A node that reaches the API server, if it is to run a proxy.
    pub(crate) fn new(cluster: Option<&Cluster>) -> Self {
        let address = |text: &str| -> IpAddr { text.parse().expect("well formed") };
        let mut lab = Lab::new(&[address(NODE)]).expect("network namespaces, which take root");
        for (name, at) in [("client", CLIENT), ("backends", BACKENDS)] {
            lab.add_host(name, &[address(at)]).expect("a lab takes hosts");
        }
        let (network, prefix) = ENDPOINT_RANGE;
        lab.add_range("backends", network.into(), prefix).expect("a lab takes ranges");
        let backends = Backends::start(lab.host("backends").expect("just added"));
        let relay = cluster.map(|cluster| cluster.plane.reach_from(lab.node()));
        Self { relay, _backends: backends, lab }
    }

    /// Where the proxy runs.
    pub(crate) fn namespace(&self) -> &Namespace {
        self.lab.node()
    }

    /// Where connections come from.
    pub(crate) fn client(&self) -> &Namespace {
        self.lab.host("client").expect("every node has one")
    }

    /// Bytes the API server has sent to this node.
    pub(crate) fn received(&self) -> u64 {
        self.relay.as_ref().map_or(0, Relay::received)
    }

    /// Waits until each of these has answered, one after the other; `check` is asked now and then whether
    /// it makes sense to wait on.
    pub(crate) fn wait_for_answers(&self, from: &[SocketAddr], mut check: impl FnMut() + Send) {
        let end = Instant::now() + PATIENCE;
        self.client().run(|| {
            for address in from {
                while !answers(*address) {
                    check();
                    assert!(Instant::now() < end, "{address} does not answer");
                }
            }
        });
    }
}

fn answers(address: SocketAddr) -> bool {
    let tried = Instant::now();
    match TcpStream::connect_timeout(&address, ATTEMPT) {
        Ok(stream) => {
            reset(&stream);
            true
        }
        Err(_) => {
            // A refusal comes at once.
            std::thread::sleep(ATTEMPT.saturating_sub(tried.elapsed()));
            false
        }
    }
}

/// Closes a connection so that neither side remembers it.
pub(crate) fn reset(stream: &TcpStream) {
    // It may be closed already.
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

/// Accepts every connection and closes it.
struct Backends {
    namespace: Namespace,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Backends {
    const EVERYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), TARGET_PORT);
    const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), TARGET_PORT);

    fn start(namespace: &Namespace) -> Self {
        let listener = namespace.run(|| TcpListener::bind(Self::EVERYWHERE));
        let listener = listener.expect("the namespace is new");
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let thread = namespace.spawn(move || {
            for connection in listener.incoming() {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                // Whoever connected may be gone.
                drop(connection);
            }
        });
        Self { namespace: namespace.clone(), ended, thread: Some(thread) }
    }
}

impl Drop for Backends {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Wakes the thread.
        let _ = self.namespace.run(|| TcpStream::connect(Self::HERE));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
