//! A client that says exactly what a test wants, well-behaved or not.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use tidegate_nbd::handshake::{ClientEvent, ClientHandshake};
use tidegate_nbd::transmission::{MessageStyle, NbdCommand, REQUEST_SIZE, WireRequest};
use tidegate_nbd::{CommandFlags, ExportName};

use crate::PATIENCE;

/// A connection in the transmission phase, with simple replies.
pub struct Raw(pub UnixStream);

/// A reply's cookie and error number.
pub type Answer = (u64, u32);

impl Raw {
    pub fn open(socket: &Path, export: &str) -> Self {
        Self::try_open(socket, export).expect("the export opens")
    }

    /// `None` when the server refuses.
    pub fn try_open(socket: &Path, export: &str) -> Option<Self> {
        Self::over(connect(socket), export)
    }

    /// The same over a stream that is connected.
    pub fn over(mut stream: UnixStream, export: &str) -> Option<Self> {
        let mut client = ClientHandshake::open(ExportName::new(export).unwrap(), MessageStyle::Simple);
        let mut byte = [0];
        loop {
            let sent = stream.write(client.output()).ok()?;
            client.sent(sent);
            // One byte at a time: nothing of the transmission phase is read too early.
            if stream.read(&mut byte).ok()? == 0 {
                return None;
            }
            match client.receive(&byte).ok()? {
                (1, Some(ClientEvent::Opened(_))) => return Some(Self(stream)),
                (_, None) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn send(&mut self, command: NbdCommand, cookie: u64, offset: u64, length: u32) {
        self.0.write_all(&request(command, cookie, offset, length)).unwrap();
    }

    pub fn send_flagged(
        &mut self,
        command: NbdCommand,
        flags: CommandFlags,
        cookie: u64,
        offset: u64,
        length: u32,
    ) {
        let request = WireRequest::new(command, flags, cookie, offset, length);
        self.0.write_all(&request.encode(MessageStyle::Simple)).unwrap();
    }

    pub fn send_write(&mut self, cookie: u64, offset: u64, data: &[u8]) {
        self.send(NbdCommand::Write, cookie, offset, data.len() as u32);
        self.0.write_all(data).unwrap();
    }

    /// Writes with FUA, and says what the answer is.
    pub fn write_fua(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.send_write_fua(98, offset, data);
        let (cookie, error) = self.answer();
        assert_eq!(cookie, 98);
        error
    }

    pub fn send_write_fua(&mut self, cookie: u64, offset: u64, data: &[u8]) {
        self.send_flagged(NbdCommand::Write, CommandFlags::FUA, cookie, offset, data.len() as u32);
        self.0.write_all(data).unwrap();
    }

    /// The next reply, without data.
    pub fn answer(&mut self) -> Answer {
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..4], 0x6744_6698u32.to_be_bytes());
        let error = u32::from_be_bytes(reply[4..8].try_into().unwrap());
        (u64::from_be_bytes(reply[8..].try_into().unwrap()), error)
    }

    /// The next reply, which brings data.
    pub fn data(&mut self, length: usize) -> (u64, Vec<u8>) {
        let (cookie, error) = self.answer();
        assert_eq!(error, 0);
        let mut data = vec![0; length];
        self.0.read_exact(&mut data).unwrap();
        (cookie, data)
    }

    pub fn ask(&mut self, command: NbdCommand, offset: u64, length: u32) -> u32 {
        self.send(command, 99, offset, length);
        let (cookie, error) = self.answer();
        assert_eq!(cookie, 99);
        error
    }

    /// Whether the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        closed(&mut self.0)
    }
}

/// Waits for the server to end the connection; what it says before that is dropped.
pub fn closed(stream: &mut UnixStream) -> bool {
    let mut rest = [0; 4096];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

pub fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    // A test must end even when the gateway is broken.
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub fn request(command: NbdCommand, cookie: u64, offset: u64, length: u32) -> [u8; REQUEST_SIZE] {
    WireRequest::new(command, CommandFlags::NONE, cookie, offset, length).encode(MessageStyle::Simple)[..]
        .try_into()
        .unwrap()
}
