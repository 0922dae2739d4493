//! An NBD server in memory with a volatile write cache: what was not flushed is lost when it crashes.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use std::{fs, thread};

use tidegate_nbd::handshake::{ExportAnswer, ServerEvent, ServerHandshake};
use tidegate_nbd::transmission::{MessageStyle, NbdCommand, REQUEST_SIZE, WireRequest};
use tidegate_nbd::{BlockSizes, CommandFlags, Errno, ExportDescription, ExportGeometry, TransmissionFlags};

use super::Chance;

pub(crate) const BLOCK: u64 = 4096;
const SIZE: u64 = 16 << 20;

/// The stamp of each block: a write is known by the number that it repeats, and later ones are greater.
type Stamps = BTreeMap<u64, u64>;

#[derive(Debug, Default)]
struct State {
    cache: Stamps,
    stable: Stamps,
    /// Which start of the server this is. Connections of an earlier one change nothing any more.
    generation: u64,
    connections: Vec<UnixStream>,
    lost: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

impl Upstream {
    pub(crate) fn start(path: &Path) -> Self {
        let upstream = Self { path: path.to_owned(), state: Arc::default() };
        upstream.listen();
        upstream
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn listen(&self) {
        // Of the start before.
        let _ = fs::remove_file(&self.path);
        let listener = UnixListener::bind(&self.path).unwrap();
        let (upstream, generation) = (self.clone(), self.state().generation);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let mut state = upstream.state();
                if state.generation != generation {
                    return;
                }
                state.connections.push(stream.try_clone().unwrap());
                drop(state);
                let upstream = upstream.clone();
                // A connection ends by an error at the latest when the server crashes.
                thread::spawn(move || upstream.serve(stream, generation));
            }
        });
    }

    /// All connections break. If it is a crash and no orderly end, what was not flushed is gone.
    pub(crate) fn end(&self, is_crash: bool, away: Duration) {
        let mut state = self.state();
        state.generation += 1;
        if is_crash {
            let State { cache, stable, lost, .. } = &mut *state;
            *lost += cache.iter().filter(|(block, stamp)| stable.get(block) < Some(stamp)).count() as u64;
            cache.clone_from(stable);
        }
        for connection in state.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(state);
        // Its thread wakes, and sees that its time is over.
        let _ = UnixStream::connect(&self.path);
        thread::sleep(away);
        self.listen();
    }

    /// One connection breaks, and the server goes on.
    pub(crate) fn cut(&self, chance: &mut Chance) {
        let mut state = self.state();
        if !state.connections.is_empty() {
            let at = chance.below(state.connections.len() as u64) as usize;
            let _ = state.connections.swap_remove(at).shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn stable(&self, block: u64) -> u64 {
        self.state().stable.get(&block).copied().unwrap_or_default()
    }

    pub(crate) fn lost(&self) -> u64 {
        self.state().lost
    }

    fn serve(&self, mut stream: UnixStream, generation: u64) -> io::Result<()> {
        let geometry = ExportGeometry {
            size: SIZE,
            flags: TransmissionFlags::SEND_FLUSH
                | TransmissionFlags::SEND_FUA
                | TransmissionFlags::CAN_MULTI_CONN,
            blocks: BlockSizes::DEFAULT,
        };
        handshake(&mut stream, geometry)?;
        let mut head = [0; REQUEST_SIZE];
        loop {
            stream.read_exact(&mut head)?;
            let request = WireRequest::parse(&head, MessageStyle::Simple).map_err(io::Error::other)?;
            let mut payload = vec![0; request.payload_length() as usize];
            stream.read_exact(&mut payload)?;
            let blocks = request.offset / BLOCK..(request.offset + request.length) / BLOCK;
            let mut data = Vec::new();
            let mut error = 0;
            match request.command {
                NbdCommand::Read => {
                    let state = self.state();
                    for block in blocks {
                        let stamp = state.cache.get(&block).copied().unwrap_or_default();
                        data.extend(stamp.to_be_bytes().repeat(BLOCK as usize / 8));
                    }
                }
                NbdCommand::Write => {
                    let mut state = self.of(generation)?;
                    for (block, page) in blocks.zip(payload.chunks_exact(BLOCK as usize)) {
                        let stamp = u64::from_be_bytes(page[..8].try_into().unwrap());
                        raise(&mut state.cache, block, stamp);
                        if request.flags.contains(CommandFlags::FUA) {
                            raise(&mut state.stable, block, stamp);
                        }
                    }
                }
                NbdCommand::Flush => {
                    let flushed = self.of(generation)?.cache.clone();
                    // A disk takes its time, in which it may crash.
                    thread::sleep(Duration::from_micros(request.cookie.wrapping_mul(977) % 4000));
                    let mut state = self.of(generation)?;
                    flushed.into_iter().for_each(|(block, stamp)| raise(&mut state.stable, block, stamp));
                }
                NbdCommand::Disconnect => return Ok(()),
                _ => error = Errno::Inval.code(),
            }
            let head =
                [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &request.cookie.to_be_bytes()];
            stream.write_all(&[&head.concat(), &data[..]].concat())?;
        }
    }

    fn of(&self, generation: u64) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.generation == generation { Ok(state) } else { Err(io::Error::other("crashed")) }
    }
}

fn raise(stamps: &mut Stamps, block: u64, stamp: u64) {
    let there = stamps.entry(block).or_default();
    *there = stamp.max(*there);
}

fn handshake(stream: &mut UnixStream, geometry: ExportGeometry) -> io::Result<()> {
    let mut server = ServerHandshake::new().up_to(MessageStyle::Simple);
    let mut byte = [0];
    loop {
        stream.write_all(server.output())?;
        server.sent(server.output().len());
        stream.read_exact(&mut byte)?;
        let (_, mut event) = server.receive(&byte).map_err(io::Error::other)?;
        if let Some(ServerEvent::ExportWanted { .. }) = event {
            server.answer(ExportAnswer::Found(ExportDescription { geometry, description: String::new() }));
            event = server.receive(&[]).map_err(io::Error::other)?.1;
        }
        match event {
            Some(ServerEvent::Opened(_)) => return stream.write_all(server.output()),
            Some(event) => return Err(io::Error::other(format!("{event:?}"))),
            None => {}
        }
    }
}
