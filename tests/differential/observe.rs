//! What one side answers to a question, and whether the two sides agree.
//!
//! Answers are chosen at random, so a question is asked until the set of answers is complete: with n
//! possible answerers that is n (1 - 1/n)^k < 1e-10 for k connections, and a difference that chance made
//! is rarer than one in 1e9. That many are only asked where fewer showed a difference.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use zw_lab::{Answer, Lab};
use zw_tests::plane::lab_protocol;

use crate::cast::SOURCES;
use crate::questions::{Frontend, Question};

/// Everything one side answered to one question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Observation {
    /// Who answered, on which port, and whom they saw.
    pub(crate) answered: BTreeSet<(String, u16, IpAddr)>,
    /// What else happened: `refused`, `silent`, or what a health check said.
    pub(crate) other: BTreeSet<String>,
}

impl Observation {
    fn add(&mut self, answer: Answer) {
        match answer {
            Answer::Answered { by, port, seen } => {
                self.answered.insert((by, port, seen));
            }
            other => {
                self.other.insert(other.to_string());
            }
        }
    }

    pub(crate) fn merge(&mut self, more: Self) {
        self.answered.extend(more.answered);
        self.other.extend(more.other);
    }

    /// The endpoints that answered.
    pub(crate) fn endpoints(&self) -> BTreeSet<(&str, u16)> {
        self.answered.iter().map(|(by, port, _)| (by.as_str(), *port)).collect()
    }

    /// What happened, without who: `answered`, `refused`, `silent`, or several of them.
    pub(crate) fn kinds(&self) -> String {
        let answered = (!self.answered.is_empty()).then_some("answered");
        let first_word = |text: &str| text.split(':').next().unwrap_or(text).to_owned();
        let others: BTreeSet<String> = self.other.iter().map(|text| first_word(text)).collect();
        let all: Vec<String> = answered.map(str::to_owned).into_iter().chain(others).collect();
        all.join(" or ")
    }

    /// Whether two sides did the same, as far as chance allows to tell.
    pub(crate) fn agrees(&self, other: &Self, question: &Question) -> bool {
        if !question.sticky {
            return self == other;
        }
        // Either side may have chosen another endpoint; both must have stayed with it.
        let stays = |side: &Self| {
            let strangers = side.answered.iter().any(|(by, port, _)| {
                !question.candidates.iter().any(|(host, p)| host == by && p == port)
            });
            (side.endpoints().len().min(2), strangers)
        };
        // Whom an endpoint saw depends on which one it is.
        let seen = |side: &Self| -> BTreeMap<(String, u16), BTreeSet<IpAddr>> {
            let mut by_endpoint: BTreeMap<_, BTreeSet<IpAddr>> = BTreeMap::new();
            for (by, port, seen) in &side.answered {
                by_endpoint.entry((by.clone(), *port)).or_default().insert(*seen);
            }
            by_endpoint
        };
        let (ours, theirs) = (seen(self), seen(other));
        self.other == other.other
            && stays(self) == stays(other)
            && ours.iter().all(|(who, seen)| theirs.get(who).is_none_or(|other| other == seen))
    }
}

impl std::fmt::Display for Observation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let answered =
            self.answered.iter().map(|(by, port, seen)| format!("{by}:{port} (saw {seen})"));
        let all: Vec<String> = answered.chain(self.other.iter().cloned()).collect();
        f.write_str(&all.join(", "))
    }
}

/// How many connections make the set of answers complete, see the module's words.
pub(crate) fn enough(question: &Question) -> usize {
    match question.candidates.len() {
        0 | 1 => 3,
        n => {
            let n = n as f64;
            ((1e-10 / n).ln() / (1.0 - 1.0 / n).ln()).ceil() as usize
        }
    }
}

/// Asks every question so many times, all at once, each source on a thread of its own.
pub(crate) fn sample(
    lab: &Lab,
    questions: &[(&Question, usize)],
    patience: Duration,
) -> Vec<Observation> {
    let mut observations = vec![Observation::default(); questions.len()];
    let answers: Vec<(usize, Answer)> = thread::scope(|scope| {
        let ask = |from: &'static str| {
            scope.spawn(move || {
                let mut order: Vec<usize> = Vec::new();
                let most = questions.iter().map(|(_, times)| *times).max().unwrap_or(0);
                // Round by round, so that one endpoint does not get all of its connections at once.
                for time in 0..most {
                    order.extend((0..questions.len()).filter(|i| {
                        let (question, times) = questions[*i];
                        question.from == from
                            && question.frontend != Frontend::HealthCheck
                            && time < times
                    }));
                }
                let asked: Vec<_> = order
                    .iter()
                    .map(|i| (questions[*i].0.to, lab_protocol(questions[*i].0.protocol)))
                    .collect();
                let answers = lab.probe_all(from, &asked, patience);
                order.into_iter().zip(answers).collect::<Vec<_>>()
            })
        };
        let threads = SOURCES.map(ask);
        threads.into_iter().flat_map(|thread| thread.join().expect("a prober")).collect()
    });
    for (i, answer) in answers {
        observations[i].add(answer);
    }
    for (i, (question, _)) in questions.iter().enumerate() {
        if question.frontend == Frontend::HealthCheck {
            observations[i].other.insert(lab.node().run(|| health(question.to)));
        }
    }
    observations
}

/// What a load balancer would be told: the status, the weight, and the number of local endpoints.
fn health(at: SocketAddr) -> String {
    let patience = Duration::from_secs(5);
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&at, patience)?;
        stream.set_read_timeout(Some(patience))?;
        write!(stream, "GET /healthz HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    let text = match ask() {
        Ok(text) => text,
        Err(error) => return format!("health check: {:?}", error.kind()),
    };
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split_whitespace().nth(1).unwrap_or("?");
    let weight = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("x-load-balancing-endpoint-weight"))
        .map_or("none", |(_, value)| value.trim());
    let body: Value = serde_json::from_str(body.trim()).unwrap_or(Value::Null);
    let (endpoints, service) = (&body["localEndpoints"], &body["service"]);
    format!("health check: {status}, weight {weight}, local endpoints {endpoints} of {service}")
}
