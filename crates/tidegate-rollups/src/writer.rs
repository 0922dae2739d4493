//! The thread that writes.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use tidegate_journal::{FolderLock, WallTime};

use crate::calendar::Minute;
use crate::error::RollupError;
use crate::file::{AppendError, OpenMonth, RollupFile, folder};
use crate::rollup::MinuteBatch;

/// The most months that are kept: thirteen whole ones and the one under way.
pub const KEPT_MONTHS: usize = 14;

/// The most minutes that wait for the thread, and that wait for a disk that fails. Chosen: an hour's.
const MOST_WAITING: usize = 60;

/// A minute on its way to the thread, or a question.
#[derive(Debug)]
enum Message {
    Minute(MinuteBatch),
    /// Answer when everything before this is written.
    Flush(SyncSender<()>),
}

/// Rollups that are being written, by a thread of its own.
#[derive(Debug)]
pub struct RollupWriter {
    messages: SyncSender<Message>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
    folder: PathBuf,
    /// Minutes that found no room since the last one that did.
    dropped: u64,
}

impl RollupWriter {
    /// Begins the thread. Rollups go to a folder of their own in `journal`, the folder of a decision journal.
    ///
    /// # Errors
    /// When the folder cannot be used, or another process writes there.
    pub fn start(journal: &Path) -> Result<Self, RollupError> {
        let folder = folder(journal);
        fs::create_dir_all(&folder).map_err(RollupError::io(&folder))?;
        let lock = lock(&folder)?;
        let (messages, received) = sync_channel(MOST_WAITING);
        let (ends, ended) = sync_channel(0);
        let writer =
            MonthWriter { folder: folder.clone(), open: None, waiting: VecDeque::new(), failing: false };
        let run = move || {
            writer.run(&received);
            drop(lock);
            drop(ends);
        };
        thread::Builder::new().name("rollups".to_owned()).spawn(run).map_err(RollupError::io(&folder))?;
        Ok(Self { messages, ended, folder, dropped: 0 })
    }

    /// Hands a minute over. It never waits for the disk: a minute without room is dropped, and is unknown.
    pub fn write(&mut self, batch: MinuteBatch) {
        match self.messages.try_send(Message::Minute(batch)) {
            Ok(()) => {
                if self.dropped > 0 {
                    let (folder, dropped) = (self.folder.display(), self.dropped);
                    tracing::warn!("{folder}: rollups are written again; {dropped} minutes are missing");
                }
                self.dropped = 0;
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                if self.dropped == 0 {
                    let folder = self.folder.display();
                    tracing::warn!("{folder}: rollups are not written: the storage of this folder hangs");
                }
                self.dropped += 1;
            }
        }
    }

    /// Waits until everything handed over so far is in the file, at most this long. Returns true if it is, or
    /// if the disk did not take it. Not for a service's thread.
    #[must_use]
    pub fn flush(&self, longest: Duration) -> bool {
        let (answer, written) = sync_channel(1);
        self.messages.send(Message::Flush(answer)).is_ok() && written.recv_timeout(longest).is_ok()
    }

    /// Writes everything that was handed over, and ends the thread. Waits at most this long.
    pub fn close(self, longest: Duration) {
        drop(self.messages);
        // It ends by itself later, or with the process.
        let _ = self.ended.recv_timeout(longest);
    }
}

/// Locks the folder for one writer.
fn lock(folder: &Path) -> Result<FolderLock, RollupError> {
    let lock = FolderLock::take(folder).map_err(RollupError::io(&FolderLock::path(folder)))?;
    lock.ok_or_else(|| RollupError::InUse(folder.to_owned()))
}

/// The thread's state.
#[derive(Debug)]
struct MonthWriter {
    folder: PathBuf,
    open: Option<OpenMonth>,
    /// Minutes that the disk has not taken, oldest first.
    waiting: VecDeque<MinuteBatch>,
    failing: bool,
}

impl MonthWriter {
    fn run(mut self, messages: &Receiver<Message>) {
        // A torn end is cut off now, and not with the first minute.
        if let Err(error) = self.open_month_of(Minute::of(WallTime::now())) {
            self.fail(&error);
        }
        while let Ok(first) = messages.recv() {
            // All that wait are brought to the disk at once.
            let mut flushes = Vec::new();
            for message in std::iter::once(first).chain(messages.try_iter()) {
                match message {
                    Message::Minute(batch) => self.take(batch),
                    Message::Flush(answer) => flushes.push(answer),
                }
            }
            if let Some(open) = &self.open {
                open.sync();
            }
            for answer in flushes {
                // The one that asked may be gone.
                let _ = answer.send(());
            }
        }
    }

