//! TCP: every connection is carried to an endpoint, byte for byte, each direction ending by itself.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;

use super::choice::Choice;
use super::{LocalFrontend, Shared};
use crate::listen;

/// How long an endpoint may be silent before the kernel asks whether it is still there. Without asking,
/// a connection to a pod that vanished would be kept for ever.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Listens for as long as the task is let.
pub(super) async fn serve(frontend: LocalFrontend, choice: Arc<Choice>, shared: Arc<Shared>) {
    let at = frontend.at();
    let failed = |error| shared.failed(frontend, error);
    let listener = listen::opened(|| listen::tcp(at), failed).await;
    debug!(%at, "localhost node port is open");
    loop {
        let (client, _) = listen::accept(&listener).await;
        let Ok(permit) = shared.connections.clone().acquire_owned().await else { return };
        let (choice, dial) = (choice.clone(), shared.limits.dial);
        // Not a task of this listener: connections outlive it.
        tokio::spawn(async move {
            carry(client, &choice, dial).await;
            drop(permit);
        });
    }
}

async fn carry(mut client: TcpStream, choice: &Choice, dial: Duration) {
    let outcome = match reach(choice, dial).await {
        Ok(mut backend) => {
            let outcome = relay(&mut client, &mut backend).await;
            if outcome.is_err() {
                // Nobody may take a broken stream for a whole one.
                let _ = backend.set_zero_linger();
            }
            outcome
        }
        Err(error) => Err(error),
    };
    if let Err(error) = outcome {
        debug!(%error, "localhost node port connection ended");
        let _ = client.set_zero_linger();
    }
}

/// A connection to an endpoint; if that fails, to one other.
async fn reach(choice: &Choice, dial: Duration) -> io::Result<TcpStream> {
    let nobody = || io::Error::from(io::ErrorKind::ConnectionRefused);
    let first = choice.pick().ok_or_else(nobody)?;
    match connect(first, dial).await {
        Ok(backend) => Ok(backend),
        Err(error) => match choice.instead_of(first) {
            Some(second) => connect(second, dial).await,
            None => Err(error),
        },
    }
}

async fn connect(backend: SocketAddr, dial: Duration) -> io::Result<TcpStream> {
    timeout(dial, TcpStream::connect(backend)).await?
}

async fn relay(client: &mut TcpStream, backend: &mut TcpStream) -> io::Result<()> {
    // What comes in one piece is passed on in one piece, at once.
    client.set_nodelay(true)?;
    backend.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&*backend, true)?;
    sockopt::set_tcp_keepidle(&*backend, KEEPALIVE)?;
    copy_bidirectional(client, backend).await.map(|_| ())
}
