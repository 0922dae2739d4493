//! Receives by io_uring from sockets whose other side may pass descriptors beside its bytes.

#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;

use tidegate_sockets::aside::{MOST_PASSED, PassingUser, close_passed};

/// The length of the largest control message, in words of its alignment.
// SAFETY: it only adds up lengths.
const CONTROL_WORDS: usize = unsafe { libc::CMSG_SPACE((MOST_PASSED * size_of::<RawFd>()) as u32) as usize }
    .div_ceil(size_of::<usize>());

/// Room for the descriptors of one receive, and the header that tells the kernel of it.
pub(crate) struct PassedRoom(Box<RoomParts>);

struct RoomParts {
    /// The user at the other side, while a receive uses the room.
    user: Option<PassingUser>,
    header: libc::msghdr,
    part: libc::iovec,
    control: [usize; CONTROL_WORDS],
}

impl fmt::Debug for PassedRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PassedRoom(..)")
    }
}

// SAFETY: the raw pointers are written by `prepare` immediately before each use.
unsafe impl Send for RoomParts {}

impl PassedRoom {
    pub(crate) fn new() -> Self {
        Self(Box::new(RoomParts {
            user: None,
            // SAFETY: a msghdr of zeros is an empty message.
            header: unsafe { std::mem::zeroed() },
            part: libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 },
            control: [0; CONTROL_WORDS],
        }))
    }

    /// Points the header at this memory and at the room, for a receive from a user. It is valid for as long as the
    /// room.
    pub(crate) fn prepare(&mut self, user: PassingUser, memory: *mut u8, length: u32) -> *mut libc::msghdr {
        let RoomParts { user: of, header, part, control } = &mut *self.0;
        *of = Some(user);
        *part = libc::iovec { iov_base: memory.cast(), iov_len: length as usize };
        header.msg_iov = part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(control) as _;
        header
    }

    /// Closes the descriptors that a receive brought. Call it once after each.
    ///
    /// # Errors
    /// When the connection should end; see [`close_passed`].
    pub(crate) fn close_passed(&mut self) -> io::Result<()> {
        let RoomParts { user, header, .. } = &mut *self.0;
        let Some(user) = user.take().filter(|_| header.msg_controllen > 0) else { return Ok(()) };
        let mut passed = Vec::new();
        // SAFETY: the kernel filled the first `msg_controllen` bytes of `control` with control messages, and
        // the macros go through these. A message of SCM_RIGHTS consists of descriptors that the kernel opened
        // for this process, and that nothing else knows.
        unsafe {
            let mut message = libc::CMSG_FIRSTHDR(header);
            while let Some(head) = message.as_ref() {
                if (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                    let data: *const RawFd = libc::CMSG_DATA(message).cast();
                    let length = head.cmsg_len - libc::CMSG_LEN(0) as usize;
                    for at in 0..length / size_of::<RawFd>() {
                        passed.push(OwnedFd::from_raw_fd(data.add(at).read_unaligned()));
                    }
                }
                message = libc::CMSG_NXTHDR(header, message);
            }
        }
        header.msg_controllen = 0;
        close_passed(user, passed)
    }
}
