//! Changes to one netlink batch, remembering which operation is which object, so that a refusal can
//! be told in words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use zw_model::Family;
use zw_netlink::nft::{
    Batch, ChainSpec, Element, ElementData, Hook, HookKind, HookPoint, OpId, SetData, SetSpec,
    TypeOf,
};

use zw_plan::{
    AFFINITY_SIZE, Chain, Changes, Data, Field, Key, Part, SetDef, SetName, TABLE, TableChanges,
    show_key,
};

use super::rules;

/// Changes as the kernel is told of them, made while it is busy with others.
#[derive(Debug, PartialEq, Eq)]
pub struct Encoded(pub(crate) Batch);

impl Encoded {
    /// Nothing where sets are to be made: how depends on the kernel.
    pub fn of(changes: &Changes) -> Option<Self> {
        (!makes_sets(changes)).then(|| Self(encode(changes, false)))
    }
}

/// Whether any set of ours comes with them.
pub(crate) fn makes_sets(changes: &Changes) -> bool {
    changes.tables.values().any(|table| !table.add_sets.is_empty())
}

/// Encodes all changes that packets can tell, in an order the kernel accepts: what is referred to
/// before what refers. `sizes`: sets that will grow may be told their size.
pub(crate) fn encode(changes: &Changes, sizes: bool) -> Batch {
    let mut batch = Batch::new();
    for (family, table) in &changes.tables {
        encode_table(*family, table, sizes, &mut batch);
    }
    batch
}

fn encode_table(of: Family, changes: &TableChanges, sizes: bool, batch: &mut Batch) {
    let family = super::family(of);
    if changes.delete_table {
        // Made first, because deleting what is not there would be refused.
        batch.add_table(family, TABLE, None);
        batch.delete_table(family, TABLE);
    }
    if let Some(note) = &changes.add_table {
        batch.add_table(family, TABLE, Some(note));
    }
    for set in &changes.add_sets {
        let size = set.size.filter(|_| sizes || set.counts);
        batch.add_set(family, TABLE, &set_spec(of, &SetDef { size, ..*set }));
    }
    for map in &changes.add_affinity_maps {
        batch.add_set(family, TABLE, &affinity_spec(of, map));
        // One that could not be swept may still be there, with the clients of a Service that is gone.
        batch.flush_set(family, TABLE, map);
    }
    for chain in &changes.add_chains {
        batch.add_chain(family, TABLE, &chain_spec(chain));
    }
    // A new chain too: one that could not be swept may still be there, with its rules.
    for chain in changes.add_chains.iter().chain(&changes.rewrite_chains) {
        batch.flush_chain(family, TABLE, &chain.name);
    }
    for chain in changes.add_chains.iter().chain(&changes.rewrite_chains) {
        for (rule, fingerprint) in chain.rules.iter().zip(chain.fingerprints(of)) {
            let exprs = rules::encode(of, rule);
            batch.add_rule(family, TABLE, &chain.name, &exprs, Some(&fingerprint));
        }
    }
    for set in &changes.flush_sets {
        batch.flush_set(family, TABLE, set.as_str());
    }
    for (set, elements) in &changes.delete_elements {
        for element in elements {
            delete_element(of, *set, element, batch);
        }
    }
    for (set, elements) in &changes.add_elements {
        for element in elements {
            add_element(of, *set, element, batch);
        }
    }
}

fn add_element(of: Family, set: SetName, element: &zw_plan::Element, batch: &mut Batch) {
    let family = super::family(of);
    let data = match &element.data {
        Data::Goto(chain) => Some(ElementData::Goto(chain)),
        Data::Value(value) => Some(ElementData::Value(value.as_bytes())),
        Data::Nothing | Data::UpTo(_) | Data::Foreign => None,
    };
    let mut sent = Element {
        key: element.key.as_bytes(),
        key_end: None,
        data,
        timeout: None,
        comment: element.comment.as_deref(),
    };
    match &element.data {
        Data::UpTo(last) if has_one_field(set) => {
            let end = after(last.as_bytes());
            batch.add_interval(family, TABLE, set.as_str(), &sent, end.as_deref());
        }
        Data::UpTo(last) => {
            sent.key_end = Some(last.as_bytes());
            batch.add_element(family, TABLE, set.as_str(), &sent);
        }
        _ => {
            batch.add_element(family, TABLE, set.as_str(), &sent);
        }
    }
}

/// A range is known by both its ends.
fn delete_element(of: Family, set: SetName, element: &zw_plan::Element, batch: &mut Batch) {
    let (family, key) = (super::family(of), element.key.as_bytes());
    match &element.data {
        Data::UpTo(last) if has_one_field(set) => {
            let end = after(last.as_bytes());
            batch.delete_interval(family, TABLE, set.as_str(), key, end.as_deref());
        }
        Data::UpTo(last) => {
            batch.delete_range(family, TABLE, set.as_str(), key, last.as_bytes());
        }
        _ => {
            batch.delete_element(family, TABLE, set.as_str(), key);
        }
    }
}

