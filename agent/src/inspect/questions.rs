//! What the agent's one thread is asked for: some of its objects and who holds their slots. The answer is
//! text, made where the objects are, a bounded number of them at a time, so that no question holds up a
//! sync for long.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use zw_model::{Family, Protocol, ServiceKey};
use zw_plan::{At, Balance, Desired, Frontend, PlanConfig, Pods, Slots};

use super::manifest;
use crate::around::Around;
use crate::index::{Index, Known};

/// How many questions may wait.
const WAITING: usize = 16;

/// How many Services and endpoints one answer has room for; the first Service always fits.
const MOST_SERVICES: usize = 250;
const MOST_ENDPOINTS: usize = 2_000;

/// Which Services are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Which {
    /// All, from the first.
    #[default]
    All,
    /// All that come after this one.
    After(ServiceKey),
    /// This one, and those who have an address that it claims too.
    Only(ServiceKey),
}

/// A question on its way.
#[derive(Debug)]
pub(crate) struct Question {
    which: Which,
    reply: oneshot::Sender<Page>,
}

/// A part of the answer.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// What rules depend on besides Services, as JSON.
    pub(crate) head: Value,
    /// One Service each, as JSON: [`ServiceLine`].
    pub(crate) lines: Vec<String>,
    /// Where to go on; `None`: that was all.
    pub(crate) next: Option<Which>,
}

/// Asks.
#[derive(Debug, Clone)]
pub(crate) struct Asker(mpsc::Sender<Question>);

/// Is asked.
pub(crate) type Questions = mpsc::Receiver<Question>;

pub(crate) fn channel() -> (Asker, Questions) {
    let (asker, questions) = mpsc::channel(WAITING);
    (Asker(asker), questions)
}

impl Asker {
    /// Waits for an answer; `None` if the agent is stopping.
    pub(crate) async fn ask(&self, which: Which) -> Option<Page> {
        let (reply, answer) = oneshot::channel();
        self.0.send(Question { which, reply }).await.ok()?;
        answer.await.ok()
    }
}

impl Question {
    /// Answers from what the agent knows now.
    pub(crate) fn answer(self, index: &Index, desired: &Desired, around: &Around) {
        // Who asked may have gone away.
        let _ = self.reply.send(page(&self.which, index, desired, around));
    }
}

fn page(which: &Which, index: &Index, desired: &Desired, around: &Around) -> Page {
    let mut page = Page { head: head(index, around), ..Page::default() };
    let after = match which {
        Which::Only(key) => {
            let contested = desired.contested(key).into_iter().map(|contested| contested.owner);
            let mut keys: Vec<ServiceKey> = contested.chain([key.clone()]).collect();
            keys.sort();
            keys.dedup();
            let known = keys.iter().filter_map(|key| index.known(key));
            page.lines = known.map(|known| line(known, desired)).collect();
            return page;
        }
        Which::All => None,
        Which::After(key) => Some(key),
    };
    let mut room = MOST_ENDPOINTS;
    let mut last = None;
    let from = after.cloned().unwrap_or_default();
    for known in index.services_from(from).filter(|known| Some(known.key) != after) {
        let endpoints = known.slices.clone().map(|slice| slice.endpoints.len()).sum::<usize>();
        if page.lines.len() >= MOST_SERVICES || (endpoints > room && !page.lines.is_empty()) {
            page.next = last.map(Which::After);
            return page;
        }
        room = room.saturating_sub(endpoints);
        last = Some(known.key.clone());
        page.lines.push(line(known, desired));
    }
    page
}

/// One Service, its slices and who holds its slots.
#[derive(Debug, Deserialize)]
pub(crate) struct ServiceLine<'a> {
    #[serde(borrow)]
    pub(crate) service: &'a serde_json::value::RawValue,
    #[serde(borrow)]
    pub(crate) slices: Vec<&'a serde_json::value::RawValue>,
    pub(crate) slots: Vec<HeldSlots>,
}

/// Who holds a frontend's slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldSlots {
    /// None for a node port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    family: u8,
    protocol: u8,
    port: u16,
    all: Vec<SocketAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    local: Vec<SocketAddr>,
}

impl HeldSlots {
    fn new(frontend: &Frontend, slots: Slots) -> Self {
        Self {
            address: frontend.addr(),
            family: manifest::family_number(frontend.family()),
            protocol: frontend.protocol.number(),
            port: frontend.port,
            all: slots.all,
            local: slots.local,
        }
    }

