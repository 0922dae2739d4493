//! Blocks: up to a second of entries, coded together.
//!
//! A block refers to earlier blocks of its segment, and to nothing else. Its content:
//!
//! 1. number of entries of resources
//! 2. length of the documents, and if there are any, of the same compressed by zstd; the compressed documents
//! 3. length of the symbols; the symbols
//! 4. the bit stream of the numbers, up to the end of the block
//!
//! The documents begin with that of the events, which has its length before it.
//!
//! Each entry of a resource has a header: `4 · is_other + kind`. The kind is unchanged decision (0), changed
//! decision (1), or checkpoint (2). If the resource is another one than that of the entry before, its number
//! follows.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_control::{Commands, Observation};
use tidegate_units::{Instant, ResourceName};

use crate::decision_code::{ResourceMemory, code};
use crate::error::DamagedBlock;
use crate::number::ResourceColumn;
use crate::number::{
    Bytes, Cell, Coder, Decoder, Encoder, Expected, HEADER_CONTEXTS, SymbolModels, push_length,
};
use crate::record::{
    ActionRecord, CheckpointRecord, DecisionBody, DecisionRecord, EntryContent, GapRecord, JournalEntry,
    ThrottleMechanism,
};
use crate::segment::{FRAME, LONGEST_BLOCK};
use crate::time::{ClockAnchor, WallTime};

/// Level of compression. Chosen: higher levels gain under 1 % here, at several times the processor time.
const LEVEL: i32 = 3;

/// The most entries of a block.
pub(crate) const MOST_ENTRIES: usize = 65_536;

/// The largest documents, in bytes.
pub(crate) const LARGEST_PLAIN: usize = 8 * 1024 * 1024;

/// Times of a block that are known for the next resource: those of one thread's steps, and not of a thousand
/// threads.
const MOST_TICKS: usize = 64;

const UNCHANGED: u8 = 0;
const CHANGED: u8 = 1;
const OPENING: u8 = 2;
/// Set in the header of an entry of another resource than that of the entry before.
const OTHER: u8 = 4;

/// A checkpoint of a resource, as both sides take it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResourceOpening {
    pub(crate) resource: ResourceName,
    pub(crate) at: Instant,
    /// Control interval in nanoseconds: the time from one decision to the next, as it is expected.
    pub(crate) interval: u64,
    pub(crate) mechanism: ThrottleMechanism,
    pub(crate) state: Vec<u8>,
}

/// A checkpoint without its state.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OpeningDocument {
    /// `None` only while it is being read.
    resource: Option<ResourceName>,
    at: Instant,
    interval: u64,
    mechanism: ThrottleMechanism,
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
    /// True if a decision has been written out.
    has_body: bool,
    /// The last decision, of a reader.
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

/// The entries so far in a block, as far as they let the next header be foreseen.
#[derive(Debug, Default)]
struct EntryOrder {
    /// Resource of the last entry.
    current: Option<usize>,
    /// Entries since it became another one.
    length: usize,
    kind: u8,
}

impl EntryOrder {
    /// Returns the context of the next header: resources have about as many entries in each block.
    fn context(&self) -> usize {
        (4 * self.length.min(HEADER_CONTEXTS / 4 - 1)) | usize::from(self.kind)
    }

    fn note(&mut self, resource: usize, kind: u8) {
        self.length = if self.current == Some(resource) { self.length + 1 } else { 1 };
        (self.current, self.kind) = (Some(resource), kind);
    }
}

