//! The response time over the rate, and the conclusions about the storage.

use thiserror::Error;
use tidegate_units::{Iops, Latency};

use crate::fit::FittedLine;

/// The measurements at one rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProfilePoint {
    /// Requests offered per second.
    pub offered: Iops,
    /// Requests completed per second.
    pub completed: Iops,
    /// Mean response time, from a request's arrival to its answer.
    pub mean: Latency,
    /// The quantile of response times that promises are made of.
    pub quantile: Latency,
    /// True if the storage kept up. If it did not, response times say how long was measured, and nothing
    /// else.
    pub sustained: bool,
}

/// Response times over rates: Lee's figure 4.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyProfile {
    points: Vec<ProfilePoint>,
    stable: usize,
}

/// The reason why points are not a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidProfile {
    /// A line through two points fits always.
    #[error(
        "a profile needs {LEAST_POINTS} rates that the storage sustains, these are {0}: measure at lower \
            ones, too"
    )]
    TooFew(usize),
    /// The rates are not given in increasing order.
    #[error("the rates of a profile increase from point to point")]
    Order,
    /// Rates so close or so far that no line can be laid through them.
    #[error("no line can be laid through these rates: they are too close to each other, or too far apart")]
    Distance,
}

/// The least number of points that a line is fitted to.
const LEAST_POINTS: usize = 3;

/// The greatest distance of response times from a straight line that they are said to follow.
///
/// A tenth is what a person calls straight in a plot. It is several times the chance error of a percentile of
/// 20 000 response times. In an M/M/1 queue it holds up to 0.52 of the capacity, in an M/D/1 queue up to
/// 0.63. If requests come and are served evenly (D/D/1), it holds up to all of the capacity (tests of this
/// module).
const STRAIGHT: f64 = 0.1;

/// The part of the greatest rate that can be sustained (Lee §2: "we assume that it can provide 0.75 ×
/// IOPS_max").
const SUSTAINED: f64 = 0.75;

/// Below this R² a slope says little about single points: half of their standard deviation is left
/// unexplained.
const DOUBTFUL_FIT: f64 = 0.75;

/// Rates over which the mean response time grows about linearly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearRegion {
    /// The least rate that was measured.
    pub from: Iops,
    /// The greatest rate of the region.
    pub to: Iops,
    line: FittedLine,
}

impl LinearRegion {
    /// Returns true if a rate is in the region.
    #[must_use]
    pub fn contains(&self, rate: Iops) -> bool {
        self.from <= rate && rate <= self.to
    }

    /// The mean response time that its straight line has at a rate.
    #[must_use]
    pub fn predicted(&self, rate: Iops) -> Latency {
        Latency::from_millis_f64(self.line.at(rate.per_second()))
    }
}

/// The process gain G = dRT/dρ: the growth of the response time for each further request per second (Lee
/// §3.2, equation 3).
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyGain {
    /// The rate at which the controller is to work.
    pub at: Iops,
    /// G, in milliseconds per IO/s.
    pub ms_per_iops: f64,
    /// R² of the line whose slope it is.
    pub r_squared: f64,
    /// The slope between the two measured rates around the operating point, in milliseconds per IO/s. Beyond
    /// the region it is steeper than G, and a controller that is designed for G meets it there. `None` if no
    /// two sustained rates are around the operating point.
    pub local_ms_per_iops: Option<f64>,
    /// The reasons why it should not be relied upon; empty if it can be.
    pub doubts: Vec<GainDoubt>,
}

