//! The engine: it moves all parts by events in virtual time.

use slab::Slab;
use tidegate_control::OperationTotals;
use tidegate_device::DeviceIo;
use tidegate_units::{Instant, Latency};

use super::egress::PacketClasses;
use super::findings::IscsiFindings;
use super::load::{DepthLevel, LoadWork, NextStep, nanos};
use super::plan::{InvalidPlan, IscsiPlan, LoadTimes, ThrottleRule};
use super::protocol::{HEADER, Pdu, segments};
use super::regulate::{MachineCounters, StoreRegulator, completed};
use super::session::{IscsiPacket, IscsiSession, ScsiTask};
use super::store::StoreState;
use super::tcp::StreamPiece;
use crate::queue::EventQueue;
use crate::random::RandomStream;

/// The most that TCP gives to an interface at once: 45 segments of 1448 bytes fit into 64 KiB
/// (`GSO_MAX_SIZE`).
const LARGEST_PACKET: u64 = 45 * 1448;

/// Divisor of the window: a packet takes no more than this part of it (`tcp_tso_win_divisor`).
const PART_OF_WINDOW: u64 = 3;

#[derive(Debug, Clone, Copy)]
enum IscsiEvent {
    /// A place of a load's depth is free.
    Issue { load: usize },
    /// A delayed packet leaves the target.
    Leave { machine: usize, packet: IscsiPacket },
    /// A packet arrives at the target.
    Up { machine: usize, packet: IscsiPacket },
    /// A packet arrives at the initiator.
    Down { machine: usize, packet: IscsiPacket },
    /// The storage is done with a command.
    Done { task: usize },
    /// A step of the timetable, by its place.
    Step { place: usize },
    /// The loop decides.
    Control,
    /// A row of the time series.
    Sample,
}

struct IscsiEngine<'a> {
    plan: &'a IscsiPlan,
    now: u64,
    queue: EventQueue<IscsiEvent>,
    sessions: Vec<IscsiSession>,
    tasks: Slab<ScsiTask>,
    works: Vec<LoadWork>,
    storage: StoreState,
    packets: PacketClasses,
    regulator: Option<StoreRegulator>,
    /// Times at which the wire is free, in each direction.
    up_free: u64,
    down_free: u64,
    /// The longest delay in force, in nanoseconds.
    delay: DepthLevel,
    findings: IscsiFindings,
}

/// Simulates a plan. Same plan, same seed: same findings.
///
/// # Errors
/// When the plan cannot be simulated.
pub fn simulate(plan: &IscsiPlan, seed: u64) -> Result<IscsiFindings, InvalidPlan> {
    plan.validate()?;
    let mut engine = IscsiEngine::new(plan, seed)?;
    engine.run()?;
    Ok(engine.finish())
}

impl<'a> IscsiEngine<'a> {
    fn new(plan: &'a IscsiPlan, seed: u64) -> Result<Self, InvalidPlan> {
        // Not by the plan's name: plans that differ in the throttled machines have the same load and the same
        // disks.
        let random = |names: &[&str]| RandomStream::of(seed, &[&["iscsi"], names].concat());
        let works = plan.loads.iter().enumerate();
        let works = works.map(|(place, load)| LoadWork::new(load, random(&["load", &place.to_string()])));
        let (packets, regulator) = match &plan.throttle {
            ThrottleRule::Timetable { packets, .. } => (*packets, None),
            ThrottleRule::Regulated { packets, law, members } => {
                (*packets, Some(StoreRegulator::new(law, members)?))
            }
        };
        let machines = plan.machines.len();
        let mut engine = Self {
            plan,
            now: 0,
            queue: EventQueue::new(),
            sessions: std::iter::repeat_with(|| IscsiSession::new(&plan.network)).take(machines).collect(),
            tasks: Slab::new(),
            works: works.collect(),
            storage: StoreState::new(&plan.store, random(&["storage"]).seed())?,
            packets,
            regulator,
            up_free: 0,
            down_free: 0,
            delay: DepthLevel::default(),
            findings: IscsiFindings { series: vec![Vec::new(); machines], ..IscsiFindings::default() },
        };
        engine.prepare();
        Ok(engine)
    }

