//! Moving bytes between a plain socket of this process and an encrypted connection.
//!
//! The data path serves plain sockets only; a relay stands between it and TLS. It holds at most a chunk of 64
//! KiB in each state (encrypted, plain, outgoing) and direction. Where one side does not take what the other
//! sends, it stops reading there, so that back pressure reaches the sender as it would without the relay.
//!
//! Ends pass through: when the plain side is shut for writing, the other side hears `close_notify`; when that
//! says goodbye, the plain side reads the end of the stream. An end without `close_notify` is the end of the
//! stream, too: in NBD nothing is concluded from an end, and a request that is cut off is none. The relay
//! says so when it ends.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown, socketpair,
};
use rustix::time::Timespec;
use thiserror::Error;

use crate::stream::{ByteBuffer, TlsStream, send_all};

/// The time for the other side to receive the rest, once the plain side has ended.
const LINGER: Duration = Duration::from_secs(1);

/// Chunks that one direction moves before it is the other's turn.
const TURN: usize = 4;

/// The end of a relay that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayEnd {
    /// Both sides have ended in order.
    Orderly,
    /// The other side ended without `close_notify`: something between the two may have cut it off.
    Truncated,
    /// The plain side has ended, and the other one did not take the rest in time.
    Abandoned,
}

/// The reason that a relay failed.
#[derive(Debug, Error)]
pub enum RelayError {
    /// The data received is no TLS, or was tampered with.
    #[error("the encrypted connection is broken: {0}")]
    Tls(rustls::Error),
    /// The encrypted connection's socket failed.
    #[error("{0}")]
    Remote(io::Error),
    /// The plain socket failed.
    #[error("the way to the data path: {0}")]
    Local(io::Error),
}

impl TlsStream {
    /// A socket that carries what is said in plain text, and what moves it to and from the encrypted
    /// connection.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn split(self) -> io::Result<(OwnedFd, TlsRelay)> {
        TlsRelay::new(self)
    }
}

/// Moves bytes until either side ends.
#[derive(Debug)]
pub struct TlsRelay {
    stream: TlsStream,
    plain: OwnedFd,
    /// Decrypted, for the plain side.
    inbound: ByteBuffer,
    /// The other side has said goodbye, or is gone.
    remote_ended: Option<RelayEnd>,
    /// The plain side knows that.
    told_plain: bool,
    /// The plain side takes nothing any more.
    plain_deaf: bool,
    /// The plain side sends nothing any more.
    plain_ended: bool,
    /// The other side knows that.
    told_remote: bool,
    /// The plain side has hung up: nothing waits for anything any more.
    plain_gone: bool,
    /// The plain side is about to end or has ended: when all must be over.
    deadline: Option<Instant>,
}

