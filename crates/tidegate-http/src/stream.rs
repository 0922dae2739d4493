//! The bytes of a connection: plain or encrypted, and the time when the client last took some.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::access::{ApiAccess, ConnectionOrigin};
use crate::connections::ConnectionSource;
use crate::listener::{AcceptedConnection, AcceptedStream};

/// The time that a client has for a TLS handshake.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

/// Plain or encrypted bytes.
trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// The reasons why a connection does not begin.
#[derive(Debug)]
pub(crate) enum HandshakeFailure {
    /// The handshake took too long.
    Late,
    /// It failed.
    Failed(io::Error),
}

/// A connection that is ready for requests.
pub(crate) struct ReadyConnection {
    pub(crate) stream: ClientStream,
    /// The knowledge of its caller; `None`: its listener has none.
    pub(crate) origin: Option<(Arc<ApiAccess>, ConnectionOrigin)>,
}

impl AcceptedConnection {
    /// Shakes hands where that is needed.
    pub(crate) async fn ready(self) -> Result<ReadyConnection, HandshakeFailure> {
        let source = self.source;
        let Some(access) = self.access else {
            return Ok(ReadyConnection { stream: ClientStream::new(self.stream.boxed()), origin: None });
        };
        let (bytes, origin): (Box<dyn Bytes>, _) = match (self.stream, source) {
            (AcceptedStream::Tcp(stream), _) if !self.local => encrypted(stream, &access).await?,
            (stream, ConnectionSource::User(uid)) => (stream.boxed(), ConnectionOrigin::Process { uid }),
            (stream, ConnectionSource::Network(_)) => (stream.boxed(), ConnectionOrigin::Loopback),
        };
        Ok(ReadyConnection { stream: ClientStream::new(bytes), origin: Some((access, origin)) })
    }
}

impl AcceptedStream {
    fn boxed(self) -> Box<dyn Bytes> {
        match self {
            Self::Tcp(stream) => Box::new(stream),
            Self::Unix(stream) => Box::new(stream),
        }
    }
}

async fn encrypted(
    stream: TcpStream,
    access: &ApiAccess,
) -> Result<(Box<dyn Bytes>, ConnectionOrigin), HandshakeFailure> {
    // A configuration without a certificate has no listener beyond loopback.
    let Some(tls) = access.tls() else {
        return Err(HandshakeFailure::Failed(io::ErrorKind::NotFound.into()));
    };
    let stream = timeout(HANDSHAKE_TIME, TlsAcceptor::from(tls.config).accept(stream))
        .await
        .map_err(|_| HandshakeFailure::Late)?
        .map_err(HandshakeFailure::Failed)?;
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let origin = match certificates.first() {
        Some(certificate) => ConnectionOrigin::Certificate { names: (tls.names)(certificate) },
        None => ConnectionOrigin::Encrypted,
    };
    Ok((Box::new(stream), origin))
}

/// The bytes of a connection, which note when the client took some.
pub(crate) struct ClientStream {
    bytes: Box<dyn Bytes>,
    taken: Arc<LastTaken>,
}

/// The time when a client last took bytes.
#[derive(Debug)]
pub(crate) struct LastTaken {
    begin: Instant,
    after_nanos: AtomicU64,
}

impl LastTaken {
    pub(crate) fn at(&self) -> Instant {
        self.begin + Duration::from_nanos(self.after_nanos.load(Ordering::Relaxed))
    }

    fn note(&self) {
        let nanos = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.after_nanos.store(nanos, Ordering::Relaxed);
    }
}

impl fmt::Debug for ClientStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientStream").field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl ClientStream {
    fn new(bytes: Box<dyn Bytes>) -> Self {
        let taken = LastTaken { begin: Instant::now(), after_nanos: AtomicU64::new(0) };
        Self { bytes, taken: Arc::new(taken) }
    }

    pub(crate) fn taken(&self) -> Arc<LastTaken> {
        Arc::clone(&self.taken)
    }

    fn noted(&self, written: io::Result<usize>) -> Poll<io::Result<usize>> {
        if written.as_ref().is_ok_and(|count| *count > 0) {
            self.taken.note();
        }
        Poll::Ready(written)
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.bytes).poll_write(context, buffer));
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.bytes).poll_write_vectored(context, buffers));
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.bytes.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(context)
    }
}
