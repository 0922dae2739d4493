//! The two threads of each connection: one sends, one receives.

use std::io::{self, ErrorKind, IoSlice};
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_nbd::transmission::{
    MessageStyle, NbdCommand, ReplyEvent, ReplyParser, RequestFrame, WireRequest,
};
use tidegate_nbd::{CommandFlags, Errno};
use tidegate_units::Latency;

use crate::config::{LoadArrivals, LoadConfig};
use crate::connection::{StreamSocket, is_timeout};
use crate::error::ConnectionLoss;
use crate::flight::{ConnectionFlight, OutstandingRequest, RequestSlot};
use crate::payload::PayloadSource;
use crate::plan::{DueTimes, LoadIo, LoadTimetable, LoadedRegion, RequestSequence};
use crate::stats::{LoadCompletion, LoadStats};

/// The longest wait for answers once no more requests are sent.
const DRAIN: Duration = Duration::from_secs(5);

/// A write that makes no progress for this long looks whether it should give up.
pub(crate) const WRITE_PATIENCE: Duration = Duration::from_millis(100);

/// The number of bytes read from a socket at once.
const RECEIVE_BUFFER: usize = 256 << 10;

/// The requests that a connection left undone.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeftoverRequests {
    pub(crate) unsent: u64,
    pub(crate) unanswered: u64,
    /// The time when the last request could have been sent.
    pub(crate) ended: Option<Instant>,
}

/// One connection, as its two threads share it.
#[derive(Debug)]
pub(crate) struct SharedConnection {
    pub(crate) socket: StreamSocket,
    pub(crate) style: MessageStyle,
    pub(crate) flight: ConnectionFlight,
}

