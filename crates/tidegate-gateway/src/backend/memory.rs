//! Sparse memory for an emulated device: pages of zeros occupy nothing.

use std::collections::HashMap;
use std::ops::Range;

use tidegate_nbd::Errno;

pub(crate) const PAGE: usize = 4096;

type Page = Box<[u8; PAGE]>;

/// An address space of pages, of which at most so many hold anything but zeros.
#[derive(Debug)]
pub(crate) struct SparseMemory {
    pages: HashMap<u64, Page>,
    limit: usize,
}

impl SparseMemory {
    /// Room for `limit` bytes that are not zero, in whole pages.
    pub(crate) fn new(limit: u64) -> Self {
        Self { pages: HashMap::new(), limit: usize::try_from(limit / PAGE as u64).unwrap_or(usize::MAX) }
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

fn is_zero(bytes: &[u8]) -> bool {
    // Whole words first: this runs over every byte that is written.
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
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
