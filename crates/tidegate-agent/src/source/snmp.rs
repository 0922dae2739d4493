//! SNMP GET of one object, version 2c (RFC 3416), in the basic encoding rules of ASN.1.
//!
//! Version 2c authenticates nothing: a host on the way can read the community and forge an answer. Only the
//! number of the question, which is random, keeps others out.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::str::FromStr;
use std::time::{Duration, Instant as Clock};

use thiserror::Error;

/// The longest answer. Chosen: one object in an Ethernet frame.
const LONGEST_ANSWER: usize = 1_500;

/// The longest object identifier (RFC 3416, 2.2).
const MOST_PARTS: usize = 128;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const NULL: u8 = 0x05;
const OBJECT: u8 = 0x06;
const COUNTER32: u8 = 0x41;
const GAUGE32: u8 = 0x42;
const TIME_TICKS: u8 = 0x43;
const OPAQUE: u8 = 0x44;
const COUNTER64: u8 = 0x46;
const NO_OBJECT: u8 = 0x80;
const NO_INSTANCE: u8 = 0x81;
const END_OF_VIEW: u8 = 0x82;
const GET: u8 = 0xa0;
const RESPONSE: u8 = 0xa2;

/// A float, or a double, in an opaque value, as net-snmp writes them.
const OPAQUE_FLOAT: [u8; 3] = [0x9f, 0x78, 4];
const OPAQUE_DOUBLE: [u8; 3] = [0x9f, 0x79, 8];

/// Version 2c.
const VERSION: i64 = 1;

/// A community of SNMP. It is a password, and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SnmpCommunity(String);

impl SnmpCommunity {
    pub(super) const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the text.
    fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for SnmpCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SnmpCommunity(…)")
    }
}

/// The name of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectId(Vec<u32>);

/// A text that is no name of an object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no object identifier: write numbers, such as 1.3.6.1.4.1.8072.1.0")]
pub struct ObjectIdError(String);

impl FromStr for ObjectId {
    type Err = ObjectIdError;