/// Codes the number of a resource that follows another one.
fn code_resource(
    coder: &mut impl Coder,
    order: &EntryOrder,
    cell: &mut Cell,
    resource: usize,
) -> Result<usize, DamagedBlock> {
    let mut number = Some(resource as u64);
    let next = order.current.map_or(0, |current| current as u64 + 1);
    coder.number(ResourceColumn::Resource, &mut number, Expected::one(next), cell)?;
    number.and_then(|number| usize::try_from(number).ok()).ok_or(DamagedBlock("a resource is missing"))
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
    order: EntryOrder,
    resource_cell: Cell,
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
            order: EntryOrder::default(),
            resource_cell: Cell::default(),
            ticks: Ticks::default(),
            entries: 0,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// Returns the number of entries of the block under way.
    pub(crate) fn entries(&self) -> usize {
        self.entries + self.events.len()
    }

    /// Returns the memory that a reader needs for the block under way, about.
    pub(crate) fn len(&self) -> usize {
        self.encoder.len()
    }

    /// Returns the resources with a checkpoint in this segment.
    pub(crate) fn opened(&self) -> impl Iterator<Item = u32> {
        // Identities are numbers of 32 bits.
        (0..).zip(&self.numbers).filter(|(_, number)| number.is_some()).map(|(id, _)| id)
    }

    pub(crate) fn event(&mut self, event: JournalEvent) {
        self.events.push(event);
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
        self.header(number, OPENING)?;
        let resource = &mut self.resources[number];
        (resource.last, resource.interval) = (opening.at.as_nanos(), opening.interval);
        self.encoder.document(&mut OpeningDocument {
            resource: Some(opening.resource.clone()),
            at: opening.at,
            interval: opening.interval,
            mechanism: opening.mechanism,
            state: opening.state.len(),
        })?;
        self.encoder.documents.extend_from_slice(&opening.state);
        Ok(())
    }

    /// Adds a decision; without a body, the one before at another time. Returns false if it follows from
    /// nothing in this segment.
    pub(crate) fn decision(
        &mut self,
        id: u32,
        at: Instant,
        body: Option<&DecisionBody>,
    ) -> Result<bool, DamagedBlock> {
        let Some(&Some(number)) = self.numbers.get(id as usize) else { return Ok(false) };
        if body.is_none() && !self.resources[number].has_body {
            return Ok(false);
        }
        self.header(number, if body.is_some() { CHANGED } else { UNCHANGED })?;
        let resource = &mut self.resources[number];
        let (_, elapsed) = resource.code_time(&mut self.encoder, &mut self.ticks, at.as_nanos())?;
        if let Some(body) = body {
            // A walk serves both sides, so that it takes what it could change.
            code(&mut self.encoder, &mut resource.memory, &mut body.clone(), elapsed)?;
            resource.has_body = true;
        }
        Ok(true)
    }

    /// Writes the header of an entry of a resource.
    fn header(&mut self, number: usize, kind: u8) -> Result<(), DamagedBlock> {
        self.entries += 1;
        let is_other = self.order.current != Some(number);
        self.encoder.header(if is_other { OTHER | kind } else { kind }, self.order.context());
        if is_other {
            code_resource(&mut self.encoder, &self.order, &mut self.resource_cell, number)?;
        }
        self.order.note(number, kind);
        Ok(())
    }

    /// Returns the block under way with room for its frame, and begins the next one.
    pub(crate) fn finish(&mut self) -> std::io::Result<Vec<u8>> {
        let mut documents = Vec::new();
        if !(self.events.is_empty() && self.encoder.documents.is_empty()) {
            let events = if self.events.is_empty() {
                Vec::new()
            } else {
                rmp_serde::to_vec_named(&self.events).map_err(std::io::Error::other)?
            };
            push_length(&mut documents, events.len());
            documents.extend_from_slice(&events);
            documents.extend_from_slice(&self.encoder.documents);
        }
        let mut block = vec![0; FRAME];
        push_length(&mut block, self.entries);
        push_length(&mut block, documents.len());
        if !documents.is_empty() {
            let compressed = self.compressor.compress(&documents)?;
            push_length(&mut block, compressed.len());
            block.extend_from_slice(&compressed);
        }
        let symbols = self.encoder.symbols.finish();
        push_length(&mut block, symbols.len());
        block.extend_from_slice(symbols);
        block.extend_from_slice(self.encoder.noise.finish());
        self.encoder.clear();
        self.events.clear();
        self.order = EntryOrder::default();
        self.ticks.0.clear();
        self.entries = 0;
        if documents.len() > LARGEST_PLAIN || block.len() > LONGEST_BLOCK {
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
    models: SymbolModels,
    resource_cell: Cell,
}

impl fmt::Debug for BlockReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockReader").field("resources", &self.names).finish_non_exhaustive()
    }
}

