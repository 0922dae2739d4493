//! The choice of a model, and its parameters.

use serde::{Deserialize, Serialize};

use crate::{ArrayConfig, DiskConfig, ExponentialConfig};

/// A device's model and its parameters. In a document, the key `model` selects the variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case")]
pub enum DeviceConfig {
    /// Exponential service: the textbook's M/M/c.
    Exponential(ExponentialConfig),
    /// One mechanical disk.
    Disk(DiskConfig),
    /// Disks striped into one, with or without a write-back cache.
    Array(ArrayConfig),
}

/// A parameter has a value with which the model means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{parameter} must be {must_be}")]
pub struct DeviceConfigError {
    /// Its name, as in the configuration.
    pub parameter: &'static str,
    /// The condition that its value must meet.
    pub must_be: &'static str,
}

/// `Err` unless the condition holds.
pub(crate) fn require(
    condition: bool,
    parameter: &'static str,
    must_be: &'static str,
) -> Result<(), DeviceConfigError> {
    if condition { Ok(()) } else { Err(DeviceConfigError { parameter, must_be }) }
}
