//! A disk behind a volatile cache.
//!
//! A write is in the cache at once, and on the platter after a sync that began later. When the power fails,
//! each sector of 512 bytes has the content of some write since then, or that of the platter.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::random::Dice;

pub(super) const SECTOR: usize = 512;

type Sector = [u8; SECTOR];

pub(super) struct SimulatedDisk {
    cached: Vec<u8>,
    durable: Vec<u8>,
    /// The contents that a sector has had since the platter has it: oldest first, each with its stamp.
    dirty: BTreeMap<usize, Vec<(u64, Box<Sector>)>>,
    /// Sectors that the cache takes for clean, although they were never written.
    abandoned: BTreeSet<usize>,
    /// The next sync reports that something was abandoned.
    unreported: bool,
    stamp: u64,
}

impl SimulatedDisk {
    pub(super) fn new(size: usize) -> Self {
        Self {
            cached: vec![0; size],
            durable: vec![0; size],
            dirty: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            unreported: false,
            stamp: 0,
        }
    }

    pub(super) fn size(&self) -> usize {
        self.cached.len()
    }

    /// Returns the number of writes so far.
    pub(super) fn stamp(&self) -> u64 {
        self.stamp
    }

    pub(super) fn read(&self, range: Range<usize>) -> &[u8] {
        &self.cached[range]
    }

    /// Returns what is certain to survive.
    pub(super) fn durable(&self) -> &[u8] {
        &self.durable
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.stamp += 1;
        self.cached[offset..offset + bytes.len()].copy_from_slice(bytes);
        for sector in sectors(offset..offset + bytes.len()) {
            let mut content = [0; SECTOR];
            content.copy_from_slice(&self.cached[sector * SECTOR..][..SECTOR]);
            self.dirty.entry(sector).or_default().push((self.stamp, Box::new(content)));
            self.abandoned.remove(&sector);
        }
    }

    /// Brings the writes up to `stamp` in a range to the platter. Returns false if it is to report an error.
    pub(super) fn sync(&mut self, range: Range<usize>, stamp: u64) -> bool {
        for sector in sectors(range) {
            let Some(contents) = self.dirty.get_mut(&sector) else { continue };
            let covered = contents.iter().take_while(|(at, _)| *at <= stamp).count();
            if let Some((_, content)) = contents.drain(..covered).next_back() {
                self.durable[sector * SECTOR..][..SECTOR].copy_from_slice(&*content);
            }
            if contents.is_empty() {
                self.dirty.remove(&sector);
            }
        }
        !std::mem::take(&mut self.unreported)
    }

    /// Fails to write some dirty sectors back, as Linux does: they count as clean, and the next sync says so.
    pub(super) fn fail_write_back(&mut self, dice: &mut Dice) -> bool {
        let sectors: Vec<usize> = self.dirty.keys().copied().collect();
        if sectors.is_empty() {
            return false;
        }
        for sector in sectors {
            if dice.hits(500) {
                self.dirty.remove(&sector);
                self.abandoned.insert(sector);
            }
        }
        self.unreported = true;
        true
    }

    /// Loses the cache.
    pub(super) fn lose_power(&mut self, dice: &mut Dice) {
        for (sector, contents) in std::mem::take(&mut self.dirty) {
            let chosen = dice.below(contents.len() + 1);
            if let Some((_, content)) = contents.get(chosen) {
                self.durable[sector * SECTOR..][..SECTOR].copy_from_slice(&**content);
            }
        }
        self.abandoned.clear();
        self.unreported = false;
        self.cached.clone_from(&self.durable);
    }
}

fn sectors(range: Range<usize>) -> Range<usize> {
    range.start / SECTOR..range.end.div_ceil(SECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_covers_only_the_writes_before_it_and_power_loss_only_what_it_does_not_cover() {
        for seed in 0..50 {
            let mut disk = SimulatedDisk::new(4 * SECTOR);
            disk.write(0, &[1; 2 * SECTOR]);
            let begun = disk.stamp();
            disk.write(SECTOR, &[2; SECTOR]);
            assert!(disk.sync(0..4 * SECTOR, begun));
            disk.write(2 * SECTOR, &[3; SECTOR]);
            disk.lose_power(&mut Dice::new(seed));
            assert_eq!(disk.read(0..SECTOR), [1; SECTOR]);
            assert!([1, 2].contains(&disk.read(SECTOR..2 * SECTOR)[0]));
            assert!([0, 3].contains(&disk.read(2 * SECTOR..3 * SECTOR)[0]));
        }
    }

    #[test]
    fn a_failed_write_back_is_reported_once_and_its_sectors_count_as_clean() {
        let mut dice = Dice::new(1);
        let mut disk = SimulatedDisk::new(64 * SECTOR);
        disk.write(0, &[1; 64 * SECTOR]);
        assert!(disk.fail_write_back(&mut dice));
        let stamp = disk.stamp();
        assert!(!disk.sync(0..64 * SECTOR, stamp));
        assert!(disk.sync(0..64 * SECTOR, stamp));
        assert!(disk.read(0..64 * SECTOR).iter().all(|byte| *byte == 1));
        disk.lose_power(&mut dice);
        assert!(disk.read(0..64 * SECTOR).contains(&0));
    }
}
