//! The set point chosen automatically: the least response time at which the array gives nearly all it can.
//!
//! PARDA leaves 𝓛 to an administrator and the choice from "long-term observations of latency and throughput"
//! to future work (§3.1). Too high a set point buys queueing in the array, where no shares hold, and no
//! throughput; too low a one leaves the array idle. Between them the curve of throughput against response
//! time bends: its knee. This finds it.
//!
//! **Which knee.** The least that gives a [fraction](KneeConfig::fraction) of the most, by default 95 %.
//! Kleinrock's power (throughput over response time, greatest at the knee) needs no number, and gives up
//! much: of a disk that sorts what it has, whose throughput still grows with every doubling of the queue, it
//! takes the first request and leaves a third of the throughput unused (`tests/integration/knee.rs` compares both). An
//! administrator can say how much throughput a shorter queue may cost; the fraction is that number.
//!
//! **Stretches to learn from.** A stretch lasts at least ten seconds and mostly has a thousand requests; the
//! first four control intervals after each change are left out. In it the set point limits the load: the
//! response time is at it, or requests wait while the window is full. While the load is light nothing is
//! learnt, nothing forgotten, and nothing changed. Throughput is counted in requests. Another mix of request
//! sizes changes the array's throughput at every response time alike, and is followed as such a change is:
//! see [`ThroughputCurve::speed_up`](crate::set_point::curve::ThroughputCurve::speed_up).
//!
//! **How it moves.** It begins at the ceiling. Per stretch, downwards by at most a factor of 1.15 while
//! throughput holds; one step below the knee throughput tells, and it returns. At the knee it alternates
//! between 5 % below and 5 % above, so that the curve there stays known. Once per half-life, and after a
//! change of the array's speed, it goes up in the same steps as far as three times the knee's queue, to see
//! whether more is to be had; after two minutes, four, eight, up to the half-life, it goes down until
//! throughput tells, because what was seen there may have been chance. A set point that the array cannot meet
//! with any queue, because it became slower, is left at once. It is never above the ceiling, and never below
//! the floor.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_units::{HostName, Iops, Latency};

use crate::document::set_point_choice::{SetPointChoice, SetPointReason, StepDirection};
use crate::set_point::curve::{CurveBend, CurvePoint, ThroughputCurve};

/// Control intervals after a change of the set point that are not learnt from: eq. 2 with γ = 0.8 is within 1
/// % of its new window after three.
const SETTLE_INTERVALS: f64 = 4.0;

/// A stretch is at least so many control intervals.
const LEAST_INTERVALS: f64 = 8.0;

/// A stretch is at least so many seconds: with [`STEP`] the set point moves by at most a factor of 2.3 per
/// minute.
const LEAST_SECONDS: f64 = 10.0;

/// With fewer requests a stretch goes on, up to [`LONGEST`] times its least length. With exponential service
/// times the throughput of a thousand has a standard error of 3 %.
const ENOUGH_REQUESTS: f64 = 1_000.0;

/// See [`ENOUGH_REQUESTS`].
const LONGEST: f64 = 6.0;

/// From fewer requests than these nothing is learnt.
const LEAST_REQUESTS: f64 = 50.0;

/// Size of one step, as a factor.
const STEP: f64 = 1.15;

/// Swing of the set point about the knee, as a factor.
const SWING: f64 = 1.05;

/// The set point stays above the response time of a queue too short to keep the array busy by this factor: an
/// array of c servers answers one request as quickly as c, and a set point that it can only just meet closes
/// the window on noise.
const HEADROOM: f64 = 1.1;

/// The load is limited by the set point when the response time is at least this part of it: the law keeps it
/// there, and with less to do it is lower.
const AT_SET_POINT: f64 = 0.9;

/// Or when the window was full for this part of the time.
const FULL: f64 = 0.75;

/// An interval is of a light load when the response time is below this part of the set point,
const LIGHT: f64 = 0.5;

/// told by at least so many requests.
const ENOUGH_TO_TELL: f64 = 10.0;

/// No array gives more: bounds the sums.
const GREATEST_IOPS: f64 = 1e12;

/// A measurement this factor off the known curve, twice in succession, is a change of the array's speed.
const OTHER_SPEED: f64 = 1.3;

