//! The contents of a write-back cache, and the choice of the next data to write to disk. It knows no time.
//!
//! Two questions decide how such a cache behaves under load: how hard to destage, and which data. The first
//! is answered by the *linear threshold* policy of A. Varma and Q. Jacobson, "Destage algorithms for disk
//! arrays with nonvolatile caches", IEEE Transactions on Computers 47(2), 1998. Nothing is destaged up to a
//! low mark of occupancy, then linearly more up to a high mark. So reads keep the disks to themselves while
//! there is room, and writes rarely find the cache full. The data is chosen by position: upwards through the
//! disk, contiguous blocks together, then from the lowest again.
//!
//! Writers that find it full wait in `array`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};
use tidegate_units::{Bytes, Latency};

use crate::config_error::{DeviceConfigError, require};

/// A write-back cache in front of an array.
///
/// A write that found room completes. Unless the cache is `nonvolatile`, the write survives a loss of power
/// only once it is destaged. A flush waits for all data that was dirty when it came. A write with FUA goes to
/// the disks past the cache, whose copies, if it has any, stay dirty. Reads of dirty data are answered from
/// the cache; clean data is not kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CacheConfig {
    /// Capacity for dirty data, in whole blocks of 4 KiB.
    #[serde(with = "tidegate_units::text")]
    pub size: Bytes,
    /// Service time of a request that involves only the cache.
    #[serde(with = "tidegate_units::text")]
    pub overhead: Latency,
    /// The part of it up to which nothing is destaged without a flush; at least 0, below `high`.
    pub low: f64,
    /// The part of it from which on `destage_depth` writes are outstanding at each disk; at most 1.
    pub high: f64,
    /// Number of destage writes that may be outstanding at each disk (in RAID 5: on average). 1 to 1024.
    pub destage_depth: u32,
    /// Most contiguous data that one destage write takes. In RAID 5 a destage takes the dirty blocks of one
    /// row instead.
    #[serde(with = "tidegate_units::text")]
    pub destage_run: Bytes,
    /// Its memory survives a loss of power (a battery keeps it, a second controller has a copy): a write is
    /// durable once it is in the cache, FUA or not, and a flush has nothing to wait for. Default: `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nonvolatile: bool,
}

/// Unit in which the cache counts. A smaller write takes a whole block.
pub(crate) const BLOCK: u64 = 4096;

/// Sets of blocks that are destaged together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DestageGrouping {
    /// Contiguous blocks of one disk: a side for each disk.
    Contiguous { disks: usize },
    /// Dirty blocks of a row across the disks: one side for all. A row is destaged again only when its
    /// destage is done, since its parity cannot be updated twice at once.
    Rows {
        disks: u32,
        /// Number of blocks of data in a row; `unit` of them lie on one disk.
        row: u64,
        unit: u64,
    },
}

/// Blocks on their way to disk.
#[derive(Debug, Clone)]
pub(crate) struct DestageRun {
    side: usize,
    /// Ascending.
    pub(crate) blocks: Vec<u64>,
    /// The epoch in which each block became dirty.
    epochs: Vec<u64>,
    /// Number of disks that the run keeps busy.
    disks: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct ArrayCache {
    pub(crate) overhead: Latency,
    pub(crate) nonvolatile: bool,
    grouping: DestageGrouping,
    limit: u64,
    low: f64,
    high: f64,
    depth: u32,
    run: usize,
    sides: Vec<Side>,
    /// Cached blocks: dirty, or being destaged and not yet on disk.
    held: u64,
    /// Counts flushes, and so separates the writes that a flush covers from later ones.
    epoch: u64,
    /// Epochs of the cached blocks.
    epochs: Epochs,
}

/// Blocks that are numbered together.
#[derive(Debug, Clone, Default)]
struct Side {
    /// Block to the epoch in which it became dirty. Overwritten, it keeps its epoch: a flush that covers the
    /// older data is satisfied by the newer.
    dirty: BTreeMap<u64, u64>,
    /// Epochs of the dirty blocks, so that a flush need not search a side that has nothing for it.
    epochs: Epochs,
    /// A block in here may be dirty again, but is not destaged a second time before the first has ended.
    destaging: BTreeSet<u64>,
    /// Number of destages that keep a disk busy, summed over the side's disks.
    outstanding: u32,
    cursor: u64,
}

impl ArrayCache {
    pub(crate) fn new(config: &CacheConfig, grouping: DestageGrouping) -> Result<Self, DeviceConfigError> {
        let limit = config.size.get() / BLOCK;
        require(limit > 0, "cache.size", "at least 4 KiB")?;
        let marks = config.low >= 0.0 && config.low < config.high && config.high <= 1.0;
        require(marks, "cache.low", "at least 0 and below `high`, and that at most 1")?;
        require((1..=1024).contains(&config.destage_depth), "cache.destage-depth", "between 1 and 1024")?;
        let run = config.destage_run.get() / BLOCK;
        require((1..=16_384).contains(&run), "cache.destage-run", "between 4 KiB and 64 MiB")?;
        Ok(Self {
            overhead: config.overhead,
            nonvolatile: config.nonvolatile,
            grouping,
            limit,
            low: config.low,
            high: config.high,
            depth: config.destage_depth,
            run: run as usize,
            sides: vec![
                Side::default();
                match grouping {
                    DestageGrouping::Contiguous { disks } => disks,
                    DestageGrouping::Rows { .. } => 1,
                }
            ],
            held: 0,
            epoch: 0,
            epochs: Epochs::default(),
        })
    }

