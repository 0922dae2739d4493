//! The rates of all consumers of a resource: the integral law for each, and what they do to each other.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_units::{ConsumerName, Iops, Latency};

use crate::document::observation::ConsumerObservation;
use crate::document::output::{LawAction, LawOutput, OutputBound};
use crate::document::rate_decision::{GaveWay, RateDecision};
use crate::document::signal::{SignalRequests, SignalState};
use crate::estimate::signal_samples::{SignalSamples, throttled};
use crate::law::control_law::{ConsumerThrottle, ControlInterval, ControlLaw, LawStep, SignalScope};
use crate::law::integral::config::{ContractStatistic, GainTuning, IntegralConfig, IntegralConfigError};
use crate::law::integral::gain::ControllerGain;
use crate::law::integral::integral_law::{IntegralLaw, RateBounds, RateUse, weighed};
use crate::law::integral::learnt_gain::LearntGain;

/// Weight of one control period's evidence about the storage: some periods together hold enough requests.
const EVIDENCE: f64 = 0.25;

/// Part of the sustained throughput that is given out at once after a consumer has gone. The rest is found
/// K·E by K·E: the throughput just taken for sustained was at the edge of a consumer's reference.
const GIVEN_OUT: f64 = 0.95;

/// The rates of all eligible consumers. Consumers that are no longer observed are forgotten.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ConsumerRates {
    config: IntegralConfig,
    consumers: BTreeMap<ConsumerName, Consumer>,
    sustained: Sustained,
    /// The elasticity from which K is learnt.
    #[serde(default)]
    learnt: LearntGain,
    /// Counts steps, to know who was not observed in this one.
    steps: u64,
}

/// Memory of one consumer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Consumer {
    law: IntegralLaw,
    /// Time since its last outstanding request. A new consumer comes from a pause without a beginning.
    idle: Duration,
    /// The step in which it was last observed.
    seen: u64,
}

/// One control period, as the loop sees it.
#[derive(Debug, Clone, Copy)]
struct Period {
    elapsed: Duration,
    /// Length of the period in control intervals.
    intervals: f64,
    /// Part of an unused surplus that remains after this period.
    remaining: f64,
    /// A shorter silence is no pause.
    pause: Duration,
    /// Reference of consumers without a contract, unless another consumer's contract is stricter.
    set_point: Latency,
}

/// Measurements of one consumer's requests.
struct ConsumerReport {
    heard: SignalSamples,
    input: SignalState,
    measured: Option<Latency>,
    reference: Latency,
}

impl ConsumerReport {
    /// `otherwise`: the reference of consumers without a contract.
    fn of(
        consumer: &ConsumerObservation,
        statistic: ContractStatistic,
        otherwise: Latency,
        elapsed: Duration,
    ) -> Self {
        let mut heard = SignalSamples::of(std::slice::from_ref(consumer), SignalRequests::Everything);
        heard.total_nanos += u128::from(consumer.scheduler_wait.as_nanos());
        // What a promise is about begins with the release: who never gets his turn waits as he does at the
        // storage.
        heard.oldest = heard.oldest.max(consumer.oldest_released);
        let reference = consumer.contract.map_or(otherwise, |contract| contract.expected());
        let promised = consumer.contract.map_or(otherwise, |contract| contract.response_time());
        let input = if elapsed.is_zero() { SignalState::NoTime } else { heard.input(promised) };
        let percentile =
            consumer.release_to_completion.filter(|_| statistic == ContractStatistic::Percentile95);
        let measured =
            matches!(input, SignalState::Samples { .. }).then(|| percentile.unwrap_or(heard.mean()));
        Self { heard, input, measured, reference }
    }

    /// Returns true if the reference was kept. `None` if nothing is known.
    fn kept(&self) -> Option<bool> {
        match self.input {
            SignalState::Overload { .. } => Some(false),
            _ => self.measured.map(|measured| measured <= self.reference),
        }
    }

    fn is_active(&self) -> bool {
        !matches!(self.input, SignalState::Idle | SignalState::NoTime)
    }
}

/// Promised rates of the active consumers, and their surplus beyond that.
#[derive(Default)]
struct Claims {
    promised: f64,
    surplus: f64,
    /// The surplus of consumers that did not come back just now.
    others: f64,
    returned: u32,
    first: Option<ConsumerName>,
    /// Number of consumers with a contract that have just paused for long enough.
    gone: u32,
}

