//! The lines of the catalogue's journal, and the traces that a crash can leave instead of the last ones.
//!
//! A line is a CRC-32C in eight hexadecimal digits, a space, and JSON, which has no byte of zero. A crash leaves
//! the beginning of a line, or zeros in the place of sectors that were not written. It changes no byte. So a
//! line that ends as it should and has another checksum was damaged later, by a disk or an editor.

use serde::de::IgnoredAny;

/// The longest valid line: a record has two names, a key and a few numbers. A longer one is damaged.
pub(super) const LONGEST_LINE: usize = 8 * 1024;

/// Hexadecimal digits of a checksum.
const CHECKSUM_DIGITS: usize = 8;

/// The smallest unit that a disk writes whole, in bytes.
const SECTOR: u64 = 512;

pub(super) fn sealed_line(json: &str) -> String {
    format!("{:08x} {json}\n", crc32c::crc32c(json.as_bytes()))
}

/// Returns the JSON of a line, if the line is whole.
pub(super) fn checked_json(line: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (sum, json) = line.split_at_checked(CHECKSUM_DIGITS)?;
    let json = json.strip_prefix(' ')?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    (sum == crc32c::crc32c(json.as_bytes())).then_some(json)
}

/// Returns true if a crash can have left this piece of a file, which begins at `offset` and ends after a
/// newline, after [`LONGEST_LINE`] or with the file.
pub(super) fn is_left_by_crash(piece: &[u8], offset: u64) -> bool {
    let Some(first) = piece.iter().position(|byte| *byte == 0) else {
        return piece.len() < LONGEST_LINE && is_begun_line(piece);
    };
    let zeros = piece[first..].iter().take_while(|byte| **byte == 0).count();
    let is_boundary = |place: usize| (offset + place as u64).is_multiple_of(SECTOR);
    // What was written before ends with a line.
    (first == 0 || is_boundary(first)) && (first + zeros == piece.len() || is_boundary(first + zeros))
}

/// Returns true if these bytes are the beginning of a line that has no newline yet.
fn is_begun_line(bytes: &[u8]) -> bool {
    let (sum, rest) = bytes.split_at(bytes.len().min(CHECKSUM_DIGITS));
    let is_sum = sum.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let is_json = match rest {
        [] | b" " => true,
        [b' ', json @ ..] => {
            let mut values = serde_json::Deserializer::from_slice(json).into_iter::<IgnoredAny>();
            match values.next() {
                // Behind a whole record stands its newline, or nothing yet.
                Some(Ok(_)) => values.byte_offset() == json.len(),
                // A number that is cut off within is not called an early end.
                Some(Err(error)) => {
                    error.is_eof()
                        || (error.column() == json.len()
                            && matches!(json.last(), Some(b'-' | b'+' | b'.' | b'e' | b'E')))
                }
                None => false,
            }
        }
        _ => false,
    };
    is_sum && is_json
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vec<u8> {
        sealed_line(r#"{"stored":{"name":"run7","size":-1.2e-3,"node":"a\u00e4","key":null,"t":true}}"#)
            .into_bytes()
    }

    #[test]
    fn a_crash_leaves_any_beginning_of_a_line() {
        let line = example();
        for length in 1..line.len() {
            assert!(is_left_by_crash(&line[..length], 100), "cut at {length}");
        }
        assert!(checked_json(&line).is_some());
    }

    #[test]
    fn a_crash_changes_no_bit_of_a_line() {
        let line = example();
        for bit in 0..line.len() * 8 {
            let mut flipped = line.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if checked_json(&flipped).is_some() {
                // Upper and lower case are the same digit, so nothing is lost.
                assert!(bit / 8 < CHECKSUM_DIGITS, "bit {bit}");
                continue;
            }
            let mut offset = 100;
            let mut pieces = flipped.split_inclusive(|byte| *byte == b'\n');
            let is_crash = pieces.all(|piece| {
                offset += piece.len() as u64;
                is_left_by_crash(piece, offset - piece.len() as u64)
            });
            assert!(!is_crash, "bit {bit}: {}", String::from_utf8_lossy(&flipped));
        }
    }

    #[test]
    fn a_crash_leaves_zeros_in_whole_sectors() {
        let line = example();
        let zeroed = |from: usize, to: usize| {
            let mut line = line.clone();
            line[from..to].fill(0);
            line
        };
        let end = line.len();
        assert!(is_left_by_crash(&zeroed(0, end), 100));
        assert!(is_left_by_crash(&zeroed(12, end), 500));
        assert!(is_left_by_crash(&zeroed(0, 12), 500));
        assert!(!is_left_by_crash(&zeroed(13, end), 500));
        assert!(!is_left_by_crash(&zeroed(0, 11), 500));
        // The newline alone.
        assert!(!is_left_by_crash(&zeroed(end - 1, end), 100));
    }
}