    fn take(&mut self, batch: MinuteBatch) {
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(batch);
        while let Some(batch) = self.waiting.pop_front() {
            let minute = batch.minute;
            match self.write(&batch) {
                Ok(()) => self.recover(minute),
                Err((error, is_undone)) => {
                    if is_undone {
                        self.waiting.push_front(batch);
                    }
                    return self.fail(&error);
                }
            }
        }
    }

    /// Writes a minute. An error says whether it may be written again.
    fn write(&mut self, batch: &MinuteBatch) -> Result<(), (RollupError, bool)> {
        let open = self.open_month_of(batch.minute).map_err(|error| (error, true))?;
        let path = open.path().to_owned();
        open.append(batch).map_err(|AppendError { source, is_undone }| {
            // The names that its blocks gave are not in the file.
            self.open = None;
            (RollupError::io(&path)(source), is_undone)
        })
    }

    fn open_month_of(&mut self, minute: Minute) -> Result<&mut OpenMonth, RollupError> {
        let month = minute.month();
        // A clock that was set back leads to an earlier month, too.
        let open = match self.open.take().filter(|open| open.month == month) {
            Some(open) => open,
            None => {
                let open = OpenMonth::open(&self.folder, month)?;
                remove_oldest(&self.folder)?;
                open
            }
        };
        Ok(self.open.insert(open))
    }

    fn fail(&mut self, error: &RollupError) {
        if !self.failing {
            tracing::warn!(
                "{error}; rollups wait for the disk, at most {MOST_WAITING} minutes of them; it is tried \
                 again every minute"
            );
        }
        self.failing = true;
    }

    fn recover(&mut self, minute: Minute) {
        if self.failing {
            let folder = self.folder.display();
            tracing::info!("{folder}: rollups are written again, from {} on", minute.begin());
        }
        self.failing = false;
    }
}

