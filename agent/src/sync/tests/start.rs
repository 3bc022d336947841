//! A node that has many Services and no rules yet.

use super::*;

/// More than two transactions' worth of Services, the last of them smaller than the others.
fn many() -> Lab {
    let mut lab = Lab::new();
    for n in 0..17 {
        lab.apply_named("web", &format!("s{n}"), n, 80, if n == LAST { 10 } else { 1000 });
    }
    lab
}

/// By name, which is the order they come in.
const LAST: u8 = 9;

#[tokio::test(start_paused = true)]
async fn a_node_without_rules_gets_the_api_server_and_dns_first() {
    let mut lab = Lab::new();
    for n in 0..40 {
        lab.apply_named("web", &format!("s{n}"), n, 80, 1000);
    }
    lab.apply_named("kube-system", "kube-dns", 253, 53, 3);
    lab.apply_named("default", "kubernetes", 254, 443, 3);
    let has = |lab: &Lab, n, port| {
        let table = lab.memory.table(Family::V4);
        table.elements.get(&SetName::Services).is_some_and(|s| s.contains_key(&key(n, port)))
    };
    lab.engine.sync().await.unwrap();
    assert!(has(&lab, 253, 53) && has(&lab, 254, 443) && has(&lab, 0, 80));
    assert!(!has(&lab, 39, 80));
    assert_eq!(lab.engine.status.blockers(), ["first sync: not complete"]);
    // What changes meanwhile waits for what is planned already, and not for the rest.
    lab.apply(250, 2);
    lab.engine.sync().await.unwrap();
    lab.engine.sync().await.unwrap();
    assert!(has(&lab, 250, 80) && !has(&lab, 39, 80));
    lab.quiet().await;
    assert_eq!(lab.engine.status.blockers(), [""; 0]);
    lab.check();
    let landed = lab.script().landed.clone();
    assert!(landed.len() >= 4 && landed[0] < 10_000, "{landed:?}");
    assert_eq!(lab.script().reads, 1);
}

#[tokio::test(start_paused = true)]
async fn the_next_services_are_planned_while_the_kernel_is_busy() {
    let mut lab = many();
    lab.engine.sync().await.unwrap();
    assert!(lab.engine.ahead.is_some());
    // Something new comes first.
    lab.apply(250, 2);
    lab.engine.sync().await.unwrap();
    assert!(lab.engine.ahead.is_none() && !lab.engine.waiting.is_empty());
    lab.quiet().await;
    lab.check();
    assert_eq!(lab.script().reads, 1);
}

#[tokio::test(start_paused = true)]
async fn what_came_while_the_last_were_written_is_not_forgotten() {
    let mut lab = many();
    while lab.engine.starting.is_none() || !lab.engine.waiting.is_empty() {
        lab.engine.sync().await.unwrap();
    }
    assert!(lab.engine.ahead.is_some(), "the last are planned");
    lab.apply(0, 2);
    lab.engine.sync().await.unwrap();
    assert!(!lab.engine.is_starting() && lab.engine.is_behind());
    assert!(lab.engine.due(Instant::now()).is_some_and(|due| due <= Instant::now()));
    lab.quiet().await;
    lab.check();
}

#[tokio::test(start_paused = true)]
async fn a_start_survives_any_fault_at_any_transaction() {
    let refused = [2, 12, 17].map(Fault::Refused);
    let lost = [true, false].map(|landed| Fault::Lost { landed });
    for fault in refused.into_iter().chain(lost).chain([Fault::Overtaken]) {
        for at in 0..4 {
            let mut lab = many();
            for _ in 0..at {
                lab.engine.sync().await.unwrap();
            }
            lab.script().faults.push_back(fault);
            lab.apply(250, 2);
            lab.quiet().await;
            assert!((0..17).all(|n| lab.has(n)), "{fault:?} at {at}");
            assert!(lab.engine.status.refused().is_empty(), "{fault:?} at {at}");
            lab.check();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_at_a_start_keeps_nobody_else_waiting_wherever_it_comes() {
    let element = |n: u8| Part::Element(Family::V4, SetName::Endpoints, key(n, 80).slot(4));
    let of_last = Part::Chain(Family::V4, "cluster-16".into());
    for (part, aside) in [(element(0), 0), (element(12), 12), (element(8), 8), (of_last, LAST)] {
        let mut lab = many();
        lab.script().refused = Some((part.clone(), 22));
        lab.quiet().await;
        let missing: Vec<u8> = (0..17).filter(|n| !lab.has(*n)).collect();
        assert_eq!(missing, [aside], "{part:?}");
        assert_eq!(lab.engine.status.refused().len(), 1);
        assert_eq!(lab.engine.status.blockers(), [""; 0]);
        lab.check();
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_kernel_has_no_memory_for_does_not_grow_with_every_try() {
    let mut lab = many();
    lab.engine.sync().await.unwrap();
    let mut tried = Vec::new();
    for _ in 0..5 {
        lab.script().faults.push_back(Fault::Refused(12));
        lab.engine.sync().await.unwrap_err();
        tried.push(lab.engine.unsent.element_operations());
    }
    assert!(tried[0] > 0 && tried.iter().all(|operations| *operations == tried[0]), "{tried:?}");
    lab.quiet().await;
    lab.check();
}

#[tokio::test(start_paused = true)]
async fn a_start_ends_though_the_last_services_that_waited_are_gone() {
    let mut lab = many();
    lab.engine.sync().await.unwrap();
    // What failed goes alone, with what changed: the Services that wait are not looked at.
    lab.script().faults.push_back(Fault::Refused(12));
    lab.engine.sync().await.unwrap_err();
    let waiting: Vec<u8> = (2..10).chain(13..17).collect();
    waiting.iter().for_each(|n| lab.delete(*n));
    lab.engine.sync().await.unwrap();
    assert!(!lab.engine.waiting.is_empty() && !lab.engine.index.is_changed());
    lab.quiet().await;
    assert_eq!(lab.engine.status.blockers(), [""; 0]);
    assert!(lab.engine.unattended.0.is_empty(), "the attendants know");
    assert!((0..17).all(|n| lab.has(n) != waiting.contains(&n)));
    lab.check();
}

#[tokio::test(start_paused = true)]
async fn what_was_read_while_lists_came_counts_unless_anybody_was_faster() {
    for meddled in [false, true] {
        let mut lab = Lab::settled(3).await;
        let mut after = engine(Faulty::new(lab.memory.clone(), lab.script.clone()));
        after.read_ahead().unwrap();
        // Once this is done, so is that.
        after.on_kernel(|_| ()).await.unwrap();
        if meddled {
            lab.memory.meddle(Family::V4, |table| {
                table.elements.get_mut(&SetName::Services).unwrap().remove(&key(1, 80)).unwrap();
            });
        }
        std::mem::swap(&mut lab.engine, &mut after);
        (0..3).for_each(|n| lab.apply(n, 3));
        lab.quiet().await;
        assert_eq!(lab.script().reads, if meddled { 2 } else { 1 });
        assert!(lab.has(1));
        lab.check();
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_rest_goes_with_the_others() {
    let mut lab = Lab::new();
    // The first takes two; three more are half as many again as the second begins with.
    for n in 0..5 {
        lab.apply_named("web", &format!("s{n}"), n, 80, 1000);
    }
    lab.quiet().await;
    lab.check();
    assert_eq!(lab.script().landed.len(), 2, "{:?}", lab.script().landed);
}