/// The most that one change of speed counts, as a factor.
const GREATEST_CHANGE: f64 = 8.0;

/// A stretch ends early when the array gives less than this part of the most although it is slower than
/// asked.
const STARVED: f64 = 0.6;

/// The curve is known well enough upwards when it is known to this multiple of the knee's queue.
const COVERED: f64 = 3.0;

/// And downwards when something is known to give less than this part of what the knee must give. What gives
/// only just too little may do so by chance: a third standard error, see [`ENOUGH_REQUESTS`].
const SURELY_LESS: f64 = 0.97;

/// At so many times the set point the response time is made by the shares: eq. 2 settles at 𝓛 + Σβ/C.
const BY_SHARES: f64 = 1.5;

/// The curve below the knee is looked at again after so many seconds of measurement, then after twice as
/// many, and so on up to the half-life.
const PATIENCE: f64 = 120.0;

/// Part of the ceiling from which on exploring upwards is not worth it.
const AT_CEILING: f64 = 0.99;

/// Set points that differ by less than this part are one: they travel in nanoseconds.
const SAME: f64 = 1e-3;

/// A leader's choice counts at least as this part of the knee that a follower sees itself. That bounds the
/// harm of a wrong one, as for response times (`hosts`).
const BELIEVED: f64 = 0.25;

/// Configuration of the automatic choice of the set point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KneeConfig {
    /// The part of the array's most that the set point must give, within [0.5, 1). Default 0.95.
    pub fraction: f64,
    /// The set point is never below this. Default 0.1 ms, about what an array of flash answers in over a
    /// network.
    pub floor: Latency,
    /// A measurement's weight halves in this much time of measurement; idle and lightly loaded time does not
    /// count. Default 30 min: longer than it takes to see the whole curve, shorter than the hours in which
    /// loads change.
    pub half_life: Duration,
}

impl Default for KneeConfig {
    fn default() -> Self {
        Self { fraction: 0.95, floor: Latency::from_micros(100), half_life: Duration::from_secs(1_800) }
    }
}

impl KneeConfig {
    /// Checks every value. `ceiling` is the greatest set point.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn validate(&self, ceiling: Latency) -> Result<(), KneeConfigError> {
        // Written so that NaN is refused as well.
        if !(self.fraction >= 0.5 && self.fraction < 1.0) {
            return Err(KneeConfigError::Fraction(self.fraction));
        }
        if self.floor == Latency::ZERO || self.floor > ceiling {
            return Err(KneeConfigError::Floor { floor: self.floor, ceiling });
        }
        if self.half_life < Duration::from_secs(60) {
            return Err(KneeConfigError::HalfLife(self.half_life.into()));
        }
        Ok(())
    }
}

/// Reason that a set point cannot be chosen automatically.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum KneeConfigError {
    /// The fraction is out of range.
    #[error("the knee's fraction must be at least 0.5 and below 1, it is {0}")]
    Fraction(f64),
    /// The floor excludes everything, or nothing.
    #[error("the knee's floor must be above 0 and at most the ceiling of {ceiling}, it is {floor}")]
    Floor {
        /// The least set point.
        floor: Latency,
        /// The greatest.
        ceiling: Latency,
    },
    /// The half-life is below a minute: knowledge that fades so soon was never learnt.
    #[error("the knee's half-life must be at least 1min, it is {0}")]
    HalfLife(Latency),
}

/// Activity in one control interval, on all hosts together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KneeSample {
    /// Length of the interval.
    pub(crate) elapsed: Duration,
    /// Requests that completed per second.
    pub(crate) iops: f64,
    /// Their mean response time. Not needed while none completes.
    pub(crate) mean: Latency,
    /// Requests wait on this host, and its window is full.
    pub(crate) full: bool,
}

/// Finds the set point. Fed once per control interval; pure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KneeFinder {
    config: KneeConfig,
    /// Seconds, as everything here.
    ceiling: f64,
    interval: f64,
    curve: ThroughputCurve,
    /// Bend of the curve, as far as it is known.
    bend: Option<CurveBend>,
    /// Set point in force.
    set_point: f64,
    /// Middle of the swings, to which the set point returns.
    centre: f64,
    reason: SetPointReason,
    stretch: KneeStretch,
    /// Distance of the last stretch from the curve, as a logarithm; zero if it was on the curve.
    off: f64,
    /// On the way to what is not known.
    probe: Option<StepDirection>,
    /// Measured time since the curve above the knee was last looked at, and below.
    since_up: f64,
    since_down: f64,
    /// Time after a look below until the next one.
    patience: f64,
    /// Middle of the swings at the last look below.
    confirmed: f64,
}

