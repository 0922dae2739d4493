//! A client whose replies come in chunks, and that says exactly what a test wants.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use tidegate_nbd::handshake::{ClientEvent, ClientHandshake};
use tidegate_nbd::transmission::{
    MessageStyle, NbdCommand, PendingReply, ReplyEvent, ReplyParser, WireRequest,
};
use tidegate_nbd::{AllocationExtent, CommandFlags, Errno, ExportName, SessionTerms};

use tidegate_testing::nbd::connect;

/// A connection in the transmission phase.
pub(crate) struct Chunked {
    pub(crate) stream: UnixStream,
    pub(crate) terms: SessionTerms,
    parser: ReplyParser,
    cookie: u64,
}

/// The whole reply to one request.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct WholeReply {
    pub(crate) data: Vec<u8>,
    /// Holes of a read: offset and length.
    pub(crate) holes: Vec<(u64, u32)>,
    pub(crate) extents: Vec<AllocationExtent>,
    pub(crate) failed: Option<Errno>,
}

impl Chunked {
    pub(crate) fn open(socket: &Path, export: &str, style: MessageStyle) -> Self {
        let mut stream = connect(socket);
        let mut client = ClientHandshake::open(ExportName::new(export).unwrap(), style).with_allocation();
        let mut byte = [0];
        loop {
            stream.write_all(client.output()).unwrap();
            client.sent(client.output().len());
            // One byte at a time: nothing of the transmission phase is read too early.
            stream.read_exact(&mut byte).unwrap();
            match client.receive(&byte).unwrap() {
                (1, Some(ClientEvent::Opened(opened))) => {
                    let (terms, parser) = (opened.terms, ReplyParser::new(opened.terms.style));
                    assert_eq!(terms.style, style);
                    return Self { stream, terms, parser, cookie: 0 };
                }
                (_, None) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn ask(&mut self, command: NbdCommand, offset: u64, length: u64) -> WholeReply {
        self.ask_with(command, CommandFlags::NONE, offset, length)
    }

    pub(crate) fn ask_with(
        &mut self,
        command: NbdCommand,
        flags: CommandFlags,
        offset: u64,
        length: u64,
    ) -> WholeReply {
        self.cookie += 1;
        let request = WireRequest::new(command, flags, self.cookie, offset, length);
        self.send(&request, &[])
    }

    /// Sends a request with its payload, and waits for the reply.
    pub(crate) fn send(&mut self, request: &WireRequest, payload: &[u8]) -> WholeReply {
        self.stream.write_all(&[&request.encode(self.terms.style)[..], payload].concat()).unwrap();
        let WireRequest { command, cookie, offset, length, .. } = *request;
        let pending = match (command, self.terms.allocation) {
            (NbdCommand::Read, _) => PendingReply::Read { offset, length: length as u32 },
            (NbdCommand::BlockStatus, Some(context)) => PendingReply::BlockStatus { offset, context },
            _ => PendingReply::Other { offset },
        };
        let mut reply = WholeReply::default();
        let mut buffer = [0; 65_536];
        loop {
            let count = self.stream.read(&mut buffer).unwrap_or_else(|error| panic!("{request:?}: {error}"));
            assert!(count > 0, "the connection ends");
            let mut rest = &buffer[..count];
            loop {
                let event = self.parser.receive(rest, |asked| (asked == cookie).then_some(pending)).unwrap();
                rest = &rest[event.0..];
                match event.1 {
                    None => break,
                    Some(ReplyEvent::Data { bytes, .. }) => reply.data.extend_from_slice(bytes),
                    Some(ReplyEvent::Hole { offset, length, .. }) => reply.holes.push((offset, length)),
                    Some(ReplyEvent::Extent { extent, .. }) => reply.extents.push(extent),
                    Some(ReplyEvent::Failed { errno, .. }) => reply.failed = Some(errno),
                    Some(ReplyEvent::End { .. }) => {
                        assert!(rest.is_empty(), "one reply to one request");
                        return reply;
                    }
                }
            }
        }
    }
}
