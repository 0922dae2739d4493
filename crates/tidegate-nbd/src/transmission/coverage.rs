//! The parts of a read that its reply has covered so far.
//!
//! Chunks of data and holes may come in any order. Together they must cover the read, and none may overlap
//! another (specification, "`NBD_CMD_READ`"). A client that reads into memory with older contents must check
//! both: a gap would show what was there before.

use thiserror::Error;

/// The most parts that are remembered because they came before those in front of them. Servers send chunks
/// in ascending order, which needs none (chosen: 16 KiB).
const MOST_PARTS: usize = 1024;

/// The reasons why a part of a read cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CoverageError {
    /// It was told before.
    #[error("two chunks of a read overlap")]
    Overlap,
    /// Too many parts without what lies between them.
    #[error("a read comes in more than {MOST_PARTS} pieces out of order")]
    Scattered,
}

/// The parts of one read that have come.
#[derive(Debug, Default)]
pub struct ReadCoverage {
    /// The length of the beginning that has come without a gap.
    beginning: u32,
    /// Parts behind it, in their order: start and end.
    parts: Vec<(u32, u32)>,
}

impl ReadCoverage {
    /// Takes the part of `length` bytes at `start` within the read. The caller knows that it lies within.
    ///
    /// # Errors
    /// When it overlaps another, or there are too many gaps.
    pub fn take(&mut self, start: u32, length: u32) -> Result<(), CoverageError> {
        let end = start.saturating_add(length);
        if start < self.beginning {
            return Err(CoverageError::Overlap);
        }
        let next = self.parts.partition_point(|(part, _)| *part < start);
        let before = next.checked_sub(1).map(|before| self.parts[before]);
        if before.is_some_and(|(_, until)| until > start)
            || self.parts.get(next).is_some_and(|(part, _)| *part < end)
        {
            return Err(CoverageError::Overlap);
        }
        if start > self.beginning {
            if before.is_some_and(|(_, until)| until == start) {
                self.parts[next - 1].1 = end;
            } else if self.parts.len() < MOST_PARTS {
                self.parts.insert(next, (start, end));
            } else {
                return Err(CoverageError::Scattered);
            }
            return Ok(());
        }
        self.beginning = end;
        let joined = self.parts.iter().take_while(|(part, until)| {
            let joins = *part == self.beginning;
            if joins {
                self.beginning = *until;
            }
            joins
        });
        let joined = joined.count();
        self.parts.drain(..joined);
        Ok(())
    }

    /// Returns true if all of a read of this length has come.
    #[must_use]
    pub fn is_complete(&self, length: u32) -> bool {
        self.beginning == length
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_part_that_comes_twice_or_reaches_into_another_is_refused() {
        for (first, second) in [((0, 8), (0, 8)), ((0, 8), (7, 1)), ((4, 4), (0, 5)), ((4, 4), (7, 9))] {
            let mut coverage = ReadCoverage::default();
            assert_eq!(coverage.take(first.0, first.1), Ok(()));
            assert_eq!(coverage.take(second.0, second.1), Err(CoverageError::Overlap), "{second:?}");
        }
    }

    #[test]
    fn a_server_that_scatters_a_read_is_stopped() {
        let mut coverage = ReadCoverage::default();
        let outcomes = (0..=MOST_PARTS as u32).map(|part| coverage.take(2 * part + 1, 1));
        assert_eq!(outcomes.last(), Some(Err(CoverageError::Scattered)));
    }

    proptest! {
        /// The oracle is a byte for each byte of the read.
        #[test]
        fn coverage_agrees_with_a_map_of_bytes(
            parts in prop::collection::vec((0u32..64, 1u32..16), 1..40), whole in any::<bool>(),
        ) {
            let (mut coverage, mut bytes) = (ReadCoverage::default(), [false; 80]);
            let rest = if whole { (0..80).map(|at| (at, 1)).collect() } else { Vec::new() };
            for (start, length) in parts.into_iter().chain(rest) {
                let range = start as usize..(start + length) as usize;
                let free = bytes[range.clone()].iter().all(|byte| !byte);
                prop_assert_eq!(coverage.take(start, length).is_ok(), free);
                if free {
                    bytes[range].fill(true);
                }
                prop_assert_eq!(coverage.is_complete(80), bytes.iter().all(|byte| *byte));
            }
        }
    }
}
