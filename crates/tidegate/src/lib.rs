//! The command line `tidegate`: parses, runs, and maps what went wrong to an exit status, here and nowhere
//! else.
//!
//! A library, so that a program that is linked in another way compiles only its `main`.

mod admit;
mod agent;
mod check;
mod columns;
mod control;
mod demo;
mod descriptors;
#[cfg(test)]
mod documents;
mod explain;
mod failure;
mod help;
mod http;
mod identify;
mod init;
mod journal;
mod keys;
mod live;
mod load;
mod logging;
mod manual;
mod out;
mod policy;
mod rehearse;
mod replay;
mod report;
mod serve;
mod shared_file;
mod sim;
mod status;
mod table_file;
mod terminal;
mod top;
mod transfer;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tidegate_program::exit;

use failure::CommandFailure;

/// Quality of service for shared storage, by feedback
///
/// Tidegate measures latency and throttles the consumers that matter less, just enough and just as long as
/// needed, so that the important ones keep their targets.
///
/// Exit status: 0 done, 1 failed, 2 wrong usage or configuration.
#[derive(Parser)]
#[command(name = "tidegate", version, propagate_version = true, max_term_width = 100)]
#[command(help_template = help::template::<Command>())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Init(init::Args),
    Serve(serve::Args),
    Agent(agent::Args),
    Top(top::Args),
    Status(status::Args),
    Explain(explain::Args),
    Journal(journal::Args),
    Replay(replay::Args),
    Rehearse(rehearse::Args),
    Report(report::Args),
    Set(control::SetArgs),
    DryRun(control::DryRunArgs),
    Release(control::ReleaseArgs),
    Config(control::ConfigArgs),
    #[command(hide = true)]
    Guard(agent::GuardArgs),
    #[command(hide = true)]
    SharedFile(shared_file::Args),
    Manual(manual::Args),
    Check(check::Args),
    Identify(identify::Args),
    Admit(admit::Args),
    Broker(transfer::broker::Args),
    Place(transfer::place::Args),
    Transfer(transfer::Args),
    Load(load::Args),
    Sim(sim::Args),
    Policy(policy::Args),
}

fn run(command: &Command) -> Result<(), CommandFailure> {
    match command {
        Command::Demo(args) => demo::run(args).map_err(CommandFailure::from),
        Command::Init(args) => init::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Agent(args) => agent::run(args),
        Command::Top(args) => top::run(args),
        Command::Status(args) => status::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Journal(args) => journal::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Rehearse(args) => rehearse::run(args),
        Command::Report(args) => report::run(args),
        Command::Set(args) => control::set(args),
        Command::DryRun(args) => control::dry_run(args),
        Command::Release(args) => control::release(args),
        Command::Config(args) => control::config(args),
        Command::Guard(args) => agent::guard(args),
        Command::SharedFile(args) => shared_file::run(args),
        Command::Manual(args) => manual::run(args, Cli::command()),
        Command::Check(args) => check::run(args),
        Command::Identify(args) => identify::run(args),
        Command::Admit(args) => admit::run(args),
        Command::Broker(args) => transfer::broker::run(args),
        Command::Place(args) => transfer::place::run(args),
        Command::Transfer(args) => transfer::run(args),
        Command::Load(args) => load::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Policy(args) => policy::run(args),
    }
}

/// Runs the command of this process's arguments, and returns the exit status.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match exit::parse_arguments::<Cli>() {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    match run(&cli.command) {
        Ok(()) => {
            logging::end(None);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            logging::end(failure.message().as_deref());
            ExitCode::from(failure.exit_status())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }
}
