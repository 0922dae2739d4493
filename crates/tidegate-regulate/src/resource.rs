//! The regulation of one resource, from loads to the throttling in force.

use std::time::Duration;

use tidegate_control::{
    ClusterSignal, Commands, ConsumerObservation, ControlLoop, Decision, HostReport, LawOutput, LoopConfig,
    LoopConfigError, MeanOutstanding, Observation, OperationTotals, OutputBound, SignalPercentile,
};
use tidegate_units::{ConsumerName, Instant, Iops, Latency, Shares};

use crate::consumer::{EligibleConsumer, RegulatedConsumer};
use crate::delay::{MemberDemand, MemberInterval};
use crate::division::{WeightedShare, divide};
use crate::limit::DirectionLimits;
use crate::load::{DeviceLoad, InFlight, SentLoad, StorageLoad};
use crate::sent::SentRequests;
use crate::steering::SteeredDelay;

/// A consumer that completes at least this fraction of its rate counts as throttled by it. Kernels do not say
/// which consumers wait for a limit.
const THROTTLED: f64 = 0.9;

/// The name of all consumers that are not eligible, together.
const ALL_OTHERS: &str = "(all others)";

/// The way in which commands are carried out, with its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ThrottleKind {
    /// One delay for all requests of all consumers, which sensors do not see.
    Delay {
        /// The longest delay that a window comes to.
        longest: Latency,
    },
    /// One delay for the writes of all consumers, which waits in front of the device: its
    /// [`WritePace`](crate::WritePace) knows for how long.
    WriteDelay {
        /// The longest delay that a window comes to.
        longest: Latency,
    },
    /// A rate for each consumer.
    Rates {
        /// The least rate of each.
        floor: Iops,
        /// The longest delay that a window comes to, before it becomes rates.
        longest: Latency,
    },
}

/// Makes a signal of other machines' reports and of what was measured here. `None`: what was measured here
/// is the signal.
pub type ReportedSignal<'a> = &'a mut dyn FnMut(&HostReport) -> Option<ClusterSignal>;

/// A decision with its input and its outcome, as a journal keeps them.
#[derive(Debug, Clone, PartialEq)]
pub struct RegulatedDecision {
    /// The observation that the loop was given.
    pub observation: Observation,
    /// The commands that resulted.
    pub commands: Commands,
    /// The decision.
    pub decision: Decision,
}

/// One resource: the load of its consumers since the last decision, its loop, and the throttling in force.
///
/// In each sample of a sensor: [`complete`](Self::complete) or [`send`](Self::send) for what was done, then
/// [`pass`](Self::pass). When that says that a decision is due, [`in_flight`](Self::in_flight) and
/// [`decide`](Self::decide). Afterwards [`delay`](Self::delay) and [`limits`](Self::limits) are to be in
/// force.
///
/// Consumers that are eligible for throttling are named ([`set_consumers`](Self::set_consumers)). All others
/// are observed together, as one protected consumer.
#[derive(Debug)]
pub struct RegulatedResource {
    control: ControlLoop,
    throttle: ThrottleKind,
    /// In the order of their names.
    consumers: Vec<RegulatedConsumer>,
    others: RegulatedConsumer,
    sent: SentRequests,
    demand: MemberDemand,
    steering: SteeredDelay,
    since_decision: Duration,
    last: Option<RegulatedDecision>,
    /// The delay of all consumers, or the one that is divided among them.
    delay: Latency,
    /// True if no decision has been made since a delay was imposed: then it is not divided.
    is_imposed: bool,
    /// All that was ever done to the resource.
    totals: StorageLoad,
    /// The requests that other machines ever reported; `None`: none report on the resource.
    reported: Option<OperationTotals>,
}

impl RegulatedResource {
    /// Creates a resource without consumers, of which none is throttled.
    ///
    /// # Errors
    /// When the loop cannot work so.
    pub fn new(law: LoopConfig, throttle: ThrottleKind) -> Result<Self, LoopConfigError> {
        let all_others = ConsumerName::new(ALL_OTHERS).expect("neither empty nor too long");
        Ok(Self {
            control: ControlLoop::new(law)?,
            throttle,
            consumers: Vec::new(),
            others: RegulatedConsumer::new(all_others),
            sent: SentRequests::default(),
            demand: MemberDemand::default(),
            steering: SteeredDelay::default(),
            since_decision: Duration::ZERO,
            last: None,
            delay: Latency::ZERO,
            is_imposed: false,
            totals: StorageLoad::default(),
            reported: None,
        })
    }

