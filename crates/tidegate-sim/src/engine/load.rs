//! Workloads: the beginnings of operations, and their requests.

use std::hint::black_box;

use tidegate_device::{DeviceIo, IoKind};
use tidegate_units::Latency;

use super::plan::{StepPlan, StreamPlan};
use super::{EngineEvent, NONE, Simulation};
use crate::random::{self, RandomStream};
use crate::scenario::{
    ActivityCycle, ArrivalSpacing, Durability, OperationArrivals, OperationStep, ThinkTime, ThinkTiming,
    Workload,
};

/// A workload of a virtual machine, within two lines of the cache.
#[repr(align(64))]
pub(super) struct WorkloadStream<'a> {
    workload: &'a Workload,
    pub(super) vm: u32,
    places: Box<[StepPlan]>,
    random: RandomStream,
    /// True if its own times have it active.
    pub(super) during: bool,
    pub(super) cycle: bool,
    /// True if it, its virtual machine and its host are all active.
    active: bool,
    /// Changes whenever the events planned for it are void.
    epoch: u32,
    /// Threads that neither work nor think.
    parked: u32,
    under_way: u32,
    /// The stream whose operations it answers for.
    follows: Option<u32>,
    /// Streams that answer for its operations.
    followers: Vec<u32>,
    /// Operations of the other that it has not answered for.
    owed: u32,
    /// Arrivals since it became active; `since` is that time.
    arrived: u64,
    since: u64,
}