    fn from_str(text: &str) -> Result<Self, ObjectIdError> {
        let wrong = || ObjectIdError(text.chars().take(64).collect());
        let parts = text.strip_prefix('.').unwrap_or(text).split('.').map(str::parse::<u32>);
        let parts: Vec<_> = parts.collect::<Result<_, _>>().map_err(|_| wrong())?;
        // The first two are one byte.
        let is_encodable = matches!(parts[..], [0..=1, 0..=39, ..] | [2, 0..=39, ..]);
        match is_encodable && (2..=MOST_PARTS).contains(&parts.len()) {
            true => Ok(Self(parts)),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

/// The reasons why there is no number.
#[derive(Debug, Error)]
pub(super) enum SnmpError {
    /// The network.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// No answer came.
    #[error("no answer within {0:?}: is the community right, and does the agent let this host in?")]
    Silent(Duration),
    /// The agent refuses.
    #[error("the agent answers with error {0}")]
    Refused(i64),
    /// There is no such object.
    #[error("the agent has no object {0}")]
    NoObject(ObjectId),
    /// The value is no number.
    #[error("the object's value is no number")]
    NoNumber,
}

/// The bytes of an answer that are damaged, or of something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Gets the value of an object. `number` is that of the question.
pub(super) fn get(
    address: SocketAddr,
    community: &SnmpCommunity,
    object: &ObjectId,
    number: i32,
    timeout: Duration,
) -> Result<f64, SnmpError> {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    // Only answers from there are heard.
    socket.connect(address)?;
    socket.send(&question(community.as_bytes(), object, number))?;
    let until = Clock::now() + timeout;
    let mut buffer = [0; LONGEST_ANSWER];
    loop {
        let left = until.saturating_duration_since(Clock::now());
        if left.is_zero() {
            return Err(SnmpError::Silent(timeout));
        }
        socket.set_read_timeout(Some(left))?;
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(SnmpError::Silent(timeout));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        // What is no answer to this question is not heard: a late one, or a forgery.
        if let Ok(answer) = answer(&buffer[..length], object, number) {
            return answer;
        }
    }
}

/// Returns the bytes of a question.
fn question(community: &[u8], object: &ObjectId, number: i32) -> Vec<u8> {
    let binding = tagged(SEQUENCE, &[tagged(OBJECT, &[encoded(object)]), tagged(NULL, &[])]);
    let request = tagged(GET, &[integer(number), integer(0), integer(0), tagged(SEQUENCE, &[binding])]);
    tagged(SEQUENCE, &[integer(VERSION as i32), tagged(OCTETS, &[community.to_vec()]), request])
}

fn encoded(object: &ObjectId) -> Vec<u8> {
    let mut bytes = vec![(40 * object.0[0] + object.0[1]) as u8];
    for part in &object.0[2..] {
        let groups = (0..5).rev().map(|place| (part >> (7 * place)) & 0x7f);
        let groups: Vec<_> = groups.skip_while(|group| *group == 0).collect();
        let (last, first) = groups.split_last().unwrap_or((&0, &[]));
        bytes.extend(first.iter().map(|group| *group as u8 | 0x80));
        bytes.push(*last as u8);
    }
    bytes
}

fn integer(number: i32) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    // As few bytes as keep the sign.
    let is_redundant = |at: &usize| {
        let sign = if bytes[at + 1] & 0x80 == 0 { 0 } else { 0xff };
        bytes[*at] == sign
    };
    let from = (0..3).take_while(is_redundant).count();
    tagged(INTEGER, &[bytes[from..].to_vec()])
}

fn tagged(tag: u8, content: &[Vec<u8>]) -> Vec<u8> {
    let content = content.concat();
    let length = content.len();
    let mut bytes = vec![tag];
    match u8::try_from(length) {
        Ok(short @ 0..=0x7f) => bytes.push(short),
        _ => bytes.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    bytes.extend(content);
    bytes
}

/// Reads an answer. The outer error: it is no answer to this question.
fn answer(bytes: &[u8], object: &ObjectId, number: i32) -> Result<Result<f64, SnmpError>, Malformed> {
    let mut whole = Reader(bytes);
    let mut message = Reader(whole.expect(SEQUENCE)?);
    let version = signed(message.expect(INTEGER)?)?;
    message.expect(OCTETS)?;
    let mut response = Reader(message.expect(RESPONSE)?);
    let answers = signed(response.expect(INTEGER)?)?;
    if version != VERSION || answers != i64::from(number) {
        return Err(Malformed);
    }
    let status = signed(response.expect(INTEGER)?)?;
    response.expect(INTEGER)?;
    if status != 0 {
        return Ok(Err(SnmpError::Refused(status)));
    }
    let mut bindings = Reader(response.expect(SEQUENCE)?);
    let mut binding = Reader(bindings.expect(SEQUENCE)?);
    if binding.expect(OBJECT)? != encoded(object) {
        return Err(Malformed);
    }
    let (tag, value) = binding.next()?;
    Ok(match tag {
        NO_OBJECT | NO_INSTANCE | END_OF_VIEW => Err(SnmpError::NoObject(object.clone())),
        INTEGER => Ok(signed(value)? as f64),
        COUNTER32 | GAUGE32 | TIME_TICKS | COUNTER64 => Ok(unsigned(value)? as f64),
        OCTETS => text(value),
        OPAQUE => opaque(value),
        _ => Err(SnmpError::NoNumber),
    })
}

fn text(bytes: &[u8]) -> Result<f64, SnmpError> {
    let text = std::str::from_utf8(bytes).map_err(|_| SnmpError::NoNumber)?;
    text.trim().parse().map_err(|_| SnmpError::NoNumber)
}

fn opaque(bytes: &[u8]) -> Result<f64, SnmpError> {
    let (kind, value) = bytes.split_at_checked(3).ok_or(SnmpError::NoNumber)?;
    if let (true, Ok(value)) = (kind == OPAQUE_FLOAT, value.try_into()) {
        return Ok(f32::from_be_bytes(value).into());
    }
    match value.try_into() {
        Ok(value) if kind == OPAQUE_DOUBLE => Ok(f64::from_be_bytes(value)),
        _ => Err(SnmpError::NoNumber),
    }
}

fn signed(bytes: &[u8]) -> Result<i64, Malformed> {
    if bytes.is_empty() || bytes.len() > 8 {
        return Err(Malformed);
    }
    let first = if bytes[0] & 0x80 == 0 { 0 } else { -1 };
    Ok(bytes.iter().fold(first, |number, byte| (number << 8) | i64::from(*byte)))
}

/// A number of 64 bits may have a ninth byte, a zero that keeps it from being negative.
fn unsigned(bytes: &[u8]) -> Result<u64, Malformed> {
    let bytes = match bytes {
        [0, rest @ ..] if rest.len() == 8 => rest,
        bytes => bytes,
    };
    if bytes.is_empty() || bytes.len() > 8 {
        return Err(Malformed);
    }
    Ok(bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}

/// A reader of tags, lengths and contents.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(u8, &'a [u8]), Malformed> {
        let [tag, length, rest @ ..] = self.0 else { return Err(Malformed) };
        let (length, rest) = match length {
            0..=0x7f => (usize::from(*length), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(length - 0x80)).ok_or(Malformed)?;
                (digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit)), rest)
            }
            _ => return Err(Malformed),
        };
        let (content, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok((*tag, content))
    }

