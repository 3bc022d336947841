//! The status page: one static page and the two answers it asks for. Served beside the metrics where the
//! operator wants it; read-only, and nothing in it comes from elsewhere.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use zw_model::ServiceKey;

use super::agent::{self, AgentReport};
use super::load::{Directory, Load, Sample, between};
use super::planned::Planned;
use super::questions::Which;
use super::socket::Witness;
use super::story;

/// The page itself.
pub(crate) const HTML: &str = include_str!("page.html");

/// What the browser is told to allow: nothing from anywhere else.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; \
     style-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'";

/// How long a picture of the rules is good enough, and how far apart samples are at least, whoever asks
/// how often.
const STALE: Duration = Duration::from_secs(10);
const APART: Duration = Duration::from_secs(1);

/// Answers the page.
pub(crate) struct Page {
    witness: Arc<Witness>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    directory: Option<(Instant, Arc<Directory>)>,
    before: Option<Sample>,
    last: Option<(Instant, String)>,
}

impl Page {
    pub(crate) fn new(witness: Arc<Witness>) -> Self {
        Self { witness, memory: Mutex::default() }
    }

    /// `load.json`
    pub(crate) async fn load(&self) -> String {
        let fresh = self
            .memory()
            .last
            .as_ref()
            .and_then(|(at, text)| (at.elapsed() < APART).then(|| text.clone()));
        if let Some(text) = fresh {
            return text;
        }
        let known = self.memory().directory.clone();
        let directory = match known {
            Some((at, directory)) if at.elapsed() < STALE => directory,
            _ => {
                let Some(planned) = self.ask(Which::All).await else {
                    return refusal("the agent is busy, or stopping");
                };
                let directory = Arc::new(Directory::of_planned(&planned));
                self.memory().directory = Some((Instant::now(), directory.clone()));
                directory
            }
        };
        let before = self.memory().before.take();
        let sampled = tokio::task::spawn_blocking(move || -> anyhow::Result<(Load, Sample)> {
            let after = Sample::take()?;
            let load = between(before.as_ref().unwrap_or(&after), &after, &directory);
            Ok((load, after))
        });
        let text = match sampled.await {
            Ok(Ok((mut load, after))) => {
                load.agent = Some(AgentReport::of(&self.witness));
                self.memory().before = Some(after);
                serde_json::to_string(&load).unwrap_or_default()
            }
            Ok(Err(error)) => return refusal(&format!("{error:#}")),
            Err(_) => return refusal("the counters could not be read"),
        };
        self.memory().last = Some((Instant::now(), text.clone()));
        text
    }

    /// `explain.json?service=NS/NAME`
    pub(crate) async fn explain(&self, query: &str) -> String {
        let name = query.strip_prefix("service=").map(|name| name.replace("%2F", "/"));
        let Some((namespace, name)) = name.as_deref().and_then(|name| name.split_once('/')) else {
            return refusal("which Service?");
        };
        let key = ServiceKey::new(namespace, name);
        let Some(planned) = self.ask(Which::Only(key.clone())).await else {
            return refusal("the agent is busy, or stopping");
        };
        match story::tell(&planned, &key, |_| true) {
            Some(story) => serde_json::to_string(&story).unwrap_or_default(),
            None => refusal("there is no such Service any more"),
        }
    }

    /// What the agent wants, asked as anybody else would.
    async fn ask(&self, which: Which) -> Option<Planned> {
        let mut text = String::new();
        let mut next = Some(which);
        let mut head = None;
        while let Some(which) = next {
            let page = self.witness.asker.ask(which).await?;
            head.get_or_insert(page.head);
            page.lines.iter().for_each(|line| {
                text.push_str(line);
                text.push('\n');
            });
            next = page.next;
        }
        agent::read_lines(AgentReport::of(&self.witness), head?, &text).ok()
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(why: &str) -> String {
    json!({ "error": why }).to_string()
}
