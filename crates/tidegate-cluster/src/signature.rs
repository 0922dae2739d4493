//! Signed policies. A message in a bucket does not show its writer, so that the document itself must.
//!
//! A writer has the seed of an Ed25519 key, hosts have its public half only: a host that is taken over cannot
//! write policies. What is signed names the cluster, the resource, and a serial number that grows with every
//! change, so that a policy of another place, or an old one that is put back, does not count.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use tidegate_units::ResourceName;

use crate::key::read_secret;
use crate::name::ClusterName;
use crate::policy::{InvalidPolicy, LONGEST, ResourcePolicy};
use crate::policy_writer::PolicyWriter;

/// Goes before what is signed, so that a signature for something else is none for a policy.
const PURPOSE: &[u8] = b"tidegate policy\n";

/// The version of the signed document. The first one was not signed.
const VERSION: u16 = 2;

/// The keys whose policies count.
pub type PolicyWriters = BTreeSet<PolicyWriter>;

impl From<PolicyWriter> for String {
    fn from(writer: PolicyWriter) -> Self {
        writer.0
    }
}

/// A key that signs policies. Its `Debug` shows its public half only.
pub struct PolicyKey(KeyPair);

/// The reason why there is no key to sign with.
#[derive(Debug, Error)]
pub enum PolicyKeyError {
    /// The file cannot be read.
    #[error("cannot read the key in {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write a new key to {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file holds no seed.
    #[error("{path} holds no key to sign with: one line, as `tidegate policy key FILE` writes \
        it", path = .0.display())]
    NoSeed(PathBuf),
    /// The library does not give the seed away.
    #[error("cannot make a key")]
    Library,
}

impl PolicyKey {
    /// Makes a key.
    #[must_use]
    pub fn generate() -> Self {
        Self(KeyPair::new_user())
    }

    /// Reads a key from a file. Warns in the log when others than its owner and group may read or write the
    /// file.
    ///
    /// # Errors
    /// When the file cannot be read, or holds none.
    pub fn from_file(path: &Path) -> Result<Self, PolicyKeyError> {
        let bytes =
            read_secret(path).map_err(|source| PolicyKeyError::Read { path: path.to_owned(), source })?;
        let seed = std::str::from_utf8(bytes.trim_ascii()).ok();
        let key = seed.and_then(|seed| KeyPair::from_seed(seed).ok());
        key.map(Self).ok_or_else(|| PolicyKeyError::NoSeed(path.to_owned()))
    }

    /// Writes the key to a file that is not there yet, readable by its owner only.
    ///
    /// # Errors
    /// When the file is there, or cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), PolicyKeyError> {
        let seed = self.0.seed().map_err(|_| PolicyKeyError::Library)?;
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        written
            .and_then(|mut file| {
                file.write_all(format!("{seed}\n").as_bytes()).and_then(|()| file.sync_all())
            })
            .map_err(|source| PolicyKeyError::Write { path: path.to_owned(), source })
    }

    /// Its public half.
    #[must_use]
    pub fn writer(&self) -> PolicyWriter {
        PolicyWriter(self.0.public_key())
    }
}

impl fmt::Debug for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicyKey({})", self.writer())
    }
}

#[cfg(any(test, fuzzing))]
impl From<KeyPair> for PolicyKey {
    fn from(pair: KeyPair) -> Self {
        Self(pair)
    }
}

/// The document in the store.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u16,
    writer: PolicyWriter,
    /// The text that is signed: JSON of a [`Statement`].
    signed: String,
    signature: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    cluster: ClusterName,
    resource: ResourceName,
    serial: u64,
    policy: ResourcePolicy,
}

/// A policy that one of the writers has signed for this place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct VerifiedPolicy {
    pub(crate) writer: PolicyWriter,
    pub(crate) serial: u64,
    pub(crate) policy: ResourcePolicy,
}

