//! The content of blocks: names of consumers, and their counts in one minute.
//!
//! A consumer is named once a day, and has a number from then on. Names that begin anew begin a generation.
//! Each block says its generation, so that after a damaged part no number is taken for another consumer.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_control::WaitReason;
use tidegate_units::{Bytes, ConsumerName, Latency, ResourceName};

use crate::calendar::{Minute, Month};
use crate::error::DamagedBlock;
use crate::number::{fold, push, take, take_length, unfold};
use crate::rollup::{JudgedBy, MinuteBatch, MinuteCounts, PromiseTerms, RollupKey};

/// The longest content of a block in bytes: its length has two bytes.
pub(crate) const LONGEST_CONTENT: usize = u16::MAX as usize;

/// The most names in a block. A name has at most 530 bytes.
const MOST_NAMES: usize = 100;

/// The most consumers of a minute in a block. One has at most 140 bytes.
const MOST_CONSUMERS: usize = 400;

const WHOLE_MINUTE: u64 = 60;

/// Bytes are written in units of this size where they are multiples of it.
const SECTOR: u64 = 512;

/// Kinds of blocks.
mod kind {
    pub(super) const NAMES: u64 = 1;
    pub(super) const MINUTE: u64 = 2;
}

/// Parts of a consumer's counts that are there.
mod part {
    pub(super) const WATCHED: u8 = 1;
    pub(super) const JUDGED: u8 = 2;
    pub(super) const REQUESTS: u8 = 4;
    /// The first of four, one for each reason to wait.
    pub(super) const WAITED: u8 = 8;
    pub(super) const STUCK: u8 = 128;
}

/// Makes the blocks of one month.
#[derive(Debug)]
pub(crate) struct BlockEncoder {
    month: Month,
    generation: u64,
    ids: BTreeMap<RollupKey, usize>,
    /// The day on which the names began.
    day: Option<u32>,
}

impl BlockEncoder {
    /// Begins after the last generation that the file has.
    pub(crate) fn new(month: Month, last_generation: u64) -> Self {
        Self { month, generation: last_generation, ids: BTreeMap::new(), day: None }
    }

    /// Returns the contents of the blocks of a minute of the month.
    pub(crate) fn encode(&mut self, batch: &MinuteBatch) -> Vec<Vec<u8>> {
        let day = batch.minute.day();
        if self.day != Some(day) {
            self.day = Some(day);
            self.generation = self.generation.wrapping_add(1);
            self.ids.clear();
        }
        let mut blocks = self.name(batch);
        let mut numbered: Vec<_> =
            batch.rollups.iter().map(|(key, counts)| (self.ids[key], counts)).collect();
        numbered.sort_by_key(|(id, _)| *id);
        blocks.extend(numbered.chunks(MOST_CONSUMERS).map(|part| self.minute(batch.minute, part)));
        blocks
    }

    /// Gives a number to each consumer that has none.
    fn name(&mut self, batch: &MinuteBatch) -> Vec<Vec<u8>> {
        let is_new = |key: &&RollupKey| !self.ids.contains_key(key);
        let mut unnamed: Vec<_> = batch.rollups.iter().map(|(key, _)| key).filter(is_new).collect();
        unnamed.sort();
        let mut blocks = Vec::new();
        for keys in unnamed.chunks(MOST_NAMES) {
            let mut content = Vec::new();
            push(&mut content, kind::NAMES);
            push(&mut content, self.generation);
            push(&mut content, self.ids.len() as u64);
            for key in keys {
                push_name(&mut content, key);
                self.ids.insert((*key).clone(), self.ids.len());
            }
            blocks.push(content);
        }
        blocks
    }

    fn minute(&self, minute: Minute, counts: &[(usize, &MinuteCounts)]) -> Vec<u8> {
        let mut content = Vec::new();
        push(&mut content, kind::MINUTE);
        push(&mut content, self.generation);
        push(&mut content, u64::from(minute.since(self.month.first_minute())));
        let ranges: Vec<_> = counts.chunk_by(|(one, _), (next, _)| one + 1 == *next).collect();
        push(&mut content, ranges.len() as u64);
        let mut last = 0;
        for range in ranges {
            let (first, length) = (range[0].0, range.len());
            push(&mut content, (first - last) as u64);
            push(&mut content, length as u64);
            last = first + length;
        }
        let mut last = 0;
        for (id, counts) in counts {
            let parts = parts(counts);
            if parts != 0 {
                push(&mut content, (id - last) as u64);
                push_counts(&mut content, parts, counts);
                last = id + 1;
            }
        }
        content
    }
}

