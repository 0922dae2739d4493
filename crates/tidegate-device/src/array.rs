//! Disks striped into one, with or without parity, with or without a write-back cache.
//!
//! Without a cache the array promises durability by itself: a write completes when its last part is on disk,
//! and a flush has nothing to do.
//!
//! Left out of RAID 5: writes past the cache do not wait for each other when they meet in one row (those from
//! the cache do), and no disk ever fails.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use tidegate_units::{Bytes, Instant};

use crate::cache::{ArrayCache, BLOCK, CacheConfig, DestageGrouping, DestageRun};
use crate::config_error::{DeviceConfigError, require};
use crate::disk::Spindle;
use crate::disk_config::DiskConfig;
use crate::io::{DeviceCompletion, DeviceIo, IoKind};
use crate::layout::{DiskPart, Layout, Raid0, Raid5, RaidLevel, StripeUpdate};
use crate::mechanism::SectorRange;
use crate::read_ahead::{ReadAhead, ReadAheadConfig, ReadOutcome};

/// Equal disks, striped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ArrayConfig {
    /// Number of disks; 1 to 256. Their platters stand at angles of their own.
    pub disks: u32,
    /// Redundancy that the array keeps beside the data; none by default.
    #[serde(default, skip_serializing_if = "RaidLevel::is_default")]
    pub level: RaidLevel,
    /// Number of contiguous bytes on one disk before the next takes over: a multiple of 4 KiB.
    #[serde(with = "tidegate_units::text")]
    pub stripe_unit: Bytes,
    /// Each of the disks.
    pub disk: DiskConfig,
    /// The write-back cache; none: write-through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheConfig>,
    /// Reading ahead; none: the disks read only the data that is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ahead: Option<ReadAheadConfig>,
}

#[derive(Debug, Clone)]
pub(crate) struct RaidArray {
    layout: Layout,
    disks: Vec<Spindle>,
    cache: Option<ArrayCache>,
    read_ahead: Option<ReadAhead>,
    /// Work in progress at the disks. Each operation of a disk has a tag, and its job is found under it.
    jobs: BTreeMap<u64, Job>,
    next_tag: u64,
    /// Writes that found the cache full, in order of arrival.
    waiting: VecDeque<WaitingWrite>,
    /// Flushes with the epoch each covers, in order of arrival.
    flushes: VecDeque<(u64, u64)>,
    /// Answers of the cache on their way: the time of each, and the request's id. Each takes equally long, so
    /// they stay in order.
    answers: VecDeque<(Instant, u64)>,
    /// Likewise, answers from data that was read ahead.
    hits: VecDeque<(Instant, u64)>,
}

/// Operations of the disks for one request, for read-ahead, or for a destage.
#[derive(Debug, Clone)]
struct Job {
    owner: Owner,
    /// Number of disks that have yet to answer before the job goes on.
    left: usize,
    /// Parts to write then.
    then: Vec<DiskPart>,
}

#[derive(Debug, Clone)]
enum Owner {
    /// The request with this id.
    Request(u64),
    /// Data read ahead from this offset on.
    ReadAhead(u64),
    Destage(DestageRun),
}

#[derive(Debug, Clone)]
struct WaitingWrite {
    id: u64,
    /// Blocks not yet in the cache.
    parts: VecDeque<(usize, Range<u64>)>,
}

