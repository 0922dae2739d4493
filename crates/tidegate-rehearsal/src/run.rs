//! One run: the recorded demand, the loop, and the modelled storage, from interval to interval.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::{
    Commands, ConsumerObservation, ControlLoop, LoopConfig, MeanOutstanding, Observation, SignalRequests,
};
use tidegate_sched::CostModel;
use tidegate_units::{Bytes, Instant, Iops, Latency};

use crate::demand::Episode;
use crate::noise::LatencyNoise;
use crate::recording::{Activity, Recording};
use crate::seconds::{JudgedSeconds, signal_kinds};
use crate::service::{Flow, OfferedWork, Served, serve};
use crate::storage_model::{RequestClasses, StorageModel};

/// The part of an episode's requests that may be missing when it counts as done.
const DONE: f64 = 0.002;

/// Points of the curve of latency over time.
pub(crate) const POINTS: usize = 240;

/// Everything that a run begins with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunPlan<'a> {
    pub(crate) recording: &'a Recording,
    pub(crate) classes: &'a RequestClasses,
    pub(crate) model: &'a StorageModel,
    pub(crate) episodes: &'a [Episode],
    /// True for consumers whose demand is closed.
    pub(crate) closed: &'a [bool],
    pub(crate) signal: SignalRequests,
    pub(crate) seed: u64,
    /// True if the loop acts. Without, the run is the recorded time once more.
    pub(crate) acts: bool,
    /// The lowest load that the recording knows.
    pub(crate) lowest: f64,
}

/// The outcome of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunOutcome {
    pub(crate) seconds: JudgedSeconds,
    pub(crate) consumers: Vec<ConsumerRun>,
    /// Requests of the signal and the sum of their latencies, for each point of the curve.
    pub(crate) curve: Vec<(f64, f64)>,
    /// Seconds in which the loop throttled, and those of them below the lowest load.
    pub(crate) throttled: f64,
    pub(crate) below: f64,
}

/// The outcome of a run for one consumer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConsumerRun {
    /// Requests completed within recorded episodes, in the run and as recorded.
    pub(crate) completed: f64,
    pub(crate) recorded: f64,
    /// The greatest time by which an episode's work was done later, in seconds. Infinite: never.
    pub(crate) late: f64,
    /// Completed requests and the sum of their latencies at the resource.
    pub(crate) requests: f64,
    pub(crate) latency: f64,
}

/// A consumer under way.
#[derive(Debug, Clone, Default)]
struct Consumer {
    /// Its recorded requests at the end of the last interval.
    pending: f64,
    /// Requests outstanding that arrived by themselves.
    backlog: f64,
    /// The episode that it is in; after its end, the last one.
    episode: Option<usize>,
    during: bool,
    /// Requests completed, and to be completed, since the beginning.
    done: f64,
    due: f64,
    /// Ends of episodes whose work is not done, with the work to be done by then.
    owed: VecDeque<(f64, f64)>,
    /// Fractions of requests that were completed and not yet reported.
    unreported: [f64; 2],
    reads: f64,
    bytes: [f64; 2],
    /// Seconds in which it completed anything.
    active: f64,
    rate: f64,
    delay: f64,
    /// The signal's kinds of requests.
    signal: [bool; 2],
    run: ConsumerRun,
}

/// Runs a plan from beginning to end.
pub(crate) fn run(plan: &RunPlan<'_>) -> RunOutcome {
    let mut running = Running::new(plan);
    for at in 0..plan.recording.steps.len() {
        running.step(at);
    }
    running.finish()
}

struct Running<'a> {
    plan: RunPlan<'a>,
    noise: LatencyNoise<'a>,
    control: Option<ControlLoop>,
    next_config: usize,
    /// Episodes by their beginnings, and the next of these and of the ends.
    begins: Vec<usize>,
    next_begin: usize,
    next_end: usize,
    consumers: Vec<Consumer>,
    observation: Observation,
    flows: Vec<Flow>,
    served: Vec<Served>,
    /// Consumers with an observation of their own in the last interval.
    observed: Vec<usize>,
    window: f64,
    load: f64,
    now: Instant,
    time: f64,
    all: f64,
    outcome: RunOutcome,
}

