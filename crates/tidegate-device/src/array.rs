//! Disks striped into one, with or without a write-back cache.
//!
//! Without a cache the array promises durability by itself: a write completes when its last part is on disk, and a
//! flush has nothing to do.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use tidegate_units::{Bytes, Instant};

use crate::cache::{BLOCK, Cache, CacheConfig, Run};
use crate::config::{ConfigError, require};
use crate::disk::{DiskConfig, Spindle};
use crate::io::{Completion, Io, IoKind};
use crate::mechanism::Extent;

/// Equal disks, striped (RAID 0, or the data disks of anything that costs its writes nothing extra).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ArrayConfig {
    /// How many disks; 1 to 256. Their platters stand at angles of their own.
    pub disks: u32,
    /// How many contiguous bytes lie on one disk before the next takes over: a multiple of 4 KiB.
    #[serde(with = "tidegate_units::text")]
    pub stripe_unit: Bytes,
    /// Each of the disks.
    pub disk: DiskConfig,
    /// The write-back cache; none: write-through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheConfig>,
}

#[derive(Debug, Clone)]
pub(crate) struct Array {
    layout: Layout,
    disks: Vec<Spindle>,
    cache: Option<Cache>,
    /// What the disks are working on, by the tag under which they have it.
    jobs: BTreeMap<u64, Job>,
    next_tag: u64,
    /// Writes that found the cache full, in order of arrival.
    waiting: VecDeque<WaitingWrite>,
    /// Flushes with the epoch each covers, in order of arrival.
    flushes: VecDeque<(u64, u64)>,
    /// Answers of the cache on their way: when, and whose. Each takes equally long, so they stay in order.
    answers: VecDeque<(Instant, u64)>,
}

#[derive(Debug, Clone)]
enum Job {
    Request { id: u64, parts_left: usize },
    Destage(Run),
}

#[derive(Debug, Clone)]
struct WaitingWrite {
    id: u64,
    /// Blocks not yet in the cache.
    parts: VecDeque<(usize, Range<u64>)>,
}

impl Array {
    pub(crate) fn new(config: &ArrayConfig, seed: u64) -> Result<Self, ConfigError> {
        require((1..=256).contains(&config.disks), "disks", "between 1 and 256")?;
        let unit = config.stripe_unit.get();
        require(unit > 0 && unit.is_multiple_of(BLOCK), "stripe-unit", "a multiple of 4 KiB")?;
        let mut rng = Pcg64::seed_from_u64(seed);
        let disks: Vec<_> = (0..config.disks)
            .map(|_| Spindle::new(&config.disk, rng.next_u64()))
            .collect::<Result<_, _>>()?;
        let units_per_disk = disks[0].capacity().get() / unit;
        require(units_per_disk > 0, "stripe-unit", "no more than a disk holds")?;
        let cache = config.cache.as_ref().map(|cache| Cache::new(cache, disks.len())).transpose()?;
        Ok(Self {
            layout: Layout { disks: u64::from(config.disks), unit, units_per_disk },
            disks,
            cache,
            jobs: BTreeMap::new(),
            next_tag: 0,
            waiting: VecDeque::new(),
            flushes: VecDeque::new(),
            answers: VecDeque::new(),
        })
    }

    pub(crate) const fn capacity(&self) -> Bytes {
        Bytes::new(self.layout.units_per_disk * self.layout.unit * self.layout.disks)
    }

    pub(crate) fn dirty(&self) -> Bytes {
        self.cache.as_ref().map_or(Bytes::ZERO, Cache::held)
    }

    pub(crate) fn submit(&mut self, now: Instant, id: u64, io: Io, done: &mut VecDeque<Completion>) {
        match io.kind {
            IoKind::Read => self.read(now, id, io),
            IoKind::Write { fua: false } if self.cache.is_some() => {
                let parts = self.layout.parts(io).map(|part| (part.disk, part.blocks())).collect();
                self.waiting.push_back(WaitingWrite { id, parts });
            }
            IoKind::Write { .. } => {
                let parts = self.layout.parts(io).collect();
                self.issue(now, id, true, parts);
            }
            IoKind::Flush => match &mut self.cache {
                Some(cache) => self.flushes.push_back((id, cache.end_epoch())),
                None => done.push_back(Completion { id, at: now }),
            },
        }
        self.settle(now, done);
    }

    pub(crate) fn next_event(&self) -> Option<Instant> {
        let disks = self.disks.iter().filter_map(Spindle::next_event).min();
        let answer = self.answers.front().map(|(at, _)| *at);
        [disks, answer].into_iter().flatten().min()
    }

    pub(crate) fn step(&mut self, at: Instant, done: &mut VecDeque<Completion>) {
        if let Some((_, id)) = self.answers.pop_front_if(|(due, _)| *due == at) {
            done.push_back(Completion { id, at });
            return;
        }
        let due = self.disks.iter_mut().find(|disk| disk.next_event() == Some(at));
        if let Some(tag) = due.and_then(|disk| disk.step(at)) {
            self.disk_done(at, tag, done);
            self.settle(at, done);
        }
    }

