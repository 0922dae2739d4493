//! Fuzz targets: each takes bytes as a disk might deliver them, and checks what must hold for all of them.

use std::path::{Path, PathBuf};

use crate::calendar::{Minute, Month};
use crate::code::BlockEncoder;
use crate::error::RollupError;
use crate::file::RollupFile;
use crate::frame::{HEADER, check_header, header, push_block, seed};
use crate::reader::read_blocks;
use crate::rollup::{MinuteBatch, MinuteCounts, RollupKey};

/// The most blocks of one input.
const MOST_BLOCKS: usize = 16;

/// A file of rollups: the bytes as they are, and as the contents of blocks that a writer sealed.
///
/// A block of the input has its length before it, in two bytes. It is sealed for another month: a whole block
/// within a torn one would be found.
pub fn rollups(input: &[u8]) {
    read(input, Month::from_index(682));
    let month = Month::from_index(683);
    let mut sealed = header(month).to_vec();
    let seed = seed(&header(month));
    let (mut rest, mut ends) = (input, vec![sealed.len()]);
    while let [low, high, content @ ..] = rest
        && ends.len() <= MOST_BLOCKS
    {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(content.len());
        let (content, after) = content.split_at(length);
        push_block(&mut sealed, seed, content);
        ends.push(sealed.len());
        rest = after;
    }
    let whole = read(&sealed, month);
    // What was read is written and read again, as it was.
    let mut again = header(month).to_vec();
    let mut blocks = BlockEncoder::new(month, 0);
    for (minute, key, counts) in &whole {
        let batch = MinuteBatch { minute: *minute, rollups: vec![(key.clone(), *counts)] };
        for content in blocks.encode(&batch) {
            push_block(&mut again, seed, &content);
        }
    }
    assert_eq!(read(&again, month), whole, "what was read is not what was written");
    // A torn end takes nothing of what is before it.
    if let [.., before, end] = ends[..] {
        let kept = read(&sealed[..before], month);
        assert!(whole.starts_with(&kept));
        for cut in [before + 1, (before + end) / 2, end - 1] {
            assert_eq!(read(&sealed[..cut], month), kept, "minutes before a torn end");
        }
        // Neither does a damaged block, of what is after it: at most what depends on its names.
        sealed[HEADER] ^= 1;
        let mut rest = whole.iter();
        for one in &read(&sealed, month) {
            assert!(rest.any(|other| other == one), "a damaged block changes other minutes");
        }
    }
}

type FoundCounts = (Minute, RollupKey, MinuteCounts);