/// Removes the oldest months beyond those that are kept. Months are counted, and not compared with the clock:
/// a clock that is years ahead for a moment takes one month away, and not all.
fn remove_oldest(folder: &Path) -> Result<(), RollupError> {
    let files = RollupFile::all(folder)?;
    let months: BTreeSet<_> = files.iter().map(|file| file.month).collect();
    let surplus = months.len().saturating_sub(KEPT_MONTHS);
    let Some(&oldest_kept) = months.iter().nth(surplus) else { return Ok(()) };
    for file in files.iter().filter(|file| file.month < oldest_kept) {
        fs::remove_file(&file.path).map_err(RollupError::io(&file.path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_units::{ConsumerName, ResourceName};

    use std::fs::OpenOptions;

    use super::*;
    use crate::calendar::Month;
    use crate::frame::HEADER;
    use crate::reader::RollupReader;
    use crate::rollup::{MinuteCounts, RollupKey};

    fn batch(month: &str, minute: u32, requests: u64) -> MinuteBatch {
        let month: Month = month.parse().unwrap();
        let key = RollupKey {
            resource: ResourceName::new("disk").unwrap(),
            consumer: ConsumerName::new("w1").unwrap(),
            promise: None,
        };
        let counts = MinuteCounts { requests, ..MinuteCounts::default() };
        MinuteBatch { minute: month.first_minute().later(minute), rollups: vec![(key, counts)] }
    }

    fn writer(journal: &Path) -> MonthWriter {
        let folder = folder(journal);
        fs::create_dir_all(&folder).unwrap();
        MonthWriter { folder, open: None, waiting: VecDeque::new(), failing: false }
    }

    fn requests(journal: &Path, month: &str) -> Vec<(u32, u64)> {
        let (month, mut found) = (month.parse::<Month>().unwrap(), Vec::new());
        let reader = RollupReader::open(journal).unwrap();
        let damage = reader
            .read(month, |minute, _, counts| {
                found.push((minute.since(month.first_minute()), counts.requests));
            })
            .unwrap();
        assert!(damage.is_empty(), "{damage:?}");
        found
    }

    #[test]
    fn a_disk_that_fails_for_a_while_loses_no_minute() {
        let journal = tempfile::tempdir().unwrap();
        let mut writer = writer(journal.path());
        writer.take(batch("2026-11", 0, 1));
        let full = OpenOptions::new().write(true).open("/dev/full").expect("every Linux has one");
        let open = writer.open.as_mut().unwrap();
        open.replace_file(full);
        // `/dev/full` cannot be cut to a length: whether a part was written is not known.
        writer.take(batch("2026-11", 1, 2));
        assert!(writer.failing && writer.waiting.is_empty() && writer.open.is_none());
        // The folder is gone for two minutes.
        let aside = journal.path().join("aside");
        fs::rename(&writer.folder, &aside).unwrap();
        writer.take(batch("2026-11", 2, 3));
        writer.take(batch("2026-11", 3, 4));
        assert_eq!(writer.waiting.len(), 2);
        fs::rename(&aside, &writer.folder).unwrap();
        writer.take(batch("2026-11", 4, 5));
        assert!(!writer.failing);
        assert_eq!(requests(journal.path(), "2026-11"), [(0, 1), (2, 3), (3, 4), (4, 5)]);
    }

    #[test]
    fn no_more_minutes_wait_than_there_is_room_for() {
        let journal = tempfile::tempdir().unwrap();
        let mut writer = writer(journal.path());
        fs::remove_dir(&writer.folder).unwrap();
        for minute in 0..100 {
            writer.take(batch("2026-11", minute, u64::from(minute) + 1));
        }
        assert_eq!(writer.waiting.len(), MOST_WAITING);
        fs::create_dir(&writer.folder).unwrap();
        writer.take(batch("2026-11", 100, 101));
        let found = requests(journal.path(), "2026-11");
        assert_eq!((found.len(), found[0], found[59]), (60, (41, 42), (100, 101)));
    }

    #[test]
    fn thirteen_months_and_the_one_under_way_are_kept_whatever_the_clock_says() {
        let journal = tempfile::tempdir().unwrap();
        let mut writer = writer(journal.path());
        let mut month: Month = "2025-01".parse().unwrap();
        for _ in 0..20 {
            writer.take(batch(&month.to_string(), 5, 1));
            month = month.next();
        }
        let kept = |writer: &MonthWriter| -> Vec<String> {
            RollupFile::all(&writer.folder).unwrap().iter().map(|file| file.month.to_string()).collect()
        };
        assert_eq!((kept(&writer).len(), kept(&writer)[0].as_str()), (KEPT_MONTHS, "2025-07"));
        // Years ahead for a moment, and in 1970 after a start without a battery.
        writer.take(batch("2099-01", 5, 1));
        writer.take(batch("1970-01", 5, 1));
        writer.take(batch("2026-08", 6, 1));
        assert_eq!(kept(&writer)[..2], ["2025-08", "2025-09"]);
        assert_eq!(requests(journal.path(), "2026-08"), [(5, 1), (6, 1)]);
    }

    #[test]
    fn a_clock_that_was_set_back_writes_the_minute_and_the_month_again() {
        let journal = tempfile::tempdir().unwrap();
        let mut writer = writer(journal.path());
        for (month, minute) in [("2026-10", 44_638), ("2026-11", 0), ("2026-10", 44_638), ("2026-11", 0)] {
            writer.take(batch(month, minute, 7));
        }
        assert_eq!(requests(journal.path(), "2026-10"), [(44_638, 7), (44_638, 7)]);
        assert_eq!(requests(journal.path(), "2026-11"), [(0, 7), (0, 7)]);
    }

    #[test]
    fn a_torn_end_is_cut_off_and_a_foreign_file_is_left_alone() {
        let journal = tempfile::tempdir().unwrap();
        writer(journal.path()).take(batch("2026-11", 0, 1));
        let first = folder(journal.path()).join("2026-11.1.tdgr");
        let whole = fs::read(&first).unwrap();
        fs::write(&first, [&whole[..], &whole[HEADER..whole.len() - 1]].concat()).unwrap();
        writer(journal.path()).take(batch("2026-11", 1, 2));
        assert_eq!(requests(journal.path(), "2026-11"), [(0, 1), (1, 2)]);
        // A header that was not finished.
        fs::write(&first, &whole[..7]).unwrap();
        writer(journal.path()).take(batch("2026-11", 2, 3));
        assert_eq!(requests(journal.path(), "2026-11"), [(2, 3)]);
        // A newer build was here.
        let mut newer = whole;
        newer[8] = 9;
        fs::write(&first, &newer).unwrap();
        writer(journal.path()).take(batch("2026-11", 3, 4));
        writer(journal.path()).take(batch("2026-11", 4, 5));
        assert_eq!(fs::read(&first).unwrap(), newer);
        let mut found = Vec::new();
        let reader = RollupReader::open(journal.path()).unwrap();
        let damage =
            reader.read("2026-11".parse().unwrap(), |_, _, counts| found.push(counts.requests)).unwrap();
        assert!(matches!(damage[..], [RollupError::NewerVersion { found: 9, .. }]), "{damage:?}");
        assert_eq!(found, [4, 5]);
    }

    #[test]
    fn two_services_cannot_write_to_one_folder() {
        let journal = tempfile::tempdir().unwrap();
        let first = RollupWriter::start(journal.path()).unwrap();
        let second = RollupWriter::start(journal.path()).unwrap_err();
        assert!(second.to_string().ends_with("give each service a folder of its own"), "{second}");
        first.close(Duration::from_secs(60));
        RollupWriter::start(journal.path()).unwrap();
    }
}
