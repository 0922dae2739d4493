//! `tidegate serve`.

use std::path::PathBuf;

use crate::descriptors;
use crate::failure::CommandFailure;
use crate::logging;
use crate::shared_file;

/// Serve volumes over NBD, and regulate who gets how much of the storage
///
/// Signals: SIGHUP reads the configuration again without dropping a connection, and keeps the old one when
/// the new one is wrong. SIGTERM and SIGINT stop accepting, answer what is in flight, and end; a second one
/// ends at once.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The configuration; see docs/reference/configuration.md
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    /// Least severity to log: error, warn, info, debug (every decision) or trace
    /// [default: TIDEGATE_LOG, or info]
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    logging::start(args.log.as_deref())?;
    descriptors::raise();
    shared_file::prepare();
    Ok(tidegate_serve::serve::serve(&args.config)?)
}
