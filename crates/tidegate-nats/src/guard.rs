//! The bounds of what a server sends: control lines, and messages with their headers.
//!
//! Lines and lengths are read as the client library reads them, so that the two never differ about where a
//! message ends.

use thiserror::Error;

/// The longest control line, in bytes. A server names the other servers of its site in one.
pub(crate) const LONGEST_LINE: usize = 64 << 10;

/// The largest message that is passed on, headers included, in bytes. The largest of ours is a policy of 64 KiB
/// in base64.
const LARGEST_MESSAGE: usize = 128 << 10;

/// The longest headers of a message that is passed on, in bytes. In memory they take many times as much.
const LONGEST_HEADERS: usize = 8 << 10;

/// The largest message that any server takes from its clients (`max_payload`), in bytes. Others are left out.
const LARGEST_OF_SERVERS: usize = 64 << 20;

/// The reason why a server is not listened to any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolViolation {
    /// A line has no end.
    #[error("it sent a line of more than {LONGEST_LINE} bytes")]
    LongLine,
    /// A line is none of the protocol of NATS.
    #[error("it sent a line that is not of the protocol of NATS")]
    UnknownLine,
    /// A message is larger than a server of NATS allows.
    #[error("it announced a message of {0} bytes, and no server allows more than {LARGEST_OF_SERVERS}")]
    LargeMessage(usize),
    /// Something was sent in plain text before the encryption that the server asks for.
    #[error("it sent plain text where encryption had to begin")]
    BeforeEncryption,
}

/// Reads the bytes of a server, and picks those that may pass.
#[derive(Debug, Default)]
pub(crate) struct ServerGuard {
    /// A line whose end has not come.
    line: Vec<u8>,
    /// The bytes of a message that have not come, with the newline behind it.
    to_come: usize,
    /// True if the message is too large to be passed on.
    is_left_out: bool,
    /// The number of messages that were left out.
    pub(crate) left_out: u64,
    /// The server's latest introduction, if it has not been taken.
    pub(crate) introduction: Option<Vec<u8>>,
}

/// The meaning of a control line.
enum ControlLine {
    /// Nothing follows.
    Alone,
    /// A message follows, with so many bytes of headers.
    Message { headers: usize, total: usize },
}

impl ServerGuard {
    /// Appends to `passed` what may pass of the next bytes.
    pub(crate) fn admit(&mut self, mut bytes: &[u8], passed: &mut Vec<u8>) -> Result<(), ProtocolViolation> {
        while !bytes.is_empty() {
            if self.to_come > 0 {
                let (body, rest) = bytes.split_at(self.to_come.min(bytes.len()));
                if !self.is_left_out {
                    passed.extend_from_slice(body);
                }
                self.to_come -= body.len();
                bytes = rest;
                continue;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |last| last + 1);
            if self.line.len() + end > LONGEST_LINE {
                return Err(ProtocolViolation::LongLine);
            }
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end..];
            // A newline alone is a part of the line.
            let Some(line) = self.line.strip_suffix(b"\r\n") else { continue };
            self.is_left_out = false;
            if let ControlLine::Message { headers, total } = read(line)? {
                self.to_come = total + 2;
                self.is_left_out = total > LARGEST_MESSAGE || headers > LONGEST_HEADERS;
                self.left_out += u64::from(self.is_left_out);
            }
            if let Some(introduction) = line.strip_prefix(b"INFO ") {
                self.introduction = Some(introduction.to_vec());
            }
            if !self.is_left_out {
                passed.extend_from_slice(&self.line);
            }
            self.line.clear();
        }
        Ok(())
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn check_bounds(&self) {
        assert!(self.line.len() <= LONGEST_LINE && self.line.capacity() <= 2 * LONGEST_LINE);
        assert!(self.to_come <= LARGEST_OF_SERVERS + 2);
    }
}

