//! Connections without a pause while something happens: new ones all the time, and some that stay. None
//! may fail, none may be reset, and no opening packet may need a second try.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use zw_lab::{Answer, Held, Lab, Protocol};

/// Long enough for an answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// A loop ends by itself then, whatever the change it runs through is waiting for.
const LONGEST: Duration = Duration::from_secs(180);
/// Between two connections to one address: faster would run out of ports in the longest scenario.
const PACE: Duration = Duration::from_millis(2);
/// Fewer connections than this mean nothing.
const ENOUGH: usize = 30;

/// Who connects where.
pub struct Traffic<'a> {
    /// The network.
    pub lab: &'a Lab,
    /// The host that connects.
    pub client: &'a str,
    /// Where to; a loop of its own for each.
    pub to: &'a [SocketAddr],
    /// How many connections to each are opened before and must still work after.
    pub held: usize,
}

impl Traffic<'_> {
    /// Runs `change` with connections through it; says how many and fails if one did.
    pub fn during(&self, name: &str, change: impl FnOnce()) {
        let mut held: Vec<Held> = self
            .to
            .iter()
            .flat_map(|&to| (0..self.held).map(move |_| to))
            .map(|to| self.lab.open(self.client, to, PATIENCE).expect("it works before"))
            .collect();
        let resent = resent(self.lab, self.client);
        let done = AtomicBool::new(false);
        let outcomes: Vec<(usize, Vec<String>)> = thread::scope(|scope| {
            let done = &done;
            let loops: Vec<_> = self
                .to
                .iter()
                .map(|&to| scope.spawn(move || self.connect_until(to, done)))
                .collect();
            // Also if the change panics: the loops would not end.
            let guard = Done(done);
            change();
            drop(guard);
            loops.into_iter().map(|one| one.join().expect("a loop does not panic")).collect()
        });
        let broken = held
            .iter_mut()
            .filter_map(|held| {
                let greeting = held.greeting().clone();
                Some(held.say()).filter(|said| *said != greeting)
            })
            .count();
        for (to, (count, failed)) in self.to.iter().zip(&outcomes) {
            println!("{name}: {to}: {count} new connections, {} failed", failed.len());
        }
        println!("{name}: {} connections held, {broken} broken", held.len());
        for (count, failed) in &outcomes {
            assert_eq!(*failed, Vec::<String>::new(), "of {count} connections");
            assert!(*count > ENOUGH, "too few connections to mean anything: {count}");
        }
        assert_eq!(broken, 0, "connections from before that no longer work");
        let after = self::resent(self.lab, self.client);
        assert_eq!(after, resent, "opening packets that were lost and sent again");
    }

    fn connect_until(&self, to: SocketAddr, done: &AtomicBool) -> (usize, Vec<String>) {
        let start = Instant::now();
        let (mut count, mut failed) = (0, Vec::new());
        while !done.load(Ordering::Relaxed) && start.elapsed() < LONGEST {
            let answer = self.lab.probe(self.client, to, Protocol::Tcp, PATIENCE);
            count += 1;
            if !matches!(answer, Answer::Answered { .. }) {
                failed.push(format!("{to} after {:?}: {answer}", start.elapsed()));
            }
            thread::sleep(PACE);
        }
        (count, failed)
    }
}

/// How many opening packets a host has sent again so far. A packet that a gap in the rules lost would only
/// make its connection slow.
pub fn resent(lab: &Lab, host: &str) -> u64 {
    let host = lab.host(host).expect("a host of the lab");
    let text = host.run(|| fs::read_to_string("/proc/thread-self/net/netstat")).expect("counters");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut counters = names.split(' ').zip(values.split(' '));
    let counter = counters.find(|(name, _)| *name == "TCPSynRetrans").expect("TCPSynRetrans");
    counter.1.parse().expect("a number")
}

/// Ends the loops when dropped.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
