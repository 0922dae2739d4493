//! Sparse memory for an emulated device: pages of zeros occupy nothing.

use std::collections::BTreeMap;
use std::ops::Range;

use tidegate_nbd::{AllocationMap, AllocationState, Errno};

use crate::buffer::is_zero;

pub(crate) const PAGE: usize = 4096;

/// The most pages that are looked at for one answer about allocation, so that the worker is not kept for more
/// than a millisecond (chosen: 256 MiB of data).
const MOST_PAGES: usize = 65_536;

type Page = Box<[u8; PAGE]>;

/// An address space of pages, of which at most so many hold anything but zeros.
#[derive(Debug)]
pub(crate) struct SparseMemory {
    pages: BTreeMap<u64, Page>,
    limit: usize,
}

impl SparseMemory {
    /// Room for `limit` bytes that are not zero, in whole pages.
    pub(crate) fn new(limit: u64) -> Self {
        Self { pages: BTreeMap::new(), limit: usize::try_from(limit / PAGE as u64).unwrap_or(usize::MAX) }
    }

    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) {
        let mut done = 0;
        for (number, within) in pages(offset, out.len() as u64) {
            let target = &mut out[done..done + within.len()];
            done += within.len();
            match self.pages.get(&number) {
                Some(page) => target.copy_from_slice(&page[within]),
                None => target.fill(0),
            }
        }
    }

    /// Writes what fits.
    ///
    /// # Errors
    /// [`Errno::NoSpc`] when a page would be one too many; the pages before it are written.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        for (number, within) in pages(offset, data.len() as u64) {
            let source = &data[done..done + within.len()];
            done += within.len();
            if is_zero(source) {
                self.clear(number, within);
            } else if let Some(page) = self.pages.get_mut(&number) {
                page[within].copy_from_slice(source);
            } else if self.pages.len() < self.limit {
                let mut page: Page = Box::new([0; PAGE]);
                page[within].copy_from_slice(source);
                self.pages.insert(number, page);
            } else {
                return Err(Errno::NoSpc);
            }
        }
        Ok(())
    }

    /// Makes a range read as zeros.
    pub(crate) fn zero(&mut self, offset: u64, length: u64) {
        for (number, within) in pages(offset, length) {
            self.clear(number, within);
        }
    }

    /// Tells the allocation of a range into `map`, which may not become full: pages that hold something, and
    /// what lies between them.
    pub(crate) fn allocation(&self, offset: u64, length: u64, map: &mut AllocationMap) {
        let (mut at, end) = (offset, offset + length);
        let numbers = offset / PAGE as u64..end.div_ceil(PAGE as u64);
        for (number, _) in self.pages.range(numbers).take(MOST_PAGES) {
            let start = (number * PAGE as u64).max(at);
            map.push(start - at, AllocationState::HOLE);
            at = (number + 1) * PAGE as u64;
            map.push(at - start, AllocationState::DATA);
            if map.is_full() {
                return;
            }
        }
        let more = self.pages.range(at.div_ceil(PAGE as u64)..).next();
        let next = more.map_or(end, |(number, _)| (number * PAGE as u64).min(end));
        map.push(next.saturating_sub(at), AllocationState::HOLE);
    }

    fn clear(&mut self, number: u64, within: Range<usize>) {
        if within.len() == PAGE {
            self.pages.remove(&number);
        } else if let Some(page) = self.pages.get_mut(&number) {
            page[within].fill(0);
            if is_zero(&page[..]) {
                self.pages.remove(&number);
            }
        }
    }
}

/// The pages that a range touches, and which part of each.
fn pages(offset: u64, length: u64) -> impl Iterator<Item = (u64, Range<usize>)> {
    let end = offset + length;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at == end {
            return None;
        }
        let (number, start) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let stop = PAGE.min(start + usize::try_from(end - at).unwrap_or(PAGE).min(PAGE));
        at += (stop - start) as u64;
        Some((number, start..stop))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: usize = 5 * PAGE;

    #[derive(Debug, Clone)]
    enum Op {
        Write(usize, usize, u8),
        Zero(usize, usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        let range = (0..SIZE).prop_flat_map(|start| (Just(start), 0..=(SIZE - start)));
        prop_oneof![
            (range.clone(), 0u8..3).prop_map(|((start, length), byte)| Op::Write(start, length, byte)),
            range.prop_map(|(start, length)| Op::Zero(start, length)),
        ]
    }

    proptest! {
        #[test]
        fn reads_like_plain_memory_and_holds_only_what_is_not_zero(ops in prop::collection::vec(op(),
            1..40)) {
            let mut sparse = SparseMemory::new(SIZE as u64);
            let mut plain = vec![0u8; SIZE];
            for op in ops {
                match op {
                    Op::Write(start, length, byte) => {
                        sparse.write(start as u64, &vec![byte; length]).unwrap();
                        plain[start..start + length].fill(byte);
                    }
                    Op::Zero(start, length) => {
                        sparse.zero(start as u64, length as u64);
                        plain[start..start + length].fill(0);
                    }
                }
            }
            let mut read = vec![7u8; SIZE];
            sparse.read(0, &mut read);
            prop_assert_eq!(&read, &plain);
            prop_assert!(sparse.pages.values().all(|page| page.iter().any(|byte| *byte != 0)));
        }
    }

    #[test]
    fn allocation_is_told_by_pages() {
        let (page, mut memory) = (PAGE as u64, SparseMemory::new(1 << 20));
        memory.write(2 * page + 100, &[1; PAGE]).unwrap();
        memory.write(7 * page, &[1]).unwrap();
        let told = |offset, length| {
            let mut map = AllocationMap::new(length, false);
            memory.allocation(offset, length, &mut map);
            map.extents().iter().map(|extent| (extent.length, extent.state.hole)).collect::<Vec<_>>()
        };
        assert_eq!(told(0, 2 * page), [(2 * page, true)]);
        assert_eq!(
            told(0, 1 << 40),
            [
                (2 * page, true),
                (2 * page, false),
                (3 * page, true),
                (page, false),
                ((1 << 40) - 8 * page, true)
            ]
        );
        assert_eq!(told(3 * page + 1, page), [(page - 1, false), (1, true)]);
        assert_eq!(told(7 * page + 5, 10), [(10, false)]);
    }

    #[test]
    fn allocation_of_much_data_is_told_in_part() {
        let mut memory = SparseMemory::new(1 << 30);
        for page in 0..MOST_PAGES as u64 + 10 {
            memory.write(page * PAGE as u64, &[1]).unwrap();
        }
        let mut map = AllocationMap::new(1 << 40, false);
        memory.allocation(0, 1 << 40, &mut map);
        assert_eq!(map.covered(), (MOST_PAGES * PAGE) as u64);
    }

    #[test]
    fn beyond_the_limit_only_pages_that_exist_take_data() {
        let mut memory = SparseMemory::new(2 * PAGE as u64);
        assert_eq!(memory.write(0, &[1; 2 * PAGE]), Ok(()));
        assert_eq!(memory.write(2 * PAGE as u64, &[1]), Err(Errno::NoSpc));
        assert_eq!(memory.write(2 * PAGE as u64, &[0; PAGE]), Ok(()));
        assert_eq!(memory.write(100, &[2; 10]), Ok(()));
        memory.zero(0, PAGE as u64);
        assert_eq!(memory.write(2 * PAGE as u64, &[1]), Ok(()));
    }
}
