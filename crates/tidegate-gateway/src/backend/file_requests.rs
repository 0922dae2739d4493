//! Requests of clients on files and block devices, through io_uring.

use std::io;

use tidegate_nbd::{CheckedOperation, Errno};

use super::file::{FileVolume, errno};
use super::mapping::MappedRange;
use super::{FileRing, RequestProgress, VolumeOperation};
use crate::buffer::{AlignedBuffer, BufferPool};
use crate::request::ClientRequest;
use crate::ring::{BufferPart, CompletedOperation, LentMemory, RingToken};
use crate::zeroing::{RequestSlice, SliceMethod, ZEROES};

impl FileVolume {
    /// Begins a request: submits its first operation.
    pub(crate) fn start(
        &self,
        ring: &mut FileRing<'_>,
        pool: &mut BufferPool,
        key: usize,
        request: &mut ClientRequest,
    ) {
        if self.start_in_part(ring, pool, key, request) {
            return;
        }
        match request.operation {
            CheckedOperation::Read { length, .. } => {
                let buffer = pool.take(length as usize);
                self.transfer(ring, key, request, buffer);
            }
            CheckedOperation::Write { .. } => {
                let buffer = self.data_of(pool, request);
                self.transfer(ring, key, request, buffer);
            }
            CheckedOperation::WriteZeroes { .. } if request.slice.method == SliceMethod::Write => {
                let zeroes = self.data_of(pool, request);
                self.transfer(ring, key, request, zeroes);
            }
            CheckedOperation::Trim { offset, .. } | CheckedOperation::WriteZeroes { offset, .. } => {
                let RequestSlice { from, until, method, .. } = request.slice;
                let allocate = method == SliceMethod::Allocate;
                let how = if allocate { libc::FALLOC_FL_ZERO_RANGE } else { libc::FALLOC_FL_PUNCH_HOLE };
                let (token, mode) = (RingToken::Request { request: key }, how | libc::FALLOC_FL_KEEP_SIZE);
                let (offset, length) = (offset + from, until - from);
                ring.allocate(token, self, mode, offset, length);
            }
            CheckedOperation::Cache { .. } => {
                // The buffer of the slice before, or a new one. Its content is not used.
                let scratch = request.buffer.take().unwrap_or_else(|| pool.take(ZEROES as usize));
                self.transfer(ring, key, request, scratch);
            }
            CheckedOperation::BlockStatus { offset, length, one } => {
                let range = MappedRange { offset, length, one, block: self.alignment() };
                ring.allocation(key, self, range);
            }
            CheckedOperation::Flush | CheckedOperation::Disconnect => {
                unreachable!("not carried out as requests")
            }
        }
    }

    /// Takes the data that a change writes: a payload, or zeros.
    pub(super) fn data_of(&self, pool: &mut BufferPool, request: &mut ClientRequest) -> AlignedBuffer {
        match request.operation {
            // Invariant: a write is queued together with its payload.
            CheckedOperation::Write { .. } => request.buffer.take().expect("a write has its payload"),
            // Those of the slice before, or new ones.
            _ => request.buffer.take().unwrap_or_else(|| {
                let mut buffer = pool.take(ZEROES as usize);
                buffer.fill(0);
                buffer
            }),
        }
    }

