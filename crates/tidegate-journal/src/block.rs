//! Blocks: up to a second of entries, compressed together.
//!
//! A block refers to earlier blocks of its segment, and to nothing else. Its content:
//!
//! 1. length of the plain part, and of the same compressed by zstd; the compressed plain part
//! 2. the bit stream of the numbers, up to the end of the block
//!
//! The plain part has a document of events, the groups, the planes of all columns, and the other documents.
//! Each has its length before it, but for the documents, which come last.
//!
//! A group is what a block has of one resource: the resource's number as a folded difference from the one
//! before, the number of runs, and the runs. A run is `4 · length + kind`: unchanged decisions (0), changed
//! ones (1), or a checkpoint (2).

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_control::{Commands, Observation};
use tidegate_units::{Instant, ResourceName};

use crate::decision_code::{ResourceMemory, code};
use crate::error::DamagedBlock;
use crate::number::ResourceColumn;
use crate::number::{BitReader, Bytes, Cell, Coder, Decoder, Encoder, Expected, PLANES, push_length};
use crate::record::{
    ActionRecord, CheckpointRecord, DecisionBody, DecisionRecord, EntryContent, GapRecord, JournalEntry,
};
use crate::segment::{FRAME, LONGEST_BLOCK};
use crate::time::{ClockAnchor, WallTime};

/// Level of compression. Chosen: higher levels gain under 1 % here, at several times the processor time.
const LEVEL: i32 = 3;

/// The most entries of a block.
pub(crate) const MOST_ENTRIES: usize = 65_536;

/// The largest plain part, in bytes.
pub(crate) const LARGEST_PLAIN: usize = 8 * 1024 * 1024;

/// Times of a block that are known for the next resource: those of one thread's steps, and not of a thousand
/// threads.
const MOST_TICKS: usize = 64;

const UNCHANGED: usize = 0;
const CHANGED: usize = 1;
const OPENING: usize = 2;

/// A checkpoint of a resource, as both sides take it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResourceOpening {
    pub(crate) resource: ResourceName,
    pub(crate) at: Instant,
    /// Control interval in nanoseconds: the time from one decision to the next, as it is expected.
    pub(crate) interval: u64,
    pub(crate) state: Vec<u8>,
}

/// A checkpoint without its state.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OpeningDocument {
    /// `None` only while it is being read.
    resource: Option<ResourceName>,
    at: Instant,
    interval: u64,
    state: usize,
}

/// An entry that is about no decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum JournalEvent {
    Action(WallTime, ActionRecord),
    Gap(WallTime, GapRecord),
}

/// The state of one resource in a segment, on both sides.
#[derive(Debug, Clone, Default)]
struct SegmentResource {
    memory: ResourceMemory,
    at_cell: Cell,
    /// The time of the last decision, or of the checkpoint.
    last: u64,
    interval: u64,
    body: Option<Arc<DecisionBody>>,
}

impl SegmentResource {
    /// Codes the time of a decision. Returns it with the time since the last one.
    fn code_time(
        &mut self,
        coder: &mut impl Coder,
        ticks: &mut Ticks,
        at: u64,
    ) -> Result<(u64, u64), DamagedBlock> {
        let due = self.last.wrapping_add(self.interval);
        let mut value = Some(at);
        coder.number(
            ResourceColumn::At,
            &mut value,
            Expected::either(due, ticks.nearest(due)),
            &mut self.at_cell,
        )?;
        let at = value.ok_or(DamagedBlock("a decision has no time"))?;
        ticks.add(at);
        let elapsed = at.saturating_sub(self.last);
        self.last = at;
        Ok((at, elapsed))
    }
}

/// Times at which resources were decided on, in a block.
#[derive(Debug, Default)]
struct Ticks(Vec<u64>);

impl Ticks {
    fn nearest(&self, time: u64) -> Option<u64> {
        let place = self.0.partition_point(|&tick| tick < time);
        let around = [place.checked_sub(1), Some(place)];
        let found = around.into_iter().flatten().filter_map(|place| self.0.get(place).copied());
        found.min_by_key(|tick| tick.abs_diff(time))
    }

