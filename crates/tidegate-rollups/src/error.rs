//! Reasons why rollups cannot be written or read.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::calendar::Month;

/// Reason why rollups cannot be written or read, with file and place.
#[derive(Debug, Error)]
pub enum RollupError {
    /// The system returned an error.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file or folder.
        path: PathBuf,
        /// Answer of the system.
        source: io::Error,
    },
    /// Another process writes rollups there.
    #[error(
        "{}: another process writes its rollups there; give each service a folder of its own",
        .0.display()
    )]
    InUse(PathBuf),
    /// The file has no rollups.
    #[error("{}: byte {offset}: {reason}; move it to another folder", path.display())]
    Foreign {
        /// Path of the file.
        path: PathBuf,
        /// Place in the file.
        offset: u64,
        /// The reason.
        reason: &'static str,
    },
    /// A newer version wrote the file.
    #[error(
        "{}: byte {offset}: written in rollup format version {found}, this build reads up to {known}; read \
         it with a newer build",
        path.display()
    )]
    NewerVersion {
        /// Path of the file.
        path: PathBuf,
        /// Place in the file.
        offset: u64,
        /// Version in the file.
        found: u32,
        /// Newest version that this build reads.
        known: u32,
    },
    /// The file ends within its header or a block, as after a crash of the machine.
    #[error(
        "{}: byte {offset}: the file ends within a block; its last {bytes} bytes are lost, and with them at \
         most the last minute before the crash",
        path.display()
    )]
    Truncated {
        /// Path of the file.
        path: PathBuf,
        /// Beginning of the incomplete part.
        offset: u64,
        /// Number of bytes from there on.
        bytes: u64,
    },
    /// A part of the file is not what was written.
    #[error(
        "{}: byte {offset}: {reason}; {bytes} bytes are lost, and the minutes in them are unknown",
        path.display()
    )]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Beginning of the damaged part.
        offset: u64,
        /// Number of its bytes.
        bytes: u64,
        /// The reason.
        reason: &'static str,
    },
    /// There are no rollups.
    #[error(
        "{}: there are no rollups: a gateway with a decision journal in this folder writes them",
        .0.display()
    )]
    Empty(PathBuf),
    /// The month is not kept.
    #[error("{}: nothing is kept of {month}; kept are {}", folder.display(), months(kept))]
    OutsideRetention {
        /// Folder of the journal.
        folder: PathBuf,
        /// The month that was asked for.
        month: Month,
        /// The months that are kept, in their order.
        kept: Vec<Month>,
    },
}

/// Writes months as spans: `2026-01, 2026-03 to 2026-11`.
fn months(kept: &[Month]) -> String {
    let mut spans: Vec<(Month, Month)> = Vec::new();
    for &month in kept {
        match spans.last_mut() {
            Some((_, last)) if last.next() == month => *last = month,
            _ => spans.push((month, month)),
        }
    }
    let one = |&(first, last): &(Month, Month)| {
        if first == last { first.to_string() } else { format!("{first} to {last}") }
    };
    spans.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl RollupError {
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path: path.clone(), source }
    }
}

/// Content of a block that makes no sense, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct DamagedBlock(pub(crate) &'static str);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_that_are_kept_are_told_as_spans() {
        let kept = ["2025-11", "2025-12", "2026-01", "2026-03", "2026-05", "2026-06"];
        let kept = kept.map(|text| text.parse().unwrap()).to_vec();
        let error = RollupError::OutsideRetention {
            folder: PathBuf::from("/j"),
            month: "2024-01".parse().unwrap(),
            kept,
        };
        let text = "/j: nothing is kept of 2024-01; kept are 2025-11 to 2026-01, 2026-03, 2026-05 to 2026-06";
        assert_eq!(error.to_string(), text);
    }
}
