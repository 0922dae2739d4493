//! The engine: hosts, arrays and workloads from event to event.
//!
//! Time is whole nanoseconds. Events at the same time happen in this order. Completions of the arrays come
//! first, in the order of the arrays. Planned events follow, in the order in which they were planned.
//!
//! A host does with its requests the same as the gateway's stage: both have the queue of `tidegate-regulate`.
//! It chooses the next request and carries out the decisions of a law. None of that is written again here.

mod cluster;
mod control;
mod latencies;
mod life;
mod load;
mod measure;
mod plan;
mod report;

use std::hint::black_box;
use std::ops::Range;

use slab::Slab;
use tidegate_control::LoopConfig;
use tidegate_device::{Device, DeviceCompletion, DeviceIo, IoKind, MAX_IN_FLIGHT};
use tidegate_regulate::{
    CompletedRequest, ConsumerAccount, ConsumerTerms, MeanSince, OperationKind, QueueConfig, RegulatedQueue,
    SignalLatencies,
};
use tidegate_sched::{PullAnswer, SfqConfig, StorageExtent};
use tidegate_units::{Bytes, Instant, Latency, ResourceName, Window};

use crate::error::ScenarioError;
use crate::outcome::{EngineWork, SimulationOutcome};
use crate::queue::EventQueue;
use crate::random::RandomStream;
use crate::recorder::Recorder;
use crate::scenario::{ChangedArray, Scenario, ScenarioHost, VirtualMachine};
use crate::table::PlaceTable;
use cluster::SteeringHosts;
use latencies::{ExactLatencies, JudgedLatencies};
use load::{VmOperation, WorkloadStream};
use measure::{PromiseCounts, RequestTally, WindowTime};
use plan::{EnginePlan, nanos};

pub(crate) use measure::{LatencyDistribution, PooledLatencies};
pub(crate) use plan::{GREATEST_DEPTH, MOST_HOSTS, MOST_VMS};

/// Marks a missing index.
const NONE: u32 = u32::MAX;

/// Simulates a scenario from beginning to end. The same scenario and seed always give the same outcome, and
/// tell the recorder the same.
///
/// # Errors
/// When the scenario contradicts itself, or overruns an array.
pub fn simulate(
    scenario: &Scenario,
    seed: u64,
    recorder: &mut dyn Recorder,
) -> Result<SimulationOutcome, ScenarioError> {
    let mut simulation = Simulation::new(scenario, seed)?;
    simulation.run(recorder)?;
    Ok(simulation.outcome())
}

/// Response times that a virtual machine felt, for callers that need other quantiles than an outcome has, or
/// those of several simulations.
pub(crate) struct FeltLatencies {
    /// Times from issuing a request to its completion.
    pub(crate) response_times: LatencyDistribution,
    /// Growth of the undone work since: requests under way, and operations that did not take place because
    /// too many were.
    pub(crate) undone: i64,
}

/// Simulates a scenario from beginning to end. Returns the response times that each virtual machine felt
/// after the warm-up, in the order of the machines. The second value is the growth of the arrays' dirty data
/// from the end of the warm-up to the end, in bytes. It is negative where the data shrank.
///
/// # Errors
/// As [`simulate`].
pub(crate) fn felt(
    scenario: &Scenario,
    seed: u64,
    recorder: &mut dyn Recorder,
) -> Result<(Vec<FeltLatencies>, i64), ScenarioError> {
    let mut simulation = Simulation::new(scenario, seed)?;
    simulation.run(recorder)?;
    let felt = (0..simulation.vms.len()).map(|index| {
        let under_way = simulation.under_way(index);
        let vm = &mut simulation.vms[index];
        let undone = (vm.dropped + under_way).cast_signed() - vm.under_way.cast_signed();
        FeltLatencies { response_times: std::mem::take(&mut vm.felt), undone }
    });
    let felt = felt.collect();
    let dirty = simulation
        .arrays
        .iter()
        .map(|array| array.device.dirty().get().cast_signed() - array.dirty.get().cast_signed());
    Ok((felt, dirty.sum()))
}

/// Checks that a scenario can be simulated.
///
/// # Errors
/// The errors that [`simulate`] would return before it begins.
pub(crate) fn check(scenario: &Scenario) -> Result<(), ScenarioError> {
    Simulation::new(scenario, scenario.seed).map(drop)
}

