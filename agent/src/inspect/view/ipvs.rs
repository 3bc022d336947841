//! The ipvs mode's part of the kernel: the interface with Services' addresses, and virtual servers.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;
use zw_dataplane::LINK;
use zw_plan::{Actual, Desired, Frontend, Link, ServerSettings, WEIGHT};

use crate::screen::count;

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IpvsView {
    pub(crate) interface: &'static str,
    /// `up`, `down` or `missing`
    pub(crate) state: &'static str,
    pub(crate) addresses: BTreeSet<IpAddr>,
    pub(crate) servers: Vec<ServerView>,
    /// Virtual servers of somebody else, which are left alone; only the kernel knows.
    pub(crate) others: Vec<String>,
}

/// A virtual server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerView {
    /// `10.96.0.10:80/tcp`
    pub(crate) server: String,
    /// None: not one that Zoneward would write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scheduler: Option<String>,
    /// How long a client stays with its endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) affinity_seconds: Option<u32>,
    /// It is a node port's.
    pub(crate) node_port: bool,
    pub(crate) reals: Vec<RealView>,
}

/// A real server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RealView {
    pub(crate) address: SocketAddr,
    /// 0: it keeps the connections it has and gets no new ones. None: it is reached in another way than
    /// Zoneward's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<u32>,
}

impl IpvsView {
    /// What the kernel holds; none if that is nothing.
    pub(crate) fn held(actual: &Actual) -> Option<Self> {
        let ipvs = &actual.ipvs;
        if ipvs.link == Link::Missing && ipvs.servers.is_empty() {
            return None;
        }
        let servers = ipvs.servers.iter().map(|(key, server)| ServerView {
            reals: server.reals.iter().map(|(at, weight)| real(*at, *weight)).collect(),
            ..view(key.to_string(), server.settings.as_ref(), actual.frontend_of(key))
        });
        Some(Self {
            interface: LINK,
            state: match ipvs.link {
                Link::Missing => "missing",
                Link::Down => "down",
                Link::Up => "up",
            },
            addresses: ipvs.addresses.clone(),
            servers: servers.collect(),
            others: ipvs.foreign.iter().map(ToString::to_string).collect(),
        })
    }

    /// What it should hold; none in the other mode.
    pub(crate) fn wanted(desired: &Desired) -> Option<Self> {
        let servers = desired.virtual_servers();
        let servers = servers.iter().filter_map(|(key, server)| {
            let reals = server.reals.iter().map(|at| real(at.addr, Some(WEIGHT)));
            let frontend = desired.frontend_at(key)?;
            let view = view(key.to_string(), Some(&server.settings), frontend);
            Some(ServerView { reals: reals.collect(), ..view })
        });
        desired.by_ipvs().then(|| Self {
            interface: LINK,
            state: "up",
            addresses: desired.virtual_addresses(),
            servers: servers.collect(),
            others: Vec::new(),
        })
    }

    /// In one line.
    pub(crate) fn words(&self) -> String {
        let Self { interface, state, addresses, servers, others } = self;
        let addresses = if addresses.len() == 1 {
            "1 address".into()
        } else {
            format!("{} addresses", addresses.len())
        };
        let reals: usize = servers.iter().map(|server| server.reals.len()).sum();
        let (servers, reals) =
            (count(servers.len(), "virtual server"), count(reals, "real server"));
        let others = match others.len() {
            0 => String::new(),
            number => format!("; {} of somebody else", count(number, "virtual server")),
        };
        format!("IPVS: {interface} {state} with {addresses}, {servers}, {reals}{others}")
    }
}

fn view(server: String, settings: Option<&ServerSettings>, frontend: Frontend) -> ServerView {
    ServerView {
        server,
        scheduler: settings.map(|settings| settings.scheduler.to_string()),
        affinity_seconds: settings.and_then(|settings| settings.persistence),
        node_port: frontend.addr().is_none(),
        reals: Vec::new(),
    }
}

fn real(address: SocketAddr, weight: Option<u32>) -> RealView {
    RealView { address, weight }
}