/// Throughput that the storage sustains. See [`GaveWay::sustained`].
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Sustained(Option<f64>);

impl Sustained {
    /// Learns from one period. More completions within all references show that the storage can do it; fewer
    /// beyond a reference show that it cannot. Little demand at short response times shows nothing, nor does
    /// a queue that is being worked off.
    fn learn(&mut self, completed: f64, kept: bool, intervals: f64) {
        let known = *self.0.get_or_insert(completed);
        if kept == (completed > known) {
            self.0 = Some(known + EVIDENCE * intervals.min(1.0) * (completed - known));
        }
    }
}

impl ConsumerRates {
    pub(crate) fn new(config: IntegralConfig) -> Result<Self, IntegralConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            consumers: BTreeMap::new(),
            sustained: Sustained::default(),
            learnt: LearntGain::default(),
            steps: 0,
        })
    }

    /// Changes the parameters. Rates stay, and are within the new bounds from the next step on.
    pub(crate) fn reconfigure(&mut self, config: IntegralConfig) -> Result<(), IntegralConfigError> {
        config.validate()?;
        self.config = config;
        Ok(())
    }

    fn decide(&mut self, consumers: &[ConsumerObservation], period: &Period) -> LawStep {
        self.steps += 1;
        let otherwise = strictest(consumers).map_or(period.set_point, |least| least.min(period.set_point));
        let report =
            |consumer| ConsumerReport::of(consumer, self.config.statistic, otherwise, period.elapsed);
        let reports: Vec<ConsumerReport> = consumers.iter().map(report).collect();
        let gain = self.gain(consumers, &reports, period);
        let mut claims = Claims::default();
        let (mut completed, mut kept) = (0.0, None);
        let mut rates = Vec::with_capacity(consumers.len());
        let mut before = Vec::with_capacity(consumers.len());
        for (consumer, report) in consumers.iter().zip(&reports) {
            let known = self.consumers.get(&consumer.name).map(|known| known.law.rate());
            completed += report.heard.count as f64;
            // A protected consumer without a contract has no promise.
            if !consumer.protected || consumer.contract.is_some() {
                kept = report.kept().map(|this| this && kept.unwrap_or(true)).or(kept);
            }
            if let Some(rate) = self.one(consumer, report, (period, gain), &mut claims) {
                rates.push(rate);
                before.push(known.unwrap_or(self.bounds(consumer).least));
            }
        }
        self.divide_surplus(consumers, (&before, &mut rates), (period, gain), &mut claims);
        let gone = claims.gone > 0 && claims.returned == 0;
        let gave_way = self.give_way(consumers, &mut rates, claims);
        if gone {
            self.take_over(consumers, &mut rates);
        }
        if let Some(kept) = kept {
            let per_second = completed / period.elapsed.as_secs_f64();
            self.sustained.learn(per_second, kept, period.intervals);
        }
        let steps = self.steps;
        self.consumers.retain(|_, consumer| consumer.seen == steps);
        combined(rates, gave_way)
    }

    /// K of this period: the configured one, or `(1 − p)/ε · ρ/RT` by what is learnt, the same for all.
    fn gain(
        &mut self,
        consumers: &[ConsumerObservation],
        reports: &[ConsumerReport],
        period: &Period,
    ) -> ControllerGain {
        if self.config.tuning == GainTuning::Fixed || period.elapsed.is_zero() {
            return self.config.gain;
        }
        let (mut count, mut completed, mut in_force) = (0.0, 0.0, 0.0);
        let (mut latency, mut reference) = (0.0_f64, f64::INFINITY);
        for (consumer, report) in consumers.iter().zip(reports) {
            completed += per_second(report.heard.count, period.elapsed).per_second();
            if consumer.protected || !report.is_active() {
                continue;
            }
            let known = self.consumers.get(&consumer.name).map(|known| known.law.rate());
            in_force += known.unwrap_or_else(|| self.bounds(consumer).least).per_second();
            count += 1.0;
            let own = report.reference.as_millis_f64();
            reference = reference.min(own);
            latency = latency
                .max(seen(report.input, report.measured).map_or(0.0, |seen| seen.as_millis_f64() / own));
        }
        self.learnt.learn(completed, latency);
        let gain = self.learnt.relative() * in_force / (count * reference);
        ControllerGain::new(gain).unwrap_or(self.config.gain)
    }

    /// Decides of one consumer; `None` of a protected one. And what it claims.
    fn one(
        &mut self,
        consumer: &ConsumerObservation,
        report: &ConsumerReport,
        (period, gain): (&Period, ControllerGain),
        claims: &mut Claims,
    ) -> Option<RateDecision> {
        let config = IntegralConfig { gain, ..self.config };
        let bounds = self.bounds(consumer);
        let known = self.consumers.entry(consumer.name.clone()).or_insert_with(|| Consumer {
            law: IntegralLaw::new(bounds.least),
            idle: Duration::MAX,
            seen: 0,
        });
        known.seen = self.steps;
        let returned = report.is_active() && consumer.contract.is_some() && known.idle >= period.pause;
        if report.is_active() {
            if returned {
                claims.returned += 1;
                claims.first.get_or_insert_with(|| consumer.name.clone());
            }
            known.idle = Duration::ZERO;
        } else {
            let idle = known.idle.saturating_add(period.elapsed);
            let before = std::mem::replace(&mut known.idle, idle);
            claims.gone +=
                u32::from(consumer.contract.is_some() && before < period.pause && idle >= period.pause);
        }
        if consumer.protected {
            // If it is throttled one day, it begins as if it were new.
            known.law = IntegralLaw::new(bounds.least);
            if report.is_active() {
                claims.promised += consumer.contract.map_or(0.0, |contract| contract.iops().per_second());
            }
            return None;
        }
        let held = is_held(consumer);
        let used = RateUse { completed: per_second(report.heard.count, period.elapsed), waited: held };
        let law = &mut known.law;
        let mut regulate = |seen| {
            let compared = (report.reference, seen);
            law.step(&config, bounds, compared, used, period.intervals, period.remaining)
        };
        let (action, step) = match (report.input, report.measured) {
            (SignalState::Overload { oldest }, _) => (LawAction::Regulate, regulate(oldest)),
            (_, Some(measured)) => (LawAction::Regulate, regulate(measured)),
            (SignalState::Idle, _) if self.config.variant.decay_unused => {
                (LawAction::Relax, law.relax(bounds, period.remaining))
            }
            _ => (LawAction::Hold, law.hold(bounds)),
        };
        if report.is_active() {
            claims.promised += bounds.least.per_second();
            let surplus = step.rate.per_second() - bounds.least.per_second();
            claims.surplus += surplus;
            claims.others += if returned { 0.0 } else { surplus };
        }
        Some(RateDecision {
            name: consumer.name.clone(),
            contract: consumer.contract,
            input: report.input,
            measured: report.measured,
            reference: report.reference,
            held,
            action,
            raw: step.raw,
            rate: step.rate,
            bound: step.bound,
        })
    }

    /// Divides the surplus of all consumers that wait for more in proportion to their promised rates. The
    /// strictest error moves it, as many times as there are consumers: equal errors then move each rate by
    /// K·E, as eq. 2 does. `before` are the rates before the step.
    fn divide_surplus(
        &mut self,
        consumers: &[ConsumerObservation],
        (before, rates): (&[Iops], &mut [RateDecision]),
        (period, gain): (&Period, ControllerGain),
        claims: &mut Claims,
    ) {
        if !self.config.variant.by_contracts {
            return;
        }
        let waits = |decided: &RateDecision| {
            decided.action == LawAction::Regulate
                && decided.held
                && decided.contract.is_some()
                && decided.bound != Some(OutputBound::Demand)
        };
        let pool: Vec<(usize, RateBounds)> = throttled(consumers)
            .zip(rates.iter())
            .enumerate()
            .filter(|(_, (_, decided))| waits(decided))
            .map(|(at, (consumer, _))| (at, self.bounds(consumer)))
            .collect();
        if pool.len() < 2 {
            return;
        }
        let error = |decided: &RateDecision| {
            let seen = seen(decided.input, decided.measured).unwrap_or(decided.reference);
            decided.reference.as_millis_f64() - seen.as_millis_f64()
        };
        let strictest = pool.iter().map(|(at, _)| error(&rates[*at])).fold(f64::INFINITY, f64::min);
        let part = if period.intervals.is_nan() { 0.0 } else { period.intervals.clamp(0.0, 1.0) };
        let moves = pool.len() as f64 * part * weighed(&self.config, strictest) * gain.iops_per_ms();
        let promised: f64 = pool.iter().map(|(_, bounds)| bounds.least.per_second()).sum();
        let in_force: f64 = pool.iter().map(|(at, _)| before[*at].per_second()).sum();
        let surplus = ((in_force - promised).max(0.0) + moves).max(0.0);
        for (at, bounds) in pool {
            let decided = &mut rates[at];
            let least = bounds.least.per_second();
            // Promises without end make a part of them no number, for which `max` takes the least.
            let (rate, bound) = bounds.confine((least + surplus * least / promised).max(least));
            claims.surplus += rate - decided.rate.per_second();
            (decided.rate, decided.bound) = (Iops::new(rate), bound);
            if let Some(known) = self.consumers.get_mut(&decided.name) {
                known.law = IntegralLaw::new(decided.rate);
            }
        }
    }

    /// Cuts every surplus by the same factor, so that the rates of all active consumers together are what the
    /// storage sustains. Only when a consumer comes back: at any other time response times say what is too
    /// much.
    fn give_way(
        &mut self,
        consumers: &[ConsumerObservation],
        rates: &mut [RateDecision],
        claims: Claims,
    ) -> Option<GaveWay> {
        let to = claims.first.filter(|_| self.config.variant.give_way)?;
        let sustained = self.sustained.0?.max(claims.promised);
        let room = (sustained - claims.promised).max(0.0);
        if claims.others <= 0.0 || claims.surplus <= room {
            return None;
        }
        let mut given_back = 0.0;
        for (consumer, decided) in throttled(consumers).zip(rates) {
            if matches!(decided.input, SignalState::Idle | SignalState::NoTime) {
                continue;
            }
            let (least, rate) = (self.bounds(consumer).least.per_second(), decided.rate.per_second());
            let cut = rate.min(least + (rate - least) * room / claims.surplus);
            if cut < rate {
                given_back += rate - cut;
                (decided.rate, decided.bound) = (Iops::new(cut), Some(OutputBound::Return));
                if let Some(known) = self.consumers.get_mut(&consumer.name) {
                    known.law = IntegralLaw::new(decided.rate);
                }
            }
        }
        let (sustained, given_back) = (Iops::new(sustained), Iops::new(given_back));
        Some(GaveWay { to, returned: claims.returned, sustained, given_back })
    }

    /// Raises the rates of throttled consumers to what the storage sustains without those that have gone, by
    /// their shares.
    fn take_over(&mut self, consumers: &[ConsumerObservation], rates: &mut [RateDecision]) {
        if !self.config.variant.take_over {
            return;
        }
        let active =
            rates.iter().filter(|rate| !matches!(rate.input, SignalState::Idle | SignalState::NoTime));
        let in_force: f64 = active.map(|rate| rate.rate.per_second()).sum();
        let room = GIVEN_OUT * self.sustained.0.unwrap_or(0.0) - in_force;
        let held = || throttled(consumers).enumerate().filter(|(_, one)| is_held(one));
        let shares: f64 = held().map(|(_, consumer)| consumer.shares.as_f64()).sum();
        if room <= 0.0 {
            return;
        }
        for (at, consumer) in held() {
            let decided = &mut rates[at];
            let part = room * consumer.shares.as_f64() / shares;
            let raised = decided.rate.per_second() + part;
            let (rate, bound) = self.bounds(consumer).confine(raised);
            (decided.rate, decided.bound) = (Iops::new(rate), bound.or(Some(OutputBound::Departure)));
            if let Some(known) = self.consumers.get_mut(&consumer.name) {
                known.law = IntegralLaw::new(decided.rate);
            }
        }
    }

    fn bounds(&self, consumer: &ConsumerObservation) -> RateBounds {
        let least = consumer.contract.map_or(self.config.floor, |contract| contract.iops());
        RateBounds { least, greatest: self.config.greatest }
    }
}