/// Number of events between two questions whether the simulation is still wanted: some milliseconds of work.
const BETWEEN_QUESTIONS: u64 = 4_096;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The most events in a second of simulated time. Storage that completes several million requests per second
/// makes as many. A simulation with more would not end (measured: 5 million events take a second of a processor).
const MOST_EVENTS_PER_SECOND: u64 = 20_000_000;

/// A planned event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EngineEvent {
    /// A thread has thought, if its stream is still of this epoch.
    Thought { stream: u32, epoch: u32 },
    /// An operation arrives by itself.
    Arrival { stream: u32, epoch: u32 },
    /// A stage has something to dispatch, if this is still the planned time.
    Wake { stage: u32 },
    /// Loops are stepped.
    Step { group: u32 },
    /// A consumer with a contract is back from a pause: a loop is stepped out of turn.
    Return { stage: u32 },
    /// A report arrives.
    Message { message: u32 },
    /// A virtual machine, host or workload comes or goes.
    Life { change: u32 },
    /// A workload's cycle turns.
    Cycle { stream: u32 },
    /// An array becomes another one.
    Becomes { array: u32, change: u32 },
    /// The statistics begin.
    Measure,
    /// An interval of the time series ends.
    Sample,
}

/// A request in its host's queue. It has no other place until it is dispatched. With thousands of hosts, data
/// elsewhere is no longer in the processor's cache when the request's turn comes.
#[derive(Debug, Clone, Copy)]
struct WaitingRequest {
    io: DeviceIo,
    issued: u64,
    stream: u32,
    port: u32,
    /// The operation that it is a part of; `NONE`: it is the whole operation.
    operation: u32,
}

/// A request at its array, within one line of the processor's cache. The array has taken note of its address.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct ArrayRequest {
    issued: u64,
    /// Time since which its scheduler could dispatch it.
    released: u64,
    dispatched: u64,
    kind: IoKind,
    bytes: u32,
    stream: u32,
    port: u32,
    operation: u32,
    /// Its port's stage; here so that the port need not be read first.
    stage: u32,
    /// The life of its host in which it was issued. Requests from before a host's failure belong to no host
    /// any more.
    life: u32,
    /// Neighbours in the order of dispatch, of the same port and kind.
    before: u32,
    after: u32,
}

const _: () = assert!(size_of::<Option<ArrayRequest>>() == 64);

struct ArrayState {
    device: Device,
    /// Devices that it was before it became another one, as long as requests are under way there.
    former: Vec<Device>,
    /// Time of the device's next event; `u64::MAX`: none until a request is submitted.
    next: u64,
    latency: LatencyDistribution,
    count: u64,
    bytes: u64,
    /// Data that its cache had to write when the statistics began.
    dirty: Bytes,
}

/// A host.
struct HostState {
    up: bool,
    stages: Vec<u32>,
    tally: RequestTally,
}

/// A host's side of an array, or a virtual machine's where each has a law.
struct HostStage {
    host: u32,
    /// Number of times that its host has failed.
    life: u32,
    array: u32,
    vm: u32,
    resource: ResourceName,
    queue: RegulatedQueue<WaitingRequest>,
    ports: Vec<u32>,
    /// Time of the planned wake-up.
    wake: u64,
    /// The state beside its law, if it has one. In a box of its own, it keeps the data of every request
    /// closer together.
    steering: Option<Box<StageSteering>>,
    /// The latencies that its law steers by, if it steers by a percentile.
    percentile: Option<Box<SignalLatencies<ExactLatencies>>>,
    window: WindowTime,
    promises: PromiseCounts,
}

/// The state beside a stage's law: its place among the hosts, and the results of its last step.
struct StageSteering {
    /// Its place in the cluster; `None`: it steers by itself.
    member: Option<u32>,
    beta: Option<f64>,
    /// The latencies that it saw.
    local: Option<Latency>,
    together: Option<Latency>,
    estimate: Option<Latency>,
}

/// A virtual machine's way to an array.
struct VmPort {
    vm: u32,
    stage: u32,
    account: ConsumerAccount<LatencyDistribution>,
    /// The oldest and the newest request at the array, of reads and writes.
    at_array: [(u32, u32); 2],
    /// Requests of the time series' interval, and the sum of their times from release to completion, where
    /// the stage's law commands rates.
    series: (u64, u64),
}

