//! Real connections and datagrams, each test in a network namespace of its own.

use std::cell::Cell;
use std::collections::BTreeSet;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{sleep, timeout};

use super::*;
use crate::listen;
use crate::listen::tests::{LONG, alone};

const PORT: u16 = 30080;
const A: u16 = 9001;
const B: u16 = 9002;
const MINUTE: Duration = Duration::from_secs(60);

struct Bench {
    ports: LocalhostPorts,
    failures: Receiver<LocalPortFailure>,
}

fn bench(limits: Limits) -> Bench {
    let (tell, failures) = channel(16);
    Bench { ports: LocalhostPorts::new(Handle::current(), limits, tell), failures }
}

fn frontend(protocol: Protocol, family: Family) -> LocalFrontend {
    LocalFrontend { protocol, family, port: NonZeroU16::new(PORT).unwrap() }
}

fn at(family: Family, port: u16) -> SocketAddr {
    SocketAddr::new(localhost(family), port)
}

fn backends(family: Family, ports: &[u16]) -> Option<Backends> {
    Some(Backends { addrs: ports.iter().map(|port| at(family, *port)).collect(), affinity: None })
}

fn sticky(family: Family, ports: &[u16]) -> Option<Backends> {
    backends(family, ports).map(|backends| Backends { affinity: Some(MINUTE), ..backends })
}

/// Says its port, then everything it was told, when that ends.
fn tcp_backend(family: Family, port: u16) -> Task {
    let listener = listen::tcp(at(family, port)).unwrap();
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut told = Vec::new();
                stream.write_all(format!("{port} ").as_bytes()).await?;
                stream.read_to_end(&mut told).await?;
                stream.write_all(&told).await
            });
        }
    });
    serving.abort_handle().into()
}

/// Answers every datagram with its port and the datagram.
fn udp_backend(family: Family, port: u16) -> Task {
    let socket = listen::udp(at(family, port)).unwrap();
    let serving = tokio::spawn(async move {
        let mut buffer = vec![0; 70_000];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let answer = [format!("{port} ").as_bytes(), &buffer[..length]].concat();
            socket.send_to(&answer, from).await.unwrap();
        }
    });
    serving.abort_handle().into()
}

/// Tries again until there is an outcome that is wanted.
async fn until<T, F: Future<Output = Option<T>>>(mut attempt: impl FnMut() -> F) -> T {
    let reached = timeout(LONG, async {
        loop {
            if let Some(reached) = attempt().await {
                return reached;
            }
            sleep(Duration::from_millis(5)).await;
        }
    });
    reached.await.expect("it becomes what is wanted")
}

/// A connection to the node port, once it is open.
async fn open(family: Family) -> TcpStream {
    until(|| async { TcpStream::connect(at(family, PORT)).await.ok() }).await
}

async fn refused(family: Family) {
    until(|| async {
        let error = TcpStream::connect(at(family, PORT)).await.err()?;
        (error.kind() == io::ErrorKind::ConnectionRefused).then_some(())
    })
    .await;
}

/// Tells something, ends its own direction, and returns all that comes back.
async fn exchange(stream: &mut TcpStream, words: &str) -> io::Result<String> {
    stream.write_all(words.as_bytes()).await?;
    stream.shutdown().await?;
    let mut answer = String::new();
    timeout(LONG, stream.read_to_string(&mut answer)).await??;
    Ok(answer)
}

/// Who answers a new connection.
async fn ask_tcp(family: Family) -> u16 {
    let answer = exchange(&mut open(family).await, "hello").await.unwrap();
    answer.strip_suffix(" hello").unwrap().parse().unwrap()
}

struct Client {
    socket: UdpSocket,
    /// No two questions are the same, so that a late answer is not taken for the next one's.
    questions: Cell<u32>,
}

impl Client {
    async fn new(family: Family) -> Self {
        let socket = listen::udp(at(family, 0)).unwrap();
        socket.connect(at(family, PORT)).await.unwrap();
        Self { socket, questions: Cell::new(0) }
    }

    /// Who answers a datagram; none if it is lost, or refused.
    async fn try_ask(&self, words: &[u8]) -> Option<u16> {
        let mut buffer = vec![0; 70_000];
        self.socket.send(words).await.ok()?;
        let answer = async {
            loop {
                let length = self.socket.recv(&mut buffer).await.ok()?;
                if let Some(answer) = buffer[..length].strip_suffix(words) {
                    return Some(std::str::from_utf8(answer).unwrap().trim_end().parse().unwrap());
                }
            }
        };
        timeout(Duration::from_millis(200), answer).await.ok()?
    }

