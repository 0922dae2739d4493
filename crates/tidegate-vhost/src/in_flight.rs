//! The requests in flight, in memory that outlives this process: the front end keeps it, and gives it to the
//! next gateway, which does again what was not completed.
//!
//! Layout and order of the updates are those of the vhost-user specification ("Inflight I/O tracking", split
//! virtqueue). Each completion goes in steps, and a process may die between any two of them:
//!
//! 1. [`before_used`](RingRecord::before_used): the head is noted as the last one;
//! 2. the used ring is updated;
//! 3. [`after_used`](RingRecord::after_used): the head is no longer in flight, then the used index is noted.
//!
//! If the indexes differ at the next start, step 2 was done and 3 was not: the head is complete.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use vm_memory::{Bytes, GuestAddress, GuestMemoryError};

use crate::budget::MemoryAccount;
use crate::features::{LONGEST_RING, MOST_QUEUES};
use crate::memory::{GuestMemory, SharedRegion};

const HEADER: u64 = 16;
const ENTRY: u64 = 16;
/// Rings begin at multiples of this, so that no two share a line of the cache.
const ALIGNMENT: u64 = 64;
/// The layout that is known. Zero: a region that is new.
const VERSION: u16 = 1;

// Offsets in a ring's header and in an entry.
/// The specification calls these eight bytes "features", and has none yet. A record keeps the number of its
/// volume there. Zero: an earlier version of the program has made the record.
const VOLUME_AT: u64 = 0;
const VERSION_AT: u64 = 8;
const LENGTH_AT: u64 = 10;
const LAST_AT: u64 = 12;
const USED_AT: u64 = 14;
const COUNTER_AT: u64 = 8;

const OTHER_VOLUME: &str = "the virtual machine has had another volume, and would write to this one what belongs \
     there: give the export its volume back and restart the service, or end the virtual machine and start it anew";

fn bytes_of_ring(length: u16) -> u64 {
    (HEADER + ENTRY * u64::from(length)).next_multiple_of(ALIGNMENT)
}

/// A region for all rings of a device.
#[derive(Debug)]
pub(crate) struct InFlightRegion {
    memory: GuestMemory,
    queues: u16,
    /// The longest ring that has room.
    length: u16,
    volume: u64,
}

impl InFlightRegion {
    /// The file of a new region, and its size. Each ring has room for the longest ring that there may be,
    /// because the length that a front end announces is no bound: QEMU 10 announces 128 descriptors, and its
    /// guest makes a ring of 1,024.
    ///
    /// # Errors
    /// When there are to be too many rings, or the system has no memory.
    pub(crate) fn create(queues: u16) -> io::Result<(File, u64)> {
        let size = size_of_region(queues, LONGEST_RING)?;
        let file = memfd_create("tidegate-in-flight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, size)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((file.into(), size))
    }

    /// A region that the front end has kept, or one that is new. A region without room for the longest ring
    /// was made by an earlier program for rings of the announced `length`.
    ///
    /// # Errors
    /// When it is too small for its rings, cannot be mapped, or was kept for another volume: the guest would
    /// write there what it believes to be on its own disk.
    pub(crate) fn open(
        account: &MemoryAccount,
        file: &File,
        offset: u64,
        size: u64,
        queues: u16,
        length: u16,
        volume: u64,
    ) -> io::Result<Self> {
        if size < size_of_region(queues, length)? {
            return Err(io::Error::other("the region for requests in flight is too small for its rings"));
        }
        let length = if size < size_of_region(queues, LONGEST_RING)? { length } else { LONGEST_RING };
        let needed = size_of_region(queues, length)?;
        let memory = GuestMemory::new(vec![SharedRegion::map(account, 0, file, offset, needed)?])?;
        let region = Self { memory, queues, length, volume };
        let records = (0..queues).filter_map(|index| region.ring(index, length.min(region.length)));
        for record in records {
            if record.is_of_another_volume().map_err(io::Error::other)? {
                return Err(io::Error::other(OTHER_VOLUME));
            }
        }
        Ok(region)
    }

    /// The record of one ring; `None` if the region has none that is long enough.
    pub(crate) fn ring(&self, index: u16, length: u16) -> Option<RingRecord> {
        let fits = index < self.queues && length <= self.length;
        let base = u64::from(index) * bytes_of_ring(self.length);
        let (memory, volume) = (self.memory.clone(), self.volume);
        fits.then(|| RingRecord { memory, base, length, volume, counter: 0 })
    }
}

fn size_of_region(queues: u16, length: u16) -> io::Result<u64> {
    if queues == 0 || queues > MOST_QUEUES || length == 0 || length > LONGEST_RING {
        return Err(io::Error::other(format!("no device has {queues} rings of {length} descriptors")));
    }
    Ok(u64::from(queues) * bytes_of_ring(length))
}

/// The requests in flight of one ring.
#[derive(Debug)]
pub(crate) struct RingRecord {
    memory: GuestMemory,
    base: u64,
    length: u16,
    volume: u64,
    /// Numbers requests in the order in which they came.
    counter: u64,
}

type Recorded = Result<(), GuestMemoryError>;

impl RingRecord {
    fn is_of_another_volume(&self) -> Result<bool, GuestMemoryError> {
        let mapped = self.memory.mapped();
        let version: u16 = mapped.load(GuestAddress(self.base + VERSION_AT), Ordering::Acquire)?;
        let volume: u64 = mapped.load(GuestAddress(self.base + VOLUME_AT), Ordering::Relaxed)?;
        Ok(version == VERSION && volume != 0 && volume != self.volume)
    }

