//! Whatever happens, and wherever the controller dies, no zone is without endpoints and the end is the
//! same.

use super::*;
use crate::testing::Random;

const ZONES: [&str; 3] = ["a", "b", "c"];

/// A small world in which thresholds are near: Prefer starts at 4 endpoints and stops at 2.
fn small() -> World {
    let mut world = World::new(&[("a", 2), ("b", 2), ("c", 2)]);
    world.settings =
        Settings { starting_threshold: 1, padding: 1, slice_capacity: 3, ..Settings::default() };
    world.start_pods("a", 2);
    world.start_pods("b", 1);
    world.history.clear();
    world.note();
    world
}

fn some_pod(world: &World, random: &mut Random) -> u32 {
    let nth = random.below(world.pods.len());
    *world.pods.keys().nth(nth).expect("there is always one")
}

/// One thing happens; the last ready pod never goes.
fn happen(world: &mut World, random: &mut Random) -> String {
    let ready = |world: &World| world.pods.values().filter(|pod| pod.ready).count();
    match random.below(14) {
        0 | 1 if world.pods.len() < 14 => {
            let zone = ZONES[random.below(3)];
            world.start_pods(zone, 1);
            format!("a pod more in {zone}")
        }
        2 => {
            let number = some_pod(world, random);
            if world.pods[&number].ready && ready(world) == 1 {
                return "nothing".into();
            }
            world.pods.remove(&number);
            world.stock();
            format!("pod {number} goes")
        }
        3 => {
            let number = some_pod(world, random);
            if world.pods[&number].ready && ready(world) == 1 {
                return "nothing".into();
            }
            let pod = world.pods.get_mut(&number).expect("it is there");
            pod.ready = !pod.ready;
            world.stock();
            format!("pod {number} is or is no longer ready")
        }
        4 => {
            let asked = [None, Some("Prefer"), Some("Prefer"), Some("Require")][random.below(4)];
            world.ask(asked);
            format!("asks for {asked:?}")
        }
        5 => {
            let name = format!("{}-{}", ZONES[random.below(3)], random.below(2));
            let (zone, counts) = (ZONES[random.below(3)], random.below(4) > 0);
            // Its agent lists everything anew.
            world.all_seen();
            world.node(&name, zone, counts);
            format!("{name} is in {zone}, counts: {counts}")
        }
        6 => {
            world.copy_label();
            "the label is copied".into()
        }
        7 => {
            world.settled = None;
            world.divider = Divider::default();
            "the controller dies".into()
        }
        _ => {
            let most = 1 + random.below(3);
            world.step(most);
            format!("the controller makes a step of at most {most} writes")
        }
    }
}

#[test]
fn no_history_leaves_a_zone_without_endpoints_and_all_end_the_same() {
    for seed in 0..1000 {
        let mut random = Random(seed);
        let mut world = small();
        let mut told = Vec::new();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..60 {
                let what = happen(&mut world, &mut random);
                told.push(what);
                world.check();
                if world.history.len() > 12 {
                    // Watches do not lag for ever.
                    world.all_seen();
                }
            }
            world.copy_label();
            world.converge();
            let end = world.converge();
            assert_eq!(end, Writes::default(), "it has come to an end");
            check_end(&world);
        }));
        if let Err(panic) = outcome {
            eprintln!("seed {seed}:\n  {}", told.join("\n  "));
            std::panic::resume_unwind(panic);
        }
    }
}

fn check_end(world: &World) {
    let asked = Approach::asked_by(&world.service);
    if world.approach() == Approach::Balanced {
        assert_eq!(world.shown(), "", "nothing of ours is left");
        assert!(world.service.zones.is_empty() && world.hidden().is_empty());
        return;
    }
    assert_eq!(world.approach(), asked);
    let nodes = world.zones.nodes();
    let zones: BTreeSet<&str> = nodes.keys().map(|zone| &**zone).collect();
    let labelled: BTreeSet<&str> = world.service.zones.iter().map(|zone| &**zone).collect();
    assert_eq!(labelled, zones);
    let mut served: BTreeMap<String, usize> = BTreeMap::new();
    let mut groups: BTreeSet<&str> = BTreeSet::new();
    for slice in world.groups() {
        let Role::Group(Some(zone)) = &slice.role else { panic!("a zone") };
        groups.insert(zone);
        assert!(slice.endpoints.len() <= world.settings.slice_capacity);
        for endpoint in &slice.endpoints {
            *served.entry(address(endpoint).to_owned()).or_default() += 1;
        }
    }
    assert_eq!(groups, zones, "one group for each zone");
    let home = |pod: &Pod| asked == Approach::Prefer || zones.contains(pod.zone);
    let want: BTreeMap<String, usize> = world
        .pods
        .iter()
        .filter(|(_, pod)| home(pod))
        .map(|(number, _)| (pod_address(*number), 1))
        .collect();
    let served: BTreeMap<String, usize> =
        served.into_iter().filter(|(address, _)| want.contains_key(address)).collect();
    assert_eq!(served, want, "every pod serves one zone");
}
