//! The beginning of a program, and its exit status.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use tidegate_config::masked;
use tidegate_units::visible;

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
        let _ = if error.use_stderr() {
            let said = error.to_string();
            let shown = visible(&masked(&said)).into_owned();
            if shown == said {
                error.print()
            } else {
                // It quotes an argument with a password or a control character in it.
                io::stderr().write_all(shown.as_bytes())
            }
        } else {
            // Help and version go to stdout; a closed stdout is no failure.
            error.print()
        };
        if let Some(file) = misplaced_file(&error) {
            let _ = writeln!(
                io::stderr(),
                "\n  tip: the configuration is an option: `-c {}`",
                visible(&masked(file))
            );
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
    })
}

/// Returns the argument that was meant as the file of `--config`.
fn misplaced_file(error: &clap::Error) -> Option<&str> {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(argument))) => {
            Some(argument.as_str()).filter(|argument| argument.ends_with(".toml"))
        }
        _ => None,
    }
}

/// Returns true if the reader of the output has closed the pipe: it has read enough, which is no failure.
#[must_use]
pub fn is_closed_by_reader(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}