    /// Begins or goes on with a record. Returns the heads that were in flight, in the order in which they
    /// came. `used` is the index in the used ring.
    pub(crate) fn recover(&mut self, used: u16) -> Result<Vec<u16>, GuestMemoryError> {
        let mapped = self.memory.mapped();
        let header = |at: u64| GuestAddress(self.base + at);
        mapped.store(self.volume, header(VOLUME_AT), Ordering::Relaxed)?;
        let version: u16 = mapped.load(header(VERSION_AT), Ordering::Acquire)?;
        if version != VERSION {
            for head in 0..self.length {
                mapped.store(0u8, self.entry(head), Ordering::Relaxed)?;
            }
            mapped.store(self.length, header(LENGTH_AT), Ordering::Relaxed)?;
            mapped.store(used, header(USED_AT), Ordering::Relaxed)?;
            mapped.store(VERSION, header(VERSION_AT), Ordering::Release)?;
            return Ok(Vec::new());
        }
        let noted: u16 = mapped.load(header(USED_AT), Ordering::Acquire)?;
        if noted != used {
            let last: u16 = mapped.load(header(LAST_AT), Ordering::Acquire)?;
            if last < self.length {
                mapped.store(0u8, self.entry(last), Ordering::Release)?;
            }
            mapped.store(used, header(USED_AT), Ordering::Release)?;
        }
        let mut heads = Vec::new();
        for head in 0..self.length {
            if mapped.load::<u8>(self.entry(head), Ordering::Acquire)? == 1 {
                let at = GuestAddress(self.entry(head).0 + COUNTER_AT);
                heads.push((mapped.load::<u64>(at, Ordering::Relaxed)?, head));
            }
        }
        heads.sort_unstable();
        self.counter = heads.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        Ok(heads.into_iter().map(|(_, head)| head).collect())
    }

    /// Notes that a request was taken out of the ring.
    pub(crate) fn taken(&mut self, head: u16) -> Recorded {
        let mapped = self.memory.mapped();
        let entry = self.entry(head);
        mapped.store(self.counter, GuestAddress(entry.0 + COUNTER_AT), Ordering::Relaxed)?;
        mapped.store(1u8, entry, Ordering::Release)?;
        self.counter = self.counter.wrapping_add(1);
        Ok(())
    }

    /// Notes the request that is about to be completed.
    pub(crate) fn before_used(&self, head: u16) -> Recorded {
        self.memory.mapped().store(head, GuestAddress(self.base + LAST_AT), Ordering::SeqCst)
    }

    /// Notes that a request was completed; `used` is the index in the used ring after that.
    pub(crate) fn after_used(&self, head: u16, used: u16) -> Recorded {
        let mapped = self.memory.mapped();
        mapped.store(0u8, self.entry(head), Ordering::SeqCst)?;
        mapped.store(used, GuestAddress(self.base + USED_AT), Ordering::SeqCst)
    }

