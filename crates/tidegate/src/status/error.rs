//! Reasons why the status of a service is not known.

use thiserror::Error;
use tidegate_service::status::ServiceStatus;

use crate::http::{ServiceAddress, ServiceError};

/// Reasons why the status of a service is not known.
#[derive(Debug, Error)]
pub(crate) enum StatusError {
    /// The service has no answer.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// A document of another version.
    #[error(
        "the service at {address} speaks version {theirs} of the status, this program version {ours}: \
            use the `tidegate` that \
         the service was started with", ours = ServiceStatus::VERSION
    )]
    Version {
        /// The address.
        address: ServiceAddress,
        /// The service's version.
        theirs: u64,
    },
}
