//! Versions of the documents that outlive a process.

use serde::de::{Deserialize, Deserializer, Error};

/// Reads a version and refuses any but `KNOWN`: a document of another version must be converted by who knows
/// both, not half understood.
pub(super) fn only<'de, const KNOWN: u16, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let version = u16::deserialize(deserializer)?;
    if version == KNOWN {
        Ok(version)
    } else {
        Err(D::Error::custom(format_args!("version {version} is not known here, only {KNOWN} is")))
    }
}
