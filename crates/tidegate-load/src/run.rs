//! Running a load: its beginning, and the handle on it.

use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::config::{LoadArrivals, LoadConfig};
use crate::connection::LoadConnection;
use crate::error::{ConnectError, LoadError};
use crate::flight::{ConnectionFlight, LostConnection};
use crate::plan::LoadedRegion;
use crate::report::{CutShort, LoadReport};
use crate::stats::{LoadSample, LoadStats};
use crate::worker::{LeftoverRequests, SharedConnection, SharedLoad, WRITE_PATIENCE};

/// The threads call nothing deep.
const STACK: usize = 256 << 10;

/// A load whose connections are open. Dropping it closes them.
#[derive(Debug)]
pub struct RunningLoad {
    config: LoadConfig,
    region: LoadedRegion,
    connections: Vec<LoadConnection>,
}

impl RunningLoad {
    /// Opens the connections.
    ///
    /// # Errors
    /// When the load makes no sense, the export cannot be opened within ten seconds, or cannot take the load.
    pub fn connect(config: LoadConfig) -> Result<Self, LoadError> {
        config.check()?;
        let target = || config.target.to_string();
        let connections = (0..config.connections)
            .map(|_| {
                let connection = LoadConnection::open(&config.target)?;
                connection.socket.set_timeouts(Duration::ZERO, WRITE_PATIENCE).map_err(ConnectError::Io)?;
                Ok(connection)
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| LoadError::Connect { target: target(), source })?;
        // A server may describe the export differently to each connection, if only by its shutdown in
        // between.
        let mut region = None;
        for connection in &connections {
            let fitted = LoadedRegion::fit(&config, &connection.opened.terms.geometry)
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
            LoadArrivals::Closed { depth, .. } | LoadArrivals::Open { depth, .. } => depth,
        };
        let lines = connections
            .into_iter()
            .map(|LoadConnection { socket, opened }| SharedConnection {
                socket,
                style: opened.terms.style,
                flight: ConnectionFlight::new(depth),
            })
            .collect();
        let shared =
            Arc::new(SharedLoad { config, region, origin, lines, stats: Mutex::new(LoadStats::new()) });
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
    shared: Arc<SharedLoad>,
    senders: Vec<JoinHandle<LeftoverRequests>>,
    receivers: Vec<JoinHandle<()>>,
}

impl LoadHandle {
    /// Returns the requests completed since the last call. Cheap: some hundred bytes are copied.
    #[must_use]
    pub fn sample(&self) -> LoadSample {
        let in_flight = self.shared.lines.iter().map(|line| line.flight.lock().outstanding()).sum();
        self.shared.stats().sample(self.shared.elapsed(Instant::now()), in_flight)
    }

    /// Returns the time for which the oldest unanswered request has been due. Requests that an open loop has
    /// yet to send are due later.
    #[must_use]
    pub fn oldest(&self) -> Option<Duration> {
        let oldest = self.shared.lines.iter().filter_map(|line| line.flight.lock().oldest()).min()?;
        Some(Instant::now().saturating_duration_since(oldest))
    }

    /// Stops sending; does not wait. Answers that come within five seconds still count; then the connections
    /// are closed. A server that takes no bytes either can make that ten seconds.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Returns true if all is done, so that [`LoadHandle::join`] returns at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.senders.iter().all(JoinHandle::is_finished) && self.receivers.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the end: the configured duration, [`LoadHandle::stop`], or the loss of a connection.
    ///
    /// # Errors
    /// When a connection was lost. The error has the results so far.
    pub fn join(mut self) -> Result<LoadReport, LoadError> {
        let panicked = || LoadError::Panicked { target: self.shared.config.target.to_string() };
        let mut total = LeftoverRequests::default();
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
        let elapsed = self.shared.elapsed(ended);
        let mut report =
            LoadReport::new(target.clone(), elapsed, &self.shared.stats(), total.unsent, total.unanswered);
        // Of several lost connections the first: the others may have followed it.
        let losses = self.shared.lines.iter().filter_map(|line| line.flight.take_loss());
        let Some(loss) = losses.min_by_key(|loss| loss.at) else { return Ok(report) };
        let LostConnection { reason: source, outstanding, at } = loss;
        let after = self.shared.elapsed(at);
        report.cut_short = Some(CutShort { after_s: after.as_secs_f64(), reason: source.to_string() });
        Err(LoadError::Lost { target, after, outstanding, source, report: Box::new(report) })
    }
}

impl Drop for LoadHandle {
    fn drop(&mut self) {
        self.shared.stop();
        // A panic in a thread was printed where it happened; a dropped handle has no one left to tell.
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
