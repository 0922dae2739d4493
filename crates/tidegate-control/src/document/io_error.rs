//! Kinds of errors that requests are answered with.

use serde::{Deserialize, Serialize};

/// A kind of error that is not the client's mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoErrorKind {
    /// The storage failed, or its connection was lost for too long (`EIO`).
    Io,
    /// The storage is full, or over its quota (`ENOSPC`).
    NoSpace,
    /// The storage refuses: it has become read-only, or access was taken away (`EPERM`).
    NotPermitted,
    /// The storage does not take the request: it wants another alignment or length (`EINVAL`).
    Invalid,
    /// There was no memory for the request (`ENOMEM`).
    NoMemory,
    /// The gateway is about to end (`ESHUTDOWN`).
    ShuttingDown,
}

impl IoErrorKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Io, Self::NoSpace, Self::NotPermitted, Self::Invalid, Self::NoMemory, Self::ShuttingDown];

    /// Its name in metrics and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::NoSpace => "no_space",
            Self::NotPermitted => "not_permitted",
            Self::Invalid => "invalid",
            Self::NoMemory => "no_memory",
            Self::ShuttingDown => "shutting_down",
        }
    }

    /// Returns the words for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Io => "input/output error",
            Self::NoSpace => "no space left",
            Self::NotPermitted => "not permitted by the storage",
            Self::Invalid => "not taken by the storage",
            Self::NoMemory => "no memory",
            Self::ShuttingDown => "shutting down",
        }
    }
}
