//! The engine: it moves all parts by events in virtual time.

use slab::Slab;
use tidegate_control::Operations;
use tidegate_device::Io;
use tidegate_units::{Instant, Latency};

use super::egress::Packets;
use super::findings::Findings;
use super::load::{Level, Next, Work, nanos};
use super::plan::{InvalidPlan, Plan, Throttle, When};
use super::protocol::{HEADER, Pdu, segments};
use super::regulate::{Counters, Regulator, completed};
use super::session::{Packet, Session, Task};
use super::store::Storage;
use super::tcp::Piece;
use crate::queue::Queue;
use crate::random::Random;

/// The most that TCP gives to an interface at once: 45 segments of 1448 bytes fit into 64 KiB
/// (`GSO_MAX_SIZE`).
const LARGEST_PACKET: u64 = 45 * 1448;

/// Divisor of the window: a packet takes no more than this part of it (`tcp_tso_win_divisor`).
const PART_OF_WINDOW: u64 = 3;

#[derive(Debug, Clone, Copy)]
enum Event {
    /// A place of a load's depth is free.
    Issue { load: usize },
    /// A delayed packet leaves the target.
    Leave { machine: usize, packet: Packet },
    /// A packet arrives at the target.
    Up { machine: usize, packet: Packet },
    /// A packet arrives at the initiator.
    Down { machine: usize, packet: Packet },
    /// The storage is done with a command.
    Done { task: usize },
    /// A step of the timetable, by its place.
    Step { place: usize },
    /// The loop decides.
    Control,
    /// A row of the time series.
    Sample,
}

struct Engine<'a> {
    plan: &'a Plan,
    now: u64,
    queue: Queue<Event>,
    sessions: Vec<Session>,
    tasks: Slab<Task>,
    works: Vec<Work>,
    storage: Storage,
    packets: Packets,
    regulator: Option<Regulator>,
    /// Times at which the wire is free, in each direction.
    up_free: u64,
    down_free: u64,
    /// The longest delay in force, in nanoseconds.
    delay: Level,
    findings: Findings,
}

/// Simulates a plan. Same plan, same seed: same findings.
///
/// # Errors
/// When the plan cannot be simulated.
pub fn simulate(plan: &Plan, seed: u64) -> Result<Findings, InvalidPlan> {
    plan.validate()?;
    let mut engine = Engine::new(plan, seed)?;
    engine.run()?;
    Ok(engine.finish())
}

impl<'a> Engine<'a> {
    fn new(plan: &'a Plan, seed: u64) -> Result<Self, InvalidPlan> {
        // Not by the plan's name: plans that differ in the throttled machines have the same load and the same disks.
        let random = |names: &[&str]| Random::of(seed, &[&["iscsi"], names].concat());
        let works = plan.loads.iter().enumerate();
        let works = works.map(|(place, load)| Work::new(load, random(&["load", &place.to_string()])));
        let (packets, regulator) = match &plan.throttle {
            Throttle::Timetable { packets, .. } => (*packets, None),
            Throttle::Regulated { packets, law, members } => (*packets, Some(Regulator::new(law, members)?)),
        };
        let machines = plan.machines.len();
        let mut engine = Self {
            plan,
            now: 0,
            queue: Queue::new(),
            sessions: std::iter::repeat_with(|| Session::new(&plan.network)).take(machines).collect(),
            tasks: Slab::new(),
            works: works.collect(),
            storage: Storage::new(&plan.store, random(&["storage"]).seed())?,
            packets,
            regulator,
            up_free: 0,
            down_free: 0,
            delay: Level::default(),
            findings: Findings { series: vec![Vec::new(); machines], ..Findings::default() },
        };
        engine.prepare();
        Ok(engine)
    }

    fn prepare(&mut self) {
        if let Throttle::Timetable { steps, .. } = &self.plan.throttle {
            for (place, (at, ..)) in steps.iter().enumerate() {
                self.queue.push(nanos(*at), Event::Step { place });
            }
        }
        self.queue.push(nanos(self.plan.sample), Event::Sample);
        if let Some(regulator) = &self.regulator {
            self.queue.push(nanos(regulator.interval()), Event::Control);
        }
        for load in 0..self.works.len() {
            if let Some(begins) = self.works[load].begins() {
                self.begin(load, begins);
            }
        }
    }

