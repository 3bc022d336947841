//! A table as nft prints it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};
use zw_model::Family;

use super::Table;
use crate::base::TABLE;
use crate::element::{Data, Element, Key, Value, decode};
use crate::ruleset::{Field, InFamily, SetData, SetDef, keyword};
use crate::sets::{ENDPOINT, SetName, sets};
use crate::shape::AFFINITY_SIZE;

/// A key as nft writes it.
pub fn show_key(family: Family, set: SetName, key: &Key) -> String {
    show(family, set.def().key, key)
}

/// An element as nft writes it.
pub fn show_element(family: Family, set: SetName, element: &Element) -> String {
    let def = set.def();
    let mut text = show(family, def.key, &element.key);
    if let Some(comment) = &element.comment {
        text += &format!(" comment \"{comment}\"");
    }
    match (&element.data, def.data) {
        (Data::UpTo(end), _) => text = show_span(family, def.key, &element.key, end),
        (Data::Goto(chain), _) => text += &format!(" : goto {chain}"),
        (Data::Value(value), SetData::Fields(fields)) => {
            text += &format!(" : {}", show(family, fields, value));
        }
        _ => {}
    }
    text
}

fn show(family: Family, fields: &[Field], key: &Key) -> String {
    match decode(family, fields, key) {
        Some(values) => values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" . "),
        None => format!("{key:?}"),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table {} {TABLE} {{", keyword(self.family))?;
        if let Some(note) = &self.note {
            writeln!(f, "\tcomment \"{note}\"")?;
        }
        for def in sets() {
            if let Some(elements) = self.elements.get(&def.name) {
                self.fmt_set(f, &def, elements)?;
            }
        }
        for (name, clients) in &self.affinity_maps {
            self.fmt_affinity_map(f, name, clients)?;
        }
        for (i, chain) in self.chains.values().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            writeln!(f, "\tchain {} {{", chain.name)?;
            if let Some(hook) = chain.hook {
                writeln!(f, "\t\t{hook}")?;
            }
            if self.unknown.contains(&chain.name) {
                writeln!(f, "\t\t# rules of other settings or another version")?;
            }
            for rule in &chain.rules {
                writeln!(f, "\t\t{}", InFamily(self.family, rule))?;
            }
            writeln!(f, "\t}}")?;
        }
        writeln!(f, "}}")
    }
}

impl Table {
    fn fmt_set(
        &self,
        f: &mut fmt::Formatter<'_>,
        def: &SetDef,
        elements: &BTreeMap<Key, Element>,
    ) -> fmt::Result {
        let kind = if def.data == SetData::None { "set" } else { "map" };
        writeln!(f, "\t{kind} {} {{", def.name)?;
        write!(f, "\t\ttypeof {}", InFamily(self.family, def.key))?;
        match def.data {
            SetData::None => writeln!(f)?,
            SetData::Verdict => writeln!(f, " : verdict")?,
            SetData::Fields(fields) => writeln!(f, " : {}", InFamily(self.family, fields))?,
        }
        if def.ranges {
            writeln!(f, "\t\tflags interval")?;
        }
        if let Some(size) = def.size {
            writeln!(f, "\t\tsize {size}")?;
            writeln!(f, "\t\tflags dynamic")?;
        }
        if def.counts {
            writeln!(f, "\t\tcounter")?;
        }
        let shown: Vec<String> =
            elements.values().map(|e| show_element(self.family, def.name, e)).collect();
        fmt_elements(f, &shown)?;
        writeln!(f, "\t}}\n")
    }

    fn fmt_affinity_map(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        clients: &BTreeMap<Key, Key>,
    ) -> fmt::Result {
        let ip = keyword(self.family);
        writeln!(f, "\tmap {name} {{")?;
        writeln!(f, "\t\ttypeof {ip} saddr : {ip} daddr . th dport")?;
        writeln!(f, "\t\tsize {AFFINITY_SIZE}")?;
        writeln!(f, "\t\tflags dynamic,timeout")?;
        writeln!(f, "\t\ttimeout 1d")?;
        let shown = clients.iter().map(|(client, with)| {
            let client = show(self.family, &[Field::Saddr], client);
            format!("{client} : {}", show(self.family, ENDPOINT, with))
        });
        fmt_elements(f, &shown.collect::<Vec<_>>())?;
        writeln!(f, "\t}}\n")
    }
}

fn fmt_elements(f: &mut fmt::Formatter<'_>, shown: &[String]) -> fmt::Result {
    for (i, element) in shown.iter().enumerate() {
        let open = if i == 0 { "\t\telements = { " } else { "\t\t\t     " };
        let close = if i + 1 == shown.len() { " }" } else { "," };
        writeln!(f, "{open}{element}{close}")?;
    }
    Ok(())
}

/// From one key to another, field by field.
fn show_span(family: Family, fields: &[Field], from: &Key, to: &Key) -> String {
    let (Some(from), Some(to)) = (decode(family, fields, from), decode(family, fields, to)) else {
        return format!("{from:?}-{to:?}");
    };
    let span = from.into_iter().zip(to).map(|pair| match pair {
        (Value::Addr(first), Value::Addr(last)) => show_addresses(first, last),
        (one, other) if one == other => one.to_string(),
        (one, other) => format!("{one}-{other}"),
    });
    span.collect::<Vec<_>>().join(" . ")
}

/// As a prefix where it is one.
fn show_addresses(first: IpAddr, last: IpAddr) -> String {
    if first == last {
        return first.to_string();
    }
    let mut nets = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => IpSubnets::V4(Ipv4Subnets::new(first, last, 0)),
        (IpAddr::V6(first), IpAddr::V6(last)) => IpSubnets::V6(Ipv6Subnets::new(first, last, 0)),
        _ => return format!("{first}-{last}"),
    };
    match (nets.next(), nets.next()) {
        (Some(net), None) => IpNet::to_string(&net),
        _ => format!("{first}-{last}"),
    }
}
