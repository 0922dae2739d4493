//! Parts of blocks, on storage that moves whole blocks only.
//!
//! A read moves the blocks around its range. A change keeps what the blocks at its ends have outside of it:
//! they are read, changed, and written back with the rest. Between the two nothing else may change them
//! ([`crate::block_order`]).
//!
//! The memory of a change has the whole blocks first, and behind them the two blocks that are read.

use std::ops::Range;

/// The whole blocks around a range that has a part of a block at an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockCover {
    /// The offset of the first block.
    start: u64,
    /// The length of all blocks.
    pub(crate) length: usize,
    /// The length of the first block's part before the range.
    before: usize,
    /// The length of the range.
    data: usize,
    block: usize,
}

impl BlockCover {
    /// Returns the cover of a range of at most a payload; `None` if it consists of whole blocks.
    pub(crate) fn of(offset: u64, length: u64, block: u32) -> Option<Self> {
        let block = u64::from(block);
        if offset.is_multiple_of(block) && length.is_multiple_of(block) {
            return None;
        }
        let Range { start, end } = whole_blocks(offset..offset + length, block);
        Some(Self {
            start,
            length: (end - start) as usize,
            before: (offset - start) as usize,
            data: length as usize,
            block: block as usize,
        })
    }

    /// Returns the memory that a change needs.
    pub(crate) fn length_to_change(&self) -> usize {
        self.length + 2 * self.block
    }

    /// The range's place in the memory of the blocks.
    pub(crate) fn data(&self) -> Range<usize> {
        self.before..self.before + self.data
    }

    /// Returns true if the first block has a part outside the range that the last one does not also hold.
    fn keeps_first(&self) -> bool {
        self.before > 0 && self.length > self.block
    }

    /// Returns true if the last block has a part outside the range; a single block counts as the last.
    fn keeps_last(&self) -> bool {
        self.data().end < self.length || self.length == self.block
    }
}

/// Returns the least range of whole blocks around a range.
fn whole_blocks(range: Range<u64>, block: u64) -> Range<u64> {
    range.start / block * block..range.end.next_multiple_of(block)
}

/// The blocks that a request changes, by their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangedBlocks {
    pub(crate) range: Range<u64>,
    /// The first block is changed in part, or the last one: nothing else may change such a block meanwhile.
    in_part: [bool; 2],
}

impl ChangedBlocks {
    /// Returns the blocks of a changed range. `reads_ends`: the blocks at its ends are read and written back
    /// where they have parts outside of it.
    pub(crate) fn of(range: Range<u64>, block: u32, reads_ends: bool) -> Self {
        let block = u64::from(block);
        let in_part = [range.start, range.end].map(|end| reads_ends && !end.is_multiple_of(block));
        Self { range: range.start / block..range.end.div_ceil(block), in_part }
    }

    /// Returns the numbers of the blocks that are changed in part.
    pub(crate) fn in_part(&self) -> impl Iterator<Item = u64> + use<> {
        let [first, last] = self.in_part;
        let ends = [first.then_some(self.range.start), last.then_some(self.range.end.saturating_sub(1))];
        let is_one = ends[0] == ends[1];
        ends.into_iter().take(if is_one { 1 } else { 2 }).flatten()
    }

    pub(crate) fn is_in_part(&self, number: u64) -> bool {
        self.in_part().any(|part| part == number)
    }

    /// Returns true if some of the blocks are changed as a whole.
    pub(crate) fn has_whole(&self) -> bool {
        self.range.end.saturating_sub(self.range.start) > self.in_part().count() as u64
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.range.start < other.range.end && other.range.start < self.range.end
    }
}

/// The operations of a request with parts of blocks, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockStep {
    /// All blocks are read, for a read.
    Read,
    /// The first block is read, or the last one, for a change.
    ReadFirst,
    ReadLast,
    Write,
}

/// The progress of a request with parts of blocks.
#[derive(Debug)]
pub(crate) struct PartialBlocks {
    pub(crate) cover: BlockCover,
    step: BlockStep,
    /// Bytes moved in this step.
    done: usize,
}

impl PartialBlocks {
    pub(crate) fn to_read(cover: BlockCover) -> Self {
        Self { cover, step: BlockStep::Read, done: 0 }
    }

