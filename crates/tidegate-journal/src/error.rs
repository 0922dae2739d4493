//! Reasons why a journal cannot be written or read.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::time::WallTime;

/// Reason why a journal cannot be written or read, with file and place.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The system returned an error.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file or folder.
        path: PathBuf,
        /// Answer of the system.
        source: io::Error,
    },
    /// Another process writes the journal.
    #[error("{}: another process writes its decision journal there", .0.display())]
    InUse(PathBuf),
    /// The limit leaves no room for segments.
    #[error("a decision journal needs at least {least} bytes, {limit} are allowed")]
    Limit {
        /// The limit that was asked for.
        limit: u64,
        /// The least limit.
        least: u64,
    },
    /// The file is no segment of a decision journal.
    #[error("{}: byte {offset}: this is no segment of a decision journal", path.display())]
    NotAJournal {
        /// Path of the file.
        path: PathBuf,
        /// Place in the file.
        offset: u64,
    },
    /// A newer version wrote the file.
    #[error(
        "{}: byte {offset}: written in {part} version {found}, this build reads up to {known}; read it with \
         a newer build",
        path.display()
    )]
    NewerVersion {
        /// Path of the file.
        path: PathBuf,
        /// Place in the file.
        offset: u64,
        /// Part whose version it is.
        part: VersionedPart,
        /// Version in the file.
        found: u32,
        /// Newest version that this build reads.
        known: u32,
    },
    /// The version of the file is no longer read.
    #[error(
        "{}: byte {offset}: written in {part} version {found}, this build reads only {known}; read it with \
         the build that wrote it",
        path.display()
    )]
    OlderVersion {
        /// Path of the file.
        path: PathBuf,
        /// Place in the file.
        offset: u64,
        /// Part whose version it is.
        part: VersionedPart,
        /// Version in the file.
        found: u32,
        /// Version that this build reads.
        known: u32,
    },
    /// The file ends within its header or within a block, as after a crash of its writer.
    #[error(
        "{}: byte {offset}: the file ends within a block; its last {dropped} bytes are lost",
        path.display()
    )]
    Truncated {
        /// Path of the file.
        path: PathBuf,
        /// Beginning of the incomplete part.
        offset: u64,
        /// Number of bytes from there on.
        dropped: u64,
    },
    /// A checksum does not match.
    #[error(
        "{}: byte {offset}: the checksum does not match; the remaining {dropped} bytes of the file are lost",
        path.display()
    )]
    Checksum {
        /// Path of the file.
        path: PathBuf,
        /// Beginning of the damaged part.
        offset: u64,
        /// Number of bytes from there on.
        dropped: u64,
    },
    /// The checksum matches, and the content makes no sense.
    #[error(
        "{}: byte {offset}: {reason}; the remaining {dropped} bytes of the file are lost",
        path.display()
    )]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Beginning of the part.
        offset: u64,
        /// Number of bytes from there on.
        dropped: u64,
        /// The reason.
        reason: &'static str,
    },
    /// The folder has no segment.
    #[error("{}: there is no decision journal", .0.display())]
    Empty(PathBuf),
    /// Nothing of the time asked for is kept.
    #[error("{}: nothing is kept of {from} to {until}; kept are {oldest} to {newest}", folder.display())]
    OutsideRetention {
        /// Folder of the journal.
        folder: PathBuf,
        /// Beginning of the time asked for.
        from: WallTime,
        /// End of the time asked for.
        until: WallTime,
        /// Time of the oldest entry.
        oldest: WallTime,
        /// Time of the newest entry.
        newest: WallTime,
    },
}

/// Part of a journal that has a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionedPart {
    /// Layout of the file.
    Format,
    /// Content of an observation.
    Observation,
}

impl std::fmt::Display for VersionedPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Format => "journal format",
            Self::Observation => "observation",
        })
    }
}

impl JournalError {
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path: path.clone(), source }
    }

    /// Returns true if the journal can be read on after the damage: the reader goes to the next segment.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Truncated { .. } | Self::Checksum { .. } | Self::Malformed { .. })
    }
}

/// Content of a block that makes no sense, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct DamagedBlock(pub(crate) &'static str);
