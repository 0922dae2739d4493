//! Running a load: two threads per connection, and the handle on all of them.

use std::io::{ErrorKind, IoSlice};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_nbd::transmission::{Command, ReplyEvent, ReplyParser, ReplyStyle, Request};
use tidegate_nbd::{CommandFlags, Errno};
use tidegate_units::Latency;

use crate::config::{Arrivals, LoadConfig, Payload};
use crate::connection::{Connection, Socket, is_timeout};
use crate::error::{LoadError, Loss};
use crate::flight::{Flight, Outstanding};
use crate::plan::{DueTimes, Io, Region, Requests, Timetable};
use crate::report::LoadReport;
use crate::stats::{Completion, Sample, Stats};

/// How long answers are waited for once no more requests are sent.
const DRAIN: Duration = Duration::from_secs(5);

/// A write that makes no progress for this long looks whether it should give up.
const WRITE_PATIENCE: Duration = Duration::from_millis(100);

/// What is read from a socket at once.
const RECEIVE_BUFFER: usize = 256 << 10;

/// The threads call nothing deep.
const STACK: usize = 256 << 10;

/// A random payload is a window on random bytes that moves within this many bytes more than a block: each write
/// differs, and none costs more than a number.
const PAYLOAD_SLACK: usize = 64 << 10;

/// A load whose connections are open. Dropping it closes them.
#[derive(Debug)]
pub struct Load {
    config: LoadConfig,
    region: Region,
    connections: Vec<Connection>,
}

impl Load {
    /// Opens the connections.
    ///
    /// # Errors
    /// When the load makes no sense, the export cannot be opened within ten seconds, or cannot take the load.
    pub fn connect(config: LoadConfig) -> Result<Self, LoadError> {
        config.check()?;
        let target = || config.target.to_string();
        let connections = (0..config.connections)
            .map(|_| Connection::open(&config.target))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| LoadError::Connect { target: target(), source })?;
        // A server may describe the export differently to each connection, if only by its shutdown in between.
        let mut region = None;
        for connection in &connections {
            let fitted = Region::fit(&config, &connection.opened.geometry)
                .map_err(|source| LoadError::Unsuitable { target: target(), source })?;
            region.get_or_insert(fitted);
        }
        let region = region.expect("a checked load has at least one connection");
        Ok(Self { config, region, connections })
    }

    /// Begins now.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(self) -> Result<LoadHandle, LoadError> {
        self.start_at(Instant::now())
    }

    /// Begins at a moment, which several loads may share. Phases, duration and seconds count from it.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start_at(self, origin: Instant) -> Result<LoadHandle, LoadError> {
        let Self { config, region, connections } = self;
        let depth = match config.arrivals {
            Arrivals::Closed { depth, .. } | Arrivals::Open { depth, .. } => depth,
        };
        let lines = connections
            .into_iter()
            .map(|Connection { socket, opened }| {
                socket.set_timeouts(Duration::ZERO, WRITE_PATIENCE)?;
                Ok(Line { socket, replies: opened.replies, flight: Flight::new(depth) })
            })
            .collect::<std::io::Result<Vec<_>>>()
            .map_err(LoadError::Thread)?;
        let shared = Arc::new(Shared { config, region, origin, lines, stats: Mutex::new(Stats::new()) });
        let mut handle = LoadHandle { shared, senders: Vec::new(), receivers: Vec::new() };
        for index in 0..handle.shared.lines.len() {
            // On failure the handle is dropped, which ends what was started.
            let shared = Arc::clone(&handle.shared);
            handle.receivers.push(spawn("load-receive", move || shared.receive(index))?);
            let shared = Arc::clone(&handle.shared);
            handle.senders.push(spawn("load-send", move || shared.send(index))?);
        }
        Ok(handle)
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, LoadError> {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(body).map_err(LoadError::Thread)
}

/// A running load. Dropping it stops it, and waits for its threads.
#[derive(Debug)]
pub struct LoadHandle {
    shared: Arc<Shared>,
    senders: Vec<JoinHandle<Leftover>>,
    receivers: Vec<JoinHandle<()>>,
}

impl LoadHandle {
    /// What completed since the last call. Cheap: some hundred bytes are copied.
    #[must_use]
    pub fn sample(&self) -> Sample {
        let in_flight = self.shared.lines.iter().map(|line| line.flight.lock().outstanding()).sum();
        self.shared.stats().sample(self.shared.elapsed(Instant::now()), in_flight)
    }

