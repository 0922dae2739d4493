//! Event descriptors, by which the guest's and the gateway's sides of a ring wake each other.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::ReadWriteFlags;
use thiserror::Error;

/// A descriptor that the front end passed is of another kind. To wait for it or to write to it could block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a descriptor of a ring is not an eventfd")]
pub struct NotEventDescriptor;

/// An eventfd of the front end's.
#[derive(Debug)]
pub struct EventDescriptor(OwnedFd);

impl EventDescriptor {
    /// Takes a descriptor.
    ///
    /// # Errors
    /// When it is not an eventfd.
    pub fn new(file: File) -> Result<Self, NotEventDescriptor> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let is_event = link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]");
        if is_event { Ok(Self(file.into())) } else { Err(NotEventDescriptor) }
    }

    /// Takes what was signalled, and does not wait: the other side may have taken it, and decides about the
    /// flags of the descriptor.
    pub fn take(&self) {
        // `u64::MAX` is "no offset"; where nothing is there, nothing is to be done.
        let mut count = [0; 8];
        let _ = rustix::io::preadv2(
            &self.0,
            &mut [IoSliceMut::new(&mut count)],
            u64::MAX,
            ReadWriteFlags::NOWAIT,
        );
    }
}

impl AsFd for EventDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    #[test]
    fn only_an_eventfd_is_taken_and_taking_from_it_does_not_wait() {
        assert!(EventDescriptor::new(File::open("/dev/null").unwrap()).is_err());
        let (read, _write) = rustix::pipe::pipe().unwrap();
        assert!(EventDescriptor::new(read.into()).is_err());
        // One that would block.
        let event = eventfd(3, EventfdFlags::CLOEXEC).unwrap();
        let taken = EventDescriptor::new(File::from(event.try_clone().unwrap())).unwrap();
        taken.take();
        taken.take();
        rustix::fs::fcntl_setfl(&event, rustix::fs::OFlags::NONBLOCK).unwrap();
        assert!(rustix::io::read(&event, &mut [0; 8]).is_err(), "the first took all of it");
    }
}