    /// Changes the set-up, without a release in between.
    ///
    /// # Errors
    /// When the loop cannot work so. Nothing is changed then.
    pub fn reconfigure(&mut self, law: LoopConfig, throttle: ThrottleKind) -> Result<(), LoopConfigError> {
        self.control.reconfigure(law)?;
        self.throttle = throttle;
        Ok(())
    }

    /// Returns the loop as it is after the last decision.
    #[must_use]
    pub const fn control(&self) -> &ControlLoop {
        &self.control
    }

    /// The loop's set-up.
    #[must_use]
    pub fn law(&self) -> &LoopConfig {
        self.control.config()
    }

    /// Names the eligible consumers, in ascending order. Those that come are not throttled at first. The load
    /// of those that are gone becomes that of the others.
    pub fn set_consumers(&mut self, eligible: impl IntoIterator<Item = EligibleConsumer>) {
        let mut known = std::mem::take(&mut self.consumers).into_iter().peekable();
        for EligibleConsumer { name, goal, weight } in eligible {
            while let Some(gone) = known.next_if(|known| known.name < name) {
                self.others.load.plus(&gone.load);
            }
            let stays = known.next_if(|known| known.name == name);
            let mut consumer = stays.unwrap_or_else(|| RegulatedConsumer::new(name));
            consumer.agree(goal, weight);
            debug_assert!(self.consumers.last().is_none_or(|last| last.name < consumer.name));
            self.consumers.push(consumer);
        }
        known.for_each(|gone| self.others.load.plus(&gone.load));
    }

