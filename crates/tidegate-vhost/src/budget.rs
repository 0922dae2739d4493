//! Bounds of the memory that front ends share with this process. What a front end maps costs it nothing, if
//! its file is sparse. Without bounds a few of them would use up the addresses or mappings of the process, and the next buffer or thread of any other client would fail.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

/// Mapped memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemoryAmount {
    pub(crate) bytes: u64,
    pub(crate) mappings: u64,
}

/// The most of one front end: a guest of 8 TiB in 256 regions. All of it is there twice while the front end
/// replaces it, and beside it is a record of requests in flight.
const MOST_OF_ONE: MemoryAmount = MemoryAmount { bytes: 17 << 40, mappings: 600 };

/// Kept for each front end, so that others cannot take it: enough for most guests, with 128 of them in half
/// of `MOST`.
const RESERVE: MemoryAmount = MemoryAmount { bytes: 256 << 30, mappings: 64 };

/// The most that all front ends together have beyond their reserves.
const COMMON: MemoryAmount = MemoryAmount { bytes: 32 << 40, mappings: 8192 };

/// The most of all. Half of the 128 TiB that a process has on x86-64, and a quarter of Linux's usual
/// `vm.max_map_count`: threads and buffers have the rest.
pub(crate) const MOST: MemoryAmount = MemoryAmount { bytes: 64 << 40, mappings: 16_384 };

/// The reason for which no more memory is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum TooMuchMemory {
    /// It is too much for one front end.
    #[error(
        "a front end shares at most 17 TiB of memory, in 600 mappings, those that it replaces among them"
    )]
    OfOne,
    /// Together with that of other front ends it is too much.
    #[error("the front ends of this process share too much memory together")]
    OfAll,
}

impl MemoryAmount {
    fn plus(self, other: Self) -> Self {
        let add = u64::saturating_add;
        Self { bytes: add(self.bytes, other.bytes), mappings: add(self.mappings, other.mappings) }
    }

    fn minus(self, other: Self) -> Self {
        let less = u64::saturating_sub;
        Self { bytes: less(self.bytes, other.bytes), mappings: less(self.mappings, other.mappings) }
    }

    fn is_within(self, bound: Self) -> bool {
        self.bytes <= bound.bytes && self.mappings <= bound.mappings
    }
}

/// The memory of all front ends.
#[derive(Debug, Default)]
struct SharedMemory {
    all: MemoryAmount,
    /// The part of it that is beyond the reserves.
    beyond: MemoryAmount,
}

impl SharedMemory {
    const fn new() -> Self {
        let none = MemoryAmount { bytes: 0, mappings: 0 };
        Self { all: none, beyond: none }
    }

    fn take(&mut self, mine: &mut MemoryAmount, more: MemoryAmount) -> Result<(), TooMuchMemory> {
        let (then, all) = (mine.plus(more), self.all.plus(more));
        let beyond = self.beyond.plus(then.minus(RESERVE)).minus(mine.minus(RESERVE));
        if !then.is_within(MOST_OF_ONE) {
            return Err(TooMuchMemory::OfOne);
        }
        // A front end within its reserve needs nothing of what is common.
        if !all.is_within(MOST) || !(beyond.is_within(COMMON) || then.is_within(RESERVE)) {
            return Err(TooMuchMemory::OfAll);
        }
        (*mine, self.all, self.beyond) = (then, all, beyond);
        Ok(())
    }

    fn give_back(&mut self, mine: &mut MemoryAmount, less: MemoryAmount) {
        let then = mine.minus(less);
        self.beyond = self.beyond.plus(then.minus(RESERVE)).minus(mine.minus(RESERVE));
        (*mine, self.all) = (then, self.all.minus(less));
    }
}

static SHARED: Mutex<SharedMemory> = Mutex::new(SharedMemory::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Both amounts are replaced as a whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes that all front ends share with this process now.
#[must_use]
pub fn shared_bytes() -> u64 {
    lock(&SHARED).all.bytes
}

/// The account of one front end.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryAccount(Arc<Mutex<MemoryAmount>>);

impl MemoryAccount {
    /// Charges the account with one mapping.
    ///
    /// # Errors
    /// At a bound.
    pub(crate) fn charge(&self, bytes: u64) -> Result<MemoryCharge, TooMuchMemory> {
        let amount = MemoryAmount { bytes, mappings: 1 };
        lock(&SHARED).take(&mut lock(&self.0), amount)?;
        Ok(MemoryCharge { account: self.clone(), amount })
    }
}

/// What one mapping is charged with, until it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryCharge {
    account: MemoryAccount,
    amount: MemoryAmount,
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        lock(&SHARED).give_back(&mut lock(&self.account.0), self.amount);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn amount(bytes: u64, mappings: u64) -> MemoryAmount {
        MemoryAmount { bytes, mappings }
    }

    #[test]
    fn greedy_front_ends_leave_every_other_its_reserve() {
        let mut shared = SharedMemory::default();
        for more in [amount(1 << 40, 1), amount(4096, 1)] {
            for _ in 0..8 {
                let mut greedy = MemoryAmount::default();
                while shared.take(&mut greedy, more).is_ok() {}
                assert!(greedy.is_within(MOST_OF_ONE));
            }
        }
        for _ in 0..32 {
            let mut modest = MemoryAmount::default();
            shared.take(&mut modest, RESERVE).unwrap();
            assert!(shared.take(&mut modest, amount(1 << 40, 1)).is_err());
        }
    }

    proptest! {
        #[test]
        fn bounds_hold_and_everything_comes_back(
            moves in vec((0usize..6, 0u64..9 << 40, 0u64..700, any::<bool>()), 1..60),
        ) {
            let mut shared = SharedMemory::default();
            let mut mine = [MemoryAmount::default(); 6];
            let mut taken: Vec<(usize, MemoryAmount)> = Vec::new();
            for (of, bytes, mappings, gives) in moves {
                if let Some((of, amount)) = gives.then(|| taken.pop()).flatten() {
                    shared.give_back(&mut mine[of], amount);
                } else if shared.take(&mut mine[of], amount(bytes, mappings)).is_ok() {
                    taken.push((of, amount(bytes, mappings)));
                }
                let sum = |part: fn(MemoryAmount) -> MemoryAmount| {
                    mine.iter().map(|mine| part(*mine)).fold(MemoryAmount::default(), MemoryAmount::plus)
                };
                prop_assert_eq!(shared.all, sum(|mine| mine));
                prop_assert_eq!(shared.beyond, sum(|mine| mine.minus(RESERVE)));
                prop_assert!(shared.all.is_within(MOST));
                prop_assert!(mine.iter().all(|mine| mine.is_within(MOST_OF_ONE)));
            }
            while let Some((of, amount)) = taken.pop() {
                shared.give_back(&mut mine[of], amount);
            }
            prop_assert_eq!((shared.all, shared.beyond), Default::default());
        }
    }
}