/// A reason why a gain should not be relied upon.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum GainDoubt {
    /// The operating point is outside of the region in which response times follow the line.
    #[error(
        "{at:.1} IO/s is outside of the region from {from:.1} to {to:.1} IO/s where the response time grows \
            about linearly"
    )]
    Outside {
        /// The operating point, in requests per second.
        at: f64,
        /// The beginning of the region.
        from: f64,
        /// The end of the region.
        to: f64,
    },
    /// The storage was never seen to keep up at the operating point: a controller there steers a queue that
    /// grows without end.
    #[error(
        "{at:.1} IO/s is more than {most:.1} IO/s, the greatest rate at which the storage was seen to keep \
            up: choose a lower one"
    )]
    Overloaded {
        /// The operating point, in requests per second.
        at: f64,
        /// The greatest rate that was sustained.
        most: f64,
    },
    /// Response times vary because of something other than the rate.
    #[error("the line explains only {:.0} % of how response times vary", 100.0 * .0)]
    Scattered(f64),
    /// More requests per second do not take longer.
    #[error("the response time does not grow with the rate here: there is nothing to control by")]
    NotGrowing,
}

impl LatencyGain {
    /// Returns true if the storage was seen to keep up at the operating point. If it did not, no controller
    /// can work.
    #[must_use]
    pub fn is_sustained(&self) -> bool {
        !self.doubts.iter().any(|doubt| matches!(doubt, GainDoubt::Overloaded { .. }))
    }
}

impl LatencyProfile {
    /// Takes points in the order of their rates.
    ///
    /// # Errors
    /// When they are not in that order, fewer than three are sustained before the first that is not, or no
    /// line goes through those.
    pub fn new(points: Vec<ProfilePoint>) -> Result<Self, InvalidProfile> {
        if !points.is_sorted_by(|one, other| one.offered < other.offered) {
            return Err(InvalidProfile::Order);
        }
        let sustained = points.iter().take_while(|point| point.sustained).count();
        if sustained < LEAST_POINTS {
            return Err(InvalidProfile::TooFew(sustained));
        }
        if line(&points[..LEAST_POINTS]).is_none() {
            return Err(InvalidProfile::Distance);
        }
        let straight = (LEAST_POINTS..=sustained).take_while(|&count| is_straight(&points[..count]));
        // Three points that are not straight are all the same the beginning of the curve.
        let stable = straight.last().unwrap_or(LEAST_POINTS);
        Ok(Self { points, stable })
    }

    /// All points, in the order of their rates.
    #[must_use]
    pub fn points(&self) -> &[ProfilePoint] {
        &self.points
    }

    /// IOPS_max: the most that was completed per second.
    #[must_use]
    pub fn greatest(&self) -> Iops {
        let completed = self.points.iter().map(|point| point.completed.per_second());
        Iops::new(completed.fold(0.0, f64::max))
    }

    /// IOPS_d as Lee assumes it: three quarters of [`greatest`](Self::greatest). [`stable`](Self::stable)
    /// tells it from the profile itself.
    #[must_use]
    pub fn assumed_sustained(&self) -> Iops {
        Iops::new(SUSTAINED * self.greatest().per_second())
    }

    /// The rates up to which the mean response time grows about linearly. They begin with the least rate.
    /// They are the most points that lie within a tenth of their straight line of least squares, as those
    /// before them do.
    ///
    /// The controller is designed for that: Lee's model (equation 3) is a straight line. IOPS_d is the end of
    /// the region in which it holds (§4.2: the area in which "the growth of response times is gradual").
    #[must_use]
    pub fn stable(&self) -> LinearRegion {
        let stable = &self.points[..self.stable];
        let line = line(stable).expect("a line was laid through them when the profile was made");
        LinearRegion { from: stable[0].offered, to: stable[stable.len() - 1].offered, line }
    }

    /// The process gain for a controller that works at this rate: the slope of the line through the stable
    /// region.
    #[must_use]
    pub fn gain(&self, at: Iops) -> LatencyGain {
        let region = self.stable();
        let FittedLine { slope, r_squared, .. } = region.line;
        let mut doubts = Vec::new();
        let most = self.greatest_sustained();
        if at > most {
            doubts.push(GainDoubt::Overloaded { at: at.per_second(), most: most.per_second() });
        } else if !region.contains(at) {
            let [at, from, to] = [at, region.from, region.to].map(Iops::per_second);
            doubts.push(GainDoubt::Outside { at, from, to });
        }
        if slope <= 0.0 {
            doubts.push(GainDoubt::NotGrowing);
        } else if r_squared < DOUBTFUL_FIT {
            doubts.push(GainDoubt::Scattered(r_squared));
        }
        LatencyGain { at, ms_per_iops: slope, r_squared, local_ms_per_iops: self.local_slope(at), doubts }
    }