fn push_name(content: &mut Vec<u8>, key: &RollupKey) {
    for name in [key.resource.as_str(), key.consumer.as_str()] {
        push(content, name.len() as u64);
        content.extend_from_slice(name.as_bytes());
    }
    match key.promise {
        None => push(content, 0),
        Some(PromiseTerms { response_time, judged_by }) => {
            let unit = match judged_by {
                JudgedBy::Seconds => 1,
                JudgedBy::Requests => 2,
            };
            push(content, unit);
            push(content, response_time.as_nanos());
        }
    }
}

fn seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_millis() >= 500))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_micros().saturating_add(500) / 1_000).unwrap_or(u64::MAX)
}

fn micros(latency: Latency) -> u64 {
    latency.as_nanos().saturating_add(500) / 1_000
}

/// Returns the parts that a consumer's counts have. None of them: it was idle for the whole minute.
fn parts(counts: &MinuteCounts) -> u8 {
    let flag = |is_set: bool, part: u8| if is_set { part } else { 0 };
    let has_requests = counts.requests > 0
        || counts.storage_requests > 0
        || counts.read.get() > 0
        || counts.written.get() > 0
        || micros(counts.client_time) > 0
        || micros(counts.storage_time) > 0;
    let waited = (0..).zip(counts.waited).map(|(place, time)| flag(millis(time) > 0, part::WAITED << place));
    waited.fold(0, |parts, one| parts | one)
        | flag(seconds(counts.watched) != WHOLE_MINUTE, part::WATCHED)
        | flag(counts.judged > 0, part::JUDGED)
        | flag(has_requests, part::REQUESTS)
        | flag(counts.was_stuck, part::STUCK)
}

fn push_counts(content: &mut Vec<u8>, parts: u8, counts: &MinuteCounts) {
    content.push(parts);
    if parts & part::WATCHED != 0 {
        push(content, seconds(counts.watched));
    }
    if parts & part::JUDGED != 0 {
        push(content, counts.judged);
        push(content, counts.judged.saturating_sub(counts.kept));
    }
    if parts & part::REQUESTS != 0 {
        let (client, storage) = (micros(counts.client_time), micros(counts.storage_time));
        push(content, counts.requests);
        push(content, fold(counts.storage_requests.wrapping_sub(counts.requests)));
        push(content, storage);
        push(content, fold(client.wrapping_sub(storage)));
        push_bytes(content, counts.read);
        push_bytes(content, counts.written);
    }
    for (place, time) in counts.waited.into_iter().enumerate() {
        if parts & (part::WAITED << place) != 0 {
            push(content, millis(time));
        }
    }
}

/// Writes a size: its lowest bit says whether it is in bytes or in sectors.
fn push_bytes(content: &mut Vec<u8>, bytes: Bytes) {
    let bytes = bytes.get();
    match bytes.is_multiple_of(SECTOR) {
        true => push(content, bytes / SECTOR * 2),
        // Sizes above 2⁶³ are none.
        false => push(content, bytes.min(u64::MAX / 2) * 2 + 1),
    }
}

fn take_bytes(content: &mut &[u8]) -> Result<Bytes, DamagedBlock> {
    let number = take(content)?;
    let bytes = match number % 2 {
        0 => (number / 2).checked_mul(SECTOR).ok_or(DamagedBlock("a size is too large"))?,
        _ => number / 2,
    };
    Ok(Bytes::new(bytes))
}

/// Reads the blocks of one month.
#[derive(Debug)]
pub(crate) struct BlockDecoder {
    month: Month,
    generation: u64,
    names: Vec<RollupKey>,
}

impl BlockDecoder {
    pub(crate) fn new(month: Month) -> Self {
        Self { month, generation: 0, names: Vec::new() }
    }