/// A policy as a signed document.
///
/// # Errors
/// When the policy does not hold together, or is too long.
pub(crate) fn sign(
    key: &PolicyKey,
    cluster: &ClusterName,
    resource: &ResourceName,
    serial: u64,
    policy: &ResourcePolicy,
) -> Result<String, InvalidPolicy> {
    policy.check()?;
    let statement =
        Statement { cluster: cluster.clone(), resource: resource.clone(), serial, policy: policy.clone() };
    let signed = serde_json::to_string(&statement)?;
    let signature = key.0.sign(&to_sign(&signed)).map_err(|_| InvalidPolicy::CannotSign)?;
    let signature = URL_SAFE_NO_PAD.encode(signature);
    let json =
        serde_json::to_string(&Document { version: VERSION, writer: key.writer(), signed, signature })?;
    if json.len() > LONGEST { Err(InvalidPolicy::Length(json.len())) } else { Ok(json) }
}

/// Reads a signed document. Nothing of the policy is looked at before its signature is verified.
///
/// # Errors
/// When it is not a policy that one of the writers has signed for this cluster and resource.
pub(crate) fn verify(
    json: &[u8],
    writers: &PolicyWriters,
    cluster: &ClusterName,
    resource: &ResourceName,
) -> Result<VerifiedPolicy, InvalidPolicy> {
    if json.len() > LONGEST {
        return Err(InvalidPolicy::Length(json.len()));
    }
    let Document { version, writer, signed, signature } =
        serde_json::from_slice(json).map_err(|error| match serde_json::from_slice::<Value>(json) {
            Ok(Value::Object(entries)) if !entries.contains_key("signature") => InvalidPolicy::Unsigned,
            _ => InvalidPolicy::Json(error),
        })?;
    if version != VERSION {
        return Err(InvalidPolicy::Version(version));
    }
    if !writers.contains(&writer) {
        return Err(InvalidPolicy::UnknownWriter(writer));
    }
    let public = KeyPair::from_public_key(&writer.0).map_err(|_| InvalidPolicy::Signature)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| InvalidPolicy::Signature)?;
    public.verify(&to_sign(&signed), &signature).map_err(|_| InvalidPolicy::Signature)?;
    let (serial, policy) = statement(&signed, cluster, resource)?;
    Ok(VerifiedPolicy { writer, serial, policy })
}

/// Reads what a writer has signed: the serial number and the policy.
///
/// # Errors
/// When it is not a policy for this cluster and resource.
pub(crate) fn statement(
    signed: &str,
    cluster: &ClusterName,
    resource: &ResourceName,
) -> Result<(u64, ResourcePolicy), InvalidPolicy> {
    let statement: Statement = serde_json::from_str(signed)?;
    if (&statement.cluster, &statement.resource) != (cluster, resource) {
        return Err(InvalidPolicy::OtherPlace { cluster: statement.cluster, resource: statement.resource });
    }
    statement.policy.check()?;
    Ok((statement.serial, statement.policy))
}