    /// The last rate before the first at which the storage did not keep up.
    fn greatest_sustained(&self) -> Iops {
        let sustained = self.points.iter().take_while(|point| point.sustained);
        sustained.last().expect("a profile begins with points that are sustained").offered
    }

    fn local_slope(&self, at: Iops) -> Option<f64> {
        let around =
            |pair: &&[ProfilePoint]| pair[0].offered <= at && at <= pair[1].offered && pair[1].sustained;
        let pair = self.points.windows(2).find(around).filter(|pair| pair[0].sustained)?;
        line(pair).map(|line| line.slope)
    }
}

fn line(points: &[ProfilePoint]) -> Option<FittedLine> {
    FittedLine::through(points.iter().map(|point| (point.offered.per_second(), point.mean.as_millis_f64())))
}

fn is_straight(points: &[ProfilePoint]) -> bool {
    line(points).is_some_and(|line| {
        points.iter().all(|point| {
            let mean = point.mean.as_millis_f64();
            (line.at(point.offered.per_second()) - mean).abs() <= STRAIGHT * mean
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A profile of a queue with a capacity of 100 per second at every per cent of it, and beyond.
    fn queue(response: impl Fn(f64) -> f64) -> LatencyProfile {
        let points = (1..=110u32).map(|rate| {
            let load = f64::from(rate) / 100.0;
            let millis = if load < 1.0 { 10.0 * response(load) } else { 1e6 };
            ProfilePoint {
                offered: Iops::new(f64::from(rate)),
                completed: Iops::new(f64::from(rate.min(100))),
                mean: Latency::from_millis_f64(millis),
                quantile: Latency::from_millis_f64(3.0 * millis),
                sustained: load < 1.0,
            }
        });
        LatencyProfile::new(points.collect()).unwrap()
    }

    /// 1/(1 − ρ) services.
    fn mm1() -> LatencyProfile {
        queue(|load| 1.0 / (1.0 - load))
    }

    /// Pollaczek and Khinchine: 1 + ρ/2(1 − ρ) services.
    fn md1() -> LatencyProfile {
        queue(|load| 1.0 + load / (2.0 * (1.0 - load)))
    }

    fn dd1() -> LatencyProfile {
        queue(|_| 1.0)
    }

    #[test]
    fn the_stable_region_of_the_textbooks_queues() {
        for (profile, end) in [(mm1(), 52.0), (md1(), 63.0), (dd1(), 99.0)] {
            assert_eq!(profile.stable().to, Iops::new(end));
            assert_eq!(
                (profile.greatest(), profile.assumed_sustained()),
                (Iops::new(100.0), Iops::new(75.0))
            );
        }
    }

    /// The line's slope is between the curve's at the region's ends, 1/μ(1 − ρ)² for M/M/1.
    #[test]
    fn the_gain_is_a_slope_within_the_region() {
        let gain = mm1().gain(Iops::new(40.0));
        let slope = |load: f64| 10.0 / (1.0 - load).powi(2) / 100.0;
        assert!(gain.ms_per_iops > slope(0.01) && gain.ms_per_iops < slope(0.52), "{gain:?}");
        // At a place within, the curve has that slope: the mean value theorem.
        let place = 1.0 - (0.1 / gain.ms_per_iops).sqrt();
        assert!(place > 0.25 && place < 0.4, "{place}");
        assert!(gain.r_squared > 0.9 && gain.doubts.is_empty(), "{gain:?}");
    }

    #[test]
    fn the_local_slope_is_the_curves() {
        let local = |at| mm1().gain(Iops::new(at)).local_ms_per_iops;
        for at in [10.5, 50.5, 90.5] {
            let slope = 10.0 / (1.0 - at / 100.0f64).powi(2) / 100.0;
            assert!((local(at).unwrap() / slope - 1.0).abs() < 0.01, "{at}: {:?}", local(at));
        }
        // Below what was measured, where it is overloaded, and beyond.
        assert_eq!([0.5, 99.5, 105.0, 200.0].map(local), [None; 4]);
        assert!(local(1.0).is_some() && local(99.0).is_some());
    }

    #[test]
    fn a_gain_that_cannot_be_relied_upon_says_why() {
        let outside = mm1().gain(Iops::new(80.0));
        assert!(matches!(outside.doubts[..], [GainDoubt::Outside { .. }]), "{outside:?}");
        assert_eq!(
            outside.doubts[0].to_string(),
            "80.0 IO/s is outside of the region from 1.0 to 52.0 IO/s where the response time grows about \
                linearly"
        );
        assert_eq!(dd1().gain(Iops::new(50.0)).doubts, [GainDoubt::NotGrowing]);
        // No slope of what is sustained says anything about what is not.
        assert!(mm1().gain(Iops::new(99.0)).is_sustained());
        let overloaded = mm1().gain(Iops::new(99.5));
        assert_eq!(overloaded.doubts, [GainDoubt::Overloaded { at: 99.5, most: 99.0 }]);
        assert!(!overloaded.is_sustained());
        // Up and down by 7 % on a gentle slope stays within the tenth, and no line explains it.
        let scattered = queue(|load| 1.0 + 0.1 * load + 0.07 * (load * 100.0 * std::f64::consts::PI).cos())
            .gain(Iops::new(50.0));
        assert!(matches!(scattered.doubts[..], [GainDoubt::Scattered(_)]), "{scattered:?}");
    }

    #[test]
    fn points_that_are_no_profile() {
        let points = mm1().points().to_vec();
        let new = |points: &[ProfilePoint]| LatencyProfile::new(points.to_vec()).map(drop);
        assert_eq!(new(&points[..2]), Err(InvalidProfile::TooFew(2)));
        assert_eq!(new(&points[97..]), Err(InvalidProfile::TooFew(2)));
        assert_eq!(new(&points[..3]), Ok(()));
        let far = ProfilePoint { offered: Iops::new(f64::MAX), ..points[2] };
        assert_eq!(new(&[points[0], points[1], far]), Err(InvalidProfile::Distance));
        assert_eq!(new(&[points[0], points[1], points[1]]), Err(InvalidProfile::Order));
        assert_eq!(new(&[points[1], points[0], points[2]]), Err(InvalidProfile::Order));
    }

    proptest! {
        /// The region holds only sustained points, whatever was measured. All of it is as straight as is
        /// said, unless it is the smallest region possible.
        #[test]
        fn the_region_is_straight(means in prop::collection::vec(1u64..1_000_000, 3..30),
            overloaded in 3usize..30) {
            let points: Vec<_> = means.iter().zip(1u32..).map(|(&mean, rate)| ProfilePoint {
                offered: Iops::new(f64::from(rate)),
                completed: Iops::new(f64::from(rate)),
                mean: Latency::from_micros(mean),
                quantile: Latency::from_micros(mean),
                sustained: (rate as usize) <= overloaded,
            }).collect();
            let profile = LatencyProfile::new(points).unwrap();
            let region = profile.stable();
            let inside: Vec<_> = profile.points().iter().filter(|point| region.contains(point.offered))
                .collect();
            prop_assert!(inside.iter().all(|point| point.sustained));
            prop_assert!(inside.len() >= 3);
            if inside.len() > 3 {
                for point in inside {
                    let (line, mean) = (region.line.at(point.offered.per_second()),
                        point.mean.as_millis_f64());
                    prop_assert!((line - mean).abs() <= 0.1 * mean * (1.0 + 1e-9));
                }
            }
            prop_assert!(profile.gain(region.to).ms_per_iops.is_finite());
        }
    }
}