    pub(crate) const fn held(&self) -> Bytes {
        Bytes::new(self.held * BLOCK)
    }

    pub(crate) const fn sides(&self) -> usize {
        self.sides.len()
    }

    /// Makes a block dirty; `false` when there is no room for it.
    pub(crate) fn insert(&mut self, side: usize, block: u64) -> bool {
        let own = &mut self.sides[side];
        if own.dirty.contains_key(&block) {
            return true;
        }
        if self.held >= self.limit {
            return false;
        }
        own.dirty.insert(block, self.epoch);
        own.epochs.add(self.epoch);
        self.epochs.add(self.epoch);
        self.held += 1;
        true
    }

    /// Returns true if the cache holds all of these blocks.
    pub(crate) fn holds(&self, side: usize, mut blocks: Range<u64>) -> bool {
        let own = &self.sides[side];
        blocks.all(|block| own.dirty.contains_key(&block) || own.destaging.contains(&block))
    }

    /// Ends an epoch, and returns its number. A flush is done once [`ArrayCache::oldest`] is past it.
    pub(crate) const fn end_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch - 1
    }

    /// The oldest epoch of which the cache holds a block.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.epochs.oldest()
    }

    /// The next run to destage at the side, if one should be now. `flush` is the youngest epoch that a
    /// waiting flush covers: its blocks go first, at full depth, whatever the occupancy.
    pub(crate) fn next_run(&mut self, side: usize, flush: Option<u64>) -> Option<DestageRun> {
        let own = &self.sides[side];
        let grouping = self.grouping;
        let flushed = flush
            .filter(|_| own.outstanding < self.depth * grouping.disks_per_side())
            .and_then(|epoch| own.first_dirty(epoch, grouping));
        let first = match flushed {
            Some(first) => first,
            None if own.outstanding < self.linear_depth() => own.first_dirty(u64::MAX, grouping)?,
            None => return None,
        };
        Some(self.begin(side, first))
    }

    /// The run is on disk; its room is free.
    pub(crate) fn finish(&mut self, run: &DestageRun) {
        let own = &mut self.sides[run.side];
        own.outstanding -= run.disks;
        for block in &run.blocks {
            own.destaging.remove(block);
        }
        self.held -= run.blocks.len() as u64;
        for epoch in &run.epochs {
            self.epochs.remove(*epoch);
        }
    }

    /// Number of destages that should keep a disk busy, over the disks of a side, by occupancy alone.
    fn linear_depth(&self) -> u32 {
        let occupancy = self.held as f64 / self.limit as f64;
        let part = ((occupancy - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        (f64::from(self.depth * self.grouping.disks_per_side()) * part).ceil() as u32
    }

    fn begin(&mut self, side: usize, first: u64) -> DestageRun {
        let own = &mut self.sides[side];
        let mut run = DestageRun { side, blocks: Vec::new(), epochs: Vec::new(), disks: 1 };
        match self.grouping {
            DestageGrouping::Contiguous { .. } => {
                for block in (first..).take(self.run) {
                    if own.destaging.contains(&block) {
                        break;
                    }
                    let Some(epoch) = own.dirty.remove(&block) else { break };
                    run.blocks.push(block);
                    run.epochs.push(epoch);
                }
            }
            DestageGrouping::Rows { row, unit, .. } => {
                let span = first / row * row..(first / row + 1) * row;
                for (block, epoch) in own.dirty.extract_if(span, |_, _| true) {
                    run.blocks.push(block);
                    run.epochs.push(epoch);
                }
                let units = run.blocks.chunk_by(|one, next| one / unit == next / unit).count();
                // The units of a row are at most its disks.
                run.disks = units as u32 + 1;
            }
        }
        for (block, epoch) in run.blocks.iter().zip(&run.epochs) {
            own.epochs.remove(*epoch);
            own.destaging.insert(*block);
        }
        own.outstanding += run.disks;
        own.cursor = run.blocks.last().map_or(first, |last| last + 1);
        run
    }
}

impl DestageGrouping {
    const fn disks_per_side(self) -> u32 {
        match self {
            Self::Contiguous { .. } => 1,
            Self::Rows { disks, .. } => disks,
        }
    }

    /// The blocks none of which may be on its way to disk when a destage begins with this one.
    const fn exclusive(self, block: u64) -> Range<u64> {
        match self {
            Self::Contiguous { .. } => block..block + 1,
            Self::Rows { row, .. } => block / row * row..(block / row + 1) * row,
        }
    }
}

impl Side {
    /// The first dirty block at or after the cursor, else the lowest, of those that became dirty no later
    /// than `epoch` and can be destaged now.
    fn first_dirty(&self, epoch: u64, grouping: DestageGrouping) -> Option<u64> {
        self.epochs.oldest().filter(|oldest| *oldest <= epoch)?;
        let (behind, ahead) = (self.dirty.range(..self.cursor), self.dirty.range(self.cursor..));
        ahead
            .chain(behind)
            .find(|(block, since)| {
                **since <= epoch && self.destaging.range(grouping.exclusive(**block)).next().is_none()
            })
            .map(|(block, _)| *block)
    }
}

/// Number of blocks that became dirty in each epoch.
#[derive(Debug, Clone, Default)]
struct Epochs(BTreeMap<u64, u64>);

impl Epochs {
    fn add(&mut self, epoch: u64) {
        *self.0.entry(epoch).or_default() += 1;
    }

    fn remove(&mut self, epoch: u64) {
        if let Entry::Occupied(mut count) = self.0.entry(epoch) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn oldest(&self) -> Option<u64> {
        self.0.first_key_value().map(|(epoch, _)| *epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(blocks: u64, low: f64, high: f64) -> ArrayCache {
        let config = CacheConfig {
            size: Bytes::new(blocks * BLOCK),
            overhead: Latency::ZERO,
            low,
            high,
            destage_depth: 4,
            destage_run: Bytes::new(4 * BLOCK),
            nonvolatile: false,
        };
        ArrayCache::new(&config, DestageGrouping::Contiguous { disks: 1 }).unwrap()
    }

    #[test]
    fn destaging_grows_linearly_between_the_marks() {
        let mut cache = cache(100, 0.25, 0.75);
        let depth_at = |blocks: u64| {
            while cache.held < blocks {
                // Every other block, so that nothing coalesces.
                assert!(cache.insert(0, cache.held * 2));
            }
            cache.linear_depth()
        };
        assert_eq!([0, 25, 26, 37, 38, 50, 51, 75, 100].map(depth_at), [0, 0, 1, 1, 2, 2, 3, 4, 4]);
        assert!(!cache.insert(0, 1), "no room beyond the size");
        assert!(cache.insert(0, 2), "what is dirty needs no room to be overwritten");
    }

    #[test]
    fn contiguous_blocks_go_together_up_to_the_bound_upwards_and_around() {
        let mut cache = cache(100, 0.0, 0.05);
        for block in [10, 11, 12, 13, 14, 3, 20] {
            cache.insert(0, block);
        }
        cache.sides[0].cursor = 9;
        let runs: Vec<_> = (0..4).map_while(|_| cache.next_run(0, None)).collect();
        let shape: Vec<_> = runs.iter().map(|run| (run.blocks[0], run.blocks.len())).collect();
        assert_eq!(shape, [(10, 4), (14, 1), (20, 1), (3, 1)]);
        assert!(cache.holds(0, 10..15), "until they are on disk, they are cached");
        runs.iter().for_each(|run| cache.finish(run));
        assert_eq!((cache.held, cache.oldest()), (0, None));
    }

    #[test]
    fn a_block_overwritten_while_it_is_destaged_is_destaged_again_afterwards() {
        let mut cache = cache(2, 0.0, 0.1);
        cache.insert(0, 7);
        let first = cache.next_run(0, None).unwrap();
        assert!(cache.insert(0, 7));
        assert_eq!(cache.held, 2, "the old data and the new both take room");
        assert!(cache.next_run(0, None).is_none(), "not twice at once");
        cache.finish(&first);
        assert_eq!(cache.next_run(0, None).map(|run| run.blocks[0]), Some(7));
    }

    #[test]
    fn a_run_ends_before_a_block_that_is_still_being_destaged() {
        let mut cache = cache(10, 0.0, 0.1);
        cache.insert(0, 7);
        let first = cache.next_run(0, None).unwrap();
        for block in [5, 6, 7] {
            cache.insert(0, block);
        }
        let second = cache.next_run(0, None).unwrap();
        assert_eq!((second.blocks[0], second.blocks.len()), (5, 2));
        cache.finish(&first);
        cache.finish(&second);
        assert_eq!(cache.next_run(0, None).map(|run| run.blocks[0]), Some(7));
    }

    #[test]
    fn a_flush_covers_what_was_dirty_and_no_more() {
        let mut cache = cache(100, 0.9, 1.0);
        cache.insert(0, 5);
        assert!(cache.next_run(0, None).is_none(), "below the low mark nothing is destaged");
        let covered = cache.end_epoch();
        cache.insert(0, 50);
        cache.insert(0, 5);
        let run = cache.next_run(0, Some(covered)).unwrap();
        assert_eq!(run.blocks[0], 5, "overwriting does not take a block out of the flush");
        assert!(cache.next_run(0, Some(covered)).is_none(), "what came later is not urgent");
        cache.finish(&run);
        assert!(cache.oldest() > Some(covered));
    }
}
