//! `zoneward check`: what this kernel and these permissions allow.

use std::io::Write;

use anyhow::bail;
use zw_dataplane::{probe, probe_ipvs};

use crate::cli::CheckArgs;
use crate::config::Mode;

pub(crate) fn run(args: &CheckArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut capabilities = probe();
    if args.mode == Some(Mode::Ipvs) {
        capabilities.extend(probe_ipvs());
    }
    let width = capabilities.iter().map(|capability| capability.name.len()).max().unwrap_or(0);
    for capability in &capabilities {
        let answer = match &capability.missing {
            None => "ok".to_owned(),
            Some(why) if capability.required => format!("MISSING: {why}"),
            Some(why) => format!("warning: {why}"),
        };
        writeln!(out, "{:width$}  {answer}", capability.name)?;
    }
    let missing = capabilities.iter().filter(|c| c.required && c.missing.is_some()).count();
    if missing > 0 {
        bail!("{missing} of {} capabilities are missing", capabilities.len());
    }
    Ok(())
}
