//! The loop: from an observation to commands and the reasons for them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_units::{Bytes, Instant, Iops, Latency};

use crate::config::{LoopConfig, LoopConfigError, SignalChoice, Smoothing};
use crate::document::command::{Commands, ConsumerCommand};
use crate::document::decision::Decision;
use crate::document::host_report::{ClusterSignal, HostReport};
use crate::document::observation::{ConsumerObservation, Observation, OperationTotals};
use crate::document::reserved::ReservationDecision;
use crate::document::signal::{SignalRequests, SignalState, SignalStatistic};
use crate::document::waiting::WaitingConsumers;
use crate::estimate::ewma::Ewma;
use crate::estimate::normalise::SizeModel;
use crate::estimate::reservation::{HostSurroundings, ReservationRecord, reserved_rate};
use crate::estimate::signal_samples::{SignalSamples, operations, throttled};
use crate::law::control_law::{ConsumerThrottle, ControlInterval, LawStep, PooledSignal};
use crate::law::registry::RunningLaw;
use crate::law::window::compensation::ShareCompensation;
use crate::law::window::window_law::active_share;
use crate::set_point::{ArrayInterval, SetPoint};

/// After a longer silence of the caller the loop counts this many intervals: a suspended machine must not
/// wake up with hours of integral, nor with everything released.
const GREATEST_ELAPSED: u32 = 10;

/// A window that is used to this part counts as full: requests between two that leave it are on their way.
const FULL: f64 = 0.7;

/// Regulates one resource. Pure: the same observations at the same times give the same decisions.
///
/// Call [`step`](Self::step) once per control interval with what was observed since the previous call, and
/// put the commands into force.
///
/// Silence is never read as success. If no request of the signal completed, the loop looks at the requests
/// outstanding. If one has been in flight for longer than the set point, that is overload, and the law is fed
/// its age. If some are outstanding but young, nothing is known, and the command stays. If none is
/// outstanding, the command decays towards release. The integral law decides so for each consumer by its own
/// requests and its promise; its rates decay to that promise. Under the self-tuning law, idle consumers do
/// not constrain the operating point, which decays towards release while all throttled consumers are idle.
///
/// Serialised by a format that writes names of fields, and numbers exactly, it is a checkpoint: a loop that
/// is read from it decides as this one does, bit for bit. JSON is no such format: it has no infinities.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ControlLoop {
    config: LoopConfig,
    law: RunningLaw,
    ewma: Ewma,
    /// Signal whose samples are in the moving average.
    signal: Option<SignalRequests>,
    sizes: SizeModel,
    reservations: ReservationRecord,
    compensation: ShareCompensation,
    last: Option<Instant>,
    /// Time that the next sample of the moving average stands for.
    since_sample: Duration,
    set_point: SetPoint,
}