    fn add(&mut self, time: u64) {
        if let Err(place) = self.0.binary_search(&time)
            && self.0.len() < MOST_TICKS
        {
            self.0.insert(place, time);
        }
    }
}

/// Makes the blocks of one segment.
pub(crate) struct BlockWriter {
    compressor: zstd::bulk::Compressor<'static>,
    encoder: Encoder,
    resources: Vec<SegmentResource>,
    /// Numbers of resources in the segment, by their identity in the process. These count from 0.
    numbers: Vec<Option<usize>>,
    events: Vec<JournalEvent>,
    groups: Vec<u8>,
    /// Resource of the last group, and of the group under way.
    last: usize,
    current: Option<usize>,
    runs: Vec<(usize, usize)>,
    ticks: Ticks,
    entries: usize,
}

impl fmt::Debug for BlockWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockWriter").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl BlockWriter {
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
        // The block has a checksum of its own, and its length.
        compressor.include_checksum(false)?;
        compressor.include_contentsize(false)?;
        Ok(Self {
            compressor,
            encoder: Encoder::default(),
            resources: Vec::new(),
            numbers: Vec::new(),
            events: Vec::new(),
            groups: Vec::new(),
            last: 0,
            current: None,
            runs: Vec::new(),
            ticks: Ticks::default(),
            entries: 0,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Returns the number of entries of the block under way.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// Returns the size of the block under way before compression, about.
    pub(crate) fn len(&self) -> usize {
        self.encoder.len() + self.groups.len()
    }

    /// Returns the resources with a checkpoint in this segment.
    pub(crate) fn opened(&self) -> impl Iterator<Item = u32> {
        // Identities are numbers of 32 bits.
        (0..).zip(&self.numbers).filter(|(_, number)| number.is_some()).map(|(id, _)| id)
    }

    pub(crate) fn event(&mut self, event: JournalEvent) {
        self.events.push(event);
        self.entries += 1;
    }

    /// Adds a checkpoint. Decisions on the resource may follow.
    pub(crate) fn opening(&mut self, id: u32, opening: &ResourceOpening) -> Result<(), DamagedBlock> {
        let (place, next) = (id as usize, self.resources.len());
        if self.numbers.len() <= place {
            self.numbers.resize(place + 1, None);
        }
        let number = *self.numbers[place].get_or_insert(next);
        if number == next {
            self.resources.push(SegmentResource::default());
        }
        self.run(number, OPENING);
        let resource = &mut self.resources[number];
        (resource.last, resource.interval) = (opening.at.as_nanos(), opening.interval);
        self.encoder.document(&mut OpeningDocument {
            resource: Some(opening.resource.clone()),
            at: opening.at,
            interval: opening.interval,
            state: opening.state.len(),
        })?;
        self.encoder.documents.extend_from_slice(&opening.state);
        Ok(())
    }

    /// Adds a decision. Returns false if the resource has no checkpoint in this segment.
    pub(crate) fn decision(
        &mut self,
        id: u32,
        at: Instant,
        body: &Arc<DecisionBody>,
    ) -> Result<bool, DamagedBlock> {
        let Some(&Some(number)) = self.numbers.get(id as usize) else { return Ok(false) };
        let is_same = self.resources[number].body.as_ref().is_some_and(|last| Arc::ptr_eq(last, body));
        self.run(number, if is_same { UNCHANGED } else { CHANGED });
        let resource = &mut self.resources[number];
        let (_, elapsed) = resource.code_time(&mut self.encoder, &mut self.ticks, at.as_nanos())?;
        if !is_same {
            let mut working = DecisionBody::clone(body);
            code(&mut self.encoder, &mut resource.memory, &mut working, elapsed)?;
            resource.body = Some(Arc::clone(body));
        }
        Ok(true)
    }

    /// Counts an entry of a resource in its group.
    fn run(&mut self, number: usize, kind: usize) {
        self.entries += 1;
        if self.current != Some(number) {
            self.end_group();
            self.current = Some(number);
        }
        match self.runs.last_mut() {
            Some((last, length)) if *last == kind && kind != OPENING => *length += 1,
            _ => self.runs.push((kind, 1)),
        }
    }

    fn end_group(&mut self) {
        let Some(number) = self.current.take() else { return };
        let difference = number as i64 - self.last as i64;
        push_length(&mut self.groups, ((difference << 1) ^ (difference >> 63)) as usize);
        push_length(&mut self.groups, self.runs.len());
        for (kind, length) in self.runs.drain(..) {
            push_length(&mut self.groups, length << 2 | kind);
        }
        self.last = number;
    }

    /// Returns the block under way with room for its frame, and begins the next one.
    pub(crate) fn finish(&mut self) -> std::io::Result<Vec<u8>> {
        self.end_group();
        let mut plain = Vec::with_capacity(self.len() + 2 * PLANES);
        let events = if self.events.is_empty() {
            Vec::new()
        } else {
            rmp_serde::to_vec_named(&self.events).map_err(std::io::Error::other)?
        };
        push_length(&mut plain, events.len());
        plain.extend_from_slice(&events);
        push_length(&mut plain, self.groups.len());
        plain.extend_from_slice(&self.groups);
        for plane in &self.encoder.planes {
            push_length(&mut plain, plane.len());
            plain.extend_from_slice(plane);
        }
        plain.extend_from_slice(&self.encoder.documents);
        let compressed = self.compressor.compress(&plain)?;
        let mut block = vec![0; FRAME];
        push_length(&mut block, plain.len());
        push_length(&mut block, compressed.len());
        block.extend_from_slice(&compressed);
        block.extend_from_slice(self.encoder.noise.finish());
        self.encoder.clear();
        self.events.clear();
        self.groups.clear();
        self.ticks.0.clear();
        (self.last, self.entries) = (0, 0);
        if plain.len() > LARGEST_PLAIN || block.len() > LONGEST_BLOCK {
            return Err(std::io::Error::other("a block of the decision journal is too large"));
        }
        Ok(block)
    }
}

/// Reads the blocks of one segment.
pub(crate) struct BlockReader {
    decompressor: zstd::bulk::Decompressor<'static>,
    build: String,
    clock: ClockAnchor,
    names: Vec<ResourceName>,
    resources: Vec<SegmentResource>,
}

impl fmt::Debug for BlockReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockReader").field("resources", &self.names).finish_non_exhaustive()
    }
}

