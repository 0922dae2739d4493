//! The size of an open volume, beside the one that clients were told. A volume that has shrunk has lost data
//! that was written, without an error: a write at the old end makes a file as long as before, with a hole.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::identity::device_directory;

/// The unit of the kernel's file about the size of a device.
const SECTOR: u64 = 512;

#[derive(Debug)]
pub(super) struct SizeWatch {
    /// The kernel's file about the size of a block device. The size of a regular file is asked of the file.
    /// `None` if this process sees no such file, and then the size is not watched.
    device: Option<Option<File>>,
    /// The most bytes that clients were told.
    promised: AtomicU64,
    /// The fewest bytes that the volume was seen with, below what clients were told by then.
    least: AtomicU64,
}

/// A volume that was seen with fewer bytes than its clients were told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShrunkVolume {
    pub(crate) promised: u64,
    pub(crate) found: u64,
}

impl SizeWatch {
    pub(super) fn new(metadata: &Metadata) -> Self {
        let of_device = || File::open(device_directory(metadata.rdev()).join("size")).ok();
        Self {
            device: metadata.file_type().is_block_device().then(of_device),
            promised: AtomicU64::new(0),
            least: AtomicU64::new(u64::MAX),
        }
    }

    /// Clients are told of this size from now on, and what was seen before is forgotten.
    pub(super) fn begin(&self, size: u64) {
        self.promised.store(size, Ordering::Relaxed);
        self.least.store(u64::MAX, Ordering::Relaxed);
    }

    pub(super) fn promise(&self, size: u64) {
        self.promised.fetch_max(size, Ordering::Relaxed);
    }

    pub(super) fn saw(&self, size: u64) {
        // A volume that grows later was not too small before.
        if size < self.promised.load(Ordering::Relaxed) {
            self.least.fetch_min(size, Ordering::Relaxed);
        }
    }

    pub(super) fn look(&self, file: &File) {
        // What is promised meanwhile, or is not any more, is not what this size is less than.
        let promised = self.promised.load(Ordering::Relaxed);
        let size = match &self.device {
            None => file.metadata().ok().map(|metadata| metadata.len()),
            Some(sectors) => sectors.as_ref().and_then(sectors_in).map(|sectors| sectors * SECTOR),
        };
        if let Some(size) = size.filter(|size| *size < promised) {
            self.saw(size);
        }
    }

    pub(super) fn is_end(&self, offset: u64) -> bool {
        offset >= self.promised.load(Ordering::Relaxed)
    }

    pub(super) fn shrunk(&self) -> Option<ShrunkVolume> {
        let (promised, found) = (self.promised.load(Ordering::Relaxed), self.least.load(Ordering::Relaxed));
        (found < promised).then_some(ShrunkVolume { promised, found })
    }
}

/// Reads a file of the kernel anew, which is open already.
fn sectors_in(file: &File) -> Option<u64> {
    let mut text = [0; 24];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
}