    fn prepare(&mut self) {
        if let ThrottleRule::Timetable { steps, .. } = &self.plan.throttle {
            for (place, (at, ..)) in steps.iter().enumerate() {
                self.queue.push(nanos(*at), IscsiEvent::Step { place });
            }
        }
        self.queue.push(nanos(self.plan.sample), IscsiEvent::Sample);
        if let Some(regulator) = &self.regulator {
            self.queue.push(nanos(regulator.interval()), IscsiEvent::Control);
        }
        for load in 0..self.works.len() {
            if let Some(begins) = self.works[load].begins() {
                self.begin(load, begins);
            }
        }
    }

    fn begin(&mut self, load: usize, at: u64) {
        for _ in 0..self.works[load].load.depth {
            self.queue.push(at, IscsiEvent::Issue { load });
        }
    }

    fn run(&mut self) -> Result<(), InvalidPlan> {
        let end = nanos(self.plan.duration);
        let mut done = Vec::new();
        while !self.is_over() {
            let storage = self.storage.next_event();
            let planned = self.queue.next_at();
            let Some(at) = [storage, planned].into_iter().flatten().min().filter(|at| *at <= end) else {
                break;
            };
            self.now = at;
            self.findings.events += 1;
            if storage == Some(at) {
                self.storage.advance(at, &mut done);
                for task in done.drain(..) {
                    self.done(task);
                }
            } else if let Some((_, event)) = self.queue.pop() {
                self.happen(event)?;
            }
        }
        Ok(())
    }

    /// Returns true if all loads have moved their amounts.
    fn is_over(&self) -> bool {
        self.works.iter().all(|work| work.findings.took_s.is_some())
    }

    fn finish(self) -> IscsiFindings {
        IscsiFindings {
            ended_s: self.now as f64 * 1e-9,
            loads: self.works.iter().map(|work| work.findings).collect(),
            ..self.findings
        }
    }

    fn happen(&mut self, event: IscsiEvent) -> Result<(), InvalidPlan> {
        match event {
            IscsiEvent::Issue { load } => self.issue(load),
            IscsiEvent::Leave { machine, packet } => self.wire_down(machine, packet),
            IscsiEvent::Up { machine, packet } => self.arrive_up(machine, packet)?,
            IscsiEvent::Down { machine, packet } => self.arrive_down(machine, packet),
            IscsiEvent::Done { task } => self.done(task),
            IscsiEvent::Step { place } => {
                if let ThrottleRule::Timetable { steps, .. } = &self.plan.throttle {
                    let (_, machine, delay) = steps[place];
                    self.delay_packets(machine, delay);
                }
            }
            IscsiEvent::Control => self.control(),
            IscsiEvent::Sample => self.sample(),
        }
        Ok(())
    }

    // The initiators.

    fn issue(&mut self, load: usize) {
        match self.works[load].next(self.now) {
            NextStep::Request(io) => {
                let machine = self.works[load].load.machine;
                let session = &mut self.sessions[machine];
                session.meter.outstanding.set(self.now, session.meter.outstanding.get() + 1);
                if session.active < self.plan.protocol.queue_depth {
                    self.command(machine, load, io, self.now);
                    self.send_up(machine);
                } else {
                    session.waiting.push_back((load, io, self.now));
                }
            }
            NextStep::Wait(until) => self.queue.push(until, IscsiEvent::Issue { load }),
            NextStep::Nothing => {}
        }
    }

    fn command(&mut self, machine: usize, load: usize, io: DeviceIo, issued: u64) {
        let write = self.works[load].load.write;
        let bytes = u64::from(io.bytes);
        let data = if write { self.plan.protocol.immediate(bytes) } else { 0 };
        let missing = if write { bytes - data } else { 0 };
        let task =
            ScsiTask { machine, load, io, write, issued, missing, wanted: 0, submitted: None, stored: 0 };
        let task = self.tasks.insert(task);
        self.sessions[machine].active += 1;
        self.sessions[machine].write_up(Pdu::Command { task, data });
    }

    /// Sends the data that the window allows. Returns true if there was any.
    fn send_up(&mut self, machine: usize) -> bool {
        let most = packet(self.plan.network.window_up.get());
        let mut any = false;
        while let Some(piece) = self.sessions[machine].up.next(most) {
            self.wire_up(machine, piece);
            any = true;
        }
        any
    }

    fn wire_up(&mut self, machine: usize, piece: StreamPiece) {
        let packet = self.sessions[machine].packet_up(piece);
        let network = &self.plan.network;
        let at = carried(&mut self.up_free, self.now, piece.bytes, network.rate_up.per_second());
        self.queue.push(at + network.latency.as_nanos(), IscsiEvent::Up { machine, packet });
    }

