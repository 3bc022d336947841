//! The differential tier: kube-proxy and Zoneward on twin nodes follow the same cluster of random
//! Services, and every probe must get the same answer from both. Needs root, nft, setpriv and what
//! `tests/control-plane/build` builds; fails, never skips, without.
//!
//! `ZW_DIFFERENTIAL_SERVICES` says how many Services (500 if unset), `ZW_DIFFERENTIAL_SEED` which ones; the
//! seed is printed. `ZW_DIFFERENTIAL_TWINS=kube-proxy` puts kube-proxy on both nodes, which shows that the
//! test itself finds no difference where there is none.

mod allowed;
mod cast;
mod cluster;
mod compare;
mod generate;
mod observe;
mod questions;
mod report;
mod service;
mod shrink;
mod twins;

use std::collections::BTreeMap;
use std::time::Instant;

use allowed::Uses;
use compare::{Difference, LASTING, compare};
use generate::ZONES;
use service::Service;
use twins::{Program, Settings, Twins};
use zw_tests::rng::Rng;

/// What a run goes through, one after the other; both proxies are started anew for each.
const SETTINGS: [Settings; 4] = [
    Settings { node_port_addresses: &["primary"], masquerade_all: false },
    Settings { node_port_addresses: &["0.0.0.0/0", "::/0"], masquerade_all: false },
    Settings { node_port_addresses: &["192.0.2.2/32", "2001:db8::/126"], masquerade_all: false },
    Settings { node_port_addresses: &["192.0.2.0/24"], masquerade_all: true },
];

/// How many Services live at the same time.
const PER_ROUND: usize = 90;
const SERVICES: usize = 500;
const SEED: u64 = 20_260_101;
/// How many kinds of difference are made smaller.
const SHRUNK: usize = 4;
/// After so many Services that differ the point is made.
const PATIENCE: usize = 20;

#[test]
fn the_same_services_get_the_same_answers_from_kube_proxy_and_from_zoneward() {
    let count = number("ZW_DIFFERENTIAL_SERVICES").map_or(SERVICES, |n| n as usize);
    let seed = number("ZW_DIFFERENTIAL_SEED").unwrap_or(SEED);
    let alone = std::env::var("ZW_DIFFERENTIAL_TWINS").is_ok_and(|who| who == "kube-proxy");
    let other = if alone { Program::KubeProxy } else { Program::Zoneward };
    println!("ZW_DIFFERENTIAL_SEED={seed} ZW_DIFFERENTIAL_SERVICES={count}");
    let started = Instant::now();
    let mut twins = Twins::new([Program::KubeProxy, other]);
    let mut run = Run::new(seed);
    let rounds = count.div_ceil(PER_ROUND);
    let per_settings = rounds.div_ceil(SETTINGS.len());
    let mut services: Vec<Service> = Vec::new();
    for round in 0..rounds {
        if round % per_settings == 0 {
            twins.start(SETTINGS[round / per_settings]);
        }
        let size = PER_ROUND.min(count - round * PER_ROUND);
        services = run.round(&mut twins, round, size, &services);
        if run.differing >= PATIENCE {
            break;
        }
    }
    for line in run.uses.lines() {
        println!("{line}");
    }
    let asked: usize = run.kinds.values().sum();
    let seconds = started.elapsed().as_secs();
    println!("{count} Services, {asked} questions to each side, {seconds} s: {:?}", run.kinds);
    let classes: Vec<String> =
        run.classes.iter().map(|(class, count)| format!("{count} times {class}")).collect();
    assert!(
        classes.is_empty(),
        "seed {seed}: {} Services differ, described above\n{}",
        run.differing,
        classes.join("\n")
    );
    for kind in ["answered", "refused", "silent"] {
        assert!(
            run.kinds.contains_key(kind),
            "nothing was {kind}: the Services are too few or too alike"
        );
    }
}

struct Run {
    seed: u64,
    uses: Uses,
    /// How often kube-proxy did what.
    kinds: BTreeMap<String, usize>,
    /// How often which kind of difference was found, and in how many Services.
    classes: BTreeMap<String, usize>,
    differing: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let (kinds, classes) = (BTreeMap::new(), BTreeMap::new());
        Self { seed, uses: Uses::default(), kinds, classes, differing: 0 }
    }

    /// Makes new Services of those of the last round, and compares.
    fn round(
        &mut self,
        twins: &mut Twins,
        round: usize,
        size: usize,
        before: &[Service],
    ) -> Vec<Service> {
        let mut rng = Rng::stream(self.seed, round as u64);
        let zone = rng.pick(&ZONES);
        let services: Vec<Service> = (0..size)
            .map(|number| {
                let service = generate::service(&mut rng, number);
                // Half of them are changed, the others made anew.
                match before.get(number).filter(|_| rng.chance(50)) {
                    Some(old) => Service { families: old.families.clone(), ..service }.normalised(),
                    None => service,
                }
            })
            .collect();
        let started = Instant::now();
        twins.set_zone(zone);
        twins.bring(&services);
        let ready = started.elapsed().as_millis();
        let comparison = compare(twins, &services, LASTING);
        let asked: usize = comparison.kinds.values().sum();
        for (kind, count) in comparison.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
        let differences = self.uses.take(comparison.differences, &services);
        println!(
            "round {round}: {size} Services in place after {ready} ms, {asked} questions, {} \
             differences, {} ms in all",
            differences.len(),
            started.elapsed().as_millis()
        );
        self.explain(twins, &services, &differences, zone);
        services
    }

    /// Describes the differences; the first of each kind is made smaller.
    fn explain(
        &mut self,
        twins: &mut Twins,
        services: &[Service],
        differences: &[Difference],
        zone: &str,
    ) {
        let mut by_service: BTreeMap<Option<usize>, Vec<Difference>> = BTreeMap::new();
        for difference in differences {
            by_service.entry(difference.question.service).or_default().push(difference.clone());
        }
        for (number, differences) in by_service {
            self.differing += 1;
            let seen = self.classes.len();
            for difference in &differences {
                *self.classes.entry(difference.class()).or_default() += 1;
            }
            let of_a_new_kind = self.classes.len() > seen && seen < SHRUNK;
            let mut text = String::new();
            match number.map(|number| &services[number]) {
                Some(service) if of_a_new_kind => {
                    text = report::shrunk(twins, service, &differences, zone);
                }
                Some(service) => {
                    text += &format!("{}:\n", service.name());
                    report::describe(&mut text, twins, &differences);
                }
                None => report::describe(&mut text, twins, &differences),
            }
            println!("{text}");
        }
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}