fn has_one_field(set: SetName) -> bool {
    set.def().key.len() == 1
}

/// The address before the one that a range ends at.
pub(crate) fn before(end: &Key) -> Option<Key> {
    let addr: IpAddr = if let Ok(octets) = <[u8; 4]>::try_from(end.as_bytes()) {
        Ipv4Addr::from_bits(Ipv4Addr::from(octets).to_bits().checked_sub(1)?).into()
    } else {
        let octets = <[u8; 16]>::try_from(end.as_bytes()).ok()?;
        Ipv6Addr::from_bits(Ipv6Addr::from(octets).to_bits().checked_sub(1)?).into()
    };
    Some(Key::new().addr(addr))
}

/// The address after this one; none after the very last.
fn after(last: &[u8]) -> Option<Vec<u8>> {
    if let Ok(octets) = <[u8; 4]>::try_from(last) {
        let next = Ipv4Addr::from(octets).to_bits().checked_add(1)?;
        return Some(next.to_be_bytes().to_vec());
    }
    let next = Ipv6Addr::from(<[u8; 16]>::try_from(last).ok()?).to_bits().checked_add(1)?;
    Some(next.to_be_bytes().to_vec())
}

/// What is deleted after the changes, in a transaction of its own: chains and sets that nothing refers
/// to any more. Kernels before 6.2 keep a chain in use for a while after the element that led to it is
/// gone, and would refuse the whole transaction.
pub(crate) fn encode_sweep(changes: &Changes) -> Batch {
    let mut batch = Batch::new();
    for (of, table) in &changes.tables {
        let family = super::family(*of);
        for chain in &table.delete_chains {
            batch.delete_chain(family, TABLE, chain);
        }
        for set in &table.delete_sets {
            batch.delete_set(family, TABLE, set);
        }
    }
    batch
}

/// What an operation was about: in words, and which part of the table where it is a single one.
type Described = (String, Option<Part>);

/// What the operation of this number was about. Walks the changes in the order of [`encode_table`];
/// only a refusal pays for it.
pub(crate) fn describe(changes: &Changes, op: OpId) -> Described {
    let at = op.0 as usize;
    let all = changes.tables.iter().flat_map(|(family, table)| describe_table(*family, table));
    all.into_iter().nth(at).unwrap_or_else(|| (format!("operation {at}"), None))
}

fn describe_table(family: Family, changes: &TableChanges) -> impl Iterator<Item = Described> {
    let table = move |verb: &str| (format!("{verb} the {family} table {TABLE}"), None);
    let written = || changes.add_chains.iter().chain(&changes.rewrite_chains);
    let of_chain = move |text: String, chain: &Chain| {
        (
            format!("{text}{family} chain {}", chain.name),
            Some(Part::Chain(family, chain.name.clone())),
        )
    };
    let rules = written().flat_map(move |chain| {
        (1..=chain.rules.len()).map(move |n| of_chain(format!("rule {n} of "), chain))
    });
    let flushed =
        changes.flush_sets.iter().map(move |set| (format!("flush {family} set {set}"), None));
    let part = move |set: SetName, element: &zw_plan::Element| {
        Some(Part::Element(family, set, element.key))
    };
    let deleted = changes.delete_elements.iter().flat_map(move |(set, elements)| {
        elements.iter().map(move |element| {
            let key = show_key(family, *set, &element.key);
            (format!("delete {family} element {key} of {set}"), part(*set, element))
        })
    });
    let added = changes.add_elements.iter().flat_map(move |(set, elements)| {
        elements.iter().map(move |element| {
            let of =
                element.comment.as_ref().map(|name| format!(" for {name}")).unwrap_or_default();
            let key = show_key(family, *set, &element.key);
            (format!("{family} element {key} of {set}{of}"), part(*set, element))
        })
    });
    let replaced = changes.delete_table.then(|| [table("make"), table("delete")]);
    replaced
        .into_iter()
        .flatten()
        .chain(changes.add_table.as_ref().map(|_| table("add")))
        .chain(changes.add_sets.iter().map(move |set| (format!("{family} set {}", set.name), None)))
        .chain(changes.add_affinity_maps.iter().flat_map(move |map| {
            ["", "flush "].map(|how| {
                let part = Part::AffinityMap(family, map.clone());
                (format!("{how}{family} map {map}"), Some(part))
            })
        }))
        .chain(changes.add_chains.iter().map(move |chain| of_chain(String::new(), chain)))
        .chain(written().map(move |chain| of_chain("flush ".into(), chain)))
        .chain(rules)
        .chain(flushed)
        .chain(deleted)
        .chain(added)
}

/// How often the kernel looks for elements that have timed out where none ever does: once a day, for that
/// takes it 15 ms with 260,000 elements, in which nothing else runs on that processor. By default it does so
/// every second.
pub(crate) const SELDOM: Duration = Duration::from_secs(86_400);

