//! The TCP segment in a captured packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Ethernet addresses come before the type of a frame.
const ETHERNET_TYPE: usize = 12;

/// Types of frames that carry one more tag: 802.1Q and 802.1ad.
const VLAN_TYPES: [u16; 2] = [0x8100, 0x88a8];

/// More tags than any network stacks.
const MOST_TAGS: usize = 4;

/// More extension headers than any storage packet has.
const MOST_EXTENSIONS: usize = 8;

const TCP: u8 = 6;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;

/// A TCP segment, as far as it was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSegment<'a> {
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
    /// The number of the first byte, or of SYN.
    pub sequence: u32,
    /// SYN: the connection begins.
    pub begins: bool,
    /// FIN: the sender has said all.
    pub ends: bool,
    /// RST: the connection is gone.
    pub resets: bool,
    /// The captured part of the payload.
    pub payload: &'a [u8],
    /// The length of the payload on the wire, captured or not.
    pub length: u32,
}

impl<'a> TcpSegment<'a> {
    /// Finds the segment in an Ethernet frame. `wire_length` is the frame's length before the capture cut it.
    /// `None`: the frame carries no TCP, or a fragment, or its headers were cut.
    #[must_use]
    pub fn parse(frame: &'a [u8], wire_length: usize) -> Option<Self> {
        let mut at = ETHERNET_TYPE;
        let mut kind = number(frame, at)?;
        for _ in 0..MOST_TAGS {
            if !VLAN_TYPES.contains(&kind) {
                break;
            }
            at += 4;
            kind = number(frame, at)?;
        }
        let packet = Packet { frame, wire_length, at: at + 2 };
        match kind {
            0x0800 => packet.ipv4(),
            0x86dd => packet.ipv6(),
            _ => None,
        }
    }
}

/// A packet at the beginning of its IP header.
struct Packet<'a> {
    frame: &'a [u8],
    wire_length: usize,
    at: usize,
}

impl<'a> Packet<'a> {
    fn ipv4(&self) -> Option<TcpSegment<'a>> {
        let header = self.frame.get(self.at..self.at + 20)?;
        let header_length = usize::from(header[0] & 0x0f) * 4;
        let is_fragment = number(header, 6)? & 0x3fff != 0;
        if header[0] >> 4 != 4 || header_length < 20 || header[9] != TCP || is_fragment {
            return None;
        }
        let end = self.end(usize::from(number(header, 2)?))?;
        let address = |at: usize| Some(IpAddr::V4(Ipv4Addr::from(bytes::<4>(header, at)?)));
        self.tcp(self.at + header_length, end, address(12)?, address(16)?)
    }

    fn ipv6(&self) -> Option<TcpSegment<'a>> {
        const EXTENSIONS: [u8; 3] = [0, 43, 60];
        let header = self.frame.get(self.at..self.at + 40)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let end = match usize::from(number(header, 4)?) {
            0 => self.end(0)?,
            payload => self.end(40 + payload)?,
        };
        let (mut next, mut at) = (header[6], self.at + 40);
        for _ in 0..MOST_EXTENSIONS {
            if !EXTENSIONS.contains(&next) {
                break;
            }
            let extension = self.frame.get(at..at + 2)?;
            next = extension[0];
            at += (usize::from(extension[1]) + 1) * 8;
        }
        let address = |at: usize| Some(IpAddr::V6(Ipv6Addr::from(bytes::<16>(header, at)?)));
        if next == TCP { self.tcp(at, end, address(8)?, address(24)?) } else { None }
    }

    /// The end of the packet in the frame on the wire. Short frames are padded, so that the header says it.
    /// Beyond 64 KiB the header says zero, and the frame's own length counts.
    fn end(&self, ip_length: usize) -> Option<usize> {
        let end = if ip_length == 0 { self.wire_length } else { self.at + ip_length };
        (end <= self.wire_length).then_some(end)
    }

    fn tcp(&self, at: usize, end: usize, source: IpAddr, destination: IpAddr) -> Option<TcpSegment<'a>> {
        let header = self.frame.get(at..at + 20)?;
        let begin = at + usize::from(header[12] >> 4) * 4;
        if begin < at + 20 || begin > end {
            return None;
        }
        let captured = end.min(self.frame.len());
        let payload = self.frame.get(begin..captured).unwrap_or_default();
        let address = |ip, port| SocketAddr::new(ip, port);
        Some(TcpSegment {
            source: address(source, number(header, 0)?),
            destination: address(destination, number(header, 2)?),
            sequence: u32::from_be_bytes(bytes(header, 4)?),
            begins: header[13] & SYN != 0,
            ends: header[13] & FIN != 0,
            resets: header[13] & RST != 0,
            payload,
            length: u32::try_from(end - begin).ok()?,
        })
    }
}