    fn expect(&mut self, expected: u8) -> Result<&'a [u8], Malformed> {
        match self.next()? {
            (tag, content) if tag == expected => Ok(content),
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object() -> ObjectId {
        "1.3.6.1.4.1.8072.9999.300000.0".parse().unwrap()
    }

    /// An answer as agents write it.
    fn answered(number: i32, status: i32, tag: u8, value: &[u8]) -> Vec<u8> {
        let name = tagged(OBJECT, &[encoded(&object())]);
        let binding = tagged(SEQUENCE, &[name, tagged(tag, &[value.to_vec()])]);
        let response =
            tagged(RESPONSE, &[integer(number), integer(status), integer(0), tagged(SEQUENCE, &[binding])]);
        tagged(SEQUENCE, &[integer(1), tagged(OCTETS, &[b"public".to_vec()]), response])
    }

    fn value(tag: u8, bytes: &[u8]) -> Result<f64, String> {
        answer(&answered(7, 0, tag, bytes), &object(), 7).unwrap().map_err(|error| error.to_string())
    }

    #[test]
    fn a_question_is_as_the_standard_has_it() {
        let bytes = question(b"public", &"1.3.6.1.2.1.1.3.0".parse().unwrap(), 0x0102_0304);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = concat!(
            "3029",
            "020101",
            "04067075626c6963",
            "a01c",
            "020401020304",
            "020100",
            "020100",
            "300e",
            "300c",
            "06082b06010201010300",
            "0500"
        );
        assert_eq!(hex, expected);
        for (number, bytes) in
            [(0, &[0][..]), (127, &[127]), (128, &[0, 128]), (-1, &[255]), (i32::MAX, &[127, 255, 255, 255])]
        {
            assert_eq!(integer(number)[2..], *bytes, "{number}");
            assert_eq!(signed(bytes), Ok(number.into()));
        }
    }

    #[test]
    fn numbers_of_every_type_are_read() {
        assert_eq!(value(INTEGER, &[0xff]), Ok(-1.0));
        assert_eq!(value(GAUGE32, &[0x00, 0x80, 0x00]), Ok(32_768.0));
        assert_eq!(
            value(COUNTER64, &[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            Ok(u64::MAX as f64)
        );
        assert_eq!(value(OCTETS, b" 12.5\n"), Ok(12.5));
        let float = [&OPAQUE_FLOAT[..], &1.5_f32.to_be_bytes()].concat();
        assert_eq!(value(OPAQUE, &float), Ok(1.5));
        let double = [&OPAQUE_DOUBLE[..], &0.25_f64.to_be_bytes()].concat();
        assert_eq!(value(OPAQUE, &double), Ok(0.25));
        assert!(value(OCTETS, b"busy").unwrap_err().contains("no number"));
        assert!(value(NO_INSTANCE, &[]).unwrap_err().contains("no object 1.3.6.1.4.1.8072.9999.300000.0"));
    }

    #[test]
    fn an_answer_to_another_question_is_not_heard() {
        let bytes = answered(7, 0, INTEGER, &[5]);
        assert!(answer(&bytes, &object(), 8).is_err());
        assert!(answer(&bytes, &"1.3.6.1.4.1.8072.9999.300001.0".parse().unwrap(), 7).is_err());
        assert!(matches!(answer(&answered(7, 5, NULL, &[]), &object(), 7), Ok(Err(SnmpError::Refused(5)))));
    }

    #[test]
    fn names_of_objects_are_numbers() {
        for text in ["", "1", "sysUpTime.0", "1.3.", "3.1.2", "1.40.1", "1.3.6.4294967296"] {
            let error = text.parse::<ObjectId>().unwrap_err().to_string();
            assert!(error.contains("no object identifier"), "{text}: {error}");
        }
        assert_eq!(".1.3.6".parse::<ObjectId>().unwrap().to_string(), "1.3.6");
    }

    proptest! {
        #[test]
        fn any_bytes_are_borne(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..80) {
            let _ = answer(&bytes, &object(), 7);
            let whole = answered(7, 0, INTEGER, &[5]);
            prop_assert!(answer(&whole[..cut.min(whole.len() - 1)], &object(), 7).is_err());
        }

        #[test]
        fn a_part_of_a_name_is_encoded_in_groups_of_seven_bits(part: u32) {
            let bytes = encoded(&ObjectId(vec![1, 3, part]));
            let add = |number: u64, byte: &u8| (number << 7) | u64::from(byte & 0x7f);
            let decoded = bytes[1..].iter().fold(0_u64, add);
            prop_assert_eq!(decoded, u64::from(part));
            prop_assert!(bytes[1..bytes.len() - 1].iter().all(|byte| byte & 0x80 != 0));
        }
    }
}
