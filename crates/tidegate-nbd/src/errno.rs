//! The error numbers of the protocol.

use thiserror::Error;

/// The reason why a request failed, as said on the wire (specification, "Error values"). The numbers are the
/// protocol's own, whatever the operating system calls them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
#[repr(u32)]
pub enum Errno {
    /// `NBD_EPERM`: a write to a read-only export.
    #[error("operation not permitted")]
    Perm = 1,
    /// `NBD_EIO`: the backend failed.
    #[error("input/output error")]
    Io = 5,
    /// `NBD_ENOMEM`: the server lacks memory; the specification asks servers to avoid it.
    #[error("cannot allocate memory")]
    NoMem = 12,
    /// `NBD_EINVAL`: an unknown command or flag, an unaligned request, a read or trim beyond the end.
    #[error("invalid argument")]
    Inval = 22,
    /// `NBD_ENOSPC`: a write beyond the end, or a backend without space.
    #[error("no space left on device")]
    NoSpc = 28,
    /// `NBD_EOVERFLOW`: a read too large for one chunk.
    #[error("value too large")]
    Overflow = 75,
    /// `NBD_ENOTSUP`: zeroes cannot be written faster than data.
    #[error("operation not supported")]
    NotSup = 95,
    /// `NBD_ESHUTDOWN`: the server is about to end.
    #[error("the server is shutting down")]
    Shutdown = 108,
}

impl Errno {
    const ALL: [Self; 8] = [
        Self::Perm,
        Self::Io,
        Self::NoMem,
        Self::Inval,
        Self::NoSpc,
        Self::Overflow,
        Self::NotSup,
        Self::Shutdown,
    ];

    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// From the number on the wire, which is not zero. An unexpected one counts as [`Errno::Inval`], as the
    /// specification asks of clients.
    #[must_use]
    pub fn from_code(code: u32) -> Self {
        Self::ALL.into_iter().find(|errno| errno.code() == code).unwrap_or(Self::Inval)
    }

    /// Returns the error that a client should be told when the backend failed with this Linux `errno`.
    #[must_use]
    pub const fn from_linux(errno: i32) -> Self {
        match errno {
            // EPERM, EACCES, EROFS
            1 | 13 | 30 => Self::Perm,
            // ENOMEM
            12 => Self::NoMem,
            // EINVAL
            22 => Self::Inval,
            // EFBIG, ENOSPC, EDQUOT: the specification maps all three to ENOSPC
            27 | 28 | 122 => Self::NoSpc,
            // ESHUTDOWN
            108 => Self::Shutdown,
            // EOVERFLOW and ENOTSUP have narrow meanings in the protocol that a backend's error does not
            // share.
            _ => Self::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_strangers_are_einval() {
        for errno in Errno::ALL {
            assert_eq!(Errno::from_code(errno.code()), errno);
        }
        assert_eq!(Errno::from_code(4), Errno::Inval);
        assert_eq!(Errno::from_code(u32::MAX), Errno::Inval);
    }

    #[test]
    fn a_full_or_quota_bound_backend_is_enospc_and_the_unknown_is_eio() {
        for linux in [27, 28, 122] {
            assert_eq!(Errno::from_linux(linux), Errno::NoSpc);
        }
        assert_eq!(Errno::from_linux(30), Errno::Perm);
        for linux in [5, 75, 95, 0, -1, i32::MAX] {
            assert_eq!(Errno::from_linux(linux), Errno::Io);
        }
    }
}
