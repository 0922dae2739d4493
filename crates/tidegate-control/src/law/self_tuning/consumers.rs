//! The self-tuning law in the loop: a regulator for each consumer, the lowest operating point of all, and its
//! division by bands.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_units::{ConsumerName, Iops, Latency, Window};

use crate::cluster::operating_point::{AgreedPoint, HostAgreement, HostWish};
use crate::document::observation::ConsumerObservation;
use crate::document::output::{LawAction, LawOutput};
use crate::document::point_decision::{PointAllotment, PointDecision, RegulatorDecision};
use crate::document::point_report::{PeerPoint, PointReport, PointTurn, PointWish};
use crate::document::signal::{SignalRequests, SignalState};
use crate::estimate::signal_samples::{SignalSamples, throttled};
use crate::law::bands::{self, BandClaim, Bands, operating_point};
use crate::law::claims::{self, ClaimPart, HostClaims};
use crate::law::control_law::{ConsumerThrottle, ControlInterval, ControlLaw, LawStep, SignalScope};
use crate::law::queueing::station::AtStorage;
use crate::law::self_tuning::config::{RegulationMethod, SelfTuningConfig, SelfTuningConfigError};
use crate::law::self_tuning::regulator::{IntervalMeasurement, SelfTuning};
use crate::law::window::config::WindowConfig;

/// The regulators of all consumers of a resource. Consumers that are no longer observed are forgotten.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ConsumerRegulators {
    config: SelfTuningConfig,
    /// The operating point in force. At the beginning nothing is throttled.
    point: Iops,
    consumers: BTreeMap<ConsumerName, Known>,
    agreement: HostAgreement,
    /// Factors that turn the operating point into a window, by the model of a queue.
    turn: Option<PointTurn>,
    /// Report to other hosts, as of the last step.
    told: Option<PointReport>,
    /// Counts steps, to know who was not observed in this one.
    steps: u64,
}

/// Memory of one consumer.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Known {
    regulator: SelfTuning,
    /// Part of its wish that remains after its silence: 1 while it is active.
    left: f64,
    /// Measurements of the interval before, if the other hosts' numbers of requests belong to that interval.
    before: Option<IntervalMeasurement>,
    /// The step in which it was last observed.
    seen: u64,
}

impl Default for Known {
    fn default() -> Self {
        Self { regulator: SelfTuning::default(), left: 1.0, before: None, seen: 0 }
    }
}

/// Remaining part of a wish at which a silent consumer counts as gone: after a half-life.
const GONE: f64 = 0.5;

/// Greatest room that rates leave above the operating point, as a factor.
const MOST_ROOM: f64 = 2.0;

/// One control interval, as the loop sees it.
#[derive(Debug, Clone, Copy)]
struct LoopInterval {
    elapsed: Duration,
    /// Part of an unneeded wish that remains after this interval.
    remaining: f64,
    /// Set point of a consumer without a goal. With a goal it is that goal, times the ratio of set point and
    /// target.
    set_point: Latency,
    set_point_ratio: f64,
    /// The control interval as configured.
    interval: Duration,
    /// Requests of each consumer that are compared with its goal.
    signal: SignalRequests,
}

/// Consumers, hosts and bands of a step.
#[derive(Debug, Clone, Copy)]
struct Those<'a> {
    /// This host's own.
    consumers: &'a [ConsumerObservation],
    /// Reports of the laws of other hosts that share the resource.
    peers: &'a [PeerPoint],
    bands: Option<&'a Bands>,
}

/// Measurements of one consumer's requests.
struct ClientReport<'a> {
    consumer: &'a ConsumerObservation,
    /// Those that are compared with the goal.
    heard: SignalSamples,
    /// All of them: the throttled ones.
    all: SignalSamples,
    input: SignalState,
    goal: Latency,
    /// Length of the interval.
    over: Latency,
    /// Something keeps its requests waiting that is ours.
    held: bool,
}

