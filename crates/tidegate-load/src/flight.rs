//! The requests outstanding on one connection, shared by the thread that sends and the one that receives.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidegate_nbd::Errno;
use tidegate_nbd::transmission::PendingReply;

use crate::error::ConnectionLoss;

/// A request without an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutstandingRequest {
    pub(crate) read: bool,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    /// From when its response time counts.
    pub(crate) due: Instant,
}

/// A request's answer is complete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Landed {
    pub(crate) request: OutstandingRequest,
    pub(crate) result: Result<(), Errno>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    cookie: u64,
    request: OutstandingRequest,
    /// Bytes of a read that have come.
    received: u64,
    failed: Option<Errno>,
}

/// The loss of a connection.
#[derive(Debug)]
pub(crate) struct LostConnection {
    pub(crate) reason: ConnectionLoss,
    /// The number of requests outstanding then.
    pub(crate) outstanding: usize,
    pub(crate) at: Instant,
}

/// Room for one request, and when its last answer came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestSlot {
    index: usize,
    /// None for a slot that was never used.
    pub(crate) freed: Option<Instant>,
}

/// The state of a connection, which tells whether requests may be sent, and if not why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Running,
    /// No new requests; answers are waited for.
    Stopped,
    /// The sender said goodbye: the connection may end.
    Leaving,
    /// The connection is gone.
    Lost,
}

/// The outstanding requests; only behind [`ConnectionFlight::lock`].
#[derive(Debug)]
pub(crate) struct State {
    entries: Vec<Option<Entry>>,
    free: VecDeque<RequestSlot>,
    /// The number of entries, not of the slots in use: the sender may have a slot and wait with it.
    outstanding: usize,
    /// Requests ever sent: part of the cookie, so that a second answer to a request is recognised as such.
    launched: u64,
    mode: Mode,
    loss: Option<LostConnection>,
    /// True while the sender waits for a slot or for the last answer. Nothing else needs waking.
    sender_waits: bool,
}

/// A cookie holds the slot below, and the number of the request above.
const SLOT_BITS: u32 = 16;

fn slot_of(cookie: u64) -> usize {
    (cookie & ((1 << SLOT_BITS) - 1)) as usize
}

impl State {
    /// Returns the number of requests without an answer.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Returns the due time of the request that has been outstanding for the longest.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.entries.iter().flatten().map(|entry| entry.request.due).min()
    }

    fn entry(&mut self, cookie: u64) -> Option<&mut Entry> {
        self.entries.get_mut(slot_of(cookie))?.as_mut().filter(|entry| entry.cookie == cookie)
    }

    /// Returns the facts that the parser needs about a request.
    pub(crate) fn pending(&mut self, cookie: u64) -> Option<PendingReply> {
        self.entry(cookie).map(|entry| match entry.request {
            OutstandingRequest { read: true, offset, length, .. } => PendingReply::Read { offset, length },
            OutstandingRequest { read: false, offset, .. } => PendingReply::Other { offset },
        })
    }

    /// Bytes of a read, or a hole, have come.
    pub(crate) fn received(&mut self, cookie: u64, bytes: usize) {
        if let Some(entry) = self.entry(cookie) {
            entry.received = entry.received.saturating_add(bytes as u64);
        }
    }

    /// The server reports an error; the first one counts.
    pub(crate) fn failed(&mut self, cookie: u64, errno: Errno) {
        if let Some(entry) = self.entry(cookie) {
            entry.failed.get_or_insert(errno);
        }
    }

    /// The answer is complete: frees the slot. `None` for a cookie that is not outstanding.
    pub(crate) fn land(&mut self, cookie: u64, now: Instant) -> Result<Option<Landed>, ConnectionLoss> {
        let Some(Entry { request, received, failed, .. }) = self.entry(cookie).copied() else {
            return Ok(None);
        };
        if failed.is_none() && request.read && received != u64::from(request.length) {
            let received = u32::try_from(received).unwrap_or(u32::MAX);
            return Err(ConnectionLoss::ShortRead { wanted: request.length, received });
        }
        let index = slot_of(cookie);
        self.entries[index] = None;
        self.outstanding -= 1;
        self.free.push_back(RequestSlot { index, freed: Some(now) });
        Ok(Some(Landed { request, result: failed.map_or(Ok(()), Err) }))
    }

    /// Keeps the first loss: what follows is a consequence.
    fn note_loss(&mut self, reason: ConnectionLoss) {
        let outstanding = self.outstanding();
        self.loss.get_or_insert_with(|| LostConnection { reason, outstanding, at: Instant::now() });
    }

    /// Returns true if the end of the connection is no loss.
    pub(crate) fn is_leaving(&self) -> bool {
        self.mode == Mode::Leaving
    }
}