    /// Stops sending; does not wait. Answers that come within five seconds still count; then the connections are
    /// closed. A server that takes no bytes either can make that ten seconds.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Whether all is done, so that [`LoadHandle::join`] returns at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.senders.iter().all(JoinHandle::is_finished) && self.receivers.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the end: the configured duration, [`LoadHandle::stop`], or the loss of a connection.
    ///
    /// # Errors
    /// When a connection was lost.
    pub fn join(mut self) -> Result<LoadReport, LoadError> {
        let panicked = || LoadError::Panicked { target: self.shared.config.target.to_string() };
        let mut total = Leftover::default();
        let mut ended = self.shared.origin;
        for sender in std::mem::take(&mut self.senders) {
            let leftover = sender.join().map_err(|_| panicked())?;
            total.unsent += leftover.unsent;
            total.unanswered += leftover.unanswered;
            ended = ended.max(leftover.ended.unwrap_or(ended));
        }
        for receiver in std::mem::take(&mut self.receivers) {
            receiver.join().map_err(|_| panicked())?;
        }
        let target = self.shared.config.target.to_string();
        if let Some((source, outstanding)) = self.shared.lines.iter().find_map(|line| line.flight.take_loss())
        {
            return Err(LoadError::Lost { target, outstanding, source });
        }
        let elapsed = self.shared.elapsed(ended);
        Ok(LoadReport::new(target, elapsed, &self.shared.stats(), total.unsent, total.unanswered))
    }
}

impl Drop for LoadHandle {
    fn drop(&mut self) {
        self.shared.stop();
        // A panic in a thread was printed where it happened; a handle that is dropped has nobody else to tell.
        for sender in self.senders.drain(..) {
            let _ = sender.join();
        }
        // Where a sender could not be started, its receiver still waits for the server.
        for line in &self.shared.lines {
            line.flight.leave();
            line.socket.shut_down();
        }
        for receiver in self.receivers.drain(..) {
            let _ = receiver.join();
        }
    }
}

/// What a connection left undone.
#[derive(Debug, Clone, Copy, Default)]
struct Leftover {
    unsent: u64,
    unanswered: u64,
    /// When the last request could have been sent.
    ended: Option<Instant>,
}

/// One connection, as its two threads share it.
#[derive(Debug)]
struct Line {
    socket: Socket,
    replies: ReplyStyle,
    flight: Flight,
}

#[derive(Debug)]
struct Shared {
    config: LoadConfig,
    region: Region,
    origin: Instant,
    lines: Vec<Line>,
    stats: Mutex<Stats>,
}

