//! The gateways of the world, from start to end, and the connections between them.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketFlags, SocketType, recv, shutdown, socketpair, sockopt,
};
use tidegate_nbd::transmission::MessageStyle;
use tidegate_nbd::{CheckedOperation, ExportGeometry, SessionTerms, TransmissionFlags};
use tidegate_sockets::aside::PeerSocket;

use super::{Broken, GatewayEnd, OperationKey, SOCKET, SimulatedWorld, WorldConnection, WorldEvent};
use crate::ring::{FileAction, RingToken};
use crate::upstream::{UpstreamConnection, UpstreamError};
use crate::worker::door::WorkerCommand;
use crate::worker::simulation::gateway::{LiveGateway, SimulatedVolume};
use crate::worker::simulation::ring::SimulatedAction;

impl SimulatedWorld {
    pub(super) fn start(&mut self, place: usize) {
        let (size, direct, now) = (self.disk.size(), self.direct, self.now);
        let volume = if place == 0 {
            SimulatedVolume::Disk { size, direct }
        } else {
            self.places[place].life += 1;
            match self.connect(Some(place), place - 1) {
                Some((socket, terms)) => {
                    SimulatedVolume::Upstream(UpstreamConnection { socket: self.given(&socket), terms })
                }
                None => return self.schedule(Duration::from_millis(20), WorldEvent::Start { place }),
            }
        };
        let at = &mut self.places[place];
        at.life += 1;
        let live = at.live.insert(LiveGateway::start(&at.rules, volume, now));
        let suspended = std::mem::take(&mut at.suspended);
        let count = suspended.len();
        suspended.into_iter().for_each(|session| live.resume(session));
        self.log(format_args!("gateway {place} starts, and resumes {count} sessions"));
    }

    pub(super) fn turn(&mut self, place: usize) -> Result<(), Broken> {
        let (now, life) = (self.now, self.places[place].life);
        let Some(live) = self.places[place].live.as_mut() else { return Ok(()) };
        live.scheduled = false;
        let ended = live.worker.turn(now);
        let timeout = live.worker.timeout();
        // A turn takes some time.
        live.due = timeout.map(|timeout| now + timeout.max(Duration::from_micros(1)));
        if live.worker.memory.used() > live.worker.config.limits.pool_bytes.get() {
            return Err(format!("gateway {place} uses {} bytes", live.worker.memory.used()));
        }
        if let Some(ended) = ended {
            self.places[place].suspended = ended.suspended;
            self.end(place, GatewayEnd::Drained);
            return Ok(());
        }
        let ring = live.worker.ring.simulated();
        let (connects, fresh) = (std::mem::take(&mut ring.connects), std::mem::take(&mut ring.fresh));
        for export in connects {
            self.schedule_soon(WorldEvent::Connect { place, life, export });
        }
        for key in fresh {
            self.adopt(OperationKey { place, life, key })?;
        }
        Ok(())
    }

    /// Takes an operation that a worker has submitted.
    pub(super) fn adopt(&mut self, at: OperationKey) -> Result<(), Broken> {
        let stamp = self.disk.stamp();
        let Some(live) = self.live(at.place, at.life) else { return Ok(()) };
        let operation = &mut live.worker.ring.simulated().operations[at.key];
        let SimulatedAction::File(action) = operation.action else { return Ok(()) };
        (operation.stamp, operation.scheduled) = (stamp, true);
        if let (RingToken::Request { request }, FileAction::Write { .. }) = (operation.token, action) {
            keeps_order(live, request)?;
        }
        let syncs = matches!(action, FileAction::Sync { .. });
        if syncs && self.faulty && self.faults_left > 0 && self.dice.hits(60) {
            // The moment at which it matters most.
            self.faults_left -= 1;
            self.schedule_soon(WorldEvent::PowerLoss);
        }
        let hang = self.faulty && self.dice.hits(self.rates.hang);
        let slow = self.now < self.slow_until && self.dice.hits(500);
        let delay = if hang {
            Duration::from_secs(self.dice.between(1, 9))
        } else if slow {
            Duration::from_millis(self.dice.between(20, 800))
        } else {
            self.dice.delay()
        };
        self.schedule(delay, WorldEvent::Execute(at));
        Ok(())
    }

