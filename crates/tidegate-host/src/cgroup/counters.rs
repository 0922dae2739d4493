//! Counters of a cgroup's I/O to devices, as text of the kernel's.

use std::collections::BTreeMap;

use tidegate_units::Bytes;

use crate::device::DeviceNumber;
use crate::sense::tree::shown;

/// A cgroup's I/O to a device since both exist. The counters only grow, have 64 bits, and do not wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoCounters {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// The bytes read.
    pub read: Bytes,
    /// The bytes written.
    pub written: Bytes,
}

impl IoCounters {
    /// Returns the difference from an older reading; `None` if a number went back. Then the cgroup, or the
    /// device, was removed and made again.
    #[must_use]
    pub fn since(self, old: Self) -> Option<Self> {
        let bytes = |new: Bytes, old: Bytes| new.get().checked_sub(old.get()).map(Bytes::new);
        Some(Self {
            reads: self.reads.checked_sub(old.reads)?,
            writes: self.writes.checked_sub(old.writes)?,
            read: bytes(self.read, old.read)?,
            written: bytes(self.written, old.written)?,
        })
    }
}

type ParsedCounters = BTreeMap<DeviceNumber, IoCounters>;

/// A problem and the number of its line, counted from 1.
type CounterFault = (usize, String);

/// `io.stat`: `8:0 rbytes=… wbytes=… rios=… wios=… dbytes=… dios=…`. Kernels before 5.15 write devices that
/// nothing is known of without a newline, so that a line may have several. Other words are of other
/// controllers, and newer kernels.
pub(super) fn of_v2(text: &str) -> Result<ParsedCounters, CounterFault> {
    let mut found = ParsedCounters::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = |what: &str, word: &str| (index + 1, format!("expected {what}, not `{}`", shown(word)));
        let mut counters: Option<&mut IoCounters> = None;
        for word in line.split_whitespace() {
            let Some((key, value)) = word.split_once('=') else {
                let device = word.parse().map_err(|_| wrong("the number of a device", word))?;
                counters = Some(found.entry(device).or_default());
                continue;
            };
            let Some(counters) = &mut counters else { return Err(wrong("the number of a device", word)) };
            let value = || value.parse::<u64>().map_err(|_| wrong("a number", word));
            match key {
                "rios" => counters.reads = value()?,
                "wios" => counters.writes = value()?,
                "rbytes" => counters.read = Bytes::new(value()?),
                "wbytes" => counters.written = Bytes::new(value()?),
                _ => {}
            }
        }
    }
    // A device without a word was not touched.
    Ok(found)
}

/// `blkio.throttle.io_serviced`.
pub(super) fn counts_of_v1(text: &str) -> Result<ParsedCounters, CounterFault> {
    let mut found = ParsedCounters::new();
    of_v1(text, |device, operation, value| {
        let counters: &mut IoCounters = found.entry(device).or_default();
        match operation {
            "Read" => counters.reads = value,
            "Write" => counters.writes = value,
            _ => {}
        }
    })?;
    Ok(found)
}

/// `blkio.throttle.io_service_bytes`.
pub(super) fn bytes_of_v1(text: &str, found: &mut ParsedCounters) -> Result<(), CounterFault> {
    of_v1(text, |device, operation, value| {
        let counters = found.entry(device).or_default();
        match operation {
            "Read" => counters.read = Bytes::new(value),
            "Write" => counters.written = Bytes::new(value),
            _ => {}
        }
    })
}

/// `7:0 Read 100`, a line for each operation, and at the end `Total 100` of all devices.
fn of_v1(text: &str, mut take: impl FnMut(DeviceNumber, &str, u64)) -> Result<(), CounterFault> {
    for (index, line) in text.lines().enumerate() {
        let wrong = |what: &str| (index + 1, format!("expected {what} in `{}`", shown(line)));
        let mut words = line.split_whitespace();
        let Some(first) = words.next().filter(|first| *first != "Total") else { continue };
        let device = first.parse().map_err(|_| wrong("the number of a device"))?;
        let operation = words.next().ok_or_else(|| wrong("an operation"))?;
        let value = words.next().and_then(|word| word.parse().ok()).ok_or_else(|| wrong("a number"))?;
        take(device, operation, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn counters(reads: u64, writes: u64, read: u64, written: u64) -> IoCounters {
        IoCounters { reads, writes, read: Bytes::new(read), written: Bytes::new(written) }
    }

    #[test]
    fn the_kernels_own_text() {
        let text = "7:1 8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n\
                    259:0 rbytes=0 wbytes=512 rios=0 wios=1 dbytes=0 dios=0 cost.usage=71\n";
        let found = of_v2(text).unwrap();
        let device = |major, minor| DeviceNumber::new(major, minor);
        assert_eq!(found[&device(7, 1)], IoCounters::default());
        assert_eq!(found[&device(8, 0)], counters(1, 2, 4096, 8192));
        assert_eq!(found[&device(259, 0)], counters(0, 1, 0, 512));

        let mut found =
            counts_of_v1("7:0 Read 17\n7:0 Write 3\n7:0 Sync 20\n7:0 Total 20\nTotal 20\n").unwrap();
        bytes_of_v1("7:0 Read 69632\n7:0 Write 12288\nTotal 81920\n", &mut found).unwrap();
        assert_eq!(found[&device(7, 0)], counters(17, 3, 69_632, 12_288));
        assert_eq!(counts_of_v1("Total 0\n"), Ok(ParsedCounters::new()));
        assert_eq!(of_v2(""), Ok(ParsedCounters::new()));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for text in ["8:0 rios=1\nrios=1", "8:0\nsda rios=1", "8:0\n8:0 wios=-1", "8:0\n8:0 rbytes="] {
            assert_eq!(of_v2(text).unwrap_err().0, 2, "{text}");
        }
        for text in ["Total 0\nsda Read 1", "\n8:0 Read", "\n8:0", "\n8:0 Read x"] {
            assert_eq!(counts_of_v1(text).unwrap_err().0, 2, "{text}");
        }
    }

    #[test]
    fn a_counter_that_went_back_is_of_another_cgroup() {
        let (old, new) = (counters(5, 5, 50, 50), counters(7, 5, 60, 50));
        assert_eq!(new.since(old), Some(counters(2, 0, 10, 0)));
        for less in
            [counters(4, 9, 90, 90), counters(9, 4, 90, 90), counters(9, 9, 49, 90), counters(9, 9, 90, 49)]
        {
            assert_eq!(less.since(old), None, "{less:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "([0-9]:[0-9] |rios=|Read|[0-9]|\\PC| |\n){0,40}") {
            let _ = (of_v2(&text), counts_of_v1(&text));
        }
    }
}
