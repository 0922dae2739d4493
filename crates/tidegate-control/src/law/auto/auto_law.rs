//! The law `auto`.

use std::f64::consts::LN_2;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_units::{Iops, Latency, Window};

use super::agreement::{Agreement, Heard};
use super::band_rates::{self, BandRates, DividedWindow};
use super::config::{AutoConfig, AutoConfigError};
use super::consumers::{ALLOWED, ConsumerLatencies, WorstConsumer};
use super::elasticity::Elasticity;
use super::epoch::Measurement;
use super::futility::{BAR, FutilityGate, Measured, PROMISED, TrialStep};
use super::host_part::HostPart;
use super::storms::StormBound;
use crate::document::auto_decision::AutoDecision;
use crate::document::load_report::LoadReport;
use crate::document::mean_outstanding::MeanOutstanding;
use crate::document::observation::ConsumerObservation;
use crate::document::point_decision::PointDecision;
use crate::document::point_report::PointReport;
use crate::document::signal::{SignalRequests, SignalState};
use crate::estimate::signal_samples::throttled;
use crate::law::control_law::ControlInterval;

/// The half-life with which the window goes to open while no eligible consumer loads the storage. What was
/// learnt survives a pause of seconds.
const FORGETS: f64 = 120.0;

/// Memory of the part of writes, in seconds, and the part from which on the storage may answer later than an
/// experiment lasts.
const WRITES: (f64, f64) = (20.0, 0.05);

/// Parts of an error that a decision corrects: of an error beyond two standard deviations, and of a smaller
/// one; downwards and upwards.
const DOWN: (f64, f64) = (1.0, 0.4);
const UP: (f64, f64) = (0.7, 0.4);

/// The least elasticity that a decision reckons with, downwards and upwards.
const LEAST_SLOPE: (f64, f64) = (0.5, 0.15);

/// A latency above the goal for so many seconds and requests, in the proven range, asks for proof anew.
const DOUBT: (f64, f64) = (5.0, 100.0);

/// The rate that the smallest window leaves each consumer, in requests per second, as of the PID; and the
/// most that the smallest window is.
const FLOOR: f64 = 2.0;
const LEAST_MOST: f64 = 0.25;

/// Seconds for which hosts that are no longer heard are taken to load the storage all the same. So long, a
/// host neither doubles nor halves its window; and the seconds in which it may double it.
const UNHEARD: (f64, f64) = (600.0, 60.0);

/// Intervals until other hosts' reports tell of what is in force now.
const REPORTED: f64 = 2.0;

/// After a step of the logarithm of the window beyond the first, so many seconds say nothing about the
/// margin.
const STEP: (f64, f64) = (0.6, 2.0);

/// A storage has become another one where the latency jumps by this logarithm, and by so many standard
/// deviations of it.
const OTHER_STORAGE: (f64, f64) = (0.3, 4.0);

/// The parts of the known floor and of the usual latency at which a storage that nothing makes quicker has
/// become quicker, or slower; and the requests after which that is known.
const QUICKER: (f64, f64) = (0.8, 200.0);
const SLOWER: (f64, f64) = (1.25, 30.0);

/// The usual latency at the edge of futile windows is at least this much of the floor.
const LEAST_USUAL: f64 = 1.2;

/// A window is at the edge of the futile ones up to this logarithm above it.
const AT_EDGE: f64 = 0.05;

/// A window of all hosts from this part of the greatest on throttles nothing.
const OPEN: f64 = 0.999;

/// A window that is used to this part is full.
const FULL: f64 = 0.6;

/// The same of a window that bands divide by rates. Requests that are released one by one seldom come when a
/// small window is free: both together let through half of what each does. In the lab, four hosts' windows of
/// 0.06 were used to 0.36.
const FULL_BY_RATES: f64 = 0.25;

