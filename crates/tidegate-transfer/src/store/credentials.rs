//! Credentials for an S3 server: from the environment, or from the file that Amazon's tools read.

use std::env;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use thiserror::Error;

/// The greatest size of a file of credentials.
const LARGEST: u64 = 1024 * 1024;

const ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const TOKEN: &str = "AWS_SESSION_TOKEN";
const FILE: &str = "AWS_SHARED_CREDENTIALS_FILE";
const PROFILE: &str = "AWS_PROFILE";

/// A key and its secret. `Debug` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct S3Credentials {
    pub(super) id: String,
    pub(super) secret: String,
    /// The token of a session that another program opened.
    pub(super) token: Option<String>,
}

impl fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// The reason why there are no credentials.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("no credentials for S3: {}: {source}; set {ID} and {SECRET}, or write the file", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file has no profile of this name.
    #[error(
        "no credentials for S3: {} has no `[{profile}]` with `aws_access_key_id` and `aws_secret_access_key`",
        path.display()
    )]
    NoProfile {
        /// The path of the file.
        path: PathBuf,
        /// The profile that was looked for.
        profile: String,
    },
    /// The place of the file is not set.
    #[error("no credentials for S3: set {ID} and {SECRET}, or {FILE}")]
    Nowhere,
    /// One of the two is set without the other.
    #[error("no credentials for S3: {0} is set, and {1} is not")]
    Half(&'static str, &'static str),
}

impl S3Credentials {
    /// Finds the credentials of a profile in the file. Without a profile it takes those of the environment,
    /// else of the profile that the environment names, else of `default`.
    pub(super) fn find(profile: Option<&str>) -> Result<Self, CredentialsError> {
        let said = |name| env::var(name).ok().filter(|value| !value.is_empty());
        if profile.is_none() {
            match (said(ID), said(SECRET)) {
                (Some(id), Some(secret)) => return Ok(Self { id, secret, token: said(TOKEN) }),
                (Some(_), None) => return Err(CredentialsError::Half(ID, SECRET)),
                (None, Some(_)) => return Err(CredentialsError::Half(SECRET, ID)),
                (None, None) => {}
            }
        }
        let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".aws/credentials"));
        let path = env::var_os(FILE).map(PathBuf::from).or_else(home).ok_or(CredentialsError::Nowhere)?;
        let profile =
            profile.map(str::to_owned).or_else(|| said(PROFILE)).unwrap_or_else(|| "default".to_owned());
        let mut text = String::new();
        let read = File::open(&path).and_then(|file| file.take(LARGEST).read_to_string(&mut text));
        if let Err(source) = read {
            return Err(CredentialsError::Read { path, source });
        }
        Self::of(&text, &profile).ok_or(CredentialsError::NoProfile { path, profile })
    }

    /// Returns the credentials of a profile in a file's text.
    fn of(text: &str, profile: &str) -> Option<Self> {
        let (mut id, mut secret, mut token) = (None, None, None);
        let mut is_it = false;
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                is_it = name.trim() == profile;
            } else if let (true, Some((key, value))) = (is_it, line.split_once('=')) {
                let value = value.trim().to_owned();
                match key.trim().to_ascii_lowercase().as_str() {
                    "aws_access_key_id" => id = Some(value),
                    "aws_secret_access_key" => secret = Some(value),
                    "aws_session_token" => token = Some(value),
                    _ => {}
                }
            }
        }
        let there = |value: Option<String>| value.filter(|value| !value.is_empty());
        Some(Self { id: there(id)?, secret: there(secret)?, token: there(token) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
# of the laboratory
[default]
aws_access_key_id = AKIA1
aws_secret_access_key=se=cret/1
region = here

[ other ]
aws_access_key_id=AKIA2
aws_session_token = t
AWS_SECRET_ACCESS_KEY = secret2
[half]
aws_access_key_id = AKIA3
aws_secret_access_key =
";

    #[test]
    fn a_profile_is_found_in_the_file_and_not_shown() {
        let of = |profile| S3Credentials::of(TEXT, profile);
        let default = of("default").unwrap();
        assert_eq!(
            (default.id.as_str(), default.secret.as_str(), &default.token),
            ("AKIA1", "se=cret/1", &None)
        );
        assert_eq!(of("other").unwrap().token.as_deref(), Some("t"));
        assert_eq!(of("other").unwrap().secret, "secret2");
        assert_eq!((of("half"), of("absent"), of("")), (None, None, None));
        assert_eq!(format!("{default:?}"), "Credentials(..)");
    }
}
