//! The bytes of a connection: plain or encrypted. The stream notes when the client takes some.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::access::{ApiAccess, ConnectionOrigin};
use crate::answer::AnswerProgress;
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
    pub(crate) async fn ready(
        self,
        progress: Arc<AnswerProgress>,
    ) -> Result<ReadyConnection, HandshakeFailure> {
        let source = self.source;
        let Some(access) = self.access else {
            let stream = ClientStream { bytes: self.stream.boxed(), progress };
            return Ok(ReadyConnection { stream, origin: None });
        };
        let (bytes, origin): (Box<dyn Bytes>, _) = match (self.stream, source) {
            (AcceptedStream::Tcp(stream), _) if !self.local => encrypted(stream, &access).await?,
            (stream, ConnectionSource::User(uid)) => (stream.boxed(), ConnectionOrigin::Process { uid }),
            (stream, ConnectionSource::Network(_)) => (stream.boxed(), ConnectionOrigin::Loopback),
        };
        let stream = ClientStream { bytes, progress };
        Ok(ReadyConnection { stream, origin: Some((access, origin)) })
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

/// The bytes of a connection, which note what the client takes of its answer.
pub(crate) struct ClientStream {
    bytes: Box<dyn Bytes>,
    progress: Arc<AnswerProgress>,
}

impl fmt::Debug for ClientStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientStream").field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl ClientStream {
    fn noted(&self, written: io::Result<usize>) -> Poll<io::Result<usize>> {
        if written.as_ref().is_ok_and(|count| *count > 0) {
            self.progress.note_bytes();
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
        let flushed = ready!(Pin::new(&mut self.bytes).poll_flush(context));
        if flushed.is_ok() {
            self.progress.note_flush();
        }
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(context)
    }
}
