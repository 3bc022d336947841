//! Asks a running agent, over its socket.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tracing::warn;
use zw_model::ServiceKey;
use zw_plan::{Frontend, Slots};

use super::planned::Planned;
use super::questions::{Circumstances, ServiceLine};
use super::socket::Witness;
use crate::convert::{Content, Form, Kind, convert, decode};
use crate::index::Index;
use crate::status::recent::Told;

/// How long the agent may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// What an agent says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentReport {
    pub(crate) version: String,
    pub(crate) node: String,
    /// What it waits for before its first sync.
    pub(crate) waiting_for: Vec<String>,
    /// Services without rules, because the kernel refuses a part of them.
    #[serde(default)]
    pub(crate) set_aside: Vec<SetAside>,
    #[serde(flatten)]
    pub(crate) recent: Told,
}

/// A Service that has no rules until it changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetAside {
    /// `namespace/name`.
    pub(crate) service: String,
    /// What the kernel refuses, and why.
    pub(crate) why: String,
}

impl AgentReport {
    pub(crate) fn of(witness: &Witness) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            node: witness.node.clone(),
            waiting_for: witness.status.blockers(),
            set_aside: witness
                .status
                .refused()
                .into_iter()
                .map(|(service, why)| SetAside { service: service.to_string(), why })
                .collect(),
            recent: witness.status.recent.tell(),
        }
    }
}

/// The first line of an answer about Services.
#[derive(Deserialize)]
struct Head {
    agent: AgentReport,
    circumstances: Value,
}

/// What the agent wants: all of it, or one Service.
pub(crate) fn ask(socket: &Path, only: Option<&ServiceKey>) -> anyhow::Result<Planned> {
    let target = match only {
        Some(key) => format!("/v1/services?only={key}"),
        None => "/v1/services".to_owned(),
    };
    let answer = get(socket, &target)?;
    let text = std::str::from_utf8(&answer).context("the agent's answer is not text")?;
    read(text)
        .with_context(|| format!("cannot use the answer of the agent on {}", socket.display()))
}

/// How the agent is.
pub(crate) fn report(socket: &Path) -> anyhow::Result<AgentReport> {
    let answer = get(socket, "/v1/status")?;
    serde_json::from_slice(&answer).context("cannot read the agent's status")
}

fn read(text: &str) -> anyhow::Result<Planned> {
    let (head, rest) = text.split_once('\n').unwrap_or((text, ""));
    let head: Head = serde_json::from_str(head).context("its head")?;
    let own = env!("CARGO_PKG_VERSION");
    if head.agent.version != own {
        let version = &head.agent.version;
        warn!("the agent is of version {version}, this is {own}: it may mean other things");
    }
    let Some(services) = rest.strip_suffix("{\"end\":true}\n") else { bail!("it was cut short") };
    read_lines(head.agent, head.circumstances, services)
}

/// From the parts of an answer: what the agent says of itself, what rules depend on besides Services, and
/// a line for each Service.
pub(crate) fn read_lines(
    agent: AgentReport,
    head: Value,
    services: &str,
) -> anyhow::Result<Planned> {
    let circumstances: Circumstances = serde_json::from_value(head).context("its circumstances")?;
    let mut index = Index::new(&agent.node);
    let (node, _) = convert(circumstances.node()).map_err(|problem| anyhow!("{problem}"))?;
    index.apply(node);
    let mut slots: HashMap<Frontend, Slots> = HashMap::new();
    for line in services.lines() {
        let line: ServiceLine<'_> = serde_json::from_str(line).context("one of its Services")?;
        let slices = line.slices.iter().map(|slice| (Kind::EndpointSlice, slice.get()));
        for (kind, json) in [(Kind::Service, line.service.get())].into_iter().chain(slices) {
            if let Content::Good(object, _) = decode(kind, Form::Json(json)).content {
                index.apply(object);
            }
        }
        slots.extend(line.slots.into_iter().filter_map(|held| held.parts()));
    }
    Ok(Planned::new(index, circumstances.settings(), &slots, Some(agent)))
}

fn get(socket: &Path, target: &str) -> anyhow::Result<Bytes> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let asked = runtime.block_on(async { timeout(PATIENCE, exchange(socket, target)).await });
    let answer =
        asked.unwrap_or_else(|_| Err(anyhow!("no answer within {} s", PATIENCE.as_secs())));
    // Only its words: a pipe that the agent closed is not our own output's, which would be success.
    answer.map_err(|error| anyhow!("{error:#}")).with_context(|| {
        format!(
            "cannot ask the agent on {} (it answers root on the node it runs on; `--from kernel` and \
             `--state` need none)",
            socket.display()
        )
    })
}

async fn exchange(socket: &Path, target: &str) -> anyhow::Result<Bytes> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await?;
    let driven = tokio::spawn(connection);
    let request = Request::get(target).header("host", "agent").body(Empty::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    driven.abort();
    if status != StatusCode::OK {
        let told: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        bail!("{}", told["error"].as_str().unwrap_or(status.as_str()));
    }
    Ok(body)
}