impl<'a> ClientReport<'a> {
    /// `windowed`: what waits for its turn waits for the window, and not for the storage.
    fn of(consumer: &'a ConsumerObservation, stretch: &LoopInterval, windowed: bool) -> Self {
        let of = |signal| {
            let mut heard = SignalSamples::of(std::slice::from_ref(consumer), signal);
            if !windowed {
                heard.total_nanos += u128::from(consumer.scheduler_wait.as_nanos());
                // A released request that never gets its turn waits as it does at the storage.
                heard.oldest = heard.oldest.max(consumer.oldest_released);
            }
            heard
        };
        let (heard, all) = (of(stretch.signal), of(SignalRequests::Everything));
        let held = consumer.short_of_tokens > Latency::ZERO || (windowed && consumer.queued > 0);
        let own = consumer.goal.map(|goal| goal.scale(stretch.set_point_ratio));
        let goal = own.unwrap_or(stretch.set_point).max(Latency::from_nanos(1));
        let input = if stretch.elapsed.is_zero() { SignalState::NoTime } else { heard.input(goal) };
        Self { consumer, heard, all, input, goal, over: Latency::from(stretch.elapsed), held }
    }

    fn measured(&self, held: AtStorage) -> IntervalMeasurement {
        match self.input {
            // The request will be one of its own when it completes; until then its age says that it is late.
            SignalState::Overload { oldest } => {
                IntervalMeasurement { requests: 1, total: oldest, over: self.over, held }
            }
            _ => IntervalMeasurement {
                requests: self.heard.count,
                total: Latency::from_nanos(u64::try_from(self.heard.total_nanos).unwrap_or(u64::MAX)),
                over: self.over,
                held,
            },
        }
    }

    fn is_active(&self) -> bool {
        self.input != SignalState::NoTime && self.all.input(self.goal) != SignalState::Idle
    }

    fn completed(&self, elapsed: Duration) -> Iops {
        if elapsed.is_zero() { Iops::ZERO } else { Iops::new(self.all.count as f64 / elapsed.as_secs_f64()) }
    }
}