/// The requests outstanding on one connection. Their number is bounded by the depth.
#[derive(Debug)]
pub(crate) struct ConnectionFlight {
    state: Mutex<State>,
    /// A slot was freed, or the mode changed.
    freed: Condvar,
    /// The mode changed.
    halted: Condvar,
}

impl ConnectionFlight {
    /// Room for `depth` requests, at most 65 536.
    pub(crate) fn new(depth: u32) -> Self {
        let depth = depth as usize;
        assert!(depth <= 1 << SLOT_BITS, "a cookie names a slot in {SLOT_BITS} bits");
        let state = State {
            entries: vec![None; depth],
            free: (0..depth).map(|index| RequestSlot { index, freed: None }).collect(),
            outstanding: 0,
            launched: 0,
            mode: Mode::Running,
            loss: None,
            sender_waits: false,
        };
        Self { state: Mutex::new(state), freed: Condvar::new(), halted: Condvar::new() }
    }

    /// Every change is complete before the lock is released, so that a panic elsewhere leaves nothing half
    /// done.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot. `None` when the load was halted, or `until` has passed.
    pub(crate) fn claim(&self, until: Option<Instant>) -> Option<RequestSlot> {
        let mut state = self.lock();
        loop {
            // A late slot is none, too: a backlog must not prolong the run.
            if state.mode != Mode::Running || until.is_some_and(|until| Instant::now() >= until) {
                return None;
            }
            if let Some(slot) = state.free.pop_front() {
                return Some(slot);
            }
            state = self.wait_for_answers(state, until)?;
        }
    }

    /// Waits until no request is outstanding; at most until `deadline`, or the loss of the connection.
    pub(crate) fn drain(&self, deadline: Instant) {
        let mut state = self.lock();
        while state.outstanding() > 0 && state.mode != Mode::Lost {
            match self.wait_for_answers(state, Some(deadline)) {
                Some(woken) => state = woken,
                None => return,
            }
        }
    }

    fn wait_for_answers<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        until: Option<Instant>,
    ) -> Option<MutexGuard<'a, State>> {
        state.sender_waits = true;
        let mut state = wait(&self.freed, state, until)?;
        state.sender_waits = false;
        Some(state)
    }

    /// Gives back a slot that is not needed.
    pub(crate) fn release(&self, slot: RequestSlot) {
        self.lock().free.push_back(slot);
    }

    /// Notes a request as outstanding, and yields its cookie.
    pub(crate) fn launch(&self, slot: RequestSlot, request: OutstandingRequest) -> u64 {
        let mut state = self.lock();
        let cookie = (state.launched << SLOT_BITS) | slot.index as u64;
        state.launched += 1;
        state.outstanding += 1;
        state.entries[slot.index] = Some(Entry { cookie, request, received: 0, failed: None });
        cookie
    }

    /// Wakes the sender if it waits for answers. Call it after the lock is released.
    pub(crate) fn wake_sender(&self, state: MutexGuard<'_, State>) {
        let waits = state.sender_waits;
        drop(state);
        if waits {
            self.freed.notify_one();
        }
    }

    /// Sleeps until a moment; `false` when the load was halted before.
    pub(crate) fn sleep_until(&self, moment: Instant) -> bool {
        let mut state = self.lock();
        loop {
            if state.mode != Mode::Running {
                return false;
            }
            match wait(&self.halted, state, Some(moment)) {
                Some(woken) => state = woken,
                None => return true,
            }
        }
    }

    /// No new requests from now on.
    pub(crate) fn stop(&self) {
        self.change(|state| {
            if state.mode == Mode::Running {
                state.mode = Mode::Stopped;
            }
        });
    }

    /// Returns true if no new requests may be sent.
    pub(crate) fn is_halted(&self) -> bool {
        self.lock().mode != Mode::Running
    }

    /// The connection is about to be closed; says how many requests stay without an answer.
    pub(crate) fn leave(&self) -> usize {
        self.change(|state| {
            if state.mode != Mode::Lost {
                state.mode = Mode::Leaving;
            }
            state.outstanding()
        })
    }

    /// The connection is gone; the first loss counts, and none does after the goodbye.
    pub(crate) fn lose(&self, loss: ConnectionLoss) {
        self.change(|state| {
            if matches!(state.mode, Mode::Running | Mode::Stopped) {
                state.mode = Mode::Lost;
                state.note_loss(loss);
            }
        });
    }

    /// The server is about to end: no new requests from now on, and the load counts as cut short.
    pub(crate) fn dismiss(&self) {
        self.change(|state| {
            if matches!(state.mode, Mode::Running | Mode::Stopped) {
                state.mode = Mode::Stopped;
                state.note_loss(ConnectionLoss::ShuttingDown);
            }
        });
    }

    /// Takes the loss of the connection.
    pub(crate) fn take_loss(&self) -> Option<LostConnection> {
        self.lock().loss.take()
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut self.lock());
        self.freed.notify_all();
        self.halted.notify_all();
        result
    }
}

