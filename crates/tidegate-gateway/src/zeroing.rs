//! Zeroing and trimming of ranges: in slices, each charged with its cost as far as that is known.
//!
//! Storage that can mark a range does in a millisecond what takes a minute where zeros are written. The
//! protocol has one request for both, of up to 4 GiB. So such a request is carried out slice by slice. Each
//! slice waits for its turn like a request of its own. Limits, shares and buckets see it, and other requests
//! go in between. The slices that remain end with their session. A slice that is marked counts as one I/O. A
//! slice that is written, or may be, counts by its bytes.
//!
//! The gateway learns the abilities of the storage. The first slice is short and counts by its bytes. If the
//! storage turns out to be unable to mark, zeros are written from then on. Storage that takes longer than
//! writing would is taken to write, for a while.

use std::time::Duration;

use tidegate_nbd::CheckedOperation;
use tidegate_units::Instant;

/// The zeros that are written at once where the storage cannot make a range zero by itself.
pub(crate) const ZEROES: u32 = 256 * 1024;

/// A slice that counts by its bytes and is left to the storage. Long enough that a round trip of 1 ms to
/// another server costs nothing, short enough that others wait no longer for it than for a large write
/// (chosen).
const CHARGED: u32 = 1 << 20;

/// The longest slice that counts as one I/O. Sixty-four of them are the longest request (chosen).
const LONGEST: u32 = 64 << 20;

/// Slices grow by this factor while the storage is quick.
const GROWTH: u32 = 2;

/// The part of a slice that one I/O pays for ([`tidegate_sched::CostModel`]), and the greatest block of any
/// storage.
const ONE_IO: u32 = 64 * 1024;

/// Blocks below this size are written: devices mark none smaller, and refuse.
const BLOCK: u64 = 4096;

/// Storage writes about this fast at most. Whatever takes longer than this, and than any single I/O on
/// storage that is not overloaded, may be writing (chosen: of arrays and NVMe devices the writes that cost
/// others anything).
const WRITES_PER_S: u64 = 1 << 30;
const ANY_IO: Duration = Duration::from_millis(50);

/// After this time slow storage is tried again: it may have been busy with others.
const SLOW_FOR: Duration = Duration::from_secs(60);

/// The mechanism that carries a slice out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZeroingMethod {
    /// The range is marked as zero or unused. The storage says so if it cannot.
    Mark,
    /// The storage makes it zero by whatever it has for that, and keeps the space allocated if it is to.
    Allocate,
    /// Zeros are written: a file's by the gateway, an upstream's by the upstream.
    Write,
    /// Not a range: a read or a write with its payload.
    Transfer,
}

/// The part of a request that is carried out at once: its bytes from `from` to `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestSlice {
    pub(crate) from: u32,
    pub(crate) until: u32,
    pub(crate) method: ZeroingMethod,
    /// The bytes that it counts for; none: one I/O.
    pub(crate) charged: u32,
}

impl RequestSlice {
    /// All of a request that moves data.
    pub(crate) fn whole(length: u32) -> Self {
        Self { from: 0, until: length, method: ZeroingMethod::Transfer, charged: length }
    }
}

/// The kinds of storage, by the part that writes zeros and by what the storage tells about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZeroingStorage {
    /// A file system or block device, which refuses to mark a range that it would have to write.
    File,
    /// A server that refuses, when asked to, zeroing a range that it would have to write.
    FastZeroes,
    /// A server that says nothing of it.
    Silent,
    /// A model: marking costs as much as the model says.
    Emulated,
}

/// The knowledge about the storage's ability to mark ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marking {
    /// It works, or is tried, with slices of up to this length.
    Quick { length: u32, proven: bool },
    /// It works, and takes as long as writing.
    Slow { until: Instant },
    /// The storage cannot.
    Impossible,
}

impl Marking {
    const UNTRIED: Self = Self::Quick { length: CHARGED, proven: false };

    fn at(&mut self, now: Instant) -> Self {
        if matches!(self, Self::Slow { until } if *until <= now) {
            *self = Self::UNTRIED;
        }
        *self
    }

    fn took(&mut self, length: u32, time: Duration, now: Instant) {
        let writing = Duration::from_nanos(u64::from(length) * 1_000_000_000 / WRITES_PER_S);
        match self {
            Self::Quick { .. } | Self::Slow { .. } if time > ANY_IO + writing => {
                *self = Self::Slow { until: now + SLOW_FOR };
            }
            Self::Quick { length: longest, proven } => {
                // Only what was as long as it may be says something of longer ones.
                if length >= *longest / 2 {
                    *longest = longest.saturating_mul(GROWTH).min(LONGEST);
                }
                *proven = true;
            }
            Self::Slow { .. } | Self::Impossible => {}
        }
    }
}

