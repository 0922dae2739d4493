//! Hosts with real schedulers and loops, around one modelled device, in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;
use tidegate_control::{
    ConsumerObservation, ControlLoop, Decision, HeardReport, HostReport, LoopConfig, MeanOutstanding,
    Observation, OperationTotals, combine,
};
use tidegate_device::{Device, DeviceCompletion, DeviceConfig, DeviceIo};
use tidegate_sched::{FlowCapacity, FlowConfig, FlowId, PullAnswer, Sfq, SfqConfig, StorageExtent};
use tidegate_units::{Bytes, ConsumerName, HostName, Instant, Iops, Latency, Shares};

/// 4 KiB reads at random, everywhere on the device.
const BYTES: u32 = 4_096;

/// What a host's clients ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Load {
    /// So many requests at a time, each followed by the next at once.
    Closed(u32),
    /// So many per second, at random (Poisson).
    Open(f64),
}

/// One control interval of one host.
#[derive(Debug, Clone)]
pub(crate) struct Tick {
    pub(crate) at: f64,
    pub(crate) host: usize,
    pub(crate) completed: u64,
    pub(crate) waited: f64,
    pub(crate) decision: Decision,
}

struct Host {
    name: HostName,
    alive: bool,
    load: Load,
    control: ControlLoop,
    scheduler: Sfq<u64>,
    flow: FlowId,
    /// When each request at the device was dispatched.
    dispatched: BTreeMap<u64, Instant>,
    arrived: OperationTotals,
    outstanding: f64,
    counted: Instant,
    next_arrival: Option<Instant>,
    report: Option<HostReport>,
}

pub(crate) struct Plant {
    device: Device,
    capacity: u64,
    hosts: Vec<Host>,
    rng: Pcg64,
    now: Instant,
    ids: u64,
    interval: Duration,
    next_tick: Instant,
    pub(crate) ticks: Vec<Tick>,
    /// What the first host tells the others instead of its set point.
    pub(crate) published_by_first: Option<Latency>,
}

impl Plant {
    pub(crate) fn new(device: &DeviceConfig, loads: &[Load], config: &LoopConfig, seed: u64) -> Self {
        let device = Device::new(device, seed).unwrap();
        let hosts = loads
            .iter()
            .enumerate()
            .map(|(index, load)| {
                let control = ControlLoop::new(config.clone()).unwrap();
                let capacity = FlowCapacity { requests: 1 << 20, bytes: Bytes::from_mib(1 << 20) };
                let mut scheduler = Sfq::new(SfqConfig::default());
                let flow =
                    scheduler.add_flow(&FlowConfig { capacity, ..FlowConfig::default() }, Instant::ZERO);
                Host {
                    name: HostName::new(&format!("host-{index}")).unwrap(),
                    alive: true,
                    load: *load,
                    control,
                    scheduler,
                    flow,
                    dispatched: BTreeMap::new(),
                    arrived: OperationTotals::default(),
                    outstanding: 0.0,
                    counted: Instant::ZERO,
                    next_arrival: None,
                    report: None,
                }
            })
            .collect();
        let capacity = device.capacity().get();
        let mut plant = Self {
            device,
            capacity,
            hosts,
            rng: Pcg64::seed_from_u64(seed ^ 0x5eed),
            now: Instant::ZERO,
            ids: 0,
            interval: config.interval,
            next_tick: Instant::ZERO + config.interval,
            ticks: Vec::new(),
            published_by_first: None,
        };
        for (host, load) in loads.iter().enumerate() {
            plant.set_load(host, *load);
        }
        plant
    }

    /// Other demand from now on. A closed load that becomes less lets what is under way finish.
    pub(crate) fn set_load(&mut self, host: usize, load: Load) {
        self.hosts[host].load = load;
        self.hosts[host].next_arrival = None;
        match load {
            Load::Closed(depth) => {
                let there = self.hosts[host].outstanding_now();
                for _ in there..depth {
                    self.arrive(host);
                }
            }
            Load::Open(_) => self.plan_arrival(host),
        }
        self.dispatch(host);
    }

