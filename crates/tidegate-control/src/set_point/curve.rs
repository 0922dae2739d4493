//! The learnt curve of an array: throughput over the number of outstanding requests.
//!
//! The curve is kept over outstanding requests, not over response time. An array with c servers answers in
//! the same time for one request and for c of them, so that throughput is no function of response time there.
//! And a change of the array's speed stretches the axis of response times, while the number of requests that
//! keep it busy stays. By Little's law the number is throughput times response time, on all hosts together,
//! and gives the response time back.

use serde::{Deserialize, Serialize};

/// Bins are this factor apart.
const RATIO: f64 = 1.15;

/// The first bin begins here: a twentieth of a request outstanding on average.
const FIRST: f64 = 0.05;

/// The last one ends at 34 000 requests, FIRST · RATIO⁹⁶; more are counted there.
const BINS: usize = 96;

/// A bin is known while at least this many seconds of measurement are remembered in it.
const KNOWN_SECONDS: f64 = 2.5;

/// No bin remembers more than this many seconds, so that one that was visited for hours can still change its
/// mind.
const GREATEST_SECONDS: f64 = 120.0;

/// The curve. Its memory is bounded: [`BINS`] sums.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ThroughputCurve {
    #[serde(with = "crate::estimate::fixed_array")]
    bins: [Bin; BINS],
}

/// Sums over measurements, the older the lighter.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Bin {
    seconds: f64,
    completed: f64,
    /// Request-seconds: the sum of all response times.
    waited: f64,
}

impl Bin {
    fn scale(&mut self, factor: f64) {
        self.seconds *= factor;
        self.completed *= factor;
        self.waited *= factor;
    }
}

/// A measurement: requests per second, and how many were outstanding on average. Both above zero and finite.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct CurvePoint {
    pub(super) outstanding: f64,
    pub(super) per_second: f64,
}

impl CurvePoint {
    /// Little's law.
    pub(super) fn latency(self) -> f64 {
        self.outstanding / self.per_second
    }
}

/// The bend of the curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct CurveBend {
    /// The least that gives the wanted fraction of the most.
    pub(super) knee: CurvePoint,
    /// The least that is known.
    pub(super) bottom: CurvePoint,
    /// The most that is believed, where nearly that was seen first.
    pub(super) most: CurvePoint,
    /// The greatest that is known.
    pub(super) top: CurvePoint,
}

impl Default for ThroughputCurve {
    fn default() -> Self {
        Self { bins: [Bin::default(); BINS] }
    }
}

impl ThroughputCurve {
    /// Lets everything so far fade: `keep` is what is left of its weight, within [0, 1].
    pub(super) fn forget(&mut self, keep: f64) {
        for bin in &mut self.bins {
            bin.scale(keep);
        }
    }

    /// Takes a measurement of so many seconds.
    pub(super) fn add(&mut self, point: CurvePoint, seconds: f64) {
        let bin = &mut self.bins[index(point.outstanding)];
        bin.seconds += seconds;
        bin.completed += seconds * point.per_second;
        bin.waited += seconds * point.outstanding;
        if bin.seconds > GREATEST_SECONDS {
            bin.scale(GREATEST_SECONDS / bin.seconds);
        }
    }

    /// The array became this factor quicker: the same numbers of requests give so much more. What is known
    /// weighs half as much from now on, because its shape may have changed as well.
    pub(super) fn speed_up(&mut self, factor: f64) {
        for bin in &mut self.bins {
            bin.completed *= factor;
            bin.scale(0.5);
            // A bin that becomes too light would leave the curve without a trace.
            if bin.seconds > 0.5 * KNOWN_SECONDS && bin.seconds < KNOWN_SECONDS {
                bin.scale(KNOWN_SECONDS / bin.seconds);
            }
        }
    }

