//! The self-tuning law in the loop: a regulator for each consumer, the lowest operating point of all, and its division by bands.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_units::{ConsumerName, Iops, Latency, Shares};

use crate::bands::{Bands, Claim, allot, operating_point};
use crate::decision::{Action, Bound, Input, Signal};
use crate::heard::{Heard, throttled};
use crate::observation::ConsumerObservation;
use crate::point_decision::{Allotment, PointDecision, RegulatorDecision};
use crate::self_tuning::{Measured, SelfTuning, SelfTuningConfig, SelfTuningConfigError};

/// Who uses less than this part of its rate leaves the rest to the others: some of what was released in an interval completes in the next.
const USED: f64 = 0.7;

/// The regulators of all consumers of a resource. Who is no longer observed is forgotten.
#[derive(Debug, Clone)]
pub(crate) struct Regulators {
    config: SelfTuningConfig,
    /// The operating point in force. At the beginning nobody is held.
    point: Iops,
    consumers: BTreeMap<ConsumerName, Known>,
    /// Counts steps, to know who was not observed in this one.
    steps: u64,
}

/// What is remembered of a consumer.
#[derive(Debug, Clone)]
struct Known {
    regulator: SelfTuning,
    /// What its silence has left of what it asked for: 1 while there is anything to hear.
    left: f64,
    /// The step in which it was last observed.
    seen: u64,
}

impl Default for Known {
    fn default() -> Self {
        Self { regulator: SelfTuning::default(), left: 1.0, seen: 0 }
    }
}

/// Who has been silent for so long that no more than this is left is gone: for a half-life.
const GONE: f64 = 0.5;

/// One control interval, as the loop sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) elapsed: Duration,
    /// What is left of something that nobody needs.
    pub(crate) remaining: f64,
    /// What each is steered to: its own goal, by the ratio of set point and target; without one the set point.
    pub(crate) set_point: Latency,
    pub(crate) set_point_ratio: f64,
    /// The control interval as configured.
    pub(crate) interval: Duration,
}

pub(crate) struct PointStep {
    pub(crate) action: Action,
    /// The bound that made the difference to who decided.
    pub(crate) bound: Option<Bound>,
    pub(crate) decision: PointDecision,
}

/// What one consumer's requests say.
struct Report<'a> {
    consumer: &'a ConsumerObservation,
    heard: Heard,
    input: Input,
    goal: Latency,
}

impl<'a> Report<'a> {
    fn of(consumer: &'a ConsumerObservation, stretch: &Stretch) -> Self {
        let mut heard = Heard::of(std::slice::from_ref(consumer), Signal::Everything);
        heard.total_nanos += u128::from(consumer.scheduler_wait.as_nanos());
        // Who is released and never gets his turn waits as he does at the storage.
        heard.oldest = heard.oldest.max(consumer.oldest_released);
        let own = consumer.goal.map(|goal| goal.scale(stretch.set_point_ratio));
        let goal = own.unwrap_or(stretch.set_point).max(Latency::from_nanos(1));
        let input = if stretch.elapsed.is_zero() { Input::NoTime } else { heard.input(goal) };
        Self { consumer, heard, input, goal }
    }

    fn measured(&self) -> Measured {
        match self.input {
            // The request will be one of its own when it completes; until then its age says that it is late.
            Input::Overload { oldest } => Measured { requests: 1, total: oldest },
            _ => Measured {
                requests: self.heard.count,
                total: Latency::from_nanos(u64::try_from(self.heard.total_nanos).unwrap_or(u64::MAX)),
            },
        }
    }

    fn is_active(&self) -> bool {
        !matches!(self.input, Input::Idle | Input::NoTime)
    }

    fn completed(&self, elapsed: Duration) -> Iops {
        if elapsed.is_zero() {
            Iops::ZERO
        } else {
            Iops::new(self.heard.count as f64 / elapsed.as_secs_f64())
        }
    }
}

impl Regulators {
    pub(crate) fn new(config: SelfTuningConfig) -> Result<Self, SelfTuningConfigError> {
        config.validate()?;
        Ok(Self { config, point: config.greatest, consumers: BTreeMap::new(), steps: 0 })
    }

    /// Changes the parameters. Models and the operating point stay, within the new bounds.
    pub(crate) fn reconfigure(&mut self, config: SelfTuningConfig) -> Result<(), SelfTuningConfigError> {
        config.validate()?;
        if self.point >= self.config.greatest {
            self.point = config.greatest;
        }
        self.config = config;
        self.point = self.point.max(config.least).min(config.greatest);
        for known in self.consumers.values_mut() {
            known.regulator.confine(config.least, config.greatest);
        }
        Ok(())
    }