    pub(crate) fn set_rate(&mut self, per_second: f64) {
        self.device.set_rate(self.now, Iops::new(per_second)).unwrap();
    }

    /// The host stops: neither its clients nor its loop do anything any more.
    pub(crate) fn kill(&mut self, host: usize) {
        self.hosts[host].alive = false;
        self.hosts[host].load = Load::Closed(0);
        self.hosts[host].next_arrival = None;
        self.hosts[host].scheduler.set_window(Some(tidegate_units::Window::new(1e-9)), self.now);
    }

    pub(crate) fn reconfigure(&mut self, host: usize, config: LoopConfig) {
        self.hosts[host].control.reconfigure(config).unwrap();
    }

    pub(crate) fn run(&mut self, seconds: f64) {
        let end = self.now + Latency::from_secs_f64(seconds);
        let mut done: Vec<DeviceCompletion> = Vec::new();
        loop {
            let wakes = (0..self.hosts.len()).filter_map(|host| self.dispatch(host)).min();
            let arrival = self.hosts.iter().filter_map(|host| host.next_arrival).min();
            let next = [self.device.next_event(), wakes, arrival, Some(self.next_tick)]
                .into_iter()
                .flatten()
                .min()
                .unwrap();
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            self.device.advance(next, &mut done);
            for completion in done.drain(..) {
                self.complete(completion);
            }
            for host in 0..self.hosts.len() {
                if self.hosts[host].next_arrival.is_some_and(|at| at <= next) {
                    self.arrive(host);
                    self.plan_arrival(host);
                }
            }
            if next >= self.next_tick {
                self.tick();
                self.next_tick = self.next_tick + self.interval;
            }
        }
    }

    fn plan_arrival(&mut self, host: usize) {
        if let Load::Open(rate) = self.hosts[host].load {
            let gap: f64 = Exp1.sample(&mut self.rng);
            self.hosts[host].next_arrival = Some(self.now + Latency::from_secs_f64(gap / rate));
        }
    }

    fn arrive(&mut self, host: usize) {
        let (now, id) = (self.now, self.ids);
        self.ids += 1;
        let host = &mut self.hosts[host];
        host.count(now);
        let extent = StorageExtent { offset: 0, bytes: BYTES };
        host.scheduler.enqueue(host.flow, now, id, extent).map_err(|refused| refused.reason).unwrap();
    }

    /// Lets go what may go; when to come back for more.
    fn dispatch(&mut self, index: usize) -> Option<Instant> {
        loop {
            let host = &mut self.hosts[index];
            match host.scheduler.pull(self.now) {
                PullAnswer::Request { request, .. } => {
                    let block = self.rng.random_range(0..self.capacity / u64::from(BYTES));
                    let io = DeviceIo::read(block * u64::from(BYTES), BYTES);
                    self.device.submit(self.now, request, io).unwrap();
                    host.dispatched.insert(request, self.now);
                }
                PullAnswer::NotBefore(at) => return Some(at),
                PullAnswer::Nothing => return None,
            }
        }
    }

    fn complete(&mut self, completion: DeviceCompletion) {
        let index = self.hosts.iter().position(|host| host.dispatched.contains_key(&completion.id)).unwrap();
        let host = &mut self.hosts[index];
        let began = host.dispatched.remove(&completion.id).unwrap();
        host.count(self.now);
        host.scheduler.complete(host.flow, self.now).unwrap();
        host.arrived.count += 1;
        host.arrived.bytes = Bytes::new(host.arrived.bytes.get() + u64::from(BYTES));
        let nanos = host.arrived.total_latency.as_nanos() + completion.at.latency_since(began).as_nanos();
        host.arrived.total_latency = Latency::from_nanos(nanos);
        if matches!(host.load, Load::Closed(depth) if host.outstanding_now() < depth) {
            self.arrive(index);
        }
    }

