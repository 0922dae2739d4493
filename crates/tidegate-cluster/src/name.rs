//! The name of a cluster, and what tells one start of a host from another.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest name of a cluster in bytes: it stands in every message, in subjects and in names of buckets.
const LONGEST: usize = 32;

/// A set of hosts that share resources and tell each other what they measure.
///
/// 1 to 32 letters, digits, `-` and `_`: what every carrier can use as it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterName(Arc<str>);

/// A text that is not the name of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a cluster's name: write 1 to {LONGEST} letters, digits, `-` or `_`")]
pub struct ClusterNameError(String);

impl ClusterName {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// When the text is empty, too long, or has other characters than letters, digits, `-` and `_`.
    pub fn new(text: &str) -> Result<Self, ClusterNameError> {
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if text.is_empty() || text.len() > LONGEST || !plain {
            return Err(ClusterNameError(text.chars().take(2 * LONGEST).collect()));
        }
        Ok(Self(text.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClusterName {
    type Err = ClusterNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl TryFrom<String> for ClusterName {
    type Error = ClusterNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::new(&text)
    }
}

impl From<ClusterName> for String {
    fn from(name: ClusterName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One start of a host: random, so that two starts never have the same, and so that two hosts with one name
/// are told apart. It says nothing about order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Incarnation(pub(crate) u128);

impl Incarnation {
    /// `None` when the system has no randomness to give.
    pub(crate) fn random() -> Option<Self> {
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(u128::from_le_bytes(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_every_carrier_or_is_refused() {
        assert_eq!(ClusterName::new("rack-7_b").unwrap().as_str(), "rack-7_b");
        for bad in ["", "a.b", "a b", "*", ">", "ä", &"x".repeat(33)] {
            assert!(ClusterName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn two_starts_differ() {
        assert_ne!(Incarnation::random(), Incarnation::random());
    }
}
