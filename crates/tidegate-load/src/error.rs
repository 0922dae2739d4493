//! Errors of a load.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tidegate_nbd::handshake::ClientError;
use tidegate_nbd::transmission::ReplyError;
use tidegate_tls::{HandshakeError, ServerNameError, TlsError};
use tidegate_units::Bytes;

use crate::config::LoadConfigError;
use crate::report::LoadReport;

/// The reasons why a load could not run to its end. The message names the target.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The load makes no sense.
    #[error("this load is not possible: {0}")]
    Config(#[from] LoadConfigError),
    /// The export could not be opened.
    #[error("{target}: {source}")]
    Connect {
        /// The target's URI.
        target: String,
        /// The error.
        source: ConnectError,
    },
    /// The export cannot take this load.
    #[error("{target}: {source}")]
    Unsuitable {
        /// The target's URI.
        target: String,
        /// The reason.
        source: UnsuitableExport,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// A connection was lost while the load ran.
    #[error(
        "{target}: {} after {:.1} s, with {outstanding} requests outstanding: {source}",
        source.what_happened(),
        after.as_secs_f64()
    )]
    Lost {
        /// The target's URI.
        target: String,
        /// The time of the loss, since the load began.
        after: Duration,
        /// The number of unanswered requests on this connection.
        outstanding: usize,
        /// The way the connection was lost.
        source: ConnectionLoss,
        /// The results so far.
        report: Box<LoadReport>,
    },
    /// A thread ended by a defect of this program.
    #[error("{target}: a thread of the load generator panicked")]
    Panicked {
        /// The target's URI.
        target: String,
    },
}

/// The reasons why an export could not be opened.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// No connection.
    #[error("cannot connect: {0}")]
    Socket(#[source] io::Error),
    /// The connection failed before the load began.
    #[error("the connection failed before the load began: {0}")]
    Io(#[source] io::Error),
    /// The server closed the connection. One that knows only the old `EXPORT_NAME` refuses an export that
    /// way.
    #[error("the server closed the connection during the handshake")]
    Closed,
    /// The handshake takes too long.
    #[error("no end of the handshake within {0:?}")]
    TimedOut(Duration),
    /// The handshake failed.
    #[error(transparent)]
    Handshake(ClientError),
    /// A certificate, its key or an authority cannot be used.
    #[error(transparent)]
    Certificates(TlsError),
    /// The host cannot be the name in a certificate.
    #[error(transparent)]
    ServerName(ServerNameError),
    /// The server is not the one that was meant, or does not accept us.
    #[error("TLS: {0}")]
    Tls(HandshakeError),
}

/// The reasons why an export cannot take a load.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnsuitableExport {
    /// It is read-only.
    #[error("the export is read-only, and the load writes")]
    ReadOnly,
    /// It does not know FUA.
    #[error("the export does not support FUA")]
    NoFua,
    /// The block size is not a multiple of the least block.
    #[error("requests of {block} do not fit the export's least block of {minimum}")]
    Unaligned {
        /// The block size or the offset that does not fit.
        block: Bytes,
        /// The export's least block.
        minimum: Bytes,
    },
    /// The block size is more than the server takes.
    #[error("requests of {block} are larger than the {maximum} that the server takes")]
    TooLarge {
        /// The block size.
        block: Bytes,
        /// The server's greatest payload.
        maximum: Bytes,
    },
    /// The region does not lie within the export, or has no room for one block.
    #[error("the region does not fit: it must hold a block of {block} within the export's {size}")]
    Region {
        /// The block size.
        block: Bytes,
        /// The export's size.
        size: Bytes,
    },
}

/// The way a connection was lost.
#[derive(Debug, Error)]
pub enum ConnectionLoss {
    /// The server closed it.
    #[error("the server closed it")]
    Closed,
    /// The server is about to end, and said so.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// It failed.
    #[error(transparent)]
    Io(io::Error),
    /// The server broke the protocol.
    #[error(transparent)]
    Protocol(ReplyError),
    /// The server ended a reply to a read before all of its data.
    #[error("the server answered a read of {wanted} bytes with {received}")]
    ShortRead {
        /// The number of bytes asked for.
        wanted: u32,
        /// The number of bytes received.
        received: u32,
    },
}

impl ConnectionLoss {
    /// Returns what happened to the session, in words: the server ended it, or it could not go on.
    fn what_happened(&self) -> &'static str {
        match self {
            Self::Closed | Self::ShuttingDown => "the server ended the session",
            // So ends a socket that the server closes with requests unread.
            Self::Io(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                "the server ended the session"
            }
            Self::Io(_) => "the connection was lost",
            Self::Protocol(_) | Self::ShortRead { .. } => "the session was given up",
        }
    }
}
