//! Block traces: lines of `time,op,offset,bytes`.

use thiserror::Error;
use tidegate_units::{Instant, Latency};

use crate::scenario::TraceRecord;

/// The first line, where there is one.
const HEADER: &str = "time,op,offset,bytes";

/// The most records: more than any machine should simulate at once; 24 bytes each.
const MOST_RECORDS: usize = 50_000_000;

/// A line has not the form of a trace's record.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub(super) struct TraceError {
    line: usize,
    reason: String,
}

/// Reads a trace. `time` is in seconds from the beginning and never goes back; `op` is `R`, `W`, `read` or
/// `write`; `offset` and `bytes` are whole numbers of bytes. Empty lines, lines that begin with `#`, and a
/// first line with the names of the columns are passed over.
pub(super) fn parse(text: &str) -> Result<Vec<TraceRecord>, TraceError> {
    let mut records: Vec<TraceRecord> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || (records.is_empty() && is_header(line)) {
            continue;
        }
        let fail = |reason: String| TraceError { line: number, reason };
        let record = record(line).map_err(fail)?;
        if records.last().is_some_and(|last| record.at < last.at) {
            return Err(fail("its time is before that of the line before".to_owned()));
        }
        if records.len() == MOST_RECORDS {
            return Err(fail(format!("a trace has at most {MOST_RECORDS} records")));
        }
        records.push(record);
    }
    if records.is_empty() {
        return Err(TraceError { line: 1, reason: "there are no records".to_owned() });
    }
    Ok(records)
}

fn is_header(line: &str) -> bool {
    line.replace(' ', "").eq_ignore_ascii_case(HEADER)
}

fn record(line: &str) -> Result<TraceRecord, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [time, op, offset, bytes] = fields[..] else {
        return Err(format!("{} fields instead of `{HEADER}`", fields.len()));
    };
    let seconds: f64 =
        time.parse().map_err(|_| format!("`{}` is not a time in seconds", time.escape_debug()))?;
    if !(seconds >= 0.0 && seconds.is_finite()) {
        return Err(format!("`{}` is not a time in seconds", time.escape_debug()));
    }
    let read = match op {
        "R" | "r" | "read" => true,
        "W" | "w" | "write" => false,
        _ => return Err(format!("`{}` is neither `R` nor `W`", op.escape_debug())),
    };
    let offset = offset.parse().map_err(|_| format!("`{}` is not an offset", offset.escape_debug()))?;
    let bytes = bytes.parse().map_err(|_| format!("`{}` is not a number of bytes", bytes.escape_debug()))?;
    Ok(TraceRecord { at: Instant::ZERO + Latency::from_secs_f64(seconds), read, offset, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_recorders_write() {
        let records =
            parse("time, op, offset, bytes\n# a comment\n0.5,R,4096,8192\n\n0.5, write ,0,512\n").unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].at, Instant::from_nanos(500_000_000));
        assert!(records[0].read && !records[1].read);
        assert_eq!((records[0].offset, records[1].bytes), (4_096, 512));
    }

    #[test]
    fn says_which_line_is_wrong() {
        let said = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(said(""), "line 1: there are no records");
        assert_eq!(said("0,R,0,1\n1,R,0"), "line 2: 3 fields instead of `time,op,offset,bytes`");
        assert_eq!(said("1,R,0,1\n0.5,R,0,1"), "line 2: its time is before that of the line before");
        assert_eq!(said("x,R,0,1"), "line 1: `x` is not a time in seconds");
        assert_eq!(said("NaN,R,0,1"), "line 1: `NaN` is not a time in seconds");
        assert_eq!(said("0,T,0,1"), "line 1: `T` is neither `R` nor `W`");
        assert_eq!(said("0,R,-1,1"), "line 1: `-1` is not an offset");
        assert_eq!(said("0,R,0,5000000000"), "line 1: `5000000000` is not a number of bytes");
    }
}
