//! The place of an array's bytes on its disks, and the cost of writing them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::cache::BLOCK;
use crate::io::DeviceIo;

/// Redundancy that the array keeps beside the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RaidLevel {
    /// Nothing.
    #[default]
    Raid0,
    /// One unit of parity in each row of units, on a disk that changes from row to row. A read costs the same
    /// as in RAID 0. A write updates the parity with the data. It reads either the old data and the old
    /// parity (read-modify-write), or the rest of the row (reconstruct-write), whichever is in fewer places.
    /// A whole row is written without reading. Needs three disks.
    Raid5,
}

impl RaidLevel {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Contiguous bytes of one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskPart {
    pub(crate) disk: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl DiskPart {
    /// The cache's blocks that hold it.
    pub(crate) const fn blocks(self) -> Range<u64> {
        blocks(self.offset, self.bytes)
    }
}

const fn blocks(offset: u64, bytes: u64) -> Range<u64> {
    offset / BLOCK..(offset + bytes).div_ceil(BLOCK)
}

/// Operations of a write at the disks: all the reads, and once they are done, all the writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StripeUpdate {
    pub(crate) reads: Vec<DiskPart>,
    pub(crate) writes: Vec<DiskPart>,
}

#[derive(Debug, Clone)]
pub(crate) enum Layout {
    Raid0(Raid0),
    Raid5(Raid5),
}

impl Layout {
    /// Number of bytes of data that the disks hold together.
    pub(crate) const fn capacity(&self) -> u64 {
        match self {
            Self::Raid0(layout) => layout.units_per_disk * layout.unit * layout.disks,
            Self::Raid5(layout) => layout.rows * layout.row(),
        }
    }

    /// Returns the parts to read, without those whose blocks the cache holds, as `cached` tells.
    pub(crate) fn read(&self, io: DeviceIo, cached: impl Fn(usize, Range<u64>) -> bool) -> Vec<DiskPart> {
        match self {
            Self::Raid0(layout) => {
                layout.parts(io).filter(|part| !cached(part.disk, part.blocks())).collect()
            }
            Self::Raid5(layout) => layout.parts(io, |blocks| cached(0, blocks)),
        }
    }

    /// Returns the operations that write past the cache.
    pub(crate) fn write(&self, io: DeviceIo) -> StripeUpdate {
        match self {
            Self::Raid0(layout) => StripeUpdate { reads: Vec::new(), writes: layout.parts(io).collect() },
            Self::Raid5(layout) => layout.write(io),
        }
    }

    /// The cache's blocks in which a write ends up, each range with the side of the cache that has it: a
    /// disk's own blocks in RAID 0, where disks have nothing to do with each other; those of the array as a
    /// whole in RAID 5, where a row is written together.
    pub(crate) fn cached(&self, io: DeviceIo) -> Vec<(usize, Range<u64>)> {
        match self {
            Self::Raid0(layout) => layout.parts(io).map(|part| (part.disk, part.blocks())).collect(),
            Self::Raid5(_) => vec![(0, blocks(io.offset, u64::from(io.bytes)))],
        }
    }