const _: () = assert!(size_of::<WorkloadStream<'_>>() == 128);

/// An operation of several requests.
pub(super) struct VmOperation {
    stream: u32,
    step: u32,
    /// Requests of this step that are not done.
    left: u32,
    flushing: bool,
}

impl<'a> Simulation<'a> {
    pub(super) fn add_stream(&mut self, plan: StreamPlan) {
        let index = self.streams.len() as u32;
        let vm = &self.scenario.vms[plan.vm as usize];
        let streams = &mut self.vms[plan.vm as usize].streams;
        if streams.start == streams.end {
            *streams = index..index;
        }
        let at = (index - streams.start) as usize;
        streams.end = index + 1;
        let mut workload = &vm.workloads[at];
        // Copies of a template have equal workloads: all look at one of them, which is then in the cache.
        let same = plan.vm.checked_sub(1).map(|before| self.vms[before as usize].streams.start as usize + at);
        if let Some(before) = same.and_then(|before| self.streams.get(before))
            && before.workload == workload
        {
            workload = before.workload;
        }
        let threads = match workload.arrivals {
            OperationArrivals::Closed { outstanding: threads, .. }
            | OperationArrivals::After { threads, .. } => threads,
            OperationArrivals::Open { .. } | OperationArrivals::Trace { .. } => 0,
        };
        self.streams.push(WorkloadStream {
            workload,
            vm: plan.vm,
            random: RandomStream::of(self.seed, &["workload", vm.name.as_str(), &workload.name]),
            places: plan.steps.into_boxed_slice(),
            during: false,
            cycle: workload.cycle.is_none(),
            active: false,
            epoch: 0,
            parked: threads,
            under_way: 0,
            follows: plan.follows,
            followers: Vec::new(),
            owed: 0,
            arrived: 0,
            since: 0,
        });
        // A workload may follow one that comes after it: all are there only when the virtual machine's last
        // one is.
        if at + 1 == vm.workloads.len() {
            for follower in index - at as u32..=index {
                if let Some(leader) = self.streams[follower as usize].follows {
                    self.streams[leader as usize].followers.push(follower);
                }
            }
        }
    }

    /// Something that decides whether a stream is active has changed.
    pub(super) fn reconsider(&mut self, index: u32) {
        let vm = self.streams[index as usize].vm;
        let host = self.host_of(vm);
        let on = self.vms[vm as usize].on && self.hosts[host as usize].up;
        let now = self.now;
        let stream = &mut self.streams[index as usize];
        let active = on && stream.during && stream.cycle;
        if active == std::mem::replace(&mut stream.active, active) {
            return;
        }
        if !active {
            // Arrivals that were planned do not take place; threads that think find out by themselves.
            if matches!(
                stream.workload.arrivals,
                OperationArrivals::Open { .. } | OperationArrivals::Trace { .. }
            ) {
                stream.epoch += 1;
            }
            return;
        }
        (stream.arrived, stream.since) = (0, now);
        match stream.workload.arrivals {
            OperationArrivals::Closed { think, .. } => {
                for _ in 0..std::mem::take(&mut stream.parked) {
                    self.think(index, think);
                }
            }
            OperationArrivals::After { .. } => self.answer(index),
            OperationArrivals::Open { .. } | OperationArrivals::Trace { .. } => self.plan_arrival(index),
        }
    }

    pub(super) fn host_of(&self, vm: u32) -> u32 {
        self.stages[self.ports[self.vms[vm as usize].ports[0] as usize].stage as usize].host
    }

    /// A host fails: its threads are where they were at the beginning.
    pub(super) fn reset_stream(&mut self, index: u32) {
        self.operations.retain(|_, operation| operation.stream != index);
        let stream = &mut self.streams[index as usize];
        stream.epoch += 1;
        stream.under_way = 0;
        stream.owed = 0;
        for place in &mut stream.places {
            place.cursor = 0;
        }
        stream.parked = match stream.workload.arrivals {
            OperationArrivals::Closed { outstanding: threads, .. }
            | OperationArrivals::After { threads, .. } => threads,
            OperationArrivals::Open { .. } | OperationArrivals::Trace { .. } => 0,
        };
    }

    /// A thread thinks, and then begins an operation.
    fn think(&mut self, index: u32, think: ThinkTiming) {
        if think.mean == Latency::ZERO {
            self.begin(index);
            return;
        }
        let stream = &mut self.streams[index as usize];
        let mean = think.mean;
        let time = match think.distribution {
            ThinkTime::Constant => mean,
            ThinkTime::Exponential => mean.scale(stream.random.exponential()),
            ThinkTime::Uniform => mean.scale(2.0 * stream.random.fraction()),
        };
        let event = EngineEvent::Thought { stream: index, epoch: stream.epoch };
        self.queue.push(self.now.saturating_add(time.as_nanos()), event);
    }

    pub(super) fn thought(&mut self, index: u32, epoch: u32) {
        let stream = &mut self.streams[index as usize];
        if stream.epoch != epoch {
            return;
        }
        if stream.active && !self.is_blocked(index) {
            self.begin(index);
        } else {
            self.streams[index as usize].parked += 1;
        }
    }

    /// Returns true if a stream that answers for its operations is too far behind.
    fn is_blocked(&self, index: u32) -> bool {
        self.streams[index as usize].followers.iter().any(|&follower| {
            let follower = &self.streams[follower as usize];
            matches!(follower.workload.arrivals, OperationArrivals::After { backlog, .. }
                if follower.owed >= backlog)
        })
    }

    /// Begins the operations owed, as far as threads are free. Lets the other stream go on when few enough
    /// are owed.
    fn answer(&mut self, index: u32) {
        let stream = &mut self.streams[index as usize];
        let OperationArrivals::After { every, .. } = stream.workload.arrivals else { return };
        let Some(leader) = stream.follows else { return };
        while {
            let stream = &mut self.streams[index as usize];
            stream.active && stream.parked > 0 && stream.owed >= every
        } {
            let stream = &mut self.streams[index as usize];
            stream.parked -= 1;
            stream.owed -= every;
            self.begin(index);
        }
        let leading = &mut self.streams[leader as usize];
        if leading.active
            && leading.parked > 0
            && let OperationArrivals::Closed { .. } = leading.workload.arrivals
            && !self.is_blocked(leader)
        {
            for _ in 0..std::mem::take(&mut self.streams[leader as usize].parked) {
                self.begin(leader);
            }
        }
    }

    fn plan_arrival(&mut self, index: u32) {
        let now = self.now;
        let seed = self.seed;
        let stream = &mut self.streams[index as usize];
        if let OperationArrivals::Open { spacing: ArrivalSpacing::Drawn { from, to }, .. } =
            stream.workload.arrivals
        {
            while !(from..to).contains(&random::fraction_at(seed, &["drawn"], stream.arrived)) {
                stream.arrived += 1;
            }
        }
        let at = match &stream.workload.arrivals {
            OperationArrivals::Open { rate, spacing: ArrivalSpacing::Poisson, .. } => {
                let gap = Latency::from_secs_f64(stream.random.exponential() / rate.per_second());
                now.saturating_add(gap.as_nanos())
            }
            OperationArrivals::Open { rate, spacing, .. } => {
                // From the beginning each time, so that no error adds up.
                let gap = Latency::from_secs_f64((stream.arrived + 1) as f64 / rate.per_second());
                let later = match spacing {
                    ArrivalSpacing::Jittered(most) => most.scale(stream.random.fraction()),
                    _ => Latency::ZERO,
                };
                stream.since.saturating_add(gap.saturating_add(later).as_nanos()).max(now)
            }
            OperationArrivals::Trace { records, speed, repeat } => {
                let position = stream.arrived as usize;
                if position >= records.len() && !repeat {
                    return;
                }
                let record = &records[position % records.len()];
                if position > 0 && position.is_multiple_of(records.len()) {
                    stream.since = now;
                }
                let at = Latency::from_nanos(record.at.as_nanos()).scale(1.0 / speed);
                // A repeated trace takes time, else it would repeat at the same instant for ever.
                let least =
                    if position > 0 && position.is_multiple_of(records.len()) { now + 1 } else { now };
                stream.since.saturating_add(at.as_nanos()).max(least)
            }
            OperationArrivals::Closed { .. } | OperationArrivals::After { .. } => return,
        };
        self.queue.push(at, EngineEvent::Arrival { stream: index, epoch: stream.epoch });
    }

    pub(super) fn arrival(&mut self, index: u32, epoch: u32) {
        let stream = &mut self.streams[index as usize];
        if stream.epoch != epoch || !stream.active {
            return;
        }
        let position = stream.arrived;
        stream.arrived += 1;
        match &stream.workload.arrivals {
            OperationArrivals::Open { limit, .. } if stream.under_way >= *limit => {
                self.vms[stream.vm as usize].dropped += 1;
            }
            OperationArrivals::Trace { records, .. } => {
                let record = records[position as usize % records.len()];
                let place = stream.places[0];
                // The last byte from which it still fits.
                let last = place.length - u64::from(record.bytes);
                let offset = place.base + record.offset.min(u64::MAX - 1) % (last + 1);
                let kind = if record.read { IoKind::Read } else { IoKind::Write { fua: false } };
                stream.under_way += 1;
                self.issue(index, place.port, NONE, DeviceIo { kind, offset, bytes: record.bytes });
            }
            _ => self.begin(index),
        }
        self.plan_arrival(index);
    }

    /// Begins an operation.
    fn begin(&mut self, index: u32) {
        let stream = &mut self.streams[index as usize];
        stream.under_way += 1;
        let workload = stream.workload;
        if let [step] = &workload.steps[..]
            && step.count == 1
            && step.durability != Durability::Flush
        {
            let (port, io) = stream.next_io(0, step);
            self.issue(index, port, NONE, io);
            return;
        }
        let operation =
            self.operations.insert(VmOperation { stream: index, step: 0, left: 0, flushing: false }) as u32;
        self.begin_step(index, operation, 0);
    }

    /// Begins a step of an operation: all its requests at once, or its flush where it has no others.
    fn begin_step(&mut self, index: u32, operation: u32, at: u32) {
        let workload = self.streams[index as usize].workload;
        let Some(step) = workload.steps.get(at as usize) else {
            self.operations.remove(operation as usize);
            self.operation_done(index);
            return;
        };
        let left = step.count;
        self.operations[operation as usize] = VmOperation { stream: index, step: at, left, flushing: false };
        for _ in 0..step.count {
            let (port, io) = self.streams[index as usize].next_io(at as usize, step);
            self.issue(index, port, operation, io);
        }
        if step.count == 0 {
            self.end_step(index, operation);
        }
    }

    fn end_step(&mut self, index: u32, operation: u32) {
        let VmOperation { step: at, flushing, .. } = self.operations[operation as usize];
        let workload = self.streams[index as usize].workload;
        if workload.steps[at as usize].durability == Durability::Flush && !flushing {
            self.operations[operation as usize] =
                VmOperation { stream: index, step: at, left: 1, flushing: true };
            let port = self.streams[index as usize].places[at as usize].port;
            self.issue(index, port, operation, DeviceIo::flush());
        } else {
            self.begin_step(index, operation, at + 1);
        }
    }

    /// A request of a stream is done.
    pub(super) fn request_done(&mut self, index: u32, operation: u32) {
        if operation == NONE {
            self.operation_done(index);
            return;
        }
        let state = &mut self.operations[operation as usize];
        state.left -= 1;
        if state.left == 0 {
            self.end_step(index, operation);
        }
    }

    fn operation_done(&mut self, index: u32) {
        let stream = &mut self.streams[index as usize];
        stream.under_way -= 1;
        self.vms[stream.vm as usize].interval.ops += u64::from(stream.workload.operations);
        for at in 0..self.streams[index as usize].followers.len() {
            let follower = self.streams[index as usize].followers[at];
            let state = &mut self.streams[follower as usize];
            state.owed = state.owed.saturating_add(1);
            self.answer(follower);
        }
        let blocked = self.is_blocked(index);
        let stream = &mut self.streams[index as usize];
        match stream.workload.arrivals {
            OperationArrivals::Closed { think, .. } => {
                if stream.active && !blocked {
                    self.think(index, think);
                } else {
                    stream.parked += 1;
                }
            }
            OperationArrivals::After { .. } => {
                stream.parked += 1;
                self.answer(index);
            }
            OperationArrivals::Open { .. } | OperationArrivals::Trace { .. } => {}
        }
    }
}

impl WorkloadStream<'_> {
    /// See [`Simulation::recall`].
    pub(super) fn recall(&self) {
        black_box((self.epoch, self.places.first().map(|place| place.cursor)));
    }

    pub(super) fn cycle_times(&self) -> Option<ActivityCycle> {
        self.workload.cycle
    }

    /// The next request of a step.
    fn next_io(&mut self, at: usize, step: &OperationStep) -> (u32, DeviceIo) {
        let place = &mut self.places[at];
        // One random number for each thing that varies, and none for what does not.
        let bytes =
            if step.sizes.is_fixed() { step.sizes.at(0.0) } else { step.sizes.at(self.random.fraction()) };
        let reads = chance(step.reads, &mut self.random);
        let follows = chance(step.sequential, &mut self.random);
        let size = u64::from(bytes);
        let offset = if follows {
            if place.cursor + size > place.length { 0 } else { place.cursor }
        } else {
            // Aligned to its own size, as load generators do.
            self.random.below(place.length / size) * size
        };
        place.cursor = offset + size;
        let kind =
            if reads { IoKind::Read } else { IoKind::Write { fua: step.durability == Durability::Fua } };
        (place.port, DeviceIo { kind, offset: place.base + offset, bytes })
    }
}

fn chance(part: f64, random: &mut RandomStream) -> bool {
    part >= 1.0 || (part > 0.0 && random.fraction() < part)
}
