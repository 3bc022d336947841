//! In the ipvs mode: virtual servers, real servers and addresses that are not as they should be. In the
//! other mode: what of them was left behind.

use std::collections::BTreeMap;
use std::net::IpAddr;

use zw_dataplane::LINK;
use zw_model::Family;
use zw_plan::{
    ActualIpvs, ActualServer, Desired, Frontend, IpvsChanges, Link, ServerSettings, VirtualKey,
    WEIGHT,
};

use super::{Difference, Names, What};
use crate::inspect::text::period;
use crate::screen::count;

/// What is told of each kind of thing, in the table and in the JSON.
pub(crate) const INTERFACE: &str = "interface";
const ADDRESS: &str = "address";
const VIRTUAL: &str = "virtual server";
const REAL: &str = "real server";

/// Adds all that differs.
pub(super) fn differences(
    desired: &Desired,
    actual: &ActualIpvs,
    names: &Names,
    all: &mut Vec<Difference>,
) {
    let changes = desired.ipvs_differences(actual);
    of_link(&changes, actual.link, all);
    let services = names.by_address();
    for (addr, comes) in &changes.addresses {
        let what = if *comes { What::Missing } else { What::Extra };
        let service = services.get(addr).cloned().unwrap_or_default();
        all.push(one(service, *addr, ADDRESS, what, addr.to_string()));
    }
    let compared = Compared { desired, actual, changes: &changes };
    all.extend(changes.servers.iter().map(|(key, wanted)| Difference {
        service: names.of_server(key),
        ..compared.server(key, wanted.as_ref())
    }));
    // Those of a virtual server that comes or goes say no more.
    let whole = |key: &VirtualKey| {
        changes.servers.get(key).is_some_and(Option::is_none) || !actual.servers.contains_key(key)
    };
    for ((key, real), comes) in changes.reals.iter().filter(|((key, _), _)| !whole(key)) {
        let is = actual.servers.get(key).and_then(|server| server.reals.get(real));
        let (service, place) = (names.of_server(key), format!("{key} -> {real}"));
        all.push(match (comes, is) {
            (true, Some(is)) => {
                let weight = |weight: u32| format!("{place}, weight {weight}");
                let is = is.map_or_else(|| format!("{place}, not by rewriting"), weight);
                let should_be = Some(format!("weight {WEIGHT}"));
                let what = What::Changed;
                Difference { should_be, ..one(service, key.addr, REAL, what, is) }
            }
            (true, None) => one(service, key.addr, REAL, What::Missing, place),
            (false, _) => one(service, key.addr, REAL, What::Extra, place),
        });
    }
}

fn of_link(changes: &IpvsChanges, is: Link, all: &mut Vec<Difference>) {
    let (what, is, should_be) = match (changes.link, is) {
        (None, _) => return,
        (Some(true), Link::Missing) => (What::Missing, None, Some(LINK.to_owned())),
        (Some(true), _) => (What::Changed, Some(format!("{LINK} down")), Some("up".into())),
        (Some(false), _) => (What::Extra, Some(LINK.to_owned()), None),
    };
    let (service, family) = (String::new(), "-".to_owned());
    all.push(Difference { service, family, place: INTERFACE.into(), what, is, should_be });
}

/// Something that is missing, or there for nobody.
fn one(service: String, addr: IpAddr, place: &str, what: What, text: String) -> Difference {
    let family = Family::of(addr).to_string();
    let (is, should_be) =
        if what == What::Missing { (None, Some(text)) } else { (Some(text), None) };
    Difference { service, family, place: place.into(), what, is, should_be }
}

struct Compared<'a> {
    desired: &'a Desired,
    actual: &'a ActualIpvs,
    changes: &'a IpvsChanges,
}

impl Compared<'_> {
    fn server(&self, key: &VirtualKey, wanted: Option<&ServerSettings>) -> Difference {
        let about = |what, text| one(String::new(), key.addr, VIRTUAL, what, text);
        match (wanted, self.actual.servers.get(key)) {
            (None, _) => about(What::Extra, key.to_string()),
            (Some(wanted), Some(ActualServer { settings, .. })) => {
                let is = settings.as_ref().map_or_else(|| "other settings".into(), settings_words);
                let should_be = Some(settings_words(wanted));
                Difference { should_be, ..about(What::Changed, format!("{key} {is}")) }
            }
            (Some(wanted), None) => {
                if self.actual.foreign.contains(key) {
                    let is = format!("{key} is somebody else's");
                    let should_be =
                        self.desired.server_owner(key).map(|owner| format!("{owner}'s"));
                    return Difference { should_be, ..about(What::Changed, is) };
                }
                let reals = self.changes.reals.range((*key, LOWEST)..);
                let reals = reals.take_while(|((of, _), _)| of == key).count();
                let reals = count(reals, "real server");
                about(What::Missing, format!("{key} {}, {reals}", settings_words(wanted)))
            }
        }
    }
}

const LOWEST: std::net::SocketAddr =
    std::net::SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// `rr, sticky 3h`
fn settings_words(settings: &ServerSettings) -> String {
    let sticky = settings.persistence.map(|seconds| format!(", sticky {}", period(seconds)));
    format!("{}{}", settings.scheduler, sticky.unwrap_or_default())
}

impl Names {
    /// Whose a virtual server is: who has its address and port, else the node port.
    fn of_server(&self, key: &VirtualKey) -> String {
        let address = Frontend::new(key.addr, key.protocol, key.port);
        let node_port = Frontend::node_port(Family::of(key.addr), key.protocol, key.port);
        let name = self.0.get(&address).or_else(|| self.0.get(&node_port));
        name.map(|name| name.to_string()).unwrap_or_default()
    }

    /// The Service that has an address, the first by name if several do.
    fn by_address(&self) -> BTreeMap<IpAddr, String> {
        let mut services: BTreeMap<IpAddr, String> = BTreeMap::new();
        for (frontend, name) in &self.0 {
            let Some(addr) = frontend.addr() else { continue };
            let service = name.split(':').next().unwrap_or_default();
            let first = services.entry(addr).or_insert_with(|| service.to_owned());
            if service < first.as_str() {
                *first = service.to_owned();
            }
        }
        services
    }
}
