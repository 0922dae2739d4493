//! The values that a client may see.
//!
//! The volume is a row of cells, and every write fills its cells with a value of its own. The model keeps the
//! writes of each cell, and the order of what clients did and heard. It knows neither gateway nor disk.
//!
//! - A write that was answered is not overtaken: what ended before it was asked for is not seen after it.
//! - A write whose fate is unknown may be seen or not, until everything is at rest.
//! - When the storage loses its power, only a durable write still excludes what ended before it.
//! - A write is durable once it is answered with FUA, or covered by a flush that succeeded. Such a flush
//!   covers every write that was answered before it was asked for. The exception is a write that may have
//!   been lost with the storage: its front must have told the session so, by a flush that failed.

use std::ops::Range;

/// The place of an event in the order of everything that clients do and hear.
pub(super) type Ordinal = u64;

/// One change of a range of cells.
#[derive(Debug, Clone)]
struct ModelWrite {
    value: u64,
    /// The life of the gateway that its client is connected to.
    front: u64,
    issued: Ordinal,
    /// The time from which on it changes nothing any more.
    ended: Option<Ordinal>,
    acknowledged: Option<Ordinal>,
    /// It excludes, in the cache, what ended before it.
    is_seen: bool,
    is_durable: bool,
    /// It may have been lost when the storage died.
    lost: Option<Ordinal>,
    /// The storage lost its power while it was under way.
    is_unsure: bool,
    /// A trim promises nothing.
    is_advice: bool,
}

/// A write as one of its cells knows it.
#[derive(Debug, Clone, Copy)]
struct CellWrite {
    write: usize,
    /// The last read that brought it when no write was under way: when it was asked for, and answered.
    observed: Ordinal,
    heard: Ordinal,
}

/// A change that a client asks for.
#[derive(Debug, Clone)]
pub(super) struct NewWrite {
    pub(super) cells: Range<usize>,
    pub(super) value: u64,
    pub(super) front: u64,
    pub(super) is_advice: bool,
}

pub(super) struct VolumeModel {
    writes: Vec<ModelWrite>,
    cells: Vec<Vec<CellWrite>>,
    cell: usize,
    now: Ordinal,
    /// The last time that the storage lost its power.
    power_lost: Ordinal,
}

impl VolumeModel {
    /// A volume of zeroes, in cells of so many bytes.
    pub(super) fn new(size: usize, cell: usize) -> Self {
        let zeroes = ModelWrite {
            value: 0,
            front: 0,
            issued: 0,
            ended: Some(0),
            acknowledged: Some(0),
            is_seen: true,
            is_durable: true,
            lost: None,
            is_unsure: false,
            is_advice: false,
        };
        let cells = vec![vec![CellWrite { write: 0, observed: 0, heard: 0 }]; size / cell];
        Self { writes: vec![zeroes], cells, cell, now: 0, power_lost: 0 }
    }

    pub(super) fn now(&self) -> Ordinal {
        self.now
    }

    /// The next event.
    pub(super) fn tick(&mut self) -> Ordinal {
        self.now += 1;
        self.now
    }

    pub(super) fn issue(&mut self, new: NewWrite) -> usize {
        let NewWrite { cells, value, front, is_advice } = new;
        let write = self.writes.len();
        let issued = self.tick();
        self.writes.push(ModelWrite {
            value,
            front,
            issued,
            ended: None,
            acknowledged: None,
            is_seen: false,
            is_durable: false,
            lost: None,
            is_unsure: false,
            is_advice,
        });
        for cell in cells {
            self.cells[cell].push(CellWrite { write, observed: 0, heard: 0 });
        }
        write
    }

    pub(super) fn acknowledge(&mut self, write: usize, durable: bool) {
        let now = self.tick();
        let write = &mut self.writes[write];
        write.ended = Some(now);
        write.acknowledged = Some(now);
        if !write.is_advice {
            write.is_durable |= durable;
            write.is_seen = durable || !write.is_unsure;
        }
    }

    /// It was answered with an error, by the storage's own gateway.
    pub(super) fn refuse(&mut self, write: usize) {
        self.writes[write].ended = Some(self.tick());
    }

