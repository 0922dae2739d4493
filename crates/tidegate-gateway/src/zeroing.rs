//! Zeroing and trimming of ranges: in slices, each charged with its cost as far as that is known.
//!
//! Storage that can mark a range does in a millisecond what takes a minute where zeros are written. The
//! protocol has one request for both, of 4 GiB and more. So such a request is carried out slice by slice.
//! Each slice waits for its turn like a request of its own. Limits, shares and buckets see it, and other
//! requests go in between. The slices that remain end with their session. A slice that is marked counts as
//! one I/O. A slice that is written, or may be, counts by its bytes.
//!
//! The gateway learns the abilities of the storage. The first slice is short and counts by its bytes. If the
//! storage turns out to be unable to mark, zeros are written from then on.
//!
//! Storage that takes longer than writing would may be writing, or busy with others. If it writes, no slice
//! is faster than that. After a slow slice, slices count by their bytes until one is faster than a write
//! could be. If several are slow first, the storage is taken to write, for a while.
//!
//! A client may also ask for zeroes only if that is fast ("fast zero"). Such a request is refused before
//! anything of it is done, unless the storage is known to mark, or will itself refuse to write.
//!
//! Ranges that are to be cached go in slices too. Each is a read, and is charged like one.

use std::time::Duration;

use tidegate_nbd::CheckedOperation;
use tidegate_units::Instant;

use crate::config::MAX_PAYLOAD;

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

/// Storage is taken to write after so many slow slices, one after the other, with none between them that is
/// faster than a write could be (chosen: storage that marks is this slow for a moment, not for three).
const SLOW_SLICES: u8 = 3;

/// After this time slow storage is tried again: it may have been busy with others.
const SLOW_FOR: Duration = Duration::from_secs(60);

/// The mechanism that carries a slice out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SliceMethod {
    /// The range is marked as zero or unused. The storage says so if it cannot.
    Mark,
    /// The storage makes it zero by whatever it has for that, and keeps the space allocated if it is to.
    Allocate,
    /// Zeros are written: a file's by the gateway, an upstream's by the upstream.
    Write,
    /// The range is read, so that the storage has it at hand afterwards.
    Cache,
    /// Not a range: a read or a write with its payload, or a question.
    Transfer,
}

/// The part of a request that is carried out at once: its bytes from `from` to `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestSlice {
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) method: SliceMethod,
    /// The bytes that it counts for; none: one I/O.
    pub(crate) charged: u32,
}

impl RequestSlice {
    /// All of a request that moves data.
    pub(crate) fn whole(length: u32) -> Self {
        Self { from: 0, until: length.into(), method: SliceMethod::Transfer, charged: length }
    }

    /// All of a request that moves nothing: it counts as one I/O.
    pub(crate) fn question(length: u64) -> Self {
        Self { from: 0, until: length, method: SliceMethod::Transfer, charged: 0 }
    }

    /// Returns the number of bytes.
    pub(crate) fn length(&self) -> u64 {
        self.until - self.from
    }
}

/// The kinds of storage, by the part that writes zeros and by what the storage tells about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZeroingStorage {
    /// A file system, which refuses to mark or to allocate a range that it would have to write.
    File,
    /// A block device. It refuses the same for marking, and writes where the range is to stay allocated.
    Device,
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
    /// It works, or is tried, with slices of up to this length. Slices were slow since the last one that was
    /// faster than a write.
    Quick { length: u32, proven: bool, slow: Option<SlowSlices> },
    /// It works, and takes as long as writing.
    Slow { until: Instant },
    /// The storage cannot.
    Impossible,
}

/// Slow slices, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SlowSlices {
    count: u8,
    /// The end of the last one that counted.
    last: Instant,
}

impl Marking {
    const UNTRIED: Self = Self::Quick { length: CHARGED, proven: false, slow: None };

    fn at(&mut self, now: Instant) -> Self {
        if matches!(self, Self::Slow { until } if *until <= now) {
            *self = Self::UNTRIED;
        }
        *self
    }

