//! `tidegate agent`, and the guardian that it starts.

use std::path::PathBuf;

use tidegate_agent::{self as agent, GuardianCommand};
use tidegate_host::throttle;

use crate::descriptors;
use crate::failure::CommandFailure;
use crate::logging;
use crate::shared_file;

/// Regulate this machine's storage for its consumers on the network
///
/// Runs on a storage target (LIO). Measures the latency of reads. While it is above the target, the agent
/// throttles the consumers that write, by delaying packets to them or by limiting their writes. Needs root,
/// or CAP_NET_ADMIN and read access to configfs. Nothing is in the data path while all is well, and nothing
/// stays when the agent ends, however it ends.
///
/// Signals: SIGHUP reads the configuration again, and keeps the old one when the new one is wrong. SIGTERM
/// and SIGINT release all consumers, and end.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The configuration; see docs/guide/agent.md
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    /// Decide and log, but throttle nothing, as if every resource had `dry_run`; the kernel is not touched
    #[arg(long)]
    dry_run: bool,

    /// Least severity to log: error, warn, info, debug (every decision) or trace
    /// [default: TIDEGATE_LOG, or info]
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    logging::start(args.log.as_deref())?;
    descriptors::raise();
    shared_file::prepare();
    Ok(agent::run(&args.config, args.dry_run, &guardian())?)
}

pub(crate) fn guardian() -> GuardianCommand {
    // By this name also after the file was replaced by a newer one.
    GuardianCommand { program: PathBuf::from("/proc/self/exe"), arguments: vec!["guard"] }
}

/// The guardian of an agent: started by it, never by hand
#[derive(clap::Args)]
pub(crate) struct GuardArgs {}

pub(crate) fn guard(_: &GuardArgs) -> Result<(), CommandFailure> {
    logging::start(None)?;
    if let Some(found) = throttle::guard()?
        && !found.nothing()
    {
        tracing::warn!("the agent is gone and had not released its consumers; they are released now");
    }
    Ok(())
}
