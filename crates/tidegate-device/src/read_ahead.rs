//! Reading ahead for sequential streams. It knows no time.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use serde::{Deserialize, Serialize};
use tidegate_units::{Bytes, Latency};

use crate::config_error::{DeviceConfigError, require};
use crate::io::DeviceIo;

/// Conditions and extent of an array's reading ahead.
///
/// It follows up to 64 streams. A read that begins at the end of another continues its stream. Any other
/// begins a new one, in the place of the stream that has been quiet for longest. The array reads as far ahead
/// as the stream has come, up to `distance`, and forgets the data that the stream has passed. A stream whose
/// requests are nearly that large is better served without.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ReadAheadConfig {
    /// Number of requests in a row that make a stream worth it. At least 2: one request alone goes nowhere.
    pub after: u32,
    /// Greatest distance beyond the last request to which it reads; not more than 64 MiB.
    #[serde(with = "tidegate_units::text")]
    pub distance: Bytes,
    /// Size of one read; at least 4 KiB, at most `distance`.
    #[serde(with = "tidegate_units::text")]
    pub segment: Bytes,
    /// Service time of a request whose data has all been read ahead.
    #[serde(with = "tidegate_units::text")]
    pub overhead: Latency,
}

const MAX_STREAMS: usize = 64;

/// The outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// The disks must read it.
    Miss,
    /// It is there.
    Hit,
    /// It is on its way; [`ReadAhead::arrived`] will say when it is there.
    Coming,
}

#[derive(Debug, Clone)]
pub(crate) struct ReadAhead {
    pub(crate) overhead: Latency,
    after: u32,
    distance: u64,
    segment: u64,
    capacity: u64,
    streams: Vec<Stream>,
    /// Counts reads, and so shows which stream has been quiet for longest.
    reads: u64,
    /// Reads that wait, by their number: the id of each, and the number of segments still missing.
    waiting: BTreeMap<u64, (u64, usize)>,
}

#[derive(Debug, Clone)]
struct Stream {
    /// Offset at which its next request begins.
    next: u64,
    /// Number of requests it has had; `come` is their total size.
    requests: u32,
    come: u64,
    /// The number of its last read.
    last: u64,
    /// The number of the first of `segments`. A segment's number times its size is its offset.
    first: u64,
    segments: VecDeque<Segment>,
}

#[derive(Debug, Clone, Default)]
struct Segment {
    arrived: bool,
    /// The numbers of the reads that wait for it.
    waiting: Vec<u64>,
}

impl ReadAhead {
    /// `capacity` is the size of the array in bytes.
    pub(crate) fn new(config: &ReadAheadConfig, capacity: u64) -> Result<Self, DeviceConfigError> {
        let (segment, distance) = (config.segment.get(), config.distance.get());
        require(config.after >= 2, "read-ahead.after", "at least 2")?;
        require(distance <= 64 << 20, "read-ahead.distance", "at most 64 MiB")?;
        let whole = (4096..=distance).contains(&segment);
        require(whole, "read-ahead.segment", "at least 4 KiB and at most `distance`")?;
        Ok(Self {
            overhead: config.overhead,
            after: config.after,
            distance,
            segment,
            capacity,
            streams: Vec::new(),
            reads: 0,
            waiting: BTreeMap::new(),
        })
    }

    /// Handles a read. Appends to `fetch` the ranges to read now on the array's own behalf. If the data is on
    /// its way, [`ReadAhead::arrived`] will answer with the id of the waiting read, if there is one.
    pub(crate) fn read(
        &mut self,
        waits: Option<u64>,
        io: DeviceIo,
        fetch: &mut Vec<DeviceIo>,
    ) -> ReadOutcome {
        self.reads += 1;
        let bytes = u64::from(io.bytes);
        let end = io.offset + bytes;
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.next == io.offset) else {
            self.begin(end, bytes);
            return ReadOutcome::Miss;
        };
        stream.next = end;
        stream.last = self.reads;
        stream.requests = stream.requests.saturating_add(1);
        stream.come = stream.come.saturating_add(bytes);
        let verdict = match stream.held(io.offset / self.segment..end.div_ceil(self.segment)) {
            None => ReadOutcome::Miss,
            Some(held) => {
                let missing = held.filter(|segment| !segment.arrived);
                let missing =
                    missing.map(|segment| segment.waiting.extend(waits.map(|_| self.reads))).count();
                if let Some(id) = waits.filter(|_| missing > 0) {
                    self.waiting.insert(self.reads, (id, missing));
                }
                if missing == 0 { ReadOutcome::Hit } else { ReadOutcome::Coming }
            }
        };
        stream.forget(self.segment);
        let ahead = stream.come.min(self.distance);
        if stream.requests >= self.after && bytes + self.segment <= ahead {
            let until = (end + ahead).min(self.capacity) / self.segment;
            if stream.segments.is_empty() {
                stream.first = end / self.segment;
            }
            for number in stream.first + stream.segments.len() as u64..until {
                stream.segments.push_back(Segment::default());
                // At most 64 MiB, as the distance is.
                fetch.push(DeviceIo::read(number * self.segment, self.segment as u32));
            }
        }
        verdict
    }

    /// Notes that the segment at `offset` has arrived. Returns the reads that have waited for it as the last
    /// of theirs.
    pub(crate) fn arrived(&mut self, offset: u64) -> Vec<u64> {
        let number = offset / self.segment;
        let mut served = Vec::new();
        for stream in &mut self.streams {
            let Some(segment) = stream.held(number..number + 1).and_then(|mut held| held.next()) else {
                continue;
            };
            segment.arrived = true;
            for read in std::mem::take(&mut segment.waiting) {
                if let Entry::Occupied(mut waiting) = self.waiting.entry(read) {
                    waiting.get_mut().1 -= 1;
                    if waiting.get().1 == 0 {
                        served.push(waiting.remove().0);
                    }
                }
            }
            stream.forget(self.segment);
        }
        served
    }

    fn begin(&mut self, next: u64, come: u64) {
        let stream =
            Stream { next, requests: 1, come, last: self.reads, first: 0, segments: VecDeque::new() };
        if self.streams.len() < MAX_STREAMS {
            self.streams.push(stream);
            return;
        }
        // A request may wait for what is on its way.
        let idle =
            self.streams.iter_mut().filter(|stream| stream.segments.iter().all(|segment| segment.arrived));
        if let Some(quiet) = idle.min_by_key(|stream| stream.last) {
            *quiet = stream;
        }
    }
}

