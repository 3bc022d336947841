//! Real requests to real ports, each test in a network namespace of its own.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::AtomicBool;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, sleep};

use super::*;
use crate::listen::tests::{LONG, alone};

const PORT: u16 = 32000;
const OTHER: u16 = 32001;
const LOCALHOST: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
const ANY: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

struct Bench {
    ports: HealthPorts,
    healthy: Arc<AtomicBool>,
    failures: Receiver<HealthPortFailure>,
}

fn bench(addresses: &[IpAddr]) -> Bench {
    let healthy = Arc::new(AtomicBool::new(true));
    let (tell, failures) = channel(16);
    let asked = healthy.clone();
    let healthy_now = move || asked.load(Ordering::Relaxed);
    let addresses = addresses.iter().copied().collect();
    let ports = HealthPorts::new(Handle::current(), addresses, healthy_now, tell);
    Bench { ports, healthy, failures }
}

fn web() -> ServiceKey {
    ServiceKey::new("web", "api")
}

fn port(number: u16, count: usize) -> Option<(NonZeroU16, LocalEndpoints<usize>)> {
    Some((NonZeroU16::new(number).unwrap(), LocalEndpoints { v4: count, v6: count }))
}

/// The whole answer, or why there is none.
async fn ask(at: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

async fn get(address: IpAddr, port: u16) -> io::Result<String> {
    ask(SocketAddr::new(address, port), "GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n").await
}

/// Waits until asking has this outcome: listeners open and close in their own time.
async fn until<T>(
    address: IpAddr,
    port: u16,
    wanted: impl Fn(io::Result<String>) -> Option<T>,
) -> T {
    let reached = timeout(LONG, async {
        loop {
            if let Some(reached) = wanted(get(address, port).await) {
                return reached;
            }
            sleep(Duration::from_millis(5)).await;
        }
    });
    reached.await.expect("the port becomes what is wanted")
}

async fn answer(address: IpAddr, port: u16) -> String {
    until(address, port, Result::ok).await
}

async fn refused(address: IpAddr, port: u16) {
    let refusal = |outcome: io::Result<String>| {
        outcome.err().filter(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    until(address, port, refusal).await;
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn the_answer_is_kube_proxys_to_the_byte() {
    alone(async || {
        let mut bench = bench(&ANY);
        bench.ports.set(&web(), port(PORT, 3));
        for address in LOCALHOST {
            let answer = answer(address, PORT).await;
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let mut head: Vec<&str> =
                head.split("\r\n").filter(|line| !line.starts_with("Date: ")).collect();
            head[1..].sort_unstable();
            assert_eq!(
                head,
                [
                    "HTTP/1.1 200 OK",
                    "Connection: close",
                    "Content-Length: 110",
                    "Content-Type: application/json",
                    "X-Content-Type-Options: nosniff",
                    "X-Load-Balancing-Endpoint-Weight: 3",
                ]
            );
            let want = concat!(
                "{\n",
                "\t\"service\": {\n",
                "\t\t\"namespace\": \"web\",\n",
                "\t\t\"name\": \"api\"\n",
                "\t},\n",
                "\t\"localEndpoints\": 3,\n",
                "\t\"serviceProxyHealthy\": true\n",
                "}"
            );
            assert_eq!(body, want);
        }
    });
}

#[test]
fn a_node_is_good_for_a_service_only_with_endpoints_and_a_healthy_proxy() {
    alone(async || {
        let mut bench = bench(&ANY);
        for address in LOCALHOST {
            for (endpoints, healthy, want) in
                [(0, true, 503), (1, true, 200), (2, false, 503), (0, false, 503), (2, true, 200)]
            {
                bench.ports.set(&web(), port(PORT, endpoints));
                bench.healthy.store(healthy, Ordering::Relaxed);
                let answer = answer(address, PORT).await;
                assert_eq!(status(&answer), want, "{endpoints} {healthy}");
                assert!(answer.contains(&format!("Endpoint-Weight: {endpoints}\r\n")), "{answer}");
                assert!(
                    answer.contains(&format!("\"serviceProxyHealthy\": {healthy}\n")),
                    "{answer}"
                );
            }
        }
    });
}

#[test]
fn every_path_and_method_is_answered_alike() {
    alone(async || {
        let mut bench = bench(&ANY);
        bench.ports.set(&web(), port(PORT, 1));
        answer(LOCALHOST[0], PORT).await;
        for request in ["GET / HTTP/1.0\r\n\r\n", "HEAD /x?y HTTP/1.1\r\nHost: a\r\n\r\n"] {
            let answer = ask(SocketAddr::new(LOCALHOST[0], PORT), request).await.unwrap();
            assert_eq!(status(&answer), 200, "{request}");
        }
    });
}

#[test]
fn ports_open_move_and_close_with_their_services() {
    alone(async || {
        let mut bench = bench(&ANY);
        let other = ServiceKey::new("web", "other");
        bench.ports.set(&web(), port(PORT, 1));
        bench.ports.set(&other, port(OTHER, 1));
        assert!(answer(LOCALHOST[0], OTHER).await.contains("\"other\""));
        bench.ports.set(&other, None);
        refused(LOCALHOST[0], OTHER).await;
        // To the port that another Service has just given up.
        bench.ports.set(&web(), port(OTHER, 1));
        for address in LOCALHOST {
            assert!(answer(address, OTHER).await.contains("\"api\""));
            refused(address, PORT).await;
        }
        drop(bench.ports);
        refused(LOCALHOST[1], OTHER).await;
        assert!(bench.failures.recv().await.is_none(), "nobody was told of a failure");
    });
}

#[test]
fn ports_are_open_only_on_the_addresses_given_and_follow_them() {
    alone(async || {
        let first: IpAddr = "127.0.0.2".parse().unwrap();
        let second: IpAddr = "127.0.0.3".parse().unwrap();
        let mut bench = bench(&[first]);
        bench.ports.set(&web(), port(PORT, 1));
        assert_eq!(status(&answer(first, PORT).await), 200);
        refused(second, PORT).await;
        bench.ports.listen_on([second, LOCALHOST[1]].into());
        assert_eq!(status(&answer(second, PORT).await), 200);
        assert_eq!(status(&answer(LOCALHOST[1], PORT).await), 200);
        refused(first, PORT).await;
        bench.ports.listen_on(ANY.into());
        assert_eq!(status(&answer(first, PORT).await), 200);
    });
}

#[test]
fn a_port_that_is_taken_is_told_once_and_opened_when_it_is_free() {
    alone(async || {
        let mut bench = bench(&LOCALHOST);
        let at = SocketAddr::new(LOCALHOST[0], PORT);
        let taken = listen::tcp(at).unwrap();
        bench.ports.set(&web(), port(PORT, 1));
        let failure = timeout(LONG, bench.failures.recv()).await.unwrap().unwrap();
        assert_eq!(failure.service, web());
        assert_eq!(
            failure.to_string(),
            "failed to start healthcheck web/api on 127.0.0.1:32000: Address already in use (os error 98)"
        );
        assert_eq!(status(&answer(LOCALHOST[1], PORT).await), 200, "the other address is open");
        drop(taken);
        assert_eq!(status(&answer(LOCALHOST[0], PORT).await), 200);
        assert!(bench.failures.try_recv().is_err());
    });
}

#[test]
fn connections_that_hold_on_make_room_for_those_that_ask() {
    alone(async || {
        let mut bench = bench(&LOCALHOST);
        bench.ports.set(&web(), port(PORT, 1));
        answer(LOCALHOST[0], PORT).await;
        let at = SocketAddr::new(LOCALHOST[0], PORT);
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS + 10 {
            silent.push(TcpStream::connect(at).await.unwrap());
        }
        assert_eq!(status(&answer(LOCALHOST[0], PORT).await), 200);
        // Sooner than their patience: the oldest had to go.
        let mut byte = [0];
        let ended = timeout(PATIENCE / 2, silent[0].read(&mut byte)).await.expect("it ended");
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
        let held = bench.ports.shared.connections.lock().unwrap().len();
        assert!(held <= CONNECTIONS, "{held}");
    });
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_ends() {
    let listener = listen::tcp((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let at = listener.local_addr().unwrap();
    let (client, server) = tokio::join!(TcpStream::connect(at), listener.accept());
    let bench = bench(&[]);
    let answer = Arc::new(Answer { service: web(), local_endpoints: LocalEndpoints::default() });
    let started = Instant::now();
    reply(server.unwrap().0, Family::V4, answer, bench.ports.shared.clone()).await;
    assert!(started.elapsed() >= PATIENCE, "it was waited for: {:?}", started.elapsed());
    assert_eq!(client.unwrap().read(&mut [0]).await.unwrap(), 0, "and then closed");
}