    /// Reads the content of a block, and gives the counts in it.
    pub(crate) fn decode(
        &mut self,
        mut content: &[u8],
        visit: &mut impl FnMut(Minute, &RollupKey, &MinuteCounts),
    ) -> Result<(), DamagedBlock> {
        match take(&mut content)? {
            kind::NAMES => self.take_names(content),
            kind::MINUTE => self.take_minute(content, visit),
            _ => Err(DamagedBlock("a block is of no known kind")),
        }
    }

    fn take_names(&mut self, mut content: &[u8]) -> Result<(), DamagedBlock> {
        let generation = take(&mut content)?;
        let first = take_length(&mut content)?;
        if first == 0 {
            self.generation = generation;
            self.names.clear();
        }
        if generation != self.generation || first != self.names.len() {
            return Err(DamagedBlock("names before these are missing"));
        }
        while !content.is_empty() {
            self.names.push(take_name(&mut content)?);
        }
        Ok(())
    }

    fn take_minute(
        &self,
        mut content: &[u8],
        visit: &mut impl FnMut(Minute, &RollupKey, &MinuteCounts),
    ) -> Result<(), DamagedBlock> {
        if take(&mut content)? != self.generation {
            return Err(DamagedBlock("the names of its consumers are missing"));
        }
        let of_month = u32::try_from(take(&mut content)?).unwrap_or(u32::MAX);
        if of_month >= self.month.minutes() {
            return Err(DamagedBlock("a minute is of another month"));
        }
        let minute = self.month.first_minute().later(of_month);
        let mut ranges = content;
        skip_ranges(&mut content)?;
        let mut entries = content;
        // The next consumer that has an entry.
        let mut next = take_entry(&mut entries, 0)?;
        let (mut end, mut visited) = (0_usize, Vec::new());
        for _ in 0..take_length(&mut ranges)? {
            let first = end.saturating_add(take_length(&mut ranges)?);
            end = first.saturating_add(take_length(&mut ranges)?);
            if end > self.names.len() {
                return Err(DamagedBlock("the names of its consumers are missing"));
            }
            for id in first..end {
                let counts = match next {
                    Some((of, counts)) if of == id => {
                        next = take_entry(&mut entries, id + 1)?;
                        counts
                    }
                    _ => idle(),
                };
                visited.push((id, counts));
            }
        }
        if next.is_some() {
            return Err(DamagedBlock("counts belong to no consumer"));
        }
        // A block counts as a whole or not at all.
        for (id, counts) in &visited {
            visit(minute, &self.names[*id], counts);
        }
        Ok(())
    }
}

/// Counts of a consumer that was watched for the whole minute and sent nothing.
fn idle() -> MinuteCounts {
    MinuteCounts { watched: Duration::from_secs(WHOLE_MINUTE), ..MinuteCounts::default() }
}

fn skip_ranges(content: &mut &[u8]) -> Result<(), DamagedBlock> {
    for _ in 0..take_length(content)? {
        take(content)?;
        take(content)?;
    }
    Ok(())
}

fn take_name(content: &mut &[u8]) -> Result<RollupKey, DamagedBlock> {
    let damaged = DamagedBlock("a name is none");
    let resource = ResourceName::new(take_text(content)?).map_err(|_| damaged)?;
    let consumer = ConsumerName::new(take_text(content)?).map_err(|_| damaged)?;
    let judged_by = match take(content)? {
        0 => return Ok(RollupKey { resource, consumer, promise: None }),
        1 => JudgedBy::Seconds,
        2 => JudgedBy::Requests,
        _ => return Err(DamagedBlock("a promise is of no known unit")),
    };
    let response_time = Latency::from_nanos(take(content)?);
    Ok(RollupKey { resource, consumer, promise: Some(PromiseTerms { response_time, judged_by }) })
}

fn take_text<'a>(content: &mut &'a [u8]) -> Result<&'a str, DamagedBlock> {
    let length = take_length(content)?;
    let (text, rest) = content.split_at_checked(length).ok_or(DamagedBlock("it ends within a name"))?;
    *content = rest;
    std::str::from_utf8(text).map_err(|_| DamagedBlock("a name is none"))
}