impl Stream {
    /// These segments, if it has them all, arrived or not.
    fn held(&mut self, wanted: Range<u64>) -> Option<impl Iterator<Item = &mut Segment>> {
        let from = wanted.start.checked_sub(self.first)? as usize;
        let to = wanted.end.checked_sub(self.first)? as usize;
        (to <= self.segments.len()).then(|| self.segments.range_mut(from..to))
    }

    /// Forgets the segments behind the stream.
    fn forget(&mut self, size: u64) {
        while self.segments.front().is_some_and(|segment| segment.arrived)
            && (self.first + 1) * size <= self.next
        {
            self.segments.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn read_ahead() -> ReadAhead {
        let config = ReadAheadConfig {
            after: 3,
            distance: Bytes::from_kib(64),
            segment: Bytes::from_kib(16),
            overhead: Latency::ZERO,
        };
        ReadAhead::new(&config, 1 << 20).unwrap()
    }

    /// Reads 8 KiB at so many KiB. Returns the outcome, and the offsets of the segments read ahead.
    fn read(ahead: &mut ReadAhead, id: u64, kib: u64) -> (ReadOutcome, Vec<u64>) {
        let mut fetch = Vec::new();
        let verdict = ahead.read(Some(id), DeviceIo::read(kib * KIB, 8 << 10), &mut fetch);
        assert!(fetch.iter().all(|io| io.bytes == 16 << 10));
        (verdict, fetch.iter().map(|io| io.offset / KIB).collect())
    }

    #[test]
    fn it_reads_ahead_as_far_as_the_stream_has_come() {
        let mut ahead = read_ahead();
        assert_eq!(read(&mut ahead, 0, 0), (ReadOutcome::Miss, vec![]));
        assert_eq!(read(&mut ahead, 1, 8), (ReadOutcome::Miss, vec![]));
        assert_eq!(read(&mut ahead, 2, 16), (ReadOutcome::Miss, vec![16, 32]), "24 come, 24 ahead");
        assert_eq!(read(&mut ahead, 3, 24), (ReadOutcome::Coming, vec![48]));
        assert!(ahead.arrived(32 * KIB).is_empty(), "no request has asked for it");
        assert_eq!(ahead.arrived(16 * KIB), [3]);
        assert_eq!(read(&mut ahead, 4, 32), (ReadOutcome::Hit, vec![64]));
    }

    #[test]
    fn a_read_waits_for_all_of_its_segments_whichever_comes_last() {
        let mut ahead = read_ahead();
        for n in 0..6 {
            read(&mut ahead, n, n * 8);
            ahead.arrived(n * 8 * KIB);
        }
        let mut fetch = Vec::new();
        // The segments at 48 and at 64 are both on their way.
        assert_eq!(ahead.read(Some(9), DeviceIo::read(48 * KIB, 32 << 10), &mut fetch), ReadOutcome::Coming);
        assert!(ahead.arrived(64 * KIB).is_empty());
        assert_eq!(ahead.arrived(48 * KIB), [9]);
        assert!(ahead.waiting.is_empty());
    }

    #[test]
    fn who_reads_at_random_moves_nothing() {
        let mut ahead = read_ahead();
        for n in 0..500 {
            assert_eq!(read(&mut ahead, n, n * 7_919 % 1_000), (ReadOutcome::Miss, vec![]));
        }
        assert!(ahead.streams.len() <= MAX_STREAMS);
    }

    #[test]
    fn a_stream_that_somebody_waits_for_is_not_forgotten() {
        let mut ahead = read_ahead();
        (0..4).for_each(|n| drop(read(&mut ahead, n, n * 8)));
        for n in 0..200 {
            read(&mut ahead, 100 + n, 100 + n * 7_919 % 900);
        }
        assert_eq!(ahead.arrived(16 * KIB), [3]);
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let mut ahead = read_ahead();
        for n in 120..128 {
            let (_, fetch) = read(&mut ahead, n, n * 8);
            assert!(fetch.iter().all(|kib| kib + 16 <= 1_024), "{fetch:?}");
        }
    }

    #[test]
    fn who_asks_for_as_much_at_once_is_left_alone() {
        let mut ahead = read_ahead();
        let mut fetch = Vec::new();
        for n in 0..8 {
            let io = DeviceIo::read(n * 64 * KIB, 64 << 10);
            assert_eq!(ahead.read(Some(n), io, &mut fetch), ReadOutcome::Miss);
        }
        assert!(fetch.is_empty(), "{fetch:?}");
    }
}