/// Measurements since the set point changed.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct KneeStretch {
    unsettled: f64,
    seconds: f64,
    completed: f64,
    /// Request-seconds.
    waited: f64,
    full: f64,
}

impl KneeStretch {
    fn point(&self) -> CurvePoint {
        CurvePoint { outstanding: self.waited / self.seconds, per_second: self.completed / self.seconds }
    }
}

impl KneeFinder {
    /// Begins at the ceiling. Both configurations are valid.
    pub(crate) fn new(config: KneeConfig, ceiling: Latency, interval: Duration) -> Self {
        let ceiling = ceiling.as_secs_f64();
        Self {
            config,
            ceiling,
            interval: interval.as_secs_f64(),
            curve: ThroughputCurve::default(),
            bend: None,
            set_point: ceiling,
            centre: ceiling,
            reason: SetPointReason::Unknown,
            stretch: KneeStretch::default(),
            off: 0.0,
            probe: None,
            since_up: 0.0,
            since_down: f64::INFINITY,
            patience: PATIENCE,
            confirmed: ceiling,
        }
    }

    /// Other bounds; what was learnt stays.
    pub(crate) fn reconfigure(&mut self, config: KneeConfig, ceiling: Latency, interval: Duration) {
        let ceiling = ceiling.as_secs_f64();
        // There is more to be seen now.
        if ceiling > self.ceiling {
            self.since_up = f64::INFINITY;
        }
        if config.floor < self.config.floor {
            self.since_down = f64::INFINITY;
        }
        (self.config, self.ceiling, self.interval) = (config, ceiling, interval.as_secs_f64());
        self.bend = self.curve.bend(config.fraction);
        self.centre = self.bounded(self.centre);
        if matches!(self.reason, SetPointReason::Unknown) {
            self.centre = ceiling;
        }
        self.begin(self.centre, self.reason.clone());
    }

    /// Returns the set point of the law.
    pub(crate) fn set_point(&self) -> Latency {
        Latency::from_secs_f64(self.set_point)
    }

    /// Returns the set point's reason, and the figures behind it.
    pub(crate) fn choice(&self) -> SetPointChoice {
        let bend = self.bend;
        let latency = |point: CurvePoint| Latency::from_secs_f64(point.latency());
        SetPointChoice {
            reason: self.reason.clone(),
            ceiling: Latency::from_secs_f64(self.ceiling),
            fraction: self.config.fraction,
            knee: bend.map(|bend| latency(bend.knee)),
            most: bend.map(|bend| Iops::new(bend.most.per_second)),
            most_at: bend.map(|bend| latency(bend.most)),
        }
    }

    /// This host chooses: takes an interval, and decides on the next one's set point.
    pub(crate) fn lead(&mut self, sample: &KneeSample) {
        if matches!(self.reason, SetPointReason::Following { .. } | SetPointReason::NoChoice { .. }) {
            // What was followed stays until there is a reason of one's own.
            self.reason = SetPointReason::Kept;
        }
        if self.measure(sample) {
            let measured = self.end();
            self.choose(measured);
        }
    }

    /// Another host chooses, or does not: what it chose is in force at once.
    pub(crate) fn follow(&mut self, host: &HostName, set_point: Option<Latency>) {
        let host = host.clone();
        let (wanted, reason) = match set_point {
            Some(chosen) => {
                let knee = self.bend.map_or(0.0, |bend| bend.knee.latency());
                (chosen.as_secs_f64().max(BELIEVED * knee), SetPointReason::Following { host })
            }
            None => (self.ceiling, SetPointReason::NoChoice { host }),
        };
        self.centre = self.bounded(wanted);
        if (self.centre - self.set_point).abs() > SAME * self.set_point {
            self.begin(self.centre, reason);
        } else {
            (self.set_point, self.reason) = (self.centre, reason);
        }
    }

