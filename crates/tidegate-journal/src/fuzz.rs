//! Fuzz targets: each takes bytes as a disk might deliver them, and checks what must hold for all of them.

use std::path::Path;

use tidegate_units::Instant;

use crate::error::JournalError;
use crate::number::push_length;
use crate::reader::SegmentReader;
use crate::record::EntryContent;
use crate::segment::{FRAME, ParsedBytes, SegmentHeader, seal};
use crate::time::{ClockAnchor, WallTime};

/// The most blocks of one input.
const MOST_BLOCKS: usize = 64;

/// A segment of a decision journal: the bytes as they are, and as blocks of a segment that a writer sealed,
/// once with their content and once with what they are compressed from.
///
/// A block of the input has its length before it, in two bytes. The first three bytes of what it is
/// compressed from are the number of its entries, and the lengths of its documents and of its bit stream.
/// These stand at its beginning and at its end, the symbols between them.
pub fn decision_journal(input: &[u8]) {
    check(input);
    check_sealed(input, <[u8]>::to_vec);
    check_sealed(input, compressed);
}

/// Compresses the documents of a block.
fn compressed(content: &[u8]) -> Vec<u8> {
    let [entries, documents, noise, content @ ..] = content else { return Vec::new() };
    let (documents, content) = content.split_at(content.len().min(usize::from(*documents)));
    let (symbols, noise) = content.split_at(content.len().saturating_sub(usize::from(*noise)));
    let mut block = vec![*entries & 0x7f];
    push_length(&mut block, documents.len());
    if !documents.is_empty() {
        let packed = zstd::bulk::compress(documents, 1).expect("memory is compressed");
        push_length(&mut block, packed.len());
        block.extend_from_slice(&packed);
    }
    push_length(&mut block, symbols.len());
    [block, symbols.to_vec(), noise.to_vec()].concat()
}

fn check_sealed(input: &[u8], content_of: fn(&[u8]) -> Vec<u8>) {
    let ParsedBytes { bytes: mut sealed, seed } = header().encoded();
    let mut counts = vec![check(&sealed)];
    let (mut rest, mut last, mut blocks) = (input, 0, 0);
    while let [low, high, content @ ..] = rest
        && blocks < MOST_BLOCKS
    {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(content.len());
        let (content, after) = content.split_at(length);
        let mut block = [&[0; FRAME][..], &content_of(content)].concat();
        seal(seed, &mut block);
        sealed.extend_from_slice(&block);
        (rest, last, blocks) = (after, block.len(), blocks + 1);
    }
    counts.push(check(&sealed));
    assert!(counts.is_sorted(), "blocks take entries away: {counts:?}");
    // A torn end changes nothing of what is before it.
    if last > 0 {
        let before = check(&sealed[..sealed.len() - last]);
        for cut in [1, last / 2, last - 1] {
            let torn = check(&sealed[..sealed.len() - cut]);
            assert_eq!(torn, before, "entries before a torn end");
        }
    }
}

fn header() -> SegmentHeader {
    SegmentHeader {
        observation: tidegate_control::Observation::VERSION,
        build: String::new(),
        sequence: 1,
        began: ClockAnchor { at: Instant::ZERO, wall: WallTime::MIN },
    }
}

/// Reads a segment to its end or to the first error. Returns the number of its entries.
fn check(bytes: &[u8]) -> usize {
    let mut entries = 0;
    match read(bytes, &mut entries) {
        Ok(()) => {}
        Err(error) => {
            let size = bytes.len() as u64;
            match &error {
                JournalError::Truncated { offset, dropped, .. }
                | JournalError::Checksum { offset, dropped, .. }
                | JournalError::Malformed { offset, dropped, .. } => assert_is_rest(*offset, *dropped, size),
                JournalError::NotAJournal { offset, .. }
                | JournalError::NewerVersion { offset, .. }
                | JournalError::OlderVersion { offset, .. } => assert!(*offset <= size),
                error => panic!("{error}"),
            }
            assert!(error.to_string().starts_with("segment: byte "), "{error}");
        }
    }
    entries
}

fn assert_is_rest(offset: u64, dropped: u64, size: u64) {
    // A header that is damaged is dropped as far as it was read.
    assert!(
        offset + dropped <= size && (offset == 0 || offset + dropped == size),
        "{offset} {dropped} {size}"
    );
}

fn read(bytes: &[u8], entries: &mut usize) -> Result<(), JournalError> {
    let mut reader = SegmentReader::new(Path::new("segment"), bytes)?;
    while let Some(block) = reader.next_block()? {
        *entries += block.len();
        for entry in block {
            if let EntryContent::Decision(decision) = &entry.content {
                // Numbers out of their range come back within it.
                let observation = decision.observation();
                assert!(observation.consumers.iter().all(|each| each.mean_outstanding.get() >= 0.0));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod corpus {
    use std::time::Duration;

    use tidegate_control::{AutoConfig, ConsumerObservation, ControlLoop, LoopConfig, Observation};
    use tidegate_units::{ConsumerName, Instant, Latency, ResourceName, Shares};

    use super::replay::replay;
    use crate::{ActionRecord, JournalConfig, JournalWriter};

    #[test]
    fn every_kept_input_keeps_the_invariants() {
        replay("decision-journal", super::decision_journal);
    }

    /// A change of the code must not change what a file of this format means.
    #[test]
    fn a_segment_that_was_written_with_the_format_is_still_read() {
        let segment = include_bytes!("../../../fuzz/corpus/decision-journal/segment");
        let mut entries = 0;
        super::read(segment, &mut entries).expect("a whole segment");
        assert_eq!(entries, 14, "a checkpoint, eleven decisions, two actions");
    }

    #[test]
    #[ignore = "writes the segment of the corpus anew, after a change of the format"]
    fn the_segment_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let config = JournalConfig::new(folder.path().to_owned(), "tidegate 0.1.0".to_owned());
        let mut now = Instant::ZERO;
        let journal = JournalWriter::start(config, now).unwrap();
        let name = ResourceName::new("vg0").unwrap();
        let law = AutoConfig::default().into();
        let mut control =
            ControlLoop::new(LoopConfig::new(name.clone(), Latency::from_millis(15), law)).unwrap();
        let mut resource = journal.resource(&control, now);
        for count in 0..11 {
            now = now + Duration::from_millis(250);
            let mut consumer =
                ConsumerObservation::idle(ConsumerName::new("a").unwrap(), Shares::DEFAULT, false);
            consumer.reads.count = 7 * count;
            consumer.reads.total_latency = Latency::from_micros(21_003 * count);
            let observation = Observation::new(name.clone(), now, vec![consumer]);
            let (commands, decision) = control.step(now, &observation);
            resource.record(&control, &observation, &commands, &decision, None);
            if count % 5 == 4 {
                let text = format!("reloaded {count}");
                journal.action(ActionRecord { resource: None, actor: "SIGHUP".to_owned(), text });
            }
        }
        journal.close();
        let segments = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let segment = segments.into_iter().find(|path| path.extension().is_some()).unwrap();
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/decision-journal/segment");
        std::fs::copy(segment, kept).unwrap();
    }
}
