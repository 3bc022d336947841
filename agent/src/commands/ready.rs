//! `zoneward ready`: whether this node's agent has taken over.

use std::io::Write;

use crate::AnswerIsNo;
use crate::cli::ReadyArgs;
use crate::inspect::agent;

pub(crate) fn run(args: &ReadyArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let blockers = agent::report(args.socket.path())?.waiting_for;
    if blockers.is_empty() {
        return Ok(writeln!(out, "ready")?);
    }
    blockers.iter().try_for_each(|blocker| writeln!(out, "{blocker}"))?;
    Err(AnswerIsNo.into())
}
