//! The size of a disk, which may change while a front end is served.
//!
//! A front end hears of it by a channel of its own, on which the device begins. The crate `vhost` takes that
//! channel and has no message for a change of the configuration space. So the descriptor is taken here, from
//! a look at the message that brings it, and the message is made here: its header is all of it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send,
    sockopt,
};

/// The length of a message's header: its number, flags, and the length of what follows.
const HEADER: usize = 12;

/// `VHOST_USER_SET_BACKEND_REQ_FD`
const SET_CHANNEL: u32 = 21;

/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`, of version 1, without a body, without an answer.
const CONFIG_CHANGED: [u32; 3] = [2, 1, 0];

/// The size of a disk, for the one who serves its front end and the one who changes it.
#[derive(Debug)]
pub struct DiskSize {
    bytes: AtomicU64,
    /// The channel to the front end, if it has given one.
    channel: Mutex<Option<UnixStream>>,
}

impl DiskSize {
    /// The size in bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { bytes: AtomicU64::new(bytes), channel: Mutex::default() }
    }

    /// Changes the size, and tells a front end that wants to know. It does not block. A front end that takes
    /// no messages learns the size when it connects again.
    pub fn change(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Release);
        self.tell();
    }

    /// Has a front end that wants to know look at the size.
    pub(crate) fn tell(&self) {
        if let Some(channel) = &*self.channel() {
            let message: Vec<u8> = CONFIG_CHANGED.iter().flat_map(|word| word.to_ne_bytes()).collect();
            // The front end is gone, or has not read what it was sent before, which says the same.
            let _ = send(channel, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Waits for the next message of a front end. If it brings the channel, a share of it is kept here; the
    /// message itself stays in the socket.
    pub(crate) fn look_for_channel(&self, socket: &UnixStream) -> io::Result<()> {
        let mut header = [0; HEADER];
        let length = loop {
            match recv(socket, &mut header, RecvFlags::PEEK) {
                Err(Errno::INTR) => {}
                received => break received?.0,
            }
        };
        let number = header.first_chunk().map(|number| u32::from_ne_bytes(*number));
        if length == HEADER && number == Some(SET_CHANNEL) {
            let channel = passed_channel(socket)?;
            // Closed after the lock is given back: closing it may take long.
            let _before = std::mem::replace(&mut *self.channel(), channel);
        }
        Ok(())
    }

    /// Closes the channel, for as long as that may take: messages with descriptors may be in it.
    pub(crate) fn close_channel(&self) {
        let _channel = self.channel().take();
    }

    fn channel(&self) -> MutexGuard<'_, Option<UnixStream>> {
        // It is replaced as a whole.
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A share of the descriptor that the next message brings.
fn passed_channel(socket: impl AsFd) -> io::Result<Option<UnixStream>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut header = [0; HEADER];
    let mut parts = [io::IoSliceMut::new(&mut header)];
    recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    // Sending to another kind of socket could wait for its other users.
    let is_unix = |socket: &OwnedFd| sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX);
    Ok(descriptors.filter(is_unix).map(UnixStream::from).next())
}
