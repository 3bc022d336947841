//! What shells complete: commands, flags, and the names of Services that are programmed here.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use anyhow::bail;
use clap::CommandFactory;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::{CompleteEnv, Shells};

use crate::cli::Cli;
use crate::inspect::{agent, socket};
use crate::metrics::connections;

/// By this a shell asks the binary itself.
const VARIABLE: &str = "ZONEWARD_COMPLETE";

/// Answers a shell and ends, if it is a shell that asks.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

/// Prints what a shell loads.
pub(crate) fn print(shell: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let shells = Shells::builtins();
    let Some(completer) = shells.completer(shell) else { bail!("no completions for {shell}") };
    // Not to `out` directly: a script is written whole or not at all.
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "zoneward", "zoneward", "zoneward", &mut script)?;
    Ok(out.write_all(&script)?)
}

/// Services that begin like this; with their ports once there is a colon.
pub(crate) fn services(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let with_port = current.contains(':');
    let whole = |name: &String| {
        if with_port { name.clone() } else { name.split(':').next().unwrap_or_default().to_owned() }
    };
    let names: BTreeSet<String> =
        names().iter().map(whole).filter(|name| name.starts_with(current)).collect();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// `namespace/name:port` of all there is: the kernel is asked first, because that is quick. Who may ask
/// neither gets none.
fn names() -> Vec<String> {
    if let Ok(counts) = connections::read()
        && !counts.is_empty()
    {
        return counts.into_iter().flat_map(|(_, names)| names.into_keys()).collect();
    }
    let path = std::env::var("ZONEWARD_SOCKET").unwrap_or_else(|_| socket::DEFAULT_PATH.into());
    match agent::ask(Path::new(&path), None) {
        Ok(planned) => planned.index.service_keys().map(ToString::to_string).collect(),
        Err(_) => Vec::new(),
    }
}