impl SharedConnection {
    /// Sends a request. A server that takes no bytes blocks this. The request is given up once the load
    /// should have ended: at `end`, or by a halt.
    fn write(&self, end: Option<Instant>, mut head: &[u8], mut payload: &[u8]) -> Result<(), Ended> {
        let mut overdue = None;
        while !(head.is_empty() && payload.is_empty()) {
            match self.socket.write_vectored(&[IoSlice::new(head), IoSlice::new(payload)]) {
                Ok(0) => return Err(Ended::Lost(ConnectionLoss::Closed)),
                Ok(count) => {
                    let of_head = count.min(head.len());
                    head = &head[of_head..];
                    payload = &payload[count - of_head..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {
                    let now = Instant::now();
                    let over = self.flight.is_halted() || end.is_some_and(|end| now >= end);
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

#[derive(Debug)]
pub(crate) struct SharedLoad {
    pub(crate) config: LoadConfig,
    pub(crate) region: LoadedRegion,
    pub(crate) origin: Instant,
    pub(crate) lines: Vec<SharedConnection>,
    pub(crate) stats: Mutex<LoadStats>,
}

impl SharedLoad {
    pub(crate) fn stats(&self) -> MutexGuard<'_, LoadStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.origin)
    }

    fn end(&self) -> Option<Instant> {
        self.config.duration.map(|duration| self.origin + duration)
    }

    pub(crate) fn stop(&self) {
        for line in &self.lines {
            line.flight.stop();
        }
    }

    /// A connection is gone: the load ends, because what is left would not be the load that was asked for.
    fn lose(&self, line: &SharedConnection, loss: ConnectionLoss) {
        line.flight.lose(loss);
        line.socket.shut_down();
        self.stop();
    }

    /// The sending thread of a connection.
    pub(crate) fn send(&self, index: usize) -> LeftoverRequests {
        // The default slack of 50 µs would show in the response times of an open loop. Without the right to
        // change it they are that much worse, and still correct.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let line = &self.lines[index];
        let mut sender = Sender {
            shared: self,
            line,
            requests: RequestSequence::new(&self.config, self.region, index as u32),
            payloads: PayloadSource::new(&self.config, self.region.block(), index as u32),
        };
        let outcome = match self.config.arrivals {
            LoadArrivals::Closed { think, .. } => sender.closed_loop(think).map(|()| 0),
            LoadArrivals::Open { rate, spacing, .. } => {
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
            let goodbye = request(line.style, NbdCommand::Disconnect, CommandFlags::NONE, 0, 0, 0);
            let _ = line.socket.write_vectored(&[IoSlice::new(&goodbye)]);
        }
        line.socket.shut_down();
        LeftoverRequests { unsent, unanswered: unanswered as u64, ended: Some(ended) }
    }

    /// The receiving thread of a connection.
    pub(crate) fn receive(&self, index: usize) {
        let line = &self.lines[index];
        let mut parser = ReplyParser::new(line.style);
        let mut buffer = vec![0; RECEIVE_BUFFER];
        let mut completions = Vec::new();
        loop {
            let loss = match line.socket.read(&mut buffer) {
                Ok(0) => ConnectionLoss::Closed,
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
        line: &SharedConnection,
        parser: &mut ReplyParser,
        mut bytes: &[u8],
        completions: &mut Vec<LoadCompletion>,
    ) -> Result<(), ConnectionLoss> {
        // One look at the clock for all that came at once: it came at the same time.
        let now = Instant::now();
        let mut state = line.flight.lock();
        let mut outcome = Ok(());
        while outcome.is_ok() {
            let (taken, event) = match parser.receive(bytes, |cookie| state.pending(cookie)) {
                Ok(progress) => progress,
                Err(error) => {
                    outcome = Err(ConnectionLoss::Protocol(error));
                    break;
                }
            };
            bytes = &bytes[taken..];
            match event {
                None => break,
                Some(ReplyEvent::Data { cookie, bytes, .. }) => state.received(cookie, bytes.len()),
                Some(ReplyEvent::Hole { cookie, length, .. }) => state.received(cookie, length as usize),
                Some(ReplyEvent::Extent { .. }) => debug_assert!(false, "no allocation was asked for"),
                Some(ReplyEvent::Failed { cookie, errno, .. }) => state.failed(cookie, errno),
                Some(ReplyEvent::End { cookie }) => match state.land(cookie, now) {
                    Ok(Some(landed)) => completions.push(LoadCompletion {
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

/// The reasons why a sender ended before its time.
enum Ended {
    /// The server takes no more bytes, and the load should have ended.
    GivenUp,
    Lost(ConnectionLoss),
}

/// The state of a sending thread.
struct Sender<'a> {
    shared: &'a SharedLoad,
    line: &'a SharedConnection,
    requests: RequestSequence,
    payloads: PayloadSource,
}

impl Sender<'_> {
    /// Sends a request whenever an answer makes room for it.
    fn closed_loop(&mut self, think: Duration) -> Result<(), Ended> {
        let SharedLoad { config, origin, .. } = self.shared;
        let (timetable, end) = (LoadTimetable::new(config.phases), self.shared.end());
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
        let SharedLoad { config, origin, .. } = self.shared;
        let (timetable, end) = (LoadTimetable::new(config.phases), self.shared.end());
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

    fn launch(&mut self, slot: RequestSlot, due: Instant) -> Result<(), Ended> {
        let LoadIo { read, offset } = self.requests.next();
        let length = self.shared.region.block();
        let cookie = self.line.flight.launch(slot, OutstandingRequest { read, offset, length, due });
        let (line, end) = (self.line, self.shared.end());
        if read {
            let head = request(line.style, NbdCommand::Read, CommandFlags::NONE, cookie, offset, length);
            return line.write(end, &head, &[]);
        }
        let flags = if self.shared.config.fua { CommandFlags::FUA } else { CommandFlags::NONE };
        let head = request(line.style, NbdCommand::Write, flags, cookie, offset, length);
        line.write(end, &head, self.payloads.next())
    }
}

/// Returns the loss that a failed read or write means for the connection.
fn lost(error: io::Error) -> ConnectionLoss {
    match error.kind() {
        ErrorKind::BrokenPipe => ConnectionLoss::Closed,
        _ => ConnectionLoss::Io(error),
    }
}

fn request(
    style: MessageStyle,
    command: NbdCommand,
    flags: CommandFlags,
    cookie: u64,
    offset: u64,
    length: u32,
) -> RequestFrame {
    WireRequest::new(command, flags, cookie, offset, length).encode(style)
}
