//! An NBD client that keeps several requests under way.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use tidegate_nbd::handshake::{ClientEvent, ClientHandshake as Handshake};
use tidegate_nbd::transmission::{MessageStyle, NbdCommand, WireRequest};
use tidegate_nbd::{CommandFlags, ExportName};

/// Longer than any answer takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

const SIMPLE_REPLY: u32 = 0x6744_6698;

pub(crate) struct Client {
    stream: UnixStream,
    cookie: u64,
}

/// The answer to one request: its cookie, and the protocol's error number, 0 for success.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply {
    pub(crate) cookie: u64,
    pub(crate) error: u32,
}

impl Client {
    pub(crate) fn open(socket: &Path, export: &str) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut handshake = Handshake::open(ExportName::new(export).unwrap(), MessageStyle::Simple);
        let mut byte = [0];
        loop {
            stream.write_all(handshake.output())?;
            handshake.sent(handshake.output().len());
            // Byte by byte, so that nothing of the transmission is taken.
            stream.read_exact(&mut byte)?;
            match handshake.receive(&byte).map_err(io::Error::other)?.1 {
                Some(ClientEvent::Opened(_)) => break,
                Some(event) => return Err(io::Error::other(format!("{event:?}"))),
                None => {}
            }
        }
        Ok(Self { stream, cookie: 0 })
    }

    /// Sends a request; the payload is that of a write. The answer comes later, by its cookie.
    pub(crate) fn send(
        &mut self,
        command: NbdCommand,
        flags: CommandFlags,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> io::Result<u64> {
        self.cookie += 1;
        let cookie = self.cookie;
        let request = WireRequest::new(command, flags, cookie, offset, length);
        self.stream.write_all(&[&request.encode(MessageStyle::Simple)[..], payload].concat())?;
        Ok(cookie)
    }

    /// The next answer, of a request that has no data.
    pub(crate) fn reply(&mut self) -> io::Result<Reply> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        let [m0, m1, m2, m3, e0, e1, e2, e3, cookie @ ..] = head;
        assert_eq!(u32::from_be_bytes([m0, m1, m2, m3]), SIMPLE_REPLY);
        Ok(Reply { cookie: u64::from_be_bytes(cookie), error: u32::from_be_bytes([e0, e1, e2, e3]) })
    }

    pub(crate) fn read(&mut self, offset: u64, length: u32) -> io::Result<Vec<u8>> {
        let cookie = self.send(NbdCommand::Read, CommandFlags::NONE, offset, length, &[])?;
        let reply = self.reply()?;
        assert_eq!((reply.cookie, reply.error), (cookie, 0), "a read that is answered");
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }
}
