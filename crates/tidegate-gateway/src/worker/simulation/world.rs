//! The world around the simulated gateways: events in the order of virtual time, and faults.

mod faults;
mod kernel;
mod places;
mod rest;
mod workload;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use tidegate_nbd::TransmissionFlags;
use tidegate_sockets::aside::PeerSocket;
use tidegate_units::Instant;

use super::client::SimulatedClient;
use super::disk::SimulatedDisk;
use super::gateway::{GatewayRules, LiveGateway};
use super::model::{Ordinal, VolumeModel};
use super::random::Dice;
use super::{NOW, number};
use crate::suspension::SuspendedSession;
use faults::FaultRates;

/// The broken rule, in words.
pub(super) type Broken = String;

/// Once faults have ended, everything ends within this time: an outage that is bridged (30 s), a connection
/// that is silent (60 s), and some pauses.
const ENDS_WITHIN: Duration = Duration::from_secs(150);

/// Steps of a run. A run has some thousands; one that goes round in circles has this many.
const MOST_STEPS: u64 = 500_000;

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
    Turn {
        place: usize,
        life: u64,
    },
    /// An attempt to connect to the gateway behind ends.
    Connect {
        place: usize,
        life: u64,
        export: u64,
    },
    Start {
        place: usize,
    },
    Client(usize),
    Fault,
    PowerLoss,
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
    /// Sessions that the next gateway goes on with.
    suspended: Vec<SuspendedSession>,
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
    ends: [Arc<PeerSocket>; 2],
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
    steps: u64,
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
    /// Until then the disk is slow.
    slow_until: Instant,
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
        let direct = dice.hits(500).then(|| if dice.hits(400) { 4096 } else { 512 });
        let cell = if direct.is_none() && dice.hits(300) { 128 } else { 512 };
        let size = (cell * dice.between(24, 400) as usize).next_multiple_of(4096);
        let clients = dice.between(1, 4) as usize;
        let many = 200;
        let rates = match dice.below(5) {
            0 => FaultRates { error: 0, short: 20, hang: 0, disconnect: 0, interval: None, most: 0 },
            1 => FaultRates { error: 0, short: 50, hang: 0, disconnect: 3, interval: Some(5_000), most: 4 },
            2 => {
                FaultRates { error: 0, short: 50, hang: 1, disconnect: 3, interval: Some(30_000), most: many }
            }
            3 => {
                FaultRates { error: 6, short: 50, hang: 1, disconnect: 3, interval: Some(20_000), most: many }
            }
            _ => {
                FaultRates { error: 2, short: 50, hang: 2, disconnect: 10, interval: Some(8_000), most: many }
            }
        };
        let mut world = Self {
            seed,
            now: Instant::ZERO,
            sequence: 0,
            steps: 0,
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
            slow_until: Instant::ZERO,
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
                if dice.hits(300) {
                    hidden = hidden.with(flag);
                }
            }
            let rules = GatewayRules::new(depth, connections, reconnect, timeout);
            world.places.push(GatewayPlace { rules, hidden, live: None, suspended: Vec::new(), life: 0 });
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
        self.steps += 1;
        if self.steps > MOST_STEPS {
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
            WorldEvent::PowerLoss => self.end(0, GatewayEnd::PowerLost),
        }
        Ok(())
    }
}