    fn arrive_down(&mut self, machine: usize, packet: IscsiPacket) {
        let session = &mut self.sessions[machine];
        session.up.allowed(packet.allows);
        session.down.arrive(packet.piece);
        while let Some(pdu) = self.sessions[machine].read_down() {
            match pdu {
                Pdu::R2t { task, wanted } => {
                    for data in segments(wanted, self.plan.protocol.to_target.get()) {
                        self.sessions[machine].write_up(Pdu::DataOut { task, data });
                    }
                }
                Pdu::DataIn { task, last: true, .. } | Pdu::Response { task } => self.answered(task),
                Pdu::DataIn { .. } | Pdu::Command { .. } | Pdu::DataOut { .. } => {}
            }
        }
        if !self.send_up(machine) && packet.piece.bytes > 0 {
            self.wire_up(machine, StreamPiece { from: self.sessions[machine].up.sent(), bytes: 0 });
        }
    }

    fn answered(&mut self, task: usize) {
        let task = self.tasks.remove(task);
        let bytes = u64::from(task.io.bytes);
        let session = &mut self.sessions[task.machine];
        session.active -= 1;
        session.meter.outstanding.set(self.now, session.meter.outstanding.get() - 1);
        session.meter.answered(bytes, task.stored, self.now - task.issued);
        if let Some((load, io, issued)) = session.waiting.pop_front() {
            self.command(task.machine, load, io, issued);
        }
        let work = &mut self.works[task.load];
        let next = (self.now + work.load.think.as_nanos()).max(task.issued + work.load.every.as_nanos());
        let last = work.answered(self.now, bytes);
        self.queue.push(next, IscsiEvent::Issue { load: task.load });
        if last {
            let followers = |work: &LoadWork| work.load.when == LoadTimes::After(task.load);
            for load in 0..self.works.len() {
                if followers(&self.works[load]) {
                    self.begin(load, self.now);
                }
            }
        }
    }

    // The target.

    fn arrive_up(&mut self, machine: usize, packet: IscsiPacket) -> Result<(), InvalidPlan> {
        let session = &mut self.sessions[machine];
        session.down.allowed(packet.allows);
        session.up.arrive(packet.piece);
        while let Some(pdu) = self.sessions[machine].read_up() {
            match pdu {
                Pdu::Command { task, .. } => self.proceed(task)?,
                Pdu::DataOut { task, data } => {
                    let waits = &mut self.tasks[task];
                    waits.missing -= data;
                    waits.wanted -= data;
                    if waits.wanted == 0 {
                        self.proceed(task)?;
                    }
                }
                Pdu::R2t { .. } | Pdu::DataIn { .. } | Pdu::Response { .. } => {}
            }
        }
        if !self.send_down(machine) && packet.piece.bytes > 0 {
            let from = self.sessions[machine].down.sent();
            self.post(machine, StreamPiece { from, bytes: 0 });
        }
        Ok(())
    }

    /// Asks for more data, or gives the command to the storage.
    fn proceed(&mut self, task: usize) -> Result<(), InvalidPlan> {
        let ScsiTask { machine, missing, io, .. } = self.tasks[task];
        if missing > 0 {
            let wanted = self.plan.protocol.burst(missing);
            self.tasks[task].wanted = wanted;
            self.sessions[machine].write_down(Pdu::R2t { task, wanted });
            return Ok(());
        }
        self.tasks[task].submitted = Some(self.now);
        let at_storage = &mut self.sessions[machine].at_storage;
        at_storage.set(self.now, at_storage.get() + 1);
        if let Some(at) = self.storage.submit(self.now, task, io)? {
            self.queue.push(at, IscsiEvent::Done { task });
        }
        Ok(())
    }

    fn done(&mut self, task: usize) {
        let now = self.now;
        let (machine, bytes, write) = {
            let done = &mut self.tasks[task];
            done.stored = now - done.submitted.take().unwrap_or(now);
            let session = &mut self.sessions[done.machine];
            session.at_storage.set(now, session.at_storage.get() - 1);
            let kind = if done.write { &mut session.counters.writes } else { &mut session.counters.reads };
            completed(kind, u64::from(done.io.bytes), done.stored);
            (done.machine, u64::from(done.io.bytes), done.write)
        };
        if write {
            self.sessions[machine].write_down(Pdu::Response { task });
        } else {
            let mut left = bytes;
            for data in segments(bytes, self.plan.protocol.to_initiator.get()) {
                left -= data;
                self.sessions[machine].write_down(Pdu::DataIn { task, data, last: left == 0 });
            }
        }
        self.send_down(machine);
    }