    pub(crate) fn step(
        &mut self,
        consumers: &[ConsumerObservation],
        bands: Option<&Bands>,
        stretch: &Stretch,
    ) -> PointStep {
        self.steps += 1;
        let reports: Vec<Report<'_>> =
            consumers.iter().map(|consumer| Report::of(consumer, stretch)).collect();
        let applied = self.applied(&reports, stretch.elapsed);
        let bounds = (self.least(consumers, bands, stretch.interval), self.config.greatest);
        let may: Vec<bool> = may_trigger(&reports, bands, self.point);
        let exempt = self.exempt(&reports, &may);
        let regulators: Vec<RegulatorDecision> = reports
            .iter()
            .zip(&may)
            .enumerate()
            .map(|(at, (report, &may))| {
                self.one(report, may, applied, bounds, exempt == Some(at), stretch.remaining)
            })
            .collect();
        let lowest = regulators
            .iter()
            .filter(|regulator| regulator.may_trigger)
            .filter_map(|regulator| regulator.wish.map(|wish| (wish, regulator)))
            // The first of equals; wishes are finite.
            .min_by(|(left, _), (right, _)| left.per_second().total_cmp(&right.per_second()));
        let somebody_to_hold = reports.iter().any(|report| !report.consumer.protected && report.is_active());
        let (action, bound, decided_by) = if stretch.elapsed.is_zero() {
            (Action::Hold, None, None)
        } else if !somebody_to_hold {
            // Whatever is heard is not the effect of what holds nobody.
            self.relax(stretch.remaining);
            (Action::Relax, None, None)
        } else if let Some((wish, regulator)) = lowest {
            self.point = wish;
            let fresh = regulators.iter().any(|regulator| regulator.measured.is_some());
            let action = if fresh { Action::Regulate } else { Action::Hold };
            (action, regulator.bound, Some(regulator.name.clone()))
        } else {
            (Action::Hold, None, None)
        };
        let allotments = self.divide(&reports, bands, stretch.elapsed);
        let steps = self.steps;
        self.consumers.retain(|_, known| known.seen == steps);
        let position = bands.map(|bands| bands.position(self.point));
        let operating_point = self.point;
        let decision =
            PointDecision { operating_point, applied, position, decided_by, regulators, allotments };
        PointStep { action, bound, decision }
    }

    /// Lets one consumer's regulator decide, protected or not: a protected one's goal is what others are held for.
    fn one(
        &mut self,
        report: &Report<'_>,
        may_trigger: bool,
        applied: Iops,
        bounds: (Iops, Iops),
        exempt: bool,
        remaining: f64,
    ) -> RegulatorDecision {
        let Report { consumer, input, goal, .. } = *report;
        let known = self.consumers.entry(consumer.name.clone()).or_default();
        known.seen = self.steps;
        known.left = match input {
            Input::Idle => known.left * remaining,
            Input::NoTime => known.left,
            Input::Samples { .. } | Input::Overload { .. } | Input::Unknown => 1.0,
        };
        let is_gone = known.left <= GONE;
        let regulator = &mut known.regulator;
        let step = match input {
            // A single silent interval is no pause: who reads once in two seconds has many.
            Input::Idle if is_gone => {
                regulator.idle();
                None
            }
            Input::Idle => {
                regulator.pause();
                None
            }
            Input::NoTime => {
                regulator.skip();
                None
            }
            Input::Samples { .. } => {
                Some(regulator.step(&self.config, goal, report.measured(), applied, bounds, exempt))
            }
            Input::Overload { .. } | Input::Unknown => {
                let nothing = Measured { requests: 0, total: Latency::ZERO };
                let measured = if exempt { report.measured() } else { nothing };
                Some(regulator.step(&self.config, goal, measured, applied, bounds, exempt))
            }
        };
        RegulatorDecision {
            name: consumer.name.clone(),
            goal,
            input,
            measured: step.and_then(|step| step.measured),
            may_trigger,
            exempt,
            learnt: step.map(|step| step.learnt),
            wish: regulator.wish(),
            bound: step.and_then(|step| step.bound),
            model: regulator.model(),
        }
    }