    /// Asks again where a datagram got lost, as who uses UDP has to.
    async fn ask(&self) -> u16 {
        until(async || {
            self.questions.update(|n| n + 1);
            self.try_ask(format!("question {}", self.questions.get()).as_bytes()).await
        })
        .await
    }
}

#[test]
fn tcp_clients_reach_every_endpoint_and_each_direction_ends_by_itself() {
    alone(async || {
        let mut bench = bench(Limits::default());
        for family in Family::BOTH {
            let _backends = [tcp_backend(family, A), tcp_backend(family, B)];
            bench.ports.set(frontend(Protocol::Tcp, family), backends(family, &[A, B]));
            let mut seen = BTreeSet::new();
            for _ in 0..64 {
                // The answer comes after the client's end, so it shows that one end is not both.
                seen.insert(ask_tcp(family).await);
            }
            assert_eq!(seen, [A, B].into());
        }
    });
}

#[test]
fn a_tcp_client_whose_endpoint_refuses_gets_another() {
    alone(async || {
        let mut bench = bench(Limits::default());
        for family in Family::BOTH {
            let _backend = tcp_backend(family, B);
            bench.ports.set(frontend(Protocol::Tcp, family), backends(family, &[A, B]));
            for _ in 0..16 {
                assert_eq!(ask_tcp(family).await, B);
            }
        }
    });
}

