//! Letting go of everything, whoever put it there: found by its name and handle in the kernel, from no memory of ours.

use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::edt::release;
use super::interface::name_of;
use super::nft::{self, Table};
use super::tc::{Qdisc, Tc};

/// How long packets that are held may take to leave before what holds them is removed. The guardian has to be done within
/// two seconds.
const DRAIN: Duration = Duration::from_millis(1_200);

/// What was found and removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Interfaces that had our queueing discipline.
    pub interfaces: Vec<String>,
    /// Whether the nftables table was there.
    pub table: bool,
}

impl Found {
    /// Whether there was nothing.
    #[must_use]
    pub fn nothing(&self) -> bool {
        !self.table && self.interfaces.is_empty()
    }
}

/// Removes everything that Tidegate ever puts into this network namespace, and nothing else. Packets that are held leave
/// first, in their order, so that none is lost.
///
/// # Errors
/// When the kernel refuses; the rest was done all the same.
pub fn undo() -> io::Result<Found> {
    let mut found = Found::default();
    let mut tc = Tc::open()?;
    let mut failed = None;
    let ours: Vec<Qdisc> = tc.qdiscs()?.into_iter().filter(Qdisc::is_ours).collect();
    let delays = ours.iter().filter(|qdisc| qdisc.delay.is_some_and(|delay| delay > Duration::ZERO));
    for held in delays {
        if let Err(error) = tc.set_delay(held.interface, held.class(), Duration::ZERO) {
            failed.get_or_insert(error);
        }
    }
    match programs(&mut tc, &ours).and_then(|programs| release(&programs)) {
        Ok(()) => {}
        Err(error) => {
            failed.get_or_insert(error);
        }
    }
    let deadline = Instant::now() + DRAIN;
    while !ours.is_empty()
        && Instant::now() < deadline
        && tc.qdiscs()?.iter().any(|qdisc| qdisc.is_ours() && !qdisc.is_root() && qdisc.queued > 0)
    {
        thread::sleep(Duration::from_millis(10));
    }
    match remove_table() {
        Ok(removed) => found.table = removed,
        Err(error) => {
            failed.get_or_insert(error);
        }
    }
    for root in ours.iter().filter(|qdisc| qdisc.is_root()) {
        match tc.delete_root(root.interface) {
            Ok(()) => found.interfaces.push(name_of(root.interface)),
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(found), Err)
}

/// The programs at our roots.
fn programs(tc: &mut Tc, ours: &[Qdisc]) -> io::Result<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    for root in ours.iter().filter(|qdisc| qdisc.is_root()) {
        found.extend(tc.filters(root.interface)?.into_iter().map(|filter| filter.program));
    }
    Ok(found)
}

fn remove_table() -> io::Result<bool> {
    match nft::read() {
        Ok(Some(_)) => nft::replace(&Table::default()).map(|()| true),
        Ok(None) => Ok(false),
        // Without the program there never was a table.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