fn number(bytes_of: &[u8], at: usize) -> Option<u16> {
    bytes(bytes_of, at).map(u16::from_be_bytes)
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..at + N)?.try_into().ok()
}

/// Frames as they are on a wire, for tests and fuzz targets.
#[cfg(any(test, fuzzing))]
pub(crate) mod build {
    use super::*;

    /// Flags of a segment that only carries data.
    pub(crate) const DATA: u8 = 0x10;
    /// Flags of a segment that begins a connection.
    pub(crate) const BEGIN: u8 = SYN;
    /// Flags of a segment that ends a connection.
    pub(crate) const RESET: u8 = RST;

    /// Returns a frame with a payload, with as many VLAN tags.
    pub(crate) fn frame(
        (source, destination): (SocketAddr, SocketAddr),
        sequence: u32,
        flags: u8,
        payload: &[u8],
        tags: usize,
    ) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET_TYPE];
        for _ in 0..tags {
            frame.extend_from_slice(&[0x81, 0, 0, 7]);
        }
        let length = 20 + payload.len();
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                frame.extend_from_slice(&[0x08, 0, 0x45, 0]);
                // As in the kernel: too long for the field is zero.
                frame.extend_from_slice(&u16::try_from(20 + length).unwrap_or(0).to_be_bytes());
                frame.extend_from_slice(&[0, 0, 0x40, 0, 64, TCP, 0, 0]);
                frame.extend_from_slice(&from.octets());
                frame.extend_from_slice(&to.octets());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend_from_slice(&u16::try_from(length).unwrap_or(0).to_be_bytes());
                frame.extend_from_slice(&[TCP, 64]);
                frame.extend_from_slice(&from.octets());
                frame.extend_from_slice(&to.octets());
            }
            _ => panic!("one family"),
        }
        frame.extend_from_slice(&source.port().to_be_bytes());
        frame.extend_from_slice(&destination.port().to_be_bytes());
        frame.extend_from_slice(&sequence.to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        frame.extend_from_slice(payload);
        frame
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::build::{BEGIN, DATA, frame};
    use super::*;

    fn flow(from: &str, to: &str) -> (SocketAddr, SocketAddr) {
        (from.parse().unwrap(), to.parse().unwrap())
    }

    #[test]
    fn a_segment_is_found_behind_tags_and_in_both_families() {
        for (from, to) in [("10.0.0.11:40000", "10.0.0.1:3260"), ("[fd00::11]:40000", "[fd00::1]:3260")] {
            for tags in 0..=2 {
                let built = frame(flow(from, to), 77, BEGIN, b"login", tags);
                let segment = TcpSegment::parse(&built, built.len()).unwrap();
                assert_eq!((segment.source, segment.destination), flow(from, to));
                assert_eq!((segment.sequence, segment.begins, segment.length), (77, true, 5));
                assert_eq!(segment.payload, b"login");
            }
        }
    }

    #[test]
    fn padding_is_no_payload_and_a_cut_frame_keeps_its_length() {
        let flow = flow("10.0.0.11:40000", "10.0.0.1:3260");
        let mut padded = frame(flow, 1, DATA, b"", 0);
        padded.resize(60, 0);
        assert_eq!(TcpSegment::parse(&padded, 60).unwrap().length, 0);
        let whole = frame(flow, 1, DATA, &[7; 1000], 0);
        let cut = TcpSegment::parse(&whole[..100], whole.len()).unwrap();
        assert_eq!((cut.payload.len(), cut.length), (46, 1000));
        let large = frame(flow, 1, DATA, &[7; 100_000], 0);
        assert_eq!(TcpSegment::parse(&large[..128], large.len()).unwrap().length, 100_000);
    }

    #[test]
    fn fragments_are_no_segments() {
        let mut fragment = frame(flow("10.0.0.11:40000", "10.0.0.1:3260"), 1, DATA, b"x", 0);
        fragment[20] = 0x20;
        assert_eq!(TcpSegment::parse(&fragment, fragment.len()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_segment_or_none(
            bytes in proptest::collection::vec(any::<u8>(), 0..120),
            kind in prop_oneof![Just([8, 0]), Just([0x86, 0xdd]), Just([0x81, 0])],
            more in 0usize..100,
        ) {
            let mut bytes = bytes;
            if let Some(place) = bytes.get_mut(ETHERNET_TYPE..ETHERNET_TYPE + 2) {
                place.copy_from_slice(&kind);
            }
            if let Some(segment) = TcpSegment::parse(&bytes, bytes.len() + more) {
                prop_assert!(segment.payload.len() <= segment.length as usize);
            }
        }
    }
}
