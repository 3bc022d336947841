//! What one frontend means for the table: its elements and the chains they lead to. Where IPVS picks
//! endpoints, the table has none, and the chains only mark.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::Picker;
use crate::element::{Data, Element, Key};
use crate::frontend::Space;
use crate::service::{Backend, Backends, Exposure, PortRules};
use crate::sets::SetName;
use crate::shape::{Pick, Remember, Route, Shape, Sticky};

impl PortRules {
    /// The chains it leads to.
    pub(crate) fn shapes(&self, picker: Picker) -> impl Iterator<Item = Shape> {
        let remember = self.remember(picker);
        // It hands pods and the node on.
        let others = remember.as_ref().filter(|remember| remember.external_local);
        let others = others.map(|Remember { sticky, .. }| {
            let sticky = Sticky { local: false, ..sticky.clone() };
            Shape::Remember(Remember { sticky, external_local: false })
        });
        let picks = [Some(self.main(picker)), self.shortcut(picker)];
        let picks = picks.into_iter().flatten().map(Shape::Pick);
        picks.chain(others).chain(remember.map(Shape::Remember))
    }

    /// The elements that stand for the frontend itself.
    pub(crate) fn heads(&self, picker: Picker) -> Vec<(SetName, Element)> {
        let mut heads = Vec::new();
        self.each_head(picker, &mut |set, element| heads.push((set, element)));
        heads
    }

    fn each_head(&self, picker: Picker, each: &mut (impl FnMut(SetName, Element) + ?Sized)) {
        let (key, space) = (self.frontend.key(), self.frontend.space());
        let named = |data| Element { key, data, comment: Some(self.comment.clone()) };
        let goto = |shape: Shape| named(Data::Goto(shape.name()));
        each(space.services(), goto(Shape::Pick(self.main(picker))));
        if picker.ipvs && space == Space::Address {
            each(SetName::Served, named(Data::Nothing));
        }
        if let Some(pick) = self.shortcut(picker) {
            each(space.shortcuts(), goto(Shape::Pick(pick)));
        }
        if self.answering().is_empty() {
            each(space.no_endpoints(), named(Data::Nothing));
            if self.has_endpoints {
                each(space.elsewhere(), named(Data::Nothing));
            }
        }
        if let Some(remember) = self.remember(picker) {
            each(space.sticky(), goto(Shape::Remember(remember)));
        }
        if let Some(ranges) = &self.sources {
            each(SetName::Firewalled, named(Data::Nothing));
            ranges.iter().for_each(|net| each(SetName::Allowed, allowed(key, net)));
        }
    }

    /// Whether [`PortRules::heads`] are the same for two states of a frontend, found out without making
    /// them.
    pub(crate) fn has_heads_of(&self, other: &Self, picker: Picker) -> bool {
        let of = |port: &Self| {
            let unanswered = port.answering().is_empty().then_some(port.has_endpoints);
            (port.main(picker), port.shortcut(picker), port.remember(picker), unanswered)
        };
        of(self) == of(other) && self.sources == other.sources && self.comment == other.comment
    }

    /// The two lists of endpoints and where they are written.
    pub(crate) fn lists(&self, picker: Picker) -> [(SetName, &[Backend]); 2] {
        let space = self.frontend.space();
        let (all, local): (&[Backend], &[Backend]) = match &self.exposure {
            _ if !picker.ipvs => (&self.backends, self.local()),
            Exposure::ExternalLocal { instead, .. } if !self.backends.is_empty() => (instead, &[]),
            _ => (&[], &[]),
        };
        [(space.endpoints(), all), (space.local_endpoints(), local)]
    }

    /// The element of one slot.
    pub(crate) fn endpoint(&self, slot: u32, backend: &Backend) -> Element {
        Element { key: self.frontend.key().slot(slot), data: data(backend), comment: None }
    }

    /// All elements that are its own.
    pub(crate) fn each(&self, picker: Picker, each: &mut (impl FnMut(SetName, Element) + ?Sized)) {
        self.each_head(picker, each);
        for (set, backends) in self.lists(picker) {
            for (slot, backend) in (0..).zip(backends) {
                each(set, self.endpoint(slot, backend));
            }
        }
    }