    fn entry(&self, head: u16) -> GuestAddress {
        GuestAddress(self.base + HEADER + ENTRY * u64::from(head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: u64 = 7;

    fn open(file: &File, size: u64, queues: u16, length: u16, volume: u64) -> io::Result<InFlightRegion> {
        InFlightRegion::open(&MemoryAccount::default(), file, 0, size, queues, length, volume)
    }

    fn region(file: &File, size: u64) -> InFlightRegion {
        open(file, size, 2, 128, VOLUME).unwrap()
    }

    #[test]
    fn a_successor_finds_what_was_in_flight_in_its_order() {
        let (file, size) = InFlightRegion::create(2).unwrap();
        let mut first = region(&file, size).ring(1, 128).unwrap();
        assert!(first.recover(7).unwrap().is_empty());
        for head in [5, 3, 9] {
            first.taken(head).unwrap();
        }
        first.before_used(3).unwrap();
        first.after_used(3, 8).unwrap();
        let mut second = region(&file, size).ring(1, 128).unwrap();
        assert_eq!(second.recover(8).unwrap(), [5, 9]);
        second.taken(1).unwrap();
        assert_eq!(region(&file, size).ring(1, 128).unwrap().recover(8).unwrap(), [5, 9, 1]);
        assert!(region(&file, size).ring(0, 128).unwrap().recover(0).unwrap().is_empty(), "another ring");
    }

    #[test]
    fn a_ring_longer_than_announced_has_its_record() {
        let (file, size) = InFlightRegion::create(2).unwrap();
        for (ring, head) in [(0, LONGEST_RING - 1), (1, 0)] {
            let mut record = region(&file, size).ring(ring, LONGEST_RING).unwrap();
            record.recover(0).unwrap();
            record.taken(head).unwrap();
        }
        let left = |ring| region(&file, size).ring(ring, LONGEST_RING).unwrap().recover(0).unwrap();
        assert_eq!([left(0), left(1)], [vec![LONGEST_RING - 1], vec![0]]);
    }

    #[test]
    fn a_region_made_for_the_announced_length_keeps_its_layout() {
        let (file, size) = InFlightRegion::create(2).unwrap();
        let small = size_of_region(2, 128).unwrap();
        assert!(small < size);
        let record = region(&file, small).ring(1, 128).unwrap();
        assert_eq!(record.base, bytes_of_ring(128));
        assert!(region(&file, small).ring(1, 256).is_none());
    }

    #[test]
    fn a_death_between_any_two_steps_of_a_completion_neither_loses_nor_doubles_it() {
        for steps in 0..4 {
            let (file, size) = InFlightRegion::create(2).unwrap();
            let mut ring = region(&file, size).ring(0, 128).unwrap();
            ring.recover(0).unwrap();
            ring.taken(5).unwrap();
            ring.taken(6).unwrap();
            let mut used = 0;
            if steps > 0 {
                ring.before_used(5).unwrap();
            }
            if steps > 1 {
                used = 1;
            }
            if steps > 2 {
                // The first half of `after_used`.
                let entry = ring.entry(5);
                ring.memory.mapped().store(0u8, entry, Ordering::SeqCst).unwrap();
            }
            let left = region(&file, size).ring(0, 128).unwrap().recover(used).unwrap();
            assert_eq!(left, if used == 1 { vec![6] } else { vec![5, 6] }, "{steps} steps");
        }
    }

    #[test]
    fn a_record_is_gone_on_with_only_over_its_volume() {
        let (file, size) = InFlightRegion::create(2).unwrap();
        let open = |volume| open(&file, size, 2, 128, volume);
        open(8).unwrap();
        region(&file, size).ring(1, 128).unwrap().recover(0).unwrap();
        assert!(open(8).unwrap_err().to_string().contains("another volume"));
        // The record of an earlier version does not say, and says it from now on.
        let record = open(VOLUME).unwrap().ring(1, 128).unwrap();
        let volume_at = GuestAddress(record.base + VOLUME_AT);
        record.memory.mapped().store(0u64, volume_at, Ordering::Relaxed).unwrap();
        open(8).unwrap().ring(1, 128).unwrap().recover(0).unwrap();
        assert!(open(VOLUME).is_err());
    }

    #[test]
    fn a_region_too_small_or_absurd_is_refused() {
        let (file, size) = InFlightRegion::create(1).unwrap();
        assert!(open(&file, size, 2, LONGEST_RING, VOLUME).is_err());
        assert!(open(&file, size * 2, 1, 128, VOLUME).is_ok(), "what is needed is there");
        for length in [0, LONGEST_RING + 1] {
            assert!(open(&file, size, 1, length, VOLUME).is_err());
        }
        assert!(InFlightRegion::create(0).is_err());
        assert!(InFlightRegion::create(MOST_QUEUES + 1).is_err());
    }
}