/// Reads a file as far as it can be read.
fn read(bytes: &[u8], month: Month) -> Vec<FoundCounts> {
    let path = Path::new("2026-11.1.tdgr");
    let (mut found, mut damage) = (Vec::new(), Vec::new());
    match check_header(path, bytes.get(..HEADER).unwrap_or(bytes), month) {
        Ok(seed) => {
            let file = RollupFile { month, number: 1, path: PathBuf::from(path) };
            let visit = &mut |minute: Minute, key: &RollupKey, counts: &MinuteCounts| {
                assert_eq!(minute.month(), month);
                assert!(counts.kept <= counts.judged);
                found.push((minute, key.clone(), *counts));
            };
            read_blocks(&bytes[HEADER..], seed, &file, visit, &mut damage).expect("memory can be read");
        }
        Err(error) => damage.push(error),
    }
    for error in damage {
        match &error {
            RollupError::Truncated { offset, bytes: lost, .. }
            | RollupError::Damaged { offset, bytes: lost, .. } => {
                assert!(offset + lost <= bytes.len() as u64, "{error}");
            }
            RollupError::Foreign { offset, .. } | RollupError::NewerVersion { offset, .. } => {
                assert!(*offset <= bytes.len() as u64, "{error}");
            }
            error => panic!("{error}"),
        }
        assert!(error.to_string().starts_with("2026-11.1.tdgr: byte "), "{error}");
    }
    found
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tidegate_control::WaitReason;
    use tidegate_units::{Bytes, ConsumerName, Latency, ResourceName};

    use super::replay::replay;
    use super::*;
    use crate::rollup::{JudgedBy, PromiseTerms};

    #[test]
    fn every_kept_input_keeps_the_invariants() {
        replay("rollups", super::rollups);
    }

    proptest! {
        /// The target holds for what a writer writes, and for the same with damage.
        #[test]
        fn the_target_holds_for_blocks_of_a_writer(
            batches in crate::code::tests::batches(),
            damage in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        ) {
            // The target's month has the length of that of the batches, or more.
            let (month, other) = (Month::from_index(682), Month::from_index(673));
            let mut blocks = BlockEncoder::new(month, 0);
            let mut input = Vec::new();
            for mut batch in batches {
                batch.minute = month.first_minute().later(batch.minute.since(other.first_minute()));
                push_input(&mut input, &blocks.encode(&batch));
            }
            if let Some((place, byte)) = damage && !input.is_empty() {
                let place = place.index(input.len());
                input[place] = byte;
            }
            super::rollups(&input);
        }
    }

    fn push_input(input: &mut Vec<u8>, blocks: &[Vec<u8>]) {
        for content in blocks {
            input.extend_from_slice(&(content.len() as u16).to_le_bytes());
            input.extend_from_slice(content);
        }
    }

    /// Two consumers over the end of a day: busy, then idle, then stuck.
    fn kept_minutes() -> Vec<MinuteBatch> {
        let key = |name: &str, judged_by| RollupKey {
            resource: ResourceName::new("disk").unwrap(),
            consumer: ConsumerName::new(name).unwrap(),
            promise: Some(PromiseTerms { response_time: Latency::from_millis(35), judged_by }),
        };
        let whole = MinuteCounts { watched: Duration::from_secs(60), ..MinuteCounts::default() };
        let mut busy = MinuteCounts {
            judged: 2_400,
            kept: 2_350,
            requests: 2_400,
            client_time: Latency::from_micros(48_123_456),
            storage_requests: 2_403,
            storage_time: Latency::from_micros(31_234_567),
            read: Bytes::new(9_830_400),
            written: Bytes::new(1_001),
            ..whole
        };
        busy.add_wait(WaitReason::Law, Duration::from_millis(12_250));
        let last = Month::from_index(682).day(8).previous();
        let counts =
            [busy, whole, MinuteCounts { was_stuck: true, watched: Duration::from_secs(17), ..whole }];
        let batch = |(later, counts): (u32, MinuteCounts)| MinuteBatch {
            minute: last.later(later),
            rollups: vec![(key("w1", JudgedBy::Requests), counts), (key("w2", JudgedBy::Seconds), whole)],
        };
        (0..).zip(counts).map(batch).collect()
    }

    /// A change of the code must not change what a file of this format means.
    #[test]
    fn a_file_that_was_written_with_the_format_is_still_read() {
        let found = read(include_bytes!("../../../fuzz/corpus/rollups/file"), Month::from_index(682));
        let written = kept_minutes().into_iter().flat_map(|batch| {
            batch.rollups.into_iter().map(move |(key, counts)| (batch.minute, key, counts))
        });
        assert_eq!(found, written.collect::<Vec<_>>());
    }

    #[test]
    #[ignore = "writes the corpus anew, after a change of the format"]
    fn the_corpus_is_written_anew() {
        let month = Month::from_index(682);
        let (mut file, mut input) = (header(month).to_vec(), Vec::new());
        let mut encoder = BlockEncoder::new(month, 0);
        for batch in kept_minutes() {
            let blocks = encoder.encode(&batch);
            blocks.iter().for_each(|content| push_block(&mut file, seed(&header(month)), content));
            push_input(&mut input, &blocks);
        }
        let corpus = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/rollups"));
        std::fs::write(corpus.join("file"), file).unwrap();
        std::fs::write(corpus.join("blocks"), input).unwrap();
    }
}
