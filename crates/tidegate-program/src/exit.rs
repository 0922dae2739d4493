//! The beginning of a program, and its exit status.

use std::io;
use std::process::ExitCode;

use clap::Parser;

/// Exit status: it did not work.
pub const FAILED: u8 = 1;
/// Exit status: wrong usage or configuration; the same command will fail again.
pub const USAGE: u8 = 2;

/// Parses the arguments of this process.
///
/// # Errors
/// The exit status, if there is no command to run: help, the version or a mistake was printed.
pub fn parse_arguments<C: Parser>() -> Result<C, ExitCode> {
    C::try_parse().map_err(|error| {
        // Help and version come this way too, and go to stdout; a closed stdout is no failure.
        let _ = error.print();
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
    })
}

/// Returns true if the reader of the output has closed the pipe: it has read enough, which is no failure.
#[must_use]
pub fn is_closed_by_reader(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}
