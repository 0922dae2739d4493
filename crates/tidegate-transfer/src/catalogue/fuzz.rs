//! The journal as a crash, a broken disk or an editor may leave it.

use std::collections::BTreeMap;
use std::path::Path;

use tidegate_units::ResourceName;

use super::{BegunTransfer, CatalogueError, CatalogueRecord, CatalogueState, VERSION, line, parsed, read};
use crate::wire::ServiceNeeds;

/// The number of places, evenly spread, at which a journal is cut.
const CUTS: usize = 16;

/// Checks bytes as they are, and as lines that a broker wrote: each with its checksum.
pub(crate) fn journal(input: &[u8]) {
    check(input);
    let lines = input.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let sealed: Vec<u8> = lines.flat_map(sealed).collect();
    if check(&sealed).is_none() {
        return;
    }
    // A crash tears the end off, or leaves zeros where a page was not written. That is never an error.
    for place in 0..CUTS {
        let torn = &sealed[..sealed.len() * place / CUTS];
        assert!(check(torn).is_some(), "a journal that was torn after {} bytes is refused", torn.len());
        // Of sectors that were not written.
        let torn = &torn[..torn.len() / 512 * 512];
        let zeroed = [torn, &[0; 512]].concat();
        assert_eq!(check(&zeroed), check(torn), "zeros behind the end change what is known");
    }
}

fn sealed(json: &[u8]) -> Vec<u8> {
    [format!("{:08x} ", crc32c::crc32c(json)).as_bytes(), json, b"\n"].concat()
}

/// Reads a journal, and returns the number of its bytes that count, unless it is refused.
fn check(bytes: &[u8]) -> Option<u64> {
    let lines = || bytes.split_inclusive(|byte| *byte == b'\n');
    match read(Path::new("catalogue"), bytes) {
        Ok((known, count, whole)) => {
            let (kept, cut_off) = bytes.split_at(usize::try_from(whole).expect("a length in memory"));
            let records = kept.split_inclusive(|byte| *byte == b'\n');
            let records: Vec<_> = records.map(|line| parsed(line).expect("a record")).collect();
            assert_eq!(records.len(), count, "each line is a record");
            for line in cut_off.split_inclusive(|byte| *byte == b'\n') {
                let lost = parsed(line);
                let is_acknowledged =
                    !matches!(lost, None | Some(CatalogueRecord::Began(_) | CatalogueRecord::Ended(_)));
                assert!(!is_acknowledged, "{lost:?} is cut off");
            }
            check_known(&known, &records);
            Some(whole)
        }
        Err(CatalogueError::Damaged { line, .. }) => {
            assert!(lines().take(line - 1).all(|line| parsed(line).is_some()), "an earlier line is damaged");
            assert!(
                lines().nth(line - 1).is_some_and(|line| parsed(line).is_none()),
                "line {line} is not damaged"
            );
            None
        }
        Err(CatalogueError::Version { found, .. }) => {
            assert_ne!(found, VERSION);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn check_known(known: &CatalogueState, records: &[CatalogueRecord]) {
    let mut replayed = CatalogueState::default();
    records.iter().cloned().for_each(|record| replayed.apply(record));
    assert_eq!(&replayed, known, "what is known is what the records say, in their order");
    assert!(known.lines() <= records.len() + 1, "written anew it is longer");

    let sizes = records.iter().map(|record| match record {
        CatalogueRecord::Stored(new) => u128::from(new.size.get()),
        _ => 0,
    });
    // Beyond that the sums stay at the greatest number.
    if sizes.max().unwrap_or_default() * (records.len() as u128) <= u128::from(u64::MAX) {
        let mut held: BTreeMap<&ResourceName, u64> = BTreeMap::new();
        for object in known.objects.values() {
            for replica in &object.replicas {
                *held.entry(&replica.node).or_default() += object.size.get();
            }
        }
        assert_eq!(without_nothing(known), held, "bytes on the nodes");
    }

    let anew: Vec<u8> =
        known.records().flat_map(|record| line(&record).expect("a line").into_bytes()).collect();
    let (again, lines, whole) = read(Path::new("catalogue"), &anew[..]).expect("a journal of our own");
    assert_eq!((lines, whole), (known.lines(), anew.len() as u64));
    assert_eq!(again.objects, known.objects);
    let transfers = |known: &CatalogueState| known.under_way.values().map(without_rate).collect::<Vec<_>>();
    assert_eq!(transfers(&again), transfers(known));
}

fn without_nothing(known: &CatalogueState) -> BTreeMap<&ResourceName, u64> {
    known.held.iter().filter(|(_, bytes)| **bytes > 0).map(|(node, bytes)| (node, *bytes)).collect()
}

/// Returns a transfer without its rate: a rate is read back to the last digit but one.
fn without_rate(begun: &BegunTransfer) -> BegunTransfer {
    let needs = match begun.needs {
        ServiceNeeds::Average(_) => ServiceNeeds::Average(0.0),
        ServiceNeeds::MovingAverage(_) => ServiceNeeds::MovingAverage(0.0),
        ServiceNeeds::Current(_) => ServiceNeeds::Current(0.0),
        ServiceNeeds::Latency(_) => ServiceNeeds::Latency(0.0),
    };
    BegunTransfer { needs, ..begun.clone() }
}