/// A virtual machine.
struct VmState {
    on: bool,
    ports: Vec<u32>,
    streams: Range<u32>,
    felt: LatencyDistribution,
    tally: RequestTally,
    /// Counts since the time series' last interval; `before_measure` is the part of it before the statistics
    /// began.
    interval: RequestTally,
    before_measure: RequestTally,
    /// Request-nanoseconds of all its ports at the beginning of the time series' interval, and of the
    /// statistics.
    sampled: MeanSince,
    measured: MeanSince,
    /// The latencies by which it is judged, if a percentile of them counts.
    judged_latencies: Option<Box<JudgedLatencies>>,
    /// Intervals judged, and those above the target.
    judged: u64,
    above: u64,
    dropped: u64,
    /// Requests under way when the statistics began.
    under_way: u64,
    /// True if only its reads are judged.
    protected: bool,
}

/// A simulation under way.
pub(crate) struct Simulation<'a> {
    scenario: &'a Scenario,
    seed: u64,
    now: u64,
    end: u64,
    queue: EventQueue<EngineEvent>,
    arrays: Vec<ArrayState>,
    hosts: Vec<HostState>,
    stages: Vec<HostStage>,
    ports: Vec<VmPort>,
    vms: Vec<VmState>,
    streams: Vec<WorkloadStream<'a>>,
    groups: Vec<plan::GroupPlan>,
    changes: Vec<life::LifeChange>,
    cluster: SteeringHosts,
    requests: PlaceTable<ArrayRequest>,
    operations: Slab<VmOperation>,
    work: EngineWork,
    measured_from: u64,
    failed: Option<ScenarioError>,
    completed: Vec<DeviceCompletion>,
    steps: control::StepMemory,
}

