//! The world around the simulated gateways: events in the order of virtual time, and faults.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown, socketpair,
    sockopt,
};
use tidegate_nbd::transmission::{MessageStyle, NbdCommand, ReadCoverage};
use tidegate_nbd::{CheckedOperation, CommandFlags, Errno, ExportGeometry, SessionTerms, TransmissionFlags};
use tidegate_units::Instant;

use super::{NOW, number};
use super::client::{
    ClientConnection, ClientReceived, ClientWork, FinishedRequest, NewRequest, SimulatedClient,
};
use super::disk::SimulatedDisk;
use super::gateway::{GatewayRules, LiveGateway, SimulatedVolume};
use super::model::{NewWrite, Ordinal, VolumeModel, fill};
use super::random::Dice;
use super::ring::SimulatedAction;
use crate::backend::ExportVolume;
use crate::ring::{FileAction, LentMemory, RingToken};
use crate::upstream::{UpstreamConnection, UpstreamError};
use crate::worker::door::WorkerCommand;
use crate::worker::{HOUSEKEEPING, KERNEL_GRACE};

/// The broken rule, in words.
pub(super) type Broken = String;

/// Once faults have ended, everything ends within this time: an outage that is bridged (30 s), a connection
/// that is silent (60 s), and some pauses.
const ENDS_WITHIN: Duration = Duration::from_secs(150);

/// Events of a run. A run has some thousands; one that goes round in circles has this many.
const MOST_EVENTS: u64 = 1_000_000;

/// Bytes that a socket of the simulation takes. Set, so that runs do not depend on the system's default.
const SOCKET: usize = 64 * 1024;

/// The events that a report shows, unless it is told otherwise.
const SHOWN: u64 = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorldEvent {
    /// An operation on the disk is carried out, or has been and completes.
    Execute(OperationKey),
    Complete(OperationKey),
    /// An operation on a socket moves some bytes.
    Transfer(OperationKey),
    /// A worker takes its turn.
    Turn { place: usize, life: u64 },
    /// An attempt to connect to the gateway behind ends.
    Connect { place: usize, life: u64, export: u64 },
    Start { place: usize },
    Client(usize),
    Fault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OperationKey {
    place: usize,
    life: u64,
    key: usize,
}

/// A place for a gateway, whether one runs there or not. The first has the disk, each other one the gateway
/// before it.
struct GatewayPlace {
    rules: GatewayRules,
    /// Abilities of the gateway behind that this one is not told of.
    hidden: TransmissionFlags,
    live: Option<LiveGateway>,
    /// Counts the gateways of this place.
    life: u64,
}

/// A connection to a gateway.
struct WorldConnection {
    server: usize,
    /// The place of the gateway that has connected; `None`: a client.
    caller: Option<usize>,
    /// The descriptors by which the caller and the server know it.
    known: [RawFd; 2],
    ends: [Arc<OwnedFd>; 2],
}

/// How often something goes wrong, of a thousand.
#[derive(Debug, Clone, Copy)]
struct FaultRates {
    error: u32,
    short: u32,
    hang: u32,
    disconnect: u32,
    /// The mean time between faults of whole parts, in microseconds; none without.
    interval: Option<u64>,
    /// Faults of whole parts in a round.
    most: u32,
}

impl FaultRates {
    /// Returns true if every outage ends soon, and no request meets more of them than are bridged. Reads then
    /// succeed, except at the gateway that is lost itself.
    fn are_bridged(&self) -> bool {
        self.error == 0 && self.hang == 0 && self.most <= 4
    }
}

/// What fails as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorldFault {
    Break,
    WriteBack,
    Kill(usize),
    Power,
    Drain(usize),
}

/// The way a gateway ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GatewayEnd {
    Killed,
    PowerLost,
    Drained,
}