impl BlockReader {
    pub(crate) fn new(build: String, clock: ClockAnchor) -> std::io::Result<Self> {
        let decompressor = zstd::bulk::Decompressor::new()?;
        Ok(Self {
            decompressor,
            build,
            clock,
            names: Vec::new(),
            resources: Vec::new(),
            models: SymbolModels::default(),
            resource_cell: Cell::default(),
        })
    }

    /// Reads a block. Returns its entries: those of a resource in their order, and all by time as far as that
    /// allows.
    pub(crate) fn read(&mut self, block: &[u8]) -> Result<Vec<JournalEntry>, DamagedBlock> {
        let mut block = Bytes(block);
        let entries = block.length()?;
        if entries > MOST_ENTRIES {
            return Err(DamagedBlock("a block has too many entries"));
        }
        let documents = self.read_documents(&mut block)?;
        let mut documents = Bytes(&documents);
        let events = if documents.0.is_empty() {
            &[][..]
        } else {
            let length = documents.length()?;
            documents.take(length)?
        };
        let length = block.length()?;
        let symbols = block.take(length)?;
        // The models go on with this block, and nothing else of the reader uses them meanwhile.
        let mut models = std::mem::take(&mut self.models);
        let decoder = Decoder::new(&mut models, symbols, documents, block.0);
        let entries = self.read_entries(entries, decoder);
        self.models = models;
        let mut entries = entries?;
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

    fn read_documents(&mut self, block: &mut Bytes<'_>) -> Result<Vec<u8>, DamagedBlock> {
        let plain = block.length()?;
        if plain > LARGEST_PLAIN {
            return Err(DamagedBlock("a block is too large"));
        }
        if plain == 0 {
            return Ok(Vec::new());
        }
        let length = block.length()?;
        let decompressed = self.decompressor.decompress(block.take(length)?, plain);
        let decompressed = decompressed.map_err(|_| DamagedBlock("a block cannot be decompressed"))?;
        if decompressed.len() != plain {
            return Err(DamagedBlock("a block has another length than it says"));
        }
        Ok(decompressed)
    }

    fn read_entries(
        &mut self,
        count: usize,
        mut decoder: Decoder<'_>,
    ) -> Result<Vec<(WallTime, JournalEntry)>, DamagedBlock> {
        let mut entries = Vec::new();
        let (mut ticks, mut order) = (Ticks::default(), EntryOrder::default());
        let mut key = WallTime::MIN;
        for _ in 0..count {
            let header = decoder.header(order.context());
            let kind = header & !OTHER;
            let number = if header & OTHER == 0 {
                order.current.ok_or(DamagedBlock("a block begins with no resource"))?
            } else {
                key = WallTime::MIN;
                code_resource(&mut decoder, &order, &mut self.resource_cell, 0)?
            };
            order.note(number, kind);
            let entry = if kind == OPENING {
                self.read_opening(number, &mut decoder)?
            } else {
                self.read_decision(number, kind, &mut decoder, &mut ticks)?
            };
            key = key.max(entry.time);
            entries.push((key, entry));
        }
        Ok(entries)
    }

    fn read_opening(
        &mut self,
        number: usize,
        decoder: &mut Decoder<'_>,
    ) -> Result<JournalEntry, DamagedBlock> {
        let mut opening = OpeningDocument {
            resource: None,
            at: Instant::ZERO,
            interval: 0,
            mechanism: ThrottleMechanism::Queue,
            state: 0,
        };
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
        let checkpoint = CheckpointRecord { resource: name, build, mechanism: opening.mechanism, state };
        Ok(JournalEntry { time: self.clock.wall(opening.at), content: EntryContent::Checkpoint(checkpoint) })
    }

    fn read_decision(
        &mut self,
        number: usize,
        kind: u8,
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
            _ => return Err(DamagedBlock("an entry is of no known kind")),
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
