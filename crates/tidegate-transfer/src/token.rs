//! What whoever asks a broker has to show, where it is asked for: a bearer token (RFC 6750), read from a file.

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

use crate::name::NoRandom;

/// As of the key of a cluster: a shorter one can be guessed.
const SHORTEST: usize = 16;

/// What a server of HTTP takes as a header.
const LONGEST: usize = 4096;

/// Anyone may read, or anyone may write.
const OPEN_TO_OTHERS: u32 = 0o006;

/// A token. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

/// Why there is no token.
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
    /// What it holds is none.
    #[error(
        "{} holds no token: {SHORTEST} to {LONGEST} letters, digits and `-._~+/=`; make one with `head -c 32 /dev/urandom | base64`",
        .0.display()
    )]
    NoToken(PathBuf),
}

impl Token {
    /// Reads a token from a file: all of it, without spaces and line ends around it. Warns in the log when others than its owner and group may
    /// read or write the file.
    ///
    /// # Errors
    /// When the file cannot be read, or what it holds is too short, too long, or cannot be sent.
    pub fn from_file(path: &Path) -> Result<Self, TokenError> {
        let at = |source| TokenError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(at)?;
        let mode = file.metadata().map_err(at)?.mode();
        let mut bytes = Vec::new();
        // More than the longest, so that a longer one shows even with a line end.
        file.take(2 * LONGEST as u64).read_to_end(&mut bytes).map_err(at)?;
        let token = std::str::from_utf8(bytes.trim_ascii()).ok().and_then(Self::new);
        let token = token.ok_or_else(|| TokenError::NoToken(path.to_owned()))?;
        if mode & OPEN_TO_OTHERS != 0 {
            let path = path.display();
            tracing::warn!(
                "the token {path} is open to everyone on this host (mode {:03o}): `chmod o-rwx {path}`",
                mode & 0o777
            );
        }
        Ok(token)
    }

    /// Of a text, where it is one.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let is_token = (SHORTEST..=LONGEST).contains(&text.len()) && text.bytes().all(may_be);
        is_token.then(|| Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Whom a broker answers. What it is shown is compared with what it knows by their codes under a key of its own, so that the time that this
/// takes says nothing of how much of them is the same.
#[derive(Debug)]
pub(crate) struct Admission {
    key: hmac::Key,
    all: hmac::Tag,
    /// Who may report on one node.
    nodes: BTreeMap<ResourceName, hmac::Tag>,
}

/// Who is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// He shows nothing.
    Nothing,
    /// It is not what is asked for.
    Other,
}

impl Admission {
    /// Of whoever has the token, and of those who may report on a node with theirs.
    pub(crate) fn new<'a>(
        all: &Token,
        nodes: impl IntoIterator<Item = (&'a ResourceName, &'a Token)>,
    ) -> Result<Self, NoRandom> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| NoRandom)?;
        let tag = |token: &Token| hmac::sign(&key, token.as_str().as_bytes());
        let nodes = nodes.into_iter().map(|(node, token)| (node.clone(), tag(token))).collect();
        Ok(Self { all: tag(all), nodes, key })
    }

    /// Whether who shows this may be answered; about a report on a node, if it is one.
    pub(crate) fn admits(
        &self,
        authorization: Option<&[u8]>,
        reports: Option<&ResourceName>,
    ) -> Result<(), Unknown> {
        let (scheme, shown) =
            authorization.and_then(|said| said.split_at_checked(b"Bearer ".len())).ok_or(Unknown::Nothing)?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return Err(Unknown::Nothing);
        }
        let is = |tag: &hmac::Tag| hmac::verify(&self.key, shown.trim_ascii(), tag.as_ref()).is_ok();
        let of_node = reports.and_then(|node| self.nodes.get(node));
        if is(&self.all) || of_node.is_some_and(is) { Ok(()) } else { Err(Unknown::Other) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    #[test]
    fn a_token_is_one_word_long_enough_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "0123456789abcde=\n").unwrap();
        let read = Token::from_file(&path).unwrap();
        assert_eq!((read.as_str(), format!("{read:?}").as_str()), ("0123456789abcde=", "Token(..)"));
        let long = [b'a'; LONGEST + 1];
        for bad in [&b"0123456789abcde"[..], b"", b"0123456789 abcdef", b"0123456789abcdef\xff", &long[..]] {
            std::fs::write(&path, bad).unwrap();
            assert!(matches!(Token::from_file(&path), Err(TokenError::NoToken(_))), "{bad:?}");
        }
        std::fs::write(&path, &long[1..]).unwrap();
        Token::from_file(&path).unwrap();
        let missing = Token::from_file(&folder.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("/none"), "{missing}");
    }

    #[test]
    fn who_has_the_token_of_a_node_reports_on_that_one() {
        let [a, b] = ["a", "b"].map(|name| ResourceName::new(name).unwrap());
        let (all, of_a) = (token("the-token-of-everybody"), token("the-token-of-node-a"));
        let admission = Admission::new(&all, [(&a, &of_a)]).unwrap();
        let admits = |said: &str, node| admission.admits(Some(said.as_bytes()), node);
        for node in [None, Some(&a), Some(&b)] {
            assert_eq!(admits("Bearer the-token-of-everybody", node), Ok(()));
            assert_eq!(admits("bearer  the-token-of-everybody ", node), Ok(()));
            for other in ["the-token-of-everybod", "the-token-of-everybodyy", "the-token-of-node-b", ""] {
                assert_eq!(admits(&format!("Bearer {other}"), node), Err(Unknown::Other), "{other}");
            }
            for none in ["Basic the-token-of-everybody", "the-token-of-everybody", "Bearer", ""] {
                assert_eq!(admits(none, node), Err(Unknown::Nothing), "{none}");
            }
            assert_eq!(admission.admits(None, node), Err(Unknown::Nothing));
        }
        assert_eq!(admits("Bearer the-token-of-node-a", Some(&a)), Ok(()));
        for node in [None, Some(&b)] {
            assert_eq!(admits("Bearer the-token-of-node-a", node), Err(Unknown::Other));
        }
    }
}