impl BlockReader {
    pub(crate) fn new(build: String, clock: ClockAnchor) -> std::io::Result<Self> {
        let decompressor = zstd::bulk::Decompressor::new()?;
        Ok(Self { decompressor, build, clock, names: Vec::new(), resources: Vec::new() })
    }

    /// Reads a block. Returns its entries: those of a resource in their order, and all by time as far as that
    /// allows.
    pub(crate) fn read(&mut self, block: &[u8]) -> Result<Vec<JournalEntry>, DamagedBlock> {
        let mut block = Bytes(block);
        let (plain, compressed) = (block.length()?, block.length()?);
        if plain > LARGEST_PLAIN {
            return Err(DamagedBlock("a block is too large"));
        }
        let compressed = block.take(compressed)?;
        let decompressed = self.decompressor.decompress(compressed, plain);
        let decompressed = decompressed.map_err(|_| DamagedBlock("a block cannot be decompressed"))?;
        if decompressed.len() != plain {
            return Err(DamagedBlock("a block has another length than it says"));
        }
        let mut plain = Bytes(&decompressed);
        let length = plain.length()?;
        let events = plain.take(length)?;
        let length = plain.length()?;
        let groups = Bytes(plain.take(length)?);
        let mut planes = Vec::with_capacity(PLANES);
        for _ in 0..PLANES {
            let length = plain.length()?;
            planes.push(Bytes(plain.take(length)?));
        }
        let decoder = Decoder { planes, documents: plain, noise: BitReader::new(block.0) };
        let mut entries = self.read_groups(groups, decoder)?;
        if !events.is_empty() {
            let events: Vec<JournalEvent> =
                rmp_serde::from_slice(events).map_err(|_| DamagedBlock("an event is not understood"))?;
            entries.extend(events.into_iter().map(entry_of));
        }
        // A clock that jumps back does not change the order of a resource's entries: the sort is stable, and
        // keys do not fall within a resource.
        entries.sort_by_key(|(key, _)| *key);
        Ok(entries.into_iter().map(|(_, entry)| entry).collect())
    }