    /// Elements that other frontends may have too, each once.
    pub(crate) fn shared(&self, picker: Picker) -> impl Iterator<Item = (SetName, Key)> {
        let local = self.backends.iter().chain(self.local()).filter(|backend| backend.local);
        let mut hairpins: Vec<(SetName, Key)> =
            local.map(|backend| hairpin(backend.addr.ip())).collect();
        hairpins.sort_unstable();
        hairpins.dedup();
        // In the ipvs mode every address of a Service is one of the node's, so that the ports which
        // nobody serves there would be the node's own.
        let guarded = picker.ipvs || self.exposure == Exposure::Cluster;
        let addr = self.frontend.addr().filter(|_| guarded);
        hairpins.into_iter().chain(addr.map(|addr| (SetName::ClusterIps, Key::new().addr(addr))))
    }

    /// Its affinity maps, with the endpoints that clients may be remembered for.
    pub(crate) fn remembered(&self, picker: Picker) -> Vec<(String, Vec<Key>)> {
        // Without endpoints it has no map either, and IPVS remembers clients itself.
        let Some(sticky) = self.sticky.as_ref().filter(|_| self.has_endpoints && !picker.ipvs)
        else {
            return Vec::new();
        };
        let endpoints = |backends: &[Backend]| {
            backends.iter().map(|b| Key::new().addr(b.addr.ip()).port(b.addr.port())).collect()
        };
        let mut maps = vec![(sticky.map(), endpoints(&self.backends))];
        if let Exposure::ExternalLocal { local, .. } = &self.exposure {
            maps.push((Sticky { local: true, ..sticky.clone() }.map(), endpoints(local)));
        }
        maps
    }

    /// Also where there is no endpoint to pick: one that comes then finds its chain.
    fn main(&self, picker: Picker) -> Pick {
        let (route, endpoints) = match &self.exposure {
            Exposure::Cluster => (Route::Cluster, count(&self.backends)),
            Exposure::External => (Route::External, count(&self.backends)),
            Exposure::ExternalLocal { local, .. } => (Route::ExternalLocal, count(local)),
        };
        let bound_by_policy = route == Route::ExternalLocal;
        let slots = if picker.ipvs { 0 } else { picker.room(endpoints) };
        let sticky = self.sticky.clone().filter(|_| !picker.ipvs && endpoints > 0);
        let sticky =
            sticky.map(|sticky| Sticky { local: sticky.local || bound_by_policy, ..sticky });
        Pick { space: self.frontend.space(), route, slots, sticky }
    }

    fn shortcut(&self, picker: Picker) -> Option<Pick> {
        let bound_by_policy = matches!(self.exposure, Exposure::ExternalLocal { .. });
        let [(_, all), _] = self.lists(picker);
        // What no zone's slice has may run here all the same: then everybody goes there.
        let is_needed = !all.is_empty() || self.local().is_empty();
        (bound_by_policy && is_needed).then(|| Pick {
            space: self.frontend.space(),
            route: Route::Shortcut,
            slots: picker.room(count(all)),
            sticky: self.sticky.clone().filter(|_| !picker.ipvs && !all.is_empty()),
        })
    }

    fn remember(&self, picker: Picker) -> Option<Remember> {
        let sticky = self.sticky.clone().filter(|_| self.has_endpoints && !picker.ipvs)?;
        let external_local = matches!(self.exposure, Exposure::ExternalLocal { .. });
        let sticky = Sticky { local: sticky.local || external_local, ..sticky };
        Some(Remember { sticky, external_local })
    }

    /// Those who answer clients that no policy exempts.
    pub(crate) fn answering(&self) -> &Backends {
        match &self.exposure {
            Exposure::ExternalLocal { local, .. } => local,
            _ => &self.backends,
        }
    }
}

fn count(backends: &[Backend]) -> u32 {
    u32::try_from(backends.len()).expect("a Service has fewer than 2^32 endpoints")
}

fn data(backend: &Backend) -> Data {
    Data::Value(Key::new().addr(backend.addr.ip()).port(backend.addr.port()))
}

fn hairpin(addr: IpAddr) -> (SetName, Key) {
    (SetName::Hairpin, Key::new().addr(addr).addr(addr))
}

fn allowed(frontend: Key, net: &IpNet) -> Element {
    let data = Data::UpTo(frontend.addr(net.broadcast()));
    Element { key: frontend.addr(net.network()), data, comment: None }
}