impl<'a> Simulation<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64) -> Result<Self, ScenarioError> {
        let plan = EnginePlan::new(scenario, |name| RandomStream::of(seed, &["array", name]).seed())?;
        let mut simulation = Self {
            scenario,
            seed,
            now: 0,
            end: nanos(scenario.duration),
            queue: EventQueue::new(),
            arrays: Vec::new(),
            hosts: scenario
                .hosts
                .iter()
                .map(|_| HostState { up: true, stages: Vec::new(), tally: RequestTally::default() })
                .collect(),
            stages: Vec::new(),
            ports: Vec::new(),
            vms: Vec::new(),
            streams: Vec::new(),
            groups: plan.groups,
            changes: Vec::new(),
            cluster: SteeringHosts::new(scenario, seed),
            requests: PlaceTable::new(),
            operations: Slab::new(),
            work: EngineWork::default(),
            measured_from: 0,
            failed: None,
            completed: Vec::new(),
            steps: control::StepMemory::default(),
        };
        simulation.arrays.extend(plan.devices.into_iter().map(|installed| ArrayState {
            device: installed.device,
            former: Vec::new(),
            next: u64::MAX,
            latency: LatencyDistribution::default(),
            count: 0,
            bytes: 0,
            dirty: Bytes::ZERO,
        }));
        for stage in &plan.stages {
            simulation.add_stage(stage)?;
        }
        simulation.vms.extend(scenario.vms.iter().map(|vm| VmState::new(vm.protected)));
        for port in &plan.ports {
            simulation.add_port(port);
        }
        simulation.add_percentiles();
        for stream in plan.streams {
            simulation.add_stream(stream);
        }
        simulation.plan_everything();
        Ok(simulation)
    }

    fn add_stage(&mut self, plan: &plan::StagePlan) -> Result<(), ScenarioError> {
        let host = &self.scenario.hosts[plan.host as usize];
        let index = self.stages.len() as u32;
        let queue = queue(host, plan.depth, plan.law.clone())?;
        let steering = plan.law.is_some().then(|| {
            let vm = plan.vm.map(|vm| &self.scenario.vms[vm as usize].name);
            let member = plan.cluster.then(|| self.cluster.join(plan.host, host, vm, plan.array));
            Box::new(StageSteering { member, beta: None, local: None, together: None, estimate: None })
        });
        let mut stage = HostStage {
            host: plan.host,
            life: 0,
            array: plan.array,
            vm: plan.vm.unwrap_or(NONE),
            resource: self.scenario.arrays[plan.array as usize].name.clone(),
            queue,
            ports: Vec::new(),
            wake: u64::MAX,
            steering,
            percentile: None,
            window: WindowTime::default(),
            promises: PromiseCounts::default(),
        };
        stage.window.set(Some(stage.queue.window().get()), 0);
        self.stages.push(stage);
        self.hosts[plan.host as usize].stages.push(index);
        Ok(())
    }

    fn add_port(&mut self, plan: &plan::PortPlan) {
        let index = self.ports.len() as u32;
        let stage = &mut self.stages[plan.stage as usize];
        stage.ports.push(index);
        self.vms[plan.vm as usize].ports.push(index);
        self.ports.push(VmPort {
            vm: plan.vm,
            stage: plan.stage,
            account: stage.queue.add(terms(&self.scenario.vms[plan.vm as usize]), Instant::ZERO),
            at_array: [(NONE, NONE); 2],
            series: (0, 0),
        });
    }

    /// Prepares the percentiles that laws steer by, and those that virtual machines are judged by.
    fn add_percentiles(&mut self) {
        for stage in &mut self.stages {
            let vms = stage.ports.iter().map(|&port| self.ports[port as usize].vm);
            let is_any_protected = vms.into_iter().any(|vm| self.scenario.vms[vm as usize].protected);
            let percentile = |law| SignalLatencies::new(law, is_any_protected, Instant::ZERO);
            stage.percentile = stage.queue.law().and_then(percentile).map(Box::new);
        }
        for vm in 0..self.vms.len() {
            let host = self.host_of(vm as u32);
            let statistic = self.scenario.hosts[host as usize].statistic;
            self.vms[vm].judged_latencies = JudgedLatencies::new(statistic).map(Box::new);
        }
    }

    fn run(&mut self, recorder: &mut dyn Recorder) -> Result<(), ScenarioError> {
        let mut second = (self.now, self.work.events);
        for turn in 0_u64.. {
            if turn.is_multiple_of(BETWEEN_QUESTIONS) && recorder.is_stopped() {
                return Err(ScenarioError::Stopped);
            }
            let (since, events) = second;
            if self.now - since >= NANOS_PER_SECOND {
                second = (self.now, self.work.events);
            } else if self.work.events.saturating_sub(events) > MOST_EVENTS_PER_SECOND {
                let at = Latency::from_nanos(self.now);
                return Err(ScenarioError::TooFast { at, most: MOST_EVENTS_PER_SECOND });
            }
            let planned = self.queue.next_at().unwrap_or(u64::MAX);
            let (array, due) = self.next_array();
            let next = planned.min(due);
            if next > self.end || next == u64::MAX {
                break;
            }
            self.now = next;
            if due <= planned {
                self.advance_array(array);
            } else if let Some((_, event)) = self.queue.pop() {
                self.happen(event, recorder);
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
        }
        self.now = self.end;
        Ok(())
    }

    /// Returns the array with the earliest event, and its time. There are few arrays.
    fn next_array(&self) -> (u32, u64) {
        let mut first = (0, u64::MAX);
        for (index, array) in (0u32..).zip(&self.arrays) {
            if array.next < first.1 {
                first = (index, array.next);
            }
        }
        first
    }

    fn happen(&mut self, event: EngineEvent, recorder: &mut dyn Recorder) {
        self.work.events += 1;
        match event {
            EngineEvent::Thought { stream, epoch } => self.thought(stream, epoch),
            EngineEvent::Arrival { stream, epoch } => self.arrival(stream, epoch),
            EngineEvent::Wake { stage } => {
                let stage_state = &mut self.stages[stage as usize];
                if stage_state.wake == self.now {
                    stage_state.wake = u64::MAX;
                    self.pump(stage);
                }
            }
            EngineEvent::Step { group } => self.step(group, recorder),
            EngineEvent::Return { stage } => self.step_out_of_turn(stage, recorder),
            EngineEvent::Message { message } => self.cluster.deliver(message, self.now, &self.hosts),
            EngineEvent::Life { change } => self.change(change),
            EngineEvent::Cycle { stream } => self.turn(stream),
            EngineEvent::Becomes { array, change } => self.becomes(array, change),
            EngineEvent::Measure => self.measure(),
            EngineEvent::Sample => self.sample(recorder),
        }
    }

    fn becomes(&mut self, array: u32, change: u32) {
        let spec = &self.scenario.arrays[array as usize];
        let state = &mut self.arrays[array as usize];
        match &spec.changes[change as usize].to {
            ChangedArray::Rate(rate) => {
                let set = state.device.set_rate(instant(self.now), *rate);
                debug_assert!(set.is_ok(), "the plan lets only rates change that can");
            }
            ChangedArray::Device(config) => {
                let seed =
                    RandomStream::of(self.seed, &["array", spec.name.as_str(), &change.to_string()]).seed();
                let device = Device::new(config, seed).expect("the plan made one of it");
                state.former.push(std::mem::replace(&mut state.device, device));
            }
        }
        state.look();
    }

    /// Takes the requests that an array has finished by now.
    fn advance_array(&mut self, array: u32) {
        let mut completed = std::mem::take(&mut self.completed);
        let state = &mut self.arrays[array as usize];
        for former in &mut state.former {
            former.advance(instant(self.now), &mut completed);
        }
        state.former.retain(|former| former.in_flight() > 0);
        state.device.advance(instant(self.now), &mut completed);
        state.look();
        for completion in completed.drain(..) {
            self.work.events += 1;
            self.completed(completion.id as u32);
        }
        self.completed = completed;
    }

    /// Puts a request into its host's queue, or a flush directly to its array.
    fn issue(&mut self, stream: u32, port: u32, operation: u32, io: DeviceIo) {
        let request = WaitingRequest { io, issued: self.now, stream, port, operation };
        let port = &mut self.ports[port as usize];
        let stage = port.stage;
        self.work.requests += 1;
        self.work.events += 1;
        if io.kind == IoKind::Flush {
            self.submit(request, stage, self.now, NONE);
            return;
        }
        let extent = StorageExtent { offset: io.offset, bytes: io.bytes };
        let queue = &mut self.stages[stage as usize].queue;
        if queue.enqueue(&mut port.account, request, extent, instant(self.now)) {
            self.queue.push(self.now, EngineEvent::Return { stage });
        }
        self.pump(stage);
    }

    /// Dispatches the requests that the scheduler lets through.
    fn pump(&mut self, stage: u32) {
        let now = instant(self.now);
        loop {
            let state = &mut self.stages[stage as usize];
            match state.queue.pull(now) {
                PullAnswer::Request { request, released, .. } => self.dispatch(stage, request, released),
                PullAnswer::NotBefore(at) => {
                    let at = at.as_nanos();
                    if at < state.wake {
                        state.wake = at;
                        self.queue.push(at, EngineEvent::Wake { stage });
                    }
                    break;
                }
                PullAnswer::Nothing => break,
            }
        }
    }

    fn dispatch(&mut self, stage: u32, request: WaitingRequest, released: Instant) {
        self.work.events += 1;
        let port = &mut self.ports[request.port as usize];
        let kind = kind_of(request.io.kind);
        let released = port.account.dispatched(Some(kind), released, instant(self.now));
        let kind = kind as usize;
        let newest = port.at_array[kind].1;
        let key = self.submit(request, stage, released.as_nanos(), newest);
        let port = &mut self.ports[request.port as usize];
        port.at_array[kind].1 = key;
        if newest == NONE {
            port.at_array[kind].0 = key;
        } else {
            self.requests[newest as usize].after = key;
        }
    }

    /// Hands a request to its array. Its key.
    fn submit(&mut self, waited: WaitingRequest, stage: u32, released: u64, before: u32) -> u32 {
        let HostStage { life, array, .. } = self.stages[stage as usize];
        let request = ArrayRequest {
            issued: waited.issued,
            released,
            dispatched: self.now,
            kind: waited.io.kind,
            bytes: waited.io.bytes,
            stream: waited.stream,
            port: waited.port,
            operation: waited.operation,
            stage,
            life,
            before,
            after: NONE,
        };
        let key = self.requests.insert(request) as u32;
        let state = &mut self.arrays[array as usize];
        if state.device.submit(instant(self.now), u64::from(key), waited.io).is_err() {
            // Every region lies on its device, so the device is full: protected requests are bounded by no
            // window.
            let array = self.scenario.arrays[array as usize].name.clone();
            self.failed = Some(ScenarioError::Overrun { array, most: MAX_IN_FLIGHT });
        }
        state.look();
        key
    }

    /// Reads the data that a completion is about to need, and does nothing with it. With thousands of hosts
    /// none of it is in a cache any more. All reads at once wait together, and not one after the other.
    fn recall(&self, request: &ArrayRequest) {
        let port = &self.ports[request.port as usize];
        let vm = &self.vms[port.vm as usize];
        let stage = &self.stages[request.stage as usize];
        black_box(port.at_array);
        black_box((stage.life, stage.wake, vm.interval.count, vm.interval.judged_nanos, vm.protected));
        vm.felt.recall();
        self.streams[request.stream as usize].recall();
        stage.queue.recall(&port.account);
    }

    /// An array has finished a request.
    fn completed(&mut self, key: u32) {
        let request = self.requests.remove(key as usize);
        self.recall(&request);
        let port = &mut self.ports[request.port as usize];
        let stage = &mut self.stages[request.stage as usize];
        let flush = request.kind == IoKind::Flush;
        let device = self.now - request.dispatched;
        if !flush {
            let array = &mut self.arrays[stage.array as usize];
            array.latency.record(device);
            array.count += 1;
            array.bytes += u64::from(request.bytes);
        }
        if request.life != stage.life {
            return;
        }
        if !flush {
            let felt = self.now - request.issued;
            let kind = kind_of(request.kind);
            unlink(&mut self.requests, port, kind as usize, &request);
            if port.account.rates().is_some() {
                port.series = (port.series.0 + 1, port.series.1 + self.now.saturating_sub(request.released));
            }
            let done = CompletedRequest {
                kind: Some(kind),
                bytes: request.bytes,
                released: instant(request.released),
                dispatched: instant(request.dispatched),
                is_sample: true,
            };
            stage.queue.completed(&mut port.account, &done, instant(self.now));
            let vm = &mut self.vms[port.vm as usize];
            vm.felt.record(felt);
            let judged = !vm.protected || kind == OperationKind::Read;
            if let Some(signal) = &mut stage.percentile
                && let Some(latencies) = signal.of_request(vm.protected, kind == OperationKind::Read)
            {
                latencies.record(device);
            }
            if let Some(latencies) = vm.judged_latencies.as_mut().filter(|_| judged) {
                latencies.record(device);
            }
            let done = RequestTally {
                count: 1,
                bytes: request.bytes.into(),
                ops: 0,
                felt_nanos: felt,
                device_nanos: device,
                judged: u64::from(judged),
                judged_nanos: if judged { device } else { 0 },
            };
            vm.interval.add(&done);
        }
        self.request_done(request.stream, request.operation);
        self.pump(request.stage);
    }
}

