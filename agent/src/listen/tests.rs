use std::cell::Cell;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::{Instant, timeout};
use zw_lab::Namespace;

use super::*;

pub(crate) const LONG: Duration = Duration::from_secs(10);

/// Runs in a network namespace of its own, where every port is free.
pub(crate) fn alone<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send) {
    Namespace::new().unwrap().run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test());
    });
}

fn errno(errno: Errno) -> io::Error {
    errno.into()
}

#[tokio::test(start_paused = true)]
async fn a_passing_failure_is_not_told() {
    let tries = Cell::new(0);
    let open = || {
        tries.set(tries.get() + 1);
        if tries.get() < QUIET_TRIES { Err(errno(Errno::ADDRINUSE)) } else { Ok(tries.get()) }
    };
    let opened = opened(open, |error| panic!("told {error}")).await;
    assert_eq!(opened, QUIET_TRIES);
}

#[tokio::test(start_paused = true)]
async fn a_lasting_failure_is_told_once_and_again_when_it_changes() {
    let tries = Cell::new(0);
    let open = || {
        tries.set(tries.get() + 1);
        match tries.get() {
            1..=20 => Err(errno(Errno::ADDRINUSE)),
            21..=25 => Err(errno(Errno::MFILE)),
            _ => Ok(()),
        }
    };
    let mut told = Vec::new();
    let started = Instant::now();
    opened(open, |error| told.push(Errno::from_io_error(&error).unwrap())).await;
    assert_eq!(told, [Errno::ADDRINUSE, Errno::MFILE]);
    let slow = LONGEST_RETRY * 18;
    assert!(started.elapsed() > slow, "the pauses grow: {:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_node_without_the_family_is_no_failure() {
    let tries = Cell::new(0);
    let open = || {
        tries.set(tries.get() + 1);
        if tries.get() < 10 { Err(errno(Errno::AFNOSUPPORT)) } else { Ok(()) }
    };
    opened(open, |error| panic!("told {error}")).await;
}

#[test]
fn both_families_have_the_same_port() {
    alone(async || {
        let any = [IpAddr::from(Ipv4Addr::UNSPECIFIED), "::".parse().unwrap()];
        let listeners = any.map(|addr| tcp(SocketAddr::new(addr, 7000)).unwrap());
        let sockets = any.map(|addr| udp(SocketAddr::new(addr, 7000)).unwrap());
        assert_eq!(listeners.map(|l| l.local_addr().unwrap().port()), [7000; 2]);
        assert_eq!(sockets.map(|s| s.local_addr().unwrap().port()), [7000; 2]);
    });
}

/// In a process of its own: the limit is one of the whole process.
#[test]
fn without_file_descriptors_accepting_waits_and_does_not_spin() {
    const CHILD: &str = "ZW_TEST_FEW_DESCRIPTORS";
    if std::env::var_os(CHILD).is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "listen::tests::without_file_descriptors_accepting_waits_and_does_not_spin",
            ])
            .env(CHILD, "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    alone(async || {
        let listener = tcp((Ipv4Addr::LOCALHOST, 7000).into()).unwrap();
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, 7000)).await.unwrap();
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: limit.maximum }).unwrap();

        let polls = AtomicU32::new(0);
        let counted = async {
            let mut accepting = std::pin::pin!(accept(&listener));
            std::future::poll_fn(|cx| {
                polls.fetch_add(1, Ordering::Relaxed);
                accepting.as_mut().poll(cx)
            })
            .await
        };
        let mut counted = std::pin::pin!(counted);
        assert!(timeout(SHORTAGE * 3, &mut counted).await.is_err(), "there is none to be had");
        let polls = polls.load(Ordering::Relaxed);
        assert!(polls <= 10, "polled {polls} times");

        setrlimit(Resource::Nofile, limit).unwrap();
        let (_, from) = timeout(LONG, counted).await.expect("the connection was kept");
        assert_eq!(from, client.local_addr().unwrap());
    });
}