/// Returns the next consumer that has an entry, whose number is at least `least`, with its counts.
fn take_entry(content: &mut &[u8], least: usize) -> Result<Option<(usize, MinuteCounts)>, DamagedBlock> {
    if content.is_empty() {
        return Ok(None);
    }
    let id = least.saturating_add(take_length(content)?);
    let (&parts, rest) = content.split_first().ok_or(DamagedBlock("it ends within counts"))?;
    *content = rest;
    let mut counts = idle();
    if parts & part::WATCHED != 0 {
        counts.watched = Duration::from_secs(take(content)?);
    }
    if parts & part::JUDGED != 0 {
        counts.judged = take(content)?;
        let missed = take(content)?;
        counts.kept = counts.judged.checked_sub(missed).ok_or(DamagedBlock("more was missed than judged"))?;
    }
    if parts & part::REQUESTS != 0 {
        counts.requests = take(content)?;
        counts.storage_requests = counts.requests.wrapping_add(unfold(take(content)?));
        let storage = take(content)?;
        let client = storage.wrapping_add(unfold(take(content)?));
        let latency = |micros: u64| {
            let nanos = micros.checked_mul(1_000).ok_or(DamagedBlock("a latency is too large"))?;
            Ok(Latency::from_nanos(nanos))
        };
        (counts.storage_time, counts.client_time) = (latency(storage)?, latency(client)?);
        (counts.read, counts.written) = (take_bytes(content)?, take_bytes(content)?);
    }
    for (place, reason) in WaitReason::ALL.into_iter().enumerate() {
        if parts & (part::WAITED << place) != 0 {
            counts.add_wait(reason, Duration::from_millis(take(content)?));
        }
    }
    counts.was_stuck = parts & part::STUCK != 0;
    Ok(Some((id, counts)))
}