    /// The storage's gateway has died, and with `power_lost` its cache.
    pub(super) fn storage_died(&mut self, power_lost: bool) {
        let now = self.tick();
        for write in &mut self.writes {
            if write.is_durable {
                continue;
            }
            write.lost.get_or_insert(now);
            if power_lost {
                write.is_seen = false;
                write.is_unsure |= write.ended.is_none();
            }
        }
        if power_lost {
            self.power_lost = now;
            self.cells.iter_mut().flatten().for_each(|cell| cell.observed = 0);
        }
    }

    /// A flush of a session has succeeded; the session was last `told` of a loss, or opened, then.
    pub(super) fn flushed(&mut self, issued: Ordinal, front: u64, told: Ordinal) {
        for write in &mut self.writes {
            let is_covered = write.acknowledged.is_some_and(|at| at < issued) && !write.is_advice;
            let is_excused = write.lost.is_some_and(|lost| lost <= told || write.front != front);
            if is_covered && !is_excused {
                write.is_durable = true;
                write.is_seen = true;
            }
        }
    }

    /// Judges the bytes of a read that was asked for then, from this cell on.
    ///
    /// # Errors
    /// The first cell that has what it must not have.
    pub(super) fn check_read(&mut self, first: usize, bytes: &[u8], issued: Ordinal) -> Result<(), String> {
        for (cell, content) in (first..).zip(bytes.chunks(self.cell)) {
            let value = value_of(content).ok_or_else(|| format!("cell {cell} is torn"))?;
            let writes = &self.writes;
            let excludes = |by: &CellWrite, entry: &CellWrite, ended: Ordinal| {
                let write = &writes[by.write];
                let is_known = write.acknowledged.is_some_and(|at| at < issued) && write.is_seen;
                (is_known && write.issued > ended)
                    || (by.heard < issued && by.observed > ended.max(entry.observed))
            };
            let may_be = |entry: &CellWrite| {
                let excluded = writes[entry.write]
                    .ended
                    .is_some_and(|ended| self.cells[cell].iter().any(|by| excludes(by, entry, ended)));
                writes[entry.write].value == value && !excluded
            };
            if !self.cells[cell].iter().any(may_be) {
                return Err(format!(
                    "a read of cell {cell} brings {}, which {}",
                    named(value),
                    self.explain(cell, value)
                ));
            }
            // Everything was at its end before, so that this is what is there.
            let is_before = |entry: &CellWrite| writes[entry.write].ended.is_some_and(|ended| ended < issued);
            if issued > self.power_lost && self.cells[cell].iter().all(is_before) {
                for entry in &mut self.cells[cell] {
                    if writes[entry.write].value == value {
                        (entry.observed, entry.heard) = (issued, self.now);
                    }
                }
            }
        }
        Ok(())
    }

    /// Judges what is certain to survive, from this cell on.
    ///
    /// # Errors
    /// The first cell that has lost what is promised.
    pub(super) fn check_durable(&self, cells: Range<usize>, platter: &[u8]) -> Result<(), String> {
        for cell in cells {
            let content = &platter[cell * self.cell..][..self.cell];
            let value = value_of(content).ok_or_else(|| format!("cell {cell} is torn on the platter"))?;
            let writes = &self.writes;
            let of_cell = || self.cells[cell].iter().map(|entry| &writes[entry.write]);
            let excluded = |ended: Option<Ordinal>| {
                ended.is_some_and(|ended| of_cell().any(|by| by.is_durable && by.issued > ended))
            };
            if !of_cell().filter(|write| write.value == value).any(|write| !excluded(write.ended)) {
                return Err(format!(
                    "cell {cell} would have {} after a power loss, which {}",
                    named(value),
                    self.explain(cell, value)
                ));
            }
        }
        Ok(())
    }