pub(super) struct SimulatedWorld {
    seed: u64,
    dice: Dice,
    now: Instant,
    sequence: u64,
    events: BTreeMap<(Instant, u64), WorldEvent>,
    places: Vec<GatewayPlace>,
    clients: Vec<SimulatedClient>,
    connections: Vec<WorldConnection>,
    disk: SimulatedDisk,
    /// The alignment of direct I/O; `None` through the cache.
    direct: Option<u32>,
    /// The file system can mark ranges as zero.
    can_mark: bool,
    model: VolumeModel,
    cell: usize,
    rates: FaultRates,
    faulty: bool,
    faults_left: u32,
    /// The requests that clients have yet to make.
    quota: usize,
    /// Clients without a connection make one.
    connecting: bool,
    values: u64,
    /// The disk's report of lost data was consumed by the gateway that runs, and when it had arrived.
    report_taken: bool,
    reported: Option<Ordinal>,
    /// Nothing has gone wrong so far: no request may fail, and no connection may end.
    undisturbed: bool,
    /// Gateways that end are not started again.
    ending: bool,
    /// The last read of a verification has failed.
    read_failed: bool,
    history: VecDeque<String>,
    shown: usize,
    digest: u64,
}

impl SimulatedWorld {
    pub(super) fn new(seed: u64) -> Self {
        NOW.set(Some(Instant::ZERO));
        let mut dice = Dice::new(seed);
        let places = match dice.below(20) {
            0..7 => 1,
            7..17 => 2,
            _ => 3,
        };
        let direct = dice.hits(400).then_some(512);
        let cell = if direct.is_none() && dice.hits(300) { 128 } else { 512 };
        let size = (cell * dice.between(24, 400) as usize).next_multiple_of(4096);
        let clients = dice.between(1, 4) as usize;
        let many = 200;
        let rates = match dice.below(5) {
            0 => FaultRates { error: 0, short: 20, hang: 0, disconnect: 0, interval: None, most: 0 },
            1 => FaultRates { error: 0, short: 50, hang: 0, disconnect: 3, interval: Some(5_000), most: 4 },
            2 => FaultRates { error: 0, short: 50, hang: 1, disconnect: 3, interval: Some(30_000), most: many },
            3 => FaultRates { error: 6, short: 50, hang: 1, disconnect: 3, interval: Some(20_000), most: many },
            _ => FaultRates { error: 2, short: 50, hang: 2, disconnect: 10, interval: Some(8_000), most: many },
        };
        let mut world = Self {
            seed,
            now: Instant::ZERO,
            sequence: 0,
            events: BTreeMap::new(),
            places: Vec::new(),
            clients: Vec::new(),
            connections: Vec::new(),
            disk: SimulatedDisk::new(size),
            direct,
            can_mark: dice.hits(700),
            model: VolumeModel::new(size, cell),
            cell,
            rates,
            faulty: false,
            faults_left: 0,
            quota: 0,
            connecting: false,
            values: 0,
            report_taken: false,
            reported: None,
            undisturbed: rates.interval.is_none() && rates.error == 0,
            ending: false,
            read_failed: false,
            history: VecDeque::new(),
            shown: number("TIDEGATE_SHOWN").unwrap_or(SHOWN) as usize,
            digest: 0xcbf2_9ce4_8422_2325,
            dice,
        };
        for _ in 0..places {
            let dice = &mut world.dice;
            let depth = [1, 4, 32][dice.below(3)];
            let connections = [1, 4][dice.below(2)];
            let is_patient = rates.are_bridged() || dice.hits(500);
            let reconnect = Duration::from_secs(if is_patient { 30 } else { 1 });
            let timeout = Duration::from_secs(if is_patient { 60 } else { 2 });
            let mut hidden = TransmissionFlags::NONE;
            for flag in [TransmissionFlags::SEND_FUA, TransmissionFlags::CAN_MULTI_CONN] {
                if dice.hits(200) {
                    hidden = hidden.with(flag);
                }
            }
            let rules = GatewayRules::new(depth, connections, reconnect, timeout);
            world.places.push(GatewayPlace { rules, hidden, live: None, life: 0 });
        }
        for _ in 0..clients {
            let gateway = if world.dice.hits(600) { places - 1 } else { world.dice.below(places) };
            let depth = world.dice.between(1, 8) as usize;
            world.clients.push(SimulatedClient { gateway, depth, session: None, scheduled: false });
        }
        world
    }

