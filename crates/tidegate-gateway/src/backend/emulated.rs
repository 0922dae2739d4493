//! A model of storage in real time: it says when, and memory or a sparse file says what.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::FallocateFlags;
use tidegate_device::{Device, DeviceCompletion, DeviceIo, IoKind};
use tidegate_nbd::{AllocationMap, CheckedOperation, Errno};
use tidegate_units::Instant;

use super::file::errno;
use super::mapping::MappedRange;
use super::memory::SparseMemory;
use crate::buffer::BufferPool;
use crate::claim::lock_all;
use crate::config::DataStore;
use crate::request::ClientRequest;
use crate::zeroing::{RequestSlice, SliceMethod};

/// The cost, to the modelled device, of a request that only marks a range, or asks about one: the write or
/// read of one block of metadata.
const MARK: u32 = 4096;

/// Tells the syncs of exports from requests in the device's ids.
const SYNC: u64 = 1 << 63;

/// An emulated device and its data.
pub(crate) struct EmulatedVolume {
    device: Device,
    store: EmulatedStore,
    completed: Vec<DeviceCompletion>,
}

/// A request or sync that the device has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinishedIo {
    Request(usize),
    Sync { export: usize },
}

enum EmulatedStore {
    Memory(SparseMemory),
    /// Through the page cache, at once: an operation that the model has delayed must not wait again.
    File(File),
}

impl EmulatedVolume {
    /// Puts a device over its data.
    ///
    /// # Errors
    /// When the data's file cannot be opened or made as large as the device.
    pub(crate) fn new(device: Device, data: &DataStore) -> io::Result<Self> {
        let store = match data {
            DataStore::Memory { limit } => EmulatedStore::Memory(SparseMemory::new(limit.get())),
            DataStore::File(path) => EmulatedStore::File(open_sparse(path, device.capacity().get())?),
        };
        Ok(Self { device, store, completed: Vec::new() })
    }

    /// Returns the time for the next call of [`advance`](Self::advance).
    pub(crate) fn next_event(&self) -> Option<Instant> {
        self.device.next_event()
    }

    /// Begins a request to the region that starts at `base`.
    ///
    /// # Errors
    /// When the device does not take it; the client hears this.
    pub(crate) fn start(
        &mut self,
        now: Instant,
        key: usize,
        base: u64,
        request: &ClientRequest,
    ) -> Result<(), Errno> {
        let io = match request.operation {
            CheckedOperation::Read { offset, length } => DeviceIo::read(base + offset, length),
            CheckedOperation::Write { offset, length, fua } => {
                DeviceIo { kind: IoKind::Write { fua }, offset: base + offset, bytes: length }
            }
            CheckedOperation::Trim { offset, fua, .. }
            | CheckedOperation::WriteZeroes { offset, fua, .. } => {
                let RequestSlice { from, method, .. } = request.slice;
                // Not more than a slice, which is far below 4 GiB.
                let length = request.slice.length() as u32;
                let bytes = if method == SliceMethod::Mark { length.min(MARK) } else { length };
                DeviceIo { kind: IoKind::Write { fua }, offset: base + offset + from, bytes }
            }
            CheckedOperation::BlockStatus { offset, length, .. } => {
                DeviceIo::read(base + offset, length.min(MARK.into()) as u32)
            }
            CheckedOperation::Cache { .. } | CheckedOperation::Flush | CheckedOperation::Disconnect => {
                unreachable!("not offered, or not scheduled")
            }
        };
        self.device.submit(now, key as u64, io).map_err(|_| Errno::Io)
    }

    /// Begins a flush of the device on behalf of an export.
    ///
    /// # Errors
    /// When the device does not take it.
    pub(crate) fn sync(&mut self, now: Instant, export: usize) -> Result<(), Errno> {
        self.device.submit(now, SYNC | export as u64, DeviceIo::flush()).map_err(|_| Errno::Io)
    }

    /// Brings the model to `now` and collects what it has finished by then.
    pub(crate) fn advance(&mut self, now: Instant, finished: &mut Vec<FinishedIo>) {
        self.device.advance(now, &mut self.completed);
        finished.extend(self.completed.drain(..).map(|completion| {
            if completion.id & SYNC != 0 {
                FinishedIo::Sync { export: (completion.id & !SYNC) as usize }
            } else {
                FinishedIo::Request(completion.id as usize)
            }
        }));
    }

    /// Moves the data of a request that the device has finished.
    ///
    /// # Errors
    /// When the data has no room, or its file fails.
    pub(crate) fn finish(
        &mut self,
        base: u64,
        request: &mut ClientRequest,
        pool: &mut BufferPool,
    ) -> Result<(), Errno> {
        match request.operation {
            CheckedOperation::Read { offset, length } => {
                let mut buffer = pool.take(length as usize);
                let result = self.store.read(base + offset, &mut buffer[..length as usize]);
                if result.is_ok() {
                    request.buffer = Some(buffer);
                } else {
                    pool.put(buffer);
                }
                result
            }
            CheckedOperation::Write { offset, length, .. } => {
                // Invariant: a write is queued together with its payload, which stays with it until its end.
                let payload = request.buffer.as_ref().expect("a write has its payload");
                self.store.write(base + offset, &payload[..length as usize])
            }
            CheckedOperation::Trim { offset, .. } | CheckedOperation::WriteZeroes { offset, .. } => {
                let RequestSlice { from, until, .. } = request.slice;
                self.store.zero(base + offset + from, until - from)
            }
            CheckedOperation::BlockStatus { offset, length, one } => {
                let range = MappedRange { offset: base + offset, length, one, block: 1 };
                request.allocation = Some(Box::new(self.store.allocation(range)?));
                Ok(())
            }
            CheckedOperation::Cache { .. } | CheckedOperation::Flush | CheckedOperation::Disconnect => {
                unreachable!("not offered, or not scheduled")
            }
        }
    }
}

impl EmulatedStore {
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Errno> {
        match self {
            Self::Memory(memory) => {
                memory.read(offset, out);
                Ok(())
            }
            Self::File(file) => file.read_exact_at(out, offset).map_err(|error| errno(&error)),
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Memory(memory) => memory.write(offset, data),
            Self::File(file) => file.write_all_at(data, offset).map_err(|error| errno(&error)),
        }
    }

    fn allocation(&self, range: MappedRange) -> Result<AllocationMap, Errno> {
        match self {
            Self::Memory(memory) => {
                let mut map = range.map();
                memory.allocation(range.offset, range.length, &mut map);
                Ok(map)
            }
            Self::File(file) => range.ask(file).map_err(|error| errno(&error)),
        }
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Errno> {
        match self {
            Self::Memory(memory) => {
                memory.zero(offset, length);
                Ok(())
            }
            Self::File(file) => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, mode, offset, length).map_err(|error| errno(&error.into()))
            }
        }
    }
}

fn open_sparse(path: &Path, size: u64) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    lock_all(&file, path, false)?;
    if file.metadata()?.len() < size {
        file.set_len(size)?;
    }
    Ok(file)
}