/// The behaviour of an export's storage with ranges, as far as it is known.
#[derive(Debug)]
pub(crate) struct ZeroingBehaviour {
    storage: ZeroingStorage,
    zeroes: Marking,
    trims: Marking,
    /// The storage can make a range zero and keep it allocated.
    allocates: bool,
}

impl ZeroingBehaviour {
    pub(crate) fn new(storage: ZeroingStorage) -> Self {
        let zeroes = match storage {
            ZeroingStorage::Silent => Marking::Impossible,
            ZeroingStorage::File | ZeroingStorage::FastZeroes => Marking::UNTRIED,
            ZeroingStorage::Emulated => Marking::Quick { length: LONGEST, proven: true },
        };
        let trims = if storage == ZeroingStorage::Emulated { zeroes } else { Marking::UNTRIED };
        Self { storage, zeroes, trims, allocates: true }
    }

    /// The next slice of an operation of which `done` bytes are done.
    pub(crate) fn slice(&mut self, operation: &CheckedOperation, done: u32, now: Instant) -> RequestSlice {
        match *operation {
            CheckedOperation::Read { length, .. } | CheckedOperation::Write { length, .. } => {
                RequestSlice::whole(length)
            }
            CheckedOperation::Trim { offset, length, .. } => {
                let at = Place { offset, length, done };
                match self.trims.at(now) {
                    Marking::Quick { length, proven } => at.marked(length, proven),
                    Marking::Slow { .. } | Marking::Impossible => at.charged(CHARGED, ZeroingMethod::Mark),
                }
            }
            CheckedOperation::WriteZeroes { offset, length, no_hole, .. } => {
                self.zeroes_at(&Place { offset, length, done }, no_hole, now)
            }
            CheckedOperation::Flush | CheckedOperation::Disconnect => unreachable!("not scheduled requests"),
        }
    }

    fn zeroes_at(&mut self, at: &Place, no_hole: bool, now: Instant) -> RequestSlice {
        let file = self.storage == ZeroingStorage::File;
        let writing = if file { ZEROES } else { CHARGED };
        if file && let Some(edge) = at.edge() {
            return edge;
        }
        let slice = match (no_hole, self.zeroes.at(now)) {
            (true, _) if self.allocates => at.charged(CHARGED, ZeroingMethod::Allocate),
            (true, _) | (false, Marking::Impossible) => at.charged(writing, ZeroingMethod::Write),
            (false, Marking::Quick { length, proven }) => at.marked(length, proven),
            (false, Marking::Slow { .. }) => at.charged(CHARGED, ZeroingMethod::Mark),
        };
        if file { at.in_blocks(slice) } else { slice }
    }

    /// A slice is about to be carried out. One that counts as a single I/O, and was sliced before the storage
    /// turned out to be slow, becomes as short as it has paid for.
    pub(crate) fn dispatched(
        &mut self,
        operation: &CheckedOperation,
        slice: &mut RequestSlice,
        now: Instant,
    ) {
        if slice.method != ZeroingMethod::Mark || slice.charged > 0 {
            return;
        }
        if let Some((offset, marking)) = self.marking_of(operation)
            && matches!(marking.at(now), Marking::Slow { .. })
        {
            slice.until = Place { offset, length: slice.until, done: slice.from }.until(ONE_IO);
        }
    }

    /// A slice was carried out in this time.
    pub(crate) fn carried_out(
        &mut self,
        operation: &CheckedOperation,
        slice: RequestSlice,
        time: Duration,
        now: Instant,
    ) {
        if slice.method == ZeroingMethod::Mark
            && self.storage != ZeroingStorage::Emulated
            && let Some((_, marking)) = self.marking_of(operation)
        {
            marking.took(slice.until - slice.from, time, now);
        }
    }

    /// The storage cannot carry out slices of zeroes by this method.
    pub(crate) fn cannot(&mut self, method: ZeroingMethod) {
        match method {
            ZeroingMethod::Mark => self.zeroes = Marking::Impossible,
            ZeroingMethod::Allocate => self.allocates = false,
            ZeroingMethod::Write | ZeroingMethod::Transfer => {}
        }
    }