    /// Returns the speed of the array at this point relative to the curve: 1 if nothing contradicts the
    /// curve. Between known points the curve is followed. Beyond them every concave curve is possible, from a
    /// level one to a straight line through the origin. `None` while nothing is known.
    pub(super) fn speed_of(&self, point: CurvePoint) -> Option<f64> {
        let points = self.isotonic();
        let (first, last) = (*points.first()?, *points.last()?);
        let straight = |known: CurvePoint| known.per_second * point.outstanding / known.outstanding;
        let (least, greatest) = if point.outstanding <= first.outstanding {
            (straight(first), first.per_second)
        } else if point.outstanding >= last.outstanding {
            (last.per_second, straight(last))
        } else {
            let after = points.partition_point(|known| known.outstanding <= point.outstanding);
            let (low, high) = (points[after - 1], points[after]);
            let part = (point.outstanding / low.outstanding).ln() / (high.outstanding / low.outstanding).ln();
            let between = low.per_second + part * (high.per_second - low.per_second);
            (between, between)
        };
        Some(if point.per_second < least {
            point.per_second / least
        } else if point.per_second > greatest {
            point.per_second / greatest
        } else {
            1.0
        })
    }

    /// The least that gives `fraction` of the most. `None` while nothing is known.
    pub(super) fn bend(&self, fraction: f64) -> Option<CurveBend> {
        let pools = self.pools();
        // The greatest of several noisy values is more noise than value: of each no more is believed than it
        // surely gives, by one standard error of exponential service times.
        let most = pools
            .iter()
            .map(|pool| pool.per_second() * (1.0 - 1.0 / pool.completed.max(4.0).sqrt()))
            .fold(0.0, f64::max);
        let points = self.isotonic();
        let wanted = fraction * most;
        let enough = points.partition_point(|point| point.per_second < wanted);
        let high = *points.get(enough)?;
        let knee = enough.checked_sub(1).map(|below| points[below]).map_or(high, |low| {
            let part = (wanted - low.per_second) / (high.per_second - low.per_second);
            let factor = (high.outstanding / low.outstanding).powf(part);
            CurvePoint { outstanding: low.outstanding * factor, per_second: wanted }
        });
        // But for noise.
        let first = points.iter().find(|point| point.per_second >= 0.99 * most)?;
        let most = CurvePoint { per_second: most, ..*first };
        Some(CurveBend { knee, most, bottom: *points.first()?, top: *points.last()? })
    }

    fn known(&self) -> impl Iterator<Item = &Bin> {
        self.bins.iter().filter(|bin| bin.seconds >= KNOWN_SECONDS && bin.completed > 0.0)
    }

    /// Returns the known points. Pools of neighbours that contradict it make throughput non-decreasing
    /// (isotonic regression by pooling adjacent violators). More requests never give less, but for noise. If
    /// an array does thrash, the pool begins where less would do as well.
    fn pools(&self) -> Vec<Pool> {
        let mut pools: Vec<Pool> = Vec::new();
        for bin in self.known() {
            let mut pool = Pool { seconds: bin.seconds, completed: bin.completed, bins: 1 };
            while let Some(before) = pools.pop_if(|before| before.per_second() >= pool.per_second()) {
                pool.seconds += before.seconds;
                pool.completed += before.completed;
                pool.bins += before.bins;
            }
            pools.push(pool);
        }
        pools
    }

    /// The pooled curve by outstanding requests.
    fn isotonic(&self) -> Vec<CurvePoint> {
        let pools = self.pools();
        let levels = pools.iter().flat_map(|pool| std::iter::repeat_n(pool.per_second(), pool.bins));
        self.known()
            .zip(levels)
            .map(|(bin, per_second)| CurvePoint { outstanding: bin.waited / bin.seconds, per_second })
            .collect()
    }
}

/// Neighbouring bins as one.
#[derive(Debug, Clone, Copy)]
struct Pool {
    seconds: f64,
    completed: f64,
    bins: usize,
}

impl Pool {
    fn per_second(&self) -> f64 {
        self.completed / self.seconds
    }
}

