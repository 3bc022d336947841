//! What the kernel holds against what it should hold, object by object, with the Service each is for.

mod servers;

pub(crate) use servers::INTERFACE;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;
use zw_model::{Family, Scheduler};
use zw_plan::{
    Actual, Desired, Element, Field, Frontend, Key, PlanConfig, Pods, SetName, Shape, TableChanges,
    Value, bring_to, decode, decode_frontend, show_element,
};

use super::planned::Settings;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Difference {
    /// `namespace/name:port`; empty where it is for all or for nobody.
    pub(crate) service: String,
    pub(crate) family: String,
    /// `table`, `chain`, or the name of a set; in the ipvs mode also `virtual server`, `real server`,
    /// `address` and `interface`.
    pub(crate) place: String,
    pub(crate) what: What,
    /// As the kernel has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) is: Option<String>,
    /// As it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) should_be: Option<String>,
}

/// How it differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum What {
    /// Wanted, and not in the kernel.
    Missing,
    /// In the kernel, and wanted by nobody.
    Extra,
    Changed,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            What::Missing => "missing",
            What::Extra => "extra",
            What::Changed => "changed",
        })
    }
}

/// All that differs, by Service. Chains that lie idle are not among it: some are kept for the next
/// Service that needs them.
pub(crate) fn differences(desired: &Desired, actual: &Actual) -> Vec<Difference> {
    let names = Names::of(desired, actual);
    let changes = bring_to(desired, actual);
    let mut differences = Vec::new();
    for (family, table) in &changes.tables {
        let note = actual.tables.get(family).and_then(|table| table.note.clone());
        of_table(*family, table, note, &names, &mut differences);
    }
    servers::differences(desired, &actual.ipvs, &names, &mut differences);
    differences.sort();
    differences
}

/// Whose a frontend is.
struct Names(HashMap<Frontend, Arc<str>>);

impl Names {
    fn of(desired: &Desired, actual: &Actual) -> Self {
        let mut names = HashMap::new();
        for (family, table) in &actual.tables {
            for set in [SetName::Services, SetName::NodePorts] {
                for element in table.sets.get(&set).into_iter().flat_map(HashMap::values) {
                    if let (Some(frontend), Some(name)) =
                        (decode_frontend(*family, set, &element.key), &element.comment)
                    {
                        names.insert(frontend, name.clone());
                    }
                }
            }
        }
        for key in desired.service_keys() {
            for port in desired.service(key).into_iter().flat_map(|rules| &rules.ports) {
                names.insert(port.frontend, port.comment.clone());
            }
        }
        Self(names)
    }

    fn of_element(&self, family: Family, set: SetName, element: &Element) -> String {
        let about_nobody = matches!(
            set,
            SetName::NodeAddresses
                | SetName::ClusterIps
                | SetName::ServiceRanges
                | SetName::Hairpin
        );
        let looked_up = || self.0.get(&decode_frontend(family, set, &element.key)?).cloned();
        let name = element.comment.clone();
        let name = name.or_else(|| if about_nobody { None } else { looked_up() });
        name.as_deref().unwrap_or_default().to_owned()
    }
}

fn of_table(
    family: Family,
    changes: &TableChanges,
    note: Option<String>,
    names: &Names,
    all: &mut Vec<Difference>,
) {
    let plain = |place: &str, what, is: Option<String>, should_be: Option<String>| Difference {
        service: String::new(),
        family: family.to_string(),
        place: place.into(),
        what,
        is,
        should_be,
    };
    if let Some(wanted) = &changes.add_table {
        // Everything in it is missing too, which says no more.
        let what = if changes.delete_table { What::Changed } else { What::Missing };
        let is = changes.delete_table.then(|| match note {
            Some(note) if note != *wanted => note,
            _ => "of another version, or meddled with".into(),
        });
        all.push(plain("table", what, is, Some(wanted.clone())));
        return;
    }
    for set in &changes.add_sets {
        all.push(plain("set", What::Missing, None, Some(set.name.to_string())));
    }
    for map in &changes.add_affinity_maps {
        all.push(plain("set", What::Missing, None, Some(map.clone())));
    }
    for set in &changes.delete_sets {
        all.push(plain("set", What::Extra, Some(set.clone()), None));
    }
    for chain in &changes.add_chains {
        all.push(plain("chain", What::Missing, None, Some(chain.name.clone())));
    }
    for chain in &changes.rewrite_chains {
        let (is, should_be) = ("other rules".into(), format!("the rules of {}", chain.name));
        all.push(plain("chain", What::Changed, Some(is), Some(should_be)));
    }
    let idle = |name: &String| Shape::parse(name).is_some_and(|shape| !shape.is_sticky());
    for chain in changes.delete_chains.iter().filter(|name| !idle(name)) {
        all.push(plain("chain", What::Extra, Some(chain.clone()), None));
    }
    of_elements(family, changes, names, all);
}