impl RaidArray {
    pub(crate) fn new(config: &ArrayConfig, seed: u64) -> Result<Self, DeviceConfigError> {
        require((1..=256).contains(&config.disks), "disks", "between 1 and 256")?;
        let unit = config.stripe_unit.get();
        require(unit > 0 && unit.is_multiple_of(BLOCK), "stripe-unit", "a multiple of 4 KiB")?;
        let mut rng = Pcg64::seed_from_u64(seed);
        let disks: Vec<_> = (0..config.disks)
            .map(|_| Spindle::new(&config.disk, rng.next_u64()))
            .collect::<Result<_, _>>()?;
        let units_per_disk = disks[0].capacity().get() / unit;
        require(units_per_disk > 0, "stripe-unit", "no more than a disk holds")?;
        let number = u64::from(config.disks);
        let (layout, grouping) = match config.level {
            RaidLevel::Raid0 => (
                Layout::Raid0(Raid0 { disks: number, unit, units_per_disk }),
                DestageGrouping::Contiguous { disks: disks.len() },
            ),
            RaidLevel::Raid5 => {
                require(config.disks >= 3, "disks", "at least 3 for RAID 5")?;
                let layout = Raid5 { disks: number, unit, rows: units_per_disk };
                let grouping = DestageGrouping::Rows {
                    disks: config.disks,
                    row: layout.row() / BLOCK,
                    unit: unit / BLOCK,
                };
                (Layout::Raid5(layout), grouping)
            }
        };
        let cache = config.cache.as_ref().map(|cache| ArrayCache::new(cache, grouping)).transpose()?;
        let read_ahead =
            config.read_ahead.as_ref().map(|config| ReadAhead::new(config, layout.capacity())).transpose()?;
        Ok(Self {
            layout,
            disks,
            cache,
            read_ahead,
            jobs: BTreeMap::new(),
            next_tag: 0,
            waiting: VecDeque::new(),
            flushes: VecDeque::new(),
            answers: VecDeque::new(),
            hits: VecDeque::new(),
        })
    }

    pub(crate) const fn capacity(&self) -> Bytes {
        Bytes::new(self.layout.capacity())
    }

    pub(crate) fn dirty(&self) -> Bytes {
        self.cache.as_ref().map_or(Bytes::ZERO, ArrayCache::held)
    }

    pub(crate) fn submit(
        &mut self,
        now: Instant,
        id: u64,
        io: DeviceIo,
        done: &mut VecDeque<DeviceCompletion>,
    ) {
        match (io.kind, &mut self.cache) {
            (IoKind::Read, _) => self.read(now, id, io),
            (IoKind::Write { fua }, Some(cache)) if !fua || cache.nonvolatile => {
                self.waiting.push_back(WaitingWrite { id, parts: self.layout.cached(io).into() });
            }
            (IoKind::Write { .. }, _) => {
                let update = self.layout.write(io);
                self.begin(now, Owner::Request(id), update);
            }
            (IoKind::Flush, Some(cache)) if !cache.nonvolatile => {
                self.flushes.push_back((id, cache.end_epoch()));
            }
            (IoKind::Flush, _) => done.push_back(DeviceCompletion { id, at: now }),
        }
        self.settle(now, done);
    }

    pub(crate) fn next_event(&self) -> Option<Instant> {
        let disks = self.disks.iter().filter_map(Spindle::next_event).min();
        let answer = self.answers.front().map(|(at, _)| *at);
        let hit = self.hits.front().map(|(at, _)| *at);
        [disks, answer, hit].into_iter().flatten().min()
    }

    pub(crate) fn step(&mut self, at: Instant, done: &mut VecDeque<DeviceCompletion>) {
        for answers in [&mut self.answers, &mut self.hits] {
            if let Some((_, id)) = answers.pop_front_if(|(due, _)| *due == at) {
                done.push_back(DeviceCompletion { id, at });
                return;
            }
        }
        let due = self.disks.iter_mut().find(|disk| disk.next_event() == Some(at));
        if let Some(tag) = due.and_then(|disk| disk.step(at)) {
            self.disk_done(at, tag, done);
            self.settle(at, done);
        }
    }