    fn marking_of(&mut self, operation: &CheckedOperation) -> Option<(u64, &mut Marking)> {
        match *operation {
            CheckedOperation::Trim { offset, .. } => Some((offset, &mut self.trims)),
            CheckedOperation::WriteZeroes { offset, .. } => Some((offset, &mut self.zeroes)),
            CheckedOperation::Read { .. }
            | CheckedOperation::Write { .. }
            | CheckedOperation::Flush
            | CheckedOperation::Disconnect => None,
        }
    }
}

/// A range, and how far it is.
struct Place {
    offset: u64,
    length: u32,
    done: u32,
}

impl Place {
    fn marked(&self, longest: u32, proven: bool) -> RequestSlice {
        let slice = self.charged(longest, ZeroingMethod::Mark);
        if proven { RequestSlice { charged: 0, ..slice } } else { slice }
    }

    fn charged(&self, longest: u32, method: ZeroingMethod) -> RequestSlice {
        let until = self.until(longest);
        RequestSlice { from: self.done, until, method, charged: until - self.done }
    }

    /// The end of a slice of at most `longest` bytes, a power of two. It is a multiple of that, except for
    /// the last one: so slices are as well aligned as the request is.
    fn until(&self, longest: u32) -> u32 {
        let start = self.offset + u64::from(self.done);
        let end = (start + 1).next_multiple_of(u64::from(longest));
        let left = u64::from(self.length - self.done);
        // Not more than is left, which is at most the length.
        self.done + (end - start).min(left) as u32
    }

    /// The whole blocks of a slice that begins with one and holds one.
    fn in_blocks(&self, slice: RequestSlice) -> RequestSlice {
        let beyond = ((self.offset + u64::from(slice.until)) % BLOCK) as u32;
        let charged = slice.charged.saturating_sub(beyond);
        RequestSlice { until: slice.until - beyond, charged, ..slice }
    }