/// Waits on a condition; `None` when `until` has passed.
fn wait<'a>(
    condition: &Condvar,
    state: MutexGuard<'a, State>,
    until: Option<Instant>,
) -> Option<MutexGuard<'a, State>> {
    let Some(until) = until else {
        return Some(condition.wait(state).unwrap_or_else(PoisonError::into_inner));
    };
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return None;
    }
    Some(condition.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(length: u32) -> OutstandingRequest {
        OutstandingRequest { read: true, offset: 0, length, due: Instant::now() }
    }

    #[test]
    fn the_depth_bounds_what_is_outstanding() {
        let flight = ConnectionFlight::new(2);
        let soon = || Some(Instant::now() + std::time::Duration::from_millis(20));
        let (first, second) = (flight.claim(None).unwrap(), flight.claim(None).unwrap());
        assert!(flight.claim(soon()).is_none());
        assert_eq!(flight.lock().outstanding(), 0, "room is taken, nothing is sent");
        let cookie = flight.launch(first, read(8));
        flight.launch(second, read(8));
        flight.lock().received(cookie, 8);
        let landed = flight.lock().land(cookie, Instant::now()).unwrap().unwrap();
        assert_eq!(landed.result, Ok(()));
        assert_eq!(flight.lock().outstanding(), 1);
        assert!(flight.claim(Some(Instant::now())).is_none(), "the time is over, slot or no slot");
        assert!(flight.claim(None).unwrap().freed.is_some());
    }

    #[test]
    fn a_second_answer_finds_no_request() {
        let flight = ConnectionFlight::new(1);
        let slot = flight.claim(None).unwrap();
        let cookie = flight.launch(slot, OutstandingRequest { read: false, ..read(8) });
        assert!(flight.lock().land(cookie, Instant::now()).unwrap().is_some());
        let slot = flight.claim(None).unwrap();
        let next = flight.launch(slot, read(8));
        assert_ne!(next, cookie);
        assert!(flight.lock().land(cookie, Instant::now()).unwrap().is_none());
        assert_eq!(flight.lock().pending(cookie), None);
        assert_eq!(flight.lock().pending(next), Some(PendingReply::Read { offset: 0, length: 8 }));
        assert_eq!(flight.lock().pending(u64::MAX), None);
    }

    #[test]
    fn a_read_must_arrive_whole_unless_it_failed() {
        let flight = ConnectionFlight::new(2);
        let cookie = flight.launch(flight.claim(None).unwrap(), read(8));
        flight.lock().received(cookie, 7);
        assert!(matches!(
            flight.lock().land(cookie, Instant::now()),
            Err(ConnectionLoss::ShortRead { wanted: 8, received: 7 })
        ));
        flight.lock().failed(cookie, Errno::Io);
        let landed = flight.lock().land(cookie, Instant::now()).unwrap().unwrap();
        assert_eq!(landed.result, Err(Errno::Io));
    }

    #[test]
    fn a_halt_ends_every_wait() {
        let flight = ConnectionFlight::new(1);
        flight.launch(flight.claim(None).unwrap(), read(8));
        flight.stop();
        assert!(flight.claim(None).is_none());
        assert!(!flight.sleep_until(Instant::now() + std::time::Duration::from_secs(3600)));
        flight.lose(ConnectionLoss::Closed);
        flight.drain(Instant::now() + std::time::Duration::from_secs(3600));
        let loss = flight.take_loss();
        assert!(
            matches!(loss, Some(LostConnection { reason: ConnectionLoss::Closed, outstanding: 1, .. })),
            "{loss:?}"
        );
    }

    #[test]
    fn a_server_that_shuts_down_is_the_reason_even_if_it_then_closes() {
        let flight = ConnectionFlight::new(1);
        flight.dismiss();
        assert!(flight.claim(None).is_none());
        flight.lose(ConnectionLoss::Closed);
        let loss = flight.take_loss();
        assert!(
            matches!(loss, Some(LostConnection { reason: ConnectionLoss::ShuttingDown, outstanding: 0, .. })),
            "{loss:?}"
        );
    }

    #[test]
    fn nothing_is_lost_after_the_goodbye() {
        let flight = ConnectionFlight::new(1);
        assert_eq!(flight.leave(), 0);
        flight.lose(ConnectionLoss::Closed);
        assert!(flight.take_loss().is_none());
        assert!(flight.lock().is_leaving());
    }
}
