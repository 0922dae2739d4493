//! Writers of policies: the public keys that a configuration names.

use nkeys::KeyPair;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The public half of a key that signs policies, as `tidegate policy key` and `nk` write it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PolicyWriter(pub(crate) String);

/// The reason why a text is no public key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyWriterError {
    /// It is the other half.
    #[error(
        "this is the secret half of a key: write the public one, and make a new key, since this one is known \
            now"
    )]
    Seed,
    /// It is something else.
    #[error("`{0}` is not a public key: `tidegate policy key FILE` makes a key and shows it")]
    NoKey(String),
}

impl FromStr for PolicyWriter {
    type Err = PolicyWriterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if KeyPair::from_seed(text).is_ok() {
            return Err(PolicyWriterError::Seed);
        }
        KeyPair::from_public_key(text)
            .map(|_| Self(text.to_owned()))
            .map_err(|_| PolicyWriterError::NoKey(text.chars().take(64).collect()))
    }
}

impl TryFrom<String> for PolicyWriter {
    type Error = PolicyWriterError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for PolicyWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
