//! Every kind of meddling with the tables of every packet case is put right, from memory alone.

use zw_model::Family;

use super::*;
use crate::element::Data;
use crate::ruleset::{Chain, Statement};
use crate::table::Table;
use crate::testing::cases;

/// Both what a stranger did and how the kernel tells it.
type Meddle = Box<dyn Fn(&mut Table, &mut TableDrift)>;

fn delete(set: SetName, key: Key) -> Meddle {
    Box::new(move |table, drift| {
        table.elements.get_mut(&set).unwrap().remove(&key).unwrap();
        drift.element(set, key, None);
    })
}

fn change(set: SetName, key: Key) -> Meddle {
    Box::new(move |table, drift| {
        let data = Data::Goto("refuse".into());
        let element = Element { key, data, comment: Some("a stranger's".into()) };
        table.elements.get_mut(&set).unwrap().insert(key, element.clone());
        drift.element(set, key, None);
        drift.element(set, key, Some(element));
    })
}

fn add(set: SetName) -> Meddle {
    Box::new(move |table, drift| {
        let key = Key::new().port(1).port(2).port(3);
        let element = Element { key, data: Data::Foreign, comment: None };
        table.elements.get_mut(&set).unwrap().insert(key, element.clone());
        drift.element(set, key, Some(element));
    })
}

fn rewrite(chain: String) -> Meddle {
    Box::new(move |table, drift| {
        table.chains.get_mut(&chain).unwrap().rules = vec![vec![Statement::Drop]; 7];
        drift.chain(&chain, ChainDrift::Rules);
    })
}

fn remove(chain: String) -> Meddle {
    Box::new(move |table, drift| {
        table.chains.remove(&chain).unwrap();
        drift.chain(&chain, ChainDrift::Rules);
        drift.chain(&chain, ChainDrift::Gone);
    })
}

fn meddling(table: &Table) -> Vec<Meddle> {
    let mut all: Vec<Meddle> = Vec::new();
    for (set, elements) in &table.elements {
        all.extend(elements.keys().map(|key| delete(*set, *key)));
        all.extend(elements.keys().map(|key| change(*set, *key)));
        all.push(add(*set));
    }
    all.extend(table.chains.keys().map(|chain| rewrite(chain.clone())));
    all.extend(table.chains.keys().map(|chain| remove(chain.clone())));
    all.push(Box::new(|table, drift| {
        let strange = Chain { name: "strange".into(), hook: None, rules: Vec::new() };
        table.chains.insert(strange.name.clone(), strange);
        drift.chain("strange", ChainDrift::Made);
        drift.chain("strange", ChainDrift::Rules);
    }));
    all.push(Box::new(|table, drift| {
        *table = Table::absent(table.family);
        drift.alter();
        drift.chain("dispatch", ChainDrift::Gone);
    }));
    all
}

fn repaired(desired: &Desired, mut table: Table, drift: TableDrift) -> Table {
    let family = table.family;
    let drift = Drift { tables: BTreeMap::from([(family, drift)]), ..Drift::default() };
    if let Some(changes) = desired.repair(&drift).tables.get(&family) {
        table.apply(changes).unwrap_or_else(|error| panic!("{error:?} after {drift}"));
    }
    table
}

#[test]
fn whatever_is_meddled_with_is_as_it_was_one_by_one_and_together() {
    let mut count = 0;
    for family in Family::BOTH {
        for case in cases(family) {
            let desired = case.world.desired();
            let table = Table::of(&desired, family).unwrap();
            let all = meddling(&table);
            count += all.len();
            for meddle in &all {
                let (mut meddled, mut drift) = (table.clone(), TableDrift::default());
                meddle(&mut meddled, &mut drift);
                assert!(meddled != table, "{drift}");
                let told = drift.to_string();
                assert!(repaired(&desired, meddled, drift) == table, "{}: {told}", case.name);
            }
            let (mut meddled, mut drift) = (table.clone(), TableDrift::default());
            for set in table.elements.keys() {
                for key in table.elements[set].keys().take(2) {
                    change(*set, *key)(&mut meddled, &mut drift);
                }
                add(*set)(&mut meddled, &mut drift);
            }
            table.chains.keys().for_each(|name| rewrite(name.clone())(&mut meddled, &mut drift));
            assert_eq!(repaired(&desired, meddled, drift), table, "{}", case.name);
        }
    }
    assert!(count > 1_000, "{count} ways to meddle");
}

#[test]
fn what_was_changed_back_costs_nothing() {
    for case in cases(Family::V4) {
        let desired = case.world.desired();
        let table = Table::of(&desired, Family::V4).unwrap();
        let mut drift = Drift::default();
        for (set, elements) in table.elements.iter().filter(|(set, _)| !set.def().ranges) {
            for (key, element) in elements {
                drift.table(Family::V4).element(*set, *key, None);
                drift.table(Family::V4).element(*set, *key, Some(element.clone()));
            }
        }
        assert!(desired.repair(&drift).is_empty(), "{}", case.name);
    }
}

#[test]
fn a_chain_or_set_that_was_made_anew_takes_a_new_table() {
    let case = &cases(Family::V4)[0];
    let desired = case.world.desired();
    for meddle in [
        &mut |drift: &mut TableDrift| drift.chain("dispatch", ChainDrift::Made),
        &mut |drift: &mut TableDrift| drift.set("services", true),
        &mut |drift: &mut TableDrift| drift.set("services", false),
        &mut |drift: &mut TableDrift| drift.alter(),
    ] as [&mut dyn FnMut(&mut TableDrift); 4]
    {
        let mut drift = Drift::default();
        meddle(drift.table(Family::V4));
        let changes = desired.repair(&drift);
        assert_eq!(changes.tables[&Family::V4], desired.replace_table(Family::V4), "{drift}");
        assert!(changes.tables[&Family::V4].delete_table);
    }
}

#[test]
fn what_is_remembered_of_a_tireless_stranger_is_bounded() {
    let mut drift = TableDrift::default();
    for slot in 0..u32::try_from(MOST_ELEMENTS).unwrap() + 5 {
        drift.element(SetName::Endpoints, Key::new().slot(slot), None);
    }
    assert!(drift.altered);
    assert!(drift.elements.values().map(HashMap::len).sum::<usize>() < 10);
}

#[test]
fn what_was_touched_is_told_in_a_line() {
    let mut drift = Drift::default();
    let table = drift.table(Family::V4);
    table.element(SetName::Services, Key::new().port(1), None);
    table.element(SetName::Services, Key::new().port(2), None);
    table.element(SetName::ServiceRanges, Key::new().port(2), None);
    table.chain("cluster-2", ChainDrift::Rules);
    drift.table(Family::V6).alter();
    assert_eq!(
        drift.to_string(),
        "IPv4: 2 elements of services, elements of service-ranges, chain cluster-2; IPv6: the table"
    );
}
