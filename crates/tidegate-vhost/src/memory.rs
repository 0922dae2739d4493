//! Guest memory as the front end shares it.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{fcntl_get_seals, fstatfs};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::time::{ClockId, clock_gettime};
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

use crate::budget::{MemoryAccount, MemoryCharge};
use crate::bus_guard::BusGuard;

/// The most regions of one device.
pub(crate) const MOST_REGIONS: usize = 256;

/// The part of a mapping that is emptied at once. Chosen: some milliseconds of the kernel's work.
const EMPTIED_AT_ONCE: usize = 256 << 20;

/// A file's memory, mapped and guarded. The last owner unmaps it, and frees the file's memory if the front
/// end is gone. That takes seconds for a large guest, so the last owner is the thread of [`crate::serve`].
#[derive(Debug)]
struct Mapping {
    /// `None` once the mapping is about to end.
    guard: Option<BusGuard>,
    start: usize,
    length: usize,
    _charge: MemoryCharge,
}

impl Mapping {
    /// Maps a part of a file. Its descriptor is not needed afterwards.
    fn new(account: &MemoryAccount, file: &File, offset: u64, length: u64) -> io::Result<Self> {
        // Only files of tmpfs (memfd among them) and hugetlbfs have seals, and this asks no file system. A
        // page of any other file comes from its file system, which may never deliver it: the front end may be its
        // server. A thread that touches such a page waits with no end, not even that of the process.
        if fcntl_get_seals(file).is_err() {
            return Err(io::Error::other(
                "guest memory must be a memfd, or a file on tmpfs or hugetlbfs: a page of another file system \
                 may never arrive",
            ));
        }
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > file.metadata().map_or(0, |metadata| metadata.len())) {
            return Err(io::Error::other("the file of a memory region is shorter than the region"));
        }
        // The page's size, also of huge pages.
        let page = u64::try_from(fstatfs(file)?.f_bsize).map_err(io::Error::other)?;
        let length = length.checked_next_multiple_of(page).ok_or_else(|| io::Error::other("too long"))?;
        let charge = account.charge(length).map_err(io::Error::other)?;
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe { mmap(null_mut(), length, access, flags, file, offset)? };
        let mut mapping = Self { guard: None, start: start as usize, length, _charge: charge };
        // SAFETY: the mapping is our own, of whole pages, and used through vm-memory, whose access is
        // volatile. It ends after its guard.
        mapping.guard = Some(unsafe { BusGuard::new(start.cast(), length)? });
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.guard = None;
        let start = self.start as *mut libc::c_void;
        // First by parts: while a mapping of a whole guest ends, no other thread gets memory from the system.
        for at in (0..self.length).step_by(EMPTIED_AT_ONCE) {
            let length = EMPTIED_AT_ONCE.min(self.length - at);
            // SAFETY: within the mapping, which nothing uses any more. If it fails, the end takes longer.
            let _ = unsafe { madvise(start.wrapping_byte_add(at), length, Advice::LinuxDontNeed) };
        }
        // SAFETY: nothing uses the mapping any more: each part that had it had a share of this.
        if let Err(error) = unsafe { munmap(start, self.length) } {
            tracing::warn!("guest memory stays mapped: {error}");
        }
    }
}

/// A part of a guest's memory, or another region that the front end shares.
#[derive(Debug, Clone)]
pub(crate) struct SharedRegion {
    start: GuestAddress,
    length: usize,
    mapping: Arc<Mapping>,
}

impl SharedRegion {
    /// Maps a part of a file, as memory from `start` on.
    ///
    /// # Errors
    /// When the file is shorter or not of the kernel's memory, at a bound, or when the system refuses.
    pub(crate) fn map(
        account: &MemoryAccount,
        start: u64,
        file: &File,
        offset: u64,
        length: u64,
    ) -> io::Result<Self> {
        let mapping = Arc::new(Mapping::new(account, file, offset, length)?);
        // It has been mapped.
        Ok(Self { start: GuestAddress(start), length: length as usize, mapping })
    }

    fn mapped(&self) -> io::Result<GuestRegionMmap> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        let (access, flags) = (access.bits().cast_signed(), flags.bits().cast_signed());
        // SAFETY: the range is mapped for as long as `mapping` lives, which `GuestMemory` has a share of.
        let mapped =
            unsafe { MmapRegion::build_raw(self.mapping.start as *mut u8, self.length, access, flags) };
        let region = GuestRegionMmap::new(mapped.map_err(io::Error::other)?, self.start);
        region.ok_or_else(|| io::Error::other("a memory region lies beyond all addresses"))
    }
}

/// The memory of a guest, by its physical addresses.
#[derive(Debug, Clone)]
pub struct GuestMemory {
    mapped: GuestMemoryMmap,
    regions: Vec<SharedRegion>,
}

impl GuestMemory {
    /// Memory of regions that do not overlap.
    ///
    /// # Errors
    /// When they do.
    pub(crate) fn new(mut regions: Vec<SharedRegion>) -> io::Result<Self> {
        regions.sort_by_key(|region| region.start);
        let mapped = regions.iter().map(SharedRegion::mapped).collect::<io::Result<_>>()?;
        let mapped = GuestMemoryMmap::from_regions(mapped).map_err(io::Error::other)?;
        Ok(Self { mapped, regions })
    }

