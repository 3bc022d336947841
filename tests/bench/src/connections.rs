//! New connections through a cluster IP, on three nodes in turn: with kube-proxy, with Zoneward, and
//! without any proxy straight to the endpoint.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Instant;

use zw_lab::Namespace;

use crate::args::Args;
use crate::cluster::Cluster;
use crate::node::{Node, reset};
use crate::progress::Progress;
use crate::proxy::{Proxy, Running};
use crate::results::{Connections, Ways};
use crate::shape::{Shape, endpoint};

/// How many turns each way gets.
const TURNS: usize = 10;
/// How many connect at once where the rate is measured.
const CLIENTS: usize = 4;
/// Among how many Services connections are spread.
const SAMPLE: usize = 50;

/// One of the ways, with what is needed to take it.
struct Way {
    node: Node,
    targets: Vec<SocketAddr>,
    measured: Connections,
    // Kept running.
    _proxy: Option<Running>,
}

/// Measures at one number of Services, of one endpoint each.
pub(crate) fn measure(args: &Args, services: usize, progress: &Progress) -> Ways {
    let shape: Shape = format!("{services}x1").parse().expect("a number of Services");
    let (cluster, _) = Cluster::load(&shape, progress);
    let vips = shape.sample(SAMPLE);
    let mut ways: Vec<Way> = Vec::new();
    for proxy in args.proxies(0) {
        let node = Node::new(Some(&cluster));
        let mut running = proxy.start(&cluster, &node);
        node.wait_for_answers(&vips, || running.program.assert_runs());
        ways.push(Way::new(node, &vips, Some(running)));
    }
    let numbers = shape.numbers();
    let direct: Vec<SocketAddr> =
        numbers.iter().take(SAMPLE).map(|numbers| endpoint(numbers.start)).collect();
    ways.push(Way::new(Node::new(None), &direct, None));
    // The first connections of all are slower than any later.
    ways.iter_mut().for_each(|way| drop(one_by_one(way.node.client(), &way.targets, SAMPLE)));
    for turn in 0..TURNS {
        for way in &mut ways {
            way.take_turn(args.connects / TURNS);
        }
        progress.part(turn, TURNS);
    }
    let mut measured = ways.into_iter().map(|way| way.measured);
    let mut of = |proxy| {
        args.only.is_none_or(|only| only == proxy).then(|| measured.next().expect("one for each"))
    };
    let (kube_proxy, zoneward) = (of(Proxy::KubeProxy), of(Proxy::Zoneward));
    let direct = measured.next().expect("the last");
    Ways { services, kube_proxy, zoneward, direct }
}

impl Way {
    fn new(node: Node, targets: &[SocketAddr], proxy: Option<Running>) -> Self {
        let measured = Connections { latency_us: Vec::new(), per_second: Vec::new() };
        Self { node, targets: targets.to_vec(), measured, _proxy: proxy }
    }

    fn take_turn(&mut self, count: usize) {
        let (client, targets) = (self.node.client(), &self.targets);
        self.measured.latency_us.extend(one_by_one(client, targets, count));
        let started = Instant::now();
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| one_by_one(client, targets, count / CLIENTS));
            }
        });
        let made = count / CLIENTS * CLIENTS;
        self.measured.per_second.push(made as f64 / started.elapsed().as_secs_f64());
    }
}

/// Connects so often, and says how long each took, in microseconds. Waits each time until the other side
/// has closed: clients that ran ahead would fill its queue, and who finds that full tries again after a
/// second.
fn one_by_one(client: &Namespace, targets: &[SocketAddr], count: usize) -> Vec<f64> {
    client.run(|| {
        let connect = |target: &SocketAddr| {
            let started = Instant::now();
            let stream = TcpStream::connect(target);
            let took = started.elapsed();
            let mut stream = stream.unwrap_or_else(|error| panic!("connect to {target}: {error}"));
            let closed = stream.read(&mut [0]);
            assert!(closed.is_ok_and(|bytes| bytes == 0), "{target} accepts and closes");
            reset(&stream);
            took.as_secs_f64() * 1e6
        };
        targets.iter().cycle().take(count).map(connect).collect()
    })
}