    /// The eligible consumers, in ascending order.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = &ConsumerName> + Clone {
        self.consumers.iter().map(|consumer| &consumer.name)
    }

    /// Returns the place of a consumer among the eligible ones, good until the next
    /// [`set_consumers`](Self::set_consumers). `None` if it is not eligible.
    #[must_use]
    pub fn place_of(&self, name: &ConsumerName) -> Option<usize> {
        self.consumers.binary_search_by_key(&name, |consumer| &consumer.name).ok()
    }

    /// Takes the completed requests of an eligible consumer, by its place, or of others (`None`).
    pub fn complete(&mut self, place: Option<usize>, load: &StorageLoad) {
        self.totals.plus(load);
        self.consumer(place).complete(load);
    }

    /// Takes the time, in seconds, that requests of a consumer waited for the throttle where sensors count
    /// it.
    pub fn wait(&mut self, place: usize, seconds: f64) {
        self.consumers[place].load.outstanding_seconds += seconds;
    }

    /// Takes the requests that an eligible consumer, or others (`None`), have in flight when a decision is
    /// made. Where it is not known whose they are, they are others': part of the signal, and of no consumer's
    /// load.
    pub fn in_flight(&mut self, place: Option<usize>, reads: InFlight, writes: InFlight) {
        let load = &mut self.consumer(place).load;
        for (sum, more) in [(&mut load.reads, reads), (&mut load.writes, writes)] {
            sum.in_flight = sum.in_flight.saturating_add(more.count);
            sum.oldest_in_flight = sum.oldest_in_flight.max(more.oldest);
        }
    }

    /// Takes what consumers sent to a device, by their places, and what the device completed meanwhile. The
    /// rest is of others. If `is_new`, some consumers are counted for the first time.
    pub fn send(
        &mut self,
        now: Instant,
        elapsed: Duration,
        sent: impl IntoIterator<Item = (usize, SentLoad)>,
        is_new: bool,
        device: &DeviceLoad,
    ) {
        let mut all = SentLoad::default();
        for (place, sent) in sent {
            all.plus(&sent);
            self.consumers[place].send(elapsed, &sent, device);
        }
        let others = self.sent.of_others(now, &all, is_new, device);
        self.others.send(elapsed, &others, device);
        self.totals.plus(&StorageLoad {
            reads: device.reads,
            writes: device.writes,
            outstanding_seconds: 0.0,
        });
    }

    /// Takes note that nothing is known of the device, so that none of its requests are known to wait.
    pub const fn device_unknown(&mut self) {
        self.sent.device_unknown();
    }

    /// Takes the time since the last call. Returns the time since the last decision if the next one is due.
    #[must_use]
    pub fn pass(&mut self, elapsed: Duration) -> Option<Duration> {
        self.since_decision = self.since_decision.saturating_add(elapsed);
        // A sample that comes a little early is this interval's all the same.
        let is_due = self.since_decision.saturating_add(elapsed / 2) >= self.law().interval;
        is_due.then_some(self.since_decision)
    }

    /// Decides, and puts the decision into force. `percentile` is of the reads since the last decision, if
    /// the law steers by one.
    pub fn decide(&mut self, now: Instant, percentile: Option<SignalPercentile>) -> Decision {
        self.decide_with(now, percentile, None)
    }

    /// The same, where other machines report on the resource. `reported` makes the signal of their reports
    /// and of what was measured here.
    pub fn decide_with(
        &mut self,
        now: Instant,
        percentile: Option<SignalPercentile>,
        reported: Option<ReportedSignal<'_>>,
    ) -> Decision {
        let since = std::mem::take(&mut self.since_decision);
        let mut observation = Observation { percentile, ..self.observation(now, since) };
        if let Some(reported) = reported {
            observation.cluster = reported(&self.control.report(&observation));
            let totals = self.reported.get_or_insert_default();
            if let Some((mean, count)) =
                observation.cluster.as_ref().and_then(|all| Some((all.mean?, all.completed)))
            {
                totals.count = totals.count.saturating_add(count);
                totals.total_latency = totals.total_latency.saturating_add(mean.scale(count as f64));
            }
        }
        let (commands, mut decision) = self.control.step(now, &observation);
        let members = self.members(since, &observation);
        self.demand.observe(members);
        match self.throttle {
            ThrottleKind::Delay { longest } => {
                let by_window = self.delay_of(&commands, longest);
                // On a dry run nothing is commanded, and without consumers nothing answers to a delay.
                let may_steer = commands.window.is_some() && !self.consumers.is_empty();
                let steered = self.steering.steer(&decision, members, by_window, self.delay, longest);
                self.delay = steered.filter(|_| may_steer).unwrap_or(by_window);
            }
            ThrottleKind::WriteDelay { longest } => self.delay = self.delay_of(&commands, longest),
            ThrottleKind::Rates { floor, longest } => {
                self.delay = self.delay_of(&commands, longest);
                self.obey(&commands, floor);
            }
        }
        self.divide(since, &observation);
        self.tell_delay(&mut decision);
        self.last = Some(RegulatedDecision { observation, commands, decision: decision.clone() });
        decision
    }

    /// Returns the last decision with its input and its outcome.
    #[must_use]
    pub const fn last(&self) -> Option<&RegulatedDecision> {
        self.last.as_ref()
    }

    /// The last decision.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        self.last.as_ref().map(|last| &last.decision)
    }

    /// The delay that is to be in force for all consumers. Under [`ThrottleKind::Rates`], the longest delay
    /// that the rates stand for.
    #[must_use]
    pub const fn delay(&self) -> Latency {
        self.delay
    }

    /// The delay that is to be in force for each consumer, in ascending order: the same for all, unless they
    /// have weights.
    pub fn delays(&self) -> impl Iterator<Item = (&ConsumerName, Latency)> {
        self.consumers.iter().map(|consumer| (&consumer.name, self.delay_for(consumer)))
    }

    /// Returns true if consumers have weights, and so delays of their own.
    #[must_use]
    pub fn is_divided(&self) -> bool {
        !self.is_imposed && self.consumers.iter().any(|consumer| consumer.share.is_some())
    }

    /// The limits that are to be in force for each consumer under [`ThrottleKind::Rates`]; `None`: none.
    pub fn limits(&self) -> impl Iterator<Item = (&ConsumerName, Option<DirectionLimits>)> {
        self.consumers.iter().map(|consumer| (&consumer.name, consumer.limits()))
    }

    /// All that was ever done to the resource.
    #[must_use]
    pub const fn totals(&self) -> &StorageLoad {
        &self.totals
    }

    /// Returns the requests of the signal that other machines ever reported. `None`: what is measured here is
    /// the signal.
    #[must_use]
    pub const fn reported(&self) -> Option<&OperationTotals> {
        self.reported.as_ref()
    }

    /// The load of each eligible consumer since it is eligible, in ascending order.
    pub fn consumer_totals(&self) -> impl Iterator<Item = (&ConsumerName, &StorageLoad)> {
        self.consumers.iter().map(|consumer| (&consumer.name, &consumer.totals))
    }

    /// Puts a delay into force for all consumers until the next decision, whatever the loop says.
    pub const fn impose(&mut self, delay: Latency) {
        self.delay = delay;
        self.is_imposed = true;
    }

    /// Releases all consumers until the next decision.
    pub fn release(&mut self) {
        self.impose(Latency::ZERO);
        self.consumers.iter_mut().for_each(RegulatedConsumer::release);
    }

    /// Releases all consumers and forgets the last decision, since nothing is known of the resource now. Its loop
    /// goes on from where it was with the next decision.
    pub fn lose_sight(&mut self) {
        self.release();
        self.device_unknown();
        self.since_decision = Duration::ZERO;
        self.last = None;
    }

    fn consumer(&mut self, place: Option<usize>) -> &mut RegulatedConsumer {
        match place {
            Some(place) => &mut self.consumers[place],
            None => &mut self.others,
        }
    }

    /// Returns the observation since the last decision. A consumer that did nothing is part of it, since it
    /// may be throttled.
    fn observation(&mut self, now: Instant, since: Duration) -> Observation {
        self.attribute_stall(now);
        let (throttle, common, is_imposed) = (self.throttle, self.delay, self.is_imposed);
        let mut observations = Vec::with_capacity(self.consumers.len() + 1);
        let mut observe = |consumer: &mut RegulatedConsumer, protected: bool| {
            let rate = consumer.rate();
            let own = consumer.share.as_ref().filter(|_| !is_imposed).map(WeightedShare::delay);
            let delay = own.unwrap_or(common);
            let load = std::mem::take(&mut consumer.load);
            let delayed = if protected { 0 } else { throttle.delayed(&load.reads, &load.writes) };
            let delayed = delayed as f64 * delay.as_secs_f64();
            let unseen = if throttle.is_seen() { 0.0 } else { delayed };
            let mut observed = ConsumerObservation {
                goal: consumer.goal,
                ..ConsumerObservation::idle(consumer.name.clone(), Shares::DEFAULT, protected)
            };
            if !since.is_zero() {
                let time = since.as_secs_f64();
                observed.mean_outstanding = MeanOutstanding::new((load.outstanding_seconds + unseen) / time);
                observed.queued = (delayed / time).ceil() as u32;
                let completed = load.reads.count.saturating_add(load.writes.count) as f64;
                if rate.is_some_and(|rate| completed >= THROTTLED * (rate.per_second() * time)) {
                    observed.short_of_tokens = Latency::from_secs_f64(time);
                }
            }
            (observed.reads, observed.writes) = (load.reads, load.writes);
            observations.push(observed);
        };
        observe(&mut self.others, true);
        self.consumers.iter_mut().for_each(|consumer| observe(consumer, false));
        Observation::new(self.law().resource.clone(), now, observations)
    }

    /// Takes the requests that were sent last for waiting, if the device completes nothing. If none is known
    /// to have been sent, a request of others waits.
    fn attribute_stall(&mut self, now: Instant) {
        let Some(waited) = self.sent.stalled_for(now) else { return };
        let is_known = self.consumers.iter().any(|consumer| consumer.undated != SentLoad::default());
        for consumer in self.consumers.iter_mut().chain([&mut self.others]) {
            for (load, undated) in [
                (&mut consumer.load.reads, consumer.undated.reads),
                (&mut consumer.load.writes, consumer.undated.writes),
            ] {
                if undated.count > 0 {
                    load.in_flight = u32::try_from(undated.count).unwrap_or(u32::MAX);
                    load.oldest_in_flight = Some(waited);
                }
            }
        }
        if !is_known {
            let reads = &mut self.others.load.reads;
            reads.in_flight = reads.in_flight.max(1);
            reads.oldest_in_flight = Some(waited);
        }
    }

    /// The delay of one consumer.
    fn delay_for(&self, consumer: &RegulatedConsumer) -> Latency {
        let own = consumer.share.as_ref().filter(|_| !self.is_imposed);
        own.map_or(self.delay, WeightedShare::delay)
    }

    /// Divides the delay that was decided among consumers that have weights.
    fn divide(&mut self, since: Duration, observation: &Observation) {
        self.is_imposed = false;
        let longest = self.throttle.longest();
        let delayed = |observed: &ConsumerObservation| match self.throttle {
            ThrottleKind::Delay { .. } | ThrottleKind::Rates { .. } => [observed.reads, observed.writes],
            ThrottleKind::WriteDelay { .. } => [OperationTotals::default(), observed.writes],
        };
        let eligible = observation.consumers.iter().filter(|consumer| !consumer.protected);
        let mut shares = Vec::new();
        for (consumer, observed) in self.consumers.iter_mut().zip(eligible) {
            debug_assert_eq!(consumer.name, observed.name);
            if let Some(share) = &mut consumer.share {
                share.observe(since, &delayed(observed), observed.mean_outstanding.get(), self.delay);
                shares.push(share);
            }
        }
        divide(&mut shares, self.delay, longest, since);
    }

    /// Tells the delay that a window came to, which is what consumers see of it.
    fn tell_delay(&self, decision: &mut Decision) {
        let delays = !matches!(self.throttle, ThrottleKind::Rates { .. });
        if delays && !decision.dry_run && matches!(decision.bounded, LawOutput::Window(_)) {
            let longest = self.delays().map(|(_, delay)| delay).max().unwrap_or_default();
            decision.delay = Some(longest).filter(|delay| *delay > Latency::ZERO);
            if decision.delay.is_none() {
                decision.held = 0;
            }
            if longest >= self.throttle.longest() {
                decision.bound = Some(OutputBound::Greatest);
            }
        }
    }

    /// Returns what the eligible consumers did together.
    fn members(&self, since: Duration, observation: &Observation) -> MemberInterval {
        let eligible = || observation.consumers.iter().filter(|consumer| !consumer.protected);
        let outstanding: f64 = eligible().map(|consumer| consumer.mean_outstanding.get()).sum();
        let completed = eligible().map(|consumer| self.throttle.delayed(&consumer.reads, &consumer.writes));
        MemberInterval {
            elapsed: since,
            outstanding: MeanOutstanding::new(outstanding),
            completed: completed.fold(0, u64::saturating_add),
        }
    }

    /// Returns the delay that the commands come to. As long as nothing completes it stays as it is.
    fn delay_of(&self, commands: &Commands, longest: Latency) -> Latency {
        self.demand.delay(commands, longest).unwrap_or(self.delay)
    }

    /// Puts a rate into force for each consumer that is named, and releases the others. A window is of all
    /// consumers, by the delay that it comes to. Commands are in the order of the observation.
    fn obey(&mut self, commands: &Commands, floor: Iops) {
        if commands.window.is_some() {
            let delay = self.delay;
            self.consumers.iter_mut().for_each(|consumer| consumer.delay_by(delay, floor));
            return;
        }
        let mut commands = commands.consumers.iter().peekable();
        for consumer in &mut self.consumers {
            match commands.next_if(|command| command.name == consumer.name) {
                Some(command) => consumer.obey(command, floor),
                None => consumer.release(),
            }
        }
    }
}

impl ThrottleKind {
    /// Returns the number of completed requests that a delay of all consumers delays.
    const fn delayed(self, reads: &OperationTotals, writes: &OperationTotals) -> u64 {
        match self {
            Self::Delay { .. } | Self::Rates { .. } => reads.count.saturating_add(writes.count),
            Self::WriteDelay { .. } => writes.count,
        }
    }

    /// Returns the longest delay.
    const fn longest(self) -> Latency {
        match self {
            Self::Delay { longest } | Self::WriteDelay { longest } | Self::Rates { longest, .. } => longest,
        }
    }

    /// Returns true if a wait for the throttle is part of what is counted as outstanding.
    const fn is_seen(self) -> bool {
        match self {
            Self::Delay { .. } => false,
            Self::WriteDelay { .. } | Self::Rates { .. } => true,
        }
    }
}
