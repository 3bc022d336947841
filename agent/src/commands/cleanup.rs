//! `zoneward cleanup`: takes back everything Zoneward put into the kernel, and nothing else.

use std::io::Write;

use zw_dataplane::Kernel;

use super::run::with_advice;

pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<()> {
    let removed = Kernel::open().and_then(|mut kernel| kernel.remove()).map_err(with_advice)?;
    for family in &removed {
        writeln!(out, "removed the {family} table zoneward")?;
    }
    if removed.is_empty() {
        writeln!(out, "nothing to remove")?;
    }
    Ok(())
}