    /// `None` if it is of a kind this version does not know.
    pub(crate) fn parts(self) -> Option<(Frontend, Slots)> {
        let at = match self.address {
            Some(address) => At::Address(address),
            None => At::Node(manifest::family_of(self.family)?),
        };
        let protocol = Protocol::from_number(self.protocol)?;
        let frontend = Frontend { at, protocol, port: self.port };
        Some((frontend, Slots { all: self.all, local: self.local }))
    }
}

fn line(known: Known<'_>, desired: &Desired) -> String {
    let Known { key, service, slices } = known;
    let rules = desired.service(key).into_iter().flat_map(|rules| &rules.ports);
    let slots: Vec<HeldSlots> = rules
        .map(|port| HeldSlots::new(&port.frontend, desired.slots(key, &port.frontend)))
        .collect();
    let line = json!({
        "service": manifest::service(service),
        "slices": slices.map(manifest::slice).collect::<Vec<_>>(),
        "slots": slots,
    });
    line.to_string()
}

/// What rules depend on besides Services, as it travels.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Circumstances {
    node: Value,
    service_ranges: Vec<String>,
    node_addresses: Vec<IpAddr>,
    any_node_address: Vec<u8>,
    masquerade_mark: u32,
    masquerade_all: bool,
    round_robin: bool,
    /// The scheduler, in the ipvs mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ipvs: Option<String>,
    /// In that mode, the addresses that the node has by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    own_addresses: Vec<IpAddr>,
    pods: PodsTold,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum PodsTold {
    Ranges(Vec<String>),
    Bridge(String),
    InterfacePrefix(String),
}

fn head(index: &Index, around: &Around) -> Value {
    let Around { plan, surroundings } = around;
    let texts = |nets: &[ipnet::IpNet]| nets.iter().map(ToString::to_string).collect();
    let told = Circumstances {
        node: manifest::node(index.node()),
        service_ranges: texts(&surroundings.service_ranges),
        node_addresses: surroundings.node_addresses.iter().copied().collect(),
        any_node_address: plan
            .any_node_address
            .iter()
            .map(|f| manifest::family_number(*f))
            .collect(),
        masquerade_mark: plan.masquerade_mark,
        masquerade_all: plan.masquerade_all,
        round_robin: plan.balance == Balance::RoundRobin,
        ipvs: plan.ipvs.as_ref().map(ToString::to_string),
        own_addresses: surroundings.own_addresses.iter().copied().collect(),
        pods: match &plan.pods {
            Pods::Ranges(ranges) => PodsTold::Ranges(texts(ranges)),
            Pods::Bridge(name) => PodsTold::Bridge(name.clone()),
            Pods::InterfacePrefix(name) => PodsTold::InterfacePrefix(name.clone()),
        },
    };
    serde_json::to_value(told).unwrap_or_default()
}

impl Circumstances {
    /// The Node's manifest.
    pub(crate) fn node(&self) -> &Value {
        &self.node
    }

    /// As the planner wants them.
    pub(crate) fn settings(&self) -> super::planned::Settings {
        let nets = |texts: &[String]| texts.iter().filter_map(|text| text.parse().ok()).collect();
        let families =
            self.any_node_address.iter().filter_map(|number| manifest::family_of(*number));
        let plan = PlanConfig {
            pods: match &self.pods {
                PodsTold::Ranges(ranges) => Pods::Ranges(nets(ranges)),
                PodsTold::Bridge(name) => Pods::Bridge(name.clone()),
                PodsTold::InterfacePrefix(name) => Pods::InterfacePrefix(name.clone()),
            },
            masquerade_mark: self.masquerade_mark,
            masquerade_all: self.masquerade_all,
            any_node_address: families.collect::<Vec<Family>>(),
            balance: if self.round_robin { Balance::RoundRobin } else { Balance::Random },
            ipvs: self.ipvs.as_ref().map(|text| text.parse().unwrap_or_default()),
        };
        super::planned::Settings {
            plan,
            node_addresses: Some(self.node_addresses.iter().copied().collect()),
            own_addresses: self.own_addresses.iter().copied().collect(),
            service_ranges: Some(nets(&self.service_ranges)),
        }
    }
}
