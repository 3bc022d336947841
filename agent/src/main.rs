//! The `zoneward` binary. Here: parse, run, print an error once, exit code. 0 is success, 1 failure,
//! 2 bad usage or input; a closed pipe is success.

mod addresses;
mod around;
mod attendants;
mod cli;
mod cluster;
mod commands;
mod compare;
mod complete;
mod config;
mod conntrack_cleanup;
mod convert;
mod events;
mod few;
mod files;
mod flows;
mod health;
mod health_ports;
mod holders;
mod http;
mod index;
mod inspect;
mod listen;
mod localhost_ports;
mod metrics;
mod panics;
mod protobuf;
mod ready;
mod screen;
mod serve;
mod side_runtime;
mod state;
mod status;
mod sync;
mod sysctls;
mod taint;
mod watch;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use tracing_subscriber::EnvFilter;

use cli::{Cli, Command};

/// An error that is the caller's: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadInput(String);

/// Not an error, but what a command was asked to tell by its exit code: 1, without a word.
#[derive(Debug, thiserror::Error)]
#[error("no")]
struct AnswerIsNo;

fn main() -> ExitCode {
    complete::answer_shell();
    let cli = Cli::parse();
    let outcome = start_log(&cli).and_then(|()| run(cli.command, &mut io::stdout().lock()));
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    if error.chain().any(is_closed_pipe) {
        return ExitCode::SUCCESS;
    }
    if error.is::<AnswerIsNo>() {
        return ExitCode::FAILURE;
    }
    // A closed standard error leaves nobody to tell.
    let _ = writeln!(io::stderr(), "error: {error:#}");
    // Not by its chain of causes, which does not show what was added as context.
    ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
}

fn run(command: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => commands::run::run(*args, out),
        Command::DumpRules(args) => commands::dump_rules::run(*args, out),
        Command::Explain(args) => commands::explain::run(*args, out),
        Command::Trace(args) => commands::trace::run(*args, out),
        Command::Diff(args) => commands::diff::run(*args, out),
        Command::Top(args) => commands::top::run(args, out),
        Command::Ready(args) => commands::ready::run(&args, out),
        Command::Check(args) => commands::check::run(&args, out),
        Command::Cleanup(args) => commands::cleanup::run(args, out),
        Command::Demo(args) => commands::demo::run(args, out),
        Command::Controller(args) => commands::controller::run(*args),
        Command::Simulate(args) => commands::simulate::run(args, out),
        Command::Version => Ok(writeln!(out, "zoneward {}", env!("CARGO_PKG_VERSION"))?),
        Command::Completions { shell } => complete::print(&shell.to_string(), out),
    }
}

fn start_log(cli: &Cli) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&cli.log)
        .with_context(|| BadInput(format!("--log {:?} is not a log filter", cli.log)))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // It would complain to standard error about a closed standard error, and panic.
        .log_internal_errors(false);
    let colour = io::IsTerminal::is_terminal(&io::stderr());
    if cli.log_json {
        log.json().init();
    } else {
        log.with_ansi(colour).with_target(false).init();
    }
    Ok(())
}

fn is_closed_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
