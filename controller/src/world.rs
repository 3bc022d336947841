//! A model of everything around the controller for one Service: the API server's objects, the stock
//! slice controller, and what agents in each zone see. Tests run whole histories on it.

mod histories;
mod rolling;
mod scale;
mod test_plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zw_model::Family;

use crate::approach::Approach;
use crate::groups::Divider;
use crate::handover::{ServicePatch, Step};
use crate::input::{Endpoint, LabelledZones, Node, Role, Service, Slice, address, is_ready};
use crate::names;
use crate::objects::group_slice;
use crate::pack::{Content, Desired, SliceWrite, Wanted, pack};
use crate::plan::{Outcome, View, plan};
use crate::settings::Settings;
use crate::testing::{http, service, zones};
use crate::zones::Zones;

/// A pod behind the Service.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pod {
    zone: &'static str,
    ready: bool,
}

/// What was written by the controller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Writes {
    slices: usize,
    services: usize,
    /// Of slices, as JSON.
    bytes: usize,
    reallocated: usize,
}

struct World {
    service: Service,
    pods: BTreeMap<u32, Pod>,
    /// Slices of whatever role, as the API server has them.
    slices: Vec<Slice>,
    zones: Zones,
    settings: Settings,
    divider: Divider,
    /// What agents have had time to see.
    settled: Option<String>,
    writes: Writes,
    /// States since agents were last known to have seen everything, for [`World::check`].
    history: Vec<Seen>,
    /// Whether states are noted and checked at all.
    watched: bool,
    /// Zones may be without endpoints, because that is asked for or was a moment ago.
    required: bool,
    next: u64,
}

/// What the watches of agents get at one moment.
#[derive(Clone)]
struct Seen {
    /// Ready addresses of the slices for everyone, and the zones that do not get them.
    everyones: Vec<(LabelledZones, Vec<String>)>,
    /// Those of each zone's slices; no entry without a slice.
    zones: BTreeMap<Arc<str>, BTreeSet<String>>,
}

