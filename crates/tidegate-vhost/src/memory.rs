//! Guest memory as the front end shares it.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::Arc;

use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap};

use crate::bus_guard::BusGuard;

/// The most regions of one device.
pub(crate) const MOST_REGIONS: usize = 256;

/// A file's memory, mapped and guarded.
#[derive(Debug, Clone)]
pub(crate) struct SharedRegion {
    // Dropped before the mapping.
    guard: Arc<BusGuard>,
    mapped: Arc<GuestRegionMmap>,
}

impl SharedRegion {
    /// Maps a part of a file, as memory from `start` on.
    ///
    /// # Errors
    /// When the file is shorter, or the system refuses.
    pub(crate) fn map(start: u64, file: File, offset: u64, length: u64) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let end = offset.checked_add(length);
        if metadata.is_file() && end.is_none_or(|end| end > metadata.len()) {
            return Err(io::Error::other("the file of a memory region is shorter than the region"));
        }
        let size = usize::try_from(length).map_err(io::Error::other)?;
        let file = FileOffset::new(file, offset);
        let mapped = GuestRegionMmap::from_range(GuestAddress(start), size, Some(file));
        let mapped = Arc::new(mapped.map_err(io::Error::other)?);
        // SAFETY: the mapping is our own and begins at a page; the kernel has filled its last page up. It is
        // used through vm-memory, whose access is volatile. The guard goes before the mapping: it is the
        // earlier field here, and each clone has both.
        let guard = unsafe { BusGuard::new(mapped.as_ptr(), size)? };
        Ok(Self { guard: Arc::new(guard), mapped })
    }
}

/// The memory of a guest, by its physical addresses.
#[derive(Debug, Clone)]
pub struct GuestMemory {
    // Dropped before the mapping.
    regions: Vec<SharedRegion>,
    mapped: GuestMemoryMmap,
}

impl GuestMemory {
    /// Memory of regions that do not overlap.
    ///
    /// # Errors
    /// When they do.
    pub(crate) fn new(mut regions: Vec<SharedRegion>) -> io::Result<Self> {
        regions.sort_by_key(|region| region.mapped.start_addr());
        let mapped = regions.iter().map(|region| Arc::clone(&region.mapped)).collect();
        let mapped = GuestMemoryMmap::from_arc_regions(mapped).map_err(io::Error::other)?;
        Ok(Self { regions, mapped })
    }

    /// Memory of this process alone, for tests.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn anonymous(length: u64) -> Self {
        let ranges = [(GuestAddress(0), length as usize)];
        let mapped = GuestMemoryMmap::from_ranges(&ranges).expect("there is memory");
        Self { regions: Vec::new(), mapped }
    }

    pub(crate) fn mapped(&self) -> &GuestMemoryMmap {
        &self.mapped
    }

    /// Returns true if some of it is gone, and zeros are in its place.
    pub(crate) fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.guard.is_lost())
    }
}

/// A region, and the address where the front end has it.
#[derive(Debug)]
struct TableEntry {
    region: SharedRegion,
    user: u64,
}

/// The regions that a front end has shared.
#[derive(Debug, Default)]
pub(crate) struct MemoryTable {
    entries: Vec<TableEntry>,
}

impl MemoryTable {
    /// Takes another region.
    ///
    /// # Errors
    /// When there are too many, or it cannot be mapped.
    pub(crate) fn add(&mut self, region: &VhostUserMemoryRegion, file: File) -> io::Result<()> {
        if self.entries.len() >= MOST_REGIONS {
            return Err(io::Error::other("the front end shares too many regions of memory"));
        }
        let VhostUserMemoryRegion { guest_phys_addr, memory_size, user_addr, mmap_offset } = *region;
        let region = SharedRegion::map(guest_phys_addr, file, mmap_offset, memory_size)?;
        self.entries.push(TableEntry { region, user: user_addr });
        Ok(())
    }

    /// Forgets a region; says whether it was there.
    pub(crate) fn remove(&mut self, region: &VhostUserMemoryRegion) -> bool {
        let VhostUserMemoryRegion { guest_phys_addr, memory_size, user_addr, .. } = *region;
        let before = self.entries.len();
        self.entries.retain(|entry| {
            let mapped = &entry.region.mapped;
            (mapped.start_addr().0, mapped.len(), entry.user) != (guest_phys_addr, memory_size, user_addr)
        });
        self.entries.len() < before
    }

    /// The memory of all regions; `None` while there are none.
    ///
    /// # Errors
    /// When regions overlap.
    pub(crate) fn memory(&self) -> io::Result<Option<GuestMemory>> {
        if self.entries.is_empty() {
            return Ok(None);
        }
        GuestMemory::new(self.entries.iter().map(|entry| entry.region.clone()).collect()).map(Some)
    }

    /// The guest's address of what the front end has at `user`.
    pub(crate) fn guest_address(&self, user: u64) -> Option<GuestAddress> {
        let entry = self
            .entries
            .iter()
            .find(|entry| user >= entry.user && user - entry.user < entry.region.mapped.len())?;
        Some(GuestAddress(entry.region.mapped.start_addr().0 + (user - entry.user)))
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use vm_memory::Bytes;

    use super::*;

    fn shared(length: u64) -> File {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, length).unwrap();
        file.into()
    }

    #[test]
    fn memory_that_is_cut_short_is_lost_and_nothing_else() {
        let (taken, kept) = (shared(1 << 16), shared(1 << 16));
        let mut table = MemoryTable::default();
        let region = |start, user| VhostUserMemoryRegion::new(start, 1 << 16, user, 0);
        table.add(&region(0, 1 << 40), taken.try_clone().unwrap()).unwrap();
        table.add(&region(1 << 20, 2 << 40), kept).unwrap();
        let memory = table.memory().unwrap().unwrap();
        memory.mapped().write_slice(b"here", GuestAddress(1 << 20)).unwrap();
        assert!(!memory.is_lost());
        ftruncate(&taken, 4096).unwrap();
        let mut read = [1; 4];
        memory.mapped().read_slice(&mut read, GuestAddress(8192)).unwrap();
        assert_eq!((read, memory.is_lost()), ([0; 4], true));
        memory.mapped().read_slice(&mut read, GuestAddress(1 << 20)).unwrap();
        assert_eq!(&read, b"here");
        assert!(table.remove(&region(0, 1 << 40)));
        assert!(!table.memory().unwrap().unwrap().is_lost(), "the other region is whole");
    }

    #[test]
    fn a_region_beyond_its_file_or_over_another_is_refused() {
        let mut table = MemoryTable::default();
        assert!(table.add(&VhostUserMemoryRegion::new(0, 8192, 0, 4096), shared(8192)).is_err());
        table.add(&VhostUserMemoryRegion::new(0, 8192, 1 << 40, 0), shared(8192)).unwrap();
        assert_eq!(table.guest_address((1 << 40) + 8191), Some(GuestAddress(8191)));
        assert_eq!(table.guest_address((1 << 40) + 8192), None);
        table.add(&VhostUserMemoryRegion::new(4096, 8192, 2 << 40, 0), shared(8192)).unwrap();
        assert!(table.memory().is_err());
    }
}