/// Returns the request's kind, as the law and the statistics distinguish them.
fn kind_of(kind: IoKind) -> OperationKind {
    if kind == IoKind::Read { OperationKind::Read } else { OperationKind::Write }
}

/// Takes a request out of the order of dispatch.
fn unlink(requests: &mut PlaceTable<ArrayRequest>, port: &mut VmPort, kind: usize, request: &ArrayRequest) {
    match request.before {
        NONE => port.at_array[kind].0 = request.after,
        before => requests[before as usize].after = request.after,
    }
    match request.after {
        NONE => port.at_array[kind].1 = request.before,
        after => requests[after as usize].before = request.before,
    }
}

/// Makes the queue of a host's stage.
fn queue(
    host: &ScenarioHost,
    depth: Window,
    law: Option<LoopConfig>,
) -> Result<RegulatedQueue<WaitingRequest>, ScenarioError> {
    RegulatedQueue::new(QueueConfig {
        scheduler: SfqConfig {
            discipline: host.discipline,
            batch: host.batch,
            idle_credit: host.idle_credit,
            ..SfqConfig::default()
        },
        depth,
        release: host.release,
        law,
        starts_throttled: host.law_from == Instant::ZERO,
    })
    .map_err(|reason| ScenarioError::Law { host: host.name.clone(), reason })
}

/// The terms of a virtual machine, as the queue needs them.
fn terms(vm: &VirtualMachine) -> ConsumerTerms {
    ConsumerTerms {
        name: vm.name.clone(),
        shares: vm.shares,
        protected: vm.protected,
        released: false,
        reservation: vm.reservation,
        limit: vm.limit,
        contract: vm.contract,
        goal: vm.goal,
        bucket: vm.bucket,
    }
}

fn instant(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

impl ArrayState {
    /// Looks when there is something to do next.
    fn look(&mut self) {
        let next = self.former.iter().chain([&self.device]).filter_map(Device::next_event).min();
        self.next = next.map_or(u64::MAX, Instant::as_nanos);
    }
}

impl VmState {
    fn new(protected: bool) -> Self {
        Self {
            on: false,
            ports: Vec::new(),
            streams: 0..0,
            felt: LatencyDistribution::default(),
            tally: RequestTally::default(),
            interval: RequestTally::default(),
            before_measure: RequestTally::default(),
            sampled: MeanSince::default(),
            measured: MeanSince::default(),
            judged_latencies: None,
            judged: 0,
            above: 0,
            dropped: 0,
            under_way: 0,
            protected,
        }
    }
}