impl World {
    /// Nodes by zone; the Service asks for nothing and has no pods.
    fn new(nodes: &[(&'static str, u32)]) -> Self {
        let mut world = Self {
            service: service(&[]),
            pods: BTreeMap::new(),
            slices: Vec::new(),
            zones: zones(nodes),
            settings: Settings::default(),
            divider: Divider::default(),
            settled: None,
            writes: Writes::default(),
            history: Vec::new(),
            watched: true,
            required: false,
            next: 2,
        };
        world.stock();
        world
    }

    fn ask(&mut self, approach: Option<&str>) {
        self.service.set_annotation(names::SAME_ZONE, approach);
        self.required |= Approach::asked_by(&self.service) == Approach::Require;
    }

    /// Adds ready pods to a zone.
    fn start_pods(&mut self, zone: &'static str, count: usize) {
        let first = !self.pods.values().any(|pod| pod.ready);
        for _ in 0..count {
            self.next += 1;
            self.pods.insert(self.next as u32, Pod { zone, ready: true });
        }
        self.stock();
        if first {
            // Before there were none, nobody could have any.
            self.history.clear();
            self.note();
        }
    }

    /// Removes a zone's oldest pods.
    fn stop_pods(&mut self, zone: &str, count: usize) {
        let mine = self.pods.iter().filter(|(_, pod)| pod.zone == zone);
        let gone: Vec<u32> = mine.map(|(number, _)| *number).take(count).collect();
        gone.iter().for_each(|number| {
            self.pods.remove(number);
        });
        self.stock();
    }

    /// The stock controller brings the default slices up to date, but for the label.
    fn stock(&mut self) {
        let endpoint = |(number, pod): (&u32, &Pod)| {
            let mut endpoint = crate::testing::endpoint(&pod_address(*number), pod.zone, pod.ready);
            endpoint.node_name = Some(format!("{}-{}", pod.zone, number % 7));
            Arc::new(endpoint)
        };
        let mut endpoints: Vec<Arc<Endpoint>> = self.pods.iter().map(endpoint).collect();
        endpoints.sort_by(|a, b| address(a).cmp(address(b)));
        let wanted = Wanted { by_ports: [(http(), endpoints)].into(), placeholder: Some(http()) };
        let desired = Desired::from([((None, Family::V4), wanted)]);
        let default: Vec<&Slice> = self.slices.iter().filter(|slice| slice.is_source()).collect();
        for write in pack(&desired, &default, 100) {
            let hidden = self.hidden();
            self.write(&write, Role::Default { hidden });
        }
    }

    /// The stock controller copies the Service's label.
    fn copy_label(&mut self) {
        for slice in &mut self.slices {
            if let Role::Default { hidden } = &mut slice.role {
                hidden.clone_from(&self.service.zones);
            }
        }
        self.note();
    }

    fn hidden(&self) -> LabelledZones {
        self.slices.iter().filter_map(Slice::hidden).flatten().cloned().collect()
    }

    fn write(&mut self, write: &SliceWrite, role: Role) {
        self.next += 1;
        let version = self.next.to_string();
        let slice = |name: Arc<str>, content: &Content| Slice {
            uid: format!("{name}-uid"),
            name,
            version: version.clone(),
            role: match &content.audience {
                Some(zone) => Role::Group(Some(zone.clone())),
                None => role.clone(),
            },
            family: content.family,
            ports: (*content.ports).clone(),
            endpoints: content.endpoints.clone(),
            trigger: None,
            copied: None,
        };
        match write {
            SliceWrite::Create(content) => {
                let made = slice(format!("api-{version}").into(), content);
                self.slices.push(made);
            }
            SliceWrite::Update(target, content) => {
                let old = self.slices.iter_mut().find(|slice| slice.name == target.name);
                let old = old.expect("what is updated is there");
                assert_eq!(old.version, target.version, "from the version that was seen");
                *old = slice(target.name.clone(), content);
            }
            SliceWrite::Delete(target, _) => {
                let before = self.slices.len();
                self.slices.retain(|slice| slice.name != target.name);
                assert_eq!(self.slices.len() + 1, before, "what is deleted is there");
            }
        }
        self.note();
    }

    fn patch(&mut self, patch: &ServicePatch) {
        self.service = self.service.patched(patch);
        self.writes.services += 1;
        self.note();
    }

    fn plan(&mut self) -> Outcome {
        let nodes = self.zones.nodes();
        let view = View {
            service: Some(&self.service),
            slices: &self.slices,
            zones: &self.zones,
            nodes: &nodes,
            settings: &self.settings,
            settled: self.settled.as_deref(),
        };
        plan(view, &mut self.divider)
    }

    /// The controller's next step, at most so many writes of it. False if there is nothing to do.
    fn step(&mut self, most: usize) -> bool {
        let outcome = self.plan();
        let asked = Approach::asked_by(&self.service);
        if self.required && asked != Approach::Require && !matches!(outcome.step, Step::Slices(_)) {
            // The groups are no longer those of Require. What was missing before was meant to be.
            self.required = false;
            self.history.clear();
            self.note();
        }
        match outcome.step {
            Step::Done => return false,
            Step::Await => self.copy_label(),
            Step::Settle(what) => {
                self.settled = Some(what);
                self.all_seen();
            }
            Step::Service(patch) => {
                self.patch(&patch);
                self.settled = None;
            }
            Step::Slices(writes) => {
                self.writes.reallocated += outcome.reallocated;
                for write in writes.iter().take(most) {
                    self.writes.slices += 1;
                    if let SliceWrite::Create(content) | SliceWrite::Update(_, content) = write {
                        self.writes.bytes += json_bytes(&self.service, content);
                    }
                    self.write(write, Role::Foreign);
                }
            }
        }
        true
    }

    /// Runs the controller until nothing is left to do, and says what it wrote.
    fn converge(&mut self) -> Writes {
        let before = self.writes;
        let mut steps = 0;
        while self.step(usize::MAX) {
            steps += 1;
            assert!(steps < 20, "it does not come to an end: {:?}", self.plan().step);
        }
        self.all_seen();
        let now = self.writes;
        Writes {
            slices: now.slices - before.slices,
            services: now.services - before.services,
            bytes: now.bytes - before.bytes,
            reallocated: now.reallocated - before.reallocated,
        }
    }

    fn approach(&self) -> Approach {
        Approach::in_force(&self.service)
    }

    fn groups(&self) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(|slice| matches!(slice.role, Role::Group(_)))
    }

    /// Endpoints by zone of the group and zone of the endpoint, such as `a:4a b:3b c:1a2c`.
    fn shown(&self) -> String {
        let mut groups: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
        for slice in self.groups() {
            let Role::Group(Some(zone)) = &slice.role else { continue };
            let group = groups.entry(zone).or_default();
            for endpoint in &slice.endpoints {
                *group.entry(endpoint.zone.as_deref().unwrap_or("?")).or_default() += 1;
            }
        }
        let group = |(zone, homes): (&&str, &BTreeMap<&str, usize>)| {
            let homes: String =
                homes.iter().map(|(home, count)| format!("{count}{home}")).collect();
            format!("{zone}:{homes}")
        };
        groups.iter().map(group).collect::<Vec<_>>().join(" ")
    }

    fn seen(&self) -> Seen {
        let ready = |slice: &Slice| -> Vec<String> {
            let ready = slice.endpoints.iter().filter(|endpoint| is_ready(endpoint));
            ready.map(|endpoint| address(endpoint).to_owned()).collect()
        };
        let mut seen = Seen { everyones: Vec::new(), zones: BTreeMap::new() };
        for slice in &self.slices {
            match &slice.role {
                Role::Group(Some(zone)) => {
                    seen.zones.entry(zone.clone()).or_default().extend(ready(slice));
                }
                _ => {
                    let hidden = slice.hidden().cloned().unwrap_or_default();
                    seen.everyones.push((hidden, ready(slice)));
                }
            }
        }
        seen
    }

    fn note(&mut self) {
        if self.watched {
            self.history.push(self.seen());
        }
    }

    /// Every agent has caught up.
    fn all_seen(&mut self) {
        self.check();
        self.history.clear();
        self.note();
    }

    /// Whatever an agent's two watches have got so far, each zone has a ready endpoint while pods are.
    fn check(&self) {
        let ready = self.pods.values().any(|pod| pod.ready);
        if !ready || self.required {
            return;
        }
        for zone in self.zones.nodes().keys() {
            for of_zone in &self.history {
                for of_all in &self.history {
                    let mut everyones = of_all.everyones.iter();
                    let usable = match of_zone.zones.get(zone) {
                        Some(group) => !group.is_empty(),
                        None => everyones
                            .any(|(hidden, ready)| !hidden.contains(zone) && !ready.is_empty()),
                    };
                    assert!(usable, "zone {zone} is without endpoints");
                }
            }
        }
    }

    fn node(&mut self, name: &str, zone: &str, counts: bool) {
        self.next += 1;
        let node = Node { name: name.into(), zone: Some(zone.into()), counts };
        self.zones.apply(node, self.next);
    }
}

fn pod_address(number: u32) -> String {
    let [_, b, c, d] = number.to_be_bytes();
    format!("10.{b}.{c}.{d}")
}

/// What a slice takes on the wire.
fn json_bytes(service: &Service, content: &Content) -> usize {
    let slice = group_slice(service, content, None, None);
    serde_json::to_vec(&slice).expect("a slice is JSON").len()
}