    fn read(&mut self, now: Instant, id: u64, io: DeviceIo) {
        let cache = self.cache.as_ref();
        let parts = self.layout.read(io, |side, blocks| cache.is_some_and(|cache| cache.holds(side, blocks)));
        let cached = cache.filter(|_| parts.is_empty()).map(|cache| cache.overhead);
        let (verdict, fetch) = self.read_ahead.as_mut().map_or((ReadOutcome::Miss, Vec::new()), |ahead| {
            let mut fetch = Vec::new();
            (ahead.read(Some(id).filter(|_| cached.is_none()), io, &mut fetch), fetch)
        });
        match (cached, verdict, &self.read_ahead) {
            (Some(overhead), _, _) => self.answers.push_back((now + overhead, id)),
            (None, ReadOutcome::Hit, Some(ahead)) => self.hits.push_back((now + ahead.overhead, id)),
            (None, ReadOutcome::Coming, _) => {}
            (None, _, _) => {
                let update = StripeUpdate { reads: parts, writes: Vec::new() };
                self.begin(now, Owner::Request(id), update);
            }
        }
        for io in fetch {
            let update = StripeUpdate { reads: self.layout.read(io, |_, _| false), writes: Vec::new() };
            self.begin(now, Owner::ReadAhead(io.offset), update);
        }
    }

    fn begin(&mut self, now: Instant, owner: Owner, update: StripeUpdate) {
        let StripeUpdate { reads, writes } = update;
        let tag = self.next_tag;
        self.next_tag += 1;
        let (write, first, then) =
            if reads.is_empty() { (true, writes, Vec::new()) } else { (false, reads, writes) };
        self.issue(now, tag, write, &first);
        self.jobs.insert(tag, Job { owner, left: first.len(), then });
    }

    fn issue(&mut self, now: Instant, tag: u64, write: bool, parts: &[DiskPart]) {
        for part in parts {
            self.disks[part.disk].submit(now, tag, SectorRange::of_bytes(write, part.offset, part.bytes));
        }
    }

    fn disk_done(&mut self, at: Instant, tag: u64, done: &mut VecDeque<DeviceCompletion>) {
        let Some(job) = self.jobs.get_mut(&tag) else {
            debug_assert!(false, "a disk finished what it was not given");
            return;
        };
        job.left -= 1;
        if job.left > 0 {
            return;
        }
        let writes = std::mem::take(&mut job.then);
        if !writes.is_empty() {
            job.left = writes.len();
            self.issue(at, tag, true, &writes);
            return;
        }
        match self.jobs.remove(&tag).map(|job| job.owner) {
            Some(Owner::Request(id)) => done.push_back(DeviceCompletion { id, at }),
            Some(Owner::ReadAhead(offset)) => {
                if let Some(ahead) = &mut self.read_ahead {
                    let due = at + ahead.overhead;
                    self.hits.extend(ahead.arrived(offset).into_iter().map(|id| (due, id)));
                }
            }
            Some(Owner::Destage(run)) => {
                if let Some(cache) = &mut self.cache {
                    cache.finish(&run);
                }
            }
            None => {}
        }
    }

    /// Restores the invariants between events. No write waits while there is room, no flush waits for
    /// nothing, and each disk destages as much as the cache asks for.
    fn settle(&mut self, now: Instant, done: &mut VecDeque<DeviceCompletion>) {
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
            done.push_back(DeviceCompletion { id, at: now });
        }
        self.destage(now);
    }

    fn destage(&mut self, now: Instant) {
        let flush = self.flushes.back().map(|(_, covers)| *covers);
        for side in 0..self.cache.as_ref().map_or(0, ArrayCache::sides) {
            while let Some(run) = self.cache.as_mut().and_then(|cache| cache.next_run(side, flush)) {
                let update = self.layout.destage(side, &run.blocks);
                self.begin(now, Owner::Destage(run), update);
            }
        }
    }
}

impl WaitingWrite {
    /// Puts blocks into the cache as far as there is room. Returns true if all of them are in it. A write
    /// larger than the cache thus passes through it piece by piece.
    fn enter(&mut self, cache: &mut ArrayCache) -> bool {
        while let Some((side, blocks)) = self.parts.front_mut() {
            while blocks.start < blocks.end {
                if !cache.insert(*side, blocks.start) {
                    return false;
                }
                blocks.start += 1;
            }
            self.parts.pop_front();
        }
        true
    }
}