    /// Says what is known of a value, and of the writes of the cell.
    fn explain(&self, cell: usize, value: u64) -> String {
        let known = self.cells[cell].iter().map(|entry| {
            let write = &self.writes[entry.write];
            let time = |time: Option<Ordinal>| time.map_or("never".into(), |time| time.to_string());
            let durable = if write.is_durable { ", durable" } else { "" };
            let unseen = if write.is_seen { "" } else { ", excludes nothing" };
            format!(
                "\n    {}: asked for at {}, answered {}, ended {}, lost {}, observed at {}{durable}{unseen}",
                named(write.value),
                write.issued,
                time(write.acknowledged),
                time(write.ended),
                time(write.lost),
                entry.observed
            )
        });
        let known: String = known.collect();
        let there = self.cells[cell].iter().any(|entry| self.writes[entry.write].value == value);
        let reason = if there { "is over" } else { "was never written there, or is long over" };
        format!("{reason}; at {}, with a power loss at {}, its writes are:{known}", self.now, self.power_lost)
    }

    /// Everything is at rest: no write is under way any more, in any place. Writes that cannot be seen again
    /// are forgotten.
    pub(super) fn rest(&mut self) {
        let now = self.tick();
        self.writes.iter_mut().for_each(|write| {
            write.ended.get_or_insert(now);
        });
        let writes = &self.writes;
        for entries in &mut self.cells {
            let all = entries.clone();
            entries.retain(|entry| {
                let ended = writes[entry.write].ended;
                !all.iter().any(|by| {
                    let by = &writes[by.write];
                    by.is_durable && ended.is_some_and(|ended| by.issued > ended)
                })
            });
        }
    }
}

/// The value that fills a cell, if one does.
fn value_of(content: &[u8]) -> Option<u64> {
    let (words, _) = content.as_chunks::<8>();
    let first = words.first()?;
    words.iter().all(|word| word == first).then(|| u64::from_le_bytes(*first))
}

/// The content of a cell with this value.
pub(super) fn fill(bytes: &mut [u8], value: u64) {
    for word in bytes.as_chunks_mut::<8>().0 {
        *word = value.to_le_bytes();
    }
}

fn named(value: u64) -> String {
    if value == 0 { "zeroes".into() } else { format!("write {value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: usize = 8;

    fn model() -> VolumeModel {
        VolumeModel::new(CELL, CELL)
    }

    fn write(model: &mut VolumeModel, value: u64) -> usize {
        model.issue(NewWrite { cells: 0..1, value, front: 1, is_advice: false })
    }

    fn may_read(model: &mut VolumeModel, value: u64) -> bool {
        let issued = model.tick();
        model.tick();
        model.check_read(0, &value.to_le_bytes(), issued).is_ok()
    }

    fn may_survive(model: &VolumeModel, value: u64) -> bool {
        model.check_durable(0..1, &value.to_le_bytes()).is_ok()
    }

    #[test]
    fn what_was_answered_is_seen_and_what_was_not_may_be() {
        let mut model = model();
        let one = write(&mut model, 1);
        assert!(may_read(&mut model, 0) && may_read(&mut model, 1) && may_read(&mut model, 0));
        model.acknowledge(one, false);
        assert!(!may_read(&mut model, 0) && may_read(&mut model, 1));
        assert!(!may_read(&mut model, 7), "it was never written");
        let two = write(&mut model, 2);
        model.refuse(two);
        assert!(may_read(&mut model, 2), "a write that failed may have been made");
        assert!(!may_read(&mut model, 1), "and does not come and go");
    }

    #[test]
    fn a_flush_makes_durable_what_was_answered_before_it() {
        let mut model = model();
        let one = write(&mut model, 1);
        model.acknowledge(one, false);
        assert!(may_survive(&model, 0));
        let flush = model.tick();
        let two = write(&mut model, 2);
        model.acknowledge(two, false);
        model.flushed(flush, 1, 0);
        assert!(!may_survive(&model, 0) && may_survive(&model, 1) && may_survive(&model, 2));
        model.storage_died(true);
        assert!(may_read(&mut model, 1) && !may_read(&mut model, 2) && !may_read(&mut model, 0));
    }

    #[test]
    fn a_loss_must_be_told_to_the_sessions_of_its_front_and_to_no_others() {
        for (front, told, claims) in [(1, false, true), (1, true, false), (2, false, false)] {
            let mut model = model();
            let one = write(&mut model, 1);
            model.acknowledge(one, false);
            model.storage_died(true);
            let told = if told { model.tick() } else { 0 };
            let flush = model.tick();
            model.flushed(flush, front, told);
            assert_eq!(!may_survive(&model, 0), claims, "front {front}, told {told}");
        }
    }
}
