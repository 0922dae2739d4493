//! SHA-256 of an object: shows that the stored data is the data that was sent.

use std::fmt;
use std::str::FromStr;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The SHA-256 of an object, in text 64 hexadecimal digits, as `sha256sum` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// A text that is no SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a SHA-256 has 64 hexadecimal digits")]
pub struct DigestError;

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(DigestError);
        }
        for (place, byte) in bytes.iter_mut().enumerate() {
            let pair = text.get(2 * place..2 * place + 2).ok_or(DigestError)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| DigestError)?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A SHA-256 in the making.
#[derive(Clone)]
pub struct Hasher(Context);

impl Default for Hasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Hasher {
    /// Adds more of the object, in its order.
    pub fn add(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    /// Returns the SHA-256 of all of it.
    #[must_use]
    pub fn finish(self) -> Digest {
        let mut bytes = [0; 32];
        // Both have 32 bytes: SHA-256 does.
        bytes.iter_mut().zip(self.0.finish().as_ref()).for_each(|(to, from)| *to = *from);
        Digest(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_sha256sum_says() {
        // FIPS 180-2, appendix B.1.
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let mut hasher = Hasher::default();
        hasher.add(b"a");
        hasher.add(b"bc");
        let digest = hasher.finish();
        assert_eq!((digest.to_string().as_str(), text.parse()), (text, Ok(digest)));
        for wrong in ["", "ba78", &text.replace('b', "g"), &format!("{text}00")] {
            assert_eq!(wrong.parse::<Digest>(), Err(DigestError));
        }
    }
}