impl ConsumerRegulators {
    pub(crate) fn new(config: SelfTuningConfig) -> Result<Self, SelfTuningConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            point: config.greatest,
            consumers: BTreeMap::new(),
            agreement: HostAgreement::default(),
            turn: None,
            told: None,
            steps: 0,
        })
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

    fn decide(&mut self, those: &Those<'_>, stretch: &LoopInterval) -> LawStep {
        self.steps += 1;
        let Those { consumers, peers, bands } = *those;
        let windowed = matches!(self.config.regulation, RegulationMethod::Queueing(_));
        let reports: Vec<ClientReport<'_>> =
            consumers.iter().map(|consumer| ClientReport::of(consumer, stretch, windowed)).collect();
        let done = done(&reports, stretch.elapsed);
        let applied = self.applied(done, peers, stretch.elapsed);
        let (own_held, held) = at_storage(&reports, done, peers, stretch.elapsed);
        // True if all throttled consumers belong to other hosts.
        let alone = windowed && own_held <= 0.0 && held.outstanding > 0.0;
        let bounds = (self.least(those, stretch.interval), self.config.greatest);
        let say = Say::of(&reports, peers, bands, self.point);
        let may: Vec<bool> = reports.iter().map(|report| say.may(report)).collect();
        let enough = self.has_enough(&reports, &may);
        let heard_enough = peers.iter().any(|peer| peer.point.enough && say.counts(&peer.point));
        let exempt = if self.config.is_literal() {
            self.at_random(&reports)
        } else if enough || heard_enough {
            None
        } else {
            self.exempt(&reports, &may)
        };
        let regulators: Vec<RegulatorDecision> = reports
            .iter()
            .zip(&may)
            .enumerate()
            .map(|(at, (report, &may))| {
                self.one(report, may, (applied, held, alone), bounds, exempt == Some(at), stretch.remaining)
            })
            .collect();
        let lowest = regulators
            .iter()
            .filter(|regulator| regulator.may_trigger)
            .filter_map(|regulator| {
                let turn = windowed.then(|| self.turn(regulator)).flatten();
                let wish = PointWish { operating_point: regulator.wish?, goal: regulator.goal, turn };
                Some((wish, regulator))
            })
            // The first of equals; wishes are finite.
            .min_by(|(left, _), (right, _)| asks(left, windowed).total_cmp(&asks(right, windowed)));
        let active = reports.iter().any(|report| !report.consumer.protected && report.is_active());
        let has_consumer_to_throttle =
            active || self.config.is_literal() || peers.iter().any(|peer| peer.point.active);
        let own = lowest.map(|(wish, _)| wish);
        let (mut action, mut bound, mut decided_by, mut host, mut doubted) =
            (LawAction::Hold, None, None, None, false);
        if !stretch.elapsed.is_zero() && !has_consumer_to_throttle {
            // Without throttled consumers, the signal is not the effect of the command.
            self.relax(stretch.remaining);
            action = LawAction::Relax;
        } else if !stretch.elapsed.is_zero() {
            let shortest = reports.iter().map(|report| report.goal).fold(stretch.set_point, Latency::min);
            let own_did = if windowed { own_held } else { done.per_second() };
            let (agreed, whose) = self.agree(own.map(|wish| (wish, own_did)), peers, &say, shortest);
            if let Some((wish, AgreedPoint { point, doubted: not_all, .. })) = agreed {
                let turn = wish.turn();
                let point = match (not_all, windowed) {
                    (false, _) => wish.operating_point,
                    (true, false) => Iops::new(point),
                    (true, true) => Iops::new(point / turn.takes.max(Latency::from_nanos(1)).as_secs_f64()),
                };
                self.point = point.max(self.config.least).min(self.config.greatest);
                (self.turn, doubted) = (Some(turn), not_all);
            }
            if let Some(peer) = whose {
                (action, host) = (LawAction::Regulate, Some(peer.host.clone()));
            } else if let Some((_, regulator)) = lowest {
                let fresh = regulators.iter().any(|regulator| regulator.measured.is_some());
                action = if fresh { LawAction::Regulate } else { LawAction::Hold };
                (bound, decided_by) = (regulator.bound, Some(regulator.name.clone()));
            }
        }
        let turn = self.turn.filter(|_| windowed && self.point < self.config.greatest);
        // Rates are a division, and the window is the throttle: while response times are below the goal,
        // rates leave room for more.
        let room = turn.map_or(1.0, |turn| turn.room.clamp(1.0, MOST_ROOM));
        let rates = self.divide(Iops::new(self.point.per_second() * room), &reports, those, stretch.elapsed);
        let allotments = self.allotments(&reports, rates);
        let window = turn.map(|turn| {
            let part = self.part(&reports, those, stretch.elapsed).per_second();
            Window::new((part * turn.takes.as_secs_f64()).max(WindowConfig::default().least.get()))
        });
        if !stretch.elapsed.is_zero() {
            let eligible = reports.iter().filter(|report| !report.consumer.protected);
            let used = eligible.map(|report| (report.consumer, claim(report, stretch.elapsed).most));
            let HostClaims { claims, rest, content } = HostClaims::of(used, bands);
            let (outstanding, has_say) = (windowed.then_some(own_held), say.own);
            let wish = own;
            self.told =
                Some(PointReport { done, outstanding, wish, has_say, enough, active, claims, rest, content });
        }
        let steps = self.steps;
        self.consumers.retain(|_, known| known.seen == steps);
        let position = bands.map(|bands| bands.position(self.point));
        let operating_point = self.point;
        let decision = PointDecision {
            operating_point,
            applied,
            position,
            decided_by,
            host,
            doubted,
            regulators,
            allotments,
            window,
        };
        let step = LawStep::to(action, LawOutput::Rate(operating_point));
        LawStep { bound, point: Some(decision), ..step }
    }

    /// Returns the factors that turn this consumer's wish into a window, however little it has just measured.
    fn turn(&self, regulator: &RegulatorDecision) -> Option<PointTurn> {
        let takes = self.consumers.get(&regulator.name)?.regulator.takes(regulator.goal);
        let below = regulator.measured.map(|took| regulator.goal.as_secs_f64() / took.as_secs_f64());
        let room = below.filter(|below| !below.is_nan()).map_or(1.0, |below| below.clamp(1.0, MOST_ROOM));
        Some(PointTurn { takes, room })
    }

    /// Returns the agreement of all hosts, the wish that decided, and its host if that is another one. `own`
    /// is this host's wish, and the amount that its consumers did.
    fn agree<'a>(
        &mut self,
        own: Option<(PointWish, f64)>,
        peers: &'a [PeerPoint],
        say: &Say<'_>,
        shortest: Latency,
    ) -> (Option<(PointWish, AgreedPoint)>, Option<&'a PeerPoint>) {
        let windowed = matches!(self.config.regulation, RegulationMethod::Queueing(_));
        let own = own.map(|(wish, done)| (None, wish, done));
        let theirs = peers.iter().filter(|peer| say.counts(&peer.point)).filter_map(|peer| {
            let (wish, done) = (peer.point.wish?, peer.point.done.per_second());
            let outstanding = || peer.point.outstanding.unwrap_or(done * wish.turn().takes.as_secs_f64());
            Some((Some(peer), wish, if windowed { outstanding() } else { done }))
        });
        // Its own first: of equals it is that.
        let all: Vec<_> = own.into_iter().chain(theirs).collect();
        let wishes: Vec<HostWish> = all
            .iter()
            .map(|(_, wish, done)| HostWish { asks: asks(wish, windowed), goal: wish.goal, done: *done })
            .collect();
        let in_force = match self.turn.filter(|_| windowed) {
            Some(turn) => self.point.per_second() * turn.takes.as_secs_f64(),
            None => self.point.per_second(),
        };
        let Some(agreed) = self.agreement.of(&wishes, in_force, shortest) else { return (None, None) };
        let (peer, wish, _) = all[agreed.lowest];
        (Some((wish, agreed)), peer)
    }

    /// Lets one consumer's regulator decide, protected or not: others are throttled for a protected one's
    /// goal.
    fn one(
        &mut self,
        report: &ClientReport<'_>,
        may_trigger: bool,
        (applied, held, alone): (Iops, AtStorage, bool),
        bounds: (Iops, Iops),
        exempt: bool,
        remaining: f64,
    ) -> RegulatorDecision {
        let ClientReport { consumer, input, goal, .. } = *report;
        let known = self.consumers.entry(consumer.name.clone()).or_default();
        known.seen = self.steps;
        known.left = match input {
            SignalState::Idle => known.left * remaining,
            SignalState::NoTime => known.left,
            SignalState::Samples { .. } | SignalState::Overload { .. } | SignalState::Unknown => 1.0,
        };
        let is_gone = known.left <= GONE;
        let before = known.before.take();
        let regulator = &mut known.regulator;
        let step = match input {
            // Without six requests nothing changes, however long the silence (figure 6, line 1). The age of a
            // request that has not completed is no latency.
            SignalState::Idle | SignalState::Overload { .. } if self.config.is_literal() => {
                let nothing =
                    IntervalMeasurement { requests: 0, total: Latency::ZERO, over: report.over, held };
                Some(regulator.step(&self.config, goal, nothing, applied, bounds, exempt))
            }
            // A single silent interval is no pause: who reads once in two seconds has many.
            SignalState::Idle if is_gone => {
                regulator.idle();
                None
            }
            SignalState::Idle => {
                regulator.pause();
                None
            }
            SignalState::NoTime => {
                regulator.skip();
                None
            }
            SignalState::Samples { .. } => {
                let now = report.measured(held);
                // If all throttled consumers belong to other hosts, their number of requests is that of the
                // interval before: so is the figure that it is compared with. Otherwise each step up or down
                // would seem an effect of the one before it.
                known.before = (consumer.protected && alone).then_some(now);
                let before = before.filter(|_| known.before.is_some());
                let measured = before.map_or(now, |before| IntervalMeasurement { held, ..before });
                Some(regulator.step(&self.config, goal, measured, applied, bounds, exempt))
            }
            SignalState::Overload { .. } | SignalState::Unknown => {
                let nothing =
                    IntervalMeasurement { requests: 0, total: Latency::ZERO, over: report.over, held };
                let measured = if exempt { report.measured(held) } else { nothing };
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
            queue: regulator.queue(),
        }
    }

    /// u(k−1) as it was carried out: the load of all eligible consumers together, on all hosts.
    fn applied(&self, done: Iops, peers: &[PeerPoint], elapsed: Duration) -> Iops {
        if !self.config.variant().applied_input || elapsed.is_zero() {
            return self.point;
        }
        let elsewhere: f64 = peers.iter().map(|peer| peer.point.done.per_second()).sum();
        Iops::new(done.per_second() + elsewhere).min(self.config.greatest)
    }

    /// u_min: the configured one, or the rate that leaves a deciding consumer the requests that a decision
    /// takes.
    fn least(&self, those: &Those<'_>, interval: Duration) -> Iops {
        if self.config.is_literal() {
            return self.config.least;
        }
        let enough = Iops::new(f64::from(self.config.least_requests) / interval.as_secs_f64());
        let own: Vec<BandClaim<'_>> = throttled(those.consumers).map(BandClaim::entitlement).collect();
        let all: Vec<BandClaim<'_>> =
            own.iter().copied().chain(claims::elsewhere(those.peers, ClaimPart::Entitled)).collect();
        let needed = (0..own.len())
            .map(|whose| operating_point(those.bands, enough, &all, whose))
            .min_by(|left, right| left.per_second().total_cmp(&right.per_second()));
        self.config.least.max(needed.unwrap_or(Iops::ZERO)).min(self.config.greatest)
    }

    /// Returns the number of requests to conclude from.
    fn requests(&self, report: &ClientReport<'_>) -> u64 {
        let known = self.consumers.get(&report.consumer.name);
        known.map_or(0, |known| known.regulator.gathered()).saturating_add(report.heard.count)
    }

    /// Returns true if a consumer has enough of them.
    fn has_enough(&self, reports: &[ClientReport<'_>], may: &[bool]) -> bool {
        let enough = u64::from(self.config.least_requests);
        let mut those = reports.iter().zip(may).filter(|(report, may)| **may && report.is_active());
        those.any(|(report, _)| self.requests(report) >= enough)
    }

    /// The consumer that does not need enough requests, so that not all wait for each other (Triage §4.2).
    /// The paper picks one at random. Here it is the one that knows most, and only while none has enough:
    /// with few requests it would throttle all others by chance.
    fn exempt(&self, reports: &[ClientReport<'_>], may: &[bool]) -> Option<usize> {
        let those = reports.iter().enumerate().filter(|(at, report)| may[*at] && report.is_active());
        let knows = |report: &ClientReport<'_>| {
            let oldest = match report.input {
                SignalState::Overload { oldest } => oldest,
                _ => Latency::ZERO,
            };
            (self.requests(report), oldest)
        };
        // Of equals the first.
        let most = those.max_by_key(|(at, report)| (knows(report), std::cmp::Reverse(*at)));
        most.filter(|(_, report)| knows(report) > (0, Latency::ZERO)).map(|(at, _)| at)
    }

    /// The consumer of this host that does not need enough requests in this interval, to the letter of Triage
    /// §4.2: any, whether it has requests or not. Laws have no dice, so a hash of names and steps draws it.
    fn at_random(&self, reports: &[ClientReport<'_>]) -> Option<usize> {
        let draw = |report: &ClientReport<'_>| {
            let bytes = report.consumer.name.as_str().bytes().chain(self.steps.to_le_bytes());
            // FNV-1a; the last steps of a hash of SplitMix64 spread its low bits.
            let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            hash ^ (hash >> 27)
        };
        (0..reports.len()).min_by_key(|at| draw(&reports[*at]))
    }

    /// No eligible consumer: the operating point grows by as much as a used one would shrink.
    fn relax(&mut self, remaining: f64) {
        let greater = self.point.per_second() / remaining.max(f64::MIN_POSITIVE);
        self.point = Iops::new(greater).min(self.config.greatest);
    }

    /// Returns the parts of an operating point for this host's throttled consumers, in their order. The first
    /// is the entitlement, the second the part with what others leave.
    fn divide(
        &self,
        point: Iops,
        reports: &[ClientReport<'_>],
        those: &Those<'_>,
        elapsed: Duration,
    ) -> Vec<(Iops, Iops)> {
        let Those { peers, bands, .. } = *those;
        let throttled: Vec<&ClientReport<'_>> =
            reports.iter().filter(|report| !report.consumer.protected).collect();
        let own = throttled.iter().map(|report| BandClaim::entitlement(report.consumer));
        let entitlements: Vec<BandClaim<'_>> =
            own.chain(claims::elsewhere(peers, ClaimPart::Entitled)).collect();
        let used = (self.config.variant().lend_unused && !elapsed.is_zero()).then(|| {
            let own = throttled.iter().map(|report| claim(report, elapsed));
            own.chain(claims::elsewhere(peers, ClaimPart::Used)).collect()
        });
        let mut parts = bands::divide(bands, point, &entitlements, used);
        parts.truncate(throttled.len());
        parts
    }

    /// Returns the allotments of this host's throttled consumers from now on. A consumer that begins to use
    /// its entitlement has it at once.
    fn allotments(&self, reports: &[ClientReport<'_>], parts: Vec<(Iops, Iops)>) -> Vec<PointAllotment> {
        let throttled = reports.iter().filter(|report| !report.consumer.protected);
        throttled
            .zip(parts)
            .map(|(report, (entitled, lent))| {
                let rate = entitled.max(lent).max(self.config.floor);
                let name = report.consumer.name.clone();
                PointAllotment { name, entitled, rate, held: report.held }
            })
            .collect()
    }

    /// Returns this host's part of the operating point. A host alone has all of it, whatever each of its
    /// consumers has. Lent throughput belongs to others: all consumers that wait share the window. So the
    /// window must not have both the entitlement of its idle consumers and the use that others make of it.
    /// While no consumer waits, the window is no throttle, and is ready for the next one that begins.
    fn part(&self, reports: &[ClientReport<'_>], those: &Those<'_>, elapsed: Duration) -> Iops {
        if those.peers.is_empty() {
            return self.point;
        }
        let parts = self.divide(self.point, reports, those, elapsed);
        let sum =
            |of: fn(&(Iops, Iops)) -> Iops| Iops::new(parts.iter().map(|part| of(part).per_second()).sum());
        let (entitled, lent) = (sum(|part| part.0), sum(|part| part.1));
        let waits = reports.iter().any(|report| !report.consumer.protected && report.held);
        if waits { lent } else { lent.max(entitled) }
    }
}

impl ControlLaw for ConsumerRegulators {
    fn step(&mut self, interval: &ControlInterval<'_>) -> LawStep {
        let &ControlInterval { consumers, peers, bands, .. } = interval;
        let &ControlInterval { elapsed, remaining, set_point, set_point_ratio, interval, signal, .. } =
            interval;
        let stretch = LoopInterval { elapsed, remaining, set_point, set_point_ratio, interval, signal };
        self.decide(&Those { consumers, peers, bands }, &stretch)
    }

    fn throttle(&self, step: &LawStep, place: usize, _: &ConsumerObservation) -> ConsumerThrottle {
        let Some(point) = &step.point else { return ConsumerThrottle::default() };
        let allotment = point.allotments.get(place);
        // Shares divide a window; rates carry out a division by bands.
        let by_shares = point.window.is_some() && point.position.is_none();
        ConsumerThrottle {
            window: point.window,
            rate: allotment.map(|allotment| allotment.rate).filter(|_| !by_shares),
            is_held: allotment.is_some_and(|allotment| allotment.held),
            ..ConsumerThrottle::default()
        }
    }

    fn scope(&self) -> SignalScope {
        SignalScope::PerConsumerAgreed
    }

    fn point_report(&self) -> Option<&PointReport> {
        self.told.as_ref()
    }
}

/// Returns the size of a wish for comparison. It is the window if the law commands one, since the throughput
/// of one server is the same for every goal.
fn asks(wish: &PointWish, windowed: bool) -> f64 {
    if windowed { wish.outstanding() } else { wish.operating_point.per_second() }
}

/// Returns the throughput of a host's eligible consumers.
fn done(reports: &[ClientReport<'_>], elapsed: Duration) -> Iops {
    let throttled = reports.iter().filter(|report| !report.consumer.protected);
    Iops::new(throttled.map(|report| report.completed(elapsed).per_second()).sum())
}

/// Returns the requests of eligible consumers at the storage: of this host, and of all hosts with their mean
/// response time. If a host does not report its number, its requests are taken to last as long as this
/// host's. Protected ones stand in if this host has no others.
fn at_storage(
    reports: &[ClientReport<'_>],
    done: Iops,
    peers: &[PeerPoint],
    elapsed: Duration,
) -> (f64, AtStorage) {
    if elapsed.is_zero() {
        return (0.0, AtStorage::default());
    }
    let mean = |protected: bool| {
        let those = reports.iter().filter(|report| report.consumer.protected == protected);
        let (mut count, mut nanos) = (0_u64, 0_u128);
        for report in those {
            count = count.saturating_add(report.all.count);
            nanos = nanos.saturating_add(report.all.total_nanos);
        }
        (count > 0).then(|| nanos as f64 / count as f64 / 1e9)
    };
    let own = done.per_second() * mean(false).unwrap_or(0.0);
    let as_here = mean(false).or_else(|| mean(true)).unwrap_or(0.0);
    let (mut all, mut outstanding) = (done.per_second(), own);
    for PeerPoint { point, .. } in peers {
        all += point.done.per_second();
        outstanding += point.outstanding.unwrap_or(point.done.per_second() * as_here);
    }
    let mean = if all > 0.0 { Latency::from_secs_f64(outstanding / all) } else { Latency::ZERO };
    (own, AtStorage { outstanding, mean })
}

/// The part of it in use.
fn claim<'a>(report: &ClientReport<'a>, elapsed: Duration) -> BandClaim<'a> {
    BandClaim::used(report.consumer, report.completed(elapsed), report.held)
}

/// Consumers whose response times may throttle all others: by the bands (Triage §2), and the protected ones.
/// If none of those is active on any host, every consumer has a say. Otherwise a consumer that is alone, with
/// a part of higher bands only, would stay where the others left off.
struct Say<'a> {
    bands: Option<&'a Bands>,
    point: Iops,
    /// True if such a consumer is active on this host; `somewhere`: on any host.
    own: bool,
    somewhere: bool,
}

impl<'a> Say<'a> {
    fn of(reports: &[ClientReport<'_>], peers: &[PeerPoint], bands: Option<&'a Bands>, point: Iops) -> Self {
        let mut say = Self { bands, point, own: false, somewhere: false };
        say.own = reports.iter().any(|report| report.is_active() && say.by_bands(report));
        say.somewhere = say.own || peers.iter().any(|peer| peer.point.has_say);
        say
    }

    fn by_bands(&self, report: &ClientReport<'_>) -> bool {
        let consumer = report.consumer;
        consumer.protected || self.bands.is_none_or(|bands| bands.may_trigger(&consumer.name, self.point))
    }

    fn may(&self, report: &ClientReport<'_>) -> bool {
        !self.somewhere || self.by_bands(report)
    }

    /// Returns true if another host's report counts here.
    fn counts(&self, peer: &PointReport) -> bool {
        peer.has_say || !self.somewhere
    }
}