impl<'a> Running<'a> {
    fn new(plan: &RunPlan<'a>) -> Self {
        let recording = plan.recording;
        let consumers = recording.consumers.iter().map(|consumer| Consumer {
            reads: 1.0,
            bytes: [4_096.0; 2],
            rate: f64::INFINITY,
            signal: signal_kinds(plan.signal, consumer.protected),
            ..Consumer::default()
        });
        let idle = recording.consumers.iter().map(|consumer| ConsumerObservation {
            goal: consumer.goal,
            reservation: consumer.reservation,
            ..ConsumerObservation::idle(consumer.name.clone(), consumer.shares, consumer.protected)
        });
        let mut begins: Vec<usize> = (0..plan.episodes.len()).collect();
        begins.sort_by_key(|&at| plan.episodes[at].first);
        let target = recording.last_config().map_or(Latency::ZERO, |config| config.target).as_secs_f64();
        Self {
            plan: *plan,
            noise: LatencyNoise::new(recording, plan.model, plan.classes, plan.seed, plan.acts),
            control: None,
            next_config: 0,
            begins,
            next_begin: 0,
            next_end: 0,
            consumers: consumers.collect(),
            observation: Observation::new(recording.resource.clone(), Instant::ZERO, idle.collect()),
            flows: Vec::new(),
            served: Vec::new(),
            observed: Vec::new(),
            window: f64::INFINITY,
            load: 0.0,
            now: Instant::ZERO,
            time: 0.0,
            all: recording.seconds(),
            outcome: RunOutcome {
                seconds: JudgedSeconds::new(target),
                consumers: Vec::new(),
                curve: vec![(0.0, 0.0); POINTS],
                throttled: 0.0,
                below: 0.0,
            },
        }
    }

    fn step(&mut self, at: usize) {
        let recording = self.plan.recording;
        let elapsed = f64::from(recording.steps[at].elapsed);
        self.configure(at);
        self.begin_episodes(at);
        self.offer(at, elapsed);
        let depth = recording.depth.map_or(f64::INFINITY, tidegate_units::Window::get);
        let guess = if self.load > 0.0 { self.load } else { self.noise.recorded_load(at) };
        let window = self.window.min(depth);
        self.load = serve(self.plan.model, &self.flows, window, elapsed, guess, &mut self.served);
        self.noise.begin(at, self.load);
        self.time += elapsed;
        self.now = self.now + Duration::from_secs_f64(elapsed);
        let is_throttled = self.is_throttled(depth);
        if is_throttled {
            self.outcome.throttled += elapsed;
            self.outcome.below += if self.load < self.plan.lowest { elapsed } else { 0.0 };
        }
        self.count(elapsed);
        self.outcome.seconds.pass(elapsed);
        self.end_episodes(at);
        self.decide();
    }

    /// Takes the configurations that are in force from this step on.
    fn configure(&mut self, at: usize) {
        if !self.plan.acts {
            return;
        }
        let configs = &self.plan.recording.configs;
        while let Some((from, config)) = configs.get(self.next_config)
            && *from <= at
        {
            self.next_config += 1;
            let config = LoopConfig { dry_run: false, released: false, ..config.clone() };
            match &mut self.control {
                Some(control) => {
                    // An error leaves the loop as it is. Configurations of checkpoints are valid.
                    let _ = control.reconfigure(config);
                }
                None => self.control = ControlLoop::new(config).ok(),
            }
        }
    }

    fn begin_episodes(&mut self, at: usize) {
        while let Some(&next) = self.begins.get(self.next_begin)
            && self.plan.episodes[next].first <= at
        {
            self.next_begin += 1;
            let consumer = &mut self.consumers[self.plan.episodes[next].consumer];
            (consumer.episode, consumer.during) = (Some(next), true);
        }
    }

    /// Gathers the demand of an interval.
    fn offer(&mut self, at: usize, elapsed: f64) {
        self.flows.clear();
        let mut activities = self.plan.recording.activities(at).iter().peekable();
        for consumer in 0..self.consumers.len() {
            // Activities are in the order of an observation, which as a rule is that of the consumers.
            let activity = match activities.peek() {
                Some(next) if next.consumer as usize == consumer => activities.next(),
                Some(next) if (next.consumer as usize) < consumer => {
                    let mut all = self.plan.recording.activities(at).iter();
                    all.find(|activity| activity.consumer as usize == consumer)
                }
                _ => None,
            };
            if let Some(offered) = self.offered(consumer, activity, elapsed) {
                let flow = self.flow(consumer, offered);
                self.flows.push(flow);
            }
        }
    }