fn read(line: &[u8]) -> Result<ControlLine, ProtocolViolation> {
    let unknown = ProtocolViolation::UnknownLine;
    if [&b"+OK"[..], b"PING", b"PONG", b"-ERR ", b"INFO "].iter().any(|verb| line.starts_with(verb)) {
        return Ok(ControlLine::Alone);
    }
    let words = |line| Some(str::from_utf8(line).ok()?.split(' ').filter(|word| !word.is_empty()).collect());
    let words: Vec<&str> = words(line).ok_or(unknown)?;
    let (headers, total) = match *words.as_slice() {
        // Subject, subscription, and perhaps a subject for the answer.
        ["MSG", _, _, total] | ["MSG", _, _, _, total] => ("0", total),
        ["HMSG", _, _, headers, total] | ["HMSG", _, _, _, headers, total] => (headers, total),
        _ => return Err(unknown),
    };
    let (headers, total): (usize, usize) = headers.parse().ok().zip(total.parse().ok()).ok_or(unknown)?;
    match () {
        () if total > LARGEST_OF_SERVERS => Err(ProtocolViolation::LargeMessage(total)),
        () if headers > total => Err(unknown),
        () => Ok(ControlLine::Message { headers, total }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz::admitted;

    fn message(subject: &str, length: usize) -> Vec<u8> {
        [format!("MSG {subject} 1 {length}\r\n").as_bytes(), &vec![b'\n'; length], b"\r\n"].concat()
    }

    #[test]
    fn messages_that_are_too_large_are_left_out_and_the_others_pass() {
        let small =
            [&b"PING\r\n"[..], &message("a", 0), b"HMSG b 1 r 12 17\r\nNATS/1.0\r\n\r\nhello\r\n"].concat();
        let headers =
            format!("HMSG c 1 {0} {0}\r\n{1}\r\n", LONGEST_HEADERS + 1, "h".repeat(LONGEST_HEADERS + 1));
        let large = [&message("d", LARGEST_MESSAGE + 1)[..], headers.as_bytes()].concat();
        let all = [&small[..], &large, &small, &message("e", LARGEST_MESSAGE)].concat();
        let expected = [&small[..], &small, &message("e", LARGEST_MESSAGE)].concat();
        for piece in [1, 7, 4096, usize::MAX] {
            assert!(admitted(&all, piece).unwrap() == expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_line_without_an_end_and_an_absurd_length_end_the_connection() {
        use ProtocolViolation::{LargeMessage, LongLine, UnknownLine};
        let cases = [
            (vec![b'x'; LONGEST_LINE + 1], LongLine),
            ([b"INFO ", &b"\n".repeat(LONGEST_LINE)[..]].concat(), LongLine),
            (b"MSG a 1 67108865\r\n".to_vec(), LargeMessage(67_108_865)),
            (b"MSG a 1 18446744073709551615\r\n".to_vec(), LargeMessage(usize::MAX)),
            (b"MSG a 1 18446744073709551616\r\n".to_vec(), UnknownLine),
            (b"MSG a 1 -1\r\n".to_vec(), UnknownLine),
            (b"HMSG a 1 12 11\r\n".to_vec(), UnknownLine),
            (b"-ERR\r\n".to_vec(), UnknownLine),
            (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), UnknownLine),
            (b"\r\n".to_vec(), UnknownLine),
        ];
        for (bytes, expected) in cases {
            for piece in [1, 4096, usize::MAX] {
                assert_eq!(admitted(&bytes, piece), Err(expected));
            }
        }
    }

    proptest! {
        #[test]
        fn any_pieces_of_any_bytes_pass_alike(bytes in "(MSG a 1 [0-9]{1,2}|PING|HMSG a 1 1 [0-9]|x|\r\n|\n){0,20}", piece in 1usize..9) {
            prop_assert_eq!(admitted(bytes.as_bytes(), piece), admitted(bytes.as_bytes(), usize::MAX));
        }
    }
}