    /// Ends a gateway at once, and plans the start of the next one.
    pub(super) fn end(&mut self, place: usize, end: GatewayEnd) {
        if self.places[place].live.is_none() {
            return;
        }
        let now = self.model.now();
        self.log(format_args!("gateway {place} ends: {end:?} [{now}]"));
        self.undisturbed = false;
        if place == 0 {
            let life = self.places[0].life;
            let live = self.places[0].live.as_mut();
            let left =
                live.map(|live| live.worker.ring.simulated().operations.iter().map(|(key, _)| key).collect());
            let left: Vec<usize> = left.unwrap_or_default();
            for key in left {
                // The kernel has begun some of it.
                if self.dice.hits(500) {
                    self.carry_out(OperationKey { place, life, key }, false);
                }
            }
            let power = end == GatewayEnd::PowerLost;
            if power {
                self.disk.lose_power(&mut self.dice);
            }
            if power || self.report_taken {
                self.model.storage_died(power);
            }
            (self.report_taken, self.reported) = (false, None);
        }
        for at in 0..self.connections.len() {
            let WorldConnection { server, caller, known, .. } = self.connections[at];
            let suspended = &self.places[place].suspended;
            let is_kept = suspended.iter().any(|session| session.socket.as_raw_fd() == known[1]);
            if caller == Some(place) || (server == place && !is_kept) {
                self.break_connection(at);
            }
        }
        self.places[place].live = None;
        if self.ending {
            return;
        }
        let pause = match self.dice.below(10) {
            _ if self.rates.are_bridged() => self.dice.between(100, 50_000),
            0 if self.faulty => self.dice.between(1_000_000, 45_000_000),
            0..4 => self.dice.between(50_000, 3_000_000),
            _ => self.dice.between(100, 50_000),
        };
        self.schedule(Duration::from_micros(pause), WorldEvent::Start { place });
    }

    /// Connects to a gateway, if one runs. Returns the caller's end, and what was negotiated.
    pub(super) fn connect(
        &mut self,
        caller: Option<usize>,
        server: usize,
    ) -> Option<(Arc<PeerSocket>, SessionTerms)> {
        self.places[server].live.as_ref()?;
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        for end in [&ours, &theirs] {
            sockopt::set_socket_send_buffer_size(end, SOCKET).unwrap();
        }
        let [ours, theirs] = [ours, theirs].map(|end| Arc::new(PeerSocket::to_this_process(end)));
        let style =
            [MessageStyle::Simple, MessageStyle::Structured, MessageStyle::Extended][self.dice.below(3)];
        let hidden = caller.map_or(TransmissionFlags::NONE, |place| self.places[place].hidden);
        let live = self.places[server].live.as_ref()?;
        let hears_shutdown = caller.is_some();
        let terms = SessionTerms { style, hears_shutdown, ..SessionTerms::simple(live.geometry()) };
        let peer = caller.map_or("a client".into(), |place| format!("gateway {place}"));
        live.open(Arc::clone(&theirs), terms, peer);
        let known = [ours.as_raw_fd(), theirs.as_raw_fd()];
        let ends = [Arc::clone(&ours), theirs];
        self.connections.push(WorldConnection { server, caller, known, ends });
        let told = terms.geometry.flags.with(TransmissionFlags::HAS_FLAGS).without(hidden);
        let geometry = ExportGeometry { flags: told, ..terms.geometry };
        Some((ours, SessionTerms { geometry, ..terms }))
    }

    /// Another descriptor of the last connection's caller, for a gateway to own.
    pub(super) fn given(&mut self, socket: &PeerSocket) -> PeerSocket {
        let given = socket.try_clone().unwrap();
        if let Some(connection) = self.connections.last_mut() {
            connection.known[0] = given.as_raw_fd();
        }
        given
    }

    pub(super) fn connect_upstream(&mut self, place: usize, life: u64, export: u64) {
        if self.live(place, life).is_none() {
            return;
        }
        let refused = self.faulty && self.dice.hits(100);
        let connected = if refused { None } else { self.connect(Some(place), place - 1) };
        self.log(format_args!("gateway {place} connects: {}", connected.is_some()));
        let outcome = match connected {
            Some((socket, terms)) => Ok(UpstreamConnection { socket: self.given(&socket), terms }),
            None => Err(UpstreamError::Closed),
        };
        if let Some(live) = self.live(place, life) {
            live.door.send(WorkerCommand::Connected { export, outcome: Box::new(outcome) });
        }
    }

    /// Ends a connection, with or without what is on its way.
    pub(super) fn break_connection(&mut self, at: usize) {
        let ends = self.connections[at].ends.clone();
        for end in &ends {
            if self.dice.hits(500) {
                let mut lost = vec![0; 2 * SOCKET];
                // Nothing to receive is as good.
                let _ = recv(end, &mut lost[..], RecvFlags::DONTWAIT);
            }
        }
        // Fails only when it has ended already.
        let _ = shutdown(&ends[0], Shutdown::Both);
        let _ = shutdown(&ends[1], Shutdown::Both);
    }
}

/// Writes of a session that overlap go to the disk in the order in which they came.
fn keeps_order(live: &mut LiveGateway, request: usize) -> Result<(), Broken> {
    let range = |operation: &CheckedOperation| match *operation {
        CheckedOperation::Write { offset, length, .. } => Some(offset..offset + u64::from(length)),
        _ => None,
    };
    let this = &live.worker.requests[request];
    let Some(written) = range(&this.operation) else { return Ok(()) };
    live.started.insert((this.session, this.cookie));
    let overtaken = live.worker.requests.iter().find(|(_, other)| {
        other.session == this.session
            && other.cookie < this.cookie
            && !live.started.contains(&(other.session, other.cookie))
            && range(&other.operation)
                .is_some_and(|range| range.start < written.end && written.start < range.end)
    });
    match overtaken {
        Some((_, other)) => Err(format!(
            "write {} goes to the disk before write {}, which it overlaps",
            this.cookie, other.cookie
        )),
        None => Ok(()),
    }
}