impl TlsRelay {
    pub(crate) fn new(stream: TlsStream) -> io::Result<(OwnedFd, Self)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        for timeout in [Timeout::Recv, Timeout::Send] {
            sockopt::set_socket_timeout(&stream.socket, timeout, None)?;
        }
        ioctl_fionbio(&stream.socket, true)?;
        ioctl_fionbio(&ours, true)?;
        let relay = Self {
            stream,
            plain: ours,
            inbound: ByteBuffer::new(),
            remote_ended: None,
            told_plain: false,
            plain_deaf: false,
            plain_ended: false,
            told_remote: false,
            plain_gone: false,
            deadline: None,
        };
        Ok((theirs, relay))
    }

    /// Moves bytes until both sides have ended, or one of them fails.
    ///
    /// # Errors
    /// When a side fails, or what comes is not what the other side has sent. Both sockets are closed then,
    /// too.
    pub fn run(mut self) -> Result<RelayEnd, RelayError> {
        let outcome = self.relay();
        if let Err(RelayError::Tls(_)) = outcome {
            // An alert says why. Whether it arrives changes nothing.
            let _ = self.send_encrypted();
        }
        // A copy of a descriptor elsewhere must not keep the connection.
        for socket in [&self.stream.socket, &self.plain] {
            let _ = shutdown(socket, Shutdown::Both);
        }
        match (outcome, self.remote_ended) {
            // The goodbye did not reach a side that had ended before.
            (Err(RelayError::Remote(_)), Some(end)) => Ok(end),
            (outcome, _) => outcome,
        }
    }

    fn relay(&mut self) -> Result<RelayEnd, RelayError> {
        let mut outbound = ByteBuffer::new();
        loop {
            let more = self.inward()? | self.outward(&mut outbound)?;
            // With the goodbye to the other side under way, there is nothing left but to hear its own.
            let said_goodbye = self.told_remote && !self.stream.connection.wants_write();
            if said_goodbye && (self.plain_gone || self.told_plain) {
                return Ok(self.remote_ended.unwrap_or(RelayEnd::Orderly));
            }
            if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(RelayEnd::Abandoned);
            }
            if !more {
                self.wait()?;
            }
        }
    }

    /// Moves what there is from the other side to the plain one; says whether there may be more.
    fn inward(&mut self) -> Result<bool, RelayError> {
        for _ in 0..TURN {
            while !self.inbound.is_empty() {
                if self.plain_deaf {
                    let all = self.inbound.held().len();
                    self.inbound.consume(all);
                    break;
                }
                match send(&self.plain, self.inbound.held(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                    Ok(count) => self.inbound.consume(count),
                    Err(Errno::AGAIN) => return Ok(false),
                    Err(Errno::INTR) => {}
                    Err(Errno::PIPE | Errno::CONNRESET) => self.plain_deaf = true,
                    Err(error) => return Err(RelayError::Local(error.into())),
                }
            }
            if self.decrypt()? {
                continue;
            }
            if self.remote_ended.is_some() {
                if !std::mem::replace(&mut self.told_plain, true) {
                    // Fails only where that side is gone, which its end of the pair shows.
                    let _ = shutdown(&self.plain, Shutdown::Write);
                }
                return Ok(false);
            }
            let socket = &self.stream.socket;
            match self
                .stream
                .incoming
                .fill(|buffer| recv(socket, buffer, RecvFlags::DONTWAIT).map(|got| got.0))
            {
                Ok(0) => self.remote_ended = Some(RelayEnd::Truncated),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                // The kernel drops what a reset overtakes.
                Err(Errno::CONNRESET) => self.remote_ended = Some(RelayEnd::Truncated),
                Err(error) => return Err(RelayError::Remote(error.into())),
            }
        }
        Ok(true)
    }

    /// Decrypts what was received until something comes of it; says whether something has.
    fn decrypt(&mut self) -> Result<bool, RelayError> {
        loop {
            let connection = &mut self.stream.connection;
            let taken = self.inbound.fill(|buffer| {
                let mut filled = 0;
                while filled < buffer.len() {
                    match connection.reader().read(&mut buffer[filled..]) {
                        Ok(0) => break,
                        Ok(count) => filled += count,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    }
                }
                Ok(filled)
            });
            if taken.map_err(RelayError::Remote)? > 0 {
                return Ok(true);
            }
            if self.stream.incoming.is_empty() {
                return Ok(false);
            }
            let state = self.stream.feed().map_err(RelayError::Tls)?;
            if state.peer_has_closed() {
                self.remote_ended = Some(RelayEnd::Orderly);
                // Bytes after a goodbye belong to no message.
                let rest = self.stream.incoming.held().len();
                self.stream.incoming.consume(rest);
            }
        }
    }

    /// Moves what there is from the plain side to the other one; says whether there may be more.
    fn outward(&mut self, outbound: &mut ByteBuffer) -> Result<bool, RelayError> {
        for _ in 0..TURN {
            if !self.send_encrypted()? || self.told_remote {
                return Ok(false);
            }
            if self.plain_ended {
                self.told_remote = true;
                self.stream.connection.send_close_notify();
                self.send_encrypted()?;
                return Ok(false);
            }
            let plain = &self.plain;
            match outbound.fill(|buffer| recv(plain, buffer, RecvFlags::DONTWAIT).map(|got| got.0)) {
                Ok(0) | Err(Errno::CONNRESET) => {
                    self.plain_ended = true;
                    self.hurry();
                }
                Ok(count) => {
                    let written = self.stream.connection.writer().write_all(outbound.held());
                    written.map_err(RelayError::Remote)?;
                    outbound.consume(count);
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(RelayError::Local(error.into())),
            }
        }
        Ok(true)
    }

    /// Sends what is encrypted; says whether all of it has left.
    fn send_encrypted(&mut self) -> Result<bool, RelayError> {
        while self.stream.connection.wants_write() {
            match self.stream.connection.write_tls(&mut Sender(&self.stream.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(RelayError::Remote(error)),
            }
        }
        if self.told_remote {
            // Fails only where the other side is gone, which is shown elsewhere.
            let _ = shutdown(&self.stream.socket, Shutdown::Write);
        }
        Ok(true)
    }

    /// The plain side ends: what is left has a bounded time to arrive.
    fn hurry(&mut self) {
        self.deadline.get_or_insert_with(|| Instant::now() + LINGER);
    }

    fn wait(&mut self) -> Result<(), RelayError> {
        let (blocked_out, blocked_in) = (self.stream.connection.wants_write(), !self.inbound.is_empty());
        let mut remote = PollFlags::empty();
        if blocked_out {
            remote |= PollFlags::OUT;
        }
        if !blocked_in && self.remote_ended.is_none() {
            remote |= PollFlags::IN;
        }
        let mut plain = PollFlags::empty();
        if blocked_in {
            plain |= PollFlags::OUT;
        }
        if !blocked_out && !self.plain_ended {
            plain |= PollFlags::IN;
        }
        // The data path may hang up while the other side takes nothing, which is told unasked.
        if self.deadline.is_none() {
            plain |= PollFlags::RDHUP;
        }
        let watch_plain = !plain.is_empty() || !self.plain_gone;
        let mut fds = Vec::with_capacity(2);
        if !remote.is_empty() {
            fds.push(PollFd::new(&self.stream.socket, remote));
        }
        if watch_plain {
            fds.push(PollFd::new(&self.plain, plain));
        }
        let timeout = self.deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(RelayError::Local(error.into())),
        }
        if watch_plain && let Some(seen) = fds.last().map(PollFd::revents) {
            self.plain_gone |= seen.contains(PollFlags::HUP);
            if seen.intersects(PollFlags::RDHUP | PollFlags::HUP) {
                self.hurry();
            }
        }
        Ok(())
    }
}

struct Sender<'a>(&'a OwnedFd);

impl Write for Sender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(send_all(self.0, parts, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
