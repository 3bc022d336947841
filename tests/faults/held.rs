//! What a kernel holds of ours, in a form in which two of them can be compared.

use std::collections::{BTreeSet, HashMap};

use zw_dataplane::Kernel;
use zw_lab::Namespace;
use zw_model::Family;
use zw_plan::{Data, Field, SetName, Shape, show_key};

/// One line for everything that is there. Which of a Service's slots an endpoint has is a matter of
/// history, and so is who its sticky clients are: neither is told.
pub(crate) fn held(namespace: &Namespace) -> Option<BTreeSet<String>> {
    // Torn by somebody's change: the caller looks again.
    let read = namespace.run(|| Kernel::open().ok()?.read_back().ok())?;
    let mut lines = BTreeSet::new();
    for (family, table) in &read.actual.tables {
        let keyword = keyword(*family);
        lines.insert(format!("{keyword}: settings {:?}", table.note));
        if table.incompatible {
            lines.insert(format!("{keyword}: incompatible"));
        }
        for name in &table.unknown_sets {
            lines.insert(format!("{keyword}: unknown set {name}"));
        }
        for name in table.affinity_maps.keys() {
            lines.insert(format!("{keyword}: {name}"));
        }
        let elements = table.sets.values().flat_map(HashMap::values);
        let used: BTreeSet<&str> = elements
            .filter_map(|element| match &element.data {
                Data::Goto(chain) => Some(&**chain),
                _ => None,
            })
            .collect();
        // A chain that picks an endpoint and lies idle is kept for the next Service that needs it.
        let idle =
            |name: &str| matches!(Shape::parse(name), Some(Shape::Pick(_))) && !used.contains(name);
        for (name, rules) in table.chains.iter().filter(|(name, _)| !idle(name)) {
            lines.insert(format!("{keyword}: chain {name} {rules:?}"));
        }
        for (set, elements) in &table.sets {
            for (key, element) in elements {
                let key = show_key(*family, *set, key);
                let (data, comment) = (&element.data, &element.comment);
                lines.insert(match data {
                    Data::Value(_) if has_slots(*set) => format!("{keyword}: {set:?} {key}"),
                    _ => format!("{keyword}: {set:?} {key} {data:?} {comment:?}"),
                });
            }
        }
    }
    for (frontend, slots) in read.actual.slots() {
        for (kind, mut endpoints) in [("all", slots.all), ("local", slots.local)] {
            endpoints.sort();
            lines.insert(format!("{frontend}: {kind} {endpoints:?}"));
        }
    }
    Some(lines)
}

/// What nft calls a family.
pub(crate) fn keyword(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

fn has_slots(set: SetName) -> bool {
    matches!(set.def().key.last(), Some(Field::Pick(_)))
}

/// What only one of the two has.
pub(crate) fn difference(is: &BTreeSet<String>, should: &BTreeSet<String>) -> String {
    let only = |sign: &str, one: &BTreeSet<String>, other: &BTreeSet<String>| -> String {
        one.difference(other).map(|line| format!("  {sign} {line}\n")).collect()
    };
    only("+", is, should) + &only("-", should, is)
}
