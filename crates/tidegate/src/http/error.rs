//! The reasons why a service has no answer.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use super::address::ServiceAddress;

/// The default address of a service's metrics, as in every example.
pub(super) const USUAL: &str = "127.0.0.1:9809";

/// The reasons why a service has no answer.
#[derive(Debug, Error)]
pub(crate) enum ServiceError {
    /// Another kind of service.
    #[error("{}: this is a broker's configuration, and a broker has no status: see `tidegate transfer \
        list`", .0.display())]
    Broker(PathBuf),
    /// Nothing listens there.
    #[error(
        "no service answers at {address}: {source}; is `tidegate serve` or `tidegate agent` running? Elsewhere: \
         `-c FILE` or `--url http://ADDRESS:PORT`"
    )]
    NotThere {
        /// The address.
        address: ServiceAddress,
        /// The system's answer.
        source: io::Error,
    },
    /// Nothing was asked: another program may have the address of a service.
    #[error(
        "{address} is not asked: {why}; ask the service's Unix socket with `-c FILE` or `--url unix:PATH`, or \
         another machine's with `--url https://HOST:PORT`"
    )]
    Stranger {
        /// The address.
        address: ServiceAddress,
        /// The reason.
        why: String,
    },
    /// TLS was not agreed on.
    #[error(
        "{address}: TLS fails: {source}; compare `--ca` with the authority of the service's certificate, and \
         the host with the names in it"
    )]
    Handshake {
        /// The address.
        address: ServiceAddress,
        /// The reason.
        source: io::Error,
    },
    /// Something listens there, and says nothing.
    #[error(
        "the service at {address} took the question and did not answer within {wait} s: it hangs, or the \
            machine is overloaded; its log \
         says what it did last", wait = .patience.as_secs()
    )]
    Silent {
        /// The address.
        address: ServiceAddress,
        /// The time that it had.
        patience: Duration,
    },
    /// The connection ended too early.
    #[error("the connection to {address} broke off: {why}; its log says more")]
    Broken {
        /// The address.
        address: ServiceAddress,
        /// The reason.
        why: String,
    },
    /// It says itself that it cannot.
    #[error("{address}: {said}; its log says more")]
    Unavailable {
        /// The address.
        address: ServiceAddress,
        /// The service's message.
        said: String,
    },
    /// It says why it does not do what it was asked.
    #[error("the service at {address} refuses ({status}): {said}")]
    Refused {
        /// The address.
        address: ServiceAddress,
        /// The status of the answer, such as 403.
        status: u16,
        /// The service's message.
        said: String,
    },
    /// Another service, or an older one.
    #[error(
        "what answers at {address} is no Tidegate service: {what}; ask the address that `metrics` or `[api]` \
            has in the \
         service's configuration, with `-c FILE`"
    )]
    Another {
        /// The address.
        address: ServiceAddress,
        /// The fault in its answer.
        what: String,
    },
    /// The system failed.
    #[error("cannot ask a service: {0}")]
    System(io::Error),
}

impl ServiceError {
    /// Returns true if no process listens there, or none that could be a service of this machine.
    pub(crate) fn is_gone(&self) -> bool {
        let gone = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
        match self {
            Self::NotThere { source, .. } => gone.contains(&source.kind()),
            Self::Stranger { .. } => true,
            _ => false,
        }
    }
}