    /// Returns the slice before the first whole block, or after the last.
    fn edge(&self) -> Option<RequestSlice> {
        let start = self.offset + u64::from(self.done);
        let is_edge = !start.is_multiple_of(BLOCK) || u64::from(self.length - self.done) < BLOCK;
        is_edge.then(|| self.charged(BLOCK as u32, ZeroingMethod::Write))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u32 = 1 << 20;
    const GIB: u32 = 1 << 30;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn zeroes(offset: u64, length: u32) -> CheckedOperation {
        CheckedOperation::WriteZeroes { offset, length, fua: false, no_hole: false, fast: false }
    }

    fn trim(length: u32) -> CheckedOperation {
        CheckedOperation::Trim { offset: 0, length, fua: false }
    }

    /// Carries an operation out, `time` for each GiB that is marked. Returns the charge, in bytes and in
    /// I/Os.
    fn carry_out(
        zeroing: &mut ZeroingBehaviour,
        operation: &CheckedOperation,
        length: u32,
        time: Duration,
    ) -> (u64, u64) {
        let (mut done, mut charged, mut ios) = (0, 0, 0);
        while done < length {
            let slice = zeroing.slice(operation, done, at(1));
            zeroing.carried_out(
                operation,
                slice,
                time.mul_f64(f64::from(slice.until - done) / f64::from(GIB)),
                at(1),
            );
            charged += u64::from(slice.charged);
            (ios, done) = (ios + 1, slice.until);
        }
        (charged, ios)
    }

    #[test]
    fn where_marking_is_quick_only_the_first_slice_counts_by_its_bytes() {
        let mut zeroing = ZeroingBehaviour::new(ZeroingStorage::File);
        let quick = Duration::from_millis(10);
        assert_eq!(carry_out(&mut zeroing, &zeroes(0, GIB), GIB, quick).0, u64::from(MIB));
        let (charged, ios) = carry_out(&mut zeroing, &zeroes(0, u32::MAX), u32::MAX, quick);
        // The last bytes are less than a block, and written.
        assert_eq!((charged, ios), (4095, 65));
    }

    #[test]
    fn where_the_storage_cannot_mark_every_byte_counts() {
        let mut zeroing = ZeroingBehaviour::new(ZeroingStorage::File);
        assert_eq!(zeroing.slice(&zeroes(0, GIB), 0, at(0)).method, ZeroingMethod::Mark);
        zeroing.cannot(ZeroingMethod::Mark);
        let slice = zeroing.slice(&zeroes(0, GIB), 0, at(0));
        assert_eq!(
            slice,
            RequestSlice { from: 0, until: ZEROES, method: ZeroingMethod::Write, charged: ZEROES }
        );
        assert_eq!(carry_out(&mut zeroing, &zeroes(0, GIB), GIB, Duration::ZERO).0, u64::from(GIB));
        assert_eq!(
            carry_out(
                &mut ZeroingBehaviour::new(ZeroingStorage::Silent),
                &zeroes(0, GIB),
                GIB,
                Duration::ZERO
            )
            .0,
            u64::from(GIB),
            "a server that does not say"
        );
    }

    #[test]
    fn zeroes_that_stay_allocated_count_by_their_bytes_always() {
        let mut zeroing = ZeroingBehaviour::new(ZeroingStorage::File);
        let kept =
            CheckedOperation::WriteZeroes { offset: 0, length: GIB, fua: false, no_hole: true, fast: false };
        assert_eq!(zeroing.slice(&kept, 0, at(0)).method, ZeroingMethod::Allocate);
        assert_eq!(carry_out(&mut zeroing, &kept, GIB, Duration::ZERO).0, u64::from(GIB));
        zeroing.cannot(ZeroingMethod::Allocate);
        assert_eq!(zeroing.slice(&kept, 0, at(0)).method, ZeroingMethod::Write);
        assert_eq!(
            zeroing.slice(&zeroes(0, GIB), 0, at(0)).method,
            ZeroingMethod::Mark,
            "that is another matter"
        );
    }

    #[test]
    fn storage_that_marks_as_slowly_as_it_writes_is_charged_like_one_that_writes_for_a_while() {
        for storage in [ZeroingStorage::File, ZeroingStorage::FastZeroes, ZeroingStorage::Silent] {
            let mut zeroing = ZeroingBehaviour::new(storage);
            // 200 MB/s.
            let (charged, _) = carry_out(&mut zeroing, &trim(GIB), GIB, Duration::from_secs(5));
            assert!(charged >= u64::from(GIB - 32 * MIB), "{storage:?}: {charged}");
            let mut early = RequestSlice { from: 0, until: LONGEST, method: ZeroingMethod::Mark, charged: 0 };
            zeroing.dispatched(&trim(GIB), &mut early, at(1));
            assert_eq!(early.until, ONE_IO, "one that was queued before");
            assert_eq!(zeroing.slice(&trim(GIB), 0, at(60)).charged, MIB);
            carry_out(&mut zeroing, &trim(MIB), MIB, Duration::ZERO);
            assert_eq!(zeroing.slice(&trim(GIB), 0, at(1)).charged, MIB, "one quick slice proves nothing");
            assert!(matches!(zeroing.trims.at(at(61)), Marking::Quick { proven: false, .. }), "tried again");
        }
    }

    proptest! {
        /// Slices follow each other without a gap, and none is longer than it may be. Slices that are marked
        /// or allocated in a file are whole blocks.
        #[test]
        fn slices_cover_the_range(
            offset in 0u64..3 * u64::from(MIB), length in 1u32..300 * MIB, no_hole in any::<bool>(),
                cannot in 0u32..40,
        ) {
            let mut zeroing = ZeroingBehaviour::new(ZeroingStorage::File);
            let operation = CheckedOperation::WriteZeroes { offset, length, fua: false, no_hole,
                fast: false };
            let (mut done, mut slices) = (0, 0);
            while done < length {
                let slice = zeroing.slice(&operation, done, at(0));
                prop_assert!(slice.from == done && slice.until > done && slice.until <= length);
                let bytes = slice.until - slice.from;
                let longest = if slice.charged > 0 { CHARGED } else { LONGEST };
                prop_assert!(bytes <= longest);
                prop_assert!(slice.charged == 0 || slice.charged == bytes);
                prop_assert!(slice.method != ZeroingMethod::Write
                    || (slice.charged == bytes && bytes <= ZEROES));
                let whole = (offset + u64::from(slice.from)).is_multiple_of(BLOCK)
                    && (offset + u64::from(slice.until)).is_multiple_of(BLOCK);
                prop_assert!(slice.method == ZeroingMethod::Write || whole);
                slices += 1;
                if slices == cannot {
                    zeroing.cannot(slice.method);
                } else {
                    zeroing.carried_out(&operation, slice, Duration::ZERO, at(0));
                    done = slice.until;
                }
            }
        }
    }
}