    /// Takes an interval of which another host chose the set point. Because of what is learnt now this host
    /// need not start from nothing when it leads one day.
    pub(crate) fn learn(&mut self, sample: &KneeSample) {
        if self.measure(sample) {
            self.end();
        }
    }

    /// Load has gone: what was measured of this stretch would be of two loads.
    pub(crate) fn interrupt(&mut self) {
        self.stretch = self.unsettled();
    }

    fn bounded(&self, seconds: f64) -> f64 {
        seconds.min(self.ceiling).max(self.config.floor.as_secs_f64().min(self.ceiling))
    }

    fn unsettled(&self) -> KneeStretch {
        KneeStretch { unsettled: SETTLE_INTERVALS * self.interval, ..KneeStretch::default() }
    }

    fn least_seconds(&self) -> f64 {
        (LEAST_INTERVALS * self.interval).max(LEAST_SECONDS)
    }

    /// Puts a set point into force.
    fn begin(&mut self, set_point: f64, reason: SetPointReason) {
        self.set_point = self.bounded(set_point);
        self.reason = reason;
        self.stretch = self.unsettled();
    }

    /// Adds an interval to the stretch: whether that completes it.
    fn measure(&mut self, sample: &KneeSample) -> bool {
        let seconds = sample.elapsed.as_secs_f64();
        // A sensor may be wrong.
        let iops = if sample.iops.is_nan() { 0.0 } else { sample.iops.clamp(0.0, GREATEST_IOPS) };
        let few = iops * seconds < ENOUGH_TO_TELL;
        if !sample.full && !few && sample.mean.as_secs_f64() < LIGHT * self.set_point {
            // Of another load: one stretch must not mix them.
            self.interrupt();
            return false;
        }
        let stretch = &mut self.stretch;
        if stretch.unsettled > 0.0 {
            stretch.unsettled -= seconds;
            return false;
        }
        let completed = iops * seconds;
        stretch.seconds += seconds;
        stretch.completed += completed;
        stretch.waited += completed * sample.mean.as_secs_f64();
        stretch.full += if sample.full { seconds } else { 0.0 };
        let KneeStretch { seconds, completed, .. } = *stretch;
        let least = self.least_seconds();
        seconds >= LONGEST * least || seconds >= least && completed >= ENOUGH_REQUESTS || self.starved()
    }

    /// The array gives far less than it can and is slower than asked all the same: there is no point in
    /// measuring that to the end.
    fn starved(&self) -> bool {
        let enough = self.stretch.seconds >= LEAST_INTERVALS * self.interval
            && self.stretch.completed >= LEAST_REQUESTS;
        if !enough || self.stretch.waited <= self.stretch.completed * HEADROOM * self.set_point {
            return false;
        }
        self.bend.is_some_and(|bend| self.stretch.point().per_second < STARVED * bend.most.per_second)
    }

    /// Ends the stretch and learns from it, if there is something to be learnt: then the result is what was
    /// measured.
    fn end(&mut self) -> Option<CurvePoint> {
        let unsettled = self.unsettled();
        let stretch = std::mem::replace(&mut self.stretch, unsettled);
        if stretch.completed < LEAST_REQUESTS || stretch.waited <= 0.0 {
            return None;
        }
        let point = stretch.point();
        let limited =
            stretch.full >= FULL * stretch.seconds || point.latency() >= AT_SET_POINT * self.set_point;
        if !limited {
            return None;
        }
        let off = self.curve.speed_of(point).unwrap_or(1.0).ln();
        if off.abs() > OTHER_SPEED.ln() {
            let previous = std::mem::replace(&mut self.off, off);
            if previous * off <= 0.0 {
                // Once may be chance.
                return None;
            }
            // The first of the two may lie half before the change.
            self.curve.speed_up(off.exp().clamp(1.0 / GREATEST_CHANGE, GREATEST_CHANGE));
            self.since_up = f64::INFINITY;
            // Quicker: less may do now. Slower: it will not.
            (self.since_down, self.patience) = (0.0, if off > 0.0 { 0.0 } else { PATIENCE });
        }
        self.off = 0.0;
        self.since_up += stretch.seconds;
        self.since_down += stretch.seconds;
        self.curve.forget((-stretch.seconds / self.config.half_life.as_secs_f64()).exp2());
        // One that ended early says as much as a whole one.
        self.curve.add(point, stretch.seconds.max(self.least_seconds()));
        self.bend = self.curve.bend(self.config.fraction);
        Some(point)
    }

