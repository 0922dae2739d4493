//! Requests to the kernel over netlink (RFC 3549): to its traffic control, and to its tables of sockets.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with, sockopt,
};

pub(crate) const REPLACE: u16 = 0x100;
pub(crate) const EXCLUSIVE: u16 = 0x200;
pub(crate) const CREATE: u16 = 0x400;

const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const DUMP: u16 = 0x300;

/// Types of messages that netlink itself has.
const ERROR: u16 = 2;
const DONE: u16 = 3;

const HEADER: usize = 16;

/// The kernel answers at once. Without an answer something is very wrong, and no caller may wait for ever.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most bytes that the kernel puts into one datagram of a dump.
const LARGEST_DATAGRAM: usize = 64 * 1024;

/// A connection to the kernel. One request at a time.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Connects to the part of the kernel that answers a protocol. `None` is routing, with traffic control.
    pub(crate) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; LARGEST_DATAGRAM] })
    }

    /// Asks for a change, and waits until it is made or refused.
    pub(crate) fn change(&mut self, kind: u16, flags: u16, body: &NetlinkBody) -> io::Result<()> {
        self.exchange(kind, REQUEST | ACKNOWLEDGE | flags, body, |_| {})
    }

    /// Asks for one thing, which `answer` is given.
    pub(crate) fn get(&mut self, kind: u16, body: &NetlinkBody, answer: impl FnMut(&[u8])) -> io::Result<()> {
        self.exchange(kind, REQUEST | ACKNOWLEDGE, body, answer)
    }

    /// Asks for everything of a kind; `each` is given what there is, one after the other.
    pub(crate) fn dump(&mut self, kind: u16, body: &NetlinkBody, each: impl FnMut(&[u8])) -> io::Result<()> {
        self.exchange(kind, REQUEST | DUMP, body, each)
    }

    fn exchange(
        &mut self,
        kind: u16,
        flags: u16,
        body: &NetlinkBody,
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(HEADER + body.0.len()).map_err(|_| malformed("a request too long"))?;
        let mut request = Vec::with_capacity(HEADER + body.0.len());
        request.extend_from_slice(&length.to_ne_bytes());
        request.extend_from_slice(&kind.to_ne_bytes());
        request.extend_from_slice(&flags.to_ne_bytes());
        request.extend_from_slice(&self.sequence.to_ne_bytes());
        request.extend_from_slice(&0_u32.to_ne_bytes());
        request.extend_from_slice(&body.0);
        send(&self.socket, &request, SendFlags::empty())?;
        loop {
            let (length, _) = recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty())?;
            let mut rest = &self.buffer[..length];
            while !rest.is_empty() {
                let message = Message::first(rest)?;
                rest = &rest[message.padded.min(rest.len())..];
                // What an earlier request was still owed when it ran out of patience.
                if message.sequence != self.sequence {
                    continue;
                }
                match message.kind {
                    ERROR => {
                        let code = i32::from_ne_bytes(array(message.payload, 0)?);
                        return if code == 0 {
                            Ok(())
                        } else {
                            Err(io::Error::from_raw_os_error(code.wrapping_neg()))
                        };
                    }
                    DONE => return Ok(()),
                    _ => each(message.payload),
                }
            }
        }
    }
}

struct Message<'a> {
    kind: u16,
    sequence: u32,
    payload: &'a [u8],
    padded: usize,
}

impl<'a> Message<'a> {
    fn first(bytes: &'a [u8]) -> io::Result<Self> {
        let length = u32::from_ne_bytes(array(bytes, 0)?) as usize;
        let payload = bytes.get(HEADER..length).ok_or_else(|| malformed("a message cut short"))?;
        Ok(Self {
            kind: u16::from_ne_bytes(array(bytes, 4)?),
            sequence: u32::from_ne_bytes(array(bytes, 8)?),
            payload,
            padded: length.next_multiple_of(4),
        })
    }
}

/// The bytes of a number in a message.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> io::Result<[u8; N]> {
    let part = bytes.get(at..at + N).ok_or_else(|| malformed("a message cut short"))?;
    Ok(part.try_into().expect("a slice of N bytes is an array of N bytes"))
}

fn malformed(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("netlink: {problem}"))
}

/// A request's content: a fixed header, then attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetlinkBody(Vec<u8>);

impl NetlinkBody {
    pub(crate) fn new(header: &[u8]) -> Self {
        Self(header.to_vec())
    }

    /// Adds an attribute: length and type, two bytes each, the value, and padding to four bytes.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(mem::size_of::<u32>() + value.len()).expect("attributes are short");
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The attributes in a message or in an attribute; what is cut short ends them.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// Two flags of the kernel's share the field of the type.
    const KIND: u16 = 0x3fff;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(array(bytes, 0).ok()?));
        let kind = u16::from_ne_bytes(array(bytes, 2).ok()?) & KIND;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_are_padded_and_read_back() {
        let body = NetlinkBody::new(&[]).with(1, b"htb\0").with(7, &[1, 2, 3, 4, 5]).with(9, &[]);
        assert_eq!(body.as_bytes().len(), 8 + 12 + 4);
        let read: Vec<_> = attributes(body.as_bytes()).collect();
        assert_eq!(read, [(1, &b"htb\0"[..]), (7, &[1, 2, 3, 4, 5]), (9, &[])]);
    }

    #[test]
    fn the_kernel_answers() {
        // RTM_GETLINK: the loopback interface is always there.
        let mut count = 0;
        Netlink::open(None).unwrap().dump(18, &NetlinkBody::new(&[0; 16]), |_| count += 1).unwrap();
        assert!(count > 0);
    }

    #[test]
    fn a_refusal_is_the_kernels_error() {
        // RTM_GETLINK of an interface that cannot exist.
        let mut header = [0; 16];
        header[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        let refused = Netlink::open(None).unwrap().get(18, &NetlinkBody::new(&header), |_| {});
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(rustix::io::Errno::NODEV.raw_os_error()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_some_attributes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let total: usize = attributes(&bytes).map(|(_, value)| value.len() + 4).sum();
            prop_assert!(total <= bytes.len());
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(message) = Message::first(&bytes) {
                prop_assert!(message.payload.len() + HEADER <= bytes.len());
                prop_assert!(message.padded >= HEADER);
            }
        }
    }
}
