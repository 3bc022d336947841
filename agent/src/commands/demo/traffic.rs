//! A client that never stops connecting, and counts.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use zw_lab::Namespace;

use super::cast::{TCP_PORT, UDP_PORT, VIPS};

/// How long a connection may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two connections: fast enough to fall into every gap, slow enough for a laptop.
const PAUSE: Duration = Duration::from_millis(2);

/// The lowest port datagrams are sent from.
const FIRST_PORT: u16 = 10_240;

/// Everything the client has seen.
#[derive(Debug, Default, Clone)]
pub(super) struct Totals {
    by_kind: BTreeMap<&'static str, usize>,
    /// What failed, when and how.
    pub(super) failures: Vec<String>,
    /// Who answered, newest last.
    answers: VecDeque<String>,
}

impl Totals {
    pub(super) fn made(&self) -> usize {
        self.by_kind.values().sum()
    }

    pub(super) fn kinds_seen(&self) -> usize {
        self.by_kind.len()
    }

    pub(super) fn by_kind(&self) -> String {
        let kinds: Vec<String> =
            self.by_kind.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        kinds.join(", ")
    }

    /// Who answered the last `count` connections.
    pub(super) fn last(&self, count: usize) -> impl Iterator<Item = &str> {
        self.answers.iter().rev().take(count).map(String::as_str)
    }
}

/// The client, on a thread in its pod's namespace.
pub(super) struct Traffic {
    totals: Arc<Mutex<Totals>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Traffic {
    pub(super) fn start(namespace: &Namespace) -> Self {
        let totals = Arc::new(Mutex::new(Totals::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = namespace.spawn({
            let (totals, stop) = (totals.clone(), stop.clone());
            move || connect_until(&stop, &totals)
        });
        Self { totals, stop, thread }
    }

    pub(super) fn totals(&self) -> Totals {
        locked(&self.totals).clone()
    }

    /// Waits until this many more connections were made.
    pub(super) fn wait_for(&self, more: usize, deadline: Duration) -> bool {
        let end = Instant::now() + deadline;
        let goal = locked(&self.totals).made() + more;
        while locked(&self.totals).made() < goal {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }

    pub(super) fn end(self) -> Totals {
        self.stop.store(true, Ordering::Relaxed);
        // A panic in the client has lost no counts.
        let _ = self.thread.join();
        locked(&self.totals).clone()
    }
}

fn locked(totals: &Mutex<Totals>) -> MutexGuard<'_, Totals> {
    totals.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect_until(stop: &AtomicBool, totals: &Mutex<Totals>) {
    type Ask = fn(IpAddr, u16) -> io::Result<String>;
    let kinds: [(&'static str, Ask, IpAddr); 4] = [
        ("TCP over IPv4", ask_tcp, VIPS[0]),
        ("TCP over IPv6", ask_tcp, VIPS[1]),
        ("UDP over IPv4", ask_udp, VIPS[0]),
        ("UDP over IPv6", ask_udp, VIPS[1]),
    ];
    let started = Instant::now();
    for ((kind, ask, vip), port) in kinds.into_iter().cycle().zip((FIRST_PORT..=u16::MAX).cycle()) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let answer = ask(vip, port);
        let mut totals = locked(totals);
        *totals.by_kind.entry(kind).or_default() += 1;
        match answer {
            Ok(by) => totals.answers.push_back(by),
            Err(error) => {
                let at = started.elapsed().as_secs_f64();
                totals.failures.push(format!("{kind} at {at:.3} s: {error}"));
            }
        }
        drop(totals);
        std::thread::sleep(PAUSE);
    }
}

/// A new connection each time, so that the rules choose anew; the server greets with its name.
fn ask_tcp(vip: IpAddr, _: u16) -> io::Result<String> {
    let stream = TcpStream::connect_timeout(&SocketAddr::new(vip, TCP_PORT), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    name_in(&line)
}

/// From a port of its own: to connection tracking a datagram from the port of an earlier one is more of
/// the old flow, and goes where that went.
fn ask_udp(vip: IpAddr, from: u16) -> io::Result<String> {
    let any: IpAddr =
        if vip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, from))?;
    socket.connect(SocketAddr::new(vip, UDP_PORT))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(b"who?\n")?;
    let mut answer = [0; 256];
    let len = socket.recv(&mut answer)?;
    name_in(&String::from_utf8_lossy(&answer[..len]))
}

fn name_in(line: &str) -> io::Result<String> {
    let name = line.split_whitespace().next();
    name.map(str::to_owned).ok_or_else(|| io::Error::other("closed without an answer"))
}
