//! Whatever the history, the table is as after a fresh start.

use super::*;

proptest! {
    #[test]
    fn changes_that_were_not_sent_go_with_the_next(steps in history()) {
        let mut run = Run::new();
        let mut tables = run.tables.clone();
        let mut unsent = Changes::default();
        for (at, step) in steps.into_iter().enumerate() {
            let step = step.into_iter().map(|(service, spec)| (key(service), spec));
            unsent = unsent.then(run.step(step));
            // Every third fails.
            if at % 3 != 0 {
                tables = applied(&tables, &std::mem::take(&mut unsent));
                prop_assert_eq!(&tables, &run.tables);
            }
        }
        prop_assert_eq!(applied(&tables, &unsent), run.tables);
    }

    #[test]
    fn what_is_left_of_changes_follows_from_what_is_there(steps in history(), landed in any::<bool>()) {
        let mut run = Run::new();
        for step in steps {
            let before = run.tables.clone();
            let changes = run.step(step.into_iter().map(|(service, spec)| (key(service), spec)));
            let is = if landed { &run.tables } else { &before };
            let element = |(family, set, key): &Place| {
                let table = is.iter().find(|table| table.family == *family)?;
                table.elements.get(set)?.get(key).cloned()
            };
            let found: Vec<_> = changes.places().into_iter().map(|at| (at, element(&at))).collect();
            let left = run.desired.resume(changes.clone(), found);
            let mut is = is.clone();
            for table in &mut is {
                let Some(left) = left.tables.get(&table.family) else { continue };
                // What was swept already cannot be again, and the sweep is no part of the transaction.
                let mut left = left.clone();
                left.delete_chains.retain(|chain| table.chains.contains_key(chain));
                left.forget_others.retain(|map, _| table.affinity_maps.contains_key(map));
                table.apply(&left).unwrap();
            }
            prop_assert_eq!(&is, &run.tables);
            if landed && !changes.places().iter().any(|(_, set, _)| set.def().ranges) {
                prop_assert_eq!(left.element_operations(), 0);
            }
        }
    }

    #[test]
    fn any_history_ends_in_the_same_table_as_a_fresh_start(history in history()) {
        let mut run = Run::new();
        for step in history {
            run.step(step.into_iter().map(|(service, spec)| (key(service), spec)));
            run.check();
        }
    }

    #[test]
    fn any_earlier_table_is_brought_to_the_present(history in history()) {
        let mut run = Run::new();
        let mut earlier = vec![Family::BOTH.map(Table::absent), run.tables.clone()];
        for step in history {
            run.step(step.into_iter().map(|(service, spec)| (key(service), spec)));
            earlier.push(run.tables.clone());
        }
        let fresh = run.fresh();
        for tables in &earlier {
            let found = if tables[0].exists() { actual(tables) } else { Actual::default() };
            let brought = applied(tables, &bring_to(&fresh, &found));
            prop_assert_eq!(&brought, &tables_of(&fresh));
            prop_assert_eq!(bring_to(&fresh, &actual(&brought)), Changes::default());
        }
    }

    #[test]
    fn a_restart_with_nothing_changed_writes_nothing(history in history()) {
        let mut run = Run::new();
        for step in history {
            run.step(step.into_iter().map(|(service, spec)| (key(service), spec)));
        }
        let found = actual(&run.tables);
        let mut fresh = run.fresh();
        fresh.keep_idle(&found);
        prop_assert_eq!(bring_to(&fresh, &found), Changes::default());
        prop_assert_eq!(&tables_of(&fresh), &run.tables, "what lies idle is known");
    }

    #[test]
    fn a_restart_gives_every_endpoint_its_slot_back(history in history()) {
        let mut run = Run::new();
        for step in history {
            run.step(step.into_iter().map(|(service, spec)| (key(service), spec)));
        }
        let found = actual(&run.tables).slots();
        for (key, rules) in &run.services {
            let contested: Vec<Frontend> =
                run.desired.contested(key).into_iter().map(|c| c.frontend).collect();
            for port in &rules.ports {
                let held = run.desired.slots(key, &port.frontend);
                let read = found.get(&port.frontend).cloned().unwrap_or_default();
                prop_assert!(contested.contains(&port.frontend) || read == held);
            }
        }
    }
}
