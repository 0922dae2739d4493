//! Reading a journal: its entries in a span of time, of one resource or of all.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use tidegate_units::ResourceName;

use crate::block::BlockReader;
use crate::error::{DamagedBlock, JournalError};
use crate::record::JournalEntry;
use crate::segment::{
    FRAME, LONGEST_BLOCK, ParsedHeader, SegmentFile, SegmentHeader, block_length, is_whole,
};
use crate::time::WallTime;

/// Time by which a segment may have entries from before it began, or after the next one did: resources move
/// from one to the next one by one.
const OVERLAP_NANOS: u64 = 120 * 1_000_000_000;

/// The entries to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryFilter {
    /// Beginning of the span.
    pub from: WallTime,
    /// End of the span, which belongs to it.
    pub until: WallTime,
    /// Resource that entries are about; those about no resource are read as well. `None`: all.
    pub resource: Option<ResourceName>,
}

impl Default for EntryFilter {
    /// Everything.
    fn default() -> Self {
        Self { from: WallTime::MIN, until: WallTime::MAX, resource: None }
    }
}

impl EntryFilter {
    pub(crate) fn is_in_span(&self, entry: &JournalEntry) -> bool {
        self.from <= entry.time && entry.time <= self.until
    }

    fn is_of_resource(&self, entry: &JournalEntry) -> bool {
        match (&self.resource, entry.resource()) {
            (Some(wanted), Some(resource)) => wanted == resource,
            (None, _) | (_, None) => true,
        }
    }
}

/// A folder with the segments of a journal. It may be written meanwhile.
#[derive(Debug, Clone)]
pub struct JournalReader {
    folder: PathBuf,
    segments: Vec<SegmentFile>,
}

impl JournalReader {
    /// Looks which segments there are.
    ///
    /// # Errors
    /// When the folder cannot be read, or has no segment.
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        let segments = SegmentFile::all(folder)?;
        if segments.is_empty() {
            return Err(JournalError::Empty(folder.to_owned()));
        }
        Ok(Self { folder: folder.to_owned(), segments })
    }

    /// Returns the beginning of the oldest segment.
    #[must_use]
    pub fn oldest(&self) -> WallTime {
        self.segments.first().map_or(WallTime::MAX, |first| first.began)
    }

    /// Returns the time of the newest entry: the newest segments are read for it.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn newest(&self) -> Result<WallTime, JournalError> {
        let mut newest = WallTime::MIN;
        // Two segments may be written at once.
        let from = self.segments.len().saturating_sub(2);
        for entry in Entries::new(&self.segments[from..], EntryFilter::default()) {
            match entry {
                Ok(entry) => newest = newest.max(entry.time),
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(newest)
    }

    /// Returns the bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Returns the entries of a span of time.
    ///
    /// # Errors
    /// When nothing of that span is kept.
    pub fn entries(&self, filter: EntryFilter) -> Result<Entries, JournalError> {
        let segments = self.segments_of(&filter)?;
        Ok(Entries::new(segments, filter))
    }

    /// Returns the segments that may have entries of a span. The first of them has the checkpoints from which
    /// the decisions in the span follow.
    fn segments_of(&self, filter: &EntryFilter) -> Result<&[SegmentFile], JournalError> {
        let EntryFilter { from, until, .. } = *filter;
        let begins_before = |nanos: u64| {
            let time = WallTime::from_nanos(nanos);
            self.segments.partition_point(|segment| segment.began <= time)
        };
        let end = begins_before(until.as_nanos().saturating_add(OVERLAP_NANOS));
        let begin = begins_before(from.as_nanos().saturating_sub(OVERLAP_NANOS)).saturating_sub(1);
        let oldest = self.oldest();
        // The name of a segment has whole milliseconds.
        if until < oldest || end == 0 || (from > oldest && self.is_after_the_newest(from)?) {
            let (folder, newest) = (self.folder.clone(), self.newest()?);
            return Err(JournalError::OutsideRetention { folder, from, until, oldest, newest });
        }
        Ok(&self.segments[begin.min(end)..end])
    }

    fn is_after_the_newest(&self, time: WallTime) -> Result<bool, JournalError> {
        let last = self.segments.last().map_or(WallTime::MIN, |last| last.began);
        Ok(time > last && time > self.newest()?)
    }
}

/// Iterates over entries. A file that is damaged gives an error where it is, and the next file follows.
#[derive(Debug)]
pub struct Entries {
    segments: VecDeque<SegmentFile>,
    filter: EntryFilter,
    /// True if entries before the span are returned, too: a replay needs them.
    from_checkpoints: bool,
    current: Option<SegmentReader>,
    ready: VecDeque<JournalEntry>,
}

impl Entries {
    fn new(segments: &[SegmentFile], filter: EntryFilter) -> Self {
        Self {
            segments: segments.iter().cloned().collect(),
            filter,
            from_checkpoints: false,
            current: None,
            ready: VecDeque::new(),
        }
    }

