//! `zoneward cleanup`: takes back everything Zoneward put into the kernel, and nothing else; or, in a
//! migration, what kube-proxy left there, and nothing of Zoneward's, which serves by then.

use std::io::Write;
use std::time::Duration;

use zw_dataplane::{Ipvs, Kernel, LINK};

use super::run::with_advice;
use crate::cli::CleanupArgs;

pub(crate) fn run(args: CleanupArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.kube_proxy { of_kube_proxy(out) } else { own(out) }
}

/// Removes what is Zoneward's.
pub(crate) fn own(out: &mut dyn Write) -> anyhow::Result<()> {
    let removed = Kernel::open().and_then(|mut kernel| kernel.remove()).map_err(with_advice)?;
    for family in &removed {
        writeln!(out, "removed the {family} table zoneward")?;
    }
    let ipvs =
        Ipvs::open(Duration::ZERO).and_then(|mut ipvs| ipvs.remove()).map_err(with_advice)?;
    if ipvs.servers > 0 {
        writeln!(out, "removed {} virtual servers", ipvs.servers)?;
    }
    if ipvs.link {
        writeln!(out, "removed the interface {LINK}")?;
    }
    if removed.is_empty() && ipvs == Default::default() {
        writeln!(out, "nothing to remove")?;
    }
    Ok(())
}

fn of_kube_proxy(out: &mut dyn Write) -> anyhow::Result<()> {
    let found =
        Kernel::open().and_then(|mut kernel| kernel.remove_kube_proxy()).map_err(with_advice)?;
    for family in &found.removed {
        writeln!(out, "removed the {family} table kube-proxy")?;
    }
    for left in &found.left {
        writeln!(out, "not removed: {left}")?;
    }
    if found.removed.is_empty() && found.left.is_empty() {
        writeln!(out, "nothing of kube-proxy to remove")?;
    }
    Ok(())
}
