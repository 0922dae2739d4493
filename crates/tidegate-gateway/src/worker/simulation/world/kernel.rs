//! The kernel of the world: it carries out what the workers submit, on sockets and on the disk.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tidegate_sockets::aside::PeerSocket;

use super::{OperationKey, SOCKET, SimulatedWorld, WorldEvent};
use crate::ring::{FileAction, LentMemory, RingToken};
use crate::worker::simulation::ring::SimulatedAction;

impl SimulatedWorld {
    pub(super) fn socket_of(&self, fd: RawFd, server: bool) -> Option<&Arc<PeerSocket>> {
        let end = usize::from(server);
        let connection = self.connections.iter().rev().find(|connection| connection.known[end] == fd)?;
        Some(&connection.ends[end])
    }

    /// Plans what the sockets are ready for.
    pub(super) fn poll_sockets(&mut self) {
        let mut waiting = Vec::new();
        for place in 0..self.places.len() {
            let life = self.places[place].life;
            let Some(live) = self.places[place].live.as_mut() else { continue };
            for (key, operation) in &live.worker.ring.simulated().operations {
                let flags = match operation.action {
                    SimulatedAction::Receive { .. } => PollFlags::IN,
                    SimulatedAction::Send(_) => PollFlags::OUT,
                    SimulatedAction::File(_) => continue,
                };
                if !operation.scheduled {
                    let event = WorldEvent::Transfer(OperationKey { place, life, key });
                    waiting.push((event, operation.fd, is_servers(operation.token), flags));
                }
            }
        }
        let operations = waiting.iter().filter_map(|(event, fd, server, flags)| {
            Some((*event, Arc::clone(self.socket_of(*fd, *server)?), *flags))
        });
        let mut sockets: Vec<(WorldEvent, Arc<PeerSocket>, PollFlags)> = operations.collect();
        for (client, entry) in self.clients.iter().enumerate() {
            if let Some(session) = entry.session.as_ref().filter(|_| !entry.scheduled) {
                let out = if session.has_to_send() { PollFlags::OUT } else { PollFlags::empty() };
                sockets.push((WorldEvent::Client(client), Arc::clone(&session.socket), PollFlags::IN | out));
            }
        }
        let mut fds: Vec<PollFd<'_>> =
            sockets.iter().map(|(_, socket, flags)| PollFd::new(socket, *flags)).collect();
        let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&none)).unwrap();
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for ((event, _, _), _) in sockets.iter().zip(ready).filter(|(_, ready)| *ready) {
            match *event {
                WorldEvent::Transfer(at) => {
                    let Some(live) = self.live(at.place, at.life) else { continue };
                    live.worker.ring.simulated().operations[at.key].scheduled = true;
                    self.schedule_soon(*event);
                }
                WorldEvent::Client(client) => self.wake_client(client),
                _ => unreachable!("only these have sockets"),
            }
        }
    }

    /// Moves some bytes between a socket and a worker.
    pub(super) fn transfer(&mut self, at: OperationKey) {
        let Some(live) = self.live(at.place, at.life) else { return };
        // One that was cancelled is gone, and another may have its key.
        let operation = live.worker.ring.simulated().operations.get(at.key);
        let Some(operation) = operation.filter(|operation| operation.is_on_socket()) else { return };
        let (fd, server) = (operation.fd, is_servers(operation.token));
        let Some(socket) = self.socket_of(fd, server).map(Arc::clone) else { return };
        let most = match self.dice.below(8) {
            0 => self.dice.between(1, 40),
            1..4 => self.dice.between(1, 4_000),
            _ => SOCKET as u64,
        } as usize;
        let impatient = self.dice.hits(20);
        let Some(live) = self.live(at.place, at.life) else { return };
        let ring = live.worker.ring.simulated();
        let operation = &mut ring.operations[at.key];
        operation.scheduled = false;
        let moved = match (&operation.action, &mut operation.held) {
            (SimulatedAction::Send(bytes), _) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                send(&socket, &bytes[..bytes.len().min(most)], flags)
            }
            (SimulatedAction::Receive { part, .. }, LentMemory::Buffer(buffer)) => {
                let place = &mut buffer[part.start + operation.moved..part.start + part.length];
                let most = place.len().min(most);
                recv(&socket, &mut place[..most], RecvFlags::DONTWAIT).map(|(_, count)| count)
            }
            (action, memory) => unreachable!("{action:?} does not use {memory:?}"),
        };
        let result = match moved {
            Err(rustix::io::Errno::AGAIN) => return,
            Ok(count) => {
                operation.moved += count;
                let wants_more = match operation.action {
                    SimulatedAction::Receive { part, whole } => whole && operation.moved < part.length,
                    _ => false,
                };
                if count > 0 && wants_more && !impatient {
                    return;
                }
                Ok(operation.moved)
            }
            Err(_) if operation.moved > 0 => Ok(operation.moved),
            Err(error) => Err(io::Error::from(error)),
        };
        let token = operation.token;
        self.log(format_args!("gateway {} {token:?}: {result:?}", at.place));
        if let Some(live) = self.live(at.place, at.life) {
            live.worker.ring.simulated().complete(at.key, result);
        }
    }

    pub(super) fn execute(&mut self, at: OperationKey) {
        if self.live(at.place, at.life).is_none() {
            return;
        }
        self.carry_out(at, self.faulty);
        self.schedule_soon(WorldEvent::Complete(at));
    }

    /// Carries out an operation on the disk, and keeps its result.
    pub(super) fn carry_out(&mut self, at: OperationKey, faulty: bool) {
        let error = faulty && self.dice.hits(self.rates.error);
        let short = faulty && self.dice.hits(self.rates.short);
        let interrupted = faulty && self.dice.hits(2);
        let part_done = self.dice.between(1, 1000) as usize;
        let no_space = self.dice.hits(200);
        let (cell, can_mark) = (self.cell, self.can_mark);
        let place = &mut self.places[at.place];
        let Some(live) = place.live.as_mut() else { return };
        let operation = &mut live.worker.ring.simulated().operations[at.key];
        let (SimulatedAction::File(action), None) = (&operation.action, &operation.result) else { return };
        // Never less than a cell: clients tell cells that are torn. Nor than a block.
        let unit = cell.max(self.direct.unwrap_or(1) as usize);
        let portion = |length: usize, all: bool| {
            let units = length / unit;
            if all || units < 2 { length } else { (1 + part_done % (units - 1)) * unit }
        };
        let block = self.direct.unwrap_or(1) as usize;
        let is_aligned = |offset: u64, length: usize| (offset as usize | length).is_multiple_of(block);
        let failure = |errno: i32| Err(io::Error::from_raw_os_error(errno));
        let result = match (*action, &mut operation.held) {
            _ if interrupted && !matches!(action, FileAction::Sync { .. } | FileAction::Allocate { .. }) => {
                failure(libc::EINTR)
            }
            (FileAction::Read { part, offset, .. } | FileAction::Write { part, offset, .. }, _)
                if !(is_aligned(offset, part.length) && is_aligned(0, part.start)) =>
            {
                failure(libc::EINVAL)
            }
            (FileAction::Read { .. }, _) if error => failure(libc::EIO),
            (FileAction::Read { part, offset, .. }, LentMemory::Buffer(buffer)) => {
                let length = portion(part.length, !short);
                let offset = offset as usize;
                buffer[part.start..part.start + length]
                    .copy_from_slice(self.disk.read(offset..offset + length));
                Ok(length)
            }
            (FileAction::Write { part, offset, durable }, LentMemory::Buffer(buffer)) => {
                let length = portion(part.length, !(short || error));
                let offset = offset as usize;
                self.disk.write(offset, &buffer[part.start..part.start + length]);
                let stamp = self.disk.stamp();
                if error {
                    // Of one that also syncs, it may be the report.
                    self.report_taken |= durable;
                    failure(if no_space { libc::ENOSPC } else { libc::EIO })
                } else if durable && !self.disk.sync(offset..offset + length, stamp) {
                    self.report_taken = true;
                    failure(libc::EIO)
                } else {
                    Ok(length)
                }
            }
            (FileAction::Sync { range }, _) => {
                let (start, length) = (range.offset as usize, range.length as usize);
                let end = if length == 0 { self.disk.size() } else { start + length };
                if self.disk.sync(start..end, operation.stamp) {
                    Ok(0)
                } else {
                    self.report_taken = true;
                    failure(libc::EIO)
                }
            }
            (FileAction::Allocate { .. }, _) if !can_mark => failure(libc::EOPNOTSUPP),
            (FileAction::Allocate { offset, length, .. }, _) if !is_aligned(offset, length as usize) => {
                failure(libc::EINVAL)
            }
            (FileAction::Allocate { .. }, _) if error => failure(libc::EIO),
            (FileAction::Allocate { offset, length, .. }, _) => {
                self.disk.write(offset as usize, &vec![0; length as usize]);
                Ok(0)
            }
            (action, memory) => unreachable!("{action:?} does not use {memory:?}"),
        };
        let text = format!("disk: {:?} {action:?}: {result:?}", operation.token);
        operation.result = Some(result);
        self.log(format_args!("{text}"));
    }

    pub(super) fn complete(&mut self, at: OperationKey) {
        let report_taken = self.report_taken;
        let Some(live) = self.live(at.place, at.life) else { return };
        let ring = live.worker.ring.simulated();
        let operation = &mut ring.operations[at.key];
        let syncs = matches!(
            operation.action,
            SimulatedAction::File(FileAction::Sync { .. } | FileAction::Write { durable: true, .. })
        );
        let Some(result) = operation.result.take() else { return };
        let is_report = syncs
            && report_taken
            && result.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        ring.complete(at.key, result);
        if is_report && self.reported.is_none() {
            self.reported = Some(self.model.tick());
        }
    }
}

/// Returns true if an operation is on the server's end of a connection.
fn is_servers(token: RingToken) -> bool {
    matches!(token, RingToken::Received { .. } | RingToken::Sent { .. })
}
