//! Work on the nftables table that goes on beside the control loop: starting programs, and reading what they
//! print, takes a good part of an interval.

use std::io;
use std::thread::{self, JoinHandle};

use super::nft::{self, NftTable, Seen};

/// A transaction with its reading back, or a comparison alone.
#[derive(Debug)]
pub(super) struct TableWork {
    /// The table that is to be in force in the end.
    wanted: NftTable,
    thread: JoinHandle<io::Result<Option<Seen>>>,
}

impl TableWork {
    /// Makes a table of the one that is in force.
    ///
    /// # Errors
    /// When no thread can be started; nothing is changed then.
    pub(super) fn change(before: NftTable, wanted: NftTable) -> io::Result<Self> {
        let table = wanted.clone();
        Self::start(wanted, move || {
            nft::change(&before, &table)?;
            nft::read()
        })
    }

    /// Compares the kernel's table with the one that should be in force.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn compare(wanted: NftTable) -> io::Result<Self> {
        Self::start(wanted, nft::read)
    }

    fn start(
        wanted: NftTable,
        work: impl FnOnce() -> io::Result<Option<Seen>> + Send + 'static,
    ) -> io::Result<Self> {
        let thread = thread::Builder::new().name("nftables".to_owned()).spawn(work)?;
        Ok(Self { wanted, thread })
    }

    /// Returns true if it would not be waited for.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end. Returns the table that was wanted, and what the kernel has.
    pub(super) fn end(self) -> (NftTable, io::Result<Seen>) {
        let outcome = self.thread.join();
        let seen = outcome.unwrap_or_else(|_| Err(io::Error::other("a thread for nftables panicked")));
        (self.wanted, seen.map(Option::unwrap_or_default))
    }
}