fn to_sign(signed: &str) -> Vec<u8> {
    [PURPOSE, signed.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use tidegate_units::Latency;

    use super::*;
    use crate::policy_writer::PolicyWriterError;

    fn place() -> (ClusterName, ResourceName) {
        (ClusterName::new("san-a").unwrap(), ResourceName::new("array").unwrap())
    }

    fn policy() -> ResourcePolicy {
        ResourcePolicy { target: Some(Latency::from_millis(15)), ..ResourcePolicy::default() }
    }

    fn signed(key: &PolicyKey) -> String {
        let (cluster, resource) = place();
        sign(key, &cluster, &resource, 7, &policy()).unwrap()
    }

    fn read(json: &str, writers: &[&PolicyKey]) -> Result<VerifiedPolicy, InvalidPolicy> {
        let (cluster, resource) = place();
        verify(json.as_bytes(), &writers.iter().map(|key| key.writer()).collect(), &cluster, &resource)
    }

    #[test]
    fn only_a_writer_s_signature_counts() {
        let (ours, other) = (PolicyKey::generate(), PolicyKey::generate());
        let verified = read(&signed(&ours), &[&other, &ours]).unwrap();
        assert_eq!(verified, VerifiedPolicy { writer: ours.writer(), serial: 7, policy: policy() });
        assert!(matches!(read(&signed(&other), &[&ours]), Err(InvalidPolicy::UnknownWriter(_))));
        assert!(matches!(read(&signed(&ours), &[]), Err(InvalidPolicy::UnknownWriter(_))));
        let unsigned = policy().to_json().unwrap();
        assert!(matches!(read(&unsigned, &[&ours]), Err(InvalidPolicy::Unsigned)));
        // Another's text under our name.
        let posed = signed(&other).replace(&other.writer().0, &ours.writer().0);
        assert!(matches!(read(&posed, &[&ours]), Err(InvalidPolicy::Signature)));
        assert!(matches!(read("[[[[", &[&ours]), Err(InvalidPolicy::Json(_))));
        let newer = signed(&ours).replace("\"version\":2", "\"version\":3");
        assert!(matches!(read(&newer, &[&ours]), Err(InvalidPolicy::Version(3))));
    }

    #[test]
    fn a_policy_counts_where_it_was_signed_for() {
        let key = PolicyKey::generate();
        let (cluster, resource) = place();
        let elsewhere =
            [(ClusterName::new("san-b").unwrap(), resource), (cluster, ResourceName::new("tapes").unwrap())];
        for (cluster, resource) in elsewhere {
            let json = sign(&key, &cluster, &resource, 1, &policy()).unwrap();
            assert!(matches!(read(&json, &[&key]), Err(InvalidPolicy::OtherPlace { .. })));
        }
    }

    #[test]
    fn what_is_signed_is_still_checked() {
        let key = PolicyKey::generate();
        let limit = [("a".parse().unwrap(), tidegate_units::Iops::new(1e-6))];
        let starving = ResourcePolicy { limits: limit.into(), ..policy() };
        let (cluster, resource) = place();
        assert!(matches!(sign(&key, &cluster, &resource, 1, &starving), Err(InvalidPolicy::Rate { .. })));
    }

    #[test]
    fn a_key_is_kept_in_a_file_of_its_owner_and_a_seed_is_no_public_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.seed");
        let key = PolicyKey::generate();
        key.write_new(&path).unwrap();
        assert!(matches!(key.write_new(&path), Err(PolicyKeyError::Write { .. })), "never over another one");
        assert_eq!(PolicyKey::from_file(&path).unwrap().writer(), key.writer());
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o777, 0o600);
        let seed = std::fs::read_to_string(&path).unwrap();
        assert_eq!(seed.trim().parse::<PolicyWriter>(), Err(PolicyWriterError::Seed));
        assert!(!format!("{key:?}").contains(seed.trim()));
        assert_eq!(key.writer().to_string().parse(), Ok(key.writer()));
        assert!(matches!("UABC".parse::<PolicyWriter>(), Err(PolicyWriterError::NoKey(_))));
        std::fs::write(&path, "no seed").unwrap();
        assert!(matches!(PolicyKey::from_file(&path), Err(PolicyKeyError::NoSeed(_))));
    }

    proptest! {
        #[test]
        fn no_change_of_a_document_is_accepted_as_another_policy(
            place in any::<prop::sample::Index>(), change in 1u8..,
        ) {
            let key = PolicyKey::generate();
            let mut json = signed(&key).into_bytes();
            let place = place.index(json.len());
            json[place] ^= change;
            if let Ok(verified) = verify(&json, &[key.writer()].into(), &self::place().0, &self::place().1) {
                // Another way of writing the same text.
                prop_assert_eq!((verified.serial, verified.policy), (7, policy()));
            }
        }

        #[test]
        fn any_bytes_are_borne(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (cluster, resource) = place();
            prop_assert!(verify(&bytes, &PolicyWriters::new(), &cluster, &resource).is_err());
        }
    }
}
