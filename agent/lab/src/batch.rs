//! Many questions at once from one host: one thread, one epoll, a bounded number of open sockets.
//!
//! A probe alone waits out its patience when nobody answers. Here all that are silent wait at the same
//! time, so a thousand of them cost little more than one.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, read};
use rustix::net::{AddressFamily, SendFlags, connect, send, sockopt};

use crate::probe::{LINE, Trouble, family};
use crate::sockets::{self, Ports};
use crate::{Answer, Namespace, Protocol};

/// How many probes are under way at once. Every one that is answered has a socket at either end, and
/// several hosts ask at the same time.
const WINDOW: usize = 800;
/// A datagram may get lost where many arrive at once, as on any network: it is sent again in each of so
/// many parts of the patience, over the same flow. (TCP does that by itself.)
const PARTS: u32 = 3;
/// How many events are taken at once.
const EVENTS: usize = 256;

/// Asks all of them, each with a socket and a source port of its own; answers come in the same order.
pub(crate) fn ask(
    namespace: &Namespace,
    ports: &Ports,
    questions: &[(SocketAddr, Protocol)],
    patience: Duration,
) -> Vec<Answer> {
    // Sockets belong to the namespace of the thread that makes them.
    namespace.run(|| match Batch::new(ports, questions, patience) {
        Ok(batch) => batch.run(),
        Err(errno) => vec![Answer::Failed(format!("make an epoll: {errno}")); questions.len()],
    })
}

struct Batch<'a> {
    ports: &'a Ports,
    questions: &'a [(SocketAddr, Protocol)],
    patience: Duration,
    epoll: OwnedFd,
    answers: Vec<Option<Answer>>,
    waiting: Vec<Option<Waiting>>,
    /// Whose part of the patience ends when, the first one first; some of them have answered since.
    due: VecDeque<(Instant, usize)>,
    under_way: usize,
}

struct Waiting {
    socket: OwnedFd,
    heard: Vec<u8>,
    parts: u32,
}

impl<'a> Batch<'a> {
    fn new(
        ports: &'a Ports,
        questions: &'a [(SocketAddr, Protocol)],
        patience: Duration,
    ) -> Result<Self, Errno> {
        Ok(Self {
            ports,
            questions,
            patience,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            answers: vec![None; questions.len()],
            waiting: questions.iter().map(|_| None).collect(),
            due: VecDeque::new(),
            under_way: 0,
        })
    }

    fn run(mut self) -> Vec<Answer> {
        let mut next = 0;
        let mut events = Vec::with_capacity(EVENTS);
        while next < self.questions.len() || self.under_way > 0 {
            while next < self.questions.len() && self.under_way < WINDOW {
                self.start(next);
                next += 1;
            }
            events.clear();
            // Fails only for times beyond the range of the clock: wait without end then.
            let left = Timespec::try_from(self.left()).ok();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), left.as_ref()) {
                // Only who had nothing to say when all others were heard was silent.
                Ok(0) => self.give_up_on_the_silent(),
                Ok(_) => {
                    for event in &events {
                        self.hear(event.data.u64() as usize);
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => {
                    let failed = Answer::Failed(format!("wait on an epoll: {errno}"));
                    return self.answers.into_iter().map(|a| a.unwrap_or(failed.clone())).collect();
                }
            }
        }
        self.answers.into_iter().map(|answer| answer.unwrap_or(Answer::Silent)).collect()
    }

    /// How long nothing needs to be done.
    fn left(&mut self) -> Duration {
        while let Some(&(_, number)) = self.due.front()
            && self.waiting[number].is_none()
        {
            self.due.pop_front();
        }
        let next = self.due.front().map(|(end, _)| *end);
        next.map_or(self.patience, |end| end.saturating_duration_since(Instant::now()))
    }

    fn start(&mut self, number: usize) {
        let (to, protocol) = self.questions[number];
        match self.opened(to, protocol, number) {
            Ok(socket) => {
                self.waiting[number] = Some(Waiting { socket, heard: Vec::new(), parts: 1 });
                self.due.push_back((Instant::now() + self.patience / PARTS, number));
                self.under_way += 1;
            }
            Err(trouble) => self.answers[number] = Some(trouble.answer()),
        }
    }

    fn opened(
        &self,
        to: SocketAddr,
        protocol: Protocol,
        number: usize,
    ) -> Result<OwnedFd, Trouble> {
        let family: AddressFamily = family(to);
        let socket = sockets::make(family, protocol, self.ports).map_err(Trouble::Local)?;
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(Trouble::connecting(errno)),
        }
        match protocol {
            // Closing breaks the connection off: nothing lingers that a later probe could meet.
            Protocol::Tcp | Protocol::Sctp => {
                sockopt::set_socket_linger(&socket, Some(Duration::ZERO))
                    .map_err(|errno| Trouble::Local(errno.into()))?
            }
            Protocol::Udp => match send(&socket, b"\n", SendFlags::empty()) {
                // See `probe::ask_udp`.
                Ok(_) | Err(Errno::PERM) => {}
                Err(errno) => return Err(Trouble::later(errno)),
            },
        }
        // A server speaks first, so there is no need to wait for the connection itself; errors come unasked.
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)
            .map_err(|errno| Trouble::Local(errno.into()))?;
        Ok(socket)
    }

    fn hear(&mut self, number: usize) {
        let Some(waiting) = &mut self.waiting[number] else { return };
        if let Some(answer) = waiting.hear() {
            self.answers[number] = Some(answer);
            // Closing takes it out of the epoll.
            self.waiting[number] = None;
            self.under_way -= 1;
        }
    }

    fn give_up_on_the_silent(&mut self) {
        let now = Instant::now();
        while let Some(&(end, number)) = self.due.front()
            && end <= now
        {
            self.due.pop_front();
            let Some(waiting) = &mut self.waiting[number] else { continue };
            if waiting.parts < PARTS {
                waiting.parts += 1;
                if self.questions[number].1 == Protocol::Udp {
                    // What comes of it is heard like what came of the first.
                    let _ = send(&waiting.socket, b"\n", SendFlags::empty());
                }
                self.due.push_back((now + self.patience / PARTS, number));
            } else {
                self.waiting[number] = None;
                self.answers[number] = Some(Answer::Silent);
                self.under_way -= 1;
            }
        }
    }
}

impl Waiting {
    /// Takes what is there; an answer once it is whole.
    fn hear(&mut self) -> Option<Answer> {
        let mut buffer = [0; LINE];
        match read(self.socket.as_fd(), &mut buffer) {
            Ok(0) => {
                let closed = std::io::Error::other("closed before a whole line came");
                Some(Trouble::Local(closed).answer())
            }
            Ok(length) => {
                self.heard.extend_from_slice(&buffer[..length]);
                let whole = self.heard.ends_with(b"\n") || self.heard.len() > LINE;
                whole.then(|| Answer::parse(&String::from_utf8_lossy(&self.heard)))
            }
            Err(Errno::INTR) => None,
            // Woken, nothing to read, no error to tell: an ICMP error in the queue, which only a
            // connection that does not stand yet gets.
            Err(Errno::AGAIN) => match sockopt::socket_error(&self.socket) {
                Ok(Err(errno)) => Some(Trouble::later(errno).answer()),
                _ => Some(Trouble::later(Errno::CONNREFUSED).answer()),
            },
            Err(errno) => Some(Trouble::later(errno).answer()),
        }
    }
}