/// A set as the kernel is told of it.
pub(crate) fn set_spec(family: Family, set: &SetDef) -> SetSpec {
    let type_of = |fields: &[Field]| -> Vec<TypeOf> {
        fields
            .iter()
            .map(|field| match (field, family) {
                (Field::OriginalDaddr, Family::V4) => TypeOf::CtOriginalIpDaddr,
                (Field::OriginalDaddr, Family::V6) => TypeOf::CtOriginalIp6Daddr,
                (Field::Saddr, Family::V4) => TypeOf::IpSaddr,
                (Field::Saddr, Family::V6) => TypeOf::Ip6Saddr,
                (Field::Daddr, Family::V4) => TypeOf::IpDaddr,
                (Field::Daddr, Family::V6) => TypeOf::Ip6Daddr,
                (Field::Protocol, _) => TypeOf::MetaL4proto,
                (Field::Dport | Field::OriginalDport, _) => TypeOf::ThDport,
                (Field::Pick(modulus), _) => TypeOf::NumgenRandom { modulus: *modulus },
                (Field::Next(modulus), _) => TypeOf::NumgenInc { modulus: *modulus },
            })
            .collect()
    };
    SetSpec {
        name: set.name.as_str().into(),
        key: type_of(set.key),
        data: match set.data {
            zw_plan::SetData::None => SetData::None,
            zw_plan::SetData::Verdict => SetData::Verdict,
            zw_plan::SetData::Fields(fields) => SetData::Fields(type_of(fields)),
        },
        counter: set.counts,
        timeout: None,
        // Only a set whose elements may time out, or are added by rules, is rearranged as it grows and
        // shrinks, whatever size it was told first.
        gc_interval: set.size.filter(|_| !set.counts).map(|_| SELDOM),
        dynamic: set.counts,
        interval: set.ranges,
        size: set.size,
        comment: None,
    }
}

/// A sticky Service port's memory, filled by the packet path.
pub(crate) fn affinity_spec(family: Family, name: &str) -> SetSpec {
    let (client, endpoint) = match family {
        Family::V4 => (TypeOf::IpSaddr, TypeOf::IpDaddr),
        Family::V6 => (TypeOf::Ip6Saddr, TypeOf::Ip6Daddr),
    };
    SetSpec {
        name: name.into(),
        key: vec![client],
        data: SetData::Fields(vec![endpoint, TypeOf::ThDport]),
        counter: false,
        // Every element brings its own, which is never longer.
        timeout: Some(Duration::from_secs(86_400)),
        gc_interval: None,
        dynamic: true,
        interval: false,
        size: Some(AFFINITY_SIZE),
        comment: None,
    }
}

/// A chain as the kernel is told of it, without its rules.
pub(crate) fn chain_spec(chain: &Chain) -> ChainSpec {
    let hook = chain.hook.map(|hook| Hook {
        kind: match hook.kind {
            zw_plan::HookKind::Filter => HookKind::Filter,
            zw_plan::HookKind::Nat => HookKind::Nat,
        },
        point: match hook.point {
            zw_plan::HookPoint::Prerouting => HookPoint::Prerouting,
            zw_plan::HookPoint::Input => HookPoint::Input,
            zw_plan::HookPoint::Forward => HookPoint::Forward,
            zw_plan::HookPoint::Output => HookPoint::Output,
            zw_plan::HookPoint::Postrouting => HookPoint::Postrouting,
        },
        priority: hook.priority,
    });
    ChainSpec { name: chain.name.clone(), hook, comment: None }
}

#[cfg(test)]
mod tests {
    use zw_plan::{Desired, PlanConfig, bring_to};

    use super::*;

    /// [`describe`] follows the order of [`encode`] by hand; this holds them together.
    #[test]
    fn every_operation_has_a_description() {
        let desired = Desired::new(PlanConfig::default(), Default::default());
        let mut changes = bring_to(&desired, &zw_plan::Actual::default());
        for table in changes.tables.values_mut() {
            table.delete_table = true;
            table.rewrite_chains = table.add_chains.split_off(3);
            let element = zw_plan::Element::bare(zw_plan::Key::new());
            table.delete_elements.insert(zw_plan::SetName::Hairpin, vec![element.clone()]);
            table.add_affinity_maps.push("affinity-x".into());
            table.flush_sets.push(zw_plan::SetName::Allowed);
            table.add_elements.insert(zw_plan::SetName::Hairpin, vec![element]);
        }
        let described: Vec<Described> = changes
            .tables
            .iter()
            .flat_map(|(family, table)| describe_table(*family, table))
            .collect();
        assert_eq!(described.len(), encode(&changes, true).len());
        assert_eq!(described[1], ("delete the IPv4 table zoneward".into(), None));
        assert_eq!(
            describe(&changes, OpId(described.len() as u32 - 1)),
            described[described.len() - 1]
        );
        assert_eq!(describe(&changes, OpId(9_999)), ("operation 9999".into(), None));
        let part = Part::Element(Family::V6, SetName::Hairpin, Key::new());
        assert_eq!(described.last().and_then(|(_, part)| part.clone()), Some(part));
    }
}