    /// A change by data that the memory begins with.
    pub(crate) fn to_change(cover: BlockCover, memory: &mut [u8]) -> Self {
        memory.copy_within(..cover.data, cover.before);
        let step = if cover.keeps_first() { BlockStep::ReadFirst } else { BlockStep::ReadLast };
        Self { cover, step, done: 0 }
    }

    /// Returns true if the blocks are written now, with the change in them.
    pub(crate) fn is_writing(&self) -> bool {
        self.step == BlockStep::Write
    }

    /// Returns the memory that this step moves, and its place on the storage.
    pub(crate) fn part(&self) -> (Range<usize>, u64) {
        let BlockCover { start, length, block, .. } = self.cover;
        let (at, from, step) = match self.step {
            BlockStep::Read | BlockStep::Write => (0, start, length),
            BlockStep::ReadFirst => (length, start, block),
            BlockStep::ReadLast => (length + block, start + (length - block) as u64, block),
        };
        (at + self.done..at + step, from + self.done as u64)
    }

    /// Counts moved bytes. Returns true once the last step is over.
    pub(crate) fn advance(&mut self, count: usize, memory: &mut [u8]) -> bool {
        if self.part().0.len() > count {
            self.done += count;
            return false;
        }
        let cover = self.cover;
        self.done = 0;
        self.step = match self.step {
            BlockStep::ReadFirst if cover.keeps_last() => BlockStep::ReadLast,
            BlockStep::ReadFirst | BlockStep::ReadLast => BlockStep::Write,
            BlockStep::Read | BlockStep::Write => return true,
        };
        if self.step == BlockStep::Write {
            self.keep(memory);
        }
        false
    }

    /// Copies what the change leaves as it is to its place in the blocks.
    fn keep(&self, memory: &mut [u8]) {
        let cover = self.cover;
        let (first, last) = (cover.length, cover.length + cover.block);
        let end = cover.data().end;
        if cover.keeps_first() {
            memory.copy_within(first..first + cover.before, 0);
        } else {
            // Of a single block, which was read as the last.
            memory.copy_within(last..last + cover.before, 0);
        }
        if cover.keeps_last() {
            let within = cover.block - (cover.length - end);
            memory.copy_within(last + within..last + cover.block, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Carries a change out on storage that moves whole blocks, in portions of so many of them.
    fn change(storage: &mut [u8], offset: usize, data: &[u8], block: usize, portion: usize) {
        let cover = BlockCover::of(offset as u64, data.len() as u64, block as u32).unwrap();
        let mut memory = vec![0xee; cover.length_to_change()];
        memory[..data.len()].copy_from_slice(data);
        let mut partial = PartialBlocks::to_change(cover, &mut memory);
        loop {
            let (part, at) = partial.part();
            let (start, length) = (part.start, part.len());
            let (at, count) = (at as usize, length.min(portion * block));
            assert!([start, length, at, count].iter().all(|number| number.is_multiple_of(block)));
            match partial.step {
                BlockStep::Write => storage[at..at + count].copy_from_slice(&memory[start..start + count]),
                _ => memory[start..start + count].copy_from_slice(&storage[at..at + count]),
            }
            if partial.advance(count, &mut memory) {
                return;
            }
        }
    }

    proptest! {
        #[test]
        fn a_change_leaves_what_is_around_it(
            offset in 0usize..200, length in 1usize..100, shift in 1u32..6, portion in 1usize..4,
        ) {
            let block = 1 << shift;
            prop_assume!(!(offset.is_multiple_of(block) && length.is_multiple_of(block)));
            let mut storage: Vec<u8> = (0..=255).chain(0..=255).collect();
            let mut expected = storage.clone();
            let data = vec![0xdd; length];
            expected[offset..offset + length].copy_from_slice(&data);
            change(&mut storage, offset, &data, block, portion);
            prop_assert_eq!(storage, expected);
        }
    }

    #[test]
    fn whole_blocks_are_no_parts() {
        assert_eq!(BlockCover::of(4096, 8192, 4096), None);
        assert_eq!(BlockCover::of(1, 1, 1), None);
        let cover = BlockCover::of(512, 512, 4096).unwrap();
        assert_eq!((cover.start, cover.length, cover.data()), (0, 4096, 512..1024));
    }
}
