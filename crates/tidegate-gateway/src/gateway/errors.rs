//! The reasons why a gateway does not start, takes no new configuration, or cannot answer.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use tidegate_journal::JournalError;
use tidegate_nbd::ExportName;
use tidegate_tls::TlsError;
use tidegate_units::{ConsumerName, ResourceName};

use crate::config::{GatewayConfigError, ListenEndpoint};
use crate::listener::devices::DeviceError;
use crate::listener::disks::DiskSocketError;
use crate::upstream::UpstreamError;

/// The reasons why a gateway did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] GatewayConfigError),
    /// A certificate, its key or an authority cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The decision journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An endpoint cannot be listened on.
    #[error("cannot listen on {endpoint}: {source}")]
    Listen {
        /// The endpoint.
        endpoint: ListenEndpoint,
        /// The system's answer.
        source: io::Error,
    },
    /// A socket for an export's disk cannot be listened on.
    #[error(transparent)]
    Disk(#[from] DiskSocketError),
    /// A block device of an export cannot be had.
    #[error(transparent)]
    Ublk(#[from] DeviceError),
    /// An export's file cannot be opened or is not fit to be served.
    #[error("export `{export}`: {}: {source}", path.display())]
    Open {
        /// The export.
        export: ConsumerName,
        /// Its file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// An export's upstream does not answer, or does not have it.
    #[error("export `{export}`: upstream export `{name}` at {address}: {source}")]
    Upstream {
        /// The export.
        export: ConsumerName,
        /// The upstream server.
        address: ListenEndpoint,
        /// The name of its export there.
        name: ExportName,
        /// The error of the upstream.
        source: Box<UpstreamError>,
    },
    /// The exports of an emulated pool do not fit on its device.
    #[error("pool `{pool}`: export `{export}` does not fit on the emulated device")]
    Space {
        /// The pool.
        pool: ResourceName,
        /// The first export that does not fit.
        export: ConsumerName,
    },
    /// The emulated device's parameters are out of range.
    #[error("pool `{pool}`: {source}")]
    Device {
        /// The pool.
        pool: ResourceName,
        /// The error in the parameters.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kernel gives no io_uring, thread or event descriptor.
    #[error("pool `{pool}`: cannot start its worker: {source}")]
    Worker {
        /// The pool.
        pool: ResourceName,
        /// The system's answer.
        source: io::Error,
    },
}

/// The reasons why a new configuration was not applied. No part of it was.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The configuration contradicts itself, or a new export cannot be opened.
    #[error(transparent)]
    Start(#[from] StartError),
    /// These things need a restart.
    #[error("needs a restart to change: {}", .0.join(", "))]
    NeedsRestart(Vec<String>),
    /// A pool is no longer served.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
}

/// The gateway can no longer answer.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// A pool's worker thread ended by a panic; its clients were disconnected.
    #[error("pool `{pool}`: its worker failed: {message}")]
    WorkerFailed {
        /// The pool.
        pool: ResourceName,
        /// The panic's message.
        message: String,
    },
}