    /// Chooses the next step after a stretch.
    fn choose(&mut self, measured: Option<CurvePoint>) {
        let (Some(measured), Some(bend)) = (measured, self.bend) else {
            // Nothing limits the load here, or nothing is certain: back to where that was otherwise.
            self.probe = None;
            if (self.set_point - self.centre).abs() > 0.0 {
                self.begin(self.centre, self.reason_at_centre());
            }
            return;
        };
        let goal = bend.knee.latency().clamp(self.centre / STEP, self.centre * STEP);
        self.centre = self.bounded(goal);
        let surely_less = SURELY_LESS * self.config.fraction * bend.most.per_second;
        let bracketed = bend.bottom.per_second < surely_less;
        if bracketed {
            // What the array cannot meet with any queue is left at once.
            self.centre = self.centre.max(self.bounded(HEADROOM * bend.bottom.latency()));
        }
        // Or the shares alone, β, keep more outstanding than the set point would: a lower one changes
        // nothing.
        let less = measured.per_second < surely_less || measured.latency() > BY_SHARES * self.set_point;
        if self.descends(less) {
            // From where the array really is: a window at its greatest can keep it below the set point.
            let from = self.set_point.min(measured.latency());
            self.begin(from / STEP, SetPointReason::Exploring(StepDirection::Down));
        } else if self.climbs(&bend) {
            let from = self.set_point.max(self.centre);
            self.begin(from * STEP, SetPointReason::Exploring(StepDirection::Up));
        } else {
            let swing = if self.set_point <= self.centre { SWING } else { 1.0 / SWING };
            self.begin(self.centre * swing, self.reason_at_centre());
        }
    }

    /// Returns true if the finder looks further down, until throughput tells. It looks again after a while,
    /// because the last result may have been chance, or a moment of another load. The while doubles as long
    /// as that changes nothing.
    fn descends(&mut self, less: bool) -> bool {
        let probing = self.probe == Some(StepDirection::Down);
        if self.set_point <= self.bounded(0.0) || probing && less {
            if probing {
                self.probe = None;
                self.since_down = 0.0;
                let moved = (self.centre / self.confirmed).ln().abs() > STEP.ln();
                self.patience = if moved { PATIENCE } else { (2.0 * self.patience).max(PATIENCE) };
                self.confirmed = self.centre;
            }
            return false;
        }
        let due = self.since_down >= self.patience.min(self.config.half_life.as_secs_f64());
        if probing || due && self.probe.is_none() {
            self.probe = Some(StepDirection::Down);
        }
        self.probe == Some(StepDirection::Down)
    }

    /// Returns true if the finder looks further up: once per half-life, as far as the curve is not known
    /// there.
    fn climbs(&mut self, bend: &CurveBend) -> bool {
        let probing = self.probe == Some(StepDirection::Up);
        let covered = bend.top.outstanding >= COVERED * bend.knee.outstanding
            || self.set_point >= AT_CEILING * self.ceiling;
        let due = self.since_up >= self.config.half_life.as_secs_f64();
        if covered && (probing || due) {
            self.since_up = 0.0;
        }
        self.probe = (!covered && (probing || due)).then_some(StepDirection::Up);
        self.probe.is_some()
    }