    /// Returns the work that a consumer brings; `None` if it is idle.
    fn offered(&mut self, at: usize, activity: Option<&Activity>, elapsed: f64) -> Option<OfferedWork> {
        let consumer = &mut self.consumers[at];
        if let Some(activity) = activity
            && activity.count() > 0.0
        {
            let [reads, writes] = activity.completed;
            consumer.reads = f64::from(reads.count) / activity.count();
            for (mean, kind) in consumer.bytes.iter_mut().zip([reads, writes]) {
                if kind.count > 0.0 {
                    *mean = f64::from(kind.bytes) / f64::from(kind.count);
                }
            }
        }
        if self.plan.closed[at] {
            let outstanding = activity.map_or(0.0, |activity| f64::from(activity.outstanding));
            if consumer.during {
                return (outstanding > 0.0).then_some(OfferedWork::Closed(outstanding));
            }
            let episode = &self.plan.episodes[consumer.episode?];
            consumer.owed.front()?;
            consumer.reads = episode.reads;
            return Some(OfferedWork::Closed(episode.outstanding));
        }
        let pending = activity.map_or(0.0, |activity| f64::from(activity.pending));
        let completed = activity.map_or(0.0, Activity::count);
        let arrived = (completed + pending - std::mem::replace(&mut consumer.pending, pending)).max(0.0);
        (arrived > 0.0 || consumer.backlog > 1e-3)
            .then_some(OfferedWork::Open { backlog: consumer.backlog, rate: arrived / elapsed })
    }

    fn flow(&self, at: usize, offered: OfferedWork) -> Flow {
        let consumer = &self.consumers[at];
        let recorded = &self.plan.recording.consumers[at];
        let bytes = consumer.reads * consumer.bytes[0] + (1.0 - consumer.reads) * consumer.bytes[1];
        let cost = CostModel::default().in_ios(Iops::new(1.0), 1, Bytes::new(bytes as u64)).per_second();
        Flow {
            consumer: at,
            class: self.plan.classes.of(at),
            reads: consumer.reads,
            offered,
            rate: consumer.rate,
            delay: consumer.delay,
            exempt: recorded.protected,
            weight: recorded.shares.as_f64() / cost,
            reserved: recorded.reservation.filter(|_| self.plan.acts).map_or(0.0, Iops::per_second),
        }
    }

    /// Returns true if the commands in force kept anything waiting in this interval.
    fn is_throttled(&self, depth: f64) -> bool {
        let mut limited = self.flows.iter().zip(&self.served).filter(|(flow, _)| !flow.exempt);
        limited.any(|(flow, served)| {
            let waits = served.outstanding > 1.02 * served.at_resource + 0.05;
            waits && (self.window < depth || flow.rate.is_finite() || flow.delay > 0.0)
        })
    }