    /// Sends the data that the window allows. Returns true if there was any.
    fn send_down(&mut self, machine: usize) -> bool {
        let (network, protocol) = (&self.plan.network, &self.plan.protocol);
        let largest = packet(network.window_down.get());
        let mut any = false;
        loop {
            let session = &mut self.sessions[machine];
            let begins = session.begins_with();
            let alone = protocol.header_alone && matches!(begins, Some(Pdu::DataIn { .. }));
            let Some(piece) = session.down.next(if alone { HEADER } else { largest }) else { break };
            self.post(machine, piece);
            any = true;
        }
        any
    }

    /// Hands a packet to the target's traffic control.
    fn post(&mut self, machine: usize, piece: StreamPiece) {
        let session = &mut self.sessions[machine];
        let paces = piece.bytes > 0 && session.pdu_at(piece.from).is_some_and(Pdu::paces_writes);
        let packet = session.packet_down(piece);
        let leaves =
            if self.packets.mean(piece.bytes, paces) { session.egress.leaves(self.now) } else { self.now };
        if leaves > self.now {
            self.queue.push(leaves, IscsiEvent::Leave { machine, packet });
        } else {
            self.wire_down(machine, packet);
        }
    }

    fn wire_down(&mut self, machine: usize, packet: IscsiPacket) {
        let network = &self.plan.network;
        let rate = network.rate_down.per_second();
        let at = carried(&mut self.down_free, self.now, packet.piece.bytes, rate);
        self.queue.push(at + network.latency.as_nanos(), IscsiEvent::Down { machine, packet });
    }

    // The throttled consumers, and the recorded figures.

    fn delay_packets(&mut self, machine: usize, delay: Latency) {
        self.sessions[machine].egress.set(delay);
        let longest = self.sessions.iter().map(|session| session.egress.delay()).max();
        self.delay.set(self.now, longest.unwrap_or_default().as_nanos());
    }

    fn control(&mut self) {
        let Some(mut regulator) = self.regulator.take() else { return };
        let now = Instant::from_nanos(self.now);
        let counters: Vec<_> = (0..self.sessions.len()).map(|machine| self.count(machine)).collect();
        let delay = regulator.step(now, &self.plan.machines, &counters);
        for (machine, name) in self.plan.machines.iter().enumerate() {
            let delay = if regulator.is_eligible(name) { delay } else { Latency::ZERO };
            self.delay_packets(machine, delay);
        }
        self.queue.push(self.now + nanos(regulator.interval()), IscsiEvent::Control);
        self.regulator = Some(regulator);
    }

    /// Returns the operations of a machine at the storage since the last decision.
    fn count(&mut self, machine: usize) -> MachineCounters {
        let session = &mut self.sessions[machine];
        let mut counters = std::mem::take(&mut session.counters);
        counters.outstanding = session.at_storage.take(self.now);
        let tasks = self.tasks.iter().filter(|(_, task)| task.machine == machine);
        for (_, task) in tasks {
            let Some(submitted) = task.submitted else { continue };
            let kind: &mut OperationTotals =
                if task.write { &mut counters.writes } else { &mut counters.reads };
            kind.in_flight += 1;
            let age = Latency::from_nanos(self.now - submitted);
            kind.oldest_in_flight = kind.oldest_in_flight.max(Some(age));
        }
        counters
    }

    fn sample(&mut self) {
        let seconds = self.plan.sample.as_secs_f64();
        let end = self.now as f64 * 1e-9;
        for (session, series) in self.sessions.iter_mut().zip(&mut self.findings.series) {
            series.push((end, session.meter.take(self.now, seconds)));
        }
        self.findings
            .delays
            .push((end, self.delay.take(self.now) as f64 * 1e-6 / nanos(self.plan.sample) as f64));
        self.queue.push(self.now + nanos(self.plan.sample), IscsiEvent::Sample);
    }
}

/// Returns the largest size of a packet.
fn packet(window: u64) -> u64 {
    LARGEST_PACKET.min((window / PART_OF_WINDOW).max(1))
}

/// Returns the time at which the wire has carried so many more bytes.
fn carried(free: &mut u64, now: u64, bytes: u64, per_second: f64) -> u64 {
    *free = now.max(*free) + (bytes as f64 / per_second * 1e9).round() as u64;
    *free
}
