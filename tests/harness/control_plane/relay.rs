//! The API server's address in another namespace.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use zw_lab::Namespace;

/// Large enough for what a list brings between two turns of the scheduler.
const AT_ONCE: usize = 256 << 10;

const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 6443);

/// Carries connections from one namespace to the API server in another; ends them when dropped.
pub struct Relay {
    namespace: Namespace,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    cut: bool,
    ended: bool,
    open: Vec<TcpStream>,
    /// Bytes from the API server.
    received: Arc<AtomicU64>,
}

impl Relay {
    pub(super) fn start(from: &Namespace, to: &Namespace) -> Self {
        let listener = from
            .run(|| TcpListener::bind(ADDRESS))
            .expect("nobody else serves the API in this namespace");
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        // In the namespace of the API server, where it connects to.
        to.spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let mut state = shared.lock().expect("nobody panics with it");
                if state.ended {
                    return;
                }
                if !state.cut
                    && let Ok(server) = TcpStream::connect(ADDRESS)
                {
                    // Either may be gone already; then there is nothing to carry.
                    let _ = state.carry(client, server);
                }
            }
        });
        Self { namespace: from.clone(), state }
    }

    /// Breaks all connections; new ones are closed at once until [`Relay::mend`].
    pub fn cut(&self) {
        let mut state = self.state.lock().expect("nobody panics with it");
        state.cut = true;
        state.close();
    }

    /// How many bytes the API server has sent, encrypted as they are.
    pub fn received(&self) -> u64 {
        self.state.lock().expect("nobody panics with it").received.load(Ordering::Relaxed)
    }

    /// Lets connections through again.
    pub fn mend(&self) {
        self.state.lock().expect("nobody panics with it").cut = false;
    }
}

impl State {
    fn carry(&mut self, client: TcpStream, server: TcpStream) -> io::Result<()> {
        // What one side sends the other gets at once.
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let sent = Arc::default();
        for (mut from, mut to, count) in [
            (client.try_clone()?, server.try_clone()?, sent),
            (server.try_clone()?, client.try_clone()?, self.received.clone()),
        ] {
            thread::spawn(move || {
                // A connection that breaks ends like one that is closed.
                let _ = copy(&mut from, &mut to, &count);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
        self.open.extend([client, server]);
        Ok(())
    }

    fn close(&mut self) {
        for stream in self.open.drain(..) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Counts as it copies, which [`io::copy`] does only at the end.
fn copy(from: &mut TcpStream, to: &mut TcpStream, count: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; AT_ONCE];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            read => {
                count.fetch_add(read as u64, Ordering::Relaxed);
                to.write_all(&buffer[..read])?;
            }
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let mut state = self.state.lock().expect("nobody panics with it");
        state.ended = true;
        state.close();
        drop(state);
        // Wakes the listener, which then ends.
        let _ = self.namespace.run(|| TcpStream::connect(ADDRESS));
    }
}