impl Shared {
    fn stats(&self) -> MutexGuard<'_, Stats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.origin)
    }

    fn end(&self) -> Option<Instant> {
        self.config.duration.map(|duration| self.origin + duration)
    }

    fn stop(&self) {
        for line in &self.lines {
            line.flight.stop();
        }
    }

    /// A connection is gone: the load ends, because what is left would not be the load that was asked for.
    fn lose(&self, line: &Line, loss: Loss) {
        line.flight.lose(loss);
        line.socket.shut_down();
        self.stop();
    }

    /// The sending thread of a connection.
    fn send(&self, index: usize) -> Leftover {
        // The default slack of 50 µs would show in the response times of an open loop. Without the right to change
        // it they are that much worse, and still correct.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let line = &self.lines[index];
        let mut sender = Sender {
            shared: self,
            line,
            requests: Requests::new(&self.config, self.region, index as u32),
            payloads: Payloads::new(&self.config, self.region.block(), index as u32),
        };
        let outcome = match self.config.arrivals {
            Arrivals::Closed { think, .. } => sender.closed_loop(think).map(|()| 0),
            Arrivals::Open { rate, spacing, .. } => {
                let LoadConfig { connections, seed, .. } = self.config;
                sender.open_loop(DueTimes::new(rate.per_second(), spacing, connections, index as u32, seed))
            }
        };
        let ended = Instant::now();
        let unsent = match outcome {
            Ok(unsent) => {
                line.flight.drain(ended + DRAIN);
                unsent
            }
            Err(Ended::GivenUp) => 0,
            Err(Ended::Lost(loss)) => {
                self.lose(line, loss);
                0
            }
        };
        let unanswered = line.flight.leave();
        if unanswered == 0 {
            // The server is about to see the end of the connection either way.
            let goodbye = request(Command::Disconnect, CommandFlags::NONE, 0, 0, 0);
            let _ = line.socket.write_vectored(&[IoSlice::new(&goodbye)]);
        }
        line.socket.shut_down();
        Leftover { unsent, unanswered: unanswered as u64, ended: Some(ended) }
    }

    /// The receiving thread of a connection.
    fn receive(&self, index: usize) {
        let line = &self.lines[index];
        let mut parser = ReplyParser::new(line.replies);
        let mut buffer = vec![0; RECEIVE_BUFFER];
        let mut completions = Vec::new();
        loop {
            let loss = match line.socket.read(&mut buffer) {
                Ok(0) => Loss::Closed,
                Ok(count) => match self.take(line, &mut parser, &buffer[..count], &mut completions) {
                    Ok(()) => continue,
                    Err(loss) => loss,
                },
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => lost(error),
            };
            if !line.flight.lock().is_leaving() {
                self.lose(line, loss);
            }
            return;
        }
    }

    /// Takes bytes from the server: completes requests and counts them.
    fn take(
        &self,
        line: &Line,
        parser: &mut ReplyParser,
        mut bytes: &[u8],
        completions: &mut Vec<Completion>,
    ) -> Result<(), Loss> {
        // One look at the clock for all that came at once: it came at the same time.
        let now = Instant::now();
        let mut state = line.flight.lock();
        let mut outcome = Ok(());
        while outcome.is_ok() {
            let (taken, event) = match parser.receive(bytes, |cookie| state.pending(cookie)) {
                Ok(progress) => progress,
                Err(error) => {
                    outcome = Err(Loss::Protocol(error));
                    break;
                }
            };
            bytes = &bytes[taken..];
            match event {
                None => break,
                Some(ReplyEvent::Data { cookie, bytes, .. }) => state.received(cookie, bytes.len()),
                Some(ReplyEvent::Hole { cookie, length, .. }) => state.received(cookie, length as usize),
                Some(ReplyEvent::Failed { cookie, errno, .. }) => state.failed(cookie, errno),
                Some(ReplyEvent::End { cookie }) => match state.land(cookie, now) {
                    Ok(Some(landed)) => completions.push(Completion {
                        read: landed.request.read,
                        bytes: landed.request.length,
                        outcome: landed
                            .result
                            .map(|()| Latency::from(now.saturating_duration_since(landed.request.due))),
                    }),
                    // The parser asks for every cookie before it reports anything about it.
                    Ok(None) => debug_assert!(false, "the end of a reply that was not pending"),
                    Err(loss) => outcome = Err(loss),
                },
            }
        }
        line.flight.wake_sender(state);
        if completions.iter().any(|completion| completion.outcome == Err(Errno::Shutdown)) {
            // The specification asks for a goodbye: the sender says it once the last answers are here.
            line.flight.dismiss();
            self.stop();
        }
        self.stats().record(self.elapsed(now), completions);
        completions.clear();
        outcome
    }
}

/// Why a sender ended before its time.
enum Ended {
    /// The server takes no more bytes, and the load should have ended.
    GivenUp,
    Lost(Loss),
}

/// The state of a sending thread.
struct Sender<'a> {
    shared: &'a Shared,
    line: &'a Line,
    requests: Requests,
    payloads: Payloads,
}

