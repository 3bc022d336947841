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
mod rng;
mod service;
mod shrink;
mod twins;

use std::time::Instant;

use allowed::Uses;
use compare::compare;
use generate::{Profile, ZONES};
use rng::Rng;
use service::Service;
use twins::{Program, Settings, Twins};

/// What Zoneward is asked for today.
const PROFILE: Profile = Profile::CLUSTER_IPS;
/// What a run goes through, one after the other.
const SETTINGS: &[Settings] =
    &[Settings { node_port_addresses: &["primary"], masquerade_all: false }];

/// How many Services live at the same time.
const PER_ROUND: usize = 90;
const SERVICES: usize = 500;
const SEED: u64 = 20_260_101;
/// How many of the Services that differ in a round are made smaller.
const SHRUNK: usize = 3;
/// After so many Services that differ the point is made.
const PATIENCE: usize = 20;

#[test]
fn the_same_services_get_the_same_answers_from_kube_proxy_and_from_zoneward() {
    let count = number("ZW_DIFFERENTIAL_SERVICES").map_or(SERVICES, |n| n as usize);
    let seed = number("ZW_DIFFERENTIAL_SEED").unwrap_or(SEED);
    let alone = std::env::var("ZW_DIFFERENTIAL_TWINS").is_ok_and(|who| who == "kube-proxy");
    let (other, profile) =
        if alone { (Program::KubeProxy, Profile::FULL) } else { (Program::Zoneward, PROFILE) };
    println!("ZW_DIFFERENTIAL_SEED={seed} ZW_DIFFERENTIAL_SERVICES={count}");
    let started = Instant::now();
    let mut twins = Twins::new([Program::KubeProxy, other]);
    let mut run = Run { seed, profile, uses: Uses::default(), asked: 0, failures: Vec::new() };
    let rounds = count.div_ceil(PER_ROUND);
    let per_settings = rounds.div_ceil(SETTINGS.len());
    let mut services: Vec<Service> = Vec::new();
    for round in 0..rounds {
        if round % per_settings == 0 {
            twins.start(SETTINGS[round / per_settings]);
        }
        let size = PER_ROUND.min(count - round * PER_ROUND);
        services = run.round(&mut twins, round, size, &services);
        if run.failures.len() >= PATIENCE {
            break;
        }
    }
    for line in run.uses.lines() {
        println!("{line}");
    }
    let seconds = started.elapsed().as_secs();
    println!("{count} Services, {} questions to each side, {seconds} s", run.asked);
    assert!(
        run.failures.is_empty(),
        "seed {seed}: {} Services differ\n{}",
        run.failures.len(),
        run.failures.join("\n")
    );
}

struct Run {
    seed: u64,
    profile: Profile,
    uses: Uses,
    asked: usize,
    failures: Vec<String>,
}

impl Run {
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
                let mut service = generate::service(&mut rng, number, self.profile);
                // Half of them are changed, the others made anew.
                if let Some(old) = before.get(number)
                    && rng.chance(50)
                {
                    service.families = old.families.clone();
                    service = service.normalised();
                }
                service
            })
            .collect();
        let started = Instant::now();
        twins.set_zone(zone);
        twins.bring(&services);
        let ready = started.elapsed().as_millis();
        let comparison = compare(twins, &services);
        let asked = comparison.asked;
        self.asked += asked;
        let differences = self.uses.take(comparison.differences, &services);
        println!(
            "round {round}: {size} Services in place after {ready} ms, {asked} questions, {} \
             differences, {} ms in all",
            differences.len(),
            started.elapsed().as_millis()
        );
        let mut which: Vec<Option<usize>> =
            differences.iter().map(|d| d.question.service).collect();
        which.dedup();
        for (i, number) in which.into_iter().enumerate() {
            let of_it: Vec<_> =
                differences.iter().filter(|d| d.question.service == number).cloned().collect();
            let mut text = format!("round {round}, ");
            match number {
                Some(number) if i < SHRUNK => {
                    text += &report::shrunk(twins, &services[number], &of_it, zone);
                }
                Some(number) => {
                    text += &format!("{}:\n", services[number].name());
                    report::describe(&mut text, twins, &of_it);
                }
                None => report::describe(&mut text, twins, &of_it),
            }
            println!("{text}");
            self.failures.push(text);
        }
        services
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}