    /// Memory of this process alone, for tests.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn anonymous(length: u64) -> Self {
        let ranges = [(GuestAddress(0), length as usize)];
        let mapped = GuestMemoryMmap::from_ranges(&ranges).expect("there is memory");
        Self { mapped, regions: Vec::new() }
    }

    /// Not to be cloned: the clone would outlive the mappings.
    pub(crate) fn mapped(&self) -> &GuestMemoryMmap {
        &self.mapped
    }

    /// Returns true if some of it is gone, and zeros are in its place.
    pub(crate) fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.guard.as_ref().is_some_and(BusGuard::is_lost))
    }
}

/// The calling thread's waits since its start, for such as a page of guest memory, and its other time.
#[derive(Debug, Clone, Copy)]
pub struct ThreadTime {
    waits: u64,
    /// It worked, or was ready to and had no processor.
    awake: Duration,
}

impl ThreadTime {
    /// `None` if the kernel does not tell.
    #[must_use]
    pub fn now() -> Option<Self> {
        thread_local! {
            static WAITED_FOR_PROCESSOR: Option<File> = File::open("/proc/thread-self/schedstat").ok();
        }
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel writes one `rusage` to `usage`, which is zeros if it fails; both are valid.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        // The first field of the file is a clock tick behind (sched-stats.rst).
        let worked = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).ok()?;
        let without_processor = WAITED_FOR_PROCESSOR.with(|file| {
            let mut text = [0; 64];
            let length = file.as_ref()?.read_at(&mut text, 0).ok()?;
            str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
        })?;
        let awake = worked + Duration::from_nanos(without_processor);
        Some(Self { waits: usage.ru_nvcsw.unsigned_abs(), awake })
    }

    /// Returns how much of the `time` from `before` to now the thread has waited. Interrupts are no waits.
    #[must_use]
    pub fn waited(&self, before: &Self, time: Duration) -> Duration {
        let has_waited = self.waits > before.waits;
        if has_waited { time.saturating_sub(self.awake.saturating_sub(before.awake)) } else { Duration::ZERO }
    }
}

/// A region, and the address where the front end has it.
#[derive(Debug, Clone)]
struct TableEntry {
    region: SharedRegion,
    user: u64,
}

/// The regions that a front end has shared.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryTable {
    entries: Vec<TableEntry>,
}

impl MemoryTable {
    /// Takes another region.
    ///
    /// # Errors
    /// When there are too many, or it cannot be mapped.
    pub(crate) fn add(
        &mut self,
        account: &MemoryAccount,
        region: &VhostUserMemoryRegion,
        file: &File,
    ) -> io::Result<()> {
        if self.entries.len() >= MOST_REGIONS {
            return Err(io::Error::other("the front end shares too many regions of memory"));
        }
        let VhostUserMemoryRegion { guest_phys_addr, memory_size, user_addr, mmap_offset } = *region;
        let region = SharedRegion::map(account, guest_phys_addr, file, mmap_offset, memory_size)?;
        self.entries.push(TableEntry { region, user: user_addr });
        Ok(())
    }

    /// Forgets a region; says whether it was there.
    pub(crate) fn remove(&mut self, region: &VhostUserMemoryRegion) -> bool {
        let VhostUserMemoryRegion { guest_phys_addr, memory_size, user_addr, .. } = *region;
        let before = self.entries.len();
        self.entries.retain(|entry| {
            let SharedRegion { start, length, .. } = entry.region;
            (start.0, length as u64, entry.user) != (guest_phys_addr, memory_size, user_addr)
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
            .find(|entry| user >= entry.user && user - entry.user < entry.region.length as u64)?;
        Some(GuestAddress(entry.region.start.0.checked_add(user - entry.user)?))
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
        let (mut table, account) = (MemoryTable::default(), MemoryAccount::default());
        let region = |start, user| VhostUserMemoryRegion::new(start, 1 << 16, user, 0);
        table.add(&account, &region(0, 1 << 40), &taken).unwrap();
        table.add(&account, &region(1 << 20, 2 << 40), &kept).unwrap();
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
        let (mut table, account) = (MemoryTable::default(), MemoryAccount::default());
        let mut add = |start, length, user, offset| {
            let region = VhostUserMemoryRegion::new(start, length, user, offset);
            table.add(&account, &region, &shared(8192)).map(|()| table.memory().is_ok())
        };
        assert!(add(0, 8192, 0, 4096).is_err());
        assert!(add(0, 8192, 1 << 40, 0).unwrap());
        assert!(!add(4096, 8192, 2 << 40, 0).unwrap());
        assert_eq!(table.guest_address((1 << 40) + 8191), Some(GuestAddress(8191)));
        assert_eq!(table.guest_address(3 << 40), None);
    }

    #[test]
    fn memory_that_a_file_system_delivers_is_refused() {
        let account = MemoryAccount::default();
        for path in ["/proc/self/status", "/dev/zero"] {
            let file = File::open(path).unwrap();
            let refused = SharedRegion::map(&account, 0, &file, 0, 4096).unwrap_err().to_string();
            assert!(refused.starts_with("guest memory must be a memfd"), "{refused}");
        }
    }
}
