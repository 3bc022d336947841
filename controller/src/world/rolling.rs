//! A rolling update of 300 endpoints over 3 zones: how much is written, against writing naively.

use zw_topology::{Algorithm, Counts, Options, Planner};

use super::*;
use crate::testing::Random;

const ZONES: [&str; 3] = ["a", "b", "c"];
const PODS: usize = 300;

/// What a controller without memory writes: endpoints divided from scratch and cut into slices in the
/// order of their addresses.
#[derive(Default)]
struct Naive {
    slices: BTreeMap<(usize, usize), Vec<String>>,
}

impl Naive {
    /// How many slices it writes to get to these pods.
    fn write(&mut self, world: &World) -> usize {
        let count = |zone: &str| world.pods.values().filter(|pod| pod.zone == zone).count() as u32;
        let zones = ZONES.map(|zone| Counts { nodes: 10, endpoints: count(zone) });
        let mut planner = Planner::default();
        let plan = planner.plan(&zones, Algorithm::Local, &Options::default());
        let mut homes: Vec<Vec<String>> = ZONES
            .iter()
            .map(|zone| {
                let mine = world.pods.iter().filter(|(_, pod)| pod.zone == *zone);
                let mut mine: Vec<String> = mine.map(|(number, _)| pod_address(*number)).collect();
                mine.sort();
                mine.reverse();
                mine
            })
            .collect();
        let mut slices = BTreeMap::new();
        for (zone, (composition, _)) in plan.iter().enumerate() {
            let mut group = Vec::new();
            for (home, &count) in composition.iter().enumerate() {
                let left = homes[home].len() - count as usize;
                group.extend(homes[home].drain(left..));
            }
            group.sort();
            for (i, part) in group.chunks(100).enumerate() {
                slices.insert((zone, i), part.to_vec());
            }
        }
        let keys: BTreeSet<_> = slices.keys().chain(self.slices.keys()).copied().collect();
        let writes = keys.iter().filter(|key| slices.get(key) != self.slices.get(key)).count();
        self.slices = slices;
        writes
    }
}

/// Slices written, endpoints changed, endpoints reallocated, most slices in a step, and the naive
/// controller's slices.
struct Figures {
    slices: usize,
    changes: usize,
    reallocated: usize,
    most: usize,
    quiet: usize,
    naive: usize,
}

/// Replaces every pod by one in a zone of chance, so many at a time.
fn roll(algorithm: Algorithm, at_once: usize) -> Figures {
    let mut world = World::new(&ZONES.map(|zone| (zone, 10)));
    world.settings.algorithm = algorithm;
    ZONES.into_iter().for_each(|zone| world.start_pods(zone, PODS / 3));
    world.ask(Some("Prefer"));
    world.converge();
    let mut naive = Naive::default();
    naive.write(&world);
    let mut random = Random(7);
    let old: Vec<u32> = world.pods.keys().copied().collect();
    let mut figures =
        Figures { slices: 0, changes: 0, reallocated: 0, most: 0, quiet: 0, naive: 0 };
    let mut account = |world: &mut World, changes: usize| {
        let writes = world.converge();
        assert_eq!(writes.services, 0, "the approach stays");
        figures.slices += writes.slices;
        figures.changes += changes;
        figures.reallocated += writes.reallocated;
        figures.most = figures.most.max(writes.slices);
        figures.quiet += usize::from(writes.slices <= 1);
        figures.naive += naive.write(world);
    };
    for some in old.chunks(at_once) {
        for _ in some {
            world.start_pods(ZONES[random.below(3)], 1);
        }
        account(&mut world, some.len());
        some.iter().for_each(|number| {
            world.pods.remove(number);
        });
        world.stock();
        account(&mut world, some.len());
    }
    assert_eq!(world.pods.len(), PODS);
    figures
}

#[test]
fn a_rolling_update_writes_about_one_slice_for_each_endpoint() {
    println!(
        "{:<8}{:>8}{:>9}{:>8}{:>12}{:>13}{:>8}{:>8}{:>8}",
        "", "at once", "changes", "slices", "per change", "reallocated", "most", "<= 1", "naive"
    );
    for algorithm in [Algorithm::Local, Algorithm::Fair] {
        for at_once in [1, 10, 75] {
            let f = roll(algorithm, at_once);
            let per_change = f.slices as f64 / f.changes as f64;
            println!(
                "{:<8}{:>8}{:>9}{:>8}{:>12.2}{:>13}{:>8}{:>8}{:>8}",
                algorithm,
                at_once,
                f.changes,
                f.slices,
                per_change,
                f.reallocated,
                f.most,
                f.quiet,
                f.naive
            );
            assert!(per_change < 1.25, "{algorithm}: {per_change}");
            assert!(f.slices < f.naive, "{algorithm}: naively {}", f.naive);
        }
    }
}