    /// u(k−1) as it was carried out: what all who may be held did together.
    fn applied(&self, reports: &[Report<'_>], elapsed: Duration) -> Iops {
        if !self.config.variant().applied_input || elapsed.is_zero() {
            return self.point;
        }
        let all: f64 = reports
            .iter()
            .filter(|report| !report.consumer.protected)
            .map(|report| report.completed(elapsed).per_second())
            .sum();
        Iops::new(all).min(self.config.greatest)
    }

    /// u_min: the configured one, or what leaves somebody who may decide the requests that a decision takes.
    fn least(&self, consumers: &[ConsumerObservation], bands: Option<&Bands>, interval: Duration) -> Iops {
        let enough = Iops::new(f64::from(self.config.least_requests) / interval.as_secs_f64());
        let claims: Vec<Claim<'_>> = throttled(consumers).map(entitlement).collect();
        let needed = (0..claims.len())
            .map(|whose| operating_point(bands, enough, &claims, whose))
            .min_by(|left, right| left.per_second().total_cmp(&right.per_second()));
        self.config.least.max(needed.unwrap_or(Iops::ZERO)).min(self.config.greatest)
    }

    /// The one that does not need enough requests, so that not all wait for each other (Triage §4.2). The paper has one at random, for good;
    /// here it is whoever knows most, and only while nobody has enough: with few requests it would hold all others back by chance.
    fn exempt(&self, reports: &[Report<'_>], may: &[bool]) -> Option<usize> {
        let requests = |report: &Report<'_>| {
            let gathered =
                self.consumers.get(&report.consumer.name).map_or(0, |known| known.regulator.gathered());
            gathered.saturating_add(report.heard.count)
        };
        let those = || reports.iter().enumerate().filter(|(at, report)| may[*at] && report.is_active());
        let enough = u64::from(self.config.least_requests);
        if those().any(|(_, report)| requests(report) >= enough) {
            return None;
        }
        let knows = |report: &Report<'_>| {
            let oldest = match report.input {
                Input::Overload { oldest } => oldest,
                _ => Latency::ZERO,
            };
            (requests(report), oldest)
        };
        // Of equals the first.
        let most = those().max_by_key(|(at, report)| (knows(report), std::cmp::Reverse(*at)));
        most.filter(|(_, report)| knows(report) > (0, Latency::ZERO)).map(|(at, _)| at)
    }

    /// Nobody is there to be held: the operating point grows by as much as a held one would shrink.
    fn relax(&mut self, remaining: f64) {
        let greater = self.point.per_second() / remaining.max(f64::MIN_POSITIVE);
        self.point = Iops::new(greater).min(self.config.greatest);
    }

    /// What everybody who is throttled has of the operating point from now on.
    fn divide(&self, reports: &[Report<'_>], bands: Option<&Bands>, elapsed: Duration) -> Vec<Allotment> {
        let throttled: Vec<&Report<'_>> =
            reports.iter().filter(|report| !report.consumer.protected).collect();
        let entitlements: Vec<Claim<'_>> =
            throttled.iter().map(|report| entitlement(report.consumer)).collect();
        let entitled = allot(bands, self.point, &entitlements);
        let lent = if self.config.variant().lend_unused && !elapsed.is_zero() {
            let used = throttled.iter().zip(&entitlements).map(|(report, claim)| {
                let most = Iops::new(report.completed(elapsed).per_second() / USED);
                Claim { most: (!is_held(report.consumer)).then_some(most), ..*claim }
            });
            // Who has a part and is not there, does not use it.
            let observed: BTreeSet<&ConsumerName> = throttled.iter().map(|report| &report.consumer.name).collect();
            let absent = bands.into_iter().flat_map(Bands::workloads).filter(|name| !observed.contains(name));
            let absent = absent.map(|name| Claim { name, shares: Shares::DEFAULT, most: Some(Iops::ZERO) });
            let claims: Vec<Claim<'_>> = used.chain(absent).collect();
            allot(bands, self.point, &claims)
        } else {
            entitled.clone()
        };
        throttled
            .iter()
            .zip(entitled.into_iter().zip(lent))
            .map(|(report, (entitled, lent))| {
                let rate = entitled.max(lent).max(self.config.floor);
                let name = report.consumer.name.clone();
                Allotment { name, entitled, rate, held: is_held(report.consumer) }
            })
            .collect()
    }
}

fn entitlement(consumer: &ConsumerObservation) -> Claim<'_> {
    Claim { name: &consumer.name, shares: consumer.shares, most: None }
}

/// Whose response times may hold everybody back: by the bands (Triage §2), and who is protected. Where none of those does
/// anything, everybody's: else whoever has a part of higher bands only, and is alone, would stay where the others left off.
fn may_trigger(reports: &[Report<'_>], bands: Option<&Bands>, point: Iops) -> Vec<bool> {
    let by_bands = |report: &Report<'_>| {
        let consumer = report.consumer;
        consumer.protected || bands.is_none_or(|bands| bands.may_trigger(&consumer.name, point))
    };
    let somebody = reports.iter().any(|report| report.is_active() && by_bands(report));
    reports.iter().map(|report| !somebody || by_bands(report)).collect()
}

/// Whether its rate is what kept some of its requests waiting.
fn is_held(consumer: &ConsumerObservation) -> bool {
    consumer.short_of_tokens > Latency::ZERO
}