#[test]
fn a_tcp_client_nobody_answers_is_cut_off() {
    alone(async || {
        let mut bench = bench(Limits::default());
        for family in Family::BOTH {
            bench.ports.set(frontend(Protocol::Tcp, family), backends(family, &[A, B]));
            let mut client = open(family).await;
            let error = timeout(LONG, client.read(&mut [0])).await.unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
    });
}

#[test]
fn a_tcp_endpoint_that_does_not_accept_in_time_costs_only_that_time() {
    alone(async || {
        let dial = Duration::from_millis(200);
        let mut bench = bench(Limits { dial, ..Limits::default() });
        let family = Family::V4;
        let _backend = tcp_backend(family, B);
        // Its queue is full: the kernel drops what else comes.
        let full = tokio::net::TcpSocket::new_v4().unwrap();
        full.bind(at(family, A)).unwrap();
        let _full = full.listen(0).unwrap();
        let _first = TcpStream::connect(at(family, A)).await.unwrap();
        let waiting = timeout(dial, TcpStream::connect(at(family, A))).await;
        assert!(waiting.is_err(), "the queue is not full: {waiting:?}");

        bench.ports.set(frontend(Protocol::Tcp, family), backends(family, &[A, B]));
        for _ in 0..8 {
            assert_eq!(ask_tcp(family).await, B);
        }
    });
}

#[test]
fn a_stream_that_breaks_off_at_either_end_is_not_taken_for_a_whole_one() {
    alone(async || {
        let mut bench = bench(Limits::default());
        for family in Family::BOTH {
            let listener = listen::tcp(at(family, A)).unwrap();
            bench.ports.set(frontend(Protocol::Tcp, family), backends(family, &[A]));
            for client_breaks_it in [false, true] {
                let mut client = open(family).await;
                client.write_all(b"hello").await.unwrap();
                let (mut backend, _) = timeout(LONG, listener.accept()).await.unwrap().unwrap();
                backend.read_exact(&mut [0; 5]).await.unwrap();
                let (broken, mut left) =
                    if client_breaks_it { (client, backend) } else { (backend, client) };
                broken.set_zero_linger().unwrap();
                drop(broken);
                let error = timeout(LONG, left.read(&mut [0])).await.unwrap().unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{client_breaks_it}");
            }
        }
    });
}

#[test]
fn tcp_connections_stay_when_their_endpoint_or_the_port_goes() {
    alone(async || {
        let mut bench = bench(Limits::default());
        for family in Family::BOTH {
            let _backends = [tcp_backend(family, A), tcp_backend(family, B)];
            let frontend = frontend(Protocol::Tcp, family);
            bench.ports.set(frontend, backends(family, &[A]));
            let mut first = open(family).await;
            let mut greeting = [0; 5];
            first.read_exact(&mut greeting).await.unwrap();
            assert_eq!(greeting, *b"9001 ");

            bench.ports.set(frontend, backends(family, &[B]));
            assert_eq!(ask_tcp(family).await, B);
            bench.ports.set(frontend, backends(family, &[]));
            refused(family).await;
            assert_eq!(exchange(&mut first, "still here").await.unwrap(), "still here");

            bench.ports.set(frontend, backends(family, &[B]));
            assert_eq!(ask_tcp(family).await, B);
            bench.ports.set(frontend, None);
            refused(family).await;
        }
    });
}

#[test]
fn with_affinity_all_clients_share_an_endpoint() {
    alone(async || {
        let mut bench = bench(Limits::default());
        for family in Family::BOTH {
            let _tcp = [tcp_backend(family, A), tcp_backend(family, B)];
            let _udp = [udp_backend(family, A), udp_backend(family, B)];
            bench.ports.set(frontend(Protocol::Tcp, family), sticky(family, &[A, B]));
            let first = ask_tcp(family).await;
            for _ in 0..16 {
                assert_eq!(ask_tcp(family).await, first);
            }
            bench.ports.set(frontend(Protocol::Udp, family), sticky(family, &[A, B]));
            let first = Client::new(family).await.ask().await;
            for _ in 0..16 {
                assert_eq!(Client::new(family).await.ask().await, first);
            }
        }
    });
}

#[test]
fn one_tcp_connection_too_many_waits_for_another_to_end() {
    alone(async || {
        let mut bench = bench(Limits { connections: 2, ..Limits::default() });
        let family = Family::V4;
        let _backend = tcp_backend(family, A);
        bench.ports.set(frontend(Protocol::Tcp, family), backends(family, &[A]));
        let mut greeting = [0; 5];
        let mut held = [open(family).await, open(family).await];
        for client in &mut held {
            client.read_exact(&mut greeting).await.unwrap();
        }
        assert_eq!(bench.ports.shared.connections.available_permits(), 0);
        let mut third = open(family).await;
        let early = timeout(Duration::from_millis(50), third.read_exact(&mut greeting)).await;
        assert!(early.is_err(), "there is no room yet");
        exchange(&mut held[0], "done").await.unwrap();
        timeout(LONG, third.read_exact(&mut greeting)).await.unwrap().unwrap();
        assert_eq!(exchange(&mut third, "hello").await.unwrap(), "hello");
    });
}

#[test]
fn a_port_that_is_taken_is_told_and_opened_when_it_is_free() {
    alone(async || {
        let mut bench = bench(Limits::default());
        let family = Family::V6;
        let (_tcp, _udp) = (tcp_backend(family, A), udp_backend(family, A));
        let tcp = listen::tcp(at(family, PORT)).unwrap();
        let udp = listen::udp(at(family, PORT)).unwrap();
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            bench.ports.set(frontend(protocol, family), backends(family, &[A]));
            let failure = timeout(LONG, bench.failures.recv()).await.unwrap().unwrap();
            assert_eq!(failure.frontend, frontend(protocol, family));
            let want = format!(
                "cannot serve the node port {protocol} [::1]:30080: Address already in use (os error 98)"
            );
            assert_eq!(failure.to_string(), want);
        }
        drop((tcp, udp));
        assert_eq!(ask_tcp(family).await, A);
        assert_eq!(Client::new(family).await.ask().await, A);
    });
}

#[test]
fn what_cannot_be_relayed_is_told() {
    alone(async || {
        let mut bench = bench(Limits::default());
        let sctp = frontend(Protocol::Sctp, Family::V4);
        for _ in 0..2 {
            bench.ports.set(sctp, backends(Family::V4, &[A]));
        }
        let failure = bench.failures.try_recv().unwrap();
        assert_eq!((failure.frontend, failure.error.kind()), (sctp, io::ErrorKind::Unsupported));
        assert!(bench.failures.try_recv().is_err(), "once");
    });
}

#[test]
fn a_udp_client_keeps_its_endpoint_and_clients_spread() {
    alone(async || {
        let mut bench = bench(Limits::default());
        for family in Family::BOTH {
            let _backends = [udp_backend(family, A), udp_backend(family, B)];
            bench.ports.set(frontend(Protocol::Udp, family), backends(family, &[A, B]));
            let mut seen = BTreeSet::new();
            for _ in 0..32 {
                let client = Client::new(family).await;
                let first = client.ask().await;
                for _ in 0..4 {
                    assert_eq!(client.ask().await, first);
                }
                seen.insert(first);
            }
            assert_eq!(seen, [A, B].into());
        }
    });
}

