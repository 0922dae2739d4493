//! Byte-range locks of an open file description, fcntl(2), in the places that QEMU gives a meaning to.
//!
//! QEMU locks for reading byte 100 + n while it uses permission n of an image, and byte 200 + n while it
//! denies permission n to others (QEMU, block/file-posix.c). A writer here locks all bytes for writing. A
//! reader locks the bytes by which QEMU's readers come along with it, and QEMU's writers do not.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The first byte of QEMU's locks for permissions in use.
const USED: i64 = 100;
/// The first byte of QEMU's locks for permissions that are denied to others.
const DENIED: i64 = 200;

/// QEMU's permissions, by their numbers: to read consistent data, to write, to resize.
const CONSISTENT_READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// Locks a file against all other users.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] when it is locked, or the system's answer.
pub(super) fn for_writing(file: &File) -> io::Result<()> {
    fcntl(file, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).map(drop)
}

/// The bytes that a reader locks, by which QEMU's readers come along with it.
const READERS: [i64; 3] = [USED + CONSISTENT_READ, DENIED + WRITE, DENIED + RESIZE];

/// Locks a file against writers.
///
/// # Errors
/// As [`for_writing`].
pub(super) fn for_reading(file: &File) -> io::Result<()> {
    for byte in READERS {
        fcntl(file, libc::F_OFD_SETLK, libc::F_RDLCK, byte, 1)?;
    }
    without_writers(file)
}

/// Checks that no other program locks the bytes of QEMU's writers, or denies reading.
fn without_writers(file: &File) -> io::Result<()> {
    [DENIED + CONSISTENT_READ, USED + WRITE]
        .into_iter()
        .try_for_each(|byte| free(file, libc::F_WRLCK, byte, 1))
}

/// Checks that [`for_writing`] or [`for_reading`] could lock a file now. Nothing is locked.
///
/// # Errors
/// As [`for_writing`].
pub(super) fn try_out(file: &File, read_only: bool) -> io::Result<()> {
    if !read_only {
        return free(file, libc::F_WRLCK, 0, 0);
    }
    READERS.into_iter().try_for_each(|byte| free(file, libc::F_RDLCK, byte, 1))?;
    without_writers(file)
}

/// Checks that no other lock excludes a lock of this kind on `length` bytes from `start`.
fn free(file: &File, kind: libc::c_int, start: i64, length: i64) -> io::Result<()> {
    let found = fcntl(file, libc::F_OFD_GETLK, kind, start, length)?;
    if i32::from(found.l_type) == libc::F_UNLCK { Ok(()) } else { Err(io::ErrorKind::ResourceBusy.into()) }
}

/// Returns whether an error means that the file system has no locks.
pub(super) fn is_not_offered(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL | libc::ENOTTY)
    )
}

/// Asks for a lock, or about one, on `length` bytes from `start`; 0 bytes are all that follow.
fn fcntl(
    file: &File,
    command: libc::c_int,
    kind: libc::c_int,
    start: i64,
    length: i64,
) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        // What the kernel asks for with locks of a description.
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, both commands take a pointer to this structure, and it outlives the
    // call.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if status == 0 {
        return Ok(lock);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Err(io::ErrorKind::ResourceBusy.into()),
        _ => Err(error),
    }
}
