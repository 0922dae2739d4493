//! Bearer tokens (RFC 6750), read from files, and the comparison with the one that a request shows.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::hmac;
use ring::rand::SystemRandom;
use thiserror::Error;
use tidegate_units::ResourceName;

/// The shortest token, as for the key of a cluster: a shorter one can be guessed.
const SHORTEST: usize = 16;

/// The longest token: HTTP servers take headers up to this length.
const LONGEST: usize = 4096;

/// Anyone may read, or anyone may write.
const OPEN_TO_OTHERS: u32 = 0o006;

/// A token. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(Arc<str>);

/// The reasons why there is no token.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token in {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The content of the file is not a token.
    #[error(
        "{} holds no token: {SHORTEST} to {LONGEST} letters, digits and `-._~+/=`; make one with `head -c 32 \
            /dev/urandom | base64`",
        .0.display()
    )]
    NoToken(PathBuf),
}

/// A file with a token that others than its owner and group may read or write.
#[derive(Debug, Error)]
#[error(
    "the token {} is open to everyone on this host (mode {mode:03o}): `chmod o-rwx {}`",
    path.display(), path.display()
)]
pub struct OpenTokenFile {
    path: PathBuf,
    mode: u32,
}

impl BearerToken {
    /// Reads a token from a file: all of it, without spaces and line ends around it. Warns in the log when
    /// others than its owner and group may read or write the file.
    ///
    /// # Errors
    /// When the file cannot be read, or what it holds is too short, too long, or cannot be sent.
    pub fn from_file(path: &Path) -> Result<Self, TokenError> {
        let (token, warning) = Self::read(path)?;
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
        Ok(token)
    }

    /// Reads a token in the same way, and returns the warning for a program without a log.
    ///
    /// # Errors
    /// As of [`from_file`](Self::from_file).
    pub fn read(path: &Path) -> Result<(Self, Option<OpenTokenFile>), TokenError> {
        let at = |source| TokenError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(at)?;
        let mode = file.metadata().map_err(at)?.mode() & 0o777;
        let mut bytes = Vec::new();
        // More than the longest, so that a longer one shows even with a line end.
        file.take(2 * LONGEST as u64).read_to_end(&mut bytes).map_err(at)?;
        let token = std::str::from_utf8(bytes.trim_ascii()).ok().and_then(Self::new);
        let token = token.ok_or_else(|| TokenError::NoToken(path.to_owned()))?;
        let is_open = mode & OPEN_TO_OTHERS != 0;
        Ok((token, is_open.then(|| OpenTokenFile { path: path.to_owned(), mode })))
    }

    /// Returns the text as a token, if it is one.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let is_token = (SHORTEST..=LONGEST).contains(&text.len()) && text.bytes().all(may_be);
        is_token.then(|| Self(text.into()))
    }

    /// The token as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The system gives no random numbers.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the system has no random numbers")]
pub struct NoRandom;

/// The tokens that a server accepts. A request's token is compared by its code under a random key. So the
/// time of the comparison does not tell how much of the token is right.
#[derive(Debug)]
pub struct TokenAdmission {
    key: hmac::Key,
    all: hmac::Tag,
    /// Tokens that are good for reports on one node only.
    nodes: BTreeMap<ResourceName, hmac::Tag>,
}

/// The reasons why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenRefused {
    /// It shows no token.
    Missing,
    /// It shows another token.
    Other,
}

impl TokenAdmission {
    /// Accepts a token for everything, and others for reports on one node each.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new<'a>(
        all: &BearerToken,
        nodes: impl IntoIterator<Item = (&'a ResourceName, &'a BearerToken)>,
    ) -> Result<Self, NoRandom> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| NoRandom)?;
        let tag = |token: &BearerToken| hmac::sign(&key, token.as_str().as_bytes());
        let nodes = nodes.into_iter().map(|(node, token)| (node.clone(), tag(token))).collect();
        Ok(Self { all: tag(all), nodes, key })
    }

    /// Checks the `Authorization` of a request; of a report on a node, if it is one.
    ///
    /// # Errors
    /// When it shows no token, or another one.
    pub fn admits(
        &self,
        authorization: Option<&[u8]>,
        reports: Option<&ResourceName>,
    ) -> Result<(), TokenRefused> {
        let (scheme, shown) = authorization
            .and_then(|said| said.split_at_checked(b"Bearer ".len()))
            .ok_or(TokenRefused::Missing)?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return Err(TokenRefused::Missing);
        }
        let is = |tag: &hmac::Tag| hmac::verify(&self.key, shown.trim_ascii(), tag.as_ref()).is_ok();
        let of_node = reports.and_then(|node| self.nodes.get(node));
        if is(&self.all) || of_node.is_some_and(is) { Ok(()) } else { Err(TokenRefused::Other) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> BearerToken {
        BearerToken::new(text).unwrap()
    }

    #[test]
    fn a_token_is_one_word_long_enough_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "0123456789abcde=\n").unwrap();
        let read = BearerToken::from_file(&path).unwrap();
        assert_eq!((read.as_str(), format!("{read:?}").as_str()), ("0123456789abcde=", "Token(..)"));
        let long = [b'a'; LONGEST + 1];
        for bad in [&b"0123456789abcde"[..], b"", b"0123456789 abcdef", b"0123456789abcdef\xff", &long[..]] {
            std::fs::write(&path, bad).unwrap();
            assert!(matches!(BearerToken::from_file(&path), Err(TokenError::NoToken(_))), "{bad:?}");
        }
        std::fs::write(&path, &long[1..]).unwrap();
        BearerToken::from_file(&path).unwrap();
        let missing = BearerToken::from_file(&folder.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("/none"), "{missing}");
    }

    #[test]
    fn who_has_the_token_of_a_node_reports_on_that_one() {
        let [a, b] = ["a", "b"].map(|name| ResourceName::new(name).unwrap());
        let (all, of_a) = (token("the-token-of-all-nodes"), token("the-token-of-node-a"));
        let admission = TokenAdmission::new(&all, [(&a, &of_a)]).unwrap();
        let admits = |said: &str, node| admission.admits(Some(said.as_bytes()), node);
        for node in [None, Some(&a), Some(&b)] {
            assert_eq!(admits("Bearer the-token-of-all-nodes", node), Ok(()));
            assert_eq!(admits("bearer  the-token-of-all-nodes ", node), Ok(()));
            for other in ["the-token-of-all-node", "the-token-of-all-nodess", "the-token-of-node-b", ""] {
                assert_eq!(admits(&format!("Bearer {other}"), node), Err(TokenRefused::Other), "{other}");
            }
            for none in ["Basic the-token-of-all-nodes", "the-token-of-all-nodes", "Bearer", ""] {
                assert_eq!(admits(none, node), Err(TokenRefused::Missing), "{none}");
            }
            assert_eq!(admission.admits(None, node), Err(TokenRefused::Missing));
        }
        assert_eq!(admits("Bearer the-token-of-node-a", Some(&a)), Ok(()));
        for node in [None, Some(&b)] {
            assert_eq!(admits("Bearer the-token-of-node-a", node), Err(TokenRefused::Other));
        }
    }
}