#[test]
fn datagrams_of_any_size_pass_whole() {
    alone(async || {
        let mut bench = bench(Limits::default());
        for family in Family::BOTH {
            let _backend = udp_backend(family, A);
            bench.ports.set(frontend(Protocol::Udp, family), backends(family, &[A]));
            let client = Client::new(family).await;
            client.ask().await;
            // The answer is five bytes longer.
            for length in [0, 1, 1500, 65_000] {
                let datagram = vec![b'x'; length];
                let answered = until(|| client.try_ask(&datagram)).await;
                assert_eq!(answered, A, "{length}");
            }
        }
    });
}

#[test]
fn a_udp_client_whose_endpoint_went_or_refuses_gets_another() {
    alone(async || {
        let mut bench = bench(Limits::default());
        for family in Family::BOTH {
            let a = udp_backend(family, A);
            let frontend = frontend(Protocol::Udp, family);
            bench.ports.set(frontend, sticky(family, &[A]));
            let client = Client::new(family).await;
            assert_eq!(client.ask().await, A);

            let b = udp_backend(family, B);
            bench.ports.set(frontend, sticky(family, &[A, B]));
            assert_eq!(client.ask().await, A, "its endpoint is still there");
            bench.ports.set(frontend, sticky(family, &[B]));
            assert_eq!(client.ask().await, B, "its endpoint went");

            bench.ports.set(frontend, sticky(family, &[A, B]));
            drop(b);
            assert_eq!(client.ask().await, A, "its endpoint refuses");
            drop(a);
        }
    });
}

#[test]
fn a_udp_port_without_endpoints_refuses() {
    alone(async || {
        let mut bench = bench(Limits::default());
        for family in Family::BOTH {
            let _backend = udp_backend(family, A);
            let frontend = frontend(Protocol::Udp, family);
            bench.ports.set(frontend, backends(family, &[A]));
            let client = Client::new(family).await;
            assert_eq!(client.ask().await, A);
            bench.ports.set(frontend, backends(family, &[]));
            until(|| async {
                let _ = client.socket.send(b"hello").await;
                let outcome =
                    timeout(Duration::from_millis(200), client.socket.recv(&mut [0; 16])).await;
                let error = outcome.ok()?.err()?;
                (error.kind() == io::ErrorKind::ConnectionRefused).then_some(())
            })
            .await;
            assert_eq!(bench.ports.shared.sessions.count(), 0);
        }
    });
}

#[test]
fn a_silent_udp_client_is_forgotten() {
    alone(async || {
        let mut bench = bench(Limits { idle: Duration::from_millis(50), ..Limits::default() });
        let family = Family::V4;
        let _backend = udp_backend(family, A);
        bench.ports.set(frontend(Protocol::Udp, family), backends(family, &[A]));
        let client = Client::new(family).await;
        assert_eq!(client.ask().await, A);
        let sessions = &bench.ports.shared.sessions;
        until(async || (sessions.count() == 0).then_some(())).await;
        assert_eq!(client.ask().await, A, "and known again when it speaks");
    });
}

#[test]
fn one_udp_client_too_many_takes_the_place_of_the_one_silent_longest() {
    alone(async || {
        let mut bench = bench(Limits { sessions: 2, ..Limits::default() });
        let family = Family::V4;
        let _backend = udp_backend(family, A);
        let frontend = frontend(Protocol::Udp, family);
        bench.ports.set(frontend, backends(family, &[A]));
        let clients =
            [Client::new(family).await, Client::new(family).await, Client::new(family).await];
        for who in [0, 1, 0, 2] {
            clients[who].ask().await;
        }
        let sessions = &bench.ports.shared.sessions;
        let known = |client: &Client| sessions.holds(frontend, client.socket.local_addr().unwrap());
        assert_eq!(clients.each_ref().map(known), [true, false, true]);
        assert_eq!(clients[1].ask().await, A, "it comes back when it speaks");
        assert_eq!(sessions.count(), 2);
    });
}

#[test]
fn nothing_is_left_when_all_ports_are_dropped() {
    alone(async || {
        let mut bench = bench(Limits::default());
        let family = Family::V4;
        let _backends = (tcp_backend(family, A), udp_backend(family, A));
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            bench.ports.set(frontend(protocol, family), backends(family, &[A]));
        }
        ask_tcp(family).await;
        Client::new(family).await.ask().await;
        let shared = Arc::downgrade(&bench.ports.shared);
        drop(bench.ports);
        until(async || shared.upgrade().is_none().then_some(())).await;
        refused(family).await;
        assert!(bench.failures.recv().await.is_none());
    });
}
