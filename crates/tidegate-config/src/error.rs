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
    #[error("{}: {}", path.display(), why(source))]
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

fn why(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => source.to_string(),
    }
}

fn joined(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Reads the text of a configuration from an open file.
///
/// # Errors
/// The system's answer, or that the file is too large for a configuration.
pub fn read_text(file: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too large for a configuration"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        let said =
            format!("line {line} is not UTF-8: save the file in this encoding, or correct the character");
        io::Error::new(io::ErrorKind::InvalidData, said)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_is_not_utf_8_is_named() {
        assert_eq!(read_text(&b"a = '\xC3\xBC'\n"[..]).unwrap(), "a = '\u{FC}'\n");
        let said = read_text(&b"# f\xC3\xBCr\n# f\xFCr\na = 1\n"[..]).unwrap_err().to_string();
        assert!(said.starts_with("line 2 is not UTF-8"), "{said}");
    }
}