/// Returns the generation of a block of names.
pub(crate) fn generation(mut content: &[u8]) -> Option<u64> {
    (take(&mut content).ok()? == kind::NAMES).then(|| take(&mut content).ok()).flatten()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any number, and as many small ones as large ones.
    fn number() -> impl Strategy<Value = u64> {
        (any::<u64>(), 12_u32..64).prop_map(|(number, bits)| number >> bits)
    }

    /// Counts as a file has them.
    pub(crate) fn counts() -> impl Strategy<Value = MinuteCounts> {
        let time = || prop_oneof![Just(Duration::ZERO), (1_u64..120_000).prop_map(Duration::from_millis)];
        let watched = prop_oneof![Just(60), 0_u64..200].prop_map(Duration::from_secs);
        let latency = || number().prop_map(Latency::from_micros);
        let requests = (number(), latency(), number(), latency(), number(), number());
        let requests = prop_oneof![Just(Default::default()), requests];
        let waited = [time(), time(), time(), time()];
        (watched, number(), number(), requests, waited, any::<bool>()).prop_map(
            |(watched, judged, missed, requests, waited, was_stuck)| {
                let (requests, client_time, storage_requests, storage_time, read, written) = requests;
                MinuteCounts {
                    watched,
                    judged,
                    kept: judged.saturating_sub(missed),
                    requests,
                    client_time,
                    storage_requests,
                    storage_time,
                    read: Bytes::new(read),
                    written: Bytes::new(written / SECTOR * SECTOR),
                    waited,
                    was_stuck,
                }
            },
        )
    }

    fn key(name: u8) -> RollupKey {
        let units = [JudgedBy::Seconds, JudgedBy::Requests];
        let promise = units.get(usize::from(name % 3)).map(|&judged_by| PromiseTerms {
            response_time: Latency::from_micros(u64::from(name)),
            judged_by,
        });
        let resource = ResourceName::new(&format!("pool-{}", name % 2)).unwrap();
        RollupKey { resource, consumer: ConsumerName::new(&format!("ä-{name}")).unwrap(), promise }
    }

    fn month() -> Month {
        "2026-02".parse().unwrap()
    }

    /// Minutes of a month in any order, each of some consumers.
    pub(crate) fn batches() -> impl Strategy<Value = Vec<MinuteBatch>> {
        let rollups = prop::collection::btree_map(any::<u8>(), counts(), 0..12);
        let batch = (0..month().minutes(), rollups).prop_map(|(minute, rollups)| MinuteBatch {
            minute: month().first_minute().later(minute),
            rollups: rollups.into_iter().map(|(name, counts)| (key(name), counts)).collect(),
        });
        prop::collection::vec(batch, 0..12)
    }

    fn decoded(blocks: &[Vec<u8>]) -> Result<Vec<(Minute, RollupKey, MinuteCounts)>, DamagedBlock> {
        let (mut decoder, mut found) = (BlockDecoder::new(month()), Vec::new());
        for block in blocks {
            decoder.decode(block, &mut |minute, key, counts| found.push((minute, key.clone(), *counts)))?;
        }
        Ok(found)
    }

    proptest! {
        #[test]
        fn minutes_come_back_as_they_were(batches in batches()) {
            let mut encoder = BlockEncoder::new(month(), 6);
            let blocks: Vec<_> = batches.iter().flat_map(|batch| encoder.encode(batch)).collect();
            let mut expected: Vec<_> = batches
                .into_iter()
                .flat_map(|batch| {
                    batch.rollups.into_iter().map(move |(key, counts)| (batch.minute, key, counts))
                })
                .collect();
            let mut found = decoded(&blocks).unwrap();
            // Consumers of a minute come in the order of their numbers.
            let order = |one: &(Minute, RollupKey, MinuteCounts)| (one.0, one.1.clone(), one.2.requests);
            found.sort_by_key(order);
            expected.sort_by_key(order);
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn a_lost_block_takes_no_counts_to_another_consumer(
            batches in batches(),
            lost in any::<prop::sample::Index>(),
        ) {
            let mut encoder = BlockEncoder::new(month(), 0);
            let blocks: Vec<_> = batches.iter().flat_map(|batch| encoder.encode(batch)).collect();
            prop_assume!(!blocks.is_empty());
            let mut kept = blocks.clone();
            kept.remove(lost.index(blocks.len()));
            let (mut decoder, mut found) = (BlockDecoder::new(month()), Vec::new());
            for block in &kept {
                // Blocks whose names are lost are errors.
                let visit = &mut |minute, key: &RollupKey, counts: &MinuteCounts| {
                    found.push((minute, key.clone(), *counts));
                };
                let _ = decoder.decode(block, visit);
            }
            let whole = decoded(&blocks).unwrap();
            prop_assert!(found.iter().all(|one| whole.contains(one)));
        }

        #[test]
        fn content_that_ends_early_is_refused_or_is_names(
            batches in batches(),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut encoder = BlockEncoder::new(month(), 0);
            for block in batches.iter().flat_map(|batch| encoder.encode(batch)) {
                let cut = &block[..cut.index(block.len())];
                let mut visited = false;
                let result = BlockDecoder::new(month()).decode(cut, &mut |_, _, _| visited = true);
                prop_assert!(result.is_err() || !visited);
            }
        }
    }

    #[test]
    fn the_largest_blocks_fit() {
        let name = |number: usize| format!("{number:0255}");
        let rollups = (0..1_000).map(|number| {
            let key = RollupKey {
                resource: ResourceName::new(&name(0)).unwrap(),
                consumer: ConsumerName::new(&name(number)).unwrap(),
                promise: Some(PromiseTerms { response_time: Latency::MAX, judged_by: JudgedBy::Seconds }),
            };
            let most = u64::MAX;
            let counts = MinuteCounts {
                watched: Duration::from_secs(most),
                judged: most,
                kept: 0,
                requests: most / 2,
                client_time: Latency::MAX,
                storage_requests: most,
                storage_time: Latency::ZERO,
                read: Bytes::new(most),
                written: Bytes::new(most),
                waited: [Duration::from_millis(most); 4],
                was_stuck: true,
            };
            (key, counts)
        });
        let batch = MinuteBatch { minute: month().first_minute(), rollups: rollups.collect() };
        let blocks = BlockEncoder::new(month(), u64::MAX - 1).encode(&batch);
        assert!(blocks.iter().all(|block| block.len() <= LONGEST_CONTENT));
        assert_eq!(decoded(&blocks).unwrap().len(), 1_000);
    }
}
