//! The connection of a client at a Unix socket, which may pass descriptors beside its bytes.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::RecvFlags;
use tidegate_sockets::aside::{ListenerDoor, PassingUser, PeerSocket, close_aside, receive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

/// A connection that closes what the client passes, and its socket, in another thread.
#[derive(Debug)]
pub(crate) struct UnixClient {
    /// Taken at its end.
    stream: Option<UnixStream>,
    /// `None`: the client cannot pass anything.
    user: Option<PassingUser>,
}

impl UnixClient {
    pub(crate) fn new(stream: UnixStream) -> Self {
        let user = PassingUser::of(&stream);
        Self { stream: Some(stream), user }
    }

    /// Returns the user of the client's process. A process that is gone already is still known.
    pub(crate) fn user(&self) -> io::Result<u32> {
        Ok(self.stream().peer_cred()?.uid())
    }

    /// Lets the client in.
    ///
    /// # Errors
    /// When its user is kept out.
    pub(crate) fn admit(mut self, door: &ListenerDoor) -> io::Result<Self> {
        if let Some(user) = self.user.filter(|user| door.keeps_out(*user))
            && let Some(stream) = self.stream.take()
        {
            return Err(door.refuse(user, PeerSocket::new(stream.into_std()?.into())));
        }
        Ok(self)
    }

    fn stream(&self) -> &UnixStream {
        // Invariant: only its end takes it.
        self.stream.as_ref().expect("a connection is there until it is dropped")
    }

    fn writer(&mut self) -> Pin<&mut UnixStream> {
        // Invariant: as above.
        Pin::new(self.stream.as_mut().expect("a connection is there until it is dropped"))
    }
}

impl AsRawFd for UnixClient {
    fn as_raw_fd(&self) -> RawFd {
        self.stream().as_raw_fd()
    }
}

impl Drop for UnixClient {
    fn drop(&mut self) {
        if let Some(Ok(stream)) = self.stream.take().map(UnixStream::into_std) {
            match self.user {
                Some(user) => close_aside(user, stream.into()),
                None => drop(stream),
            }
        }
    }
}

impl AsyncRead for UnixClient {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (stream, user) = (self.stream(), self.user);
        loop {
            ready!(stream.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled();
            match stream.try_io(Interest::READABLE, || receive(stream, user, room, RecvFlags::DONTWAIT)) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for UnixClient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writer().poll_write(context, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writer().poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream().is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_shutdown(context)
    }
}
