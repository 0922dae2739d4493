//! The log: lines on stderr, as a terminal or journald wants them.

use std::env;
use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// Which level is logged where nothing else is said.
const DEFAULT: &str = "info";

/// Begins to log. `level` is a level or a filter as `tracing` understands it; without it `TIDEGATE_LOG` decides.
pub(crate) fn start(level: Option<&str>) -> Result<(), Failure> {
    let from_environment = env::var("TIDEGATE_LOG").ok();
    let level = level.or(from_environment.as_deref()).unwrap_or(DEFAULT);
    let filter = EnvFilter::try_new(level).map_err(|error| {
        Failure::Usage(format!("`{level}` is no log level ({error}); use error, warn, info, debug or trace"))
    })?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    // journald adds the time by itself.
    if env::var_os("JOURNAL_STREAM").is_some() {
        log.without_time().init();
    } else {
        log.init();
    }
    Ok(())
}
