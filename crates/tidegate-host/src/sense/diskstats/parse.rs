//! Text of `/proc/diskstats` to [`DiskReading`]s.

use super::{DiskCounters, DiskName, DiskReading, FlushCounters, TransferCounters, paths};
use crate::device::DeviceNumber;

/// A problem and the number of its line, counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DiskstatsFault {
    pub(super) line: usize,
    pub(super) problem: String,
}

pub(super) const READS: [&str; 4] =
    ["reads completed", "reads merged", "sectors read", "milliseconds of reading"];
pub(super) const WRITES: [&str; 4] =
    ["writes completed", "writes merged", "sectors written", "milliseconds of writing"];
pub(super) const DISCARDS: [&str; 4] =
    ["discards completed", "discards merged", "sectors discarded", "milliseconds of discarding"];
/// The two in the middle are not the kernel's.
pub(super) const FLUSHES: [&str; 4] = ["flushes completed", "", "", "milliseconds of flushing"];

/// The counters in the order of their columns.
const NAMES: [&str; 17] = [
    READS[0],
    READS[1],
    READS[2],
    READS[3],
    WRITES[0],
    WRITES[1],
    WRITES[2],
    WRITES[3],
    "requests in flight",
    "milliseconds busy",
    "weighted milliseconds",
    DISCARDS[0],
    DISCARDS[1],
    DISCARDS[2],
    DISCARDS[3],
    FLUSHES[0],
    FLUSHES[3],
];

/// Columns before the counters: major, minor, name.
const BEFORE: usize = 3;

/// The possible numbers of counters. A kernel that has more than we know is newer, and adds them at the end.
const BASIC: usize = 11;
const WITH_DISCARDS: usize = 15;
const WITH_FLUSHES: usize = 17;

/// The lines of a reading, in the order of their numbers.
pub(super) fn disks(text: &[u8], disks: &mut Vec<DiskReading>) -> Result<(), DiskstatsFault> {
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let disk = disk(line).map_err(|problem| DiskstatsFault { line: index + 1, problem })?;
        disks.push(disk);
    }
    // The kernel lists devices in the order of their creation. Stable, so that of a number that occurs twice
    // (a device was made again while the kernel wrote the list) the later line is the later device.
    if !disks.is_sorted_by(|a, b| a.number < b.number) {
        disks.sort_by_key(|disk| disk.number);
        disks.dedup_by(|later, earlier| {
            // Some kernels number no hidden device.
            let is_numbered = later.number != DeviceNumber::new(0, 0);
            let same = later.number == earlier.number && (is_numbered || later.name == earlier.name);
            if same {
                *earlier = *later;
            }
            same
        });
    }
    paths::count_heads(disks);
    Ok(())
}

fn disk(line: &[u8]) -> Result<DiskReading, String> {
    let mut words = Words(line);
    let mut number = |column, name| match words.next() {
        Some(word) => decimal(word)
            .and_then(|value| u32::try_from(value).ok())
            .ok_or_else(|| not_a_number(column, name, word)),
        None => Err(missing(column, name)),
    };
    let number = DeviceNumber { major: number(1, "major")?, minor: number(2, "minor")? };
    let name = words.next().ok_or_else(|| missing(3, "name"))?;
    let name = DiskName::new(name).ok_or_else(|| {
        format!("column 3 (name): expected at most {} bytes of UTF-8, not `{}`", DiskName::MAX, shown(name))
    })?;
    let mut values = [0; WITH_FLUSHES];
    let mut count = 0;
    for (index, value) in values.iter_mut().enumerate() {
        let Some(word) = words.next() else { break };
        *value = decimal(word).ok_or_else(|| not_a_number(BEFORE + index + 1, NAMES[index], word))?;
        count += 1;
    }
    if !matches!(count, BASIC | WITH_DISCARDS | WITH_FLUSHES) {
        return Err(missing(BEFORE + count + 1, NAMES[count]));
    }
    let transfers = |at: usize| TransferCounters {
        ios: values[at],
        merged: values[at + 1],
        sectors: values[at + 2],
        ms: values[at + 3],
    };
    let counters = DiskCounters {
        reads: transfers(0),
        writes: transfers(4),
        in_flight: in_flight(values[8]),
        busy_ms: values[9],
        weighted_ms: values[10],
        discards: (count >= WITH_DISCARDS).then(|| transfers(11)),
        flushes: (count >= WITH_FLUSHES).then(|| FlushCounters { ios: values[15], ms: values[16] }),
    };
    Ok(DiskReading { number, name, counters, paths: 0 })
}

/// Kernels before 5.0 count requests in flight without a lock, and now and then write -1 as an `unsigned
/// int`.
fn in_flight(value: u64) -> u64 {
    if i32::try_from(value).is_ok() { value } else { 0 }
}

/// The words of a line; `split` and `filter` do the same and take longer.
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let begin = self.0.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let (_, line) = self.0.split_at(begin);
        let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
        let (word, rest) = line.split_at(end);
        self.0 = rest;
        Some(word)
    }
}

/// Digits only, no sign, and no more than 64 bits hold.
fn decimal(word: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| Some(byte.wrapping_sub(b'0')).filter(|digit| *digit <= 9).map(u64::from);
    // 19 digits always fit.
    if word.len() < 20 {
        return word.iter().try_fold(0, |value, byte| Some(10 * value + digit(byte)?));
    }
    word.iter().try_fold(0_u64, |value, byte| value.checked_mul(10)?.checked_add(digit(byte)?))
}

fn missing(column: usize, name: &str) -> String {
    format!(
        "column {column} ({name}) is missing: the kernel writes {BASIC}, {WITH_DISCARDS} or {WITH_FLUSHES} \
            counters"
    )
}

fn not_a_number(column: usize, name: &str, word: &[u8]) -> String {
    format!("column {column} ({name}): expected a number, not `{}`", shown(word))
}

/// Returns the text found, short enough for a message.
fn shown(word: &[u8]) -> String {
    let end = word.len().min(40);
    String::from_utf8_lossy(&word[..end]).into_owned()
}