    /// Goes on with a request after one of its operations completed.
    pub(crate) fn advance(
        &self,
        ring: &mut FileRing<'_>,
        pool: &mut BufferPool,
        key: usize,
        request: &mut ClientRequest,
        completed: CompletedOperation,
    ) -> RequestProgress {
        if request.partial.is_some() {
            return self.advance_in_part(ring, pool, key, request, completed);
        }
        let CompletedOperation { token, result, held } = completed;
        match (request.operation, held) {
            (
                CheckedOperation::Read { offset, .. } | CheckedOperation::Cache { offset, .. },
                LentMemory::Buffer(buffer),
            ) => {
                if let (RingToken::Cached { .. }, Err(error)) = (token, &result)
                    && error.kind() == io::ErrorKind::WouldBlock
                {
                    let (part, offset) = (self.next_part(ring, request), offset + request.done);
                    let kind = VolumeOperation::Read;
                    ring.read_storage(key, kind, self, buffer, part, offset);
                    return RequestProgress::Working;
                }
                let progress = self.transferred(ring, key, request, buffer, result);
                if let RequestProgress::Done { result: Err(_), .. } = progress
                    && let Some(buffer) = request.buffer.take()
                {
                    pool.put(buffer);
                }
                progress
            }
            (CheckedOperation::BlockStatus { .. }, held) => {
                if let LentMemory::Allocation(map) = held {
                    request.allocation = Some(map);
                }
                RequestProgress::done(result.map(drop).map_err(|error| errno(&error)))
            }
            (operation, LentMemory::Buffer(buffer)) => {
                let sync = self.needs_sync(&operation);
                self.transferred(ring, key, request, buffer, result).with_sync(sync)
            }
            (CheckedOperation::Trim { fua, .. }, _) => match result {
                Ok(_) => RequestProgress::Done { result: Ok(()), sync: fua },
                // A trim is advice. A file system that cannot take it has not failed.
                Err(error) if cannot(&error) => RequestProgress::done(Ok(())),
                Err(error) => RequestProgress::done(Err(errno(&error))),
            },
            (CheckedOperation::WriteZeroes { fua, .. }, _) => match result {
                Ok(_) => RequestProgress::Done { result: Ok(()), sync: fua },
                // Zeros are written then, but in their turn and at their price.
                Err(error) if cannot(&error) => RequestProgress::done(Err(Errno::NotSup)),
                Err(error) => RequestProgress::done(Err(errno(&error))),
            },
            (operation, memory) => unreachable!("{operation:?} does not complete with {memory:?}"),
        }
    }

    /// Submits the next part of a transfer.
    fn transfer(&self, ring: &mut FileRing<'_>, key: usize, request: &ClientRequest, buffer: AlignedBuffer) {
        let (done, part) = (request.done, self.next_part(ring, request));
        match request.operation {
            CheckedOperation::Read { offset, .. } | CheckedOperation::Cache { offset, .. } => {
                ring.read(key, self, buffer, part, offset + done);
            }
            CheckedOperation::Write { offset, .. } | CheckedOperation::WriteZeroes { offset, .. } => {
                let durable = self.syncs_with(&request.operation);
                ring.write(key, self, buffer, part, offset + done, durable);
            }
            _ => unreachable!("moves no data"),
        }
    }

    /// Returns the part of the remaining bytes that one operation may move, in the request's buffer. That of
    /// a slice begins with the slice.
    fn next_part(&self, ring: &FileRing<'_>, request: &ClientRequest) -> BufferPart {
        let left = (request.slice.until - request.done) as usize;
        let length = if self.has_cache() { left.min(ring.ring.largest_copy()) } else { left };
        let start = if request.slice.method == SliceMethod::Transfer { request.done as usize } else { 0 };
        BufferPart { start, length }
    }

    /// Counts a completed part and continues a short one; the buffer goes back to the request at the end.
    fn transferred(
        &self,
        ring: &mut FileRing<'_>,
        key: usize,
        request: &mut ClientRequest,
        buffer: AlignedBuffer,
        result: io::Result<usize>,
    ) -> RequestProgress {
        let outcome = match result {
            // Nothing moved: the file ends before the export does, because it was cut.
            Ok(0) => {
                self.ends_at(request.operation.offset() + request.done);
                Err(Errno::Io)
            }
            Ok(count) => {
                request.done += count as u64;
                if request.done < request.slice.until {
                    self.transfer(ring, key, request, buffer);
                    return RequestProgress::Working;
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.transfer(ring, key, request, buffer);
                return RequestProgress::Working;
            }
            Err(error) if self.syncs_by_itself(&request.operation) => {
                request.buffer = Some(buffer);
                return RequestProgress::ReportedLoss(errno(&error));
            }
            Err(error) => Err(errno(&error)),
        };
        request.buffer = Some(buffer);
        RequestProgress::done(outcome)
    }
}

/// Returns true if the file system or device cannot do the operation, or not at this alignment.
fn cannot(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::ENODEV))
}