    fn reason_at_centre(&self) -> SetPointReason {
        match self.bend {
            None => SetPointReason::Unknown,
            Some(bend) if bend.knee.latency() > self.ceiling => SetPointReason::Ceiling,
            Some(_) if self.centre <= self.bounded(0.0) => SetPointReason::Floor,
            Some(_) => SetPointReason::Knee,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CEILING: Latency = Latency::from_millis(100);
    const INTERVAL: Duration = Duration::from_millis(250);

    fn finder() -> KneeFinder {
        KneeFinder::new(KneeConfig::default(), CEILING, INTERVAL)
    }

    /// An interval in which a server of `capacity` is kept at the set point.
    fn saturated(finder: &KneeFinder, capacity: f64) -> KneeSample {
        KneeSample { elapsed: INTERVAL, iops: capacity, mean: finder.set_point(), full: true }
    }

    #[test]
    fn what_is_not_a_configuration_is_refused() {
        let refused = |change: fn(&mut KneeConfig)| {
            let mut config = KneeConfig::default();
            change(&mut config);
            config.validate(CEILING).unwrap_err()
        };
        assert!(matches!(refused(|c| c.fraction = f64::NAN), KneeConfigError::Fraction(_)));
        assert_eq!(refused(|c| c.fraction = 1.0), KneeConfigError::Fraction(1.0));
        assert_eq!(refused(|c| c.fraction = 0.49), KneeConfigError::Fraction(0.49));
        assert!(matches!(refused(|c| c.floor = Latency::ZERO), KneeConfigError::Floor { .. }));
        assert!(matches!(refused(|c| c.floor = Latency::from_millis(101)), KneeConfigError::Floor { .. }));
        assert!(matches!(refused(|c| c.half_life = Duration::from_secs(59)), KneeConfigError::HalfLife(_)));
        let edges = KneeConfig { fraction: 0.5, floor: CEILING, half_life: Duration::from_secs(60) };
        assert_eq!(edges.validate(CEILING), Ok(()));
    }

    #[test]
    fn where_less_always_does_it_ends_at_the_floor() {
        let config = KneeConfig { floor: Latency::from_millis(20), ..KneeConfig::default() };
        let mut finder = KneeFinder::new(config, CEILING, INTERVAL);
        for _ in 0..10_000 {
            finder.lead(&saturated(&finder, 500.0));
        }
        assert_eq!((finder.centre * 1e3).round() as u64, 20);
        assert!(matches!(finder.reason, SetPointReason::Floor), "{:?}", finder.reason);
    }

    #[test]
    fn moves_down_by_at_most_one_step_in_ten_seconds() {
        let mut finder = finder();
        let (mut before, mut seconds) = (finder.set_point, 0.0);
        for _ in 0..2_000 {
            finder.lead(&saturated(&finder, 500.0));
            seconds += INTERVAL.as_secs_f64();
            if finder.set_point < before {
                assert!(before / finder.set_point < STEP * SWING * SWING && seconds >= LEAST_SECONDS);
                (before, seconds) = (finder.set_point, 0.0);
            }
        }
        assert!(finder.set_point < 0.005);
    }

    #[test]
    fn a_leader_is_followed_within_bounds_and_taken_over_from_without_a_jump() {
        let mut finder = finder();
        let host = HostName::new("a").unwrap();
        for (chosen, followed) in [(30, 30), (500, 100), (0, 0)] {
            finder.follow(&host, Some(Latency::from_millis(chosen)));
            let least = finder.config.floor;
            assert_eq!(finder.set_point(), Latency::from_millis(followed).max(least));
        }
        finder.follow(&host, Some(Latency::from_millis(30)));
        finder.lead(&saturated(&finder, 500.0));
        assert_eq!((finder.set_point(), &finder.reason), (Latency::from_millis(30), &SetPointReason::Kept));
        finder.follow(&host, None);
        assert_eq!((finder.set_point(), &finder.reason), (CEILING, &SetPointReason::NoChoice { host }));
    }

    proptest! {
        #[test]
        fn is_within_its_bounds_whatever_comes(
            samples in prop::collection::vec(
                (0u64..100_000_000_000, any::<f64>(), any::<u64>(), any::<bool>(), 0u8..5), 1..300
            )
        ) {
            let mut finder = finder();
            let host = HostName::new("a").unwrap();
            for (elapsed, iops, mean, full, way) in samples {
                let elapsed = Duration::from_nanos(elapsed);
                let sample = KneeSample { elapsed, iops, mean: Latency::from_nanos(mean), full };
                match way {
                    0 => {
                        finder.follow(&host, (mean % 2 == 0).then_some(sample.mean));
                        finder.learn(&sample);
                    }
                    1 => finder.interrupt(),
                    _ => finder.lead(&sample),
                }
                let bounds = finder.config.floor..=CEILING;
                prop_assert!(bounds.contains(&finder.set_point()), "{}", finder.set_point());
                prop_assert!(finder.centre.is_finite() && finder.centre > 0.0);
                let choice = serde_json::to_string(&finder.choice()).unwrap();
                prop_assert!(serde_json::from_str::<SetPointChoice>(&choice).is_ok(), "{choice}");
            }
        }
    }
}
