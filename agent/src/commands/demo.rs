//! `zoneward demo`: a dual-stack node in the first of three zones, with pods as namespaces, the real
//! agent following a folder of manifests, and real connections all the while. No cluster, no root
//! where user namespaces are allowed, nothing left behind.

mod cast;
mod stage;
mod traffic;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::cli::DemoArgs;
use cast::{Pod, Slice, Zone};
use stage::Stage;

/// How many connections each act looks at.
const SAMPLE: usize = 120;

pub(crate) fn run(args: DemoArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    // First of all: only a process with one thread can enter a user namespace.
    zw_lab::enter_private().context("the demo needs private namespaces")?;
    let started = Instant::now();
    let mut stage = Stage::set(args.keep)?;
    stage.say(
        out,
        &format!(
            "{} in {}: one dual-stack node, nine pods in three zones, each a network namespace.\n\
         The agent follows {} while a client connects without a pause: TCP and UDP, IPv4 and IPv6.",
            cast::NODE,
            Zone::A,
            stage.folder().display(),
        ),
    )?;

    let [a1, a2, a3] = [1, 2, 3].map(|n| Pod::new(Zone::A, n));
    let of = |zone: Zone| [1, 2, 3].map(|n| Pod::new(zone, n)).to_vec();
    let everyone: Vec<Pod> = [vec![a1, a2], of(Zone::B), of(Zone::C)].concat();
    let region = || Slice::for_region([of(Zone::B), of(Zone::C)].concat());

    stage.publish(&[Slice::plain(everyone.clone())])?;
    stage.begin_traffic()?;
    stage.act(out, "A plain Service: every ready endpoint of every zone answers", SAMPLE)?;

    stage.publish(&[
        Slice::plain(everyone.clone()),
        Slice::for_zone(Zone::A, vec![a1, a2]),
        Slice::for_zone(Zone::B, of(Zone::B)),
        region(),
    ])?;
    stage.act(out, "Slices labelled for zones: traffic stays in zone-a", SAMPLE)?;

    stage.publish(&[
        Slice::for_zone(Zone::A, vec![a2, a3]),
        Slice::for_zone(Zone::B, of(Zone::B)),
        region(),
    ])?;
    stage.retire(a1)?;
    stage.act(out, "An endpoint is rolled: a-3 comes, a-1 goes and stops answering", SAMPLE)?;

    stage.publish(&[
        Slice::for_zone(Zone::A, vec![a2.draining(), a3]),
        Slice::for_zone(Zone::B, of(Zone::B)),
        region(),
    ])?;
    stage.retire(a2)?;
    stage.act(out, "An endpoint is drained: a-2 is terminating, a-3 takes over", SAMPLE)?;

    stage.publish(&[
        Slice::for_zone(Zone::A, vec![a3.draining()]),
        Slice::for_zone(Zone::B, of(Zone::B)),
        region(),
    ])?;
    stage.act(
        out,
        "The zone has nothing ready left: the region's slice takes over, on the node",
        SAMPLE,
    )?;

    stage.publish(&[
        Slice::for_zone(Zone::A, vec![a3.draining()]),
        Slice::named_for(Zone::B, Zone::A, of(Zone::B)),
        region(),
    ])?;
    stage.act(
        out,
        "zone-b's slice is relabelled for zone-a: its endpoints serve this zone now",
        SAMPLE,
    )?;

    stage.dump_rules(out)?;
    let totals = stage.end_traffic()?;
    stage.say(
        out,
        &format!(
            "{} connections in {:.1} s ({}), {} failed.",
            totals.made(),
            started.elapsed().as_secs_f64(),
            totals.by_kind(),
            totals.failures.len(),
        ),
    )?;
    for failure in totals.failures.iter().take(10) {
        writeln!(out, "  {failure}")?;
    }
    stage.say(out, "Try next:\n  \
        zoneward check                                        what this machine's kernel allows\n  \
        zoneward run --state DIR --node-name NAME --once      program this machine from manifests\n  \
        zoneward dump-rules                                   see what is programmed\n  \
        zoneward cleanup                                      take it all back")?;
    if !totals.failures.is_empty() {
        bail!("{} connections failed", totals.failures.len());
    }
    if totals.kinds_seen() < 4 {
        bail!("not every protocol and family was tried: {}", totals.by_kind());
    }
    Ok(())
}

/// How long anything in the demo may take before it is called broken.
const DEADLINE: Duration = Duration::from_secs(15);
