//! Names of objects, and of transfers.

use std::fmt;
use std::str::FromStr;

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use thiserror::Error;
pub use tidegate_http::NoRandom;

/// The name of an object in the catalogue: 1 to 200 of the letters, digits, `.`, `_` and `-` of ASCII, not
/// beginning with a dot.
///
/// It is part of a path on every kind of node. Nothing in it has to be escaped anywhere, or leads to another
/// folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectName(String);

/// The reason why a text is not the name of an object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{}` cannot be the name of an object: it has 1 to 200 of the letters, digits, `.`, `_` and `-`, and \
        does not begin with a dot",
    .0.escape_debug()
)]
pub struct ObjectNameError(String);

impl ObjectName {
    const LONGEST: usize = 200;

    /// Checks and takes a name.
    ///
    /// # Errors
    /// When it is too long, empty, or has other characters.
    pub fn new(text: &str) -> Result<Self, ObjectNameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let right =
            (1..=Self::LONGEST).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(allowed);
        // What is said of it is bounded as well.
        let shown = || text.chars().take(Self::LONGEST).collect();
        if right { Ok(Self(text.to_owned())) } else { Err(ObjectNameError(shown())) }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ObjectName {
    type Err = ObjectNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl TryFrom<String> for ObjectName {
    type Error = ObjectNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::new(&text)
    }
}

impl From<ObjectName> for String {
    fn from(name: ObjectName) -> Self {
        name.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of a transfer: 16 hexadecimal digits that cannot be guessed and were never used before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TransferId(String);

/// The reason why a text is not the id of a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a transfer is called by 16 of the digits 0 to 9 and a to f, drawn at random")]
pub(crate) struct TransferIdError;

impl TransferId {
    /// Returns an id that was never used.
    pub(crate) fn fresh() -> Result<Self, NoRandom> {
        let mut bytes = [0; 8];
        SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandom)?;
        Ok(Self(format!("{:016x}", u64::from_be_bytes(bytes))))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns true if a text is a key under which an object of this name is on a node, `NAME.ID`. Nothing in
/// such a key can lead to another folder.
pub(crate) fn is_key_of(key: &str, name: &ObjectName) -> bool {
    let id = key.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('.'));
    id.is_some_and(is_id)
}

/// Returns true if a text is 16 hexadecimal digits.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of one start of a program, for its [reports](crate::sensor_reports::SensorReport).
///
/// # Errors
/// When the system has no random numbers.
pub fn fresh_run() -> Result<String, NoRandom> {
    TransferId::fresh().map(|id| id.0)
}

impl FromStr for TransferId {
    type Err = TransferIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_id(text) { Ok(Self(text.to_owned())) } else { Err(TransferIdError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_called_by_sixteen_digits() {
        let id = TransferId::fresh().unwrap();
        assert_eq!(id.as_str().parse(), Ok(id));
        for wrong in ["", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeF", "../3456789abcdef"] {
            assert_eq!(wrong.parse::<TransferId>(), Err(TransferIdError), "{wrong}");
        }
    }

    #[test]
    fn a_key_is_of_its_object_and_of_nothing_else() {
        let name = ObjectName::new("run7").unwrap();
        assert!(is_key_of("run7.0123456789abcdef", &name));
        for wrong in [
            "",
            "run7",
            "run7.",
            "run7.1",
            "run8.0123456789abcdef",
            "run7.0123456789abcdef.part",
            "run7.0123456789ABCDEF",
            "run7/../../etc/x.0123456789abcdef",
            "../run7.0123456789abcdef",
            "run7.0123456789abcdef/..",
            "run7.0123456789abcde\u{0}",
        ] {
            assert!(!is_key_of(wrong, &name), "{wrong}");
        }
    }

    #[test]
    fn a_name_means_the_same_everywhere() {
        for right in ["a", "run7.h5", "-", "A_b-c.tar.gz", &"x".repeat(200)] {
            assert_eq!(ObjectName::new(right).unwrap().as_str(), right);
        }
        for wrong in ["", ".", "..", ".hidden", "a/b", "a b", "ä", "a%20", "a\n", &"x".repeat(201)] {
            assert!(ObjectName::new(wrong).is_err(), "{wrong:?}");
        }
    }
}
