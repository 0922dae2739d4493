//! The key that the hosts of a cluster share, and what else is not to be shown.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tidegate_tls::warn_if_open;

const SHORTEST: usize = 16;
const LONGEST: usize = 4096;
/// A JWT with all that its user may do.
const LONGEST_CREDENTIALS: usize = 64 << 10;

/// A secret of 16 bytes or more that all hosts of a cluster have. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey(Arc<[u8]>);

/// Reasons why there is no key.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the cluster's key from {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The key is too short to be a secret, or too long to be meant as one.
    #[error(
        "the cluster's key has {0} bytes and needs {SHORTEST} to {LONGEST}; \
         make one with `head -c 32 /dev/urandom | base64`"
    )]
    Length(usize),
}

/// Reasons why there is no password or token.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("cannot read the secret in {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file holds no password or token.
    #[error("{path} holds no secret: one line of text, at most {LONGEST} bytes", path = .0.display())]
    NoSecret(PathBuf),
    /// The file holds no credentials.
    #[error("{path} holds no credentials: a user's JWT and the seed of its key, as `nsc` writes \
        them", path = .0.display())]
    NoCredentials(PathBuf),
}

impl ClusterKey {
    /// Takes a key as it stands.
    ///
    /// # Errors
    /// When it is shorter than 16 bytes, or longer than 4096.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyError> {
        if (SHORTEST..=LONGEST).contains(&bytes.len()) {
            Ok(Self(bytes.into()))
        } else {
            Err(KeyError::Length(bytes.len()))
        }
    }

    /// Reads a key from a file: all of it, without spaces and line ends around it. Warns in the log when
    /// others than its owner and group may read or write the file.
    ///
    /// # Errors
    /// When the file cannot be read, or what it holds is too short or too long.
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        let key = Self::from_checked_file(path)?;
        warn_if_open(path).map_err(|source| KeyError::Read { path: path.to_owned(), source })?;
        Ok(key)
    }

    /// Reads a key from a file that [`from_file`](Self::from_file) has read before: without its warning.
    ///
    /// # Errors
    /// When the file cannot be read, or what it holds is too short or too long.
    pub fn from_checked_file(path: &Path) -> Result<Self, KeyError> {
        let bytes = read_at_most(path, MOST_READ);
        let bytes = bytes.map_err(|source| KeyError::Read { path: path.to_owned(), source })?;
        Self::new(bytes.trim_ascii())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// A password or token. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Takes a secret as it stands.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Reads a secret from a file: all of it, without spaces and line ends around it. Warns as
    /// [`ClusterKey::from_file`] does.
    ///
    /// # Errors
    /// When the file cannot be read, is empty or too long, or is not text.
    pub fn from_file(path: &Path) -> Result<Self, SecretError> {
        let secret = Self::from_checked_file(path)?;
        warn_if_open(path).map_err(|source| SecretError::Read { path: path.to_owned(), source })?;
        Ok(secret)
    }

    /// Reads a secret from a file that [`from_file`](Self::from_file) has read before: without its warning.
    ///
    /// # Errors
    /// When the file cannot be read, is empty or too long, or is not text.
    pub fn from_checked_file(path: &Path) -> Result<Self, SecretError> {
        let bytes = read_at_most(path, MOST_READ);
        let bytes = bytes.map_err(|source| SecretError::Read { path: path.to_owned(), source })?;
        match std::str::from_utf8(bytes.trim_ascii()) {
            Ok(text) if (1..=LONGEST).contains(&text.len()) => Ok(Self::new(text)),
            _ => Err(SecretError::NoSecret(path.to_owned())),
        }
    }

    /// Returns the secret as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Checks that a file holds the credentials by which a server knows a user: a JWT and the seed of a key.
/// Warns as [`ClusterKey::from_file`] does.
///
/// # Errors
/// If the file does not hold them, or cannot be read.
pub fn check_credentials(path: &Path) -> Result<(), SecretError> {
    let text = read_credentials(path)?;
    let parsed = async_nats::ConnectOptions::new().credentials(&text);
    parsed.map_err(|_| SecretError::NoCredentials(path.to_owned()))?;
    warn_if_open(path).map_err(|source| SecretError::Read { path: path.to_owned(), source })
}

/// Returns the text of a file of credentials.
pub(crate) fn read_credentials(path: &Path) -> Result<String, SecretError> {
    let bytes = read_at_most(path, LONGEST_CREDENTIALS);
    let bytes = bytes.map_err(|source| SecretError::Read { path: path.to_owned(), source })?;
    String::from_utf8(bytes).map_err(|_| SecretError::NoCredentials(path.to_owned()))
}

/// Bytes of a secret that are read: some more than the longest, so that a longer one shows even with a line
/// end.
const MOST_READ: usize = 2 * LONGEST;

/// Reads a secret, and warns when others than its owner and group may read or write the file.
pub(crate) fn read_secret(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = read_at_most(path, MOST_READ)?;
    warn_if_open(path)?;
    Ok(bytes)
}

fn read_at_most(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_long_enough_and_not_shown() {
        assert!(matches!(ClusterKey::new(b"fifteen bytes.."), Err(KeyError::Length(15))));
        let key = ClusterKey::new(b"a secret of sixteen bytes or so").unwrap();
        assert_eq!(format!("{key:?}"), "Key(..)");
    }

    #[test]
    fn a_secret_is_one_line_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "token\n").unwrap();
        let secret = Secret::from_file(&path).unwrap();
        assert_eq!((secret.as_str(), format!("{secret:?}").as_str()), ("token", "Secret(..)"));
        for bad in [b"\n".as_slice(), b"\xff"] {
            std::fs::write(&path, bad).unwrap();
            assert!(matches!(Secret::from_file(&path), Err(SecretError::NoSecret(_))));
        }
        assert!(matches!(Secret::from_file(folder.path()), Err(SecretError::Read { .. })));
    }

    #[test]
    fn a_key_file_is_taken_without_its_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, b"0123456789abcdef\n").unwrap();
        assert_eq!(ClusterKey::from_file(&path).unwrap(), ClusterKey::new(b"0123456789abcdef").unwrap());
        std::fs::write(&path, b"0123456789abcde\n").unwrap();
        assert!(matches!(ClusterKey::from_file(&path), Err(KeyError::Length(15))));
        let missing = ClusterKey::from_file(&folder.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("/none"), "{missing}");
    }
}