/// The bin of a number of outstanding requests.
fn index(outstanding: f64) -> usize {
    let bin = (outstanding / FIRST).ln() / RATIO.ln();
    // Conversion saturates: what is below the first bin counts there.
    (bin as usize).min(BINS - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point(outstanding: f64, per_second: f64) -> CurvePoint {
        CurvePoint { outstanding, per_second }
    }

    /// `servers` of rate 100 in parallel, closed: the textbook's kink.
    fn servers(servers: f64, outstandings: impl IntoIterator<Item = f64>) -> ThroughputCurve {
        let mut curve = ThroughputCurve::default();
        for outstanding in outstandings {
            curve.add(point(outstanding, 100.0 * outstanding.min(servers)), 30.0);
        }
        curve
    }

    #[test]
    fn the_knee_is_where_the_wanted_fraction_of_the_most_is_reached() {
        let bend = servers(4.0, [0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 30.0]).bend(0.95).unwrap();
        // Less one standard error of what 84 000 requests tell.
        assert!((bend.knee.per_second / 380.0 - 1.0).abs() < 0.005, "{bend:?}");
        assert!((3.7..3.9).contains(&bend.knee.outstanding), "{bend:?}");
        assert!((bend.bottom.per_second - 50.0).abs() < 1e-9);
        assert!((bend.most.outstanding - 4.0).abs() < 1e-9 && (bend.top.outstanding - 30.0).abs() < 1e-9);
    }

    #[test]
    fn without_anything_less_the_knee_may_lie_lower() {
        let bend = servers(4.0, [6.0, 9.0]).bend(0.95).unwrap();
        assert_eq!(bend.knee, bend.bottom);
        assert!((bend.knee.outstanding - 6.0).abs() < 1e-9);
        assert_eq!(ThroughputCurve::default().bend(0.95), None);
    }

    #[test]
    fn one_lucky_measurement_is_not_the_most() {
        let mut curve = servers(1.0, (2..20).map(f64::from));
        curve.add(point(30.0, 108.0), 3.0);
        let bend = curve.bend(0.95).unwrap();
        assert!(bend.knee.outstanding < 2.5, "{bend:?}");
    }

    #[test]
    fn what_contradicts_the_curve_is_a_change_of_speed() {
        let curve = servers(4.0, [1.0, 2.0, 4.0, 8.0]);
        let speed = |outstanding, per_second| curve.speed_of(point(outstanding, per_second)).unwrap();
        assert!((speed(8.0, 100.0) - 0.25).abs() < 1e-9);
        assert!((speed(2.0, 800.0) - 4.0).abs() < 1e-9);
        // Beyond what is known, level and straight are both possible.
        assert!((speed(0.25, 25.0) - 1.0).abs() < 1e-9 && (speed(0.25, 100.0) - 1.0).abs() < 1e-9);
        assert!((speed(0.25, 6.25) - 0.25).abs() < 1e-9);
        assert!((speed(16.0, 400.0) - 1.0).abs() < 1e-9 && (speed(16.0, 799.0) - 1.0).abs() < 1e-9);
        assert!((speed(16.0, 200.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_change_of_speed_moves_response_times_and_not_the_number_of_requests() {
        let mut curve = servers(4.0, [1.0, 2.0, 3.0, 4.0, 8.0]);
        let before = curve.bend(0.95).unwrap().knee;
        curve.speed_up(0.25);
        let after = curve.bend(0.95).unwrap().knee;
        assert!((after.outstanding / before.outstanding - 1.0).abs() < 0.02);
        assert!((after.latency() / before.latency() - 4.0).abs() < 0.05);
    }

    #[test]
    fn the_past_fades_until_nothing_is_known() {
        let mut curve = servers(4.0, [1.0, 2.0]);
        curve.forget(0.5);
        assert!(curve.bend(0.95).is_some());
        curve.forget(0.1);
        assert_eq!(curve.bend(0.95), None);
    }

    proptest! {
        #[test]
        fn is_sane_whatever_is_measured(
            measured in prop::collection::vec((1e-9..1e12, 1e-9..1e12, 0.001..1e4, 0.0..=1.0, 0.1..10.0),
                1..60),
            fraction in 0.5..0.999,
        ) {
            let mut curve = ThroughputCurve::default();
            for (outstanding, per_second, seconds, keep, speed) in measured {
                curve.forget(keep);
                curve.add(point(outstanding, per_second), seconds);
                curve.speed_up(speed);
                if let Some(speed) = curve.speed_of(point(outstanding, per_second)) {
                    prop_assert!(speed > 0.0 && speed.is_finite());
                }
                let Some(bend) = curve.bend(fraction) else { continue };
                prop_assert!(bend.knee.latency() > 0.0 && bend.knee.latency().is_finite(), "{bend:?}");
                prop_assert!(bend.knee.per_second <= bend.top.per_second * (1.0 + 1e-9), "{bend:?}");
                prop_assert!(bend.knee.outstanding <= bend.top.outstanding * (1.0 + 1e-9), "{bend:?}");
                prop_assert!(bend.bottom.outstanding <= bend.knee.outstanding * (1.0 + 1e-9), "{bend:?}");
            }
        }
    }
}
