//! The time after faults: everything must end, and be as it was promised.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::{Broken, ENDS_WITHIN, SimulatedWorld};
use crate::backend::ExportVolume;
use crate::worker::door::SessionFate;
use crate::worker::{HOUSEKEEPING, KERNEL_GRACE};

impl SimulatedWorld {
    /// Waits until everything has ended.
    pub(super) fn settle(&mut self) -> Result<(), Broken> {
        let began = self.now;
        while let Some(left) = self.left_over() {
            if self.now.saturating_since(began) > ENDS_WITHIN {
                return Err(format!("{} s after the last fault: {left}", ENDS_WITHIN.as_secs()));
            }
            self.step()?;
        }
        self.model.rest();
        self.connections.retain(|connection| {
            let mut fd = [PollFd::new(&connection.ends[0], PollFlags::empty())];
            let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut fd, Some(&none)).unwrap();
            fd[0].revents().is_empty()
        });
        for place in &mut self.places {
            place.live.iter_mut().for_each(|live| live.started.clear());
        }
        let now = self.model.now();
        self.log(format_args!("everything is at rest [{now}]"));
        Ok(())
    }

    /// Returns the first thing that has not ended.
    pub(super) fn left_over(&mut self) -> Option<String> {
        for (number, client) in self.clients.iter().enumerate() {
            let Some(session) = &client.session else { continue };
            if client.scheduled || session.has_to_send() || !session.pending.is_empty() {
                let left: Vec<&u64> = session.pending.keys().collect();
                return Some(format!("client {number} waits for {left:?}"));
            }
        }
        let mut callers = 0;
        for place in (0..self.places.len()).rev() {
            let Some(live) = &mut self.places[place].live else {
                return Some(format!("gateway {place} is down"));
            };
            if live.worker.ring.simulated().operations.iter().any(|(_, operation)| operation.scheduled) {
                return Some(format!("gateway {place} has operations under way"));
            }
            let clients =
                self.clients.iter().filter(|client| client.gateway == place && client.session.is_some());
            let expected = callers + clients.count();
            if live.sessions() != expected {
                let (found, sessions) = (live.sessions(), live.describe_sessions());
                return Some(format!("gateway {place} has {found} sessions, not {expected}:{sessions}"));
            }
            if !live.is_at_rest() {
                return Some(format!("gateway {place} is not at rest"));
            }
            callers = (live.worker.exports.iter())
                .map(|(_, export)| match &export.volume {
                    ExportVolume::Upstream(upstream) => upstream.snapshot().connections,
                    _ => 0,
                })
                .sum();
        }
        None
    }

    /// Drains every gateway, the one before all others first. Each must come to its end.
    pub(super) fn shut_down(&mut self) -> Result<(), Broken> {
        (self.ending, self.undisturbed) = (true, false);
        for place in (0..self.places.len()).rev() {
            let deadline = self.now + Duration::from_secs(1);
            if let Some(live) = &self.places[place].live {
                live.drain(deadline, SessionFate::Close);
            }
            while self.places[place].live.is_some() {
                if self.now > deadline + KERNEL_GRACE + HOUSEKEEPING {
                    return Err(format!("gateway {place} does not end, although it is drained"));
                }
                self.step()?;
            }
        }
        Ok(())
    }

    /// Reads everything, without faults.
    pub(super) fn verify(&mut self) -> Result<(), Broken> {
        let client = self.dice.below(self.clients.len());
        let cells = self.disk.size() / self.cell;
        let began = self.now;
        let mut first = 0;
        self.connecting = true;
        while first < cells {
            if self.now.saturating_since(began) > ENDS_WITHIN {
                return Err("the volume cannot be read, although there are no faults any more".into());
            }
            match &self.clients[client].session {
                None => self.wake_client(client),
                Some(session) if session.pending.is_empty() => {
                    let end = cells.min(first + 64);
                    self.read(client, first..end);
                    self.wake_client(client);
                    while self.clients[client]
                        .session
                        .as_ref()
                        .is_some_and(|session| !session.pending.is_empty())
                    {
                        self.step()?;
                    }
                    if self.clients[client].session.is_some() && !self.read_failed {
                        first = end;
                    }
                    continue;
                }
                Some(_) => {}
            }
            self.step()?;
        }
        self.connecting = false;
        self.flush(client);
        self.wake_client(client);
        self.settle()
    }
}
