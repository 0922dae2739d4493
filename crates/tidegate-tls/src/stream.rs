//! A TLS connection over a socket: the handshake, and what is said before the data path takes over.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sendmsg};
use rustls::{ClientConnection, Connection, IoState, ServerConnection};
use thiserror::Error;

use crate::config::{ClientTls, ServerTls};
use crate::name;

/// The number of bytes received at once. The library takes them in pieces of a record.
pub(crate) const CHUNK: usize = 64 << 10;

/// The reason that a handshake failed.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// It took too long.
    #[error("no end of the TLS handshake in time")]
    Deadline,
    /// The other side hung up. It may have refused the certificate without a word.
    #[error("the other side hung up during the TLS handshake")]
    HungUp,
    /// The data received is no TLS, a certificate is not accepted, or the other side reports an error.
    #[error("{}", explain(.0))]
    Tls(rustls::Error),
    /// The socket failed.
    #[error("{0}")]
    Io(io::Error),
}

/// The library's words, and whose certificate it was.
fn explain(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(_) => {
            format!("the other side's certificate is not accepted: {error}")
        }
        rustls::Error::NoCertificatesPresented => "the other side shows no certificate".to_owned(),
        rustls::Error::AlertReceived(alert) => format!("the other side refuses: {alert:?}"),
        rustls::Error::InvalidMessage(_) => "the other side does not speak TLS".to_owned(),
        other => other.to_string(),
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // What an expired socket timeout looks like.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Deadline,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                Self::HungUp
            }
            _ => Self::Io(error),
        }
    }
}

/// Bytes between a start and an end, in memory that stays.
#[derive(Debug)]
pub(crate) struct ByteBuffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl ByteBuffer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; CHUNK].into_boxed_slice(), start: 0, end: 0 }
    }

    pub(crate) fn held(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
    }

    /// Fills it by `read`, which says how many bytes it wrote. For an empty buffer only.
    pub(crate) fn fill<E>(&mut self, read: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<usize, E> {
        debug_assert!(self.is_empty());
        self.start = 0;
        self.end = 0;
        self.end = read(&mut self.bytes)?;
        Ok(self.end)
    }
}

/// A TLS connection whose handshake is done.
#[derive(Debug)]
pub struct TlsStream {
    pub(crate) connection: Connection,
    pub(crate) socket: OwnedFd,
    /// Received, and not decrypted yet.
    pub(crate) incoming: ByteBuffer,
}

impl TlsStream {
    /// Shakes hands as a server.
    ///
    /// # Errors
    /// When that fails, or is not done by `deadline`. The other side was told why, if it is to know.
    pub fn accept(socket: OwnedFd, tls: &ServerTls, deadline: Instant) -> Result<Self, HandshakeError> {
        let connection = ServerConnection::new(tls.0.clone()).map_err(HandshakeError::Tls)?;
        Self::shake_hands(connection.into(), socket, deadline)
    }

    /// Shakes hands as a client, with a server whose certificate has the name that `tls` knows.
    ///
    /// # Errors
    /// When that fails, or is not done by `deadline`.
    pub fn connect(socket: OwnedFd, tls: &ClientTls, deadline: Instant) -> Result<Self, HandshakeError> {
        let connection =
            ClientConnection::new(tls.config.clone(), tls.server.clone()).map_err(HandshakeError::Tls)?;
        Self::shake_hands(connection.into(), socket, deadline)
    }

    fn shake_hands(
        mut connection: Connection,
        socket: OwnedFd,
        deadline: Instant,
    ) -> Result<Self, HandshakeError> {
        // What it bounds is written and sent in pieces of bounded size.
        connection.set_buffer_limit(None);
        let mut stream = Self { connection, socket, incoming: ByteBuffer::new() };
        while stream.connection.is_handshaking() {
            stream.flush(deadline)?;
            if stream.connection.is_handshaking()
                && let Err(error) = stream.advance(deadline)
            {
                // An alert says why. Whether it arrives changes nothing.
                let _ = stream.flush(deadline);
                return Err(error);
            }
        }
        stream.flush(deadline)?;
        Ok(stream)
    }

    /// The names in the other side's certificate; none where it showed none.
    #[must_use]
    pub fn peer_names(&self) -> Vec<String> {
        let certificates = self.connection.peer_certificates().unwrap_or_default();
        certificates.first().map(name::names).unwrap_or_default()
    }

    /// Returns true if the other side showed a certificate, which was verified then.
    #[must_use]
    pub fn is_peer_known(&self) -> bool {
        self.connection.peer_certificates().is_some_and(|certificates| !certificates.is_empty())
    }

    /// Receives what has been sent in secret; 0 at the end of the connection.
    ///
    /// # Errors
    /// When the connection fails, or nothing comes by `deadline`.
    pub fn read(&mut self, buffer: &mut [u8], deadline: Instant) -> Result<usize, HandshakeError> {
        loop {
            match self.connection.reader().read(buffer) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The end came without a goodbye.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(error.into()),
            }
            // An answer to a change of keys, for example.
            self.flush(deadline)?;
            match self.advance(deadline) {
                Ok(()) => {}
                Err(HandshakeError::HungUp) => return Ok(0),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends all of `bytes` in secret.
    ///
    /// # Errors
    /// When the connection fails, or they are not sent by `deadline`.
    pub fn write_all(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), HandshakeError> {
        self.connection.writer().write_all(bytes)?;
        self.flush(deadline)
    }

    /// Takes one piece of what the other side sends.
    fn advance(&mut self, deadline: Instant) -> Result<(), HandshakeError> {
        if self.incoming.is_empty() {
            let socket = &self.socket;
            let count = self.incoming.fill(|buffer| receive(socket, buffer, deadline))?;
            if count == 0 {
                return Err(HandshakeError::HungUp);
            }
        }
        match self.feed() {
            // What came with the goodbye is read first.
            Ok(state) if state.peer_has_closed() && state.plaintext_bytes_to_read() == 0 => {
                Err(HandshakeError::HungUp)
            }
            Ok(_) => Ok(()),
            Err(error) => Err(HandshakeError::Tls(error)),
        }
    }

    /// Decrypts a piece of what was received. All that was decrypted before must have been taken.
    pub(crate) fn feed(&mut self) -> Result<IoState, rustls::Error> {
        // It reads from memory, and there is room: it fails only behind a goodbye.
        let taken = self.connection.read_tls(&mut self.incoming.held()).unwrap_or_default();
        if taken == 0 {
            return Err(rustls::Error::General("bytes follow the end of the connection".to_owned()));
        }
        self.incoming.consume(taken);
        self.connection.process_new_packets()
    }

    fn flush(&mut self, deadline: Instant) -> Result<(), HandshakeError> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut StreamSender { socket: &self.socket, deadline })?;
        }
        Ok(())
    }
}

struct StreamSender<'a> {
    socket: &'a OwnedFd,
    deadline: Instant,
}

impl Write for StreamSender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let left = left_until(self.deadline)?;
            sockopt::set_socket_timeout(self.socket, Timeout::Send, Some(left))?;
            match send_all(self.socket, parts, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                outcome => return Ok(outcome?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends what lies in several places by one call.
pub(crate) fn send_all(socket: &OwnedFd, parts: &[IoSlice<'_>], flags: SendFlags) -> Result<usize, Errno> {
    sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags)
}

fn receive(socket: &OwnedFd, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        sockopt::set_socket_timeout(socket, Timeout::Recv, Some(left_until(deadline)?))?;
        match rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome?.0),
        }
    }
}

fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