/// The law `auto`: one window for all eligible consumers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AutoLaw {
    config: AutoConfig,
    /// The logarithm of the window of all hosts together, by this host's decisions.
    window: f64,
    agreement: Agreement,
    /// The latency of the last decision, and the length of the last interval, in seconds.
    latency: f64,
    interval: f64,
    /// The window when the host lost the others, and the seconds for which it still reckons with them.
    unheard: Option<(f64, f64)>,
    /// The logarithm of the smallest window, by the latency now.
    least: f64,
    /// The part of it that is this host's, and the number of hosts.
    part: f64,
    hosts: f64,
    own_part: HostPart,
    bands: BandRates,
    /// The law has decided, or taken over what other hosts decided.
    decided: bool,
    /// The part of the way to open that the window has gone while the signal is silent.
    relaxed: f64,
    /// Seconds since the last request of the signal, and the memory of their rate.
    silent: f64,
    signal_rate: f64,
    epoch: Measurement,
    /// Everything measured under the present window.
    level: Measured,
    /// Seconds for which completions still are of requests from before the last change.
    blind: f64,
    consumers: ConsumerLatencies,
    model: Elasticity,
    storms: StormBound,
    gate: Box<FutilityGate>,
    /// The load of the last seconds.
    recent: Measurement,
    /// Seconds since the last large step of the window.
    steady: f64,
    /// Seconds and requests for which the latency has been above the goal.
    above: (f64, f64),
    view: Option<AutoDecision>,
}

/// The figures of one epoch that a decision is made of. Latencies are in seconds.
struct EpochDecision {
    epoch: Measurement,
    /// Latency of the worst consumer.
    latency: f64,
    target: f64,
    goal: f64,
    /// ln(goal / latency), and its standard deviation.
    error: f64,
    deviation: f64,
    /// The effect of a window comes late, because a cache takes the writes.
    is_late: bool,
    /// The reads of protected consumers are judged.
    is_promise: bool,
    /// Contracts are late. What they were not promised is surplus, and takes no proof to be taken back.
    contracts_late: bool,
}

/// Outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AutoStep {
    /// Too little is known to decide.
    Held,
    /// The law decided.
    Regulated,
    /// The signal is silent.
    Relaxed,
}