    fn read_groups(
        &mut self,
        mut groups: Bytes<'_>,
        mut decoder: Decoder<'_>,
    ) -> Result<Vec<(WallTime, JournalEntry)>, DamagedBlock> {
        let mut entries = Vec::new();
        let mut ticks = Ticks::default();
        let mut last = 0_usize;
        while !groups.0.is_empty() {
            let folded = groups.length()?;
            let half = folded >> 1;
            let number = if folded & 1 == 0 { last.checked_add(half) } else { last.checked_sub(half + 1) };
            let number = number.ok_or(DamagedBlock("a resource has no checkpoint"))?;
            last = number;
            let mut key = WallTime::MIN;
            for _ in 0..groups.length()? {
                let run = groups.length()?;
                let (length, kind) = (run >> 2, run & 3);
                if length > MOST_ENTRIES.saturating_sub(entries.len()) {
                    return Err(DamagedBlock("a block has too many entries"));
                }
                for _ in 0..length {
                    let entry = if kind == OPENING {
                        self.read_opening(number, &mut decoder)?
                    } else {
                        self.read_decision(number, kind, &mut decoder, &mut ticks)?
                    };
                    key = key.max(entry.time);
                    entries.push((key, entry));
                }
            }
        }
        Ok(entries)
    }

    fn read_opening(
        &mut self,
        number: usize,
        decoder: &mut Decoder<'_>,
    ) -> Result<JournalEntry, DamagedBlock> {
        let mut opening = OpeningDocument { resource: None, at: Instant::ZERO, interval: 0, state: 0 };
        decoder.document(&mut opening)?;
        let state = decoder.documents.take(opening.state)?.to_vec();
        let name = opening.resource.ok_or(DamagedBlock("a checkpoint has no name"))?;
        if number == self.resources.len() {
            self.resources.push(SegmentResource::default());
            self.names.push(name.clone());
        }
        let resource = self.resources.get_mut(number).ok_or(DamagedBlock("a resource is missing"))?;
        (resource.last, resource.interval) = (opening.at.as_nanos(), opening.interval);
        let build = self.build.clone();
        let checkpoint = CheckpointRecord { resource: name, build, state };
        Ok(JournalEntry { time: self.clock.wall(opening.at), content: EntryContent::Checkpoint(checkpoint) })
    }

    fn read_decision(
        &mut self,
        number: usize,
        kind: usize,
        decoder: &mut Decoder<'_>,
        ticks: &mut Ticks,
    ) -> Result<JournalEntry, DamagedBlock> {
        let resource = self.resources.get_mut(number).ok_or(DamagedBlock("a resource has no checkpoint"))?;
        let (at, elapsed) = resource.code_time(decoder, ticks, 0)?;
        match kind {
            UNCHANGED => {}
            CHANGED => {
                let mut body = match &resource.body {
                    Some(body) => DecisionBody::clone(body),
                    None => nothing_of(self.names[number].clone()),
                };
                code(decoder, &mut resource.memory, &mut body, elapsed)?;
                resource.body = Some(Arc::new(body));
            }
            _ => return Err(DamagedBlock("a run is of no known kind")),
        }
        let body = resource.body.clone().ok_or(DamagedBlock("a decision repeats nothing"))?;
        let at = Instant::from_nanos(at);
        Ok(JournalEntry {
            time: self.clock.wall(at),
            content: EntryContent::Decision(DecisionRecord { at, body }),
        })
    }
}

fn entry_of(event: JournalEvent) -> (WallTime, JournalEntry) {
    let (time, content) = match event {
        JournalEvent::Action(time, action) => (time, EntryContent::Action(action)),
        JournalEvent::Gap(time, gap) => (time, EntryContent::Gap(gap)),
    };
    (time, JournalEntry { time, content })
}

fn nothing_of(resource: ResourceName) -> DecisionBody {
    DecisionBody {
        observation: Observation::new(resource, Instant::ZERO, Vec::new()),
        reading: None,
        commands: Commands::default(),
        held: 0,
        lag: 0,
    }
}

#[cfg(test)]
mod tests;
