//! Reasons why the status of a service is not known.

use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;
use tidegate_service::status::ServiceStatus;

/// The default address of a service, as in every example.
pub(super) const USUAL: &str = "127.0.0.1:9809";

/// The service itself gives up after five seconds, and says so.
pub(super) const PATIENCE: Duration = Duration::from_secs(7);

/// Reasons why the status of a service is not known.
#[derive(Debug, Error)]
pub(crate) enum StatusError {
    /// Nothing is served over HTTP.
    #[error(
        "{}: there is no `metrics`, so that the service answers nowhere: add `metrics = \"{USUAL}\"` to its \
            first lines, and start it \
         again", .0.display()
    )]
    NoAddress(PathBuf),
    /// The address is not in the configuration.
    #[error(
        "{}: `metrics` has port 0: the service chose one when it started, and its log says which; ask with \
            `--url http://ADDRESS:PORT`",
        .0.display()
    )]
    AnyPort(PathBuf),
    /// Another kind of service.
    #[error("{}: this is a broker's configuration, and a broker has no status: see `tidegate transfer \
        list`", .0.display())]
    Broker(PathBuf),
    /// Nothing listens there.
    #[error(
        "no service answers at http://{address}: {source}; is `tidegate serve` or `tidegate agent` running, \
            with `metrics` at this \
         address? Elsewhere: `-c FILE` or `--url http://ADDRESS:PORT`"
    )]
    NotThere {
        /// The address.
        address: String,
        /// The system's answer.
        source: io::Error,
    },
    /// Something listens there, and says nothing.
    #[error(
        "the service at http://{0} took the question and did not answer within {wait} s: it hangs, or the \
            machine is overloaded; its log \
         says what it did last", wait = PATIENCE.as_secs()
    )]
    Silent(String),
    /// It says itself that it cannot.
    #[error("http://{address}: {said}; its log says more")]
    Unavailable {
        /// The address.
        address: String,
        /// The service's message.
        said: String,
    },
    /// Another service, or an older one.
    #[error(
        "what answers at http://{address} is no Tidegate service with a status: {what}; ask the address that \
            `metrics` has in the \
         service's configuration, with `-c FILE`"
    )]
    Another {
        /// The address.
        address: String,
        /// The fault in its answer.
        what: String,
    },
    /// A document of another version.
    #[error(
        "the service at http://{address} speaks version {theirs} of the status, this program version {ours}: \
            use the `tidegate` that \
         the service was started with", ours = ServiceStatus::VERSION
    )]
    Version {
        /// The address.
        address: String,
        /// The service's version.
        theirs: u64,
    },
}