impl ControlLaw for ConsumerRates {
    fn step(&mut self, interval: &ControlInterval<'_>) -> LawStep {
        let &ControlInterval { elapsed, remaining, pause, set_point, .. } = interval;
        let intervals = interval.intervals();
        self.decide(interval.consumers, &Period { elapsed, intervals, remaining, pause, set_point })
    }

    fn throttle(&self, step: &LawStep, place: usize, _: &ConsumerObservation) -> ConsumerThrottle {
        let decided = step.rates.get(place);
        ConsumerThrottle {
            rate: decided.map(|decided| decided.rate),
            is_held: decided.is_some_and(|decided| decided.held),
            ..ConsumerThrottle::default()
        }
    }

    fn scope(&self) -> SignalScope {
        SignalScope::PerConsumer
    }
}

/// The latency that a consumer's requests show; `None` if they show none.
fn seen(input: SignalState, measured: Option<Latency>) -> Option<Latency> {
    match input {
        SignalState::Overload { oldest } => Some(oldest),
        _ => measured,
    }
}

/// The step of all consumers together.
fn combined(rates: Vec<RateDecision>, gave_way: Option<GaveWay>) -> LawStep {
    let sum = |of: fn(&RateDecision) -> Iops| {
        LawOutput::Rate(Iops::new(rates.iter().map(|rate| of(rate).per_second()).sum()))
    };
    let any = |action| rates.iter().any(|rate| rate.action == action);
    let action = if any(LawAction::Regulate) {
        LawAction::Regulate
    } else if any(LawAction::Hold) {
        LawAction::Hold
    } else {
        LawAction::Relax
    };
    let (raw, bounded) = (sum(|rate| rate.raw), sum(|rate| rate.rate));
    let bound = gave_way.is_some().then_some(OutputBound::Return);
    LawStep { raw, bound, rates, gave_way, ..LawStep::to(action, bounded) }
}

