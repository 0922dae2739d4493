//! A server of a few lines that misbehaves exactly as a test wants, and otherwise keeps its data in memory.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::RecvFlags;
use tidegate_nbd::handshake::{ExportAnswer, ServerEvent, ServerHandshake};
use tidegate_nbd::transmission::{MessageStyle, NbdCommand, RepliedRequest, ReplyFrame, WireRequest};
use tidegate_nbd::{BlockSizes, Errno, ExportDescription, ExportGeometry, TransmissionFlags};

/// What it offers: everything that the gateway passes on, and several connections.
pub(crate) const ABILITIES: TransmissionFlags = TransmissionFlags::SEND_FLUSH
    .with(TransmissionFlags::SEND_FUA)
    .with(TransmissionFlags::SEND_TRIM)
    .with(TransmissionFlags::SEND_WRITE_ZEROES)
    .with(TransmissionFlags::CAN_MULTI_CONN);

pub(crate) const SIZE: usize = 8 << 20;

/// A connection behind the handshake.
pub(crate) struct Connection {
    pub(crate) stream: UnixStream,
    /// The style of messages that was negotiated.
    pub(crate) style: MessageStyle,
    /// How many connections came before.
    pub(crate) number: usize,
    data: Arc<Mutex<Vec<u8>>>,
}

impl Connection {
    /// The next request, with its payload; `None` when the gateway has gone.
    pub(crate) fn request(&mut self) -> Option<(WireRequest, Vec<u8>)> {
        let mut header = vec![0; self.style.request_size()];
        self.stream.read_exact(&mut header).ok()?;
        let request = WireRequest::parse(&header, self.style).expect("the gateway keeps step");
        let mut payload = vec![0; request.payload_length() as usize];
        self.stream.read_exact(&mut payload).ok()?;
        (request.command != NbdCommand::Disconnect).then_some((request, payload))
    }

    /// The next request if it begins to arrive within `patience`; `Err` when the gateway has gone.
    pub(crate) fn request_within(
        &mut self,
        patience: Duration,
    ) -> Result<Option<(WireRequest, Vec<u8>)>, ()> {
        self.stream.set_read_timeout(Some(patience)).map_err(drop)?;
        let mut first = [0];
        match rustix::net::recv(&self.stream, &mut first[..], RecvFlags::PEEK) {
            Ok((0, _)) => return Err(()),
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(_) => return Err(()),
        }
        self.stream.set_read_timeout(None).map_err(drop)?;
        self.request().map(Some).ok_or(())
    }

    /// Carries a request out; what the reply brings.
    pub(crate) fn carry_out(&self, request: &WireRequest, payload: &[u8]) -> Vec<u8> {
        let mut data = self.data.lock().unwrap();
        if request.command == NbdCommand::BlockStatus {
            return Vec::new();
        }
        let range = request.offset as usize..request.offset as usize + request.length as usize;
        match request.command {
            NbdCommand::Read => return data[range].to_vec(),
            NbdCommand::Write => data[range].copy_from_slice(payload),
            NbdCommand::Trim | NbdCommand::WriteZeroes => data[range].fill(0),
            _ => {}
        }
        Vec::new()
    }

    pub(crate) fn reply(&mut self, cookie: u64, result: Result<(), Errno>, data: &[u8]) {
        // The gateway may have hung up for a reason.
        let _ = self.stream.write_all(&[&ReplyFrame::simple(cookie, result)[..], data].concat());
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Answers one request as it should be.
    pub(crate) fn serve(&mut self, request: &WireRequest, payload: &[u8]) {
        let data = self.carry_out(request, payload);
        let frame = match request.command {
            NbdCommand::Read => self.style.data(replied(request), request.length as u32),
            NbdCommand::BlockStatus => self.style.error(replied(request), Errno::Io),
            _ => self.style.success(replied(request)),
        };
        self.say(&[&frame[..], &data].concat());
    }

    /// Behaves until the gateway goes.
    pub(crate) fn behave(&mut self) {
        while let Some((request, payload)) = self.request() {
            self.serve(&request, &payload);
        }
    }
}

/// A request as its replies name it.
pub(crate) fn replied(request: &WireRequest) -> RepliedRequest {
    RepliedRequest { cookie: request.cookie, offset: request.offset }
}

/// The server; ends with its last connection once dropped.
pub(crate) struct Hostile {
    pub(crate) socket: PathBuf,
    pub(crate) data: Arc<Mutex<Vec<u8>>>,
    /// Connections so far.
    pub(crate) connections: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Hostile {
    /// With simple replies: see [`start_up_to`](Self::start_up_to).
    pub(crate) fn start(
        socket: &Path,
        greet: impl Fn(usize, UnixStream) -> Option<UnixStream> + Send + Sync + 'static,
        act: impl Fn(&mut Connection) + Send + Sync + 'static,
    ) -> Self {
        Self::start_up_to(MessageStyle::Simple, socket, greet, act)
    }

    /// `greet` may take a fresh connection away from the handshake (`None`); `act` has it after that, with
    /// messages of at most this style.
    pub(crate) fn start_up_to(
        richest: MessageStyle,
        socket: &Path,
        greet: impl Fn(usize, UnixStream) -> Option<UnixStream> + Send + Sync + 'static,
        act: impl Fn(&mut Connection) + Send + Sync + 'static,
    ) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let data = Arc::new(Mutex::new((0..SIZE).map(byte_at).collect::<Vec<u8>>()));
        let (connections, stop) = (Arc::default(), Arc::default());
        let server = Self { socket: socket.to_owned(), data, connections, stop };
        let (data, connections, stop) =
            (Arc::clone(&server.data), Arc::clone(&server.connections), Arc::clone(&server.stop));
        let actions = Arc::new((greet, act));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let number = connections.fetch_add(1, Ordering::Relaxed);
                let (data, actions) = (Arc::clone(&data), Arc::clone(&actions));
                std::thread::spawn(move || {
                    let (greet, act) = &*actions;
                    let opened =
                        greet(number, stream.unwrap()).and_then(|stream| shake_hands(stream, richest));
                    if let Some((stream, style)) = opened {
                        act(&mut Connection { stream, style, number, data });
                    }
                });
            }
        });
        server
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(UnixStream::connect(&self.socket));
    }
}

/// What the data is before anybody writes.
pub(crate) fn byte_at(offset: usize) -> u8 {
    (offset / 4096 + offset % 251) as u8
}

fn shake_hands(mut stream: UnixStream, richest: MessageStyle) -> Option<(UnixStream, MessageStyle)> {
    let mut server = ServerHandshake::new().up_to(richest);
    let mut byte = [0];
    let mut fed = 0;
    loop {
        let (_, event) = server.receive(&byte[..fed]).ok()?;
        fed = 0;
        match event {
            Some(ServerEvent::ExportWanted { .. }) => {
                let blocks = BlockSizes::new(1, 4096, 1 << 20).unwrap();
                let geometry = ExportGeometry { size: SIZE as u64, flags: ABILITIES, blocks };
                server
                    .answer(ExportAnswer::Found(ExportDescription { geometry, description: String::new() }));
            }
            Some(ServerEvent::Opened(opened)) => {
                stream.write_all(server.output()).ok()?;
                return Some((stream, opened.terms.style));
            }
            Some(_) => return None,
            None => {
                let sent = stream.write(server.output()).ok()?;
                server.sent(sent);
                if server.output().is_empty() {
                    // One byte at a time: nothing of the transmission phase is read too early.
                    stream.read_exact(&mut byte).ok()?;
                    fed = 1;
                }
            }
        }
    }
}