    /// Counts an interval, and writes it into the observation.
    fn count(&mut self, elapsed: f64) {
        for at in self.observed.drain(..) {
            let observed = &mut self.observation.consumers[at];
            let name = observed.name.clone();
            let (goal, reservation) = (observed.goal, observed.reservation);
            let idle = ConsumerObservation::idle(name, observed.shares, observed.protected);
            *observed = ConsumerObservation { goal, reservation, ..idle };
        }
        let point = ((self.time - elapsed) / self.all * POINTS as f64) as usize;
        let point = point.min(POINTS - 1);
        for (flow, served) in self.flows.iter().zip(&self.served) {
            let consumer = &mut self.consumers[flow.consumer];
            let observed = &mut self.observation.consumers[flow.consumer];
            consumer.done += served.requests;
            consumer.active += if served.requests > 0.0 { elapsed } else { 0.0 };
            if consumer.during {
                consumer.run.completed += served.requests;
            }
            if let OfferedWork::Open { .. } = flow.offered {
                consumer.backlog = served.remaining;
            }
            let mean = flow.reads * served.latency[0] + (1.0 - flow.reads) * served.latency[1];
            let parts = [flow.reads, 1.0 - flow.reads];
            let noise = self.noise.factors(flow.consumer, parts.map(|part| part * served.requests));
            for (kind, part) in parts.into_iter().enumerate() {
                let latency = served.latency[kind] * noise[kind];
                consumer.unreported[kind] += part * served.requests;
                let count = consumer.unreported[kind].floor();
                consumer.unreported[kind] -= count;
                let total = count * latency;
                if consumer.signal[kind] {
                    self.outcome.seconds.add(count, total);
                    self.outcome.curve[point].0 += count;
                    self.outcome.curve[point].1 += total;
                }
                consumer.run.requests += count;
                consumer.run.latency += total;
                let totals = if kind == 0 { &mut observed.reads } else { &mut observed.writes };
                totals.count = count as u64;
                totals.bytes = Bytes::new((count * consumer.bytes[kind]) as u64);
                totals.total_latency = Latency::from_secs_f64(total);
                let in_flight = (served.at_resource * part * served.latency[kind] / mean).round();
                totals.in_flight = in_flight as u32;
                totals.oldest_in_flight = (in_flight > 0.0).then(|| Latency::from_secs_f64(latency));
            }
            observed.mean_outstanding = MeanOutstanding::new(served.outstanding);
            observed.queued = (served.outstanding - served.at_resource).round().max(0.0) as u32;
            if flow.rate.is_finite() && observed.queued > 0 {
                observed.short_of_tokens = Latency::from_secs_f64(elapsed);
            }
            *observed = observed.clone().rounded();
            self.observed.push(flow.consumer);
        }
    }

    /// Ends the episodes whose last step this is, and looks whose work is done.
    fn end_episodes(&mut self, at: usize) {
        while let Some(episode) = self.plan.episodes.get(self.next_end)
            && episode.end <= at + 1
        {
            self.next_end += 1;
            let consumer = &mut self.consumers[episode.consumer];
            consumer.during = false;
            consumer.due += episode.requests;
            consumer.run.recorded += episode.requests;
            // What was done beyond that is no work of a later time.
            consumer.done = consumer.done.min(consumer.due);
            consumer.owed.push_back((self.time, consumer.due - (DONE * episode.requests).max(1.0)));
        }
        let time = self.time;
        for consumer in &mut self.consumers {
            while let Some((ended, due)) = consumer.owed.front()
                && consumer.done >= *due
            {
                consumer.run.late = consumer.run.late.max(time - ended);
                consumer.owed.pop_front();
            }
        }
    }

    /// Steps the loop, and puts its commands into force.
    fn decide(&mut self) {
        let Some(control) = &mut self.control else { return };
        self.observation.at = self.now;
        let (Commands { window, consumers, .. }, _) = control.step(self.now, &self.observation);
        self.window = window.map_or(f64::INFINITY, tidegate_units::Window::get);
        let mut commands = consumers.iter();
        for (consumer, recorded) in self.consumers.iter_mut().zip(&self.plan.recording.consumers) {
            // Commands are in the order of the observation, without the protected consumers.
            let command = if recorded.protected { None } else { commands.next() };
            let rate = command.and_then(|command| command.rate);
            consumer.rate = rate.map_or(f64::INFINITY, Iops::per_second);
            let delay = command.and_then(|command| command.delay);
            consumer.delay = delay.map_or(0.0, Latency::as_secs_f64);
        }
    }

    /// Ends the run. Work that is not done is taken to go on at the rate of the consumer's active time.
    fn finish(mut self) -> RunOutcome {
        for consumer in &mut self.consumers {
            let rate = consumer.done / consumer.active.max(1e-9);
            while let Some((ended, due)) = consumer.owed.pop_front() {
                let left = (due - consumer.done).max(0.0);
                let later = if rate > 0.0 { left / rate } else { f64::INFINITY };
                consumer.run.late = consumer.run.late.max(self.time - ended + later);
            }
        }
        self.outcome.consumers = self.consumers.iter().map(|consumer| consumer.run).collect();
        self.outcome
    }
}