    /// Includes the entries from the last checkpoints before the span on, so that a replay can begin.
    #[must_use]
    pub fn from_checkpoints(mut self) -> Self {
        self.from_checkpoints = true;
        self
    }

    /// Returns the span and resource that are read.
    #[must_use]
    pub const fn filter(&self) -> &EntryFilter {
        &self.filter
    }

    fn is_wanted(&self, entry: &JournalEntry) -> bool {
        let is_early = self.from_checkpoints && entry.time < self.filter.from;
        (is_early || self.filter.is_in_span(entry)) && self.filter.is_of_resource(entry)
    }

    /// Reads the next block, or begins the next segment. `None`: there is none.
    fn advance(&mut self) -> Option<Result<(), JournalError>> {
        let Some(segment) = &mut self.current else {
            let segment = self.segments.pop_front()?;
            return Some(match SegmentReader::open(&segment.path) {
                Ok(reader) => {
                    self.current = reader;
                    Ok(())
                }
                Err(error) => Err(error),
            });
        };
        match segment.next_block() {
            Ok(Some(entries)) => self.ready.extend(entries),
            Ok(None) => self.current = None,
            Err(error) => {
                self.current = None;
                return Some(Err(error));
            }
        }
        Some(Ok(()))
    }
}

impl Iterator for Entries {
    type Item = Result<JournalEntry, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some(entry) = self.ready.pop_front() {
                if self.is_wanted(&entry) {
                    return Some(Ok(entry));
                }
            }
            if let Err(error) = self.advance()? {
                return Some(Err(error));
            }
        }
    }
}

/// Reads the blocks of one file.
#[derive(Debug)]
pub(crate) struct SegmentReader<R = BufReader<File>> {
    path: PathBuf,
    source: R,
    /// Place of the next block.
    offset: u64,
    seed: u32,
    blocks: BlockReader,
}

impl SegmentReader {
    /// Opens a file and reads its header. `None`: the file was removed meanwhile.
    fn open(path: &Path) -> Result<Option<Self>, JournalError> {
        match File::open(path) {
            Ok(file) => Self::new(path, BufReader::new(file)).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(JournalError::io(path)(error)),
        }
    }
}

impl<R: Read> SegmentReader<R> {
    /// Reads the header of a segment.
    pub(crate) fn new(path: &Path, mut source: R) -> Result<Self, JournalError> {
        let beginning = SegmentHeader::read(&mut source).map_err(JournalError::io(path))?;
        let ParsedHeader { header, length, seed } = SegmentHeader::parse(path, &beginning)?;
        let blocks = BlockReader::new(header.build, header.began).map_err(JournalError::io(path))?;
        Ok(Self { path: path.to_owned(), source, offset: length as u64, seed, blocks })
    }

    /// Reads the entries of the next block. `None`: the file ends here. After an error nothing more of the
    /// file can be read: later blocks refer to this one.
    pub(crate) fn next_block(&mut self) -> Result<Option<Vec<JournalEntry>>, JournalError> {
        let frame = self.take(FRAME)?;
        let path = self.path.clone();
        let offset = self.offset;
        let Ok(frame) = <[u8; FRAME]>::try_from(&frame[..]) else {
            let dropped = frame.len() as u64;
            return if dropped == 0 {
                Ok(None)
            } else {
                Err(JournalError::Truncated { path, offset, dropped })
            };
        };
        let length = block_length(frame);
        if length > LONGEST_BLOCK {
            let dropped = FRAME as u64 + self.rest()?;
            return Err(JournalError::Checksum { path, offset, dropped });
        }
        let block = self.take(length)?;
        let read = (FRAME + block.len()) as u64;
        if block.len() < length {
            return Err(JournalError::Truncated { path, offset, dropped: read });
        }
        if !is_whole(self.seed, frame, &block) {
            let dropped = read + self.rest()?;
            return Err(JournalError::Checksum { path, offset, dropped });
        }
        match self.blocks.read(&block) {
            Ok(entries) => {
                self.offset += read;
                Ok(Some(entries))
            }
            Err(DamagedBlock(reason)) => {
                let dropped = read + self.rest()?;
                Err(JournalError::Malformed { path, offset, dropped, reason })
            }
        }
    }

    /// Reads this many bytes, or as many as there are.
    fn take(&mut self, length: usize) -> Result<Vec<u8>, JournalError> {
        let mut bytes = Vec::new();
        let taken = (&mut self.source).take(length as u64).read_to_end(&mut bytes);
        taken.map_err(JournalError::io(&self.path))?;
        Ok(bytes)
    }

    /// Returns the number of bytes that follow.
    fn rest(&mut self) -> Result<u64, JournalError> {
        io::copy(&mut self.source, &mut io::sink()).map_err(JournalError::io(&self.path))
    }
}