impl ControlLoop {
    /// A loop that holds nothing yet.
    ///
    /// # Errors
    /// When the configuration is not valid.
    pub fn new(config: LoopConfig) -> Result<Self, LoopConfigError> {
        config.validate()?;
        Ok(Self {
            law: RunningLaw::new(config.law)?,
            set_point: SetPoint::new(config.set_point(), config.knee, config.interval),
            config,
            ewma: Ewma::default(),
            signal: None,
            sizes: SizeModel::default(),
            reservations: ReservationRecord::default(),
            compensation: ShareCompensation::default(),
            last: None,
            since_sample: Duration::ZERO,
        })
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &LoopConfig {
        &self.config
    }

    /// Changes the set-up while running, without a jump: estimate and command stay, as far as the new bounds
    /// allow. Another kind of law begins as if it were new, because a window says nothing about a delay;
    /// another resource begins anew. After a dry run the law begins as if it were new, too: it has seen that whatever
    /// it decided was without effect.
    ///
    /// # Errors
    /// When the configuration is not valid; nothing is changed then.
    pub fn reconfigure(&mut self, config: LoopConfig) -> Result<(), LoopConfigError> {
        config.validate()?;
        if config.resource != self.config.resource {
            *self = Self::new(config)?;
            return Ok(());
        }
        if self.config.dry_run && !config.dry_run {
            self.law = RunningLaw::new(config.law)?;
        } else {
            self.law.reconfigure(config.law)?;
        }
        self.set_point.reconfigure(config.set_point(), config.knee, config.interval);
        self.config = config;
        Ok(())
    }

    /// Returns this host's report of the observation that it will decide on next. The host passes it to
    /// [`combine`](crate::combine) as its own. Call it once per observation, before [`step`](Self::step), and
    /// only if hosts share the resource.
    #[must_use]
    pub fn report(&mut self, observation: &Observation) -> HostReport {
        let consumers = &observation.consumers;
        let interval = self.since_last(observation.at);
        let signal = self.own_signal(consumers);
        let heard = SignalSamples::of(consumers, signal);
        let mean =
            if heard.count > 0 { self.mean(consumers, signal, &heard, interval) } else { Latency::ZERO };
        let total = u128::from(mean.as_nanos()) * u128::from(heard.count);
        let total = match self.law.signal_total(consumers, signal, self.config.target) {
            Some(seconds) => Latency::from_secs_f64(seconds),
            None => Latency::from_nanos(u64::try_from(total).unwrap_or(u64::MAX)),
        };
        let load = self.law.load_report(consumers, interval);
        let demand = throttled(consumers).map(|consumer| (consumer.shares, consumer.mean_outstanding));
        let window = self.law.shared_window().map(|shared| shared.now);
        let active = window.map_or(1.0, |window| active_share(window, demand.clone()));
        HostReport {
            interval: interval.into(),
            // To others it is the same: reads that were promised something.
            signal: if signal.is_promise() {
                SignalRequests::ProtectedReads
            } else {
                SignalRequests::Everything
            },
            completed: heard.count,
            total_latency: total,
            outstanding: heard.outstanding,
            oldest: heard.oldest,
            window,
            active_shares: self
                .law
                .active_shares()
                .unwrap_or_else(|| active * demand.map(|(shares, _)| shares.as_f64()).sum::<f64>()),
            reserved: reserved_rate(throttled(consumers)),
            set_point: self.set_point.published(),
            point: None,
            load,
        }
    }

    /// The same report with what the [`step`](Self::step) since has decided: what the others are told. Of the
    /// self-tuning law that is what they steer by; what they measured is too old by the time that a step of
    /// theirs would follow it.
    #[must_use]
    pub fn decided(&self, mut report: HostReport) -> HostReport {
        report.point = self.law.point_report().cloned();
        report
    }

    /// Returns the signal that this host itself measures.
    fn own_signal(&self, consumers: &[ConsumerObservation]) -> SignalRequests {
        let choice = self.config.signal;
        if choice == SignalChoice::ProtectedOrEverything && !self.law.scope().is_common() {
            return SignalRequests::Everything;
        }
        choice.requests(consumers.iter().any(|consumer| consumer.protected))
    }

    /// Decides once. It may be called early, and an interval that is shorter counts less: when a consumer
    /// with a contract returns from a pause, the others then give way before they are in its way. `now` may
    /// stand still or jump: see [`SignalState::NoTime`] and [`Decision::elapsed`].
    pub fn step(&mut self, now: Instant, observation: &Observation) -> (Commands, Decision) {
        let elapsed = self.advance(now);
        let consumers = &observation.consumers;
        // Contracts and goals are each host's own: what others measured is not of their consumers. Of the
        // self-tuning law it counts what others conclude from it.
        let scope = self.law.scope();
        let cluster = observation.cluster.as_ref().filter(|_| scope.is_common());
        let (signal, heard) = match cluster {
            Some(cluster) => (cluster.signal, SignalSamples::by_all(cluster)),
            None => {
                let signal = self.own_signal(consumers);
                (signal, SignalSamples::of(consumers, signal))
            }
        };
        let statistic = self.config.statistic;
        let by_percentile = statistic != SignalStatistic::Mean;
        let percentile = observation.percentile.as_ref().filter(|counted| counted.statistic == statistic);
        let heard = if by_percentile { heard.by(percentile) } else { heard };
        let (set_point, choice) = self.set_point.in_force(signal, cluster);
        let input = if elapsed.is_zero() { SignalState::NoTime } else { heard.input(set_point) };

        let measured = match input {
            SignalState::Samples { .. } if cluster.is_some() => Some(heard.mean()),
            SignalState::Samples { .. } => Some(self.mean(consumers, signal, &heard, elapsed)),
            SignalState::Overload { .. } | SignalState::Unknown | SignalState::Idle | SignalState::NoTime => {
                None
            }
        };
        let full = self.is_full(consumers, elapsed);
        let interval = ArrayInterval { elapsed, signal, input, measured, full };
        self.set_point.learn(&interval, cluster);
        let fed = self.estimate(input, signal, measured, elapsed);
        let estimate = fed.or_else(|| self.ewma.get());
        let reserved = self.reserved(observation, elapsed, estimate);
        let compensation = self.compensate(observation);
        let half_lives = elapsed.as_secs_f64() / self.config.idle_half_life.as_secs_f64();
        let step = self.law.step(&ControlInterval {
            consumers,
            peers: observation.cluster.as_ref().map_or(&[][..], |cluster| &cluster.points),
            bands: self.config.bands.as_ref(),
            signal,
            input,
            estimate: fed,
            pooled: (by_percentile || (self.config.normalise && !signal.is_promise())).then(|| {
                PooledSignal {
                    weight: statistic.weight(),
                    percentile: by_percentile.then(|| percentile.and_then(|counted| counted.stretch)),
                }
            }),
            set_point,
            set_point_ratio: self.config.set_point_ratio,
            elapsed,
            interval: self.config.interval,
            remaining: (-half_lives).exp2(),
            pause: self.config.idle_half_life,
            compensation,
            reserved: reserved.as_ref(),
            load: observation.cluster.as_ref().and_then(|cluster| cluster.load.as_ref()),
            hosts: observation.cluster.as_ref().map_or(1, |cluster| cluster.hosts),
        });

        let (commands, held) = self.commands(consumers, &step);
        let decision = Decision {
            version: Decision::VERSION,
            resource: self.config.resource.clone(),
            at: now,
            elapsed: elapsed.into(),
            law: self.config.law.kind(),
            signal,
            statistic,
            cluster: observation.cluster.clone().filter(|_| scope.includes_hosts()),
            input,
            measured,
            estimate,
            set_point,
            choice,
            action: step.action,
            beta: step.beta,
            compensation,
            raw: step.raw,
            bounded: step.bounded,
            bound: step.bound,
            delay: None,
            reserved,
            rates: step.rates,
            gave_way: step.gave_way,
            point: step.point,
            auto: step.auto,
            held,
            throttled: u32::try_from(commands.consumers.len()).unwrap_or(u32::MAX),
            waiting: WaitingConsumers::default(),
            dry_run: self.config.dry_run,
            released: self.config.dry_run && self.config.released,
        };
        let commands = if self.config.dry_run { released(commands) } else { commands };
        (commands, decision)
    }

    /// The time since the previous step, bounded. The first step stands for one interval.
    fn advance(&mut self, now: Instant) -> Duration {
        let elapsed = self.since_last(now);
        // Also after a jump back: time goes on from where the clock is now.
        self.last = Some(now);
        elapsed
    }

    fn since_last(&self, now: Instant) -> Duration {
        let elapsed = self.last.map_or(self.config.interval, |last| now.saturating_since(last));
        elapsed.min(self.config.interval.saturating_mul(GREATEST_ELAPSED))
    }

    /// Returns the estimate that the law is fed, if there is one.
    fn estimate(
        &mut self,
        input: SignalState,
        signal: SignalRequests,
        measured: Option<Latency>,
        elapsed: Duration,
    ) -> Option<Latency> {
        if self.signal != Some(signal) {
            // The average of others says nothing about these.
            self.ewma.reset();
            self.signal = Some(signal);
        }
        self.since_sample = self.since_sample.saturating_add(elapsed);
        match input {
            SignalState::Samples { .. } => measured.map(|mean| self.smooth(mean)),
            // The average is left alone: the request will be a sample of its own when it completes.
            SignalState::Overload { oldest } => {
                Some(self.ewma.get().map_or(oldest, |estimate| estimate.max(oldest)))
            }
            SignalState::Idle => {
                // After a pause the load is another one, and the first new sample counts in full. A single
                // silent interval is no pause: a reader of a few requests per second has many.
                if self.since_sample >= self.config.idle_half_life {
                    self.ewma.reset();
                }
                None
            }
            SignalState::Unknown | SignalState::NoTime => None,
        }
    }

    /// The signal's mean response time, or the percentile in its place. There are samples.
    fn mean(
        &mut self,
        consumers: &[ConsumerObservation],
        signal: SignalRequests,
        heard: &SignalSamples,
        elapsed: Duration,
    ) -> Latency {
        if !self.config.normalise || signal.is_promise() {
            return heard.mean();
        }
        self.sizes.forget(elapsed);
        let samples = || operations(consumers, signal).filter(|operations| operations.count > 0);
        for operations in samples() {
            self.sizes.add(mean_bytes(operations), mean_latency(operations), operations.count);
        }
        let sum = samples()
            .map(|operations| {
                let scaled = self.sizes.normalise(mean_bytes(operations), mean_latency(operations));
                scaled.as_nanos() as f64 * operations.count as f64
            })
            .sum::<f64>();
        Latency::from_nanos((sum / heard.count as f64).round() as u64)
    }

    fn smooth(&mut self, mean: Latency) -> Latency {
        let stands_for = std::mem::take(&mut self.since_sample);
        match self.config.smoothing {
            Smoothing::TimeConstant(time_constant) => {
                self.ewma.update_elapsed(mean, stands_for, time_constant)
            }
            Smoothing::PerInterval { past_weight } => self.ewma.update(mean, past_weight),
        }
    }

    /// Returns the needs of reservations under a common law. Laws that command rates have contracts or bands
    /// instead.
    fn reserved(
        &mut self,
        observation: &Observation,
        elapsed: Duration,
        estimate: Option<Latency>,
    ) -> Option<ReservationDecision> {
        if !self.law.scope().is_common() {
            return None;
        }
        let around = HostSurroundings {
            everywhere: observation.cluster.as_ref().map(|cluster| cluster.reserved),
            greatest: self.law.shared_window().map(|shared| shared.greatest),
            capacity: capacity(observation, elapsed),
        };
        self.reservations.observe(throttled(&observation.consumers), elapsed, estimate, &around)
    }

    /// By what β is multiplied, where shares are of requests and all hosts' response times are of everything.
    fn compensate(&mut self, observation: &Observation) -> Option<f64> {
        let divides_requests = self.law.shared_window().is_some_and(|shared| shared.divides_requests);
        let everything = |cluster: &&ClusterSignal| cluster.signal == SignalRequests::Everything;
        let Some(cluster) = observation.cluster.as_ref().filter(everything).filter(|_| divides_requests)
        else {
            self.compensation = ShareCompensation::default();
            return None;
        };
        let own = SignalSamples::of(&observation.consumers, SignalRequests::Everything);
        if let Some(all) = cluster.mean {
            self.compensation.observe((own.count, own.mean()), (cluster.completed, all));
        }
        Some(self.compensation.factor())
    }

    /// Returns true if requests waited while the window was full. By Little's law the latencies add up to the
    /// requests at the resource.
    fn is_full(&self, consumers: &[ConsumerObservation], elapsed: Duration) -> bool {
        let Some(shared) = self.law.shared_window() else { return false };
        let waited: f64 = throttled(consumers)
            .flat_map(|consumer| [&consumer.reads, &consumer.writes])
            .map(|operations| operations.total_latency.as_secs_f64())
            .sum();
        throttled(consumers).any(|consumer| consumer.queued > 0)
            && waited >= FULL * shared.now.get() * elapsed.as_secs_f64()
    }

    /// Commands for every eligible consumer after a step, and the number of throttled ones.
    fn commands(&self, consumers: &[ConsumerObservation], step: &LawStep) -> (Commands, u32) {
        let mut commands = Commands::default();
        let mut held = 0;
        for (place, consumer) in throttled(consumers).enumerate() {
            let ConsumerThrottle { window, delay, rate, is_held } = self.law.throttle(step, place, consumer);
            commands.window = window;
            held += u32::from(is_held);
            commands.consumers.push(ConsumerCommand { name: consumer.name.clone(), delay, rate });
        }
        commands.spacing = spacing(throttled(consumers).zip(&commands.consumers));
        (commands, held)
    }
}

/// Returns the least time between two requests of delayed consumers. With equal delays, requests that arrived
/// together would leave together. Such a clump costs other requests latency, without a gain in throughput.
///
/// By Little's law a consumer with q requests outstanding and a delay d completes at most q/d per second. The
/// result is the sum of these rates, so that on average spacing is never the bottleneck. `None` if an active
/// consumer has no delay.
fn spacing<'a>(
    held: impl Iterator<Item = (&'a ConsumerObservation, &'a ConsumerCommand)>,
) -> Option<Latency> {
    let mut per_second = 0.0;
    for (consumer, command) in held.filter(|(consumer, _)| consumer.mean_outstanding.get() > 0.0) {
        per_second += consumer.mean_outstanding.get() / command.delay?.as_secs_f64();
    }
    (per_second > 0.0).then(|| Latency::from_secs_f64(1.0 / per_second))
}

/// The same consumers, without limits.
fn released(commands: Commands) -> Commands {
    let release = |consumer| ConsumerCommand { delay: None, rate: None, ..consumer };
    let consumers = commands.consumers.into_iter().map(release).collect();
    Commands { window: None, spacing: None, consumers }
}

/// Returns the throughput of the resource, as far as it is known. For a cluster it is known only if the
/// signal is everything.
fn capacity(observation: &Observation, elapsed: Duration) -> Option<Iops> {
    match &observation.cluster {
        Some(cluster) => (cluster.signal == SignalRequests::Everything).then_some(cluster.iops),
        None if elapsed.is_zero() => None,
        None => {
            let completed: f64 = operations(&observation.consumers, SignalRequests::Everything)
                .map(|operations| operations.count as f64)
                .sum();
            Some(Iops::new(completed / elapsed.as_secs_f64()))
        }
    }
}

fn mean_bytes(operations: &OperationTotals) -> Bytes {
    Bytes::new(operations.bytes.get() / operations.count.max(1))
}

fn mean_latency(operations: &OperationTotals) -> Latency {
    Latency::from_nanos(operations.total_latency.as_nanos() / operations.count.max(1))
}
