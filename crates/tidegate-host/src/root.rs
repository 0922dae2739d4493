//! The place of the kernel's files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The directory under which `/proc` and `/sys` are: `/`, or a captured tree of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemRoot(PathBuf);

impl Default for SystemRoot {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

impl SystemRoot {
    /// A tree elsewhere, such as one that was captured.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// A file or directory of the kernel's, by its usual absolute path.
    #[must_use]
    pub fn path(&self, usual: impl AsRef<Path>) -> PathBuf {
        let usual = usual.as_ref();
        self.0.join(usual.strip_prefix("/").unwrap_or(usual))
    }

    /// Reads a file of the kernel's.
    ///
    /// # Errors
    /// When it cannot be read, or is not text.
    pub fn read(&self, usual: impl AsRef<Path>) -> Result<String, ReadError> {
        let path = self.path(usual);
        fs::read_to_string(&path).map_err(|source| ReadError::Unreadable { path, source })
    }

    /// Returns the first two numbers of the kernel's version; `None` if it does not say them.
    pub(crate) fn kernel_version(&self) -> Option<(u32, u32)> {
        let text = self.read("/proc/sys/kernel/osrelease").ok()?;
        let parts = text.split(|letter: char| !letter.is_ascii_digit());
        let mut numbers = parts.map_while(|part| part.parse().ok());
        numbers.next().zip(numbers.next())
    }
}

/// The reason that a file of the kernel's cannot be used.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Its content is not what the kernel's documentation says.
    #[error("{}:{line}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The text that was expected, and the text found.
        problem: String,
    },
}