/// Returns true if its rate kept some of its requests waiting.
fn is_held(consumer: &ConsumerObservation) -> bool {
    consumer.short_of_tokens > Latency::ZERO
}

/// The least RT^E of active consumers with a contract.
fn strictest(consumers: &[ConsumerObservation]) -> Option<Latency> {
    let contracts = consumers.iter().filter_map(|consumer| Some((consumer, consumer.contract?)));
    contracts
        .filter(|(consumer, _)| {
            SignalSamples::of(std::slice::from_ref(*consumer), SignalRequests::Everything).is_active()
        })
        .map(|(_, contract)| contract.expected())
        .min()
}

fn per_second(count: u64, elapsed: Duration) -> Iops {
    if elapsed.is_zero() { Iops::ZERO } else { Iops::new(count as f64 / elapsed.as_secs_f64()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_units::Shares;

    use super::*;

    #[test]
    fn who_is_no_longer_observed_is_forgotten() {
        let mut rates = ConsumerRates::new(IntegralConfig::default()).unwrap();
        let period = Period {
            elapsed: Duration::from_secs(1),
            intervals: 1.0,
            remaining: 0.7,
            pause: Duration::from_secs(2),
            set_point: Latency::from_millis(40),
        };
        for generation in 0..100 {
            let one = |at| {
                let name = ConsumerName::new(&format!("{generation}-{at}")).unwrap();
                ConsumerObservation::idle(name, Shares::DEFAULT, at % 2 == 0)
            };
            rates.decide(&(0..10).map(one).collect::<Vec<_>>(), &period);
            assert_eq!(rates.consumers.len(), 10);
        }
        rates.decide(&[], &period);
        assert!(rates.consumers.is_empty());
    }

    #[test]
    fn little_demand_and_a_queue_that_drains_say_nothing_about_the_storage() {
        let mut sustained = Sustained::default();
        sustained.learn(72.0, true, 1.0);
        sustained.learn(5.0, true, 1.0);
        sustained.learn(90.0, false, 1.0);
        assert_eq!(sustained.0, Some(72.0));
        sustained.learn(80.0, true, 1.0);
        assert_eq!(sustained.0, Some(74.0));
        sustained.learn(54.0, false, 10.0);
        assert_eq!(sustained.0, Some(69.0));
    }

    proptest! {
        /// A storage that keeps response times up to some rate, under little demand, nearly enough, and too
        /// much.
        #[test]
        fn what_is_sustained_is_found_from_above_and_below(
            keeps in 10.0f64..1e4, first in 0.0..2e4,
                demands in prop::collection::vec(prop::sample::select(vec![0.3, 0.98, 1.5]), 200)
        ) {
            let mut sustained = Sustained::default();
            sustained.learn(first, first <= keeps, 1.0);
            for part in demands {
                let demand: f64 = keeps * part;
                sustained.learn(demand.min(keeps), demand <= keeps, 1.0);
            }
            prop_assert!((sustained.0.unwrap() / keeps - 1.0).abs() < 0.03, "{sustained:?} {keeps}");
        }
    }
}