    fn took(&mut self, length: u64, time: Duration, now: Instant) {
        let writing = Duration::from_nanos(length * 1_000_000_000 / WRITES_PER_S);
        match self {
            Self::Quick { slow, .. } if time > ANY_IO + writing => {
                let before = slow.map_or(0, |slow| slow.count);
                // Slices that waited at the same time may have waited for the same thing: they count once.
                if slow.is_some_and(|slow| now.saturating_since(slow.last) < time) {
                    return;
                }
                *slow = Some(SlowSlices { count: before + 1, last: now });
                if before + 1 == SLOW_SLICES {
                    *self = Self::Slow { until: now + SLOW_FOR };
                }
            }
            Self::Quick { length: longest, proven, slow } => {
                // Only what was as long as it may be says something of longer ones.
                if length >= u64::from(*longest / 2) {
                    *longest = longest.saturating_mul(GROWTH).min(LONGEST);
                }
                *proven = true;
                if time < writing {
                    *slow = None;
                }
            }
            Self::Slow { until } if time > ANY_IO + writing => *until = now + SLOW_FOR,
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
            ZeroingStorage::File | ZeroingStorage::Device | ZeroingStorage::FastZeroes => Marking::UNTRIED,
            ZeroingStorage::Emulated => Marking::Quick { length: LONGEST, proven: true, slow: None },
        };
        let trims = if storage == ZeroingStorage::Emulated { zeroes } else { Marking::UNTRIED };
        Self { storage, zeroes, trims, allocates: true }
    }

    /// The next slice of an operation of which `done` bytes are done.
    pub(crate) fn slice(&mut self, operation: &CheckedOperation, done: u64, now: Instant) -> RequestSlice {
        match *operation {
            CheckedOperation::Read { length, .. } | CheckedOperation::Write { length, .. } => {
                RequestSlice::whole(length)
            }
            CheckedOperation::Trim { offset, length, .. } => {
                let at = Place { offset, length, done };
                match self.trims.at(now) {
                    Marking::Quick { length, proven, slow } => at.marked(length, proven && slow.is_none()),
                    Marking::Slow { .. } | Marking::Impossible => at.charged(CHARGED, SliceMethod::Mark),
                }
            }
            CheckedOperation::WriteZeroes { offset, length, no_hole, .. } => {
                self.zeroes_at(&Place { offset, length, done }, no_hole, now)
            }
            CheckedOperation::Cache { offset, length } => {
                let longest = if self.is_local() { ZEROES } else { CHARGED };
                Place { offset, length, done }.charged(longest, SliceMethod::Cache)
            }
            CheckedOperation::BlockStatus { length, .. } => RequestSlice::question(length),
            CheckedOperation::Flush => RequestSlice::question(0),
            CheckedOperation::Disconnect => unreachable!("not a scheduled request"),
        }
    }

    /// Returns true if an operation is to be done only if that is fast, and it would not be, or that is not
    /// known. Nothing of it is done yet.
    pub(crate) fn refuses(&mut self, operation: &CheckedOperation, now: Instant) -> bool {
        let CheckedOperation::WriteZeroes { offset, length, no_hole, fast: true, .. } = *operation else {
            return false;
        };
        let has_edges = self.is_local() && !(offset | length).is_multiple_of(BLOCK);
        let is_quick = match (self.storage, no_hole) {
            // It is asked itself.
            (ZeroingStorage::FastZeroes, true) => true,
            (ZeroingStorage::File, true) => self.allocates,
            (_, true) | (ZeroingStorage::Silent, false) => false,
            (_, false) => matches!(self.zeroes.at(now), Marking::Quick { .. }),
        };
        has_edges || !is_quick
    }

    /// Returns true if the gateway itself writes the zeros that the storage cannot mark.
    fn is_local(&self) -> bool {
        matches!(self.storage, ZeroingStorage::File | ZeroingStorage::Device)
    }

