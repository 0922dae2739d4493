//! Regular files and block devices, through io_uring.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, OFlags, StatxFlags};
use tidegate_nbd::{Errno, Operation};

use super::Progress;
use crate::buffer::{Buffer, BufferPool};
use crate::request::{Request, ZEROES};
use crate::ring::{Held, Part, Ring, Token};

/// What direct I/O needs where the system does not say: no storage in use has larger logical blocks.
const CONSERVATIVE_ALIGNMENT: u32 = 4096;

/// An open file or block device, and what it asks of requests.
#[derive(Debug)]
pub(crate) struct FileVolume {
    file: File,
    size: u64,
    alignment: u32,
}

impl FileVolume {
    /// Opens a file for an export.
    ///
    /// # Errors
    /// The system's answer, or that the file is neither a regular file nor a block device, or that its size does
    /// not fit the alignment that direct I/O needs.
    pub(crate) fn open(path: &Path, direct: bool, read_only: bool) -> io::Result<Self> {
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() } | OFlags::NONBLOCK;
        let mut file =
            OpenOptions::new().read(true).write(!read_only).custom_flags(flags.bits() as i32).open(path)?;
        let kind = file.metadata()?.file_type();
        let block_device = kind.is_block_device();
        if !block_device && !kind.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "neither a regular file nor a block device",
            ));
        }
        let size = file.seek(SeekFrom::End(0))?;
        let alignment = if direct { direct_alignment(&file, block_device)? } else { 1 };
        if !size.is_multiple_of(u64::from(alignment)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("its size, {size}, is not a multiple of the {alignment} bytes that direct I/O needs"),
            ));
        }
        Ok(Self { file, size, alignment })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn alignment(&self) -> u32 {
        self.alignment
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Begins a request: submits its first operation.
    pub(crate) fn start(&self, ring: &mut Ring, pool: &mut BufferPool, key: usize, request: &mut Request) {
        match request.operation {
            Operation::Read { length, .. } => {
                let buffer = pool.take(length as usize);
                self.transfer(ring, key, request, buffer);
            }
            Operation::Write { .. } => {
                // Invariant: a write is queued together with its payload.
                let buffer = request.buffer.take().expect("a write has its payload");
                self.transfer(ring, key, request, buffer);
            }
            Operation::Trim { offset, length, .. } => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                ring.allocate(Token::Request { request: key }, self.fd(), mode, offset, u64::from(length));
            }
            Operation::WriteZeroes { offset, length, no_hole, .. } => {
                let how = if no_hole { libc::FALLOC_FL_ZERO_RANGE } else { libc::FALLOC_FL_PUNCH_HOLE };
                let mode = how | libc::FALLOC_FL_KEEP_SIZE;
                ring.allocate(Token::Request { request: key }, self.fd(), mode, offset, u64::from(length));
            }
            Operation::Flush | Operation::Disconnect => unreachable!("not scheduled requests"),
        }
    }

    /// Goes on with a request after one of its operations completed.
    pub(crate) fn advance(
        &self,
        ring: &mut Ring,
        pool: &mut BufferPool,
        key: usize,
        request: &mut Request,
        result: io::Result<usize>,
        held: Held,
    ) -> Progress {
        match (request.operation, held) {
            (Operation::Read { length, .. }, Held::Buffer(buffer)) => {
                let progress = self.transferred(ring, key, request, buffer, length, result);
                if let Progress::Done { result: Err(_), .. } = progress
                    && let Some(buffer) = request.buffer.take()
                {
                    pool.put(buffer);
                }
                progress
            }
            (Operation::Write { length, .. }, Held::Buffer(buffer)) => {
                self.transferred(ring, key, request, buffer, length, result)
            }
            (Operation::WriteZeroes { length, fua, .. }, Held::Buffer(buffer)) => {
                match self.transferred(ring, key, request, buffer, length, result) {
                    Progress::Done { result, .. } => Progress::Done { result, sync: fua },
                    Progress::Working => Progress::Working,
                }
            }
            (Operation::Trim { fua, .. }, _) => match result {
                Ok(_) => Progress::Done { result: Ok(()), sync: fua },
                // A trim is advice. A file system that cannot take it has not failed.
                Err(error) if cannot(&error) => Progress::done(Ok(())),
                Err(error) => Progress::done(Err(errno(&error))),
            },
            (Operation::WriteZeroes { fua, .. }, _) => match result {
                Ok(_) => Progress::Done { result: Ok(()), sync: fua },
                Err(error) if cannot(&error) => {
                    let mut buffer = pool.take(ZEROES);
                    buffer.fill(0);
                    self.transfer(ring, key, request, buffer);
                    Progress::Working
                }
                Err(error) => Progress::done(Err(errno(&error))),
            },
            (operation, held) => unreachable!("{operation:?} does not complete with {held:?}"),
        }
    }

    /// Submits the next part of a transfer.
    fn transfer(&self, ring: &mut Ring, key: usize, request: &Request, buffer: Buffer) {
        let token = Token::Request { request: key };
        let done = request.done;
        match request.operation {
            Operation::Read { offset, length } => {
                let part = Part { start: done as usize, length: (length - done) as usize };
                ring.read(token, self.fd(), buffer, part, offset + u64::from(done));
            }
            Operation::Write { offset, length, fua } => {
                let part = Part { start: done as usize, length: (length - done) as usize };
                ring.write(token, self.fd(), buffer, part, offset + u64::from(done), fua);
            }
            Operation::WriteZeroes { offset, length, .. } => {
                let part = Part { start: 0, length: ((length - done) as usize).min(ZEROES) };
                ring.write(token, self.fd(), buffer, part, offset + u64::from(done), false);
            }
            _ => unreachable!("moves no data"),
        }
    }

    /// Counts a completed part and continues a short one; the buffer goes back to the request at the end.
    fn transferred(
        &self,
        ring: &mut Ring,
        key: usize,
        request: &mut Request,
        buffer: Buffer,
        length: u32,
        result: io::Result<usize>,
    ) -> Progress {
        let outcome = match result {
            // Nothing moved: the file ends before the export does, because somebody has cut it.
            Ok(0) => Err(Errno::Io),
            Ok(count) => {
                request.done += count as u32;
                if request.done < length {
                    self.transfer(ring, key, request, buffer);
                    return Progress::Working;
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.transfer(ring, key, request, buffer);
                return Progress::Working;
            }
            Err(error) => Err(errno(&error)),
        };
        request.buffer = Some(buffer);
        Progress::done(outcome)
    }
}

/// What a client hears of a failed operation.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_linux(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Whether the file system or device cannot do such a thing, or not at this alignment.
fn cannot(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::ENODEV))
}

/// The alignment of offsets, lengths and memory that direct I/O on this file needs.
fn direct_alignment(file: &File, block_device: bool) -> io::Result<u32> {
    let alignment = if block_device {
        rustix::fs::ioctl_blksszget(file)?
    } else {
        let statx = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        match statx {
            Ok(statx) if statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
                statx.stx_dio_offset_align.max(statx.stx_dio_mem_align)
            }
            _ => CONSERVATIVE_ALIGNMENT,
        }
    };
    match alignment {
        // Said by file systems that take O_DIRECT when opening and refuse it later.
        0 => Err(io::Error::new(io::ErrorKind::Unsupported, "its file system has no direct I/O")),
        // Our buffers are aligned to 4 KiB, and nothing in use asks for more.
        a if a.is_power_of_two() && a <= 4096 => Ok(a.max(512)),
        a => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("direct I/O needs an alignment of {a} bytes"),
        )),
    }
}