    fn read(&mut self, now: Instant, id: u64, io: Io) {
        let mut parts: Vec<_> = self.layout.parts(io).collect();
        if let Some(cache) = &self.cache {
            parts.retain(|part| !cache.holds(part.disk, part.blocks()));
            if parts.is_empty() {
                self.answers.push_back((now + cache.overhead, id));
                return;
            }
        }
        self.issue(now, id, false, parts);
    }

    fn issue(&mut self, now: Instant, id: u64, write: bool, parts: Vec<Part>) {
        let tag = self.add_job(Job::Request { id, parts_left: parts.len() });
        for part in parts {
            self.disks[part.disk].submit(now, tag, Extent::of_bytes(write, part.offset, part.bytes));
        }
    }

    fn add_job(&mut self, job: Job) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.jobs.insert(tag, job);
        tag
    }

    fn disk_done(&mut self, at: Instant, tag: u64, done: &mut VecDeque<Completion>) {
        match self.jobs.remove(&tag) {
            Some(Job::Request { id, parts_left: 1 }) => done.push_back(Completion { id, at }),
            Some(Job::Request { id, parts_left }) => {
                self.jobs.insert(tag, Job::Request { id, parts_left: parts_left - 1 });
            }
            Some(Job::Destage(run)) => {
                if let Some(cache) = &mut self.cache {
                    cache.finish(&run);
                }
            }
            None => debug_assert!(false, "a disk finished what nobody gave it"),
        }
    }

    /// Restores what always holds between events: no write waits while there is room, no flush waits for
    /// nothing, and each disk destages as much as the cache asks for.
    fn settle(&mut self, now: Instant, done: &mut VecDeque<Completion>) {
        let Some(cache) = &mut self.cache else { return };
        while let Some(write) = self.waiting.front_mut() {
            if !write.enter(cache) {
                break;
            }
            self.answers.push_back((now + cache.overhead, write.id));
            self.waiting.pop_front();
        }
        while let Some((id, _)) =
            self.flushes.pop_front_if(|(_, covers)| cache.oldest().is_none_or(|oldest| oldest > *covers))
        {
            done.push_back(Completion { id, at: now });
        }
        self.destage(now);
    }

    fn destage(&mut self, now: Instant) {
        let flush = self.flushes.back().map(|(_, covers)| *covers);
        for disk in 0..self.disks.len() {
            while let Some(run) = self.cache.as_mut().and_then(|cache| cache.next_run(disk, flush)) {
                let extent = Extent::of_bytes(true, run.first * BLOCK, run.blocks() * BLOCK);
                let tag = self.add_job(Job::Destage(run));
                self.disks[disk].submit(now, tag, extent);
            }
        }
    }
}

impl WaitingWrite {
    /// Puts into the cache what there is room for; answers whether that was all. A write larger than the
    /// cache thus passes through it piece by piece.
    fn enter(&mut self, cache: &mut Cache) -> bool {
        while let Some((disk, blocks)) = self.parts.front_mut() {
            while blocks.start < blocks.end {
                if !cache.insert(*disk, blocks.start) {
                    return false;
                }
                blocks.start += 1;
            }
            self.parts.pop_front();
        }
        true
    }
}

#[derive(Debug, Clone)]
struct Layout {
    disks: u64,
    unit: u64,
    units_per_disk: u64,
}

/// The part of a request that lies on one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    disk: usize,
    offset: u64,
    bytes: u64,
}

impl Part {
    /// The cache's blocks that hold it.
    const fn blocks(self) -> Range<u64> {
        self.offset / BLOCK..(self.offset + self.bytes).div_ceil(BLOCK)
    }
}

impl Layout {
    /// A contiguous range is contiguous on each disk too, so there is one part for each disk it touches.
    fn parts(&self, io: Io) -> impl Iterator<Item = Part> + use<> {
        let Self { disks, unit, .. } = *self;
        let end = io.offset + u64::from(io.bytes);
        let (first, last) = (io.offset / unit, (end - 1) / unit);
        (first..=last.min(first + disks - 1)).map(move |own_first| {
            let own_last = own_first + (last - own_first) / disks * disks;
            let from = if own_first == first { io.offset % unit } else { 0 };
            let to = if own_last == last { (end - 1) % unit + 1 } else { unit };
            let offset = own_first / disks * unit + from;
            let disk = (own_first % disks) as usize;
            Part { disk, offset, bytes: own_last / disks * unit + to - offset }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against the obvious: byte by byte, the unit's number modulo the disks is the disk.
        #[test]
        fn parts_hold_exactly_the_bytes_of_the_request(
            disks in 1u64..6, unit in 1u64..9, offset in 0u64..200, bytes in 1u32..120,
        ) {
            let layout = Layout { disks, unit, units_per_disk: 1_000 };
            let mut expected: Vec<(usize, u64)> = (offset..offset + u64::from(bytes))
                .map(|byte| {
                    let number = byte / unit;
                    ((number % disks) as usize, number / disks * unit + byte % unit)
                })
                .collect();
            let parts: Vec<_> = layout.parts(Io::read(offset, bytes)).collect();
            let mut actual: Vec<_> = parts
                .iter()
                .flat_map(|part| (part.offset..part.offset + part.bytes).map(|byte| (part.disk, byte)))
                .collect();
            expected.sort_unstable();
            actual.sort_unstable();
            prop_assert_eq!(actual, expected);
            prop_assert!(parts.len() as u64 <= disks);
        }
    }
}