    fn zeroes_at(&mut self, at: &Place, no_hole: bool, now: Instant) -> RequestSlice {
        let file = self.is_local();
        let writing = if file { ZEROES } else { CHARGED };
        if file && let Some(edge) = at.edge() {
            return edge;
        }
        let slice = match (no_hole, self.zeroes.at(now)) {
            (true, _) if self.allocates => at.charged(CHARGED, SliceMethod::Allocate),
            (true, _) | (false, Marking::Impossible) => at.charged(writing, SliceMethod::Write),
            (false, Marking::Quick { length, proven, slow }) => at.marked(length, proven && slow.is_none()),
            (false, Marking::Slow { .. }) => at.charged(CHARGED, SliceMethod::Mark),
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
        if slice.method != SliceMethod::Mark || slice.charged > 0 {
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
        if slice.method == SliceMethod::Mark
            && self.storage != ZeroingStorage::Emulated
            && let Some((_, marking)) = self.marking_of(operation)
        {
            marking.took(slice.length(), time, now);
        }
    }

    /// The storage cannot carry out slices of zeroes by this method.
    pub(crate) fn cannot(&mut self, method: SliceMethod) {
        match method {
            SliceMethod::Mark => self.zeroes = Marking::Impossible,
            SliceMethod::Allocate => self.allocates = false,
            SliceMethod::Write | SliceMethod::Cache | SliceMethod::Transfer => {}
        }
    }

    fn marking_of(&mut self, operation: &CheckedOperation) -> Option<(u64, &mut Marking)> {
        match *operation {
            CheckedOperation::Trim { offset, .. } => Some((offset, &mut self.trims)),
            CheckedOperation::WriteZeroes { offset, .. } => Some((offset, &mut self.zeroes)),
            CheckedOperation::Read { .. }
            | CheckedOperation::Write { .. }
            | CheckedOperation::Cache { .. }
            | CheckedOperation::BlockStatus { .. }
            | CheckedOperation::Flush
            | CheckedOperation::Disconnect => None,
        }
    }
}

/// A range, and how far it is.
struct Place {
    offset: u64,
    length: u64,
    done: u64,
}

impl Place {
    fn marked(&self, longest: u32, is_trusted: bool) -> RequestSlice {
        if is_trusted {
            RequestSlice { charged: 0, ..self.charged(longest, SliceMethod::Mark) }
        } else {
            // It counts for no more than a write of a client.
            self.charged(longest.min(MAX_PAYLOAD), SliceMethod::Mark)
        }
    }

    fn charged(&self, longest: u32, method: SliceMethod) -> RequestSlice {
        let until = self.until(longest);
        // Not more than `longest`.
        RequestSlice { from: self.done, until, method, charged: (until - self.done) as u32 }
    }

    /// The end of a slice of at most `longest` bytes, a power of two. It is a multiple of that, except for
    /// the last one: so slices are as well aligned as the request is.
    fn until(&self, longest: u32) -> u64 {
        let start = self.offset + self.done;
        let past_start = start % u64::from(longest);
        self.done + (u64::from(longest) - past_start).min(self.length - self.done)
    }

    /// The whole blocks of a slice that begins with one and holds one.
    fn in_blocks(&self, slice: RequestSlice) -> RequestSlice {
        let beyond = (self.offset + slice.until) % BLOCK;
        let charged = slice.charged.saturating_sub(beyond as u32);
        RequestSlice { until: slice.until - beyond, charged, ..slice }
    }

    /// Returns the slice before the first whole block, or after the last.
    fn edge(&self) -> Option<RequestSlice> {
        let start = self.offset + self.done;
        let is_edge = !start.is_multiple_of(BLOCK) || self.length - self.done < BLOCK;
        is_edge.then(|| self.charged(BLOCK as u32, SliceMethod::Write))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn zeroes(offset: u64, length: u64) -> CheckedOperation {
        CheckedOperation::WriteZeroes { offset, length, fua: false, no_hole: false, fast: false }
    }

    fn trim(length: u64) -> CheckedOperation {
        CheckedOperation::Trim { offset: 0, length, fua: false }
    }

    /// Carries an operation out from the first second on, `time` for each GiB that is marked. Returns the
    /// charge, in bytes and in I/Os.
    fn carry_out(
        zeroing: &mut ZeroingBehaviour,
        operation: &CheckedOperation,
        length: u64,
        time: Duration,
    ) -> (u64, u64) {
        let (mut done, mut charged, mut ios, mut now) = (0, 0, 0, at(1));
        while done < length {
            let slice = zeroing.slice(operation, done, now);
            let time = time.mul_f64(slice.length() as f64 / GIB as f64);
            now = now + time;
            zeroing.carried_out(operation, slice, time, now);
            charged += u64::from(slice.charged);
            (ios, done) = (ios + 1, slice.until);
        }
        (charged, ios)
    }

    #[test]
    fn where_marking_is_quick_only_the_first_slice_counts_by_its_bytes() {
        let mut zeroing = ZeroingBehaviour::new(ZeroingStorage::File);
        let quick = Duration::from_millis(10);
        assert_eq!(carry_out(&mut zeroing, &zeroes(0, GIB), GIB, quick).0, MIB);
        let (charged, ios) = carry_out(&mut zeroing, &zeroes(0, u32::MAX.into()), u32::MAX.into(), quick);
        // The last bytes are less than a block, and written.
        assert_eq!((charged, ios), (4095, 65));
    }

    #[test]
    fn where_the_storage_cannot_mark_every_byte_counts() {
        let mut zeroing = ZeroingBehaviour::new(ZeroingStorage::File);
        assert_eq!(zeroing.slice(&zeroes(0, GIB), 0, at(0)).method, SliceMethod::Mark);
        zeroing.cannot(SliceMethod::Mark);
        let slice = zeroing.slice(&zeroes(0, GIB), 0, at(0));
        assert_eq!(
            slice,
            RequestSlice { from: 0, until: ZEROES.into(), method: SliceMethod::Write, charged: ZEROES }
        );
        assert_eq!(carry_out(&mut zeroing, &zeroes(0, GIB), GIB, Duration::ZERO).0, GIB);
        assert_eq!(
            carry_out(
                &mut ZeroingBehaviour::new(ZeroingStorage::Silent),
                &zeroes(0, GIB),
                GIB,
                Duration::ZERO
            )
            .0,
            GIB,
            "a server that does not say"
        );
    }

    #[test]
    fn zeroes_that_stay_allocated_count_by_their_bytes_always() {
        let mut zeroing = ZeroingBehaviour::new(ZeroingStorage::File);
        let kept =
            CheckedOperation::WriteZeroes { offset: 0, length: GIB, fua: false, no_hole: true, fast: false };
        assert_eq!(zeroing.slice(&kept, 0, at(0)).method, SliceMethod::Allocate);
        assert_eq!(carry_out(&mut zeroing, &kept, GIB, Duration::ZERO).0, GIB);
        zeroing.cannot(SliceMethod::Allocate);
        assert_eq!(zeroing.slice(&kept, 0, at(0)).method, SliceMethod::Write);
        assert_eq!(
            zeroing.slice(&zeroes(0, GIB), 0, at(0)).method,
            SliceMethod::Mark,
            "that is another matter"
        );
    }

    #[test]
    fn storage_that_marks_as_slowly_as_it_writes_is_charged_like_one_that_writes_for_a_while() {
        for storage in [ZeroingStorage::File, ZeroingStorage::FastZeroes, ZeroingStorage::Silent] {
            let mut zeroing = ZeroingBehaviour::new(storage);
            // 200 MB/s.
            let (charged, _) = carry_out(&mut zeroing, &trim(GIB), GIB, Duration::from_secs(5));
            assert!(charged >= GIB - 32 * MIB, "{storage:?}: {charged}");
            let mut early =
                RequestSlice { from: 0, until: LONGEST.into(), method: SliceMethod::Mark, charged: 0 };
            zeroing.dispatched(&trim(GIB), &mut early, at(1));
            assert_eq!(early.until, u64::from(ONE_IO), "one that was queued before");
            assert_eq!(zeroing.slice(&trim(GIB), 0, at(60)).charged, CHARGED);
            carry_out(&mut zeroing, &trim(MIB), MIB, Duration::ZERO);
            assert_eq!(
                zeroing.slice(&trim(GIB), 0, at(1)).charged,
                CHARGED,
                "one quick slice proves nothing"
            );
            assert!(matches!(zeroing.trims.at(at(62)), Marking::Quick { proven: false, .. }), "tried again");
        }
    }

    /// A file system that flushes keeps a slice for seconds, and the next ones are quick again.
    #[test]
    fn storage_that_is_busy_for_a_moment_is_not_taken_to_write() {
        const LONG: Duration = Duration::from_secs(2);
        // Of 32 MiB: faster than a write, and as fast as one.
        for (between, writes) in [(Duration::from_millis(1), false), (Duration::from_millis(40), true)] {
            let mut zeroing = ZeroingBehaviour::new(ZeroingStorage::File);
            let range = zeroes(0, GIB);
            carry_out(&mut zeroing, &range, GIB, Duration::from_millis(10));
            let mut now = at(10);
            for round in 0..10 {
                let slow = zeroing.slice(&range, 0, now);
                now = now + LONG;
                // All three waited at the same time.
                for _ in 0..3 {
                    zeroing.carried_out(&range, slow, LONG, now);
                }
                assert_eq!(zeroing.refuses(&fast(0, GIB, false), now), writes && round >= 2, "{round}");
                let doubted = zeroing.slice(&range, 0, now);
                assert_eq!(u64::from(doubted.charged), doubted.length(), "it counts by its bytes");
                now = now + between;
                zeroing.carried_out(&range, doubted, between, now);
                assert_eq!(zeroing.slice(&range, 0, now).charged > 0, writes, "{round}");
            }
        }
    }

    fn fast(offset: u64, length: u64, no_hole: bool) -> CheckedOperation {
        CheckedOperation::WriteZeroes { offset, length, fua: false, no_hole, fast: true }
    }

    #[test]
    fn zeroes_that_must_be_fast_are_refused_before_anything_is_done() {
        use ZeroingStorage::{Device, Emulated, FastZeroes, File, Silent};
        for (storage, marks, allocates) in [
            (File, true, true),
            (Device, true, false),
            (FastZeroes, true, true),
            (Silent, false, false),
            (Emulated, true, false),
        ] {
            let mut zeroing = ZeroingBehaviour::new(storage);
            assert_eq!(zeroing.refuses(&fast(0, GIB, false), at(0)), !marks, "{storage:?}");
            assert_eq!(zeroing.refuses(&fast(0, GIB, true), at(0)), !allocates, "{storage:?}");
            assert!(!zeroing.refuses(&zeroes(0, GIB), at(0)), "it need not be fast");
        }
        let mut zeroing = ZeroingBehaviour::new(File);
        for (offset, length) in [(512, 4096), (0, 4095), (0, 4096 + 512)] {
            assert!(zeroing.refuses(&fast(offset, length, false), at(0)), "its edges would be written");
        }
        zeroing.cannot(SliceMethod::Allocate);
        assert!(zeroing.refuses(&fast(0, GIB, true), at(0)));
        assert!(!zeroing.refuses(&fast(0, GIB, false), at(0)), "that is another matter");
        zeroing.cannot(SliceMethod::Mark);
        assert!(zeroing.refuses(&fast(0, GIB, false), at(0)));
    }

    #[test]
    fn storage_that_has_become_slow_refuses_fast_zeroes_for_a_while() {
        let mut zeroing = ZeroingBehaviour::new(ZeroingStorage::File);
        carry_out(&mut zeroing, &zeroes(0, GIB), GIB, Duration::from_secs(5));
        assert!(zeroing.refuses(&fast(0, GIB, false), at(2)));
        assert!(!zeroing.refuses(&fast(0, GIB, false), at(62)));
    }

    #[test]
    fn what_is_cached_counts_by_its_bytes_and_a_question_as_one_request() {
        let cache = CheckedOperation::Cache { offset: 4096, length: GIB };
        let mut zeroing = ZeroingBehaviour::new(ZeroingStorage::File);
        let slice = zeroing.slice(&cache, 0, at(0));
        assert_eq!((slice.method, slice.until), (SliceMethod::Cache, u64::from(ZEROES) - 4096));
        assert_eq!(carry_out(&mut zeroing, &cache, GIB, Duration::ZERO).0, GIB);
        let question = CheckedOperation::BlockStatus { offset: 0, length: GIB, one: false };
        assert_eq!(zeroing.slice(&question, 0, at(0)), RequestSlice::question(GIB));
    }

    proptest! {
        /// Slices follow each other without a gap, and none is longer than it may be. Slices that are marked
        /// or allocated in a file are whole blocks.
        #[test]
        fn slices_cover_the_range(
            offset in 0u64..3 * MIB, length in 1u64..300 * MIB, no_hole in any::<bool>(),
                cannot in 0u32..40,
        ) {
            let mut zeroing = ZeroingBehaviour::new(ZeroingStorage::File);
            let operation = CheckedOperation::WriteZeroes { offset, length, fua: false, no_hole,
                fast: false };
            let (mut done, mut slices) = (0, 0);
            while done < length {
                let slice = zeroing.slice(&operation, done, at(0));
                prop_assert!(slice.from == done && slice.until > done && slice.until <= length);
                let bytes = slice.length() as u32;
                let longest = if slice.charged > 0 { CHARGED } else { LONGEST };
                prop_assert!(bytes <= longest);
                prop_assert!(slice.charged == 0 || slice.charged == bytes);
                prop_assert!(slice.method != SliceMethod::Write
                    || (slice.charged == bytes && bytes <= ZEROES));
                let whole = (offset + slice.from).is_multiple_of(BLOCK)
                    && (offset + slice.until).is_multiple_of(BLOCK);
                prop_assert!(slice.method == SliceMethod::Write || whole);
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