impl Sender<'_> {
    /// Sends a request whenever an answer makes room for it.
    fn closed_loop(&mut self, think: Duration) -> Result<(), Ended> {
        let Shared { config, origin, .. } = self.shared;
        let (timetable, end) = (Timetable::new(config.phases), self.shared.end());
        let flight = &self.line.flight;
        while let Some(slot) = flight.claim(end) {
            let ready = slot.freed.map_or(*origin, |freed| freed + think).max(Instant::now());
            let due = *origin + timetable.next_on(self.shared.elapsed(ready));
            if let Some(end) = end.filter(|end| due >= *end) {
                flight.release(slot);
                flight.sleep_until(end);
                return Ok(());
            }
            if due > Instant::now() && !flight.sleep_until(due) {
                flight.release(slot);
                return Ok(());
            }
            self.launch(slot, Instant::now())?;
        }
        Ok(())
    }

    /// Sends requests when they are due; says about how many were due and not sent at the end.
    fn open_loop(&mut self, mut due_times: DueTimes) -> Result<u64, Ended> {
        let Shared { config, origin, .. } = self.shared;
        let (timetable, end) = (Timetable::new(config.phases), self.shared.end());
        let flight = &self.line.flight;
        loop {
            let active = due_times.next();
            let since = timetable.after_active(active);
            let due = origin.checked_add(since).filter(|due| end.is_none_or(|end| *due < end));
            let Some(due) = due else {
                if let Some(end) = end {
                    flight.sleep_until(end);
                }
                return Ok(0);
            };
            if due > Instant::now() && !flight.sleep_until(due) {
                return Ok(0);
            }
            let Some(slot) = flight.claim(end) else {
                let waited = timetable.active_by(self.shared.elapsed(Instant::now())).saturating_sub(active);
                return Ok(1 + due_times.expected_within(waited));
            };
            self.launch(slot, due)?;
        }
    }

    fn launch(&mut self, slot: crate::flight::Slot, due: Instant) -> Result<(), Ended> {
        let Io { read, offset } = self.requests.next();
        let length = self.shared.region.block();
        let cookie = self.line.flight.launch(slot, Outstanding { read, offset, length, due });
        if read {
            let head = request(Command::Read, CommandFlags::NONE, cookie, offset, length);
            return self.write(&head, &[]);
        }
        let flags = if self.shared.config.fua { CommandFlags::FUA } else { CommandFlags::NONE };
        let head = request(Command::Write, flags, cookie, offset, length);
        let window = self.payloads.next();
        self.write(&head, &self.payloads.bytes[window])
    }

    /// Sends a request. A server that takes nothing holds this up; it is given up once the load should have ended.
    fn write(&self, mut head: &[u8], mut payload: &[u8]) -> Result<(), Ended> {
        let mut overdue = None;
        while !(head.is_empty() && payload.is_empty()) {
            match self.line.socket.write_vectored(&[IoSlice::new(head), IoSlice::new(payload)]) {
                Ok(0) => return Err(Ended::Lost(Loss::Closed)),
                Ok(count) => {
                    let of_head = count.min(head.len());
                    head = &head[of_head..];
                    payload = &payload[count - of_head..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {
                    let now = Instant::now();
                    let over =
                        self.line.flight.is_halted() || self.shared.end().is_some_and(|end| now >= end);
                    if over && now >= *overdue.get_or_insert(now) + DRAIN {
                        return Err(Ended::GivenUp);
                    }
                }
                Err(error) => return Err(Ended::Lost(lost(error))),
            }
        }
        Ok(())
    }
}

/// What a failed read or write says about the connection.
fn lost(error: std::io::Error) -> Loss {
    match error.kind() {
        ErrorKind::BrokenPipe => Loss::Closed,
        _ => Loss::Io(error),
    }
}

fn request(command: Command, flags: CommandFlags, cookie: u64, offset: u64, length: u32) -> [u8; 28] {
    Request { command, flags, cookie, offset, length }.encode()
}

/// What is written.
struct Payloads {
    bytes: Vec<u8>,
    block: usize,
    random: Pcg64,
}

impl Payloads {
    fn new(config: &LoadConfig, block: u32, index: u32) -> Self {
        let block = block as usize;
        let seed = config.seed.wrapping_add(u64::from(index)) ^ 0xd1b5_4a32_d192_ed03;
        let mut random = Pcg64::seed_from_u64(seed);
        let bytes = match config.payload {
            _ if config.read_fraction >= 1.0 => Vec::new(),
            Payload::Zeroes => vec![0; block],
            Payload::Byte(byte) => vec![byte; block],
            Payload::Random => {
                let mut bytes = vec![0; block + PAYLOAD_SLACK];
                random.fill(&mut bytes[..]);
                bytes
            }
        };
        Self { bytes, block, random }
    }

    fn next(&mut self) -> std::ops::Range<usize> {
        let slack = self.bytes.len() - self.block;
        let start = if slack == 0 { 0 } else { self.random.random_range(0..slack) };
        start..start + self.block
    }
}
