//! `tidegate-lab`, the command line of the papers' experiments and of the arena: parses, runs, and maps what
//! went wrong to an exit status.

mod arena;
#[cfg(test)]
mod documents;
mod failure;
mod parallel;
mod reproduce;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidegate_program::exit;

use failure::LabFailure;

/// The papers' experiments in Tidegate's simulator, and an arena that judges its laws
///
/// Exit status: 0 done, 1 failed, 2 wrong usage or scenario.
#[derive(Parser)]
#[command(name = "tidegate-lab", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Reproduce(reproduce::Args),
    Arena(arena::Args),
}

fn run(command: &Command) -> Result<(), LabFailure> {
    match command {
        Command::Reproduce(args) => Ok(reproduce::run(args)?),
        Command::Arena(args) => Ok(arena::run(args)?),
    }
}

fn main() -> ExitCode {
    let cli = match exit::parse_arguments::<Cli>() {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    let Err(failure) = run(&cli.command) else { return ExitCode::SUCCESS };
    if let Some(message) = failure.message() {
        // When stderr is closed, the exit status still says it.
        let _ = writeln!(io::stderr(), "{message}");
    }
    ExitCode::from(failure.exit_status())
}
