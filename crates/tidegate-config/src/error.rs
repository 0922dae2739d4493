//! Reasons why a configuration cannot be used.

use std::io::{self, Read};
use std::path::PathBuf;

use thiserror::Error;

use crate::finding::Finding;

/// A larger file is not a configuration: a thousand exports need a tenth of this.
const LARGEST_FILE: u64 = 4 * 1024 * 1024;

/// The reasons why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The text is wrong: warnings are among the findings too, in the order of the text.
    #[error("{}", joined(.0))]
    Invalid(Vec<Finding>),
}

fn joined(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Reads the text of a configuration from an open file.
///
/// # Errors
/// The system's answer, or that the file is too large for a configuration.
pub fn read_text(file: impl Read) -> io::Result<String> {
    let mut text = String::new();
    file.take(LARGEST_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST_FILE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too large for a configuration"));
    }
    Ok(text)
}