    /// All live hosts report, hear each other, decide.
    fn tick(&mut self) {
        let now = self.now;
        let mut observations = Vec::new();
        for host in self.hosts.iter_mut().filter(|host| host.alive) {
            let observation = host.observe(now, self.interval);
            host.report = Some(host.control.report(&observation));
            observations.push(observation);
        }
        if let (Some(lie), Some(report)) = (self.published_by_first, &mut self.hosts[0].report) {
            report.set_point = Some(lie);
        }
        let alive: Vec<usize> = (0..self.hosts.len()).filter(|host| self.hosts[*host].alive).collect();
        for (mut observation, index) in observations.into_iter().zip(&alive) {
            if self.hosts.len() > 1 {
                let peers: Vec<HeardReport> = alive
                    .iter()
                    .filter(|peer| *peer != index)
                    .map(|peer| HeardReport {
                        host: self.hosts[*peer].name.clone(),
                        age: Latency::ZERO,
                        report: self.hosts[*peer].report.clone().unwrap(),
                    })
                    .collect();
                let own = &self.hosts[*index];
                observation.cluster =
                    Some(combine(&own.name, own.report.as_ref().unwrap(), &peers, self.interval));
            }
            let host = &mut self.hosts[*index];
            let reads = observation.consumers[0].reads;
            let (commands, decision) = host.control.step(now, &observation);
            host.scheduler.set_window(commands.window, now);
            self.ticks.push(Tick {
                at: now.as_secs_f64(),
                host: *index,
                completed: reads.count,
                waited: reads.total_latency.as_secs_f64(),
                decision,
            });
        }
    }

    /// Requests per second of all hosts, and their mean response time in ms, from `from` until now.
    pub(crate) fn measured(&self, from: f64) -> (f64, f64) {
        let ticks = || self.ticks.iter().filter(|tick| tick.at > from);
        let completed: u64 = ticks().map(|tick| tick.completed).sum();
        let waited: f64 = ticks().map(|tick| tick.waited).sum();
        let seconds = self.now.as_secs_f64() - from;
        (completed as f64 / seconds, waited / completed as f64 * 1e3)
    }

    /// The mean set point of a host since `from`, in ms.
    pub(crate) fn set_point(&self, host: usize, from: f64) -> f64 {
        let set_points: Vec<f64> = self
            .ticks
            .iter()
            .filter(|tick| tick.host == host && tick.at > from)
            .map(|tick| tick.decision.set_point.as_millis_f64())
            .collect();
        set_points.iter().sum::<f64>() / set_points.len() as f64
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.now.as_secs_f64()
    }
}

impl Host {
    fn outstanding_now(&self) -> u32 {
        u32::try_from(self.scheduler.queued()).unwrap() + self.scheduler.outstanding()
    }

    fn count(&mut self, now: Instant) {
        let seconds = now.latency_since(self.counted).as_secs_f64();
        self.outstanding += f64::from(self.outstanding_now()) * seconds;
        self.counted = now;
    }

    fn observe(&mut self, now: Instant, interval: Duration) -> Observation {
        self.count(now);
        let oldest = self.dispatched.values().min().map(|began| now.latency_since(*began));
        let reads = OperationTotals {
            in_flight: self.scheduler.outstanding(),
            oldest_in_flight: oldest,
            ..std::mem::take(&mut self.arrived)
        };
        let consumer = ConsumerObservation {
            reads,
            mean_outstanding: MeanOutstanding::new(
                std::mem::take(&mut self.outstanding) / interval.as_secs_f64(),
            ),
            queued: u32::try_from(self.scheduler.queued()).unwrap(),
            ..ConsumerObservation::idle(ConsumerName::new("vm").unwrap(), Shares::DEFAULT, false)
        };
        Observation::new(self.control.config().resource.clone(), now, vec![consumer])
    }
}
