//! Errors in the parameters of models.

/// A parameter has a value with which the model means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{parameter} must be {must_be}")]
pub struct DeviceConfigError {
    /// The parameter's name, as in the configuration.
    pub parameter: &'static str,
    /// The condition that its value must meet.
    pub must_be: &'static str,
}

/// Returns an error about the parameter unless the condition is met.
pub(crate) fn require(
    condition: bool,
    parameter: &'static str,
    must_be: &'static str,
) -> Result<(), DeviceConfigError> {
    if condition { Ok(()) } else { Err(DeviceConfigError { parameter, must_be }) }
}
