//! A table that a stranger or a predecessor left otherwise is brought to what it should be.

use super::*;

proptest! {
    #[test]
    fn a_damaged_table_is_repaired(history in history(), damage in prop::collection::vec(damage(), 1..5)) {
        let mut run = Run::new();
        for step in history {
            run.step(step.into_iter().map(|(service, spec)| (key(service), spec)));
        }
        let mut damaged = run.tables.clone();
        for (family, damage) in damage {
            damage.to(&mut damaged[family]);
        }
        let changes = bring_to(&run.desired, &actual(&damaged));
        prop_assert_eq!(changes.is_empty(), damaged == run.tables, "{:?}", changes);
        prop_assert_eq!(applied(&damaged, &changes), run.tables);
    }
}

/// What a stranger, or a predecessor of another version, may have done to a table.
#[derive(Debug, Clone)]
enum Damage {
    UnknownChain,
    LeftoverShape(u32),
    StrayElements,
    ForeignData(prop::sample::Index),
    OtherComment(prop::sample::Index),
    LostElement(prop::sample::Index),
    ChangedRules(prop::sample::Index),
    EmptiedChain(prop::sample::Index),
}

fn damage() -> impl Strategy<Value = (usize, Damage)> {
    let any = any::<prop::sample::Index>;
    let damage = prop_oneof![
        Just(Damage::UnknownChain),
        (1u32..100).prop_map(Damage::LeftoverShape),
        Just(Damage::StrayElements),
        any().prop_map(Damage::ForeignData),
        any().prop_map(Damage::OtherComment),
        any().prop_map(Damage::LostElement),
        any().prop_map(Damage::ChangedRules),
        any().prop_map(Damage::EmptiedChain),
    ];
    (0usize..2, damage)
}

impl Damage {
    fn to(&self, table: &mut Table) {
        let family = table.family;
        match self {
            Damage::UnknownChain => {
                let rules = vec![vec![Statement::Reject]];
                let chain = Chain { name: "svc-of-old".into(), hook: None, rules };
                table.chains.insert(chain.name.clone(), chain);
            }
            Damage::LeftoverShape(slots) => {
                let chain = shape_chain(family, *slots, &config());
                table.chains.insert(chain.name.clone(), chain);
            }
            Damage::StrayElements => {
                let of_nobody = frontend_key(family, 99);
                let to = Data::Value(Key::new().addr(pod(family, 99)).port(1));
                let goto = |chain: &str| Data::Goto(chain.to_owned().into());
                for (set, key, data) in [
                    (SetName::Services, of_nobody, goto("refuse")),
                    (SetName::NoEndpoints, of_nobody, Data::Nothing),
                    (SetName::EndpointsElsewhere, of_nobody, Data::Nothing),
                    (SetName::Served, of_nobody, Data::Nothing),
                    (SetName::Endpoints, of_nobody.slot(0), to),
                    (SetName::Hairpin, Key::new().addr(vip(family, 9)), Data::Nothing),
                ] {
                    let element = Element { key, data, comment: None };
                    table.elements.entry(set).or_default().insert(key, element);
                }
            }
            Damage::ForeignData(index) => {
                with_one(table, index, |element| element.data = Data::Foreign);
            }
            Damage::OtherComment(index) => {
                with_one(table, index, |element| element.comment = Some("x/y:z".into()));
            }
            Damage::LostElement(index) => {
                let mut lost = None;
                with_one(table, index, |element| lost = Some(element.key));
                if let Some(key) = lost {
                    table.elements.values_mut().for_each(|elements| {
                        elements.remove(&key);
                    });
                }
            }
            Damage::ChangedRules(index) => {
                let at = index.index(table.chains.len());
                let chain = table.chains.values_mut().nth(at).unwrap();
                chain.rules.push(vec![Statement::Mark(1)]);
            }
            Damage::EmptiedChain(index) => {
                let at = index.index(table.chains.len());
                table.chains.values_mut().nth(at).unwrap().rules.clear();
            }
        }
    }
}

fn with_one(table: &mut Table, index: &prop::sample::Index, change: impl FnOnce(&mut Element)) {
    let mut elements: Vec<&mut Element> =
        table.elements.values_mut().flat_map(BTreeMap::values_mut).collect();
    if !elements.is_empty() {
        let at = index.index(elements.len());
        change(elements[at]);
    }
}

#[test]
fn a_missing_set_comes_back_with_its_elements() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..3)))]);
    let mut damaged = run.tables.clone();
    damaged[0].elements.remove(&SetName::Endpoints);
    let changes = bring_to(&run.desired, &actual(&damaged));
    assert_eq!(changes.element_operations(), 3);
    assert_eq!(applied(&damaged, &changes), run.tables);
}

#[test]
fn a_set_of_another_version_is_deleted_and_nothing_else_touched() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..3)))]);
    let mut found = actual(&run.tables);
    found.tables.get_mut(&Family::V6).unwrap().unknown_sets.push("firewall".into());
    let changes = bring_to(&run.desired, &found);
    let want = TableChanges { delete_sets: vec!["firewall".into()], ..TableChanges::default() };
    let tables = BTreeMap::from([(Family::V6, want)]);
    assert_eq!(changes, Changes { tables, ..Changes::default() });
}

#[test]
fn a_table_that_cannot_be_changed_in_place_is_replaced() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..3)))]);
    let mut damaged = run.tables.clone();
    damaged[0].chains.clear();
    let mut found = actual(&damaged);
    found.tables.get_mut(&Family::V4).unwrap().incompatible = true;
    let changes = bring_to(&run.desired, &found);
    let fresh = bring_to(&run.desired, &Actual::default()).tables.remove(&Family::V4).unwrap();
    let want = TableChanges { delete_table: true, ..fresh };
    let tables = BTreeMap::from([(Family::V4, want)]);
    assert_eq!(changes, Changes { tables, ..Changes::default() });
    assert_eq!(applied(&damaged, &changes), run.tables);
}

#[test]
fn a_table_made_under_other_settings_is_brought_to_ours() {
    let mut run = Run::new();
    run.step([(key(0), Some(plain(0..3)))]);
    let others = [
        PlanConfig { masquerade_mark: 1 << 15, ..config() },
        PlanConfig { pods: Pods::Ranges(Vec::new()), ..config() },
        PlanConfig { pods: Pods::Ranges(vec!["10.0.0.0/8".parse().unwrap()]), ..config() },
    ];
    for other in others {
        let mut desired = Desired::new(other, surroundings());
        desired.load(run.services.clone().into_iter().map(|(key, rules)| (key, Some(rules))));
        let changes = bring_to(&desired, &actual(&run.tables));
        assert_eq!(applied(&run.tables, &changes), tables_of(&desired));
    }
}