fn of_elements(family: Family, changes: &TableChanges, names: &Names, all: &mut Vec<Difference>) {
    type Pair<'a> = (Option<&'a Element>, Option<&'a Element>);
    let mut pairs: BTreeMap<(SetName, Key), Pair<'_>> = BTreeMap::new();
    for (set, elements) in &changes.delete_elements {
        for element in elements {
            pairs.entry((*set, element.key)).or_default().0 = Some(element);
        }
    }
    for (set, elements) in &changes.add_elements {
        for element in elements {
            pairs.entry((*set, element.key)).or_default().1 = Some(element);
        }
    }
    for ((set, _), (is, should_be)) in pairs {
        let what = match (is, should_be) {
            (Some(_), Some(_)) => What::Changed,
            (Some(_), None) => What::Extra,
            _ => What::Missing,
        };
        let Some(element) = should_be.or(is) else { continue };
        let show = |element: &Element| {
            // The Service is told beside it.
            let bare = Element { comment: None, ..element.clone() };
            show_element(family, set, &bare)
        };
        all.push(Difference {
            service: names.of_element(family, set, element),
            family: family.to_string(),
            place: set.to_string(),
            what,
            is: is.map(show),
            should_be: should_be.map(show),
        });
    }
}

/// What the kernel's tables tell of how they were made, both families' together: the settings, and where
/// node ports are served. Defaults where they do not tell. `own`: the addresses the node has by itself.
pub(crate) fn settings_of(actual: &Actual, own: BTreeSet<IpAddr>) -> Settings {
    let of_family = |family: Family| {
        let note = actual.tables.get(&family)?.note.as_ref()?;
        PlanConfig::from_note(family, note)
    };
    let mut plan: Option<PlanConfig> = None;
    for other in Family::BOTH.into_iter().filter_map(of_family) {
        match &mut plan {
            None => plan = Some(other),
            Some(plan) => {
                if let (Pods::Ranges(all), Pods::Ranges(more)) = (&mut plan.pods, other.pods) {
                    all.extend(more);
                }
                plan.any_node_address.extend(other.any_node_address);
            }
        }
    }
    let node_addresses = actual.tables.iter().flat_map(|(family, table)| {
        let elements = table.sets.get(&SetName::NodeAddresses).into_iter().flatten();
        elements.filter_map(|(key, _)| match decode(*family, &[Field::Daddr], key)?[..] {
            [Value::Addr(addr)] => Some(addr),
            _ => None,
        })
    });
    let node_addresses = Some(node_addresses.collect());
    let mut plan = plan.unwrap_or_default();
    plan.ipvs = plan.ipvs.map(|_| usual_scheduler(actual));
    let own_addresses = if plan.ipvs.is_some() { own } else { BTreeSet::new() };
    Settings { plan, node_addresses, own_addresses, service_ranges: None }
}

/// Which scheduler most virtual servers have: the table does not tell which one is for all.
fn usual_scheduler(actual: &Actual) -> Scheduler {
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    let settings = actual.ipvs.servers.values().filter_map(|server| server.settings.as_ref());
    for settings in settings {
        *uses.entry(settings.scheduler.to_string()).or_default() += 1;
    }
    let usual = uses.iter().max_by_key(|(_, uses)| **uses);
    usual.and_then(|(text, _)| text.parse().ok()).unwrap_or_default()
}
