//! `zoneward demo`
use crate::cli::DemoArgs;
use std::io::Write;
pub(crate) fn run(_args: DemoArgs, _out: &mut dyn Write) -> anyhow::Result<()> {
    anyhow::bail!("not yet")
}