    /// Runs some rounds: a time with faults, and one without, after which everything must have ended.
    ///
    /// # Errors
    /// The first broken rule.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        for place in 0..self.places.len() {
            self.schedule(Duration::ZERO, WorldEvent::Start { place });
        }
        for _ in 0..self.dice.between(1, 3) {
            self.quota = self.dice.between(20, 160) as usize;
            (self.faulty, self.connecting) = (true, true);
            for client in 0..self.clients.len() {
                self.wake_client(client);
            }
            self.faults_left = self.rates.most;
            if let Some(interval) = self.rates.interval {
                let first = self.dice.between(0, 2 * interval);
                self.schedule(Duration::from_micros(first), WorldEvent::Fault);
            }
            let began = self.now;
            while self.quota > 0 {
                self.step()?;
                if self.now.saturating_since(began) > 20 * ENDS_WITHIN {
                    return Err("clients cannot make their requests".into());
                }
            }
            (self.faulty, self.connecting) = (false, false);
            self.log(format_args!("faults end"));
            self.settle()?;
            self.verify()?;
            if self.dice.hits(500) {
                self.end(0, GatewayEnd::PowerLost);
                self.settle()?;
                self.verify()?;
            }
        }
        self.shut_down()
    }

    /// Returns a digest of everything that happened.
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    /// The broken rule, after the last events before it.
    pub(super) fn report(&self, broken: &str) -> String {
        let events: Vec<&str> = self.history.iter().map(String::as_str).collect();
        let backend = if self.direct.is_some() { "past the cache" } else { "through the cache" };
        format!(
            "{}\nseed {}: {} gateways, {} clients, {} bytes in cells of {} {backend}, {:?}\nBROKEN: {broken}",
            events.join("\n"),
            self.seed,
            self.places.len(),
            self.clients.len(),
            self.disk.size(),
            self.cell,
            self.rates
        )
    }

    fn log(&mut self, event: fmt::Arguments<'_>) {
        let line = format!("{:>12.6} {event}", self.now.as_secs_f64());
        for byte in line.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.history.len() == self.shown {
            self.history.pop_front();
        }
        self.history.push_back(line);
    }

    fn schedule(&mut self, delay: Duration, event: WorldEvent) {
        self.sequence += 1;
        self.events.insert((self.now + delay, self.sequence), event);
    }

    fn schedule_soon(&mut self, event: WorldEvent) {
        let delay = self.dice.delay();
        self.schedule(delay, event);
    }

    fn live(&mut self, place: usize, life: u64) -> Option<&mut LiveGateway> {
        let place = self.places.get_mut(place)?;
        place.live.as_mut().filter(|_| place.life == life)
    }

    /// Goes on to the next event.
    fn step(&mut self) -> Result<(), Broken> {
        self.plan_turns();
        let mut is_stirred = false;
        if self.sequence > MOST_EVENTS {
            return Err("it goes round in circles".into());
        }
        let due = self.places.iter().filter_map(|place| place.live.as_ref()?.due).min();
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let Some(next) = [due, event].into_iter().flatten().min() else {
            return Err("nothing will ever happen again".into());
        };
        self.now = self.now.max(next);
        NOW.set(Some(self.now));
        if event == Some(next)
            && let Some((_, event)) = self.events.pop_first()
        {
            is_stirred = !matches!(event, WorldEvent::Execute(_) | WorldEvent::Complete(_));
            self.happen(event)?;
        }
        for place in 0..self.places.len() {
            let now = self.now;
            let live = self.places[place].live.as_ref();
            if live.is_some_and(|live| live.due.is_some_and(|due| due <= now)) {
                is_stirred = true;
                self.turn(place)?;
            }
        }
        if is_stirred {
            self.poll_sockets();
        }
        Ok(())
    }

    /// Plans the turns of workers that have something to do.
    fn plan_turns(&mut self) {
        for place in 0..self.places.len() {
            let life = self.places[place].life;
            let Some(live) = self.places[place].live.as_mut() else { continue };
            if !live.scheduled && live.has_work() {
                live.scheduled = true;
                let delay = Duration::from_micros(self.dice.between(0, 30));
                self.schedule(delay, WorldEvent::Turn { place, life });
            }
        }
    }

    fn happen(&mut self, event: WorldEvent) -> Result<(), Broken> {
        match event {
            WorldEvent::Execute(at) => self.execute(at),
            WorldEvent::Complete(at) => self.complete(at),
            WorldEvent::Transfer(at) => self.transfer(at),
            WorldEvent::Turn { place, life } => {
                if self.live(place, life).is_some() {
                    return self.turn(place);
                }
            }
            WorldEvent::Connect { place, life, export } => self.connect_upstream(place, life, export),
            WorldEvent::Start { place } => self.start(place),
            WorldEvent::Client(client) => return self.client(client),
            WorldEvent::Fault => self.fault(),
        }
        Ok(())
    }

    // Gateways.

    fn start(&mut self, place: usize) {
        let (size, direct, now) = (self.disk.size(), self.direct, self.now);
        let volume = if place == 0 {
            SimulatedVolume::Disk { size, direct }
        } else {
            self.places[place].life += 1;
            match self.connect(Some(place), place - 1) {
                Some((socket, terms)) => {
                    SimulatedVolume::Upstream(UpstreamConnection { socket: self.given(socket), terms })
                }
                None => return self.schedule(Duration::from_millis(20), WorldEvent::Start { place }),
            }
        };
        let at = &mut self.places[place];
        at.life += 1;
        at.live = Some(LiveGateway::start(&at.rules, volume, now));
        self.log(format_args!("gateway {place} starts"));
    }

    fn turn(&mut self, place: usize) -> Result<(), Broken> {
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
        if ended.is_some() {
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
    fn adopt(&mut self, at: OperationKey) -> Result<(), Broken> {
        let stamp = self.disk.stamp();
        let Some(live) = self.live(at.place, at.life) else { return Ok(()) };
        let operation = &mut live.worker.ring.simulated().operations[at.key];
        let SimulatedAction::File(action) = operation.action else { return Ok(()) };
        (operation.stamp, operation.scheduled) = (stamp, true);
        if let (RingToken::Request { request }, FileAction::Write { .. }) = (operation.token, action) {
            keeps_order(live, request)?;
        }
        let hang = self.faulty && self.dice.hits(self.rates.hang);
        let delay = if hang { Duration::from_secs(self.dice.between(1, 9)) } else { self.dice.delay() };
        self.schedule(delay, WorldEvent::Execute(at));
        Ok(())
    }

    /// Ends a gateway at once, and plans the start of the next one.
    fn end(&mut self, place: usize, end: GatewayEnd) {
        if self.places[place].live.is_none() {
            return;
        }
        let now = self.model.now();
        self.log(format_args!("gateway {place} ends: {end:?} [{now}]"));
        self.undisturbed = false;
        if place == 0 {
            let life = self.places[0].life;
            let live = self.places[0].live.as_mut();
            let left = live.map(|live| live.worker.ring.simulated().operations.iter().map(|(key, _)| key).collect());
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
            if self.connections[at].server == place || self.connections[at].caller == Some(place) {
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

    // Connections.

    /// Connects to a gateway, if one runs. Returns the caller's end, and what was negotiated.
    fn connect(&mut self, caller: Option<usize>, server: usize) -> Option<(Arc<OwnedFd>, SessionTerms)> {
        self.places[server].live.as_ref()?;
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        for end in [&ours, &theirs] {
            sockopt::set_socket_send_buffer_size(end, SOCKET).unwrap();
        }
        let (ours, theirs) = (Arc::new(ours), Arc::new(theirs));
        let style =
            [MessageStyle::Simple, MessageStyle::Structured, MessageStyle::Extended][self.dice.below(3)];
        let hidden = caller.map_or(TransmissionFlags::NONE, |place| self.places[place].hidden);
        let live = self.places[server].live.as_ref()?;
        let terms = SessionTerms { geometry: live.geometry(), style, allocation: None };
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
    fn given(&mut self, socket: Arc<OwnedFd>) -> OwnedFd {
        let given = socket.try_clone().unwrap();
        if let Some(connection) = self.connections.last_mut() {
            connection.known[0] = given.as_raw_fd();
        }
        given
    }

    fn connect_upstream(&mut self, place: usize, life: u64, export: u64) {
        if self.live(place, life).is_none() {
            return;
        }
        let refused = self.faulty && self.dice.hits(100);
        let connected = if refused { None } else { self.connect(Some(place), place - 1) };
        self.log(format_args!("gateway {place} connects: {}", connected.is_some()));
        let outcome = match connected {
            Some((socket, terms)) => Ok(UpstreamConnection { socket: self.given(socket), terms }),
            None => Err(UpstreamError::Closed),
        };
        if let Some(live) = self.live(place, life) {
            live.door.send(WorkerCommand::Connected { export, outcome: Box::new(outcome) });
        }
    }

    /// Ends a connection, with or without what is on its way.
    fn break_connection(&mut self, at: usize) {
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

    fn socket_of(&self, fd: RawFd, server: bool) -> Option<&Arc<OwnedFd>> {
        let end = usize::from(server);
        let connection = self.connections.iter().rev().find(|connection| connection.known[end] == fd)?;
        Some(&connection.ends[end])
    }

    /// Plans what the sockets are ready for.
    fn poll_sockets(&mut self) {
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
        let mut sockets: Vec<(WorldEvent, Arc<OwnedFd>, PollFlags)> = operations.collect();
        for (client, entry) in self.clients.iter().enumerate() {
            if let Some(session) = entry.session.as_ref().filter(|_| !entry.scheduled) {
                let out = if session.has_to_send() { PollFlags::OUT } else { PollFlags::empty() };
                sockets.push((
                    WorldEvent::Client(client),
                    Arc::clone(&session.socket),
                    PollFlags::IN | out,
                ));
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
    fn transfer(&mut self, at: OperationKey) {
        let Some(live) = self.live(at.place, at.life) else { return };
        let operation = &live.worker.ring.simulated().operations[at.key];
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

    // The disk.

    fn execute(&mut self, at: OperationKey) {
        if self.live(at.place, at.life).is_none() {
            return;
        }
        self.carry_out(at, self.faulty);
        self.schedule_soon(WorldEvent::Complete(at));
    }

    /// Carries out an operation on the disk, and keeps its result.
    fn carry_out(&mut self, at: OperationKey, faulty: bool) {
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
        // Never less than a cell: clients tell cells that are torn.
        let portion = |length: usize, all: bool| {
            let cells = length / cell;
            if all || cells < 2 { length } else { (1 + part_done % (cells - 1)) * cell }
        };
        let failure = |errno: i32| Err(io::Error::from_raw_os_error(errno));
        let result = match (*action, &mut operation.held) {
            _ if interrupted && !matches!(action, FileAction::Sync { .. } | FileAction::Allocate { .. }) => {
                failure(libc::EINTR)
            }
            (FileAction::Read { .. }, _) if error => failure(libc::EIO),
            (FileAction::Read { part, offset, .. }, LentMemory::Buffer(buffer)) => {
                let length = portion(part.length, !short);
                let offset = offset as usize;
                buffer[part.start..part.start + length].copy_from_slice(self.disk.read(offset..offset + length));
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

    fn complete(&mut self, at: OperationKey) {
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

    // Faults.

    fn fault(&mut self) {
        let Some(interval) = self.rates.interval.filter(|_| self.faulty && self.faults_left > 0) else { return };
        self.faults_left -= 1;
        let place = self.dice.below(self.places.len());
        let fault = match self.dice.below(20) {
            0..8 => WorldFault::Break,
            8..11 if self.rates.error > 0 => WorldFault::WriteBack,
            8..15 => WorldFault::Kill(place),
            15..18 => WorldFault::Power,
            _ if self.rates.are_bridged() => WorldFault::Break,
            _ => WorldFault::Drain(place),
        };
        self.log(format_args!("{fault:?}"));
        match fault {
            WorldFault::Break if self.connections.is_empty() => {}
            WorldFault::Break => {
                let recent = self.connections.len().min(8);
                let at = self.connections.len() - 1 - self.dice.below(recent);
                self.break_connection(at);
            }
            WorldFault::WriteBack => {
                self.disk.fail_write_back(&mut self.dice);
            }
            WorldFault::Kill(place) => self.end(place, GatewayEnd::Killed),
            WorldFault::Power => self.end(0, GatewayEnd::PowerLost),
            WorldFault::Drain(place) => {
                let patience = Duration::from_millis(self.dice.between(0, 500));
                let deadline = self.now + patience;
                if let Some(live) = &self.places[place].live {
                    live.drain(deadline);
                }
            }
        }
        let next = self.dice.between(1, 2 * interval);
        self.schedule(Duration::from_micros(next), WorldEvent::Fault);
    }

    // Clients.

    fn wake_client(&mut self, client: usize) {
        if !std::mem::replace(&mut self.clients[client].scheduled, true) {
            self.schedule_soon(WorldEvent::Client(client));
        }
    }

    fn client(&mut self, client: usize) -> Result<(), Broken> {
        self.clients[client].scheduled = false;
        if self.clients[client].session.is_none() {
            if self.connecting {
                self.open_client(client);
                self.wake_client(client);
            }
            return Ok(());
        }
        let most = if self.dice.hits(200) { self.dice.between(1, 200) as usize } else { SOCKET };
        let mut finished = Vec::new();
        let Some(session) = &mut self.clients[client].session else { return Ok(()) };
        let received = session.receive(most, &mut finished)?;
        for finished in finished {
            self.conclude(client, finished)?;
        }
        let hangs_up = self.faulty && self.dice.hits(self.rates.disconnect);
        if received == ClientReceived::Closed || hangs_up {
            self.close_client(client, received == ClientReceived::Closed)?;
            if self.quota > 0 {
                self.wake_client(client);
            }
            return Ok(());
        }
        let depth = self.clients[client].depth;
        let pending = self.clients[client].session.as_ref().map_or(0, |session| session.pending.len());
        let leaving = self.clients[client].session.as_ref().is_some_and(|session| session.leaving);
        if self.quota > 0 && !leaving && pending < depth && self.dice.hits(700) {
            self.quota -= 1;
            self.make_request(client);
        }
        let leaves = self.faulty && !leaving && self.dice.hits(2);
        let most = if self.dice.hits(200) { self.dice.between(1, 200) as usize } else { SOCKET / 2 };
        if let Some(session) = &mut self.clients[client].session {
            if leaves {
                session.say_goodbye();
            }
            session.send(most);
            if self.quota > 0 {
                self.wake_client(client);
            }
        }
        Ok(())
    }

    fn open_client(&mut self, client: usize) {
        let server = self.clients[client].gateway;
        if let Some((socket, terms)) = self.connect(None, server) {
            let front = (server as u64) << 32 | self.places[server].life;
            let opened = self.model.tick();
            self.clients[client].session = Some(ClientConnection::new(socket, terms, front, opened));
            self.log(format_args!("client {client} connects to gateway {server}, {:?}", terms.style));
        }
    }

    fn close_client(&mut self, client: usize, closed: bool) -> Result<(), Broken> {
        let Some(session) = self.clients[client].session.take() else { return Ok(()) };
        session.hang_up();
        let left = session.pending.len();
        self.log(format_args!("client {client}: closed {closed}, {left} requests open"));
        if closed && self.undisturbed && !(session.leaving && left == 0) {
            return Err(format!("the gateway ends client {client}'s connection without a cause"));
        }
        Ok(())
    }

    fn make_request(&mut self, client: usize) {
        let cells = self.disk.size() / self.cell;
        let longest = match self.dice.below(10) {
            0..6 => 4,
            6..9 => 40,
            _ => cells,
        };
        let length = self.dice.between(1, longest.min(cells) as u64) as usize;
        let room = cells - length;
        let hot = if self.dice.hits(600) { room.min(12) } else { room };
        let first = self.dice.between(0, hot as u64) as usize;
        let range = first..first + length;
        let flags = if self.dice.hits(250) { CommandFlags::FUA } else { CommandFlags::NONE };
        let zeroing = [CommandFlags::NONE, CommandFlags::NO_HOLE, CommandFlags::FAST_ZERO][self.dice.below(3)];
        match self.dice.below(100) {
            0..28 => self.read(client, range),
            28..73 => self.change(client, NbdCommand::Write, range, flags),
            73..82 => self.change(client, NbdCommand::WriteZeroes, range, flags.with(zeroing)),
            82..86 => self.change(client, NbdCommand::Trim, range, flags),
            86..88 => self.cache(client, range),
            _ => self.flush(client),
        }
    }

    fn cache(&mut self, client: usize, cells: Range<usize>) {
        let Some(session) = &self.clients[client].session else { return };
        if !session.terms.geometry.flags.contains(TransmissionFlags::SEND_CACHE) {
            return self.read(client, cells);
        }
        let (offset, length) = (cells.start * self.cell, cells.len() * self.cell);
        let issued = self.model.tick();
        let (command, flags) = (NbdCommand::Cache, CommandFlags::NONE);
        let new = NewRequest { command, flags, offset, length, payload: &[] };
        self.ask(client, new, ClientWork::Cache, issued);
    }

    fn read(&mut self, client: usize, cells: Range<usize>) {
        let (offset, length) = (cells.start * self.cell, cells.len() * self.cell);
        let issued = self.model.tick();
        let work =
            ClientWork::Read { offset, bytes: vec![0; length], coverage: ReadCoverage::default() };
        let new = NewRequest {
            command: NbdCommand::Read,
            flags: CommandFlags::NONE,
            offset,
            length,
            payload: &[],
        };
        self.ask(client, new, work, issued);
    }

    fn change(&mut self, client: usize, command: NbdCommand, cells: Range<usize>, flags: CommandFlags) {
        let (offset, length) = (cells.start * self.cell, cells.len() * self.cell);
        let mut payload = Vec::new();
        let mut value = 0;
        if command == NbdCommand::Write {
            self.values += 1;
            value = self.values;
            payload = vec![0; length];
            fill(&mut payload, value);
        }
        let Some(front) = self.clients[client].session.as_ref().map(|session| session.front) else { return };
        let is_advice = command == NbdCommand::Trim;
        let write = self.model.issue(NewWrite { cells: cells.clone(), value, front, is_advice });
        let issued = self.model.tick();
        let work = ClientWork::Change { write, cells, fua: flags.contains(CommandFlags::FUA) };
        self.ask(client, NewRequest { command, flags, offset, length, payload: &payload }, work, issued);
        if value > 0 {
            self.log(format_args!("    that is write {value}"));
        }
    }

    fn flush(&mut self, client: usize) {
        let issued = self.model.tick();
        let new = NewRequest {
            command: NbdCommand::Flush,
            flags: CommandFlags::NONE,
            offset: 0,
            length: 0,
            payload: &[],
        };
        self.ask(client, new, ClientWork::Flush, issued);
    }

    fn ask(&mut self, client: usize, new: NewRequest<'_>, work: ClientWork, issued: Ordinal) {
        let Some(session) = &mut self.clients[client].session else { return };
        let cookie = session.request(new, work, issued);
        let NewRequest { command, flags, offset, length, .. } = new;
        let (first, cells) = (offset / self.cell, length / self.cell);
        self.log(format_args!(
            "client {client} asks {cookie}: {command:?} of {cells} cells from {first}, {flags:?} [{issued}]"
        ));
    }

    /// Judges a reply.
    fn conclude(&mut self, client: usize, finished: FinishedRequest) -> Result<(), Broken> {
        let FinishedRequest { cookie, request, result } = finished;
        let heard = self.model.tick();
        self.log(format_args!("client {client} hears of {cookie}: {result:?} [{heard}]"));
        let at_storage = self.clients[client].gateway == 0;
        let issued = request.issued;
        let forgotten = self.reported.is_some_and(|reported| reported < issued);
        let durable = match &request.work {
            ClientWork::Flush => true,
            ClientWork::Change { fua, .. } => *fua,
            ClientWork::Read { .. } | ClientWork::Cache => false,
        };
        if let Err(errno) = result
            && self.undisturbed
            && errno != Errno::NotSup
        {
            return Err(format!("client {client}'s request {cookie} fails without a cause: {errno}"));
        }
        if forgotten && durable && result.is_ok() {
            return Err(format!(
                "client {client}'s request {cookie} claims to be durable, although the disk has reported that \
                 it lost data"
            ));
        }
        match (request.work, result) {
            (ClientWork::Read { offset, bytes, .. }, Ok(())) => {
                self.read_failed = false;
                self.model.check_read(offset / self.cell, &bytes, issued)
            }
            (ClientWork::Read { .. }, Err(errno)) => {
                self.read_failed = true;
                match errno {
                    Errno::Io if !at_storage && self.rates.are_bridged() => {
                        Err(format!("client {client}'s read {cookie} fails, although its upstream was back soon"))
                    }
                    _ => Ok(()),
                }
            }
            (ClientWork::Change { write, cells, fua }, Ok(())) => {
                self.model.acknowledge(write, fua);
                if fua { self.model.check_durable(cells, self.disk.durable()) } else { Ok(()) }
            }
            (ClientWork::Change { write, .. }, Err(errno)) => {
                // In front of it, the storage may still carry it out.
                if at_storage || errno == Errno::NotSup {
                    self.model.refuse(write);
                }
                Ok(())
            }
            (ClientWork::Cache, _) => Ok(()),
            (ClientWork::Flush, result) => {
                let cells = 0..self.disk.size() / self.cell;
                let Some(session) = &mut self.clients[client].session else { return Ok(()) };
                if result.is_err() {
                    session.told = self.model.tick();
                    return Ok(());
                }
                self.model.flushed(issued, session.front, session.told);
                self.model.check_durable(cells, self.disk.durable())
            }
        }
    }

    // Rest.

    /// Waits until everything has ended.
    fn settle(&mut self) -> Result<(), Broken> {
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
    fn left_over(&mut self) -> Option<String> {
        for (number, client) in self.clients.iter().enumerate() {
            let Some(session) = &client.session else { continue };
            if client.scheduled || session.has_to_send() || !session.pending.is_empty() {
                let left: Vec<&u64> = session.pending.keys().collect();
                return Some(format!("client {number} waits for {left:?}"));
            }
        }
        let mut callers = 0;
        for place in (0..self.places.len()).rev() {
            let Some(live) = &mut self.places[place].live else { return Some(format!("gateway {place} is down")) };
            if live.worker.ring.simulated().operations.iter().any(|(_, operation)| operation.scheduled) {
                return Some(format!("gateway {place} has operations under way"));
            }
            let clients = self.clients.iter().filter(|client| client.gateway == place && client.session.is_some());
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
    fn shut_down(&mut self) -> Result<(), Broken> {
        (self.ending, self.undisturbed) = (true, false);
        for place in (0..self.places.len()).rev() {
            let deadline = self.now + Duration::from_secs(1);
            if let Some(live) = &self.places[place].live {
                live.drain(deadline);
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
    fn verify(&mut self) -> Result<(), Broken> {
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
                    while self.clients[client].session.as_ref().is_some_and(|session| !session.pending.is_empty())
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

/// Returns true if an operation is on the server's end of a connection.
fn is_servers(token: RingToken) -> bool {
    matches!(token, RingToken::Received { .. } | RingToken::Sent { .. })
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
            && range(&other.operation).is_some_and(|range| range.start < written.end && written.start < range.end)
    });
    match overtaken {
        Some((_, other)) => {
            Err(format!("write {} goes to the disk before write {}, which it overlaps", this.cookie, other.cookie))
        }
        None => Ok(()),
    }
}