impl AutoLaw {
    /// Begins open.
    ///
    /// # Errors
    /// When the configuration is not valid.
    pub(crate) fn new(config: AutoConfig) -> Result<Self, AutoConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            window: config.greatest.get().ln(),
            agreement: Agreement::default(),
            latency: 0.0,
            interval: 0.0,
            unheard: None,
            least: config.least.get().ln(),
            part: 1.0,
            hosts: 1.0,
            own_part: HostPart::default(),
            bands: BandRates::default(),
            decided: false,
            relaxed: 0.0,
            silent: 0.0,
            signal_rate: 0.0,
            epoch: Measurement::default(),
            level: Measured::default(),
            blind: 0.0,
            consumers: ConsumerLatencies::default(),
            model: Elasticity::default(),
            storms: StormBound::default(),
            gate: Box::default(),
            recent: Measurement::default(),
            steady: 0.0,
            above: (0.0, 0.0),
            view: None,
        })
    }

    pub(crate) fn reconfigure(&mut self, config: AutoConfig) -> Result<(), AutoConfigError> {
        config.validate()?;
        self.config = config;
        self.least = config.least.get().ln();
        self.window = self.bounded(self.window);
        Ok(())
    }

    pub(crate) fn config(&self) -> &AutoConfig {
        &self.config
    }

    pub(crate) fn view(&self) -> Option<&AutoDecision> {
        self.view.as_ref()
    }

    /// The window in force.
    pub(crate) fn window(&self) -> Window {
        let own = (self.agreement.in_force(self.window) + self.part.ln())
            .clamp(self.least - self.hosts.ln(), self.config.greatest.get().ln());
        let open = self.config.greatest.get().ln();
        Window::new((own + (open - own) * self.relaxed).exp())
    }

    /// The report of what bands give, for the laws of other hosts.
    pub(crate) fn band_report(&self) -> Option<&PointReport> {
        self.bands.told()
    }

    /// The report of this host's load for the laws of other hosts.
    pub(crate) fn load_report(
        &mut self,
        consumers: &[ConsumerObservation],
        interval: Duration,
    ) -> LoadReport {
        self.own_part.observe(self.window(), consumers, interval);
        let seconds = interval.as_secs_f64().max(1e-9);
        let load = Measurement::of_host(consumers, seconds);
        let (recent, total) = self.consumers.recent();
        let mean = if recent > 0.0 { total / recent } else { 0.0 };
        let worst = self.consumers.worst();
        LoadReport {
            iops: Iops::new(load.eligible / seconds),
            writes: Iops::new(load.writes / seconds),
            outstanding: MeanOutstanding::new(load.outstanding()),
            writing: MeanOutstanding::new(load.writing / seconds),
            waiting: load.waited > 0.0,
            late: self.consumers.contracts_late(),
            recent: MeanOutstanding::new(recent),
            recent_mean: Latency::from_secs_f64(mean),
            worst: Latency::from_secs_f64(mean * worst.mean * worst.margin),
            total_window: self.decided.then(|| Window::new(self.window.exp())),
        }
    }

    /// The active shares of this host, which its part of the window is in proportion to.
    pub(crate) fn active_shares(&self) -> f64 {
        self.own_part.active_shares()
    }

    /// Divides what the window gives by bands. `None` where there are none.
    pub(crate) fn divide(&mut self, interval: &ControlInterval<'_>) -> Option<PointDecision> {
        let own = self.window();
        let all = own.get() / self.part;
        let is_open = all >= OPEN * self.config.greatest.get();
        self.bands.divide(interval, DividedWindow { own, is_open })
    }

    /// Goes along with what all hosts decided, and takes this host's part of it.
    fn agree(&mut self, interval: &ControlInterval<'_>) {
        let seconds = interval.elapsed.as_secs_f64();
        self.interval = seconds;
        let Some(load) = interval.load.filter(|_| interval.hosts > 1) else {
            // A host that hears no other one any more keeps its part, or it would take that of all others.
            let own = self.window().get().max(f64::MIN_POSITIVE).ln();
            (self.part, self.hosts) = (1.0, 1.0);
            if self.agreement.lose() {
                self.window = self.bounded(own);
                self.level = Measured::default();
                self.gate.abandon();
                self.unheard = Some((self.window, 0.0));
            }
            let longer = |(window, unheard)| Some((window, unheard + seconds));
            self.unheard = self.unheard.and_then(longer).filter(|(_, unheard)| *unheard < UNHEARD.0);
            return;
        };
        let joins = self.agreement.is_alone();
        (self.hosts, self.unheard) = (f64::from(interval.hosts), None);
        let by_shares = self.own_part.of_all(load.active_shares, self.hosts);
        let part = self.bands.part().unwrap_or(by_shares);
        self.part = if joins { part } else { part.min(HostPart::grown(self.part, seconds)) };
        let Some(total) = load.total_window else {
            if !self.decided {
                self.window = self.bounded(f64::INFINITY);
            }
            return;
        };
        let all = self.bounded(total.get().max(f64::MIN_POSITIVE).ln());
        if !self.decided {
            (self.window, self.decided) = (all, true);
        } else if joins {
            // What it decided alone was its own part.
            self.window = self.bounded(self.window - self.part.ln());
        }
        match self.agreement.hear(all, self.window, interval.elapsed) {
            Heard::Agreed(_) if self.gate.is_trying() => {}
            Heard::Agreed(window) => self.window = window,
            Heard::Widened(_) if self.gate.is_trying() => self.await_effect(),
            Heard::Widened(window) => {
                self.window = window;
                self.await_effect();
            }
            Heard::Waiting => self.await_effect(),
            Heard::Overruled(window) => {
                self.window = window;
                self.gate.abandon();
                self.level = Measured::default();
                self.await_effect();
            }
        }
    }

    /// Leaves out what is measured until the window in force shows in all hosts' reports.
    fn await_effect(&mut self) {
        let reports = if self.agreement.is_alone() { 0.0 } else { REPORTED * self.interval };
        self.blind = self.latency.min(10.0) + reports;
        self.epoch = Measurement::default();
    }

    /// Widens the window to `floor`, as far as the greatest allows, and says whether that changed it.
    pub(crate) fn raise_to(&mut self, floor: Window) -> bool {
        let below = self.window() < floor;
        if below {
            self.window = self.bounded(floor.get().ln() - self.part.ln());
            self.agreement.raise_to(self.window);
        }
        below
    }

    /// Takes an interval into account, and decides when enough is known.
    pub(crate) fn step(&mut self, interval: &ControlInterval<'_>) -> AutoStep {
        let seconds = interval.elapsed.as_secs_f64();
        if interval.input == SignalState::NoTime || seconds <= 0.0 {
            return AutoStep::Held;
        }
        let target = interval.set_point.as_secs_f64() / interval.set_point_ratio;
        self.agree(interval);
        let mut load = Measurement::of(interval);
        if interval.bands.is_some() && throttled(interval.consumers).any(band_rates::is_held) {
            load.waited = seconds;
        }
        self.steady += seconds;
        let binds = self.steady > STEP.1
            && load.waited > 0.0
            && !self.gate.is_trying()
            && load.outstanding() >= FULL * self.window.exp();
        let target_latency = Latency::from_secs_f64(target);
        (load.count, load.total) = match interval.pooled.filter(|_| interval.load.is_none()) {
            Some(pooled) => {
                let count = match (interval.input, interval.estimate) {
                    (SignalState::Samples { count }, Some(_)) => count as f64 * pooled.weight,
                    _ => 0.0,
                };
                let total = interval.estimate.unwrap_or_default().as_secs_f64() * count;
                match pooled.percentile {
                    Some(stretch) => self.consumers.observe_percentile(
                        (count, total),
                        stretch,
                        target_latency,
                        seconds,
                        binds,
                    ),
                    None => self.consumers.observe_pooled(count, total, target_latency, seconds, binds),
                }
            }
            None => {
                self.consumers.observe(interval.consumers, interval.signal, target_latency, seconds, binds)
            }
        };
        if let Some((cluster, SignalState::Samples { count })) =
            interval.load.map(|load| (load, interval.input))
        {
            load.count = count as f64;
            load.total = load.count * cluster.mean.unwrap_or_default().as_secs_f64();
        }
        self.remember_writes(&load);
        let loaded = load.busy > 0.0 || load.waited > 0.0;
        match interval.input {
            SignalState::Idle => return self.rest(seconds, loaded),
            SignalState::Unknown => {
                self.silent += seconds;
                self.blind = (self.blind - seconds).max(0.0);
                self.epoch.seconds += seconds;
                return AutoStep::Held;
            }
            SignalState::Samples { .. } | SignalState::Overload { .. } | SignalState::NoTime => {}
        }
        self.wake(&load, seconds);
        if !loaded && self.epoch.busy <= 0.0 {
            self.forget_slowly(seconds);
            self.epoch = Measurement::default();
            return AutoStep::Held;
        }
        if self.blind > 0.25 * seconds {
            self.blind -= seconds;
            return AutoStep::Held;
        }
        self.blind = 0.0;
        self.epoch.add(&load);
        let oldest = match interval.input {
            SignalState::Overload { oldest } => oldest.as_secs_f64(),
            _ => 0.0,
        };
        let overdue = oldest > 3.0 * target;
        if !overdue && !self.epoch.is_enough(target) {
            return AutoStep::Held;
        }
        self.decide(interval, target, oldest);
        AutoStep::Regulated
    }

    fn remember_writes(&mut self, load: &Measurement) {
        if load.eligible > 0.0 {
            let remaining = (-load.seconds / WRITES.0).exp();
            self.recent.fade(remaining);
            self.recent.add(load);
        }
    }

    /// The signal is silent, and none of its requests is outstanding.
    fn rest(&mut self, seconds: f64, loaded: bool) -> AutoStep {
        self.silent += seconds;
        self.epoch = Measurement::default();
        self.gate.abandon();
        if !loaded {
            self.forget_slowly(seconds);
        } else if self.silent > (5.0 / self.signal_rate.max(1e-3)).max(2.0) {
            self.relaxed = 1.0 - (1.0 - self.relaxed) * (-seconds / 2.0).exp2();
        }
        AutoStep::Relaxed
    }

    /// Nothing is throttled, and the window goes to open over minutes.
    fn forget_slowly(&mut self, seconds: f64) {
        let open = self.bounded(f64::INFINITY);
        self.window = open + (self.window - open) * (-seconds / FORGETS).exp2();
    }

    /// The signal is heard: what was learnt is in force again.
    fn wake(&mut self, load: &Measurement, seconds: f64) {
        let remaining = (-seconds / 30.0).exp();
        self.signal_rate = self.signal_rate * remaining + (1.0 - remaining) * load.count / seconds;
        self.silent = 0.0;
        if self.relaxed > 0.0 {
            self.relaxed = 0.0;
            self.level = Measured::default();
            self.epoch = Measurement::default();
        }
    }

    /// Decides by an epoch. `oldest` is the age of the oldest request if none of the signal completes.
    fn decide(&mut self, interval: &ControlInterval<'_>, target: f64, oldest: f64) {
        let epoch = std::mem::take(&mut self.epoch);
        let own = self.consumers.worst();
        // What other hosts report counts up to a bound. What this host measures itself needs none.
        let worst = match interval.load.filter(|_| interval.hosts > 1) {
            Some(load) => WorstConsumer { mean: load.worst / own.margin, ..own },
            None => own,
        };
        let latency = (epoch.mean() * worst.mean).max(oldest);
        let margin = interval.set_point_ratio / worst.margin;
        self.decided = true;
        self.latency = latency;
        self.least = self.smallest(interval, epoch.mean());
        self.gate.pass(epoch.seconds, epoch.iops());
        let contracts_late = interval.load.map_or_else(|| self.consumers.contracts_late(), |load| load.late);
        self.notice_change(&epoch, latency);
        let wanted = target * margin;
        let goal =
            if contracts_late { wanted } else { self.gate.goal(wanted, target, self.consumers.above()) };
        self.level.add(&epoch, latency);
        self.model.learn(epoch.outstanding(), latency, epoch.count.max(1.0));
        let decided = EpochDecision {
            epoch,
            latency,
            target,
            goal,
            error: (goal / latency.max(1e-9)).ln(),
            deviation: epoch.count.max(1.0).sqrt().recip(),
            is_late: self.has_cached_writes(),
            is_promise: interval.signal != SignalRequests::Everything,
            contracts_late,
        };
        self.count_above(&decided);
        self.show(&decided);
        if contracts_late {
            self.gate.abandon();
        }
        if self.gate.is_trying() {
            self.go_on_trying(&decided);
            return;
        }
        if decided.is_late {
            let used = self.level_outstanding(&epoch);
            self.storms.observe(
                used,
                decided.error,
                decided.deviation,
                epoch.seconds,
                self.consumers.above(),
            );
        }
        if let Some(back) = self.gate.learn_late(&epoch, latency, target, self.window, self.least) {
            self.set(back);
            return;
        }
        let is_in_vain = self.window <= self.least + 0.1
            && self.unheard.is_none()
            && !decided.is_late
            && !decided.contracts_late
            && self.level.latency_of() > decided.goal;
        if is_in_vain && let Some(larger) = self.gate.review(self.window, self.level, epoch.seconds) {
            self.set(larger);
            return;
        }
        self.regulate(&decided);
    }

    /// Takes an epoch of a trial into account.
    fn go_on_trying(&mut self, decided: &EpochDecision) {
        let promise = decided.is_promise.then_some(self.least);
        match self.gate.learn(&decided.epoch, decided.latency, decided.target, promise) {
            TrialStep::Continue(window) | TrialStep::Futile(window) | TrialStep::Useful(window) => {
                self.set(window);
            }
            TrialStep::Changed => self.level = Measured::default(),
        }
    }

    /// Puts the window into force that the error asks for, as far as it is proven useful.
    fn regulate(&mut self, decided: &EpochDecision) {
        let promised = PROMISED * decided.target;
        let vain = self.model.slope() + self.model.slope_deviation() < BAR && decided.latency < promised;
        let unneeded = !decided.epoch.is_backlogged()
            && self.level.latency_of() < promised
            && self.consumers.above() < ALLOWED;
        let mut asked = if decided.error < 0.0 && !decided.contracts_late && (vain || unneeded) {
            // The promise is kept, and a greater margin would cost more than it gives, or is not needed: no
            // request waits for the window, and hardly a second has been above the target.
            self.window
        } else {
            self.asked(decided)
        };
        if decided.is_late {
            asked = asked.min(self.storms.bound().max(self.least));
        }
        if let Some((window, unheard)) = self.unheard {
            // Alone, hosts that steer by the same latency would drift apart.
            asked = asked.clamp(window - LN_2, window + LN_2 * (unheard / UNHEARD.1).min(1.0));
        }
        if !decided.contracts_late {
            let edge = self.gate.edge(decided.target, self.consumers.above());
            asked = asked.max(edge.min(self.window));
        }
        let asked = self.bounded(asked);
        let used = self.level_outstanding(&decided.epoch);
        let proven = decided.contracts_late || self.gate.is_proven(asked);
        if asked < self.window && asked < used && !proven {
            let follows = self.model.slope() - 1.5 * self.model.slope_deviation() > BAR;
            if decided.is_late {
                self.gate.cut_late(self.window.max(used), self.level);
            } else if self.unheard.is_some() {
                // Alone it proves nothing: the others' requests keep the latency up.
                self.gate.extend(asked);
            } else if follows && asked >= self.gate.reach() {
                self.gate.extend(asked);
            } else {
                self.try_lower(asked, used, decided);
                return;
            }
        }
        self.set(asked);
        let patience = if decided.is_late { 3.0 * DOUBT.0 } else { DOUBT.0 };
        if self.above.0 > patience && self.above.1 > DOUBT.1 {
            self.gate.doubt(self.window);
            self.above = (0.0, 0.0);
        }
    }

    /// Keeps the figures of a decision for people to see.
    fn show(&mut self, decided: &EpochDecision) {
        self.view = Some(AutoDecision {
            latency: Latency::from_secs_f64(decided.latency),
            goal: Latency::from_secs_f64(decided.goal),
            floor: self.gate.futility().map(|futility| Latency::from_secs_f64(futility.floor)),
            elasticity: self.model.slope(),
            total_window: Window::new(self.window.exp()),
            trial: self.gate.is_trying(),
            cached_writes: decided.is_late,
        });
    }

    /// The smallest window: it leaves each eligible consumer [`FLOOR`] by Little's law, and is not below what
    /// is configured.
    fn smallest(&self, interval: &ControlInterval<'_>, latency: f64) -> f64 {
        let consumers = throttled(interval.consumers).count() as f64 * self.hosts;
        let AutoConfig { least, greatest } = self.config;
        let most = LEAST_MOST.max(least.get()).min(greatest.get());
        (FLOOR * consumers * latency).clamp(least.get(), most).ln()
    }

    /// Returns true if a cache acknowledges the writes: their effect comes later than any short experiment
    /// lasts.
    fn has_cached_writes(&self) -> bool {
        let reads = self.recent.eligible - self.recent.writes;
        if self.recent.write_part() <= WRITES.1 {
            return false;
        }
        let of_reads =
            if reads > 0.0 { (self.recent.busy - self.recent.writing) / reads } else { f64::INFINITY };
        let of_writes = self.recent.writing / self.recent.writes.max(f64::MIN_POSITIVE);
        of_writes < 0.6 * of_reads
    }

    /// The logarithm of the requests at the storage under the present window.
    fn level_outstanding(&self, epoch: &Measurement) -> f64 {
        epoch.outstanding().max(self.least.exp()).ln().min(self.window)
    }

    /// The window that the error asks for.
    fn asked(&self, decided: &EpochDecision) -> f64 {
        let EpochDecision { epoch, error, deviation, .. } = decided;
        let (error, deviation) = (*error, *deviation);
        let sure = error.abs() > 2.0 * deviation;
        let slope = self.model.slope();
        if error < 0.0 {
            let used = self.level_outstanding(epoch);
            let step = error / slope.max(LEAST_SLOPE.0) * if sure { DOWN.0 } else { DOWN.1 };
            let most = if error < -1.0 && error < -4.0 * deviation { 4.0f64 } else { 2.0 };
            return used + step.max(-most.ln());
        }
        let part = if self.bands.is_limit() { FULL_BY_RATES } else { FULL };
        let full = epoch.is_backlogged() && epoch.outstanding() >= part * self.window.exp();
        if !full {
            return self.window;
        }
        let step = error / (slope + self.model.slope_deviation()).max(LEAST_SLOPE.1);
        self.window + (step * if sure { UP.0 } else { UP.1 }).min(LN_2)
    }

    /// Begins an experiment with a lower window, once it is sure that the latency is above the goal.
    fn try_lower(&mut self, asked: f64, used: f64, decided: &EpochDecision) {
        // One epoch says little of whether a descent is needed at all.
        let requests = self.level.requests().max(1.0);
        let error = (decided.goal / self.level.latency_of().max(1e-9)).ln();
        if -error < (2.0 / requests.sqrt()).max(0.02) {
            return;
        }
        let part = if asked < used - 1.2 { 4.0f64 } else { 2.0 };
        let low = self.bounded(used - part.ln());
        if low >= used - 0.1 {
            return;
        }
        let low = self.gate.begin(self.window.max(used), low, self.level);
        self.set(low);
    }

    fn count_above(&mut self, decided: &EpochDecision) {
        if decided.error < 0.0 {
            self.above.0 += decided.epoch.seconds;
            self.above.1 += decided.epoch.count;
        } else {
            self.above = (0.0, 0.0);
        }
    }

    /// Ends what is believed of a storage that has become another one.
    fn notice_change(&mut self, epoch: &Measurement, latency: f64) {
        let known = self.level.latency_of();
        if self.level.requests() > 0.0 && known > 0.0 {
            let deviation = (1.0 / epoch.count.max(1.0) + 1.0 / self.level.requests()).sqrt();
            let jump = (latency / known).ln().abs();
            if jump > OTHER_STORAGE.0 && jump > OTHER_STORAGE.1 * deviation {
                self.level = Measured::default();
                self.consumers.begin_anew();
                if self.gate.is_trying() {
                    self.gate.abandon();
                }
            }
        }
        let Some(futility) = self.gate.futility() else { return };
        let floor = futility.floor;
        let usual = futility.at_edge.max(LEAST_USUAL * floor);
        let at_edge = self.window <= futility.edge + AT_EDGE;
        let (requests, latency) = (self.level.requests(), self.level.latency_of());
        let quicker = requests >= QUICKER.1 && latency < QUICKER.0 * floor;
        // Two standard deviations of a mean of exponential latencies.
        let slower =
            at_edge && requests >= SLOWER.1 && latency > SLOWER.0 * usual * (1.0 + 2.0 / requests.sqrt());
        if requests >= QUICKER.1 {
            self.gate.lower_floor(latency);
        }
        if quicker || slower {
            self.gate.storage_changed();
            self.model = Elasticity::default();
            self.storms.forget();
        }
    }

    fn set(&mut self, window: f64) {
        let window = self.bounded(window);
        if (window - self.window).abs() > STEP.0 {
            self.steady = 0.0;
        }
        if (window - self.window).abs() > 0.1 {
            self.agreement.propose();
            self.await_effect();
            self.level = Measured::default();
        }
        self.window = window;
    }

    fn bounded(&self, window: f64) -> f64 {
        window.clamp(self.least, self.config.greatest.get().ln() + self.hosts.ln())
    }
}