    fn begin(&mut self, load: usize, at: u64) {
        for _ in 0..self.works[load].load.depth {
            self.queue.push(at, Event::Issue { load });
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

    fn finish(self) -> Findings {
        Findings {
            ended_s: self.now as f64 * 1e-9,
            loads: self.works.iter().map(|work| work.findings).collect(),
            ..self.findings
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), InvalidPlan> {
        match event {
            Event::Issue { load } => self.issue(load),
            Event::Leave { machine, packet } => self.wire_down(machine, packet),
            Event::Up { machine, packet } => self.arrive_up(machine, packet)?,
            Event::Down { machine, packet } => self.arrive_down(machine, packet),
            Event::Done { task } => self.done(task),
            Event::Step { place } => {
                if let Throttle::Timetable { steps, .. } = &self.plan.throttle {
                    let (_, machine, delay) = steps[place];
                    self.delay_packets(machine, delay);
                }
            }
            Event::Control => self.control(),
            Event::Sample => self.sample(),
        }
        Ok(())
    }

    // The initiators.

    fn issue(&mut self, load: usize) {
        match self.works[load].next(self.now) {
            Next::Request(io) => {
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
            Next::Wait(until) => self.queue.push(until, Event::Issue { load }),
            Next::Nothing => {}
        }
    }

    fn command(&mut self, machine: usize, load: usize, io: Io, issued: u64) {
        let write = self.works[load].load.write;
        let bytes = u64::from(io.bytes);
        let data = if write { self.plan.protocol.immediate(bytes) } else { 0 };
        let missing = if write { bytes - data } else { 0 };
        let task = Task { machine, load, io, write, issued, missing, wanted: 0, submitted: None, stored: 0 };
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

    fn wire_up(&mut self, machine: usize, piece: Piece) {
        let packet = self.sessions[machine].packet_up(piece);
        let network = &self.plan.network;
        let at = carried(&mut self.up_free, self.now, piece.bytes, network.rate_up.per_second());
        self.queue.push(at + network.latency.as_nanos(), Event::Up { machine, packet });
    }

    fn arrive_down(&mut self, machine: usize, packet: Packet) {
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
            self.wire_up(machine, Piece { from: self.sessions[machine].up.sent(), bytes: 0 });
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
        self.queue.push(next, Event::Issue { load: task.load });
        if last {
            let followers = |work: &Work| work.load.when == When::After(task.load);
            for load in 0..self.works.len() {
                if followers(&self.works[load]) {
                    self.begin(load, self.now);
                }
            }
        }
    }

    // The target.

    fn arrive_up(&mut self, machine: usize, packet: Packet) -> Result<(), InvalidPlan> {
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
            self.post(machine, Piece { from, bytes: 0 });
        }
        Ok(())
    }

    /// Asks for more data, or gives the command to the storage.
    fn proceed(&mut self, task: usize) -> Result<(), InvalidPlan> {
        let Task { machine, missing, io, .. } = self.tasks[task];
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
            self.queue.push(at, Event::Done { task });
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
    fn post(&mut self, machine: usize, piece: Piece) {
        let session = &mut self.sessions[machine];
        let paces = piece.bytes > 0 && session.pdu_at(piece.from).is_some_and(Pdu::paces_writes);
        let packet = session.packet_down(piece);
        let leaves =
            if self.packets.mean(piece.bytes, paces) { session.egress.leaves(self.now) } else { self.now };
        if leaves > self.now {
            self.queue.push(leaves, Event::Leave { machine, packet });
        } else {
            self.wire_down(machine, packet);
        }
    }

    fn wire_down(&mut self, machine: usize, packet: Packet) {
        let network = &self.plan.network;
        let rate = network.rate_down.per_second();
        let at = carried(&mut self.down_free, self.now, packet.piece.bytes, rate);
        self.queue.push(at + network.latency.as_nanos(), Event::Down { machine, packet });
    }

    // Who is held, and what is written down.

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
        self.queue.push(self.now + nanos(regulator.interval()), Event::Control);
        self.regulator = Some(regulator);
    }

    /// Returns the operations of a machine at the storage since the last decision.
    fn count(&mut self, machine: usize) -> Counters {
        let session = &mut self.sessions[machine];
        let mut counters = std::mem::take(&mut session.counters);
        counters.outstanding = session.at_storage.take(self.now);
        let tasks = self.tasks.iter().filter(|(_, task)| task.machine == machine);
        for (_, task) in tasks {
            let Some(submitted) = task.submitted else { continue };
            let kind: &mut Operations = if task.write { &mut counters.writes } else { &mut counters.reads };
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
        self.queue.push(self.now + nanos(self.plan.sample), Event::Sample);
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