    /// Returns the operations that write these blocks of one side of the cache. The blocks ascend: contiguous
    /// in RAID 0, from one row in RAID 5.
    pub(crate) fn destage(&self, side: usize, blocks: &[u64]) -> StripeUpdate {
        let Some(&first) = blocks.first() else { return StripeUpdate::default() };
        match self {
            Self::Raid0(_) => {
                let part = DiskPart { disk: side, offset: first * BLOCK, bytes: blocks.len() as u64 * BLOCK };
                StripeUpdate { reads: Vec::new(), writes: vec![part] }
            }
            Self::Raid5(layout) => layout.destage(blocks),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Raid0 {
    pub(crate) disks: u64,
    pub(crate) unit: u64,
    pub(crate) units_per_disk: u64,
}

impl Raid0 {
    /// A contiguous range is contiguous on each disk too, so there is one part for each disk it touches.
    fn parts(&self, io: DeviceIo) -> impl Iterator<Item = DiskPart> + use<> {
        let Self { disks, unit, .. } = *self;
        let end = io.offset + u64::from(io.bytes);
        let (first, last) = (io.offset / unit, (end - 1) / unit);
        (first..=last.min(first + disks - 1)).map(move |own_first| {
            let own_last = own_first + (last - own_first) / disks * disks;
            let from = if own_first == first { io.offset % unit } else { 0 };
            let to = if own_last == last { (end - 1) % unit + 1 } else { unit };
            let offset = own_first / disks * unit + from;
            let disk = (own_first % disks) as usize;
            DiskPart { disk, offset, bytes: own_last / disks * unit + to - offset }
        })
    }
}

/// Left-asymmetric: the parity moves from the last disk downwards, the data fill the rest of the row from the
/// first disk on. So EMC draws it for the CLARiiON (CX500i configuration guide, figure 2-2).
#[derive(Debug, Clone)]
pub(crate) struct Raid5 {
    pub(crate) disks: u64,
    pub(crate) unit: u64,
    /// Number of rows: as many as units fit on a disk.
    pub(crate) rows: u64,
}

/// New data of a row, in one of its units of data.
#[derive(Debug, Clone, Copy)]
struct Fresh {
    column: u64,
    /// Range from the first new byte to behind the last, within the unit.
    from: u64,
    to: u64,
    /// Nothing between them is old.
    solid: bool,
}

impl Raid5 {
    /// Number of bytes of data in a row.
    pub(crate) const fn row(&self) -> u64 {
        (self.disks - 1) * self.unit
    }

    const fn parity_disk(&self, row: u64) -> u64 {
        self.disks - 1 - row % self.disks
    }

    const fn part(&self, row: u64, disk: u64, from: u64, to: u64) -> DiskPart {
        DiskPart { disk: disk as usize, offset: row * self.unit + from, bytes: to - from }
    }

    const fn data_part(&self, row: u64, column: u64, from: u64, to: u64) -> DiskPart {
        let disk = if column < self.parity_disk(row) { column } else { column + 1 };
        self.part(row, disk, from, to)
    }

    /// The pieces of the range unit by unit: the unit's number, and from where to where within it.
    fn units(&self, io: DeviceIo) -> impl Iterator<Item = (u64, u64, u64)> + use<> {
        let unit = self.unit;
        let end = io.offset + u64::from(io.bytes);
        let (first, last) = (io.offset / unit, (end - 1) / unit);
        (first..=last).map(move |number| {
            let from = if number == first { io.offset % unit } else { 0 };
            let to = if number == last { (end - 1) % unit + 1 } else { unit };
            (number, from, to)
        })
    }

    /// Units that follow one another on a disk are read together. (Where parity lies between them, they do
    /// not.)
    fn parts(&self, io: DeviceIo, cached: impl Fn(Range<u64>) -> bool) -> Vec<DiskPart> {
        let mut parts: Vec<DiskPart> = Vec::new();
        for (number, from, to) in self.units(io) {
            if cached(blocks(number * self.unit + from, to - from)) {
                continue;
            }
            let columns = self.disks - 1;
            let part = self.data_part(number / columns, number % columns, from, to);
            let before = parts
                .iter_mut()
                .rev()
                .take(self.disks as usize)
                .find(|before| before.disk == part.disk && before.offset + before.bytes == part.offset);
            match before {
                Some(before) => before.bytes += part.bytes,
                None => parts.push(part),
            }
        }
        parts
    }

    fn write(&self, io: DeviceIo) -> StripeUpdate {
        let columns = self.disks - 1;
        let mut update = StripeUpdate::default();
        let mut fresh: Vec<Fresh> = Vec::new();
        let mut row = io.offset / self.row();
        for (number, from, to) in self.units(io) {
            if number / columns != row {
                self.update(row, &fresh, &mut update);
                fresh.clear();
                row = number / columns;
            }
            fresh.push(Fresh { column: number % columns, from, to, solid: true });
        }
        self.update(row, &fresh, &mut update);
        update
    }

    fn destage(&self, blocks: &[u64]) -> StripeUpdate {
        let mut update = StripeUpdate::default();
        let mut fresh: Vec<Fresh> = Vec::new();
        let mut row = 0;
        for block in blocks {
            let number = block * BLOCK / self.unit;
            row = number / (self.disks - 1);
            let column = number % (self.disks - 1);
            let from = block * BLOCK % self.unit;
            let to = from + BLOCK;
            match fresh.last_mut().filter(|last| last.column == column) {
                Some(last) => {
                    last.solid &= last.to == from;
                    last.to = to;
                }
                None => fresh.push(Fresh { column, from, to, solid: true }),
            }
        }
        self.update(row, &fresh, &mut update);
        update
    }

    /// Each unit is read and written in one piece from its first new byte to its last, old bytes between them
    /// included: one longer transfer costs a disk less than two.
    fn update(&self, row: u64, fresh: &[Fresh], update: &mut StripeUpdate) {
        // The parity changes wherever any of the units does.
        let from = fresh.iter().map(|fresh| fresh.from).min().unwrap_or(0);
        let to = fresh.iter().map(|fresh| fresh.to).max().unwrap_or(0);
        let known = |column: u64| {
            fresh
                .iter()
                .any(|fresh| fresh.column == column && fresh.solid && fresh.from == from && fresh.to == to)
        };
        let unknown: Vec<u64> = (0..self.disks - 1).filter(|column| !known(*column)).collect();
        let parity = self.part(row, self.parity_disk(row), from, to);
        let data = fresh.iter().map(|fresh| self.data_part(row, fresh.column, fresh.from, fresh.to));
        if unknown.len() <= fresh.len() {
            update.reads.extend(unknown.iter().map(|column| self.data_part(row, *column, from, to)));
        } else {
            update.reads.extend(data.clone());
            update.reads.push(parity);
        }
        update.writes.extend(data);
        update.writes.push(parity);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn bytes_of(parts: &[DiskPart]) -> Vec<(usize, u64)> {
        let mut bytes: Vec<_> = parts
            .iter()
            .flat_map(|part| (part.offset..part.offset + part.bytes).map(|byte| (part.disk, byte)))
            .collect();
        bytes.sort_unstable();
        bytes
    }

    /// The place of one byte, as the figure of the layout has it.
    fn place(disks: u64, unit: u64, byte: u64) -> (usize, u64) {
        let number = byte / unit;
        let row = number / (disks - 1);
        let parity = disks - 1 - row % disks;
        let data: Vec<u64> = (0..disks).filter(|disk| *disk != parity).collect();
        (data[(number % (disks - 1)) as usize] as usize, row * unit + byte % unit)
    }

    proptest! {
        /// Against the obvious: byte by byte, the unit's number modulo the disks is the disk.
        #[test]
        fn parts_hold_exactly_the_bytes_of_the_request(
            disks in 1u64..6, unit in 1u64..9, offset in 0u64..200, bytes in 1u32..120,
        ) {
            let layout = Raid0 { disks, unit, units_per_disk: 1_000 };
            let mut expected: Vec<(usize, u64)> = (offset..offset + u64::from(bytes))
                .map(|byte| {
                    let number = byte / unit;
                    ((number % disks) as usize, number / disks * unit + byte % unit)
                })
                .collect();
            expected.sort_unstable();
            let parts: Vec<_> = layout.parts(DeviceIo::read(offset, bytes)).collect();
            prop_assert_eq!(bytes_of(&parts), expected);
            prop_assert!(parts.len() as u64 <= disks);
        }

        #[test]
        fn raid_5_reads_exactly_the_bytes_of_the_request(
            disks in 3u64..7, unit in 1u64..9, offset in 0u64..200, bytes in 1u32..120,
        ) {
            let layout = Raid5 { disks, unit, rows: 1_000 };
            let mut expected: Vec<_> =
                (offset..offset + u64::from(bytes)).map(|byte| place(disks, unit, byte)).collect();
            expected.sort_unstable();
            let parts = layout.parts(DeviceIo::read(offset, bytes), |_| false);
            prop_assert_eq!(bytes_of(&parts), expected);
        }

        /// After a write the parity of each column of bytes is known. It follows from the old contents (all
        /// overwritten data was read, the parity too), or from the whole row (all data not written was read).
        #[test]
        fn raid_5_reads_what_it_needs_to_update_the_parity(
            disks in 3u64..7, unit in 1u64..9, offset in 0u64..200, bytes in 1u32..120,
        ) {
            let layout = Raid5 { disks, unit, rows: 1_000 };
            let update = layout.write(DeviceIo::write(offset, bytes));
            let written = bytes_of(&update.writes);
            let read: BTreeSet<_> = bytes_of(&update.reads).into_iter().collect();
            let fresh: BTreeSet<_> =
                (offset..offset + u64::from(bytes)).map(|byte| place(disks, unit, byte)).collect();
            let data: BTreeSet<_> =
                written.iter().copied().filter(|(disk, byte)| !is_parity(disks, unit, *disk, *byte))
                    .collect();
            prop_assert_eq!(&data, &fresh);
            for (disk, byte) in &written {
                let at = |disk: &u64| (*disk as usize, *byte);
                let row: Vec<_> = (0..disks).filter(|disk| !is_parity(disks, unit, *disk as usize, *byte))
                    .collect();
                let parity = (0..disks).find(|disk| is_parity(disks, unit, *disk as usize, *byte)).unwrap();
                prop_assert!(written.contains(&at(&parity)), "parity of {disk}, {byte}");
                let overwritten = row.iter().map(at).filter(|at| fresh.contains(at));
                let modified = overwritten.clone().chain([at(&parity)]).all(|at| read.contains(&at));
                let reconstructed = row.iter().map(at).all(|at| read.contains(&at) || fresh.contains(&at));
                prop_assert!(modified || reconstructed, "{update:?}");
            }
        }
    }

    fn is_parity(disks: u64, unit: u64, disk: usize, byte: u64) -> bool {
        disks - 1 - byte / unit % disks == disk as u64
    }

    const UNIT: u64 = 4 * BLOCK;

    /// Five disks; blocks `0..16` are the first row, its parity on the last disk.
    fn five() -> Raid5 {
        Raid5 { disks: 5, unit: UNIT, rows: 100 }
    }

    fn part(disk: usize, blocks: Range<u64>) -> DiskPart {
        DiskPart { disk, offset: blocks.start * BLOCK, bytes: (blocks.end - blocks.start) * BLOCK }
    }

    #[test]
    fn the_layout_is_that_of_the_figure() {
        let disk_of = |number: u64| five().data_part(number / 4, number % 4, 0, UNIT).disk;
        assert_eq!([0, 1, 2, 3].map(disk_of), [0, 1, 2, 3], "parity on the last");
        assert_eq!([4, 5, 6, 7].map(disk_of), [0, 1, 2, 4]);
        assert_eq!([8, 9, 10, 11].map(disk_of), [0, 1, 3, 4]);
        assert_eq!([16, 17, 18, 19].map(disk_of), [1, 2, 3, 4], "parity on the first");
        assert_eq!([0, 1, 2, 3, 4, 5].map(|row| five().parity_disk(row)), [4, 3, 2, 1, 0, 4]);
    }

    #[test]
    fn a_small_write_costs_two_reads_and_two_writes() {
        let both = vec![part(1, 1..3), part(4, 1..3)];
        let expected = StripeUpdate { reads: both.clone(), writes: both };
        assert_eq!(five().write(DeviceIo::write(5 * BLOCK, 2 * BLOCK as u32)), expected);
        assert_eq!(five().destage(&[5, 6]), expected);
    }

    #[test]
    fn a_whole_row_is_written_without_reading() {
        let update = five().destage(&(0..16).collect::<Vec<_>>());
        assert!(update.reads.is_empty(), "{update:?}");
        assert_eq!(update.writes, [0, 1, 2, 3, 4].map(|disk| part(disk, 0..4)));
    }

    #[test]
    fn most_of_a_row_is_completed_by_reading_the_rest() {
        let update = five().destage(&(0..12).collect::<Vec<_>>());
        assert_eq!(update.reads, [part(3, 0..4)]);
        assert_eq!(update.writes, [0, 1, 2, 4].map(|disk| part(disk, 0..4)));
    }

    #[test]
    fn blocks_apart_in_one_unit_go_as_one_piece_with_what_lies_between() {
        let update = five().destage(&[4, 7]);
        assert_eq!(
            update.reads,
            [part(1, 0..4), part(4, 0..4)],
            "what lies between is read, to be written again"
        );
        assert_eq!(update.writes, [part(1, 0..4), part(4, 0..4)]);
        // Three units of four with such a gap: to complete the row would not spare the fourth, nor the gap.
        let update = five().destage(&[0, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(update.reads, [part(0, 0..4), part(3, 0..4)], "the gap and the rest");
    }

    #[test]
    fn what_the_cache_holds_is_not_read() {
        let layout = Layout::Raid5(five());
        let io = DeviceIo::read(0, 3 * UNIT as u32);
        let read = layout.read(io, |side, blocks| side == 0 && blocks == (4..8));
        assert_eq!(read, [part(0, 0..4), part(2, 0..4)]);
        assert_eq!(layout.cached(io), [(0, 0..12)]);
    }
}
